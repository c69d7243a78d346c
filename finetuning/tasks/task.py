"""Base class of tasks: from rows to examples and model inputs, and back to predictions, answers, scores and files.

    rows -> examples -> encode -> TaskData -> (network) -> predict -> predictions -> score, answers

A kind of task (classification, tagging, ...) is a subclass in `tasks/`; a task is an instance in `registry`.
"""

from __future__ import annotations

import copy
import logging
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import itemgetter
from pathlib import Path
from typing import Any, ClassVar, Generic, Literal, TypeVar

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from typing_extensions import Self

from ...cards import Example, PipelineCall, run_pipelines
from ...files.checkpoint import Checkpoint
from ...files.source import FileSource, Source
from ...files.tables import write_separated
from ...metrics import ClassReport, WeightedMetrics, weighted_mean
from ...pipelines.batching import run_sorted
from ...pipelines.openvino_model import OpenVinoModel
from ..data import (
    LABEL_ARGUMENTS,
    DataRow,
    Labels,
    accepted_rows,
    check_columns,
    listed,
    new_name,
    read_prediction_rows,
    rows_of,
)
from ..heads import NetworkChanges, check_head, check_max_length, keeps_head, load_finetuned, load_with_head

logger = logging.getLogger(__name__)

WINDOW_WEIGHT = "window_weight"
"""Extra key of labeled data with windows: weight of a sequence in the loss; those of a text add up to 1."""

PLACE_COLUMNS = ("source", "row")
"""The columns of a table of errors that locate an example."""

Objective = Literal["classes", "labels", "value", "span"]
"""One of several classes, any number of labels, a number, or the start and end of an answer."""

_SHOWN_LABELS = 10  # in the summary of predictions


@dataclass(frozen=True, kw_only=True)
class TaskExample:
    """An example of a task's data."""

    row: int = field(default=0, compare=False)  # its number in the data, from 1


E = TypeVar("E", bound=TaskExample)  # an example from the data
P = TypeVar("P")  # a prediction for an example


@dataclass(frozen=True)
class TaskData(Dataset, Generic[E]):
    """The model inputs of a data set, with its examples."""

    examples: Sequence[E]
    # Values for each sequence by model argument. Some tasks make several sequences of an example, and may give them
    # weights (`WINDOW_WEIGHT`).
    inputs: Mapping[str, Sequence[Any]]
    source: Source
    # How sequences and tokens belong to examples; its format depends on the kind of task.
    layout: Any = None
    cut: int = 0  # truncated examples
    windowed: int = 0  # examples read in several windows
    warnings: Collection[str] = ()  # about what was made of the examples

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in self.inputs.items()}


def rounded(value: float) -> float:
    """Round a score for reports to six decimals, about the precision of float32."""
    return round(float(value), 6)


