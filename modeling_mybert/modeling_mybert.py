"""What all MyBERT models share, and the encoder (Devlin et al., 2018).

Parameter names are those of transformers' BERT, so checkpoints load unchanged in both. A head (`heads_mybert.py`,
`pretraining_heads_mybert.py`) calls `MyBertModel`, which calls embeddings, layers and pooler (`layers_mybert.py`).

Padding is not computed: `MyBertModel.forward` packs the tokens of a padded batch once, before the embeddings, and
unpacks the hidden states once, after the last layer (`batch_mybert.py`), unless a user has hooked, replaced or patched
a module, whose code may depend on the rows of the batch (`hooks_mybert.py`).

Shapes: B sequences in a batch, L tokens in a sequence (padding included), D = hidden_size, H heads, V = vocab_size. In
the layers of a packed batch, B is 1 and L is the total number of tokens. If rows hold several sequences one after the
other (as from transformers' `DataCollatorWithFlattening`), the pooled output has a row for each of the N sequences.
"""

import functools
import inspect
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from typing import Any, TypeVar

import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.output_capturing import capture_outputs

from .batch_mybert import (
    Batch,
    check_indices,
    check_inputs,
    check_labels,
    restarting_positions,
    supports_varlen,
    unmask_empty_rows,
)
from .configuration_mybert import MyBertConfig
from .hooks_mybert import has_foreign_hooks, hooks_of, is_changed, is_known_class, runs_known_forward
from .layers_mybert import MyBertEmbeddings, MyBertEncoder, MyBertPooler, MyBertSelfAttention
from .linear_mybert import filled_up, pack_weights
from .losses_mybert import cross_entropy

# Whether a user's module around the encoder is running, which may read the hidden states of padding, too.
_padding_is_read: ContextVar[bool] = ContextVar("_padding_is_read", default=False)
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
        model_class._auto_class, self.config.auto_map = own[0], classes
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            model_class._auto_class = None
            del self.config.auto_map

    def _encoder(
        self,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        others: dict[str, Any],
        output_indices: torch.Tensor | None = None,
        unpad_inputs: bool | None = None,
    ) -> Callable[..., Any]:
        """A head's encoder with all arguments but `input_ids`: its caller's, and mybert's where it takes them.

        What a user has put in place of a `MyBertModel`, or around it, gets the arguments of transformers' BERT. It may
        read any token, and padding as well. For `output_indices` and `unpad_inputs` see `MyBertModel.forward`.
        """
        encoder: Any = self.bert
        arguments = {
            "attention_mask": attention_mask,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
            "inputs_embeds": inputs_embeds,
            **others,
            "return_dict": True,
        }
        is_unchanged = type(encoder).forward is _FORWARD and runs_known_forward(encoder)
        if not (is_unchanged or _passes_arguments_on(encoder)):
            of_bert = {key: value for key, value in arguments.items() if key not in ("token_indices", "unpad_inputs")}
            return partial(_call_that_reads_padding, encoder, **of_bert)
        if unpad_inputs is not None:
            arguments["unpad_inputs"] = unpad_inputs
        if output_indices is not None and is_unchanged and not has_foreign_hooks(*hooks_of(encoder)):
            arguments["output_indices"] = output_indices
        return partial(encoder, **arguments)

    def _loss_of_classes(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor | None,
        num_items_in_batch: torch.Tensor | int | None,
        name: str = "labels",
    ) -> torch.Tensor | None:
        """`cross_entropy` of logits (..., C) and class ids (...), which are checked; None without labels."""
        if labels is None:
            return None
        labels = labels.view(-1) if logits.dim() == 2 else labels  # of rows, also as a column
        check_labels(name, labels, logits.shape[:-1], logits.shape[-1], self.training)
        return cross_entropy(logits, labels, num_items_in_batch)


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


