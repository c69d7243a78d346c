"""One class per text: classification of sentences and pairs."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoModelForNextSentencePrediction
from typing_extensions import Self

from ... import metrics
from ...cards import PipelineCall
from ...files.source import Source
from ...pipelines.pairs import LABELS
from ..data import DataRow, Labels, TaskData, quoted, rounded
from .calibration import Calibrator
from .label_cells import check_alike, one_label
from .losses import ClassLoss, ItemLoss, Teaching
from .task import Columns, Measures, Task
from .texts import Examples, LabelPrediction, Predictions, TextExample, TextTask, check_label, filled_predictions

logger = logging.getLogger(__name__)

_METRICS = ("accuracy", "macro_f1")


@dataclass(frozen=True)
class Temperature(Calibrator):
    """The temperature that divides logits, and the probability below which there is no label."""

    temperature: float = 1.0
    confidence_threshold: float = 0.0

    def fit(self, predictions: Predictions, examples: Examples) -> Self:
        """With the best temperature, if a temperature helps held-out examples."""
        if len(examples) < 2:
            return self
        probabilities, references = class_probabilities(predictions, examples)
        held_out = metrics.held_out_temperatures(probabilities, references)
        if metrics.log_loss(held_out, references) < metrics.log_loss(probabilities, references):
            return replace(self, temperature=metrics.fit_temperature(probabilities, references))
        logger.info("Probabilities stay as they are: on data that did not fit it, a temperature makes them worse.")
        return self

    def measure(self, predictions: Predictions, examples: Examples, held_out: bool = False) -> dict[str, float]:
        """The calibration error of the most probable class, and coverage."""
        if len(examples) < 2 or not predictions[0].probabilities:
            return {}
        probabilities, references = class_probabilities(predictions, examples)
        if held_out:
            probabilities = metrics.held_out_temperatures(probabilities, references)
        error = metrics.expected_calibration_error(probabilities, references)
        selective: dict[str, float] = {}
        if self.confidence_threshold:
            selective = metrics.selective_accuracy(probabilities, references, self.confidence_threshold)
        return {"expected_calibration_error": error, **selective}


def class_probabilities(predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (examples, classes) and ids of the true classes (examples,)."""
    ids = {name: number for number, name in enumerate(predictions[0].probabilities)}
    references = [ids[str(example.label)] for example in examples]
    return np.array([list(prediction.probabilities.values()) for prediction in predictions]), np.array(references)


