"""mybert: BERT from raw text to the Hub, in one package on transformers 5.

Importing this package registers MyBERT with transformers (`AutoModel`, `AutoTokenizer`, `pipeline`) and brings back
`pipeline("question-answering")`. The subpackages (`mybert.pretraining`, `mybert.finetuning`, ...) load on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._registration import is_command, register

if TYPE_CHECKING:
    from .finetuning import distill, evaluate, finetune, predict
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
    from .pretraining import pretrain
    from .tokenization import MyBertTokenizer, train_wordpiece

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

# The subpackage of each name that is not a model class.
_SUBPACKAGE_OF = {
    "MyBertTokenizer": "tokenization",
    "distill": "finetuning",
    "evaluate": "finetuning",
    "finetune": "finetuning",
    "predict": "finetuning",
    "pretrain": "pretraining",
    "train_wordpiece": "tokenization",
}

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
    "distill",
    "evaluate",
    "finetune",
    "predict",
    "pretrain",
    "train_wordpiece",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    subpackage = _SUBPACKAGE_OF.get(name, "modeling_mybert")
    return getattr(importlib.import_module(f".{subpackage}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})


if not is_command():  # which registers once it knows what to run: `cli.py`
    register()
