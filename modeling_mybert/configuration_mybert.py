"""Configuration of MyBERT: the fields of transformers' BERT, checked when the configuration is made."""

import difflib
from typing import Any

import torch
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

_AT_LEAST_ONE = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
# More than any model has, so that a broken file does not cost the time and memory of building what it asks for.
_LARGEST = 2**31 - 1
_MOST_LAYERS = 10_000
_MOST_LABELS = 10_000_000

# Layers, width and heads: Devlin et al. (2018) for base and large, the released miniatures (Turc et al., 2019) for the
# others; feed-forward layers are four times as wide.
MODEL_SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}


class MyBertConfig(PreTrainedConfig):
    """Configuration of every MyBERT model; the defaults are BERT base (Devlin et al., 2018, section 3).

    The fields are those of transformers' `BertConfig`, so a `config.json` of type `bert` loads unchanged, and a MyBERT
    one is read by transformers' BERT once its `model_type` says `bert`.

    Args:
        vocab_size: Number of entries of the vocabulary.
        hidden_size: Width of the hidden states; a multiple of `num_attention_heads` unless `head_dim` is given.
        num_hidden_layers: Number of layers; 0 leaves the embeddings alone.
        num_attention_heads: Number of attention heads of a layer.
        head_dim: Width of an attention head; None, as in every BERT, for `hidden_size` by the number of heads. A model
            of which heads were pruned says here how wide the others are; transformers' BERT has no such field.
        intermediate_size: Width of the feed-forward layers.
        hidden_act: Name of an activation in `transformers.activations.ACT2FN`. Google's original code computes the
            tanh form (`"gelu_pytorch_tanh"`); transformers' `"gelu"` is the erf form. They differ by up to 5e-4.
        hidden_dropout_prob: Dropout after the embeddings and after each sub-layer, in [0, 1].
        attention_probs_dropout_prob: Dropout of the attention weights, in [0, 1].
        max_position_embeddings: Longest sequence, in tokens.
        type_vocab_size: Number of segments.
        initializer_range: Standard deviation of freshly initialised weights.
        layer_norm_eps: Epsilon of the layer normalisations.
        pad_token_id: Id of the padding token, whose embedding is never trained; None for none.
        classifier_dropout: Dropout before a task head, in [0, 1]; None takes `hidden_dropout_prob`.
        is_decoder: True lets a token attend to itself and earlier tokens only (the left-to-right ablation, paper
            section 5.1). A sequence's last token, the one that has seen all others, then stands for it in the pooler,
            in place of its first.
        tie_word_embeddings: Whether the vocabulary layer shares the word embeddings' weights.
        sparse_prediction: Whether the masked-LM heads compute logits of the labelled positions only, also in
            evaluation. In training they always do when labels are given.
        unpad_inputs: Whether a padded batch runs through the layers without its padding, where it can be packed: on a
            CPU, and on a GPU in bfloat16 or float16 without attention dropout. Outputs at tokens are the same; padding
            that was left out has zeros.

    Raises:
        ValueError: If a value is outside its range or of the wrong type; the message names field, value and range.
    """

    model_type = "mybert"
    keys_to_ignore_at_inference = ["mlm_loss", "nsp_loss"]  # of outputs that `Trainer` collects as predictions

    vocab_size: int = 30522
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    head_dim: int | None = None
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    hidden_dropout_prob: float = 0.1
    attention_probs_dropout_prob: float = 0.1
    max_position_embeddings: int = 512
    type_vocab_size: int = 2
    initializer_range: float = 0.02
    layer_norm_eps: float = 1e-12
    pad_token_id: int | None = 0
    classifier_dropout: float | None = None
    is_decoder: bool = False
    tie_word_embeddings: bool = True
    sparse_prediction: bool = False
    unpad_inputs: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Take over fields that are not declared here, then check all values."""
        kwargs.pop("model_type", None)  # that of the `bert` configuration whose fields were passed
        self._check_what_transformers_reads(kwargs)
        known = list(self.__dataclass_fields__)
        for name in kwargs:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if close and name not in ("torch_dtype", *known) and not hasattr(type(self), name):
                logger.warning(
                    f"MyBertConfig has no field {name!r}; it is kept without effect. Did you mean {close[0]!r}?"
                )
        super().__post_init__(**kwargs)
        self.check()

    def _check_what_transformers_reads(self, others: dict[str, Any]) -> None:
        """Check the fields that `PreTrainedConfig` reads itself: wrong ones would end in a traceback there."""
        for name, value in (("dtype", self.dtype), ("torch_dtype", others.get("torch_dtype"))):
            named = getattr(torch, value, None) if isinstance(value, str) else value
            if value is not None and not isinstance(named, torch.dtype):
                raise ValueError(f"{name} is {value!r:.100}; expected the name of a PyTorch dtype, such as 'float32'.")
        count = others.get("num_labels")
        if count is not None and not (_is_integer(count) and 0 <= count <= _MOST_LABELS):
            raise ValueError(f"num_labels is {count!r:.100}; expected an integer from 0 to {_MOST_LABELS}.")
        for name in ("id2label", "label2id"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} is {getattr(self, name)!r:.100}; expected a dictionary.")
        for label in self.id2label or ():
            if not (_is_integer(label) or (isinstance(label, str) and label.isdecimal() and len(label) < 10)):
                raise ValueError(f"id2label has the key {label!r:.100}; expected label numbers.")

    def check(self) -> None:
        """Check the values; models call it again, because fields can be assigned after construction.

        Raises:
            ValueError: If a value is outside its range, of the wrong type, or asks for what MyBERT does not compute.
        """
        self._check_sizes()
        for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "classifier_dropout"):
            value = getattr(self, name)
            optional = name == "classifier_dropout" and value is None
            _require(self, name, optional or (_is_number(value) and 0 <= value <= 1), "a probability between 0 and 1")
        _require(
            self,
            "initializer_range",
            _is_number(self.initializer_range) and self.initializer_range >= 0,
            "a number of at least 0",
        )
        _require(
            self, "layer_norm_eps", _is_number(self.layer_norm_eps) and self.layer_norm_eps > 0, "a number above 0"
        )
        _require(
            self,
            "hidden_act",
            isinstance(self.hidden_act, str) and self.hidden_act in ACT2FN,
            f"one of {', '.join(sorted(ACT2FN))}",
        )
        _require(
            self,
            "pad_token_id",
            self.pad_token_id is None or (_is_integer(self.pad_token_id) and 0 <= self.pad_token_id < self.vocab_size),
            f"None or a token id between 0 and {self.vocab_size - 1}",
        )
        kinds = ("regression", "single_label_classification", "multi_label_classification")
        _require(self, "problem_type", self.problem_type in (None, *kinds), f"None or one of {', '.join(kinds)}")
        for name in ("is_decoder", "tie_word_embeddings", "sparse_prediction", "unpad_inputs"):
            _require(self, name, isinstance(getattr(self, name), bool), "True or False")
        if self.head_dim is not None:
            expected = f"None or an integer from 1 to {_LARGEST}"
            _require(self, "head_dim", _is_integer(self.head_dim) and 1 <= self.head_dim <= _LARGEST, expected)
        elif self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads "
                f"({self.num_attention_heads})."
            )
        # Fields of old BERT checkpoints that change the computation: saying no beats computing something else.
        position_type = getattr(self, "position_embedding_type", None)
        if position_type not in (None, "absolute"):
            raise ValueError(f"position_embedding_type is {position_type!r}; MyBERT has 'absolute' positions only.")
        if getattr(self, "add_cross_attention", False):
            raise ValueError("add_cross_attention is True; MyBERT is an encoder without cross-attention.")

    @property
    def head_size(self) -> int:
        """Width of an attention head."""
        return self.hidden_size // self.num_attention_heads if self.head_dim is None else self.head_dim

    def to_dict(self) -> dict[str, Any]:
        """As in transformers; without `head_dim` where the other sizes say it."""
        fields = super().to_dict()
        if self.head_dim is None:
            fields.pop("head_dim", None)
        return fields

    def _check_sizes(self) -> None:
        for name in (*_AT_LEAST_ONE, "num_hidden_layers"):
            lowest = 1 if name in _AT_LEAST_ONE else 0
            _require(
                self,
                name,
                _is_integer(getattr(self, name)) and getattr(self, name) >= lowest,
                f"an integer of at least {lowest}",
            )
            highest = _MOST_LAYERS if name == "num_hidden_layers" else _LARGEST
            _require(self, name, getattr(self, name) <= highest, f"an integer of at most {highest}")

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a `config.json`; one of type `bert` (or of no type, as in Google's releases) is one of MyBERT's own."""
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if config_dict.get("model_type", "bert") == "bert":
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _require(config: MyBertConfig, name: str, fulfilled: bool, expected: str) -> None:
    if not fulfilled:
        raise ValueError(f"{name} is {getattr(config, name)!r:.100}; expected {expected}.")


__all__ = ["MyBertConfig"]