@dataclass(frozen=True, kw_only=True)
class Task(ABC, Generic[E, P]):
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
    file_columns: tuple[str, ...] | None = None  # names of the columns of files without header
    skip_broken_rows: bool = False  # in published files, rows with a wrong number of fields
    # For each split, name patterns of its files in the benchmark's folder; the first match is used.
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluations: tuple[str, ...] = ()  # names for several validation (or test) files, in order
    # Whether a model's record says if texts are pairs; otherwise `text_pair` is read if there is one.
    is_recorded: bool = False
    # Fields with other values for the same data on the Hub, whose columns and classes differ.
    hub: Mapping[str, Any] = field(default_factory=dict)

    options: ClassVar[tuple[str, ...]] = ("max_length", "encoding", "text_column", "label_column")
    """The fields that a user may set."""
    fitted_fields: ClassVar[Mapping[str, Callable[[Iterable[float]], float]]] = {}
    """The fields that `calibrated` may set, with the mean of several fits."""
    learned_fields: ClassVar[tuple[str, ...]] = ()
    """The fields that `learned_from` may set."""
    reads_conll: ClassVar[bool] = False
    auto_class: ClassVar[Any]
    """transformers' Auto class of the head."""
    pipeline: ClassVar[str]
    """The task's name on the Hub and in `transformers.pipeline`."""
    full_score: ClassVar[float] = 1.0
    """The main metric's value if all predictions are right."""
    most_listed: ClassVar[int | None] = None
    """Maximum number of answers in `best`; None for the number of classes."""
    has_probabilities: ClassVar[bool] = True  # whether answers can include the probability of every class
    labels_rows: ClassVar[bool] = True  # whether labels are of rows, so that a summary has their fractions
    table_ending: ClassVar[str] = ".tsv"  # of the table of predictions

    def __post_init__(self) -> None:
        space = self.max_length - 2
        if self.doc_stride is not None and not 0 <= self.doc_stride < space:
            raise ValueError(
                f"doc_stride is {self.doc_stride}; expected 0 or more and less than {space}, the space for text in a "
                f"window of {self.max_length} tokens (max_length)."
            )

    # From rows to examples

    def read(self, source: Source, skip_empty: bool = False) -> list[E]:
        """Read labeled examples to be measured on, with the settings that they imply, see `infer_columns`."""
        rows = self.rows(source, labeled=True, skip_empty=skip_empty)
        return self.infer_columns(rows).examples(rows, labeled=True)

    def rows(self, source: Source, labeled: bool, skip_empty: bool = False) -> list[DataRow]:
        """Read the rows of a file, with `skip_empty` those with text and label; columns may be missing in some."""
        rows = list(rows_of(source, self))
        if not rows:
            raise ValueError(f"{source} holds no rows.")
        check_columns(rows, self.columns(labeled))
        if labeled:
            rows = list(accepted_rows(rows, self.columns(labeled)))
        if not skip_empty:
            return rows
        kept = [row for row in rows if not self.is_empty(row)]
        if not kept:
            raise ValueError(f"{source} has {len(rows)} rows, and none with both text and label.")
        if left_out := len(rows) - len(kept):
            logger.info("%s: %d of %d rows have no text or no label and are left out.", source, left_out, len(rows))
        return kept

    def is_published(self, source: Source) -> bool:
        """Whether a file has the name of one of the benchmark's; quotes in those are part of the text."""
        names = [f"{pattern}{ending}" for group in self.files.values() for pattern in group for ending in ("", ".gz")]
        return isinstance(source, FileSource) and any(map(Path(source.path).match, names))

    @property
    def may_read_pairs(self) -> bool:
        """Whether it reads pairs of texts, or reads them if the data has them: no model says which."""
        by_data = not self.is_recorded and self.text_column == "text" and "text_pair_column" in self.options
        return self.text_pair_column is not None or by_data

    @property
    def text_columns(self) -> list[str]:
        """The columns of its texts: one, or two for pairs."""
        return [self.text_column, *([self.text_pair_column] if self.text_pair_column else [])]

    def columns(self, labeled: bool) -> dict[str, str]:
        """The columns to read, with the setting that names each; label columns only for labeled data."""
        found: dict[str, str] = {}
        for option in self.options:
            if option.endswith(("_column", "_columns")) and (labeled or not option.startswith("label_")):
                names = getattr(self, option) or ()
                found |= dict.fromkeys([names] if isinstance(names, str) else names, option)
        return found

    @property
    def has_class_numbers(self) -> bool:
        """Whether classes are numbers in the data files; class names on the Hub are then not used."""
        return False

    def has_label(self, row: DataRow) -> bool:
        return row.has(self.label_column)

    def has_text(self, row: DataRow) -> bool:
        return row.has(self.text_column)

    def is_empty(self, row: DataRow) -> bool:
        """Whether a row of labeled data has no text, or no label."""
        return not (self.has_text(row) and self.has_label(row))

    def infer_columns(self, rows: Sequence[DataRow]) -> Self:
        """The task, with settings inferred from labeled data; ambiguous data is an error."""
        return self

    def examples(self, rows: Sequence[DataRow], labeled: bool) -> list[E]:
        """The examples of a file's rows; error messages name file and row."""
        return [self.example(row, labeled) for row in rows]

    @abstractmethod
    def example(self, row: DataRow, labeled: bool) -> E:
        """The example in a row, see `examples`."""

    def new_examples(self, rows: Sequence[DataRow]) -> list[E]:
        """The examples in rows of new data, which is not prepared for the task."""
        return [self.example(row, labeled=False) for row in rows]

    def training_examples(self, examples: Sequence[E], source: Source) -> Sequence[E]:
        """The training examples that can be trained on, at least one."""
        return examples

    def learned_from(self, examples: Sequence[E]) -> Self:
        """The task, with settings for new data learned from training examples; by default unchanged."""
        return self

    def continues(self, row: DataRow, previous: DataRow) -> bool:
        """Whether a row of new data belongs to the example of the row before it."""
        return False

    @abstractmethod
    def texts_of(self, example: E) -> tuple[str, ...]:
        """The texts of an example."""

    def classes_of(self, example: E) -> tuple[str, ...]:
        """The classes of a labeled example, one for each of its labels; empty if there are no classes."""
        return ()

    def group_of(self, example: E) -> Any:
        """A key shared by examples that must not be separated when data is split: by default their texts."""
        return self.texts_of(example)

    # Classes

    @property
    @abstractmethod
    def objective(self) -> Objective:
        """What the network learns to predict for a sequence or token."""

    @property
    def has_classes(self) -> bool:
        """Whether what it predicts are named classes."""
        return False

    def labels(self, examples: Sequence[E], source: Source) -> Labels | None:
        """The classes of training data; None if the task has none of its own. A single class is a ValueError."""
        return None

    def with_classes(self, labels: Labels | None, checkpoint: Checkpoint | None = None) -> Self:
        """The task, with settings inferred from the classes of a run, or of a fine-tuned model, and its settings."""
        return self

    def named(self, labels: Labels) -> Labels:
        """A model's classes, renamed as in the task's data."""
        return labels

    def with_names(self, examples: Sequence[E], labels: Labels, source: Source) -> Sequence[E]:
        """The examples with the names of the classes, where the data has ids; an unknown class is a ValueError."""
        labels.ids(sorted({name for example in examples for name in self.classes_of(example)}), source)
        return examples

    def check_labels(self, name: str, config: PreTrainedConfig) -> None:
        """Reject (ValueError) a fine-tuned model whose configuration does not identify its classes."""

    def in_order_of(self, name: str, labels: Labels) -> Labels:
        """The classes in the order of a model, folder or Hub name, that was fine-tuned for the same classes."""
        known = self.named(Labels.from_config(Checkpoint(name).config))
        return known if set(known.names) == set(labels.names) else labels

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """Fields of the task for the model's configuration."""
        if labels is None:
            return {}
        return {
            "id2label": dict(enumerate(labels.names)),
            "label2id": {name: number for number, name in enumerate(labels.names)},
        }

    # The model and its inputs

    def load_model(
        self,
        name: str,
        labels: Labels | None,
        changes: NetworkChanges | None = None,
        config: PreTrainedConfig | None = None,  # of a model with random weights, in place of the model's
    ) -> tuple[PreTrainedModel, list[str]]:
        """Load a model with the task's head, or a new head if it has another one; also returns the new parameters."""
        before, changes = Checkpoint(name).config, changes or NetworkChanges()
        check_max_length(self.max_length, name, before)
        config_fields = self.config_fields(labels)
        if keeps_head(before, self.auto_class, changes):
            self.check_labels(name, before)
            if "id2label" in config_fields:
                check_head(name, before, Labels(tuple(config_fields["id2label"].values())))
        return load_with_head(name, before, self.auto_class, config_fields, changes, config)

    def load_finetuned(
        self, checkpoint: Checkpoint, load_graph: Callable[..., OpenVinoModel] | None = None
    ) -> tuple[Any, Labels]:
        """Load a fine-tuned model, or what `load_graph` makes of its folder and configuration, with its classes."""
        name, model = checkpoint.name, load_finetuned(checkpoint, self.auto_class, self.pipeline, load_graph)
        check_max_length(self.max_length, name, model.config)
        self.check_labels(name, model.config)
        labels = self.named(Labels.from_config(model.config))
        outputs = self.config_fields(labels).get("id2label", labels.names)
        if len(outputs) != len(labels.names):
            raise ValueError(
                f"{name} was fine-tuned with {len(labels.names)} labels ({listed(labels.names)}); this task has "
                f"{len(outputs)}."
            )
        return model, labels

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

    def kept_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """The model outputs to keep for a batch, one row per sequence."""
        return tuple(values for name, values in outputs.items() if name.endswith("logits"))

    # Predictions

    @abstractmethod
    def predict(self, outputs: Any, data: TaskData[E], labels: Labels | None) -> list[P]:
        """A prediction for each example from the `network_outputs`: logits of each sequence, possibly padded."""

    def check_answers(self, top_k: int, probabilities: bool) -> None:
        """Check that the task can give such answers, see `answers`."""
        if self.most_listed is not None and top_k > self.most_listed:
            raise ValueError(f"top_k is {top_k}; this task lists at most {self.most_listed}.")
        if probabilities and not self.has_probabilities:
            raise ValueError("probabilities is set, but this task has no class probabilities; leave it out.")

    def answers(
        self, outputs: Any, data: TaskData[E], labels: Labels | None, top_k: int = 1, probabilities: bool = False
    ) -> list[dict[str, Any]]:
        """The answers for users: for each example `label` and `score`, or the fields of the kind of task.

        With `top_k` above 1 so many are listed as `best`; with `probabilities` each class has a `probability_<class>`.
        """
        answers = []
        for prediction, example in zip(self.predict(outputs, data, labels), data.examples, strict=True):
            answer, best = self.answer(prediction, example, top_k)
            if top_k > 1:
                answer |= {"best": best}
            if probabilities:
                table = self.probabilities_of(prediction)
                answer |= {f"probability_{name}": rounded(value) for name, value in table.items()}
            answers.append(answer)
        return answers

    def answer(self, prediction: P, example: E, top_k: int) -> tuple[dict[str, Any], list[Any]]:
        """The answer for an example, and the `top_k` best ones, see `answers`."""
        raise NotImplementedError

    def counted_labels(self, answer: Mapping[str, Any]) -> Sequence[str]:
        """The labels that a summary of answers counts in one of `answers`, "" for none; by default nothing."""
        return ()

    def probabilities_of(self, prediction: P) -> Mapping[str, float]:
        """The probability of each class in a prediction, if the task has them."""
        raise NotImplementedError

    @abstractmethod
    def score(self, predictions: Sequence[P], examples: Sequence[E]) -> dict[str, float]:
        """Metrics of predictions for labeled examples."""

    def weighted_metrics(self, predictions: Sequence[P], examples: Sequence[E]) -> WeightedMetrics:
        """The metrics of `score` for resamples of the examples; by default the means of those of each example."""
        scores = [self.score_of_one(*pair) for pair in zip(predictions, examples, strict=True)]
        names = dict.fromkeys(name for row in scores for name in row)
        columns = {name: [row.get(name, np.nan) for row in scores] for name in names}
        return lambda weights: {name: weighted_mean(values, weights) for name, values in columns.items()}

    def score_of_one(self, prediction: P, example: E) -> dict[str, float]:
        """The metrics of one example that are means over the examples."""
        return self.score([prediction], [example])

    def calibration(
        self, predictions: Sequence[P], examples: Sequence[E], fitted_to_them: bool = False
    ) -> dict[str, float]:
        """The `expected_calibration_error` of predictions, and metrics of a `confidence_threshold`, if there is one.

        It is empty without label probabilities.
        With `fitted_to_them`, raw predictions are calibrated by cross-fitting, each part by the others.
        """
        return {}

    def constant_scores(self, examples: Sequence[E]) -> dict[str, float]:
        """Scores of always predicting the most frequent label (`majority_...`) or the mean (`mean_value_...`)."""
        return {}

    def report_by_class(self, predictions: Sequence[P], examples: Sequence[E]) -> ClassReport | None:
        """The report by class for labeled examples; None if there are no classes."""
        return None

    @abstractmethod
    def gold_prediction(self, example: E) -> P:
        """The correct prediction for a labeled example."""

    @abstractmethod
    def as_text(self, prediction: P) -> str:
        """What is predicted, in one line."""

    def fitted_as(self, other: Task[Any, Any]) -> Self:
        """The task, with the settings that were fitted to the predictions of another."""
        return replace(self, **{name: getattr(other, name) for name in self.fitted_fields})

    def calibrated(self, predictions: Sequence[P], examples: Sequence[E]) -> Self:
        """The task with settings fitted to predictions for validation data; by default unchanged."""
        return self

    def cross_fitted(self, predictions: Sequence[P], examples: Sequence[E]) -> Sequence[P]:
        """Predictions for validation data, each by settings that are fitted to the others; by default unchanged.

        Unlike those of `calibrated`, their metrics are not optimistic.
        """
        return predictions

    # Files of predictions

    def errors(self, prediction: P, example: E) -> Iterator[tuple[Any, dict[str, Any]]]:
        """What is wrong in a prediction: how sure or bad each error is, for sorting, and its columns in a table."""
        raise NotImplementedError

    def write_errors(self, predictions: Sequence[P], data: TaskData[E], path: Path) -> None:
        """Write a table of the errors in predictions, the surest first, each with its source and row there."""
        found = [
            (rank, columns | dict(zip(PLACE_COLUMNS, (data.source, example.row), strict=True)))
            for prediction, example in zip(predictions, data.examples, strict=True)
            for rank, columns in self.errors(prediction, example)
        ]
        found.sort(key=itemgetter(0), reverse=True)
        names = list(found[0][1]) if found else PLACE_COLUMNS
        write_separated(path, [names, *([str(columns[name]) for name in names] for _, columns in found)])

    def write_predictions(
        self, predictions: Sequence[P], examples: Sequence[E], folder: Path, suffix: str = ""
    ) -> None:
        """Write predictions in the benchmark's format: `predictions<suffix>`, with the ending of the format.

        By default a table: index, prediction and scores, see `table`.
        """
        classes, rows = self.table(predictions, examples)
        names = ["index", "prediction"]
        names += [new_name(name, {*names, *classes}) if name in names else name for name in classes]
        numbered = [[str(index), *row] for index, row in enumerate(rows)]
        write_separated(folder / f"predictions{suffix}{self.table_ending}", [names, *numbered])

    def table(self, predictions: Sequence[P], examples: Sequence[E]) -> tuple[Sequence[str], list[list[str]]]:
        """The classes that have a score, and each prediction followed by their scores, as text."""
        raise NotImplementedError

    def read_predictions(self, path: Path, examples: Sequence[E]) -> list[P]:
        """Read a file written by `write_predictions`, or by another tool in the same format."""
        rows = read_prediction_rows(path, len(examples))
        return [self.read_prediction(row, example) for row, example in zip(rows, examples, strict=True)]

    def read_prediction(self, row: DataRow, example: E) -> P:
        """The prediction in a row of such a table, in the column `prediction`."""
        raise NotImplementedError

    # The model card

    def pipeline_call(self, example: E) -> PipelineCall:
        """The pipeline call on the card for an example."""
        raise NotImplementedError

    def card_examples(
        self,
        examples: Sequence[E],
        model_dir: str | Path,
        model: PreTrainedModel | None,
        tokenizer: PreTrainedTokenizerBase,
    ) -> list[Example]:
        """Run the model in a folder, given as `model` if it is already loaded, on examples for its card."""
        return run_pipelines([self.pipeline_call(example) for example in examples], model_dir, model, tokenizer)


