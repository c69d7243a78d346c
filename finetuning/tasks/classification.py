"""Classification and regression of sentences and pairs (paper, section 4.1), and next sentence prediction (3.1)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import compress
from pathlib import Path
from statistics import fmean, geometric_mean
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)
from typing_extensions import Self

from ... import metrics
from ...cards import PipelineCall
from ...files.checkpoint import Checkpoint
from ...files.source import Source
from ...pipelines import WindowPooling, pool_windows, window_places
from ...tokenization import encode_and_truncate
from ..data import DataRow, Labels, listed, quoted, read_prediction_rows, with_decimal_points
from ..heads import recorded_activation
from .label_cells import SEPARATORS, check_alike, labels_in_cells, labels_in_columns, mark_between, one_label
from .task import WINDOW_WEIGHT, Objective, Task, TaskData, TaskExample, rounded


@dataclass(frozen=True)
class TextExample(TaskExample):
    """A sentence or a pair, and its label: a name, several names, a number, or None if unknown."""

    texts: tuple[str, ...]
    label: str | frozenset[str] | float | None
    # Of how many labels the data has 0 and 1, so that `label` has their positions until they are known; or None.
    positions: int | None = None


@dataclass(frozen=True)
class LabelPrediction:
    """A predicted label, of the same type as an example's, and the probability of each class."""

    label: str | frozenset[str] | float
    probabilities: Mapping[str, float] = field(default_factory=dict)


Examples = Sequence[TextExample]
Predictions = Sequence[LabelPrediction]


