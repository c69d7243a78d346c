"""A fine-tuned model that predicts rows, for `predict` and for the workers of a cluster's engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain
from pathlib import Path
from typing import Any
from uuid import uuid4

from accelerate import PartialState

from ...files.frames import rows_of_batch, with_columns
from ...files.options import AT_LEAST_1, Group, option
from ..data.rows import DataRow, check_columns, new_name
from ..tasks.inference import network_outputs
from ..tasks.task_arguments import FinetunedModelArguments, TaskArguments
from .finetuned_model import FinetunedModel, load_finetuned_model
from .prediction_rows import task_for_columns

ROWS_OF_A_PART = 1024
"""Number of rows tokenized and sorted by length together."""


@dataclass
class PredictorSettings(FinetunedModelArguments):
    """Settings of a `Predictor`, in addition to those of the task."""

    group = Group.ANSWERS
    top_k: int = option(
        1, "How many labels or answers to list for each row, the best first.", AT_LEAST_1, decides=True
    )
    probabilities: bool = option(False, "Add the probability of every class.", decides=True)
    keep_columns: list[str] | None = option(
        None, "Columns of the data to keep in the output (default: all).", group=Group.INPUT, decides=True
    )

    def __post_init__(self) -> None:
        if not self.model:
            raise ValueError("model is not set; expected a fine-tuned model, folder or Hub name.")
        super().__post_init__()


class Predictor:
    """A fine-tuned model that predicts batches of rows, on one machine or on the workers of an engine.

        dataset.map_batches(Predictor, fn_constructor_args=["my-sst2"], compute=ActorPoolStrategy(size=8))  # Ray Data
        frame.mapInPandas(Predictor("my-sst2"), schema)  # Spark

    It says what `mybert.predict` says. A batch is worked on in parts of 1,024 rows, as `predict` does; which rows
    stand together in a part may move a score by one in its last digit, and documents end there (a column `document`,
    for a tagger of `max_document_context`). The columns of the first batch decide which are
    read. A pickle of it has the settings; the model is loaded when the first batch comes, once in each process,
    however often an engine sends it there.

    Args:
        model: Folder, under a path valid on every machine, or Hub name.
        **settings: Other fields of `PredictorSettings`: `top_k`, `probabilities`, `keep_columns`, `dtype`, ...

    Attributes:
        task: The task.
        cut, windowed: Number of rows beyond the maximum length that were truncated, or read in windows.

    Raises:
        ValueError: If a setting is out of range or not one of the task's, or the model has no head for a task.
        OSError: If the model does not exist.
        TypeError: If a setting does not exist.
    """

    def __init__(self, model: str | Path, **settings: Any) -> None:
        self.settings = PredictorSettings(model=str(model), **settings)
        self.task = self.settings.resolve_task()
        self.task.check_answers(self.settings.top_k, self.settings.probabilities)
        self.cut = self.windowed = 0
        self._key = uuid4().hex
        self._is_settled = False
        self._found: FinetunedModel | None = None

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return _in_this_process, (type(self), self._key, vars(self.settings))

    def settle(self, first: DataRow) -> None:
        """Choose the columns of the data; finds errors common to all rows before anything is loaded.

        Args:
            first: Its first row.

        Raises:
            ValueError: If the row does not fit the model, or lacks a column to keep.
        """
        given = [item.name for item in fields(TaskArguments) if getattr(self.settings, item.name) is not None]
        task = task_for_columns(self.task, first, given)
        check_columns([first], task.columns(labelled=False))
        task.new_examples([first])
        for name in self.settings.keep_columns or ():
            first.value(name)
        self.task, self._is_settled = task, True

    def load(self) -> FinetunedModel:
        """The model, loaded on first access; from then on its record determines the task."""
        if self._found is None:
            assert self.settings.model
            device = PartialState(cpu=self.settings.use_cpu).device
            self._found = load_finetuned_model(self.task, self.settings.model, device, self.settings.dtype)
            self.task = self._found.task
        return self._found

    def answers(self, rows: Sequence[DataRow]) -> list[dict[str, Any]]:
        """Predictions for one or more rows, which are tokenized and sorted by length together.

        Raises:
            ValueError: If a row does not fit the model.
        """
        found, settings = self.load(), self.settings
        examples = found.task.new_examples(rows)
        encoded = [found.task.encode(examples, found.labels, found.tokenizer, rows[0].source)]
        (data,) = found.task.complete(encoded, found.tokenizer)
        self.cut += encoded[0].cut
        self.windowed += encoded[0].windowed
        outputs = network_outputs(found.task, data, found.model, found.tokenizer, settings.batch_size)
        return found.task.answers(outputs, data, found.labels, settings.top_k, settings.probabilities)

    def __call__(self, batch: Any) -> Any:
        """Predict a batch, or the batches of an iterator.

        Args:
            batch: Column -> values (a dictionary of NumPy arrays or lists), a `pandas.DataFrame` or a `pyarrow.Table`;
                or an iterator of these.

        Returns:
            The same kind of batch, with the columns of the data (`keep_columns`) and those of `predict`; for an
            iterator an iterator, without empty batches.

        Raises:
            ValueError: If the batch is of another kind, or does not fit the model.
        """
        if isinstance(batch, Iterator):
            return (self(part) for part in batch if len(part))
        rows = [DataRow(values, "The batch", number) for number, values in enumerate(rows_of_batch(batch), start=1)]
        if not rows:
            return batch
        if not self._is_settled:
            self.settle(rows[0])
        starts = range(0, len(rows), ROWS_OF_A_PART)
        answers = [answer for start in starts for answer in self.answers(rows[start : start + ROWS_OF_A_PART])]
        kept = self.kept_columns(rows[0])
        told = dict.fromkeys(chain.from_iterable(answers))
        columns = {new_name(name, kept): [answer.get(name) for answer in answers] for name in told}
        return with_columns(batch, kept, columns)

    def kept_columns(self, row: DataRow) -> Sequence[str]:
        """The columns of a row that are kept."""
        return list(row.values) if self.settings.keep_columns is None else self.settings.keep_columns


_copies: dict[str, Predictor] = {}


def _in_this_process(kind: type[Predictor], key: str, settings: dict[str, Any]) -> Predictor:
    """The predictor with this key in this process, or a new one that replaces the previous one."""
    if key not in _copies:
        _copies.clear()
        _copies[key] = kind(**settings)
    return _copies[key]