@dataclass(frozen=True, kw_only=True)
class OneLabel(TextTask):
    """One of several classes, by name."""

    own_options: ClassVar[tuple[str, ...]] = ("confidence_threshold",)
    problem: ClassVar[str] = "single_label_classification"
    loss: ClassVar[ItemLoss] = ClassLoss()
    calibrator: ClassVar[type[Calibrator]] = Temperature
    has_classes: ClassVar[bool] = True
    names_outputs: ClassVar[bool] = True
    has_one_class: ClassVar[bool] = True

    def _labels_of(self, rows: Sequence[DataRow]) -> Iterable[str]:
        for row in rows:
            check_label(row, self.label_column)
            yield self._class_name(row, self.label_column)

    def _class_name(self, row: DataRow, column: str) -> str:
        name = one_label(row, column)
        if self.glue in metrics.HUB_LABELS and name in Labels.numbered(len(self.classes)).names:
            raise row.invalid(
                f"{quoted(name)} as {column}; expected {', '.join(self.classes)}, since a number means one class in "
                "Google's order and another in the Hub's"
            )
        return name

    def labels(self, examples: Examples, source: Source) -> Labels | None:
        """The classes of the benchmark or of the training data."""
        labels = Labels.from_data([str(example.label) for example in examples], source)
        return Labels(self.classes) if self.classes else labels

    def with_names(self, examples: Examples, labels: Labels, source: Source) -> Examples:
        if examples[0].label is None:
            return examples
        names = labels.names_of((str(example.label) for example in examples), source)
        return [replace(example, label=names[str(example.label)]) for example in examples]

    def _network_labels(self, examples: Examples, labels: Labels | None) -> list[Any]:
        assert labels is not None
        ids = {name: number for number, name in enumerate(labels.names)}
        return [ids[str(example.label)] for example in examples]

    def predict(self, outputs: Any, data: TaskData[TextExample], labels: Labels | None) -> list[LabelPrediction]:
        """The most probable class."""
        assert labels is not None
        probabilities = torch.from_numpy(self._logits(outputs, data)).softmax(-1).numpy()
        rows = metrics.with_temperature(probabilities, self.temperature).tolist()
        tables = [dict(zip(labels.names, row, strict=True)) for row in rows]
        return [LabelPrediction(max(table, key=table.__getitem__), table) for table in tables]

    def columns_of(self, prediction: LabelPrediction, example: TextExample, top_k: int = 1) -> Columns:
        """Label, None in the answer if it is uncertain, and probability."""
        label, table = str(prediction.label), prediction.probabilities
        if not table:
            return Columns(label)
        ranked = sorted(table, key=lambda name: -table[name])[:top_k]
        best = [{"label": name, "score": rounded(table[name])} for name in ranked]
        is_certain = table[label] >= self.confidence_threshold
        answer = {"label": label if is_certain else None, "score": rounded(table[label])}
        return Columns(label, answer, best, probabilities=table)

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[LabelPrediction]:
        names, labels = [], Labels(self.classes) if self.classes else None
        for row in filled_predictions(rows):
            name = self._class_name(row, "prediction")
            if labels:
                name = labels.names[labels.ids([name], f"{row.source}, row {row.number},")[0]]
            names.append(name)
        if not labels:
            check_alike(rows[0].source, set(names), {str(example.label) for example in examples})
        return list(map(LabelPrediction, names))

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """GLUE's metrics; otherwise accuracy and macro F1."""
        names, predicted, true = self._class_ids(predictions, examples)

        def scores(ids: Sequence[int]) -> dict[str, float]:
            if self.glue:
                return metrics.glue_metrics(self.glue, ids, true)
            return {"accuracy": metrics.accuracy(ids, true), "macro_f1": metrics.f1(ids, true, average="macro")}

        def resampled() -> metrics.WeightedMetrics:
            held, right = (np.array(side)[:, None] == np.arange(len(names)) for side in (predicted, true))
            return partial(label_metrics, held, right, metrics.GLUE_METRICS[self.glue] if self.glue else _METRICS)

        def report() -> metrics.ClassReport:
            return metrics.class_report([names[one] for one in predicted], [names[one] for one in true], names)

        def baseline() -> dict[str, float]:
            counts, metric = Counter(true), self.main_metric
            majority = min(counts, key=lambda one: (-counts[one], names[one]))
            return {f"majority_{metric}": scores([majority] * len(true))[metric]}

        return Measures(partial(scores, predicted), resampled, report, baseline)

    def _class_ids(
        self, predictions: Predictions, examples: Examples
    ) -> tuple[tuple[str, ...], Sequence[int], Sequence[int]]:
        """The classes of predictions and data, and the ids in both, given names or numbers."""
        predicted, true = ([str(each.label) for each in side] for side in (predictions, examples))
        labels = Labels(self.classes or tuple(sorted({*predicted, *true})))
        return labels.names, labels.ids(predicted, "The prediction file"), labels.ids(true, "The data")

    def errors(self, prediction: LabelPrediction, example: TextExample) -> Iterator[tuple[float, dict[str, Any]]]:
        """A wrong label, with its probability."""
        names, (predicted,), (true,) = self._class_ids([prediction], [example])
        if predicted != true:
            label, table = names[predicted], prediction.probabilities
            probability = rounded(table[label]) if label in table else ""
            sides = {"true": names[true], "predicted": label, "probability": probability}
            yield table.get(label, 0.0), example.columns | sides


@dataclass(frozen=True, kw_only=True)
class NextSentence(OneLabel):
    """Whether the second text of a pair follows the first, by the pretraining head; classes are the pipeline's."""

    text_pair_column: str | None = "text_pair"
    classes: tuple[str, ...] = LABELS

    options: ClassVar[tuple[str, ...]] = (*Task.options, "text_pair_column")
    auto_class: ClassVar[Any] = AutoModelForNextSentencePrediction
    classifies_texts: ClassVar[bool] = False
    pipeline: ClassVar[str] = "next-sentence-prediction"
    teaching: ClassVar[Teaching | None] = None
    has_named_head: ClassVar[bool] = False

    def pipeline_call(self, example: TextExample) -> PipelineCall:
        first, second = example.texts
        title = f"Next sentence prediction (the data says: {example.label})"
        return PipelineCall(title, self.pipeline, f"print(run({first!r}, {second!r}))")


def label_metrics(
    predicted: np.ndarray, true: np.ndarray, names: Sequence[str], weights: np.ndarray
) -> dict[str, np.ndarray]:
    """Metrics of predicted and true labels, (examples, labels); GLUE's f1 is that of class 1."""
    counted = metrics.count_metrics(np.stack([predicted & true, predicted, true]), weights)
    counted["accuracy"] = metrics.weighted_mean((predicted == true).all(1), weights)
    if "f1" in names:
        counted["f1"] = np.nan_to_num(counted["f1"][:, 1])
    return {name: counted[name] for name in names}