class MyBertModel(MyBertPreTrainedModel):
    """The encoder: embeddings, layers and pooler.

    Args:
        config: The configuration.
        add_pooling_layer: Whether there is a pooler; token-level heads have none.
    """

    def __init__(self, config: MyBertConfig, add_pooling_layer: bool = True) -> None:
        if not hasattr(config, "check"):  # not isinstance: the Hub's copy of the class is a different class
            raise ValueError(
                f"config is a {type(config).__name__}; expected a MyBertConfig. "
                "MyBertConfig.from_dict(config.to_dict()) makes one of a BertConfig."
            )
        config.check()
        super().__init__(config)
        self.gradient_checkpointing = False
        self.embeddings = MyBertEmbeddings(config)
        self.encoder = MyBertEncoder(config)
        self.pooler = MyBertPooler(config) if add_pooling_layer else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """The word embeddings."""
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Embedding) -> None:
        """Replace the word embeddings."""
        self.embeddings.word_embeddings = value

    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        token_indices: torch.Tensor | None = None,
        output_indices: torch.Tensor | None = None,
        unpad_inputs: bool = True,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling | tuple[torch.Tensor, ...]:
        """Encode a batch.

        Rows may hold several sequences one after the other, without padding and without an attention mask. Their
        boundaries are given by `cu_seq_lens_q`, or else by positions that start again at 0.

        Args:
            input_ids: Token ids (B, L), in [0, V).
            attention_mask: 1 at tokens, 0 at padding (B, L); or a prepared mask (B, 1, L, L): bool, True where a token
                may be attended to, or floating point, added to the scores. None: no padding.
            token_type_ids: Segments (B, L) or (1, L), in [0, type_vocab_size). None: all 0.
            position_ids: Positions (B, L) or (1, L), in [0, max_position_embeddings). None: 0, 1, 2, ...
            inputs_embeds: Word embeddings (B, L, D) in place of `input_ids`.
            token_indices: Indices into the flattened batch where `attention_mask` (B, L) is 1 (S,), for a batch with
                all padding at the end of rows and no labels at it. Passing them avoids a synchronization with an
                accelerator.
            output_indices: Indices into the flattened batch of the tokens whose last hidden states the caller reads
                (P,), besides those of the pooled output; (0,) for that alone. None: all. See "Returns".
            unpad_inputs: False if the hidden states of padding are needed. Padding is also kept if somebody has put
                hooks on submodules, or has replaced or patched some.
            **kwargs: `output_hidden_states`, `output_attentions` (eager attention only), `return_dict`;
                `cu_seq_lens_q`, the offset of each sequence in the flattened batch, and B L at the end (N + 1,);
                `max_length_q`, the length of the longest of these sequences; and other arguments of the attention
                function.

        Returns:
            `last_hidden_state` (B, L, D); `pooler_output` (B, D), or (N, D) if rows hold several sequences, or None
            without a pooler; and, if requested, `hidden_states` (embeddings and each layer, each (B, L, D)) and
            `attentions` (one for each layer, each (B, H, L, L)). Hidden states of removed padding are 0.

            With `output_indices`, the last layer computes what follows its attention for needed tokens only, and
            `last_hidden_state` is (P, D), undefined at removed padding. It remains (B, L, D) if all tokens are
            computed anyway: if hidden states are requested, submodules have hooks or have been replaced or patched, or
            dropout has to draw the random numbers of transformers' BERT.

        Raises:
            ValueError: If an argument's shape, dtype or values do not fit the configuration. Values on an accelerator
                are not checked in training, where reading them would synchronize with the device; nothing is checked
                in a graph that is being compiled or exported.
        """
        words = input_ids if inputs_embeds is None else inputs_embeds
        cu_seqlens, max_seqlen = kwargs.get("cu_seq_lens_q"), kwargs.get("max_length_q")
        if not (torch.compiler.is_compiling() or torch.jit.is_tracing()):
            # An adapter or a user's module in place of the embeddings may lack these attributes.
            table = getattr(self.embeddings, "word_embeddings", None)
            num_words = getattr(table, "num_embeddings", self.config.vocab_size)
            inputs = (input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, cu_seqlens, max_seqlen)
            check_inputs(self.config, num_words, self.training, *inputs)
        assert words is not None
        shape = (words.shape[0], words.shape[1])
        if attention_mask is not None and len(attention_mask.shape) == 2:
            attention_mask = unmask_empty_rows(attention_mask)
        if token_type_ids is not None:
            token_type_ids = token_type_ids.expand(shape)
        if position_ids is not None:
            position_ids = position_ids.expand(shape)
        elif cu_seqlens is not None:
            position_ids = restarting_positions(shape, cu_seqlens)
        if token_indices is not None:
            check_indices("token_indices", token_indices, shape[0] * shape[1], self.training)
            if attention_mask is None or len(attention_mask.shape) != 2:
                raise ValueError(
                    "token_indices is given without the attention_mask (batch, tokens) that it belongs to."
                )
            if token_indices.shape[0] == shape[0] * shape[1]:
                attention_mask = token_indices = None  # no padding
        if output_indices is not None:
            check_indices("output_indices", output_indices, shape[0] * shape[1], self.training)
        is_read = not torch.compiler.is_compiling() and _padding_is_read.get()
        is_changed_inside = is_read or self._is_changed_inside()
        may_pack = self.config.unpad_inputs and unpad_inputs and not is_changed_inside
        given = (words, attention_mask, position_ids, cu_seqlens, max_seqlen, token_indices)
        has_varlen_kernel = may_pack and self._supports_varlen(words)
        batch = Batch.of(self.config, *given, self.training, may_pack, has_varlen_kernel)
        if batch.is_packed:
            if inputs_embeds is None and is_changed(self.embeddings.word_embeddings):
                # It gets rows; NEFTune's noise, for example, depends on the shape of the batch.
                input_ids, inputs_embeds = None, self.embeddings.word_embeddings(input_ids)
            if position_ids is None:
                position_ids = torch.arange(shape[1], device=words.device).expand(shape)
        hidden_states: torch.Tensor = self.embeddings(
            input_ids=None if input_ids is None else batch.pack(input_ids),
            token_type_ids=None if token_type_ids is None else batch.pack(token_type_ids),
            position_ids=None if position_ids is None else batch.pack(position_ids),
            inputs_embeds=None if inputs_embeds is None else batch.pack(inputs_embeds),
        )
        if (output_hidden_states := kwargs.pop("output_hidden_states", None)) is None:
            output_hidden_states = self.config.output_hidden_states
        arguments = {"attention_mask": None, **kwargs, **batch.attention_arguments(self.config, hidden_states)}
        if output_hidden_states:
            arguments["output_hidden_states"] = output_hidden_states
        if is_changed_inside or output_hidden_states or self._computes_all_tokens(batch):
            output_indices = None
        if output_indices is None:
            outputs = self.encoder(hidden_states, **arguments)
            states, all_states = outputs.last_hidden_state, getattr(outputs, "hidden_states", None)
            pooled = None if self.pooler is None else self.pooler(self._states_to_pool(states, batch))
            if batch.is_packed:
                states = batch.unpack(states)
                all_states = all_states and tuple(None if one is None else batch.unpack(one) for one in all_states)
            return BaseModelOutputWithPooling(states, pooled, all_states)
        pooled_tokens = batch.pooled_tokens
        if self.pooler is None:
            pooled_tokens = output_indices[:0]
        elif pooled_tokens is None:  # the first of each row
            pooled_tokens = torch.arange(shape[0], device=output_indices.device) * shape[1]
        tokens = torch.cat([pooled_tokens, batch.places(output_indices)])
        arguments["output_tokens"] = filled_up(tokens, multiple=16)
        states = self.encoder(hidden_states, **arguments).last_hidden_state[0]
        count = pooled_tokens.shape[0]
        pooled = None if self.pooler is None else self.pooler(states[:count, None])
        return BaseModelOutputWithPooling(states[count : tokens.shape[0]], pooled)

    def _states_to_pool(self, hidden_states: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The pooled token of each sequence (N, 1, D), or all of its tokens for a pooler of somebody else's."""
        if batch.pooled_tokens is None:  # the first of each row
            return hidden_states
        parts = () if self.pooler is None else self.pooler.modules()
        if any(type(part).forward is _POOL and runs_known_forward(part) for part in parts):
            return hidden_states.flatten(0, 1).index_select(0, batch.pooled_tokens)[:, None]
        return batch.rows(hidden_states)

    def _is_changed_inside(self) -> bool:
        """Whether code of others runs inside, which may depend on rows or read any token; not in word embeddings."""
        words = getattr(self.embeddings, "word_embeddings", None)  # they run before packing
        return is_changed(self.embeddings, self.encoder, self.pooler, leave_out=words) or (
            # PyTorch's modules treat all tokens alike, but a pooler chooses one.
            self.pooler is not None and type(self.pooler).__module__.startswith("torch.nn.modules.")
        )

    def _computes_all_tokens(self, batch: Batch) -> bool:
        """Whether the last layer computes all tokens, although the caller does not need all."""
        if not self.encoder.layer:
            return True
        if batch.is_packed or not self.training:  # packed, dropout draws other random numbers in any case
            return False
        last: Any = self.encoder.layer[-1]
        after_attention = (last.attention.output, last.intermediate, last.output)
        return any(
            isinstance(module, nn.Dropout) and module.p for part in after_attention for module in part.modules()
        )

    def _supports_varlen(self, words: torch.Tensor) -> bool:
        """Whether attention can run in the variable-length kernel."""
        if not words.is_cuda:
            return False
        dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else self.dtype
        layers: Any = self.encoder.layer
        has_dropout = self.training and any(layer.attention.self.dropout.p for layer in layers)
        return supports_varlen(words.device, dtype, self.config.head_size, has_dropout)


_FORWARD, _POOL = MyBertModel.forward, MyBertPooler.forward  # a user may patch the classes


def _call_that_reads_padding(encoder: nn.Module, /, *args: Any, **kwargs: Any) -> Any:
    if torch.compiler.is_compiling():  # it cannot trace context variables
        return encoder(*args, **kwargs)
    before = _padding_is_read.set(True)
    try:
        return encoder(*args, **kwargs)
    finally:
        _padding_is_read.reset(before)


def _passes_arguments_on(encoder: nn.Module) -> bool:
    """Whether an encoder is a `MyBertModel` with another forward, or one that an adapter or FSDP has wrapped."""
    if not isinstance(encoder, MyBertModel):
        return is_known_class(type(encoder), type(encoder).forward) and runs_known_forward(encoder)
    parameters = inspect.signature(encoder.forward).parameters.values()
    return any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)


def no_tokens(*inputs: torch.Tensor | None) -> torch.Tensor | None:
    """`output_indices` of a head that reads only the pooled output, on the device of the first input that is given."""
    given = next((tensor for tensor in inputs if tensor is not None), None)  # the encoder rejects a call without input
    return None if given is None else given.new_empty(0, dtype=torch.long)