def class_probabilities(predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (examples, classes) and ids of the true classes (examples,)."""
    number = {name: place for place, name in enumerate(predictions[0].probabilities)}
    references = [number[str(example.label)] for example in examples]
    return np.array([list(prediction.probabilities.values()) for prediction in predictions]), np.array(references)


def label_probabilities(predictions: Predictions, examples: Examples) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of several labels (examples, labels), and whether each is true, of the same shape."""
    names = tuple(predictions[0].probabilities)
    holds = [[name in example.label for name in names] for example in examples]  # type: ignore[operator]
    return np.array([list(prediction.probabilities.values()) for prediction in predictions]), np.array(holds)


logger = logging.getLogger(__name__)

_OBJECTIVES: dict[str, Objective] = {
    "single_label_classification": "classes",
    "multi_label_classification": "labels",
    "regression": "value",
}
_THRESHOLD = 0.5  # default threshold of a label's probability in multi-label tasks


@dataclass(frozen=True, kw_only=True)
class ClassificationTask(Task[TextExample, LabelPrediction]):
    """Classification or regression of single sentences or pairs."""

    label_columns: tuple[str, ...] = ()  # for multi-label tasks, columns of 0 and 1, one for each label
    label_separator: str | None = None  # of several labels of a text; a comma until the data is read
    # The kind of label, as in transformers' `problem_type`.
    problem: Literal["single_label_classification", "multi_label_classification", "regression"] = (
        "single_label_classification"
    )
    classes: tuple[str, ...] = ()  # in the order of their ids; by default they follow from the data
    # None truncates texts longer than `max_length`; "mean" or "max" reads them in windows and pools their logits.
    window_pooling: WindowPooling | None = None
    # For regression, the class of torch.nn that turns the network's output into the number.
    activation: str = "Identity"
    unlabeled: float | None = None  # for regression, the value that means "no label"
    glue: str | None = None  # name of the GLUE task, which determines the metrics
    # For multi-label tasks, the probability above which each label is predicted; 1/2 for labels without one. Like the
    # temperature, which divides a single-label task's logits, fitted to the validation data.
    thresholds: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0
    # For single-label tasks, the (calibrated) probability below which new data gets no label.
    confidence_threshold: float = 0.0

    options: ClassVar[tuple[str, ...]] = (
        *Task.options,
        *("text_pair_column", "label_columns", "label_separator", "window_pooling", "doc_stride"),
        "confidence_threshold",
    )
    fitted_fields: ClassVar[Mapping[str, Any]] = {"thresholds": fmean, "temperature": geometric_mean}
    auto_class: ClassVar[Any] = AutoModelForSequenceClassification
    pipeline: ClassVar[str] = "text-classification"

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; expected a number above 0.")
        if self.label_columns and self.problem != "multi_label_classification":
            raise ValueError("label_columns are for the task multilabel; this one has a label_column.")
        if self.label_separator and (self.label_columns or self.problem != "multi_label_classification"):
            raise ValueError("label_separator is for the task multilabel with a label_column.")
        if self.confidence_threshold and self.problem != "single_label_classification":
            raise ValueError("confidence_threshold is for tasks with one class per text; leave it out.")
        if self.doc_stride is not None and self.window_pooling is None:
            raise ValueError("doc_stride is set without window_pooling (mean or max); without windows, texts are cut.")
        super().__post_init__()

    def has_label(self, row: DataRow) -> bool:
        if self.label_columns:
            return all(map(row.has, self.label_columns))
        if self.problem == "multi_label_classification":  # an empty list of labels is a label
            return self.label_column in row
        return row.has(self.label_column) and row.value(self.label_column) != self.unlabeled

    def examples(self, rows: Sequence[DataRow], labeled: bool) -> list[TextExample]:
        """The examples of a file's rows; all labels of a column are read alike, and so are its decimal commas."""
        if labeled and self.problem == "regression":
            rows = with_decimal_points(rows, self.label_column)
        if not labeled or self.problem != "multi_label_classification" or self.label_columns:
            return super().examples(rows, labeled)
        labels, positions = labels_in_cells(rows, self.label_column, self.label_separator)
        if positions:
            logger.info("%s: labels are 0 and 1 for each of %d, in the order of their ids.", rows[0].source, positions)
        examples = super().examples(rows, labeled=False)
        pairs = zip(examples, labels, strict=True)
        return [replace(example, label=label, positions=positions) for example, label in pairs]

    def example(self, row: DataRow, labeled: bool) -> TextExample:
        names = self.text_columns
        texts = tuple(row.text(name, may_be_empty=len(names) > 1) for name in names)
        if not any(map(str.strip, texts)):
            raise row.invalid(f"an empty {' and an empty '.join(names)}; expected a text in one of them")
        return TextExample(texts, self._label(row) if labeled else None, row=row.number)

    def has_text(self, row: DataRow) -> bool:
        """Whether a row has a text; of a pair, one is enough."""
        return any(map(row.has, self.text_columns))

    def is_empty(self, row: DataRow) -> bool:
        """Whether a row has no text, or no label."""
        has_label = self.has_label(row) and bool(self.label_columns or str(row.value(self.label_column)).strip())
        return not (self.has_text(row) and has_label)

    def columns(self, labeled: bool) -> dict[str, str]:
        found = super().columns(labeled)
        return {name: option for name, option in found.items() if option != "label_column" or not self.label_columns}

    @property
    def objective(self) -> Objective:
        """What the network learns, by the kind of label."""
        return _OBJECTIVES[self.problem]

    @property
    def has_classes(self) -> bool:
        return self.problem != "regression"

    def texts_of(self, example: TextExample) -> tuple[str, ...]:
        return example.texts

    def classes_of(self, example: TextExample) -> tuple[str, ...]:
        """The label or labels; none for regression."""
        if isinstance(example.label, str):
            return (example.label,)
        return tuple(sorted(example.label)) if isinstance(example.label, frozenset) else ()

    def infer_columns(self, rows: Sequence[DataRow]) -> Self:
        """The task, with pairs if the data has `text_pair`, and whichever of , ; | separates labels there."""
        if self.text_pair_column is None and self.may_read_pairs and any("text_pair" in row for row in rows):
            return replace(self, text_pair_column="text_pair").infer_columns(rows)
        if self.problem != "multi_label_classification" or self.label_columns or self.label_separator:
            return self
        values = [row.get(self.label_column) for row in rows]
        there = [mark for mark in SEPARATORS if any(isinstance(value, str) and mark in value for value in values)]
        if len(there) > 1:
            raise ValueError(
                f"{rows[0].source} has {' and '.join(map(repr, there))} in {self.label_column!r}; set "
                "label_separator to the one between labels."
            )
        return replace(self, label_separator=there[0] if there else SEPARATORS[0])

    def _label(self, row: DataRow) -> str | frozenset[str] | float:
        if self.problem == "multi_label_classification":
            return labels_in_columns(row, self.label_columns)
        value = row.value(self.label_column)
        if value is None or str(value).strip() == "":
            raise ValueError(f"{row.source} has no label in row {row.number}; expected one, or pass --skip_empty.")
        if self.problem == "single_label_classification":
            return self._class_name(row, self.label_column)
        return row.finite_number(self.label_column)

    def _class_name(self, row: DataRow, column: str) -> str:
        name = one_label(row, column)
        if self.glue in metrics.HUB_LABELS and name in _numbers(len(self.classes)):
            raise row.invalid(
                f"{quoted(name)} as {column}; expected {', '.join(self.classes)}, since a number means one class in "
                "Google's order and another in the Hub's"
            )
        return name

    def labels(self, examples: Examples, source: Source) -> Labels | None:
        """The classes of the benchmark or of the training data; None for regression."""
        if self.problem == "regression":
            return None
        if self.problem == "multi_label_classification":
            if names := self.label_columns or _numbers(examples[0].positions or 0):
                labels = Labels(names)
            else:
                found = [name for example in examples for name in example.label]  # type: ignore[union-attr]
                labels = Labels.from_data(found, source)
            mark_between(labels.names, source)  # of its predictions
            return labels
        labels = Labels.from_data([str(example.label) for example in examples], source)
        return Labels(self.classes) if self.classes else labels

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """Classes and `problem_type`; regression has one output called "value"."""
        names = labels if self.problem != "regression" else Labels(("value",))
        return super().config_fields(names) | {"problem_type": self.problem}

    def with_classes(self, labels: Labels | None, checkpoint: Checkpoint | None = None) -> Self:
        """The task; a number is a cross-encoder's score if the model's folder records how that is computed."""
        if self.problem != "regression" or checkpoint is None:
            return self
        return replace(self, activation=recorded_activation(checkpoint))

    @property
    def has_class_numbers(self) -> bool:
        return bool(self.classes) and self.classes == _numbers(len(self.classes))

    def check_labels(self, name: str, config: PreTrainedConfig) -> None:
        """Reject unnamed classes if published models order them differently (MNLI)."""
        names = Labels.from_config(config).names
        if names == _numbers(len(names)):  # LABEL_0 or 0
            metrics.require_named_labels(name, self.glue, {number: f"LABEL_{number}" for number in range(len(names))})

    def named(self, labels: Labels) -> Labels:
        """The benchmark's names of the classes, if the data or the model only numbers them."""
        if len(labels.names) != len(self.classes) or set(labels.names) == set(self.classes):
            return labels
        is_numbered = self.has_class_numbers or labels.names == _numbers(len(self.classes))
        return Labels(self.classes) if is_numbered else labels

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[TextExample]:
        """Tokenize sentences or pairs, truncated as by Google's code: the longer sentence of a pair first."""
        texts = [example.texts for example in examples]
        windows = None if self.window_pooling is None else partial(window_places, stride=self.doc_stride)
        encoded = encode_and_truncate(tokenizer, texts, self.max_length, windows)
        inputs: dict[str, list[Any]] = encoded.inputs
        owners = np.array(encoded.owners)
        if examples[0].label is not None:
            examples = self.with_names(examples, labels, source) if labels else examples
            targets = self._targets(examples, labels)
            # The windows of an example share its weight in the loss; `layout` has the example of each sequence.
            inputs["labels"] = [targets[owner] for owner in owners]
            if len(owners) > len(examples):
                inputs[WINDOW_WEIGHT] = (1 / np.bincount(owners))[owners].tolist()
        if windows is None:
            return TaskData(examples, inputs, source, cut=len(encoded.too_long))
        return TaskData(examples, inputs, source, owners, windowed=len(encoded.too_long))

    def with_names(self, examples: Examples, labels: Labels, source: Source) -> Examples:
        """The examples with the names of the classes, where the data has ids or positions."""
        if self.problem == "regression" or examples[0].label is None:
            return examples
        if positions := examples[0].positions:
            if positions != len(labels.names):
                expected = f"{len(labels.names)} ({listed(labels.names)})"
                raise ValueError(
                    f"{source} has 0 and 1 for {positions} labels in {self.label_column!r}; expected {expected}."
                )
            names = dict(zip(_numbers(positions), labels.names, strict=True))
        else:
            given = list(dict.fromkeys(name for example in examples for name in self.classes_of(example)))
            names = {name: labels.names[place] for name, place in zip(given, labels.ids(given, source), strict=True)}
        found: list[TextExample] = []
        for example in examples:
            label: Any = [names[name] for name in self.classes_of(example)]
            label = frozenset(label) if self.problem == "multi_label_classification" else label[0]
            found.append(replace(example, label=label, positions=None))
        return found

    def _targets(self, examples: Examples, labels: Labels | None) -> list[Any]:
        """The target of each example, whose classes have names."""
        if labels is None or self.problem == "regression":
            return [example.label for example in examples]
        if self.problem == "multi_label_classification":
            return [[float(name in example.label) for name in labels.names] for example in examples]  # type: ignore[operator]
        ids = {name: number for number, name in enumerate(labels.names)}
        return [ids[str(example.label)] for example in examples]

    def predict(self, outputs: Any, data: TaskData[TextExample], labels: Labels | None) -> list[LabelPrediction]:
        """The most probable class, all labels with a probability above their threshold, or the value."""
        logits = np.asarray(outputs, dtype=np.float64)
        if self.window_pooling is not None:
            logits = pool_windows(logits, data.layout, self.window_pooling)
        if self.problem == "regression":
            return [LabelPrediction(float(value)) for value in self.values(logits)[:, 0]]
        assert labels is not None
        if self.problem == "single_label_classification":
            probabilities = metrics.with_temperature(torch.from_numpy(logits).softmax(-1).numpy(), self.temperature)
            tables = [dict(zip(labels.names, row, strict=True)) for row in probabilities.tolist()]
            return [LabelPrediction(max(table, key=table.__getitem__), table) for table in tables]
        tables = [dict(zip(labels.names, row, strict=True)) for row in torch.from_numpy(logits).sigmoid().tolist()]
        least = {name: self.thresholds.get(name, _THRESHOLD) for name in labels.names}
        held = [frozenset(name for name, value in table.items() if value > least[name]) for table in tables]
        return list(map(LabelPrediction, held, tables))

    def values(self, outputs: np.ndarray) -> np.ndarray:
        """The numbers of a regression from the network's outputs."""
        activated: torch.Tensor = getattr(torch.nn, self.activation)()(torch.from_numpy(outputs))
        return activated.numpy()

    def check_answers(self, top_k: int, probabilities: bool) -> None:
        super().check_answers(top_k, probabilities)
        if self.problem == "regression" and (top_k > 1 or probabilities):
            raise ValueError(
                "top_k or probabilities is set, but this task predicts one number per text; leave it out."
            )

    def answer(
        self, prediction: LabelPrediction, example: TextExample, top_k: int
    ) -> tuple[dict[str, Any], list[Any]]:
        """Label (None if uncertain) and probability, or those of several labels, or a number."""
        label, table = prediction.label, prediction.probabilities
        if isinstance(label, float):
            return {"score": _seven_digits(label)}, []
        ranked = sorted(table, key=lambda name: -table[name])
        best = [{"label": name, "score": rounded(table[name])} for name in ranked[:top_k]]
        if isinstance(label, str):
            is_certain = table[label] >= self.confidence_threshold
            return {"label": label if is_certain else None, "score": rounded(table[label])}, best
        held = [name for name in ranked if name in label]
        return {"label": held, "score": [rounded(table[name]) for name in held]}, best

    def probabilities_of(self, prediction: LabelPrediction) -> Mapping[str, float]:
        return prediction.probabilities

    def counted_labels(self, answer: Mapping[str, Any]) -> Sequence[str]:
        if self.problem == "regression":
            return ()
        label = answer["label"]
        return label if label and isinstance(label, list) else (label or "",)

    def calibrated(self, predictions: Predictions, examples: Examples) -> Self:
        """The task with the thresholds fitted to the predictions, or the temperature if it helps held-out ones."""
        if self.problem == "single_label_classification" and len(examples) > 1:
            probabilities, references = class_probabilities(predictions, examples)
            held_out = metrics.held_out_temperatures(probabilities, references)
            if metrics.log_loss(held_out, references) < metrics.log_loss(probabilities, references):
                return replace(self, temperature=metrics.fit_temperature(probabilities, references))
            logger.info("Probabilities stay as they are: on data that did not fit it, a temperature makes them worse.")
            return self
        if self.problem != "multi_label_classification":
            return self
        thresholds = metrics.fit_thresholds(*label_probabilities(predictions, examples))
        logger.info(
            "Labels are predicted above a probability of %.3g (median; %.3g to %.3g), which gives the best F1 on the "
            "validation data; the rarer a label, the nearer to the threshold that suits all labels.",
            *np.quantile(thresholds, (0.5, 0.0, 1.0)),
        )
        return replace(self, thresholds=dict(zip(predictions[0].probabilities, thresholds.tolist(), strict=True)))

    def cross_fitted(self, predictions: Predictions, examples: Examples) -> Predictions:
        """Predictions by thresholds that are fitted to the other examples, unless the task has thresholds."""
        if self.problem != "multi_label_classification" or self.thresholds:
            return predictions
        names = tuple(predictions[0].probabilities)
        pairs = zip(predictions, metrics.held_out_labels(*label_probabilities(predictions, examples)), strict=True)
        return [replace(prediction, label=frozenset(compress(names, row))) for prediction, row in pairs]

    def score(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """GLUE's metrics; otherwise accuracy and F1; for regression correlations, and errors in the data's unit."""
        _, held, true = self._sides(predictions, examples)
        if self.problem == "regression":
            return metrics.pearson_spearman(held, true) | metrics.errors_of_values(held, true)
        if self.glue:
            return metrics.glue_metrics(self.glue, held, true)
        found = {"accuracy": metrics.accuracy(held, true)}
        if self.problem == "multi_label_classification":
            found["micro_f1"] = metrics.f1(held, true, average="micro")
        return found | {"macro_f1": metrics.f1(held, true, average="macro")}

    def weighted_metrics(self, predictions: Predictions, examples: Examples) -> metrics.WeightedMetrics:
        names, held, true = map(np.array, self._sides(predictions, examples))
        if self.problem == "regression":
            return partial(_value_metrics, held, true)
        if self.problem == "multi_label_classification":
            return partial(_label_metrics, held == 1, true == 1, ("accuracy", "micro_f1", "macro_f1"))
        wanted, ids = metrics.GLUE_METRICS[self.glue] if self.glue else ("accuracy", "macro_f1"), np.arange(len(names))
        return partial(_label_metrics, held[:, None] == ids, true[:, None] == ids, wanted)

    def _sides(self, predictions: Predictions, examples: Examples) -> tuple[Sequence[str], Any, Any]:
        """The classes, and the two sides: ids (examples,), 0 and 1 for each label (examples, labels), or numbers."""
        predicted: list[Any] = [prediction.label for prediction in predictions]
        wanted: list[Any] = [example.label for example in examples]
        if self.problem == "single_label_classification":
            labels, ids = self._class_ids(predicted, wanted)
            return labels.names, *ids
        if self.problem == "regression":
            return (), predicted, wanted
        names = sorted(frozenset().union(*predicted, *wanted)) or [""]  # if no label is true or predicted
        held, true = (
            np.array([[int(name in label) for name in names] for label in side]) for side in (predicted, wanted)
        )
        return names, held, true

    def _class_ids(
        self, predicted: Sequence[str], wanted: Sequence[str]
    ) -> tuple[Labels, tuple[list[int], list[int]]]:
        """The classes of predictions and data, and the ids in both, given names or numbers."""
        labels = Labels(self.classes or tuple(sorted({*predicted, *wanted})))
        return labels, (labels.ids(predicted, "The prediction file"), labels.ids(wanted, "The data"))

    def calibration(
        self, predictions: Predictions, examples: Examples, fitted_to_them: bool = False
    ) -> dict[str, float]:
        """The calibration error of the most probable class, and coverage, for single-label tasks."""
        if self.problem != "single_label_classification" or len(examples) < 2 or not predictions[0].probabilities:
            return {}
        probabilities, references = class_probabilities(predictions, examples)
        if fitted_to_them:
            probabilities = metrics.held_out_temperatures(probabilities, references)
        found = {"expected_calibration_error": metrics.expected_calibration_error(probabilities, references)}
        if self.confidence_threshold:
            found |= metrics.selective_accuracy(probabilities, references, self.confidence_threshold)
        return found

    def report_by_class(self, predictions: Predictions, examples: Examples) -> metrics.ClassReport | None:
        """The report by class or label; None for regression."""
        if self.problem == "regression":
            return None
        if self.problem == "multi_label_classification":
            predicted: list[Any] = [prediction.label for prediction in predictions]
            wanted: list[Any] = [example.label for example in examples]
            return metrics.several_labels_report(predicted, wanted, sorted(frozenset().union(*predicted, *wanted)))
        names, held, true = self._sides(predictions, examples)
        return metrics.class_report([names[number] for number in held], [names[number] for number in true], names)

    def constant_scores(self, examples: Examples) -> dict[str, float]:
        """The main metric of the most frequent class, or the errors of the mean."""
        if self.problem == "multi_label_classification" or not examples:
            return {}
        values: list[Any] = [example.label for example in examples]
        if self.problem == "regression":
            errors = metrics.errors_of_values([fmean(values)] * len(values), values)
            return {f"mean_value_{name}": error for name, error in errors.items()}
        counts = Counter(values)
        majority = min(counts, key=lambda name: (-counts[name], name))
        scores = self.score([LabelPrediction(majority)] * len(examples), examples)
        return {f"majority_{self.main_metric}": scores[self.main_metric]}

    def gold_prediction(self, example: TextExample) -> LabelPrediction:
        assert example.label is not None
        return LabelPrediction(example.label)

    def as_text(self, prediction: LabelPrediction) -> str:
        """The label, several in alphabetical order, or the number."""
        label = prediction.label
        if isinstance(label, frozenset):
            return mark_between(label).join(sorted(label))
        return label if isinstance(label, str) else str(_seven_digits(label))

    def errors(self, prediction: LabelPrediction, example: TextExample) -> Iterator[tuple[float, dict[str, Any]]]:
        """A wrong label; of several, all, with the probability of the surest wrong one; any difference of a value."""
        label, wanted, table = prediction.label, example.label, prediction.probabilities
        texts: dict[str, Any] = dict(zip(("text", "text_pair"), example.texts, strict=False))
        if isinstance(label, float) and isinstance(wanted, float):
            difference = _seven_digits(label - wanted)
            told: dict[str, Any] = {"true": wanted, "predicted": _seven_digits(label), "difference": difference}
            yield abs(difference), texts | told
            return
        if isinstance(label, frozenset) and isinstance(wanted, frozenset):
            true, predicted = (", ".join(sorted(side)) for side in (wanted, label))
            wrong = [table[name] if name in label else 1 - table[name] for name in (label ^ wanted) & table.keys()]
        else:
            labels, (held, right) = self._class_ids([str(label)], [str(wanted)])
            true, predicted = labels.names[right[0]], labels.names[held[0]]
            wrong = [table[predicted]] if predicted in table else []
        if true != predicted:
            sure = max(wrong, default=0.0)
            told = {"true": true, "predicted": predicted, "probability": rounded(sure) if wrong else ""}
            yield sure, texts | told

    def table(self, predictions: Predictions, examples: Examples) -> tuple[Sequence[str], list[list[str]]]:
        """Predictions as in GLUE's format; for other data also the probabilities of all classes."""
        names = () if self.glue else tuple(predictions[0].probabilities)
        mark = mark_between(names)
        rows = []
        for prediction in predictions:
            label = prediction.label
            text = mark.join(sorted(label)) if isinstance(label, frozenset) else self.as_text(prediction)
            rows.append([text, *(f"{prediction.probabilities[name]:.6f}" for name in names)])
        return names, rows

    def read_predictions(self, path: Path, examples: Examples) -> list[LabelPrediction]:
        if self.problem != "multi_label_classification":
            predictions = super().read_predictions(path, examples)
            if self.problem == "single_label_classification" and not self.classes:
                check_alike(path, {str(each.label) for each in predictions}, {str(each.label) for each in examples})
            return predictions
        rows = read_prediction_rows(path, len(examples))
        # The data may have only some of the classes; a table written by us has columns for all.
        names = {name for example in examples for name in self.classes_of(example)}
        labels, positions = labels_in_cells(rows, "prediction", mark_between([*rows[0].values, *names]))
        numbers = set(_numbers(positions or examples[0].positions or 0))
        if numbers and not names.union(*labels) <= numbers:
            raise ValueError(f"{path} or the data has 0 and 1 for each label, the other names; expected both alike.")
        return list(map(LabelPrediction, labels))

    def read_prediction(self, row: DataRow, example: TextExample) -> LabelPrediction:
        if row.value("prediction") in (None, ""):
            raise row.invalid("an empty prediction; expected one for each example")
        if self.problem == "single_label_classification":
            name = self._class_name(row, "prediction")
            if self.classes:
                name = self.classes[Labels(self.classes).ids([name], f"{row.source}, row {row.number},")[0]]
            return LabelPrediction(name)
        return LabelPrediction(row.finite_number("prediction"))

    def pipeline_call(self, example: TextExample) -> PipelineCall:
        parts = dict(zip(("text", "text_pair"), example.texts, strict=False))
        settings = "" if self.window_pooling else f", truncation=True, max_length={self.max_length}"
        code = f"text = {parts if len(parts) > 1 else [parts['text']]!r}\nprint(run(text{settings}))"
        label = ", ".join(sorted(example.label)) if isinstance(example.label, frozenset) else example.label
        return PipelineCall(f"Text classification (the data says: {label})", self.pipeline, code)


def _label_metrics(
    held: np.ndarray, true: np.ndarray, names: Sequence[str], weights: np.ndarray
) -> dict[str, np.ndarray]:
    """Metrics of predicted and true labels, (examples, labels); GLUE's f1 is that of class 1."""
    found = metrics.count_metrics(np.stack([held & true, held, true]), weights)
    exact = metrics.weighted_mean((held == true).all(1), weights)
    own = {"accuracy": exact} | ({"f1": np.nan_to_num(found["f1"][:, 1])} if "f1" in names else {})
    return {name: (found | own)[name] for name in names}


def _value_metrics(predicted: np.ndarray, wanted: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    errors = predicted - wanted
    return {
        "pearson": metrics.weighted_pearson(predicted, wanted, weights),
        "spearmanr": metrics.weighted_spearman(predicted, wanted, weights),
        "mae": metrics.weighted_mean(np.abs(errors), weights),
        "rmse": np.sqrt(metrics.weighted_mean(errors**2, weights)),
    }


def _seven_digits(value: float) -> float:
    """A predicted number without the digits that float32 does not have, whatever its unit."""
    return float(f"{value:.7g}")


def _numbers(count: int) -> tuple[str, ...]:
    """The names of unnamed classes."""
    return tuple(str(number) for number in range(count))
