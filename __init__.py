"""mybert: BERT from raw text to the Hub, in one package on transformers 5.

The names below and the rooms (`mybert.pretraining`, `mybert.finetuning`, ...) load on first use. Importing this
package makes transformers know MyBERT (`AutoModel`, `AutoTokenizer`, `pipeline`) and brings back
`pipeline("question-answering")`.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._registration import register

if TYPE_CHECKING:
    from .finetuning import predict
    from .modeling_mybert import (
        MyBertConfig,
        MyBertForMaskedLM,
        MyBertForMultipleChoice,
        MyBertForNextSentencePrediction,
        MyBertForPreTraining,
        MyBertForQuestionAnswering,
        MyBertForSequenceClassification,
        MyBertForTokenClassification,
        MyBertModel,
        MyBertPreTrainedModel,
    )
    from .tokenization import MyBertTokenizer

__version__ = "0.1.0"

_ROOMS = (
    "conversion",
    "files",
    "finetuning",
    "hub_card",
    "metrics",
    "modeling_mybert",
    "pipelines",
    "pretraining",
    "tokenization",
    "runs",
    "visualization",
)

__all__ = [
    "MyBertConfig",
    "MyBertForMaskedLM",
    "MyBertForMultipleChoice",
    "MyBertForNextSentencePrediction",
    "MyBertForPreTraining",
    "MyBertForQuestionAnswering",
    "MyBertForSequenceClassification",
    "MyBertForTokenClassification",
    "MyBertModel",
    "MyBertPreTrainedModel",
    "MyBertTokenizer",
    "__version__",
    "predict",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = {"MyBertTokenizer": "tokenization", "predict": "finetuning"}.get(name, "modeling_mybert")
    return getattr(importlib.import_module(f".{room}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


register()
