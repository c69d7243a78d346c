"""Single texts and pairs: their examples and the network's input; each target of texts is a subclass.

Sentence-level tasks of the paper (section 4.1), and next sentence prediction (3.1).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import repeat
from statistics import fmean, geometric_mean
from typing import Any, ClassVar, Literal

import numpy as np
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase
from typing_extensions import Self

from ...cards import PipelineCall
from ...files.errors import SettingError
from ...files.source import Source
from ...pipelines import WindowPooling, pool_windows, window_places
from ...tokenization import encode_and_truncate
from ..data import WINDOW_WEIGHT, DataRow, Labels, TaskData, TaskExample, may_read_pairs, text_columns
from .losses import SOFT_TARGETS, Tables, Teaching
from .task import Task

Label = str | frozenset[str] | float | Mapping[str, float]


@dataclass(frozen=True)
class TextExample(TaskExample):
    """A sentence or a pair, and its label: a name, several names, a number, numbers by column; None if unknown."""

    texts: tuple[str, ...]
    label: Label | None
    # Of how many labels the data has 0 and 1, so that `label` has their positions until they are known; or None.
    positions: int | None = None

    @property
    def classes(self) -> tuple[str, ...]:
        """The label or labels; none for numbers."""
        if isinstance(self.label, str):
            return (self.label,)
        return tuple(sorted(self.label)) if isinstance(self.label, frozenset) else ()

    @property
    def numbers(self) -> Mapping[str, float]:
        """The numbers that are its label, by column; "" for the column of a single one."""
        if isinstance(self.label, float):
            return {"": self.label}
        return self.label if isinstance(self.label, Mapping) else {}

    @property
    def columns(self) -> dict[str, Any]:
        """The texts in columns of a table."""
        return dict(zip(("text", "text_pair"), self.texts, strict=False))


@dataclass(frozen=True)
class LabelPrediction:
    """A predicted label, of the same type as an example's, and the probability of each class."""

    label: Label
    probabilities: Mapping[str, float] = field(default_factory=dict)


Examples = Sequence[TextExample]
Predictions = Sequence[LabelPrediction]

# The options of some targets only, with the reason why the others reject them.
_TARGET_OPTIONS = {
    "label_columns": "{label_columns} are for tasks of several labels or numbers; this one has a {label_column}.",
    "label_separator": "{label_separator} is for the task multilabel with a {label_column}.",
    "confidence_threshold": "{confidence_threshold} is for tasks with one class per text; leave it out.",
}


class TextTeaching(Teaching):
    """One row of logits for each text; those of windows are pooled."""

    def targets(self, task: Any, data: TaskData, read: TaskData, tables: Tables) -> dict[str, Any]:
        if task.window_pooling is None:
            return super().targets(task, data, read, tables)
        logits = pool_windows(np.concatenate(tables), read.layout, task.window_pooling).astype(np.float32)
        owners = data.layout
        weights = (1 / np.bincount(owners))[owners].tolist()
        return {WINDOW_WEIGHT: weights, SOFT_TARGETS: [logits[owner] for owner in owners]}


