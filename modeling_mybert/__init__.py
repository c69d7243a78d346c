"""The network: configuration and every model class.

The names load on first use (PEP 562): reading a configuration must not import PyTorch modules.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .batch_mybert import flat_indices
    from .configuration_mybert import MODEL_SIZES, MyBertConfig
    from .heads_mybert import (
        MyBertForMultipleChoice,
        MyBertForQuestionAnswering,
        MyBertForSequenceClassification,
        MyBertForTokenClassification,
    )
    from .linear_mybert import LinearKernels, linear_kernels, set_linear_kernel
    from .losses_mybert import IGNORE_INDEX, cross_entropy, mean_of
    from .modeling_mybert import MyBertModel, MyBertPreTrainedModel, auto_map
    from .pretraining_heads_mybert import (
        MyBertForMaskedLM,
        MyBertForNextSentencePrediction,
        MyBertForPreTraining,
        MyBertForPreTrainingOutput,
    )

_FILES = {
    "configuration_mybert": ("MODEL_SIZES", "MyBertConfig"),
    "heads_mybert": (
        "MyBertForMultipleChoice",
        "MyBertForQuestionAnswering",
        "MyBertForSequenceClassification",
        "MyBertForTokenClassification",
    ),
    "linear_mybert": ("LinearKernels", "linear_kernels", "set_linear_kernel"),
    "losses_mybert": ("IGNORE_INDEX", "cross_entropy", "mean_of"),
    "modeling_mybert": ("MyBertModel", "MyBertPreTrainedModel", "auto_map"),
    "batch_mybert": ("flat_indices",),
    "pretraining_heads_mybert": (
        "MyBertForMaskedLM",
        "MyBertForNextSentencePrediction",
        "MyBertForPreTraining",
        "MyBertForPreTrainingOutput",
    ),
}

__all__ = [
    "IGNORE_INDEX",
    "MODEL_SIZES",
    "LinearKernels",
    "MyBertConfig",
    "MyBertForMaskedLM",
    "MyBertForMultipleChoice",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForPreTrainingOutput",
    "MyBertForQuestionAnswering",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
    "MyBertModel",
    "MyBertPreTrainedModel",
    "auto_map",
    "cross_entropy",
    "flat_indices",
    "linear_kernels",
    "mean_of",
    "set_linear_kernel",
]


def __getattr__(name: str) -> Any:
    for file, names in _FILES.items():
        if name in names:
            return getattr(importlib.import_module(f".{file}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
