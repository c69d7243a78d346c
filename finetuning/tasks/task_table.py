"""The tasks by name: those for a user's own data, and benchmarks, whose files are read as published.

A row has the kind, which is format and target, and what its benchmark determines: columns, classes, files, metric,
training settings.
"""

from typing import Any

from ...metrics import HUB_LABELS
from .fill_mask import Masks
from .multiple_choice import Choices
from .number import Number
from .one_label import NextSentence, OneLabel
from .question_answering import Passages
from .scores import Scores
from .several_labels import SeveralLabels
from .tagging import Words
from .task import Task
from .texts import TextTask

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_GLUE_FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}


def _glue(
    name: str, main_metric: str, text: str, pair: str | None = None, kind: type[TextTask] = OneLabel, **fields: Any
) -> Task:
    """A GLUE task (Wang et al., 2019); with the settings of the paper (section 4.1): batches of 32, three epochs."""
    columns = {"text_column": text, "text_pair_column": pair}
    return kind(**{"glue": name, "main_metric": main_metric, "files": _GLUE_FILES, **columns, **fields})


def _squad(version: str, epochs: float, **fields: Any) -> Passages:
    """SQuAD (Rajpurkar et al., 2016, 2018); epochs of the paper (sections 4.2 and 4.3)."""
    return Passages(
        files={"train": (f"train-v{version}.json",), "validation": (f"dev-v{version}.json",)},
        defaults={"num_train_epochs": epochs},
        **fields,
    )


TASKS: dict[str, Task] = {
    # For a user's own data.
    "classification": OneLabel(main_metric="accuracy"),
    "multilabel": SeveralLabels(main_metric="micro_f1"),
    "regression": Number(main_metric="pearson"),
    "scores": Scores(main_metric="pearson"),
    "multiple_choice": Choices(main_metric="accuracy"),
    "tagging": Words(main_metric="f1", text_column="tokens", label_column="tags", any_tags=True),
    "question_answering": Passages(main_metric="f1"),
    # Benchmarks.
    "cola": _glue(
        *("cola", "matthews_correlation", "sentence"),
        reading={"columns": ("source", "label", "author_mark", "sentence")},
        classes=_BINARY,
    ),
    "sst2": _glue("sst2", "accuracy", "sentence", classes=_BINARY),
    "mrpc": _glue(
        *("mrpc", "f1", "#1 String", "#2 String"),
        label_column="Quality",
        classes=_BINARY,
        hub={"text_column": "sentence1", "text_pair_column": "sentence2", "label_column": "label"},
    ),
    "stsb": _glue(
        *("stsb", "pearson", "sentence1", "sentence2"),
        label_column="score",
        hub={"label_column": "label", "unlabeled": -1.0},
        kind=Number,
    ),
    "qqp": _glue(
        *("qqp", "f1", "question1", "question2"),
        label_column="is_duplicate",
        classes=_BINARY,
        reading={"skip_broken_rows": True},
        hub={"label_column": "label"},
    ),
    "mnli": _glue(
        *("mnli", "accuracy", "sentence1", "sentence2"),
        label_column="gold_label",
        classes=HUB_LABELS["mnli"],
        files={
            "train": ("train.tsv",),
            "validation": ("dev_matched.tsv", "dev_mismatched.tsv"),
            "test": ("test_matched.tsv", "test_mismatched.tsv"),
        },
        evaluations=("matched", "mismatched"),
        hub={"text_column": "premise", "text_pair_column": "hypothesis", "label_column": "label"},
    ),
    "qnli": _glue("qnli", "accuracy", "question", "sentence", classes=_ENTAILMENT),
    "rte": _glue("rte", "accuracy", "sentence1", "sentence2", classes=_ENTAILMENT),
    "wnli": _glue("wnli", "accuracy", "sentence1", "sentence2", classes=_BINARY),
    "squad": _squad("1.1", 3.0, main_metric="f1"),
    "squad_v2": _squad("2.0", 2.0, main_metric="best_f1", unanswerable=True),
    # Zellers et al. (2018); the paper, section 4.4: batches of 16, three epochs, 2e-5.
    "swag": Choices(
        main_metric="accuracy",
        text_column="sent1",
        text_pair_column="sent2",
        choice_columns=("ending0", "ending1", "ending2", "ending3"),
        files={"train": ("train.csv",), "validation": ("val.csv",), "test": ("test.csv",)},
        defaults={"learning_rate": 2e-5, "per_device_train_batch_size": 16},
    ),
    # CoNLL-2003 (Tjong Kim Sang and De Meulder, 2003) and everything in its format.
    "ner": Words(
        main_metric="f1",
        text_column="tokens",
        label_column="tags",
        files={
            "train": ("eng.train", "train.txt", "train.conll", "*train.conll"),
            "validation": ("eng.testa", "valid.txt", "dev.conll", "*dev.conll"),
            "test": ("eng.testb", "test.txt", "test.conll", "*test.conll"),
        },
        hub={"label_column": "ner_tags"},
    ),
    # With the pretraining heads.
    "next_sentence": NextSentence(main_metric="accuracy"),
    "fill_mask": Masks(),
}