@dataclass(frozen=True, kw_only=True)
class TextTask(Task[TextExample, LabelPrediction]):
    """A target of single texts or pairs."""

    label_columns: tuple[str, ...] = ()
    label_separator: str | None = None  # of several labels of a text; a comma until the data is read
    # None truncates texts longer than `max_length`; "mean" or "max" reads them in windows and pools their logits.
    window_pooling: WindowPooling | None = None
    # For one class per text, the (calibrated) probability below which new data gets no label.
    confidence_threshold: float = 0.0
    # Fitted to validation data, see `Temperature` and `Thresholds`; each target has both in its record.
    thresholds: Mapping[str, float] = field(default_factory=dict)
    temperature: float = 1.0

    options: ClassVar[tuple[str, ...]] = (
        *Task.options,
        *("text_pair_column", "label_columns", "label_separator", "window_pooling", "doc_stride"),
        "confidence_threshold",
    )
    own_options: ClassVar[tuple[str, ...]] = ()
    """Those of `_TARGET_OPTIONS` that it has."""
    fitted_fields: ClassVar[Mapping[str, Any]] = {"thresholds": fmean, "temperature": geometric_mean}
    needed_texts: ClassVar[Literal["first", "any", "all"]] = "any"
    auto_class: ClassVar[Any] = AutoModelForSequenceClassification
    classifies_texts: ClassVar[bool] = True
    pipeline: ClassVar[str] = "text-classification"
    problem: ClassVar[str]
    """The kind of label, as transformers calls it (`problem_type`)."""
    teaching: ClassVar[Teaching | None] = TextTeaching()

    def __post_init__(self) -> None:
        if not self.temperature > 0:
            raise ValueError(f"temperature is {self.temperature}; expected a number above 0.")
        for option, reason in _TARGET_OPTIONS.items():
            if option not in self.own_options and getattr(self, option):
                raise SettingError.worded(reason)
        if self.doc_stride is not None and self.window_pooling is None:
            raise SettingError.worded(
                "{doc_stride} is set without {window_pooling} (mean or max); without windows, texts are cut."
            )
        super().__post_init__()

    def infer_columns(self, rows: Sequence[DataRow]) -> Self:
        """The task, with pairs if the data has `text_pair`."""
        has_pairs = self.text_pair_column is None and may_read_pairs(self) and any("text_pair" in row for row in rows)
        return replace(self, text_pair_column="text_pair") if has_pairs else self

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[TextExample]:
        """The examples of a file's rows; all labels of a column are read alike."""
        names = text_columns(self)
        labels = iter(self._labels_of(rows) if labeled else repeat(None))
        examples = []
        for row in rows:
            texts = tuple(row.text(name, may_be_empty=len(names) > 1) for name in names)
            if not any(map(str.strip, texts)):
                raise row.invalid(f"an empty {' and an empty '.join(names)}; expected a text in one of them")
            examples.append(TextExample(texts, next(labels), row=row.number))
        return examples

    @abstractmethod
    def _labels_of(self, rows: Sequence[DataRow]) -> Iterable[Any]:
        """The label of each row."""

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
            targets = self._network_labels(examples, labels)
            # The windows of an example share its weight in the loss; `layout` has the example of each sequence.
            inputs["labels"] = [targets[owner] for owner in owners]
            if len(owners) > len(examples):
                inputs[WINDOW_WEIGHT] = (1 / np.bincount(owners))[owners].tolist()
        if windows is None:
            return TaskData(examples, inputs, source, cut=len(encoded.too_long))
        return TaskData(examples, inputs, source, owners, windowed=len(encoded.too_long))

    @abstractmethod
    def _network_labels(self, examples: Examples, labels: Labels | None) -> list[Any]:
        """The label of each example, whose classes have names, as the network learns it."""

    def _logits(self, outputs: Any, data: TaskData[TextExample]) -> np.ndarray:
        """The logits of each example (examples, K), in float64."""
        logits = np.asarray(outputs, dtype=np.float64)
        return logits if self.window_pooling is None else pool_windows(logits, data.layout, self.window_pooling)

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """Names of the outputs, and `problem_type`."""
        return super().config_fields(labels) | {"problem_type": self.problem}

    def gold_prediction(self, example: TextExample) -> LabelPrediction:
        assert example.label is not None
        return LabelPrediction(example.label)

    def pipeline_call(self, example: TextExample) -> PipelineCall:
        settings = "" if self.window_pooling else f", truncation=True, max_length={self.max_length}"
        parts = example.columns
        code = f"text = {parts if len(parts) > 1 else [parts['text']]!r}\nprint(run(text{settings}))"
        label = example.label if isinstance(example.label, float) else ", ".join(example.classes)
        return PipelineCall(f"Text classification (the data says: {label})", self.pipeline, code)


def filled_predictions(rows: Iterable[DataRow]) -> Iterator[DataRow]:
    """The rows of a prediction file, none of which may have an empty prediction."""
    for row in rows:
        if row.value("prediction") in (None, ""):
            raise row.invalid("an empty prediction; expected one for each example")
        yield row


def check_label(row: DataRow, column: str) -> None:
    """Reject a row without a label."""
    value = row.value(column)
    if value is None or str(value).strip() == "":
        raise SettingError.worded(
            "{} has no label in row {}; expected one[, or pass {skip_empty=True}].", row.source, row.number
        )
