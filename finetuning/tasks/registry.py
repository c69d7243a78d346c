"""The registry of tasks: the files, metrics and training settings of each benchmark.

Each task is one entry; the benchmarks' files are read as published.
"""

from typing import Any

from .classification_task import ClassificationTask
from .fill_mask_task import FillMaskTask
from .multiple_choice_task import MultipleChoiceTask
from .next_sentence_task import NextSentenceTask
from .question_answering_task import QuestionAnsweringTask
from .tagging_task import TaggingTask
from .task import Task

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_GLUE_FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}


def _glue(name: str, main_metric: str, text: str, pair: str | None = None, **fields: Any) -> ClassificationTask:
    """A GLUE task (Wang et al., 2019); with the settings of the paper (section 4.1): batches of 32, three epochs."""
    defaults = {
        "glue": name,
        "main_metric": main_metric,
        "text_column": text,
        "text_pair_column": pair,
        "files": _GLUE_FILES,
    }
    return ClassificationTask(**defaults | fields)


def _squad(version: str, epochs: float, **fields: Any) -> QuestionAnsweringTask:
    """SQuAD (Rajpurkar et al., 2016, 2018); epochs of the paper (sections 4.2 and 4.3)."""
    return QuestionAnsweringTask(
        files={"train": (f"train-v{version}.json",), "validation": (f"dev-v{version}.json",)},
        defaults={"num_train_epochs": epochs},
        **fields,
    )


TASKS: dict[str, Task] = {
    "classification": ClassificationTask(main_metric="accuracy"),
    "cola": _glue(
        "cola",
        "matthews_correlation",
        "sentence",
        file_columns=("source", "label", "author_mark", "sentence"),
        classes=_BINARY,
    ),
    "sst2": _glue("sst2", "accuracy", "sentence", classes=_BINARY),
    "mrpc": _glue(
        "mrpc",
        "f1",
        "#1 String",
        "#2 String",
        label_column="Quality",
        classes=_BINARY,
        hub={"text_column": "sentence1", "text_pair_column": "sentence2", "label_column": "label"},
    ),
    "stsb": _glue(
        "stsb",
        "pearson",
        "sentence1",
        "sentence2",
        label_column="score",
        problem="regression",
        hub={"label_column": "label", "unlabelled": -1.0},
    ),
    "qqp": _glue(
        "qqp",
        "f1",
        "question1",
        "question2",
        label_column="is_duplicate",
        classes=_BINARY,
        skip_broken_rows=True,
        hub={"label_column": "label"},
    ),
    "mnli": _glue(
        "mnli",
        "accuracy",
        "sentence1",
        "sentence2",
        label_column="gold_label",
        classes=("entailment", "neutral", "contradiction"),
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
    "swag": MultipleChoiceTask(
        main_metric="accuracy",
        text_column="sent1",
        text_pair_column="sent2",
        choice_columns=("ending0", "ending1", "ending2", "ending3"),
        files={"train": ("train.csv",), "validation": ("val.csv",), "test": ("test.csv",)},
        defaults={"learning_rate": 2e-5, "per_device_train_batch_size": 16},
    ),
    # CoNLL-2003 (Tjong Kim Sang and De Meulder, 2003) and everything in its format.
    "ner": TaggingTask(
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
    # For a user's own data, like classification.
    "multilabel": ClassificationTask(
        main_metric="micro_f1", label_column="labels", problem="multi_label_classification"
    ),
    "regression": ClassificationTask(main_metric="pearson", label_column="score", problem="regression"),
    "multiple_choice": MultipleChoiceTask(main_metric="accuracy"),
    "tagging": TaggingTask(main_metric="f1", text_column="tokens", label_column="tags", any_tags=True),
    "question_answering": QuestionAnsweringTask(main_metric="f1"),
    # With the pretraining heads.
    "next_sentence": NextSentenceTask(main_metric="accuracy"),
    "fill_mask": FillMaskTask(),
}
