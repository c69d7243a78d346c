"""What all MyBERT models share: loading, publishing with their code, and prepacked weights."""

import functools
from typing import Any, TypeVar

from transformers.modeling_utils import PreTrainedModel

from .configuration_mybert import MyBertConfig
from .layers_mybert import MyBertSelfAttention
from .linear_mybert import pack_weights

_Model = TypeVar("_Model", bound="MyBertPreTrainedModel")


class MyBertPreTrainedModel(PreTrainedModel):
    """What all MyBERT models share: configuration class, initialization and the features that transformers may use."""

    config: MyBertConfig
    config_class = MyBertConfig
    base_model_prefix = "bert"
    supports_gradient_checkpointing = True
    _no_split_modules = ["MyBertEmbeddings", "MyBertLayer"]
    _supports_flash_attn = True
    _supports_sdpa = True
    _supports_flex_attn = True
    _supports_attention_backend = True
    _can_record_outputs = {"attentions": MyBertSelfAttention}
    # Checkpoints of transformers 4.30 and before store the positions 0 ... 511 as if they were weights.
    _keys_to_ignore_on_load_unexpected = [r"embeddings\.position_ids$"]

    @classmethod
    def from_pretrained(
        cls: type[_Model], pretrained_model_name_or_path: Any, *model_args: Any, config: Any = None, **kwargs: Any
    ) -> _Model:
        """As in transformers; a configuration object of type `bert` is converted to a `MyBertConfig`."""
        if getattr(config, "model_type", None) == "bert":
            attn_implementation = config._attn_implementation
            config = cls.config_class.from_dict(config.to_dict(), attn_implementation=attn_implementation)
        return super().from_pretrained(pretrained_model_name_or_path, *model_args, config=config, **kwargs)

    def prepack_weights(self: _Model) -> _Model:
        """Speed up inference on a CPU: each linear layer keeps a second copy of its weights in oneDNN's memory layout.

        Outputs differ by rounding. Saving and adapters use the original weights. `train()` drops the copies. If the
        weights change in another way, the copies are no longer used until this method is called again. (Changes that
        PyTorch does not count go unnoticed: through `weight.data`, or by a fused optimizer on a model left in
        `eval()`.) Copies and pickles of the model do not contain them.

        Returns:
            The model.

        Raises:
            ValueError: If the model is not on a CPU, its weights are neither float32 nor bfloat16, or this build of
                PyTorch has no oneDNN.
        """
        pack_weights(self)
        return self

    def train(self: _Model, mode: bool = True) -> _Model:
        """As in torch; `train()` drops the copies of `prepack_weights`, which would go out of date."""
        if mode:
            for module in self.modules():
                module.__dict__.pop("packed_weight", None)
        return super().train(mode)

    @functools.wraps(PreTrainedModel.push_to_hub, assigned=())  # its signature
    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:
        """As in transformers; also uploads this code and the `auto_map` of all heads, to load without mybert."""
        model_class, classes = type(self), auto_map()
        own = [name for name, source in classes.items() if source.endswith(f".{model_class.__name__}")]
        if not own or model_class._auto_class is not None:  # a user's class, or one registered for an auto class
            return super().push_to_hub(*args, **kwargs)
        before = getattr(self.config, "auto_map", None)  # of a model that was loaded from such a folder
        model_class._auto_class, self.config.auto_map = own[0], classes
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            model_class._auto_class = None
            if before is None:
                del self.config.auto_map
            else:
                self.config.auto_map = before


def auto_map() -> dict[str, str]:
    """Map transformers' auto classes to classes in these files, for the configuration and every head.

    transformers copies to the Hub what a model's file imports; because of these imports every class brings all heads.
    """
    from .heads_mybert import __all__ as task_heads
    from .pretraining_heads_mybert import __all__ as pretraining_heads

    return {
        "AutoConfig": "configuration_mybert.MyBertConfig",
        "AutoModel": "modeling_mybert.MyBertModel",
        **{
            name.replace("MyBert", "AutoModel", 1): f"{file}.{name}"
            for file, names in (("pretraining_heads_mybert", pretraining_heads), ("heads_mybert", task_heads))
            for name in names
            if not name.endswith("Output")
        },
    }