_FOR_THE_LOSS = (*LABEL_ARGUMENTS, WINDOW_WEIGHT)


def network_outputs(
    task: Task,
    data: TaskData,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int | None = None,  # sequences; None to choose it for the device
    shared: bool = False,  # whether the processes of a run divide the work; each returns all results
    progress: bool = False,
) -> Any:
    """Run data through a model in eval mode: an array for each sequence, the input of `Task.predict`."""
    unlabeled = {name: values for name, values in data.inputs.items() if name not in _FOR_THE_LOSS}
    rows: Any = replace(data, inputs=unlabeled)

    def tokens(row: dict[str, Any]) -> int:  # over all choices
        return sum(map(len, sequences_of(row["input_ids"] if "input_ids" in row else next(iter(row.values())))))

    def keep(outputs: Any, batch: Mapping[str, Any], rows: object) -> Any:
        kept = [values.float().cpu().numpy() for values in task.kept_outputs(outputs, batch)]
        if any(np.isnan(values).any() for values in kept):
            raise ValueError(f"The model computes NaN for {data.source}; expected numbers. Are its weights damaged?")
        return zip(*kept, strict=True)

    collate = task.collator(tokenizer, model)
    found = run_sorted(model, rows, collate, keep, batch_size, tokens, shared, progress)
    columns = [list(column) for column in zip(*found, strict=True)]
    # A tuple of such lists for several outputs.
    return columns[0] if len(columns) == 1 else tuple(columns)


