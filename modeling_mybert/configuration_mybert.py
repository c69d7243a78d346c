"""Configuration of MyBERT: the fields of transformers' BERT, checked when the configuration is made."""

import difflib
import math
from numbers import Integral
from typing import Any

import torch
from transformers.activations import ACT2FN
from transformers.configuration_utils import PreTrainedConfig
from transformers.utils import logging

logger = logging.get_logger(__name__)

_SIZES = (
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "max_position_embeddings",
    "type_vocab_size",
)
_FLAGS = ("is_decoder", "tie_word_embeddings", "sparse_prediction", "unpad_inputs")
# More than any real model has, so that a broken file cannot make us spend the time and memory to build such a model.
_LARGEST = 2**31 - 1
_MAX_LAYERS = 10_000
_MAX_LABELS = 10_000_000


class MyBertConfig(PreTrainedConfig):
    """Configuration of every MyBERT model; the defaults are BERT base (Devlin et al., 2018, section 3).

    The fields are those of transformers' `BertConfig`, so a `config.json` of type `bert` loads unchanged, and a MyBERT
    one can be read by transformers' BERT once its `model_type` is set to `bert`.

    Args:
        vocab_size: Number of tokens in the vocabulary.
        hidden_size: Width of the hidden states; a multiple of `num_attention_heads` unless `head_dim` is given.
        num_hidden_layers: Number of layers; 0 leaves only the embeddings.
        num_attention_heads: Number of attention heads of a layer.
        head_dim: Width of an attention head; None, as in every BERT, for `hidden_size / num_attention_heads`. A model
            with pruned heads stores the width of the remaining heads here; transformers' BERT has no such field.
        intermediate_size: Width of the feed-forward layers.
        hidden_act: Name of an activation in `transformers.activations.ACT2FN`. Google's original code computes the
            tanh approximation of GELU (`"gelu_pytorch_tanh"`), transformers' `"gelu"` the exact form (erf). They
            differ by up to 5e-4.
        hidden_dropout_prob: Dropout probability after the embeddings and after each sub-layer, in [0, 1].
        attention_probs_dropout_prob: Dropout probability of the attention weights, in [0, 1].
        max_position_embeddings: Longest sequence, in tokens.
        type_vocab_size: Number of segment (token type) ids.
        initializer_range: Standard deviation of freshly initialized weights.
        layer_norm_eps: Epsilon of the layer normalizations.
        pad_token_id: Id of the padding token, whose embedding is never trained; None if there is no padding token.
        classifier_dropout: Dropout probability before a task head, in [0, 1]; None for `hidden_dropout_prob`.
        classifier_pooling: What `MyBertForSequenceClassification` reads: `"cls"`, the pooled output, or `"mean"`, the
            mean of the last hidden states of a sequence's tokens, special tokens included, as sentence-transformers
            computes it; such a classifier has no pooler. transformers' ModernBERT has this field, BERT does not.
        is_decoder: True for causal attention: a token attends to itself and earlier tokens only (the left-to-right
            ablation, paper section 5.1). The pooler then reads the last token of a sequence instead of the first,
            because only the last one has attended to all others.
        tie_word_embeddings: Whether the masked-LM output layer shares its weights with the word embeddings.
        sparse_prediction: Whether the masked-LM heads compute logits only at labeled positions in evaluation as well.
            In training they always do so when labels are given.
        unpad_inputs: Whether padding is removed from a batch before the layers, where that is possible: on a CPU, and
            on a GPU in bfloat16 or float16 without attention dropout. Outputs at real tokens are the same; outputs at
            the removed padding are zeros.

    Raises:
        ValueError: If a value is outside its range or of the wrong type; the message gives the field, its value and
            the valid values.
    """

    model_type = "mybert"
    keys_to_ignore_at_inference = ["mlm_loss", "nsp_loss"]  # so that `Trainer` does not collect them as predictions

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
    classifier_pooling: str = "cls"
    is_decoder: bool = False
    tie_word_embeddings: bool = True
    sparse_prediction: bool = False
    unpad_inputs: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Accept fields that are not declared here, then check all values."""
        kwargs.pop("model_type", None)  # present when the fields come from a `bert` configuration
        # Fields that `PreTrainedConfig` reads itself, where wrong values would raise unclear errors.
        for name, value in (("dtype", self.dtype), ("torch_dtype", kwargs.get("torch_dtype"))):
            named = getattr(torch, value, None) if isinstance(value, str) else value
            if value is not None and not isinstance(named, torch.dtype):
                raise ValueError(f"{name} is {value!r:.100}; expected the name of a PyTorch dtype, such as 'float32'.")
        # Numbers of labels often come from NumPy or scikit-learn; transformers makes them int.
        count = kwargs.get("num_labels")
        if count is not None and not _is_in(count, 0, _MAX_LABELS, Integral):
            raise ValueError(f"num_labels is {count!r:.100}; expected an integer from 0 to {_MAX_LABELS}.")
        for name in ("id2label", "label2id"):
            if getattr(self, name) is not None and not isinstance(getattr(self, name), dict):
                raise ValueError(f"{name} is {getattr(self, name)!r:.100}; expected a dictionary.")
        for label in self.id2label or ():
            if not (
                _is_in(label, kind=Integral) or (isinstance(label, str) and label.isdecimal() and len(label) < 10)
            ):
                raise ValueError(f"id2label has the key {label!r:.100}; expected label numbers.")
        known = list(self.__dataclass_fields__)
        for name in kwargs:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.9)
            if close and name not in ("torch_dtype", *known) and not hasattr(type(self), name):
                logger.warning(
                    f"MyBertConfig has no field {name!r}; it is kept without effect. Did you mean {close[0]!r}?"
                )
        super().__post_init__(**kwargs)
        self.check()

    def check(self) -> None:
        """Check the values; models call this again, because fields can be changed after construction.

        Raises:
            ValueError: If a value is outside its range, of the wrong type, or for a feature that MyBERT lacks.
        """
        kinds = ("regression", "single_label_classification", "multi_label_classification")
        for name, is_right, expected in (
            *((name, lambda size: _is_in(size, 1, _LARGEST), f"an integer from 1 to {_LARGEST}") for name in _SIZES),
            ("num_hidden_layers", lambda n: _is_in(n, 0, _MAX_LAYERS), f"an integer from 0 to {_MAX_LAYERS}"),
            ("hidden_dropout_prob", lambda p: _is_in(p, 0, 1, float), "a probability between 0 and 1"),
            ("attention_probs_dropout_prob", lambda p: _is_in(p, 0, 1, float), "a probability between 0 and 1"),
            ("classifier_dropout", lambda p: p is None or _is_in(p, 0, 1, float), "a probability between 0 and 1"),
            ("classifier_pooling", lambda pooling: pooling in ("cls", "mean"), "'cls' or 'mean'"),
            ("initializer_range", lambda size: _is_in(size, 0, math.inf, float), "a number of at least 0"),
            ("layer_norm_eps", lambda size: _is_in(size, 0, math.inf, float) and size > 0, "a number above 0"),
            ("hidden_act", lambda act: isinstance(act, str) and act in ACT2FN, f"one of {', '.join(sorted(ACT2FN))}"),
            ("problem_type", lambda kind: kind in (None, *kinds), f"None or one of {', '.join(kinds)}"),
            (
                "head_dim",
                lambda size: size is None or _is_in(size, 1, _LARGEST),
                f"None or an integer from 1 to {_LARGEST}",
            ),
            *((name, lambda flag: isinstance(flag, bool), "True or False") for name in _FLAGS),
        ):
            if not is_right(getattr(self, name)):
                raise ValueError(f"{name} is {getattr(self, name)!r:.100}; expected {expected}.")
        if self.pad_token_id is not None and not _is_in(self.pad_token_id, 0, self.vocab_size - 1):
            raise ValueError(
                f"pad_token_id is {self.pad_token_id!r:.100}; expected None or a token id between 0 and "
                f"{self.vocab_size - 1}."
            )
        if self.head_dim is None and self.hidden_size % self.num_attention_heads:
            raise ValueError(
                f"hidden_size ({self.hidden_size}) must be a multiple of num_attention_heads "
                f"({self.num_attention_heads})."
            )
        # Fields of old BERT checkpoints that change the computation: better to refuse than to compute something else.
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
        """As in transformers, but without the defaults of fields that make a model other than transformers' BERT."""
        fields = super().to_dict()
        for name, default in (("head_dim", None), ("classifier_pooling", "cls")):
            if fields.get(name) == default:
                fields.pop(name, None)
        return fields

    @classmethod
    def get_config_dict(
        cls, pretrained_model_name_or_path: Any, **kwargs: Any
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read a `config.json`; type `bert`, or no type (as in Google's releases), is read as `mybert`."""
        config_dict, kwargs = super().get_config_dict(pretrained_model_name_or_path, **kwargs)
        if config_dict.get("model_type", "bert") == "bert":
            config_dict = {**config_dict, "model_type": cls.model_type}
        return config_dict, kwargs


def _is_in(value: Any, lowest: float = -math.inf, highest: float = math.inf, kind: type = int) -> bool:
    """Whether a value is a number of a kind in a range: `int`, `Integral` or `float`, which an integer is, too."""
    kinds: Any = (int, float) if kind is float else kind
    return isinstance(value, kinds) and not isinstance(value, bool) and lowest <= value <= highest
