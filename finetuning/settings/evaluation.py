"""The settings of `mybert evaluate` and `mybert compare`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from ...files.checkpoint import Checkpoint, check_available
from ...files.choices import choice
from ...files.errors import SettingError
from ...files.options import AT_LEAST_1, Group, option
from ...files.settings import Parts, by_keywords
from ...files.source import source_of, sources_of
from ...files.text import STDIN
from ..tasks.task_names import BENCHMARKS
from .parts import (
    MODEL_HELP,
    Device,
    FinetunedModelSettings,
    LabelSettings,
    ModelsTask,
    TaskArguments,
    TaskChoice,
    TaskInference,
    check_model,
)

if TYPE_CHECKING:
    from ..tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class ByModel(TaskInference):
    """Predictions that a model makes."""

    group = Group.INPUT
    model: str | None = option(None, MODEL_HELP, required="predictions", reads="model")
    predictions_dir: str | None = option(None, "Folder to write the model's predictions to.", writes=True)


@dataclass(frozen=True, kw_only=True)
class InFile:
    """Predictions that a file holds."""

    why: ClassVar[str] = "which need no model"
    lacks: ClassVar[tuple[str, ...]] = ("confidence_threshold",)
    predictions: str | None = option(
        None,
        "Predictions for the data in the benchmark's format, instead of a model.",
        group=Group.INPUT,
        reads="file",
    )


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(FinetunedModelSettings):
    """Settings of `evaluate_model`; in Python, `data` may also be in memory, as in `finetune`.

    Raises:
        ValueError: If a setting is missing or out of range.
        OSError: If the model folder does not exist.
    """

    group = Group.INPUT
    inference: ByModel | InFile = choice(ByModel)  # type: ignore[assignment]  # a file of predictions needs none
    targets: LabelSettings = field(default_factory=LabelSettings)
    data: list[str] = option(
        [],
        "Task data with labels; several files are reported separately.",
        required=True,
        positional=1,
        reads="examples",
    )
    output: str = option(STDIN, "JSON file to write the metrics to; - prints them.", comes_last=True, writes=True)
    report_dir: str | None = option(
        None,
        "Folder to write reports to: wrong predictions, the surest first; by class precision, recall, F1 and "
        "confusion matrix.",
        writes=True,
    )
    overwrite: bool = option(False, "Replace files written by an earlier call.", comes_last=True)

    @classmethod
    def of_training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Settings from a fine-tuning's settings file; the data is its validation data, or else its test data."""
        data = settings.get("validation_file") or settings.get("test_file")
        name = settings.get("task") or TaskArguments.task
        if not data and name in BENCHMARKS and (folder := settings.get("data_dir")):
            from ..tasks.registry import TASKS, benchmark_files

            data = benchmark_files(folder, TASKS[name], "validation")
        return super().of_training(settings) | ({"data": data} if data else {})

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option: data is files, or in memory with a name."""
        given = super().read(given)
        return given | ({"data": sources_of(given["data"], "data")} if "data" in given else {})

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at files."""
        if self.predictions and len(self.data) > 1:
            raise SettingError.worded("{predictions} belong to one data file; expected one file in {data}.")
        super().check()


@dataclass(frozen=True, kw_only=True)
class CompareSettings(TaskChoice, Parts):
    """Settings of `compare_files`; in Python, `data` may also be in memory, as in `finetune`.

    Raises:
        ValueError: If a setting is missing or out of range.
        OSError: If a model does not exist.
    """

    group = Group.INPUT
    device: Device = field(default_factory=Device)
    inference: TaskInference = field(default_factory=TaskInference)
    reading: ModelsTask = field(default_factory=ModelsTask)
    targets: LabelSettings = field(default_factory=LabelSettings)
    models: list[str] = option(
        [],
        "The two to compare: fine-tuned models (folders or Hub names), or files of predictions in the benchmark's "
        "format.",
        required=True,
        positional=1,
    )
    data: list[str] = option([], "Task data with labels, one file.", required=True, reads="examples")
    output: str | None = option(
        None,
        "Table (.tsv, .csv) to write, of the rows that the two predict differently.",
        comes_last=True,
        writes=True,
    )
    report: str | None = option(None, "JSON file for the report.", comes_last=True, writes=True)
    overwrite: bool = option(False, "Replace files written by an earlier call.", comes_last=True)
    num_resamples: int = option(
        2000, "Bootstrap resamples of the rows, which the intervals come from.", AT_LEAST_1, group=Group.MEASUREMENT
    )

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option: data is a file, or in memory with a name."""
        given = super().read(given)
        data = source_of(given.get("data"), "data")
        return given | {"data": [data] if data else []}

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at the data."""
        super().check()
        if len(self.models) != 2:
            raise SettingError("models", self.models, "two, each a model or a file of predictions")
        if self.output and Path(self.output).suffix.lower() not in (".tsv", ".csv"):
            raise SettingError("output", self.output, "a name that ends in .tsv or .csv")
        checkpoints = [each for each in self.checkpoints if each]
        if self.task is None and not checkpoints:
            raise SettingError.worded("{task} is not set; expected the task of the two files of predictions.")
        for checkpoint in checkpoints:
            check_model(checkpoint, self.engine, self.dtype)
        if all(checkpoint.path.is_dir() for checkpoint in checkpoints):
            self.tasks  # noqa: B018 - resolves them
        elif self.task is not None:  # the task of a model on the Hub is read when it is loaded
            self._given_settings(self.task)

    @cached_property
    def checkpoints(self) -> list[Checkpoint | None]:
        """The two models; None for a file of predictions."""
        return [None if Path(name).is_file() else Checkpoint(name) for name in self.models]

    @cached_property
    def tasks(self) -> "list[Task]":
        """The task of each: a model's own, unless another is named; a file's is the other one's, with its defaults."""
        from ..tasks.registry import TASKS, task_of_model

        if self.task is not None:
            self._given_settings(self.task)  # reports errors without loading a model
        for checkpoint in filter(None, self.checkpoints):
            check_available(checkpoint.name)
        own = [each and task_of_model(each, self.task) for each in self.checkpoints]
        name = next((each[0] for each in own if each), str(self.task))
        chosen = [each or (name, TASKS[name]) for each in own]
        return [replace(task, **self._given_settings(name)) for name, task in chosen]


EvaluateArguments = by_keywords(EvaluateSettings)
CompareArguments = by_keywords(CompareSettings)
