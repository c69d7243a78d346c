"""A number per text: regression."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import fmean
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from typing_extensions import Self

from ... import metrics
from ...files.checkpoint import Checkpoint
from ..data import DataRow, Labels, TaskData, seven_digits, with_decimal_points
from ..heads import recorded_activation
from .losses import ItemLoss, NumberLoss, Teaching
from .task import Columns, Measures
from .texts import (
    Examples,
    LabelPrediction,
    Predictions,
    TextExample,
    TextTask,
    TextTeaching,
    check_label,
    filled_predictions,
)


class NumberTeaching(TextTeaching):
    """The student learns the numbers themselves, whatever the teacher's activation."""

    def learned(self, task: Any, outputs: Any) -> Any:
        return task._activated(np.asarray(outputs))


@dataclass(frozen=True, kw_only=True)
class Number(TextTask):
    """A number in a column."""

    label_column: str = "score"
    # The class of torch.nn that turns the network's output into the number.
    activation: str = "Identity"
    unlabeled: float | None = None  # the value that means "no label"

    problem: ClassVar[str] = "regression"
    loss: ClassVar[ItemLoss] = NumberLoss()
    teaching: ClassVar[Teaching | None] = NumberTeaching()

    def has_label(self, row: DataRow, may_be_blank: bool = True) -> bool:
        return row.has_number(self.label_column) and row.value(self.label_column) != self.unlabeled

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[TextExample]:
        """The examples of a file's rows; all decimal commas of a column are read alike."""
        return super().examples(with_decimal_points(rows, self.label_column) if labeled else rows, labeled)

    def _labels_of(self, rows: Sequence[DataRow]) -> Iterable[float]:
        for row in rows:
            check_label(row, self.label_column)
            yield row.finite_number(self.label_column)

    def with_classes(self, labels: Labels | None, checkpoint: Checkpoint | None = None) -> Self:
        """The task; a number is a cross-encoder's score if the model's folder records how that is computed."""
        return self if checkpoint is None else replace(self, activation=recorded_activation(checkpoint))

    def with_names(self, examples: Examples, labels: Labels, source: Any) -> Examples:
        return examples

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """`problem_type`, and one output called "value"."""
        return super().config_fields(Labels(("value",)))

    def _network_labels(self, examples: Examples, labels: Labels | None) -> list[Any]:
        return [example.label for example in examples]

    def _activated(self, outputs: np.ndarray) -> np.ndarray:
        """The numbers from the network's outputs."""
        numbers: torch.Tensor = getattr(torch.nn, self.activation)()(torch.from_numpy(outputs))
        return numbers.numpy()

    def predict(self, outputs: Any, data: TaskData[TextExample], labels: Labels | None) -> list[LabelPrediction]:
        return [LabelPrediction(float(value)) for value in self._activated(self._logits(outputs, data))[:, 0]]

    def columns_of(self, prediction: LabelPrediction, example: TextExample, top_k: int = 1) -> Columns:
        number = seven_digits(_number(prediction))
        return Columns(str(number), {"score": number}, numbers={"": number})

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[LabelPrediction]:
        return [LabelPrediction(row.finite_number("prediction")) for row in filled_predictions(rows)]

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Correlations, and errors in the data's unit."""
        predicted, true = (list(map(_number, side)) for side in (predictions, examples))
        resampled = partial(partial, value_metrics, np.array(predicted), np.array(true))
        return Measures(partial(value_scores, predicted, true), resampled, baseline=partial(mean_scores, true))

    def errors(self, prediction: LabelPrediction, example: TextExample) -> Iterator[tuple[float, dict[str, Any]]]:
        """Any difference."""
        predicted, true = _number(prediction), _number(example)
        difference = seven_digits(predicted - true)
        numbers = {"true": true, "predicted": seven_digits(predicted), "difference": difference}
        yield abs(difference), example.columns | numbers


def value_scores(predicted: ArrayLike, true: ArrayLike) -> dict[str, float]:
    """Correlations, and errors in the data's unit."""
    return metrics.pearson_spearman(predicted, true) | metrics.errors_of_values(predicted, true)


def mean_scores(true: Sequence[float]) -> dict[str, float]:
    """The errors of always predicting the mean; none without examples."""
    if not true:
        return {}
    errors = metrics.errors_of_values([fmean(true)] * len(true), true)
    return {f"mean_value_{name}": error for name, error in errors.items()}


def value_metrics(predicted: np.ndarray, true: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """`value_scores` of resamples."""
    errors = predicted - true
    return {
        "pearson": metrics.weighted_pearson(predicted, true, weights),
        "spearmanr": metrics.weighted_spearman(predicted, true, weights),
        "mae": metrics.weighted_mean(np.abs(errors), weights),
        "rmse": np.sqrt(metrics.weighted_mean(errors**2, weights)),
    }


def _number(item: LabelPrediction | TextExample) -> float:
    assert isinstance(item.label, float)
    return item.label
