"""Several numbers per text, such as the scores of an essay: regression on several columns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import torch
from typing_extensions import Self

from ...cards import PipelineCall
from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError, worded
from ...files.source import Source
from ...metrics import metric_of_class
from ..data import DataRow, Labels, TaskData, seven_digits, with_decimal_points
from .losses import ItemLoss, NumberLoss
from .number import mean_scores, value_metrics, value_scores
from .task import Columns, Measures, value_columns
from .texts import Examples, LabelPrediction, Predictions, TextExample, TextTask


@dataclass(frozen=True)
class CellLoss(NumberLoss):
    """Squared error of each number, an item of its own; labels are (B, K), NaN where missing."""

    name: ClassVar[str] = "values"
    is_never_the_models_own: ClassVar[bool] = True

    def taught(self, targets: torch.Tensor) -> torch.Tensor:
        return ~targets.isnan()

    def distance(self, logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
        return (logits - targets.nan_to_num().to(logits.dtype)).square()


@dataclass(frozen=True, kw_only=True)
class Scores(TextTask):
    """A number in each of several columns; some cells may be empty."""

    own_options: ClassVar[tuple[str, ...]] = ("label_columns",)
    problem: ClassVar[str] = "regression"
    loss: ClassVar[ItemLoss] = CellLoss()
    names_outputs: ClassVar[bool] = True

    def columns(self, labeled: bool) -> dict[str, str]:
        return {name: option for name, option in super().columns(labeled).items() if option != "label_column"}

    def has_label(self, row: DataRow, may_be_blank: bool = True) -> bool:
        if not self.label_columns:
            raise SettingError.worded("{label_columns} is not set; expected the columns of the numbers to learn.")
        return any(map(row.has_number, self.label_columns))

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[TextExample]:
        """The examples of a file's rows; all decimal commas of a column are read alike."""
        for column in self.label_columns if labeled else ():
            rows = with_decimal_points(rows, column)
        return super().examples(rows, labeled)

    def _labels_of(self, rows: Sequence[DataRow]) -> Iterable[Mapping[str, float]]:
        for row in rows:
            if not self.has_label(row):
                raise row.invalid(
                    worded("no number in {}; expected one[, or pass {skip_empty=True}]", ", ".join(self.label_columns))
                )
            yield {name: row.finite_number(name) for name in self.label_columns if row.has_number(name)}

    def labels(self, examples: Examples, source: Source) -> Labels | None:
        """The columns."""
        for name in self.label_columns:
            if not any(name in example.numbers for example in examples):
                template = "{} has no number in the column {!r}; leave it out of {label_columns}."
                raise SettingError.worded(template, source, name)
        return Labels(self.label_columns)

    def with_classes(self, labels: Labels | None, checkpoint: Checkpoint | None = None) -> Self:
        """The task, with the columns that the model's outputs are named by, if no record names them."""
        return self if labels is None or self.label_columns else replace(self, label_columns=labels.names)

    def with_names(self, examples: Examples, labels: Labels, source: Source) -> Examples:
        if examples[0].label is not None and set(self.label_columns) != set(labels.names):
            template, names = "{label_columns} is {}; expected {}, as in training.", (self.label_columns, labels.names)
            raise SettingError.worded(template, *map(", ".join, names))
        return examples

    def _network_labels(self, examples: Examples, labels: Labels | None) -> list[Any]:
        assert labels is not None
        return [[example.numbers.get(name, np.nan) for name in labels.names] for example in examples]

    def predict(self, outputs: Any, data: TaskData[TextExample], labels: Labels | None) -> list[LabelPrediction]:
        assert labels is not None
        rows = self._logits(outputs, data).tolist()
        return [LabelPrediction(dict(zip(labels.names, row, strict=True))) for row in rows]

    def columns_of(self, prediction: LabelPrediction, example: TextExample, top_k: int = 1) -> Columns:
        numbers = {name: seven_digits(value) for name, value in _numbers(prediction).items()}
        text = ", ".join(f"{name} {value}" for name, value in numbers.items())
        return Columns(text, dict(numbers), numbers=numbers)

    def pipeline_call(self, example: TextExample) -> PipelineCall:
        call = super().pipeline_call(example)
        numbers = ", ".join(f"{name} {value:g}" for name, value in example.numbers.items())
        title = f"Text classification (the data says: {numbers})"
        return replace(call, title=title, code=call.code.replace("run(text", "run(text, top_k=None"))

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[LabelPrediction]:
        columns = value_columns(self.label_columns).items()
        return [LabelPrediction({name: row.finite_number(column) for name, column in columns}) for row in rows]

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Correlations and errors: the means over the columns, and those of each column, on its rows with a number."""
        sides: dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]] = {}
        for name in self.label_columns:
            places = [place for place, example in enumerate(examples) if name in example.numbers]
            predicted, true = ([_numbers(side[place])[name] for place in places] for side in (predictions, examples))
            sides[name] = np.array(places, dtype=int), np.array(predicted), np.array(true)
        filled = {name: side for name, side in sides.items() if len(side[0])}.items()

        def scores() -> dict[str, float]:
            return _with_means({name: value_scores(one, two) for name, (_, one, two) in filled})

        def resampled(weights: np.ndarray) -> dict[str, np.ndarray]:
            return _with_means({name: value_metrics(one, two, weights[:, at]) for name, (at, one, two) in filled})

        def baseline() -> dict[str, float]:
            return _with_means({name: mean_scores(true.tolist()) for name, (*_, true) in filled})

        return Measures(scores, lambda: resampled, baseline=baseline)

    def errors(self, prediction: LabelPrediction, example: TextExample) -> Iterator[tuple[float, dict[str, Any]]]:
        """The difference of each number."""
        for name, true in example.numbers.items():
            predicted = _numbers(prediction)[name]
            difference = seven_digits(predicted - true)
            numbers = {"true": true, "predicted": seven_digits(predicted), "difference": difference}
            yield abs(difference), example.columns | {"score": name} | numbers


def _with_means(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """The means of metrics over columns, and the metrics of each column with its name."""
    names = dict.fromkeys(name for each in found.values() for name in each)
    means = {name: sum(each[name] for each in found.values()) / len(found) for name in names}
    return means | {metric_of_class(column, name): each[name] for column, each in found.items() for name in each}


def _numbers(item: LabelPrediction | TextExample) -> Mapping[str, float]:
    assert isinstance(item.label, Mapping)
    return item.label
