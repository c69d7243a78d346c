"""mybert: BERT from raw text to the Hub, in one package on transformers 5.

Importing this package registers MyBERT with transformers (`AutoModel`, `AutoTokenizer`, `pipeline`) and brings back
`pipeline("question-answering")`. The subpackages (`mybert.pretraining`, `mybert.finetuning`, ...) load on first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from ._lazy_names import lazy_names
from ._registration import is_command, register

if TYPE_CHECKING:
    from .encoders import restore, speed_up
    from .finetuning import compare, distill, evaluate, finetune, predict, score
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

_SUBPACKAGES = (
    "conversion",
    "demo",
    "encoders",
    "files",
    "finetuning",
    "hub_card",
    "metrics",
    "modeling_mybert",
    "pipelines",
    "pretraining",
    "runs",
    "studies",
    "tokenization",
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
    "compare",
    "distill",
    "evaluate",
    "finetune",
    "predict",
    "pretrain",
    "restore",
    "score",
    "speed_up",
    "train_wordpiece",
]


_load, _names = lazy_names(__name__)


def __getattr__(name: str) -> Any:
    return importlib.import_module(f".{name}", __name__) if name in _SUBPACKAGES else _load(name)


def __dir__() -> list[str]:
    return sorted({*_names(), *_SUBPACKAGES})


if not is_command():  # which registers once it knows what to run: `cli.py`
    register()
