"""Any number of labels per text: multi-label classification."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from typing import Any, ClassVar

import numpy as np
import torch
from typing_extensions import Self

from ... import metrics
from ...files.errors import SettingError
from ...files.source import Source
from ..data import TRUTH, DataRow, Labels, TaskData, listed, rounded
from .calibration import Calibrator
from .label_cells import SEPARATORS, check_alike, labels_in_cells, labels_in_columns, mark_between
from .losses import ItemLoss, LabelLoss
from .one_label import label_metrics
from .task import Columns, Measures, PredictionFile
from .texts import Examples, LabelPrediction, Predictions, TextExample, TextTask

logger = logging.getLogger(__name__)

_THRESHOLD = 0.5  # default threshold of a label's probability


@dataclass(frozen=True)
class Thresholds(Calibrator):
    """The probability above which each label is predicted; 1/2 for labels without one."""

    thresholds: Mapping[str, float] = field(default_factory=dict)

    def fit(self, predictions: Predictions, examples: Examples) -> Self:
        thresholds = metrics.fit_thresholds(*label_probabilities(predictions, examples))
        logger.info(
            "Labels are predicted above a probability of %.3g (median; %.3g to %.3g), which gives the best F1 on the "
            "validation data; the rarer a label, the nearer to the threshold that suits all labels.",
            *np.quantile(thresholds, (0.5, 0.0, 1.0)),
        )
        return replace(self, thresholds=dict(zip(predictions[0].probabilities, thresholds.tolist(), strict=True)))

    def apply(self, predictions: Predictions, examples: Examples) -> Predictions:
        """Predictions by thresholds that are fitted to the other examples, unless there are thresholds."""
        if self.thresholds:
            return predictions
        names = tuple(predictions[0].probabilities)
        pairs = zip(predictions, metrics.held_out_labels(*label_probabilities(predictions, examples)), strict=True)
        return [replace(prediction, label=frozenset(compress(names, row))) for prediction, row in pairs]


def label_probabilities(predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of several labels (examples, labels), and whether each is true, of the same shape."""
    names = tuple(predictions[0].probabilities)
    holds = [[name in example.classes for name in names] for example in examples]
    return np.array([list(prediction.probabilities.values()) for prediction in predictions]), np.array(holds)


def _mark_in(rows: Sequence[DataRow], names: Collection[str]) -> str:
    """The separator in predictions: one that leaves classes of the data or, as mybert writes them, titles."""
    titles, known = "".join(rows[0].values), {*names, *rows[0].values, ""}
    for mark in sorted(SEPARATORS, key=lambda mark: mark in titles):
        parts = (part.strip() for row in rows for part in str(row.get("prediction") or "").split(mark))
        if mark not in "".join(names) and known.issuperset(parts):
            return mark
    return mark_between(names)


class LabelTable(PredictionFile):
    """A table whose separator of labels is in none of the classes, even if they are not predicted."""

    def text(self, columns: Columns, prediction: LabelPrediction, example: TextExample) -> str:
        return mark_between(columns.probabilities).join(sorted(_label_set(prediction)))


