"""The network: configuration and every model class.

The names load on first use (PEP 562): reading a configuration must not cost the import of the network.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .configuration_mybert import MyBertConfig
    from .modeling_mybert import (
        MyBertForMaskedLM,
        MyBertForMultipleChoice,
        MyBertForNextSentencePrediction,
        MyBertForPreTraining,
        MyBertForPreTrainingOutput,
        MyBertForQuestionAnswering,
        MyBertForSequenceClassification,
        MyBertForTokenClassification,
        MyBertModel,
        MyBertPreTrainedModel,
    )

__all__ = [
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
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    file = "configuration_mybert" if name == "MyBertConfig" else "modeling_mybert"
    return getattr(importlib.import_module(f".{file}", __name__), name)
