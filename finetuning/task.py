"""What every task is: from rows to examples, to the network's inputs, and back to predictions, scores and files.

    read -> examples -> encode -> TaskData -> (network) -> predict -> predictions -> score, write_predictions

A kind of task (classification, tagging, ...) is a subclass; a task is an instance in `TASKS`.
"""

from __future__ import annotations

import logging
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch.utils.data import Dataset
from transformers import (
    AutoConfig,
    DataCollatorWithPadding,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import logging as hf_logging

from ..modeling_mybert import MyBertConfig
from .bilstm import MyBertBiLstmConfig
from .sources import Row, Source, read_rows

logger = logging.getLogger(__name__)

E = TypeVar("E")  # an example, as it stands in the data
P = TypeVar("P")  # a prediction for an example

# Parts of a trunk that a checkpoint may well lack.
_OPTIONAL = ("pooler.", "bilstm.", "position_ids")
# What `Trainer` keeps of the outputs are predictions, whatever else a checkpoint was set to give.
_LOGITS_ONLY = {"output_hidden_states": False, "output_attentions": False}
_WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0+$")  # as tables write a column of numbers with gaps


@dataclass(frozen=True)
class Labels:
    """The classes of a task, in the order of their ids."""

    names: tuple[str, ...]

    @classmethod
    def from_data(cls, values: Sequence[str], source: Source) -> Labels:
        """Find the classes of training data: numbers in their order, names in alphabetical order.

        Raises:
            ValueError: If there is only one class.
        """
        names = sorted(set(values), key=_natural_order)
        if len(names) < 2:
            raise ValueError(f"{source} has one class only ({', '.join(map(repr, names))}); expected at least two.")
        return cls(tuple(names))

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> Labels:
        """The classes that a fine-tuned model knows; those without a name (LABEL_0) are called by their number."""
        names = [config.id2label[number] for number in range(config.num_labels)]
        return cls(tuple(name.removeprefix("LABEL_") for name in names))

    def ids(self, values: Sequence[str], source: Source) -> list[int]:
        """Ids of labels, which are given by name, or by number where the names are no numbers.

        Raises:
            ValueError: If a label is not one of the classes.
        """
        index = {name: number for number, name in enumerate(self.names)}
        by_number = {str(number): number for number in range(len(self.names))}
        unknown = sorted({value for value in values if value not in index}, key=_natural_order)
        if unknown and not index.keys() & by_number.keys() and set(values) <= by_number.keys():
            return [by_number[value] for value in values]
        if unknown:
            known = ", ".join(map(repr, self.names))
            raise ValueError(f"{source} has labels that the training data lacks: {unknown[0]!r}; known are {known}.")
        return [index[value] for value in values]


@dataclass(frozen=True)
class TaskData(Dataset, Generic[E]):
    """What the network reads of a file, with the examples that it was made from.

    Attributes:
        examples: The examples of the file.
        inputs: Model argument -> a value for each sequence; some tasks make several sequences of an example.
        layout: How sequences and tokens belong to examples; what it holds is the kind of task's own affair.
        source: Where the examples come from.
    """

    examples: Sequence[E]
    inputs: Mapping[str, Sequence[Any]]
    source: Source
    layout: Any = None

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        """Model arguments of a sequence."""
        return {name: values[index] for name, values in self.inputs.items()}


@dataclass(frozen=True, kw_only=True)
class Task(ABC, Generic[E, P]):
    """A task; the fields that a user may set are flags of the same name.

    Attributes:
        main_metric: The metric that decides which checkpoint is best.
        max_length: Longest sequence, in tokens.
        encoding: Encoding of the files.
        text_column: Column of the text.
        label_column: Column of what is to be predicted.
        file_columns: Names of the columns of files without header.
        skip_broken_rows: Whether rows of a wrong length are left out of a published file.
        files: Split -> names of its files in the folder of the benchmark; patterns, the first match counts.
        evaluations: Names for several validation (or test) files, in their order.
        hub: Field -> value for the same data on the Hub, where columns and classes have other names.
        defaults: Settings of training where the user gives none.
    """

    main_metric: str
    max_length: int = 128
    encoding: str = "utf-8"
    text_column: str = "text"
    label_column: str = "label"
    file_columns: tuple[str, ...] | None = None
    skip_broken_rows: bool = False
    files: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    evaluations: tuple[str, ...] = ()
    hub: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    options: ClassVar[tuple[str, ...]] = ("max_length", "encoding", "text_column", "label_column")
    """The fields that a user may set."""
    auto_class: ClassVar[Any]
    """transformers' Auto class of the head."""
    pipeline: ClassVar[str]
    """The task's name at the Hub and in `transformers.pipeline`."""
    reads_conll: ClassVar[bool] = False

    def read(self, source: Source, labelled: bool = True) -> list[E]:
        """Read the examples of a file.

        Args:
            source: The file or data set.
            labelled: Whether there must be labels; otherwise they are read if they are there.

        Raises:
            OSError: If it cannot be read.
            ValueError: If a column is missing or a value is not what it should be; the message names file and row.
        """
        rows = read_rows(
            *(source, self.file_columns, self.encoding, self.skip_broken_rows, self.reads_conll),
            class_names=not self.has_class_numbers,
        )
        labelled = labelled or self.has_label(rows[0])
        return self.examples(rows, labelled)

    @property
    def has_class_numbers(self) -> bool:
        """Whether the data's files have numbers for classes; names that the Hub has for them are not used."""
        return False

    def has_label(self, row: Row) -> bool:
        """Whether a row has a label."""
        return row.has(self.label_column)

    def examples(self, rows: Sequence[Row], labelled: bool) -> list[E]:
        """The examples of a file's rows, see `read`."""
        return [self.example(row, labelled) for row in rows]

    @abstractmethod
    def example(self, row: Row, labelled: bool) -> E:
        """The example in a row, see `read`."""

    def labels(self, examples: Sequence[E], source: Source) -> Labels | None:
        """The classes of training data; None where the task has no classes of its own.

        Raises:
            ValueError: If there is only one class.
        """
        return None

    def training_examples(self, examples: Sequence[E], source: Source) -> Sequence[E]:
        """Those of the training data's examples that something can be learnt from.

        Raises:
            ValueError: If there are none.
        """
        return examples

    @abstractmethod
    def encode(
        self, examples: Sequence[E], labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[E]:
        """Tokenize examples.

        Raises:
            ValueError: If a label is not one of `labels`.
        """

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Any:
        """What makes batches."""
        return DataCollatorWithPadding(tokenizer)

    def forward_options(self, model: PreTrainedModel) -> dict[str, Any]:
        """Arguments of the model's `forward` beside the batch, in training and evaluation.

        Args:
            model: The model that is trained.
        """
        return {}

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """What the model's configuration says of the task."""
        if labels is None:
            return {}
        return {
            "id2label": dict(enumerate(labels.names)),
            "label2id": {name: number for number, name in enumerate(labels.names)},
        }

    @abstractmethod
    def predict(self, outputs: Any, data: TaskData[E], labels: Labels | None) -> list[P]:
        """Predictions from the network's outputs.

        Args:
            outputs: Arrays of logits as `Trainer.predict` gives them: a row a sequence, padded with -100.
            data: What the network read.
            labels: The classes.

        Returns:
            A prediction for each example.
        """

    @abstractmethod
    def score(self, predictions: Sequence[P], examples: Sequence[E]) -> dict[str, float]:
        """Metrics of predictions for labelled examples."""

    @abstractmethod
    def right_prediction(self, example: E) -> P:
        """The prediction that agrees with a labelled example."""

    def adapted(self, metrics: Mapping[str, float]) -> Task[E, P]:
        """The task with what the metrics of the validation data have shown to be best; here the task as it is."""
        return self

    @abstractmethod
    def write_predictions(
        self, predictions: Sequence[P], examples: Sequence[E], folder: Path, suffix: str = ""
    ) -> None:
        """Write predictions in the benchmark's format.

        Args:
            predictions: The predictions.
            examples: Their examples.
            folder: Where to; the file is called `predictions` with an ending for the format.
            suffix: Stands behind `predictions` in the name.
        """

    @abstractmethod
    def read_predictions(self, path: Path, examples: Sequence[E]) -> list[P]:
        """Read a file that `write_predictions` wrote, or another tool in the same format.

        Raises:
            OSError: If the file cannot be read.
            ValueError: If it is not of this format, or does not fit the examples.
        """

    @abstractmethod
    def snippet(self, example: E, model: str) -> tuple[str, str]:
        """Title and code of an example for the card: a pipeline with the model, run on an example of the data."""

    def load_model(
        self,
        name: str,
        labels: Labels | None,
        new_head: bool = False,
        from_scratch: bool = False,
        bilstm: bool = False,
        keep_model_type: bool = False,
    ) -> tuple[PreTrainedModel, list[str]]:
        """Load a model and give it the task's head, a fresh one if it has another.

        Args:
            name: Folder or Hub name.
            labels: The classes.
            new_head: Whether to make a fresh head even where there is a fitting one.
            from_scratch: Whether to make a model of the same configuration with random weights.
            bilstm: Whether to put a BiLSTM between encoder and head.
            keep_model_type: See `read_config`.

        Returns:
            The model, in fp32 whatever the checkpoint has (half precision rounds small steps away), and the names of
            the parameters that begin with random values.

        Raises:
            ValueError: If the model's head is one for other classes, or it cannot read `max_length` tokens.
            OSError: If there is no such model.
        """
        before = AutoConfig.from_pretrained(name)
        if bilstm and before.model_type not in ("bert", "mybert", MyBertBiLstmConfig.model_type):
            raise ValueError(f"{name} is of type {before.model_type}; a BiLSTM goes on top of bert and mybert only.")
        check_length(self.max_length, name, before)
        fields = self.config_fields(labels) | _LOGITS_ONLY | {"dtype": torch.float32}
        if bilstm:
            config: PreTrainedConfig = MyBertBiLstmConfig.from_pretrained(name, **fields)
        else:
            config = read_config(name, keep_model_type, **fields)
        if from_scratch:
            model = self.auto_class.from_config(config)
            return model, [key for key, _ in model.named_parameters()]
        names = fields.get("id2label", {})
        if names and not new_head:
            _check_head(name, before, self.auto_class, Labels(tuple(names.values())))
        with only_errors():
            model, loaded = self.auto_class.from_pretrained(
                name, config=config, output_loading_info=True, ignore_mismatched_sizes=True
            )
        new = {*loaded["missing_keys"], *(key[0] for key in loaded["mismatched_keys"])}
        trunk = sorted(
            key
            for key in new
            if key.startswith(f"{model.base_model_prefix}.") and not any(part in key for part in _OPTIONAL)
        )
        if trunk:
            logger.warning("%s lacks %d weights of the encoder, such as %s.", name, len(trunk), trunk[0])
        if new_head:
            new |= set(reset_head(model))
        elif _has_other_head(before, self.auto_class) and not new.issuperset(_head_parameters(model)):
            new |= set(reinitialize(model, _head(model)))  # the other's layers have the same names and sizes
        return model, sorted(new)

    def load_finetuned(self, name: str) -> tuple[PreTrainedModel, Labels]:
        """Load a fine-tuned model with its classes.

        Raises:
            ValueError: If the model has no head for the task, or cannot read `max_length` tokens.
            OSError: If there is no such model.
        """
        config = read_config(name, **_LOGITS_ONLY)
        if _has_other_head(config, self.auto_class):
            raise ValueError(
                f"{name} has no head for this task (it is a {config.architectures[0]}); expected a model that was "
                f"fine-tuned for {self.pipeline}."
            )
        with only_errors():
            model, loaded = self.auto_class.from_pretrained(name, config=config, output_loading_info=True)
        head = sorted(key for key in loaded["missing_keys"] if not key.startswith(f"{model.base_model_prefix}."))
        if head:
            raise ValueError(
                f"{name} has no head for this task (it lacks {', '.join(head)}); expected a model that was fine-tuned "
                f"as {type(model).__name__}."
            )
        check_length(self.max_length, name, model.config)
        labels = self.named(Labels.from_config(model.config))
        outputs = self.config_fields(labels).get("id2label", labels.names)
        if len(outputs) != len(labels.names):
            raise ValueError(
                f"{name} was fine-tuned with {len(labels.names)} labels ({_listing(labels.names)}); this task has "
                f"{len(outputs)}."
            )
        return model, labels

    def in_order_of(self, name: str, labels: Labels) -> Labels:
        """The classes in the order in which a model knows them that was fine-tuned for the same.

        Args:
            name: Folder or Hub name of the model.
            labels: The classes.

        Raises:
            OSError: If there is no such model.
        """
        known = self.named(Labels.from_config(AutoConfig.from_pretrained(name)))
        return known if set(known.names) == set(labels.names) else labels

    def named(self, labels: Labels) -> Labels:
        """A model's classes under the names that the task's data has for them."""
        return labels


def check_model_name(name: str) -> None:
    """Check that a path is a folder; "name" and "owner/name" may be on the Hub.

    Raises:
        FileNotFoundError: If it is none.
    """
    path = Path(name)
    if not path.is_dir() and (path.is_absolute() or name.startswith(".") or len(path.parts) > 2):
        raise FileNotFoundError(f"There is no model folder {name}.")


def read_config(name: str, keep_model_type: bool = False, **fields: Any) -> PreTrainedConfig:
    """Read a model's configuration; a checkpoint of type `bert` becomes one of MyBERT, which is faster.

    Args:
        name: Folder or Hub name.
        keep_model_type: Whether `bert` stays with transformers' own class.
        **fields: Fields to set.

    Raises:
        ValueError: If it asks for what MyBERT does not compute.
        OSError: If there is no such model.
    """
    config = AutoConfig.from_pretrained(name, **fields)
    if config.model_type == "bert" and not keep_model_type:
        return MyBertConfig.from_pretrained(name, **fields)
    return config


def check_length(max_length: int, name: str, config: PreTrainedConfig) -> None:
    """Check that a model can read sequences of a length.

    Raises:
        ValueError: If it cannot.
    """
    longest = getattr(config, "max_position_embeddings", max_length)
    if max_length > longest:
        raise ValueError(f"max_length is {max_length}; {name} reads at most {longest} tokens.")


@contextmanager
def only_errors() -> Any:
    """Keep transformers' report on every weight of the heads out; what matters of it is said by the caller."""
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)


def reset_head(model: PreTrainedModel) -> list[str]:
    """Initialise the head of a model anew, the pooler included.

    Returns:
        Names of the parameters.
    """
    return reinitialize(model, [*_head(model), *filter(None, [getattr(model.base_model, "pooler", None)])])


def _head(model: PreTrainedModel) -> list[Any]:
    """The modules on top of a model's encoder."""
    return [module for name, module in model.named_children() if name != model.base_model_prefix]


def _head_parameters(model: PreTrainedModel) -> list[str]:
    return [name for name, _ in model.named_parameters() if not name.startswith(f"{model.base_model_prefix}.")]


def reinitialize(model: PreTrainedModel, modules: Sequence[Any]) -> list[str]:
    """Give modules of a model fresh random weights, as the model's class initialises them.

    Args:
        model: The model.
        modules: Some of its modules.

    Returns:
        Names of the parameters.
    """
    for module in modules:
        for part in module.modules():
            part._is_hf_initialized = False  # marks of from_pretrained, which would protect what was loaded
        for parameter in module.parameters():
            parameter._is_hf_initialized = False
        module.apply(model._init_weights)
    fresh = {id(parameter) for module in modules for parameter in module.parameters()}
    return [name for name, parameter in model.named_parameters() if id(parameter) in fresh]


def _heads(config: PreTrainedConfig) -> set[str]:
    """The heads that a checkpoint has, by what its classes' names say behind "For"; "" for none."""
    return {name.partition("For")[2] for name in config.architectures or []}


def _has_other_head(config: PreTrainedConfig, auto_class: Any) -> bool:
    own = auto_class.__name__.partition("For")[2]
    return bool(own) and not _heads(config) <= {own, ""}


def _check_head(name: str, config: PreTrainedConfig, auto_class: Any, labels: Labels) -> None:
    """Refuse to throw away a head that was fine-tuned for other classes."""
    if auto_class.__name__.partition("For")[2] not in _heads(config):
        return
    known = Labels.from_config(config)
    if len(known.names) != len(labels.names):
        raise ValueError(
            f"{name} was fine-tuned with {len(known.names)} labels ({_listing(known.names)}); the data has "
            f"{len(labels.names)} ({_listing(labels.names)}): pass --new_head True to give it a new head."
        )
    if set(known.names) != set(labels.names) and not all(label.startswith("LABEL_") for label in known.names):
        logger.warning(
            "%s was fine-tuned with the labels %s; its head is trained on for %s.",
            name,
            _listing(known.names),
            _listing(labels.names),
        )


def _listing(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", ..." if len(names) > 5 else "")


def _natural_order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)  # "nan" has no place among numbers


def label_name(value: Any) -> str:
    """A label as text; whole numbers are the same label however they are written (1, 1.0, "1", "1.0")."""
    text = str(int(value)) if isinstance(value, bool) else str(value).strip()
    return _WHOLE_NUMBER.sub(r"\1", text)
