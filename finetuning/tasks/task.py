"""Kinds of tasks: how rows become a network's input (`Format`), and its outputs predictions and scores (`Target`).

    rows -> examples -> encode -> TaskData -> (network) -> predict -> predictions -> columns_of, measures, errors

A kind is a class in `tasks/`, a task is an instance in `task_table`. What all kinds do alike is a function in `steps`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from transformers import DataCollatorWithPadding, PreTrainedModel, PreTrainedTokenizerBase
from typing_extensions import Self

from ...cards import PipelineCall
from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError
from ...files.source import Source
from ...files.tables import write_separated
from ...metrics import ClassReport, WeightedMetrics, weighted_mean
from ..data import DataRow, E, Labels, TaskData, new_name, read_prediction_rows
from .calibration import Calibrator
from .losses import ItemLoss, Teaching

P = TypeVar("P")  # a prediction for an example


class Columns(NamedTuple):
    """A prediction in columns.

    Attributes:
        text: What is predicted, in one line.
        answer: For users: `label` and `score`, or the fields of the kind of task.
        best: The best answers, as many as were asked for.
        row_answers: The answers for each row of an example of several rows.
        probabilities: The probability of each class, if there are classes.
        numbers: The predicted numbers, by column; "" for a single one.
    """

    text: str
    answer: Mapping[str, Any] = MappingProxyType({})
    best: Sequence[Any] = ()
    row_answers: Sequence[dict[str, Any]] = ()
    probabilities: Mapping[str, float] = MappingProxyType({})
    numbers: Mapping[str, float] = MappingProxyType({})


class Measures(NamedTuple):
    """How good predictions for labeled examples are, each computed when it is called."""

    scores: Callable[[], dict[str, float]]
    resampled: Callable[[], WeightedMetrics]  # those of the scores that resamples of the examples have
    report: Callable[[], ClassReport | None] = lambda: None  # None if there are no classes
    # Scores of always predicting the most frequent label (`majority_...`) or the mean (`mean_value_...`).
    baseline: Callable[[], dict[str, float]] = dict


_FIRST_COLUMNS = ("index", "prediction")


def value_columns(names: Sequence[str]) -> dict[str, str]:
    """The column of a prediction file for each of these classes or numbers, none of which is one of the first."""
    taken = {*_FIRST_COLUMNS, *names}
    return {name: new_name(name, taken) if name in _FIRST_COLUMNS else name for name in names}


@dataclass(frozen=True)
class PredictionFile:
    """A table of predictions: index, prediction, and a column for each class (its probability) or number."""

    ending: str = ".tsv"
    class_column: str = "{}"  # the name of a class's column

    def write(
        self, task: Any, predictions: Sequence[Any], examples: Sequence[Any], folder: Path, suffix: str = ""
    ) -> None:
        """Write `predictions<suffix>`, with the ending of the format."""
        pairs = list(zip(predictions, examples, strict=True))
        rows = [task.columns_of(*pair) for pair in pairs]
        classes = () if task.glue else tuple(rows[0].probabilities)
        numbers = tuple(name for name in rows[0].numbers if name)
        names = [*_FIRST_COLUMNS, *value_columns([*map(self.class_column.format, classes), *numbers]).values()]
        cells = (
            [
                *(str(index), self.text(row, *pair)),
                *(f"{row.probabilities[name]:.6f}" for name in classes),
                *(str(row.numbers[name]) for name in numbers),
            ]
            for index, (row, pair) in enumerate(zip(rows, pairs, strict=True))
        )
        write_separated(folder / f"predictions{suffix}{self.ending}", [names, *cells])

    def text(self, columns: Any, prediction: Any, example: Any) -> str:
        """The cell of the column `prediction`."""
        return columns.text

    def read(self, task: Any, path: Path, examples: Sequence[Any], rows: Sequence[DataRow]) -> list[Any]:
        """Read a file that `write` wrote, or another tool in the same format; `rows` are the examples', if known."""
        labels = task.columns(labeled=True).keys() - task.columns(labeled=False).keys()
        columns = [name for row in rows[:1] for name in row.values if name not in {*labels, "index"}]
        given: dict[str, Sequence[Any]] = {name: [row.get(name) for row in rows] for name in columns}
        given[task.text_column] = [example.texts[0] for example in examples]
        return task.predictions_of(read_prediction_rows(path, given, task.text_column), examples)