@dataclass(frozen=True, kw_only=True)
class SeveralLabels(TextTask):
    """Names of labels, in a column with a separator or as lists; or a column of 0 and 1 for each label."""

    label_column: str = "labels"
    has_names_0_and_1: bool = False  # so that a list of them names labels

    learned_fields: ClassVar[tuple[str, ...]] = ("has_names_0_and_1",)
    own_options: ClassVar[tuple[str, ...]] = ("label_columns", "label_separator")
    problem: ClassVar[str] = "multi_label_classification"
    loss: ClassVar[ItemLoss] = LabelLoss()
    calibrator: ClassVar[type[Calibrator]] = Thresholds
    prediction_file: ClassVar[PredictionFile] = LabelTable()
    has_classes: ClassVar[bool] = True
    names_outputs: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.label_separator and self.label_columns:
            raise SettingError.worded("{label_separator} is for the task multilabel with a {label_column}.")

    def columns(self, labeled: bool) -> dict[str, str]:
        columns = super().columns(labeled).items()
        return {name: option for name, option in columns if option != "label_column" or not self.label_columns}

    def infer_columns(self, rows: Sequence[DataRow]) -> Self:
        """The task, with pairs if the data has `text_pair`, and whichever of , ; | separates labels there."""
        task = super().infer_columns(rows)
        if self.label_columns or self.label_separator:
            return task
        values = [row.get(self.label_column) for row in rows]
        marks = [mark for mark in SEPARATORS if any(isinstance(value, str) and mark in value for value in values)]
        if len(marks) > 1:
            raise SettingError.worded(
                "{} has {} in {!r}; set {label_separator} to the one between labels.",
                rows[0].source,
                " and ".join(map(repr, marks)),
                self.label_column,
            )
        return replace(task, label_separator=marks[0] if marks else SEPARATORS[0])

    def has_label(self, row: DataRow, may_be_blank: bool = True) -> bool:
        """Whether a row has labels, or an empty list of them."""
        if self.label_columns:
            return all(map(row.has, self.label_columns))
        if self.label_column not in row:
            return False
        value = row.get(self.label_column)
        return may_be_blank or (value is not None and bool(str(value).strip()))

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[TextExample]:
        """The examples of a file's rows; all labels of a column are read alike."""
        if not labeled or self.label_columns:
            return super().examples(rows, labeled)
        labels, positions = labels_in_cells(rows, self.label_column, self.label_separator, not self.has_names_0_and_1)
        if positions:
            logger.info("%s: labels are 0 and 1 for each of %d, in the order of their ids.", rows[0].source, positions)
        pairs = zip(super().examples(rows, labeled=False), labels, strict=True)
        return [replace(example, label=label, positions=positions) for example, label in pairs]

    def trained_on(self, examples: Examples, source: Source) -> tuple[Self, Examples]:
        """The task, which reads 0 and 1 in other data as in the training data: as names, or as one for each label."""
        names = {name for example in examples for name in example.classes}
        are_named = not self.label_columns and examples[0].positions is None and names <= TRUTH.keys()
        return replace(self, has_names_0_and_1=are_named), examples

    def _labels_of(self, rows: Sequence[DataRow]) -> Iterable[frozenset[str]]:
        return (labels_in_columns(row, self.label_columns) for row in rows)

    def labels(self, examples: Examples, source: Source) -> Labels | None:
        """The columns, or the labels in the training data."""
        if names := self.label_columns or Labels.numbered(examples[0].positions or 0).names:
            labels = Labels(names)
        else:
            labels = Labels.from_data([name for example in examples for name in example.classes], source)
        mark_between(labels.names, source)  # of its predictions
        return labels

    def with_names(self, examples: Examples, labels: Labels, source: Source) -> Examples:
        """The examples with the names of the labels, where the data has ids or positions."""
        if examples[0].label is None:
            return examples
        if positions := examples[0].positions:
            if positions != len(labels.names):
                expected = f"{len(labels.names)} ({listed(labels.names)})"
                raise ValueError(
                    f"{source} has 0 and 1 for {positions} labels in {self.label_column!r}; expected {expected}."
                )
            names = dict(zip(Labels.numbered(positions).names, labels.names, strict=True))
        else:
            names = labels.names_of((name for example in examples for name in example.classes), source)
        return [
            replace(example, label=frozenset(names[name] for name in example.classes), positions=None)
            for example in examples
        ]

    def _network_labels(self, examples: Examples, labels: Labels | None) -> list[Any]:
        assert labels is not None
        return [[float(name in example.classes) for name in labels.names] for example in examples]

    def predict(self, outputs: Any, data: TaskData[TextExample], labels: Labels | None) -> list[LabelPrediction]:
        """All labels with a probability above their threshold."""
        assert labels is not None
        rows = torch.from_numpy(self._logits(outputs, data)).sigmoid().tolist()
        tables = [dict(zip(labels.names, row, strict=True)) for row in rows]
        least = {name: self.thresholds.get(name, _THRESHOLD) for name in labels.names}
        held = [frozenset(name for name, value in table.items() if value > least[name]) for table in tables]
        return list(map(LabelPrediction, held, tables))

    def columns_of(self, prediction: LabelPrediction, example: TextExample, top_k: int = 1) -> Columns:
        """The labels in alphabetical order; in the answer with their probabilities, the most probable first."""
        held, table = _label_set(prediction), prediction.probabilities
        ranked = sorted(table, key=lambda name: -table[name])
        best = [{"label": name, "score": rounded(table[name])} for name in ranked[:top_k]]
        label = [name for name in ranked if name in held]
        answer = {"label": label, "score": [rounded(table[name]) for name in label]}
        return Columns(",".join(sorted(held)), answer, best, probabilities=table)

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[LabelPrediction]:
        # The data may have only some of the classes; a table written by us has columns for all.
        names = {name for example in examples for name in example.classes}
        # With a column for each, 0 and 1 are labels: a model may predict both, and no other, in all rows.
        are_names = self.has_names_0_and_1 or rows[0].values.keys() >= {"0", "1"}
        labels, positions = labels_in_cells(rows, "prediction", _mark_in(rows, names), not are_names)
        numbers = set(Labels.numbered(positions or examples[0].positions or 0).names)
        if numbers and not names.union(*labels) <= numbers:
            source = rows[0].source
            raise ValueError(f"{source} or the data has 0 and 1 for each label, the other names; expected both alike.")
        if not numbers:
            check_alike(rows[0].source, frozenset().union(*labels), names)
        return list(map(LabelPrediction, labels))

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Accuracy of the whole sets, micro and macro F1."""
        held, right = list(map(_label_set, predictions)), list(map(_label_set, examples))
        names = sorted(frozenset().union(*held, *right))

        def indicators(side: Sequence[frozenset[str]]) -> np.ndarray:
            columns = names or [""]  # if no label is true or predicted
            return np.array([[int(name in labels) for name in columns] for labels in side])

        def scores() -> dict[str, float]:
            predicted, true = indicators(held), indicators(right)
            micro, macro = (metrics.f1(predicted, true, average=average) for average in ("micro", "macro"))
            return {"accuracy": metrics.accuracy(predicted, true), "micro_f1": micro, "macro_f1": macro}

        def resampled() -> metrics.WeightedMetrics:
            sides = indicators(held) == 1, indicators(right) == 1
            return partial(label_metrics, *sides, ("accuracy", "micro_f1", "macro_f1"))

        return Measures(scores, resampled, partial(metrics.several_labels_report, held, right, names))

    def errors(self, prediction: LabelPrediction, example: TextExample) -> Iterator[tuple[float, dict[str, Any]]]:
        """Wrong labels, all together, with the probability of the surest of them."""
        held, right, table = _label_set(prediction), _label_set(example), prediction.probabilities
        if held != right:
            wrong = [table[name] if name in held else 1 - table[name] for name in (held ^ right) & table.keys()]
            sure = max(wrong, default=0.0)
            true, predicted = (", ".join(sorted(side)) for side in (right, held))
            sides = {"true": true, "predicted": predicted, "probability": rounded(sure) if wrong else ""}
            yield sure, example.columns | sides


def _label_set(item: LabelPrediction | TextExample) -> frozenset[str]:
    assert isinstance(item.label, frozenset)
    return item.label
