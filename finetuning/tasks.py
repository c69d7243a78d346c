"""The registry of tasks: what a task's files hold and how it is measured.

A task is one entry; the files of the benchmarks are read as they are published.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from ..metrics import accuracy, f1, glue_metrics


def classification_metrics(predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """Accuracy and macro F1 of class ids (n,)."""
    return {
        "accuracy": accuracy(predictions, references),
        "macro_f1": f1(predictions, references, average="macro"),
    }


@dataclass(frozen=True)
class Task:
    """A task on single sentences or pairs.

    Attributes:
        text_columns: Column of the sentence, or columns of the two.
        label_column: Column of the label, or of the value if it is a regression.
        compute_metrics: Predictions (n,) and references (n,) to named metrics; class ids or values.
        main_metric: The metric that decides which checkpoint is best.
        file_columns: Names of the columns of files without header.
        is_regression: Whether the label is a number to be predicted.
    """

    text_columns: tuple[str, ...] = ("text",)
    label_column: str = "label"
    compute_metrics: Callable[[np.ndarray, np.ndarray], dict[str, float]] = classification_metrics
    main_metric: str = "accuracy"
    file_columns: tuple[str, ...] | None = None
    is_regression: bool = False


def _glue(name: str, text_columns: tuple[str, ...], label_column: str, main_metric: str) -> Task:
    return Task(text_columns, label_column, partial(glue_metrics, name), main_metric)


TASKS: dict[str, Task] = {
    "classification": Task(),
    "cola": replace(
        _glue("cola", ("sentence",), "label", "matthews_correlation"),
        file_columns=("source", "label", "author_mark", "sentence"),
    ),
    "sst2": _glue("sst2", ("sentence",), "label", "accuracy"),
    "mrpc": _glue("mrpc", ("#1 String", "#2 String"), "Quality", "f1"),
    "stsb": replace(_glue("stsb", ("sentence1", "sentence2"), "score", "pearson"), is_regression=True),
    "qnli": _glue("qnli", ("question", "sentence"), "label", "accuracy"),
    "rte": _glue("rte", ("sentence1", "sentence2"), "label", "accuracy"),
    "wnli": _glue("wnli", ("sentence1", "sentence2"), "label", "accuracy"),
}