class Format(ABC, Generic[E]):
    """How rows become examples and a network's input."""

    options: ClassVar[tuple[str, ...]] = ("max_length", "encoding", "text_column", "label_column")
    """The fields that a user may set."""
    learned_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that `trained_on` may set."""
    reads_conll: ClassVar[bool] = False
    needed_texts: ClassVar[Literal["first", "any", "all"]] = "first"
    """Which of its text columns a row must fill."""
    pipeline: ClassVar[str]
    """The task's name on the Hub and in `transformers.pipeline`."""

    def columns(self, labeled: bool) -> dict[str, str]:
        """The columns to read, with the setting that names each; label columns only for labeled data."""
        columns: dict[str, str] = {}
        for option in self.options:
            if option.endswith(("_column", "_columns")) and (labeled or not option.startswith("label_")):
                names = getattr(self, option) or ()
                for name in [names] if isinstance(names, str) else names:
                    if columns.setdefault(name, option) != option:  # texts would hold the answer
                        template = f"{{{columns[name]}}} and {{{option}}} are {{!r}}; expected different columns."
                        raise SettingError.worded(template, name)
        return columns

    def infer_columns(self, rows: Sequence[DataRow]) -> Self:
        """The task, with settings inferred from labeled data; ambiguous data is an error."""
        return self

    @abstractmethod
    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[E]:
        """The examples of rows; `new` ones are not prepared for the task. Error messages name file and row."""

    def trained_on(self, examples: Sequence[E], source: Source) -> tuple[Self, Sequence[E]]:
        """The task, with settings for new data learned from training examples; the examples to train on, some."""
        return self, examples

    def group_of(self, example: E) -> Hashable:
        """A key shared by examples that must not be separated when data is split: by default their texts."""
        return example.texts  # type: ignore[attr-defined]

    @abstractmethod
    def encode(
        self, examples: Sequence[E], labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[E]:
        """Tokenize examples; a ValueError if a label is not one of `labels`."""

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """The collator, for a certain model or for any; it pads rows at their end, whatever the tokenizer does.

        Absolute positions count padding before a text, which would have another result in a batch than alone.
        """
        reads_last_token = getattr(getattr(model, "config", None), "summary_type", None) == "last"  # XLNet
        own = copy.copy(tokenizer)
        own.padding_side = "left" if reads_last_token else "right"
        return DataCollatorWithPadding(own)

    @abstractmethod
    def pipeline_call(self, example: E) -> PipelineCall:
        """The pipeline call on the card for an example."""


class Target(ABC, Generic[E, P]):
    """What a network learns, and what its outputs mean."""

    auto_class: ClassVar[Any]
    """transformers' Auto class of the head."""
    classifies_texts: ClassVar[bool] = False  # whether each text or pair has a class, labels or numbers
    loss: ClassVar[ItemLoss]
    teaching: ClassVar[Teaching | None] = None  # None if it cannot be distilled
    calibrator: ClassVar[type[Calibrator]] = Calibrator
    fitted_fields: ClassVar[Mapping[str, Callable[[Iterable[Any]], Any]]] = {}
    """The fields that a calibrator may set, with the mean of several fits."""
    prediction_file: ClassVar[PredictionFile] = PredictionFile()
    full_score: ClassVar[float] = 1.0
    """The main metric's value if all predictions are right."""
    has_classes: ClassVar[bool] = False  # whether what it predicts are named classes
    names_outputs: ClassVar[bool] = False  # whether the network's outputs have names that the data gives them
    has_named_head: ClassVar[bool] = True  # whether checkpoints with its head name the classes
    has_one_class: ClassVar[bool] = False  # whether each example is right or wrong, by one class or choice
    predicts_labeled_only: ClassVar[bool] = False  # whether a loaded network computes outputs of labeled tokens only
    labels_rows: ClassVar[bool] = True  # whether labels are of rows, so that a summary has their fractions
    has_probabilities: ClassVar[bool] = True  # whether answers can include the probability of every class
    most_listed: ClassVar[int | str | None] = None
    """Maximum number of answers in `best`, or the field with it; None for the number of classes."""

    def has_label(self, row: DataRow, may_be_blank: bool = True) -> bool:
        """Whether a row has a label; in some tasks a blank cell is one, if it may be."""
        return row.has(self.label_column)  # type: ignore[attr-defined]

    def labels(self, examples: Sequence[E], source: Source) -> Labels | None:
        """The classes of training data; None if the task has none of its own. A single class is a ValueError."""
        return None

    def with_classes(self, labels: Labels | None, checkpoint: Checkpoint | None = None) -> Self:
        """The task, with settings inferred from the classes of a run, or of a fine-tuned model, and its settings."""
        return self

    def with_names(self, examples: Sequence[E], labels: Labels, source: Source) -> Sequence[E]:
        """The examples with the names of the classes, where the data has ids; an unknown class is a ValueError."""
        labels.ids(sorted({name for example in examples for name in example.classes}), source)  # type: ignore[attr-defined]
        return examples

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """Fields of the task for the model's configuration."""
        if labels is None:
            return {}
        return {
            "id2label": dict(enumerate(labels.names)),
            "label2id": {name: number for number, name in enumerate(labels.names)},
        }

    def kept_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """The model outputs to keep for a batch, one row per sequence."""
        return tuple(values for name, values in outputs.items() if name.endswith("logits"))

    @abstractmethod
    def predict(self, outputs: Any, data: TaskData[E], labels: Labels | None) -> list[P]:
        """A prediction for each example from the `network_outputs`: logits of each sequence, possibly padded."""

    @abstractmethod
    def columns_of(self, prediction: P, example: E, top_k: int = 1) -> Columns:
        """A prediction in columns, from which answers, tables and comparisons are made."""

    @abstractmethod
    def predictions_of(self, rows: Sequence[DataRow], examples: Sequence[E]) -> list[P]:
        """The predictions in rows of a prediction file; the inverse of `columns_of`."""

    @abstractmethod
    def gold_prediction(self, example: E) -> P:
        """The correct prediction for a labeled example."""

    @abstractmethod
    def measures(self, predictions: Sequence[P], examples: Sequence[E]) -> Measures:
        """How good predictions for labeled examples are."""

    @abstractmethod
    def errors(self, prediction: P, example: E) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What is wrong in a prediction: how sure or bad each error is, for sorting, and its columns in a table."""


@dataclass(frozen=True, kw_only=True)
class Task(Format[E], Target[E, P]):
    """A task; the fields that a user may set are flags of the same name.

    Attributes:
        main_metric: The metric that selects the best checkpoint.
        max_length: Maximum sequence length, in tokens.
        defaults: Default training settings of the task; the learning rate is that of BERT base.
    """

    main_metric: str
    max_length: int = 128
    # Tokens that neighboring windows of a long text share; None for 128, or half of a window's text if that is less.
    doc_stride: int | None = None
    defaults: Mapping[str, Any] = field(default_factory=dict)
    encoding: str = "utf-8"
    text_column: str = "text"
    text_pair_column: str | None = None  # of a second text, in tasks that read two
    label_column: str = "label"
    classes: tuple[str, ...] = ()  # of texts, in the order of their ids; by default they follow from the data
    glue: str | None = None  # name of the GLUE task, which determines the metrics
    reading: Mapping[str, Any] = field(default_factory=dict)  # of published files, see `files.tables.Reading`
    # For each split, name patterns of its files in the benchmark's folder; the first match is used.
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluations: tuple[str, ...] = ()  # names for several validation (or test) files, in order
    # Whether a model's record says if texts are pairs; otherwise `text_pair` is read if there is one.
    is_recorded: bool = False
    # Fields with other values for the same data on the Hub, whose columns and classes differ.
    hub: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        space = self.max_length - 2
        if self.doc_stride is not None and not 0 <= self.doc_stride < space:
            raise SettingError.worded(
                "{doc_stride} is {}; expected 0 or more and less than {}, the space for text in a window of {} "
                "tokens ({max_length}).",
                self.doc_stride,
                space,
                self.max_length,
            )


def means_of_examples(
    score: Callable[[Sequence[P], Sequence[E]], dict[str, float]], predictions: Sequence[P], examples: Sequence[E]
) -> WeightedMetrics:
    """The metrics of resamples that are means of the scores of each example."""
    scores = [score([prediction], [example]) for prediction, example in zip(predictions, examples, strict=True)]
    names = dict.fromkeys(name for row in scores for name in row)
    columns = {name: [row.get(name, np.nan) for row in scores] for name in names}
    return lambda weights: {name: weighted_mean(values, weights) for name, values in columns.items()}