def sequences_of(ids: Sequence[Any]) -> list[Any]:
    """The sequences in a value of `TaskData.inputs`: itself, or those of several choices."""
    return list(ids) if len(ids) and isinstance(ids[0], (list, tuple)) else [ids]


def label_count_line(task: Task, counts: Counter[str], rows: int) -> str:
    """How often each label was predicted in so many rows, the most frequent ones first; "" if none was counted."""
    shown = counts.most_common(_SHOWN_LABELS)
    parts = [
        f"{name or 'no label'} {count:,}{f' ({count / rows:.1%})' if task.labels_rows else ''}"
        for name, count in shown
    ]
    if others := counts.total() - sum(count for _, count in shown):
        parts.append(f"others {others:,}")
    return f"Labels: {', '.join(parts)}." if parts else ""


def long_text_lines(task: Task, examples: int, cut: int, windowed: int) -> list[str]:
    """Messages about texts longer than the model's input, of which so many were truncated or read in windows."""
    advice = " (--window_pooling mean reads them whole)" if "window_pooling" in task.options else ""
    counts = {f"truncated{advice}": cut, "read in windows": windowed}
    longer = f"longer than {task.max_length} tokens"
    return [
        f"{count:,} of {examples:,} texts {'is' if count == 1 else 'are'} {longer}: {done}."
        for done, count in counts.items()
        if count
    ]
