"""Precision, recall and F1 class by class, and which classes are confused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np

from .entities import entity_metrics, precision_recall_f1

_COLUMNS = ("precision", "recall", "f1", "support")
_WIDEST = 40  # characters of a class name in the table
_OUTSIDE = "O"
_MISTAKES = 10  # number of confusions that the table lists


@dataclass(frozen=True)
class ClassReport:
    """Results class by class.

    Attributes:
        counted: What is counted: "texts", "labels", "words" or "entities".
        classes: For each class `precision`, `recall` and `f1` in [0, 1], 0 where they are undefined, and `support`,
            the number of true examples.
        averages: "micro" (over all), "macro" (the mean over the classes that are true or predicted somewhere) and
            "weighted" (the mean by support), each with the same three.
        confusion: Counts by (true class, predicted class), without zeros; empty if an example may have several labels.
        confused_classes: The classes of `confusion`, in order.
        confused: What `confusion` counts.
    """

    counted: str
    classes: Mapping[str, Mapping[str, float]]
    averages: Mapping[str, Mapping[str, float]]
    confusion: Mapping[tuple[str, str], int] = field(default_factory=dict)
    confused_classes: Sequence[str] = ()
    confused: str = ""

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values; `confusion_matrix` is true class -> predicted class -> count, without zeros."""
        found: dict[str, Any] = {
            "counted": self.counted,
            "classes": {name: dict(values) for name, values in self.classes.items()},
            "averages": {name: dict(values) for name, values in self.averages.items()},
        }
        if self.confusion:
            matrix: dict[str, dict[str, int]] = {}
            for true, predicted in product(self.confused_classes, repeat=2):
                if count := self.confusion.get((true, predicted)):
                    matrix.setdefault(true, {})[predicted] = count
            found |= {"confusion_matrix_of": self.confused, "confusion_matrix": matrix}
        return found

    def mistakes(self) -> list[tuple[str, str, int]]:
        """True class, predicted class and count of each confusion, the most frequent first."""
        wrong = [(*pair, count) for pair, count in self.confusion.items() if pair[0] != pair[1]]
        return sorted(wrong, key=lambda item: -item[2])

    def lines(self) -> list[str]:
        """The report as a table of 80 columns, with the most frequent mistakes below it."""
        names = [*self.classes, *self.averages]
        width = min(max(map(len, [*names, "class"])), _WIDEST)
        lines = [f"{'class':<{width}}" + "".join(f"{name:>11}" for name in _COLUMNS)]
        for rows in (self.classes, self.averages):
            for name, values in rows.items():
                shares = "".join(f"{values[column]:>11.3f}" for column in _COLUMNS[:3])
                support = f"{values['support']:>11,}" if "support" in values else ""
                lines.append(f"{shortened(name, width):<{width}}{shares}{support}")
            lines.append("")
        if mistakes := self.mistakes()[:_MISTAKES]:
            lines.append(f"Most frequent mistakes ({self.confused}):")
            digits = len(f"{mistakes[0][2]:,}")
            width = min(max(len(true) for true, _, _ in mistakes), 30)
            lines += [
                f"  {count:>{digits},}  {shortened(true, width):<{width}}  taken for  {shortened(predicted, 30)}"
                for true, predicted, count in mistakes
            ]
        return lines if lines[-1] else lines[:-1]


def class_report(
    predictions: Sequence[str], references: Sequence[str], classes: Sequence[str], counted: str = "texts"
) -> ClassReport:
    """The report of single-label predictions.

    Args:
        predictions: Predicted class of each text or word.
        references: True class of each.
        classes: All classes, in the order of the report; those that do not occur are omitted.
        counted: What has a class, such as "texts".

    Raises:
        ValueError: If there are not as many predictions as references, or none.
    """
    confusion = Counter(zip(references, predictions, strict=True))
    if not confusion:
        raise ValueError("no example to score: predictions and references are empty")
    predicted, wanted = Counter(predictions), Counter(references)
    there = [name for name in classes if predicted[name] or wanted[name]]
    counts = {name: (confusion[name, name], predicted[name], wanted[name]) for name in there}
    return replace(_report(counted, counts), confusion=confusion, confused_classes=there, confused=counted)


def several_labels_report(
    predictions: Sequence[Iterable[str]], references: Sequence[Iterable[str]], classes: Sequence[str]
) -> ClassReport:
    """The report of multi-label predictions.

    Args:
        predictions: Predicted labels of each text.
        references: True labels of each text.
        classes: All labels, in the order of the report; those that do not occur are omitted.

    Raises:
        ValueError: If there are not as many predictions as references.
    """
    pairs = [(set(left), set(right)) for left, right in zip(predictions, references, strict=True)]
    right = Counter(name for left, true in pairs for name in left & true)
    predicted = Counter(name for left, _ in pairs for name in left)
    wanted = Counter(name for _, true in pairs for name in true)
    there = [name for name in classes if predicted[name] or wanted[name]]
    return _report("labels", {name: (right[name], predicted[name], wanted[name]) for name in there})


def entity_report(predictions: Sequence[Sequence[str]], references: Sequence[Sequence[str]]) -> ClassReport:
    """The report of tagged entities by their types, as seqeval and conlleval count them.

    Its `confusion` counts words by the entity type of their tag, `O` for none.

    Args:
        predictions: Tags of each sentence.
        references: The same shape.

    Raises:
        ValueError: As `entity_metrics`.
    """
    found = entity_metrics(predictions, references)
    rows = {
        name: {column: scores[column] for column in _COLUMNS[:3]} | {"support": scores["number"]}
        for name, scores in found.items()
        if isinstance(scores, dict)
    }
    micro = {column: found[f"overall_{column}"] for column in _COLUMNS[:3]}
    predicted, wanted = ([_type(tag) for sentence in side for tag in sentence] for side in (predictions, references))
    words = Counter(zip(wanted, predicted, strict=True))
    names = [*sorted({*wanted, *predicted} - {_OUTSIDE}), _OUTSIDE]
    return ClassReport("entities", rows, {"micro": micro} | _means(rows), words, names, "words")


def _type(tag: str) -> str:
    return tag if tag == _OUTSIDE else tag[2:] or "_"


def _report(counted: str, counts: Mapping[str, tuple[int, int, int]]) -> ClassReport:
    """Return the report from counts of correct, predicted and true items by class."""
    rows = {name: precision_recall_f1(*found) | {"support": found[2]} for name, found in counts.items()}
    micro = precision_recall_f1(*map(sum, zip((0, 0, 0), *counts.values(), strict=True)))
    return ClassReport(counted, rows, {"micro": micro} | _means(rows))


def _means(rows: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, float]]:
    if not rows:
        return {}
    support = np.array([values["support"] for values in rows.values()], dtype=np.float64)
    weights = support if support.any() else None
    columns = {column: [values[column] for values in rows.values()] for column in _COLUMNS[:3]}
    return {
        "macro": {column: float(np.mean(values)) for column, values in columns.items()},
        "weighted": {column: float(np.average(values, weights=weights)) for column, values in columns.items()},
    }


def shortened(text: str, width: int) -> str:
    """Return a text on one line, truncated to so many characters."""
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."
