"""Settings shared by all commands on task data: the task and its data."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from transformers import PreTrainedConfig

from ...files import Checkpoint, check_available
from ...files.options import AT_LEAST_1, Group, Range, check_options, option
from ...files.source import GivenData
from ...runs import started_on_cpus
from ..data.rows import DataSource, HubSplit
from ..network.heads import longest_sequence
from .registry import TASKS, recorded_task, task_of_model
from .task import Task

LENGTH = Range("at least 3: [CLS], [SEP] and some text", lambda value: value >= 3)
BATCH_SIZE_HELP = "Sequences at a time (default: what suits their lengths and the device)."


@dataclass
class TaskArguments:
    """The task and its data; settings that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    task: str = option(
        "classification", f"The task: {', '.join(name for name in TASKS if name != 'fill_mask')}.", group=Group.INPUT
    )
    text_column: str | None = option(
        None,
        "Column of the text: sentence, words, question, or a beginning to continue (default: the task's; for "
        "classification text).",
    )
    text_pair_column: str | None = option(
        None, "Column of the second text: of a pair, the context, or what all choices begin with."
    )
    label_column: str | None = option(
        None, "Column of label, tags, value or answers (default: the task's; for classification label)."
    )
    label_columns: list[str] | None = option(None, "Columns of 0 and 1, one per label (multilabel).")
    label_separator: str | None = option(
        None, "Separator of the labels of a text (multilabel; default: whichever of , ; | occurs)."
    )
    choice_columns: list[str] | None = option(None, "Columns of the choices, or the one that holds lists of them.")
    encoding: str | None = option(None, "Encoding of the data files (default utf-8).")
    max_length: int | None = option(
        None, "Longest sequence in tokens (default 128, question answering 384).", LENGTH, group=Group.SEQUENCES
    )
    continuation_labels: Literal["ignore", "inside"] | None = option(
        None, "Label of a word's further pieces: ignored, or inside the entity (I-).", group=Group.ANSWERS
    )
    max_document_context: bool | None = option(
        None, "Give each sentence as much of its document as context as fits.", group=Group.SEQUENCES
    )
    window_pooling: Literal["mean", "max"] | None = option(
        None,
        "Read texts longer than max_length in windows and pool their logits (default: cut them).",
        group=Group.SEQUENCES,
    )
    doc_stride: int | None = option(
        None, "Tokens that windows of a long text share (default 128, or half a window).", group=Group.SEQUENCES
    )
    max_question_length: int | None = option(None, "Tokens of a question (64).", group=Group.SEQUENCES)
    max_answer_length: int | None = option(None, "Tokens of an answer (30).", group=Group.ANSWERS)
    n_best_size: int | None = option(None, "Answers in nbest_predictions.json (20).", group=Group.ANSWERS)
    max_context: bool | None = option(
        None, "Take answers from the window with most context around them (Google's rule).", group=Group.ANSWERS
    )
    null_score_threshold: float | None = option(
        None,
        "SQuAD 2.0: no answer above this score difference (default: best on the validation data).",
        group=Group.ANSWERS,
    )

    def resolve_task(self) -> Task:
        """The task with the given settings, which must be its own."""
        name, task = self._chosen_task()
        return replace(task, **self._hub_fields(task) | self._given_settings(name))

    def _given_settings(self, name: str) -> dict[str, Any]:
        """The settings given for a task; a setting of other tasks, or a column named twice, is an error."""
        task = _task_called(name)
        given: dict[str, Any] = {}
        for each in (each.name for each in fields(TaskArguments) if each.name != "task"):
            value = getattr(self, each)
            if value is None:
                continue
            if each not in task.options:
                raise ValueError(f"{each} is not a setting of the task {name}, which has {', '.join(task.options)}.")
            if isinstance(value, list) and (twice := [name for name in value if value.count(name) > 1]):
                raise ValueError(f"{each} names {twice[0]!r} twice; expected different columns.")
            given[each] = tuple(value) if isinstance(value, list) else value
        return given

    def _chosen_task(self) -> tuple[str, Task]:
        """The task and its name, before settings are applied."""
        return self.task, _task_called(self.task)

    def _hub_fields(self, task: Task) -> dict[str, Any]:
        return {}


def _task_called(name: str) -> Task:
    if name not in TASKS:
        raise ValueError(f"task is {name!r}; expected one of {', '.join(TASKS)}.")
    return TASKS[name]


TASK_OPTIONS = TaskArguments.__dataclass_fields__.keys()


@dataclass
class FinetunedModelArguments(TaskArguments):
    """The settings of commands that use a fine-tuned model; it records what it was trained for."""

    group = Group.SEQUENCES
    task: str | None = option(  # type: ignore[assignment]  # the model's own
        None, f"The task: {', '.join(TASKS)} (default: what the model was fine-tuned for).", group=Group.INPUT
    )
    model: str | None = option(None, "Fine-tuned model, folder or Hub name.", group=Group.INPUT)
    batch_size: int | None = option(None, BATCH_SIZE_HELP, AT_LEAST_1, decides=True, idle_with="predictions")
    dtype: Literal["float32", "bfloat16", "int8"] = option(
        "float32",
        "Type of the weights, and of the computation; int8 is for CPUs.",
        decides=True,
        idle_with="predictions",
    )
    use_cpu: bool = option(False, "Use the CPU, even if there is an accelerator.", group=Group.TRAINING)

    def __post_init__(self) -> None:
        """Check what can be checked without looking at data."""
        check_options(self)
        if self.model:
            self.checkpoint.check(ask_hub=False)
        if self.model is None or Path(self.model).is_dir():
            self.resolve_task()
        elif self.task is not None:  # the task of a model on the Hub is read when it is loaded
            self._given_settings(self.task)
        if started_on_cpus():
            self.use_cpu = True

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model, each part of which is read once."""
        assert self.model
        return Checkpoint(self.model)

    def resolve_task(self) -> Task:
        """The task with the given settings, which must be its own; it is resolved once."""
        return self._resolved_task

    @cached_property
    def _resolved_task(self) -> Task:
        return super().resolve_task()

    @classmethod
    def of_training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Model and data format from the settings of its fine-tuning, as in a file for `finetune --config`."""
        names = [*(option.name for option in fields(TaskArguments)), "use_cpu", "quiet"]
        found = {name: settings[name] for name in names if settings.get(name) is not None}
        return found | ({"model": settings["output_dir"]} if settings.get("output_dir") else {})

    def _chosen_task(self) -> tuple[str, Task]:
        """The model's own task with its recorded settings, unless another is named."""
        return task_for_model(self, self.checkpoint if self.model is not None else None)


def task_for_model(arguments: TaskArguments, model: Checkpoint | None) -> tuple[str, Task]:
    """The task of a fine-tuned model with its recorded settings, unless the arguments name another; with its name."""
    if model is None:
        name = arguments.task or TaskArguments.task
        return name, _task_called(name)
    if arguments.task is not None:
        arguments._given_settings(arguments.task)  # reports errors without loading the model
    check_available(model.name)
    config = model.config
    if arguments.task is None:
        return task_of_model(model.name, config)
    recorded = recorded_task(model.name, config)
    if recorded is not None and recorded[0] == arguments.task:
        return recorded
    return arguments.task, fitted_to_model(TASKS[arguments.task], config)


def fitted_to_model(task: Task, config: PreTrainedConfig) -> Task:
    """The task with sequences no longer than a model can read."""
    return replace(task, max_length=min(task.max_length, longest_sequence(config) or task.max_length))


def benchmark_files(folder: str | Path, task: Task, split: str) -> list[str]:
    """The files of a split in the folder of a benchmark, compressed or not; several if the task has names for them."""
    found = [
        next(iter(sorted(Path(folder).glob(pattern)) or sorted(Path(folder).glob(f"{pattern}.gz"))), None)
        for pattern in task.files.get(split, ())
    ]
    files = [str(path) for path in found if path]
    return files if len(task.evaluations) > 1 else files[:1]


def evaluation_names(task: Task, sources: Any) -> dict[str, DataSource]:
    """Name several files of a split: by the task's names, or else by their own; a single one has the name ""."""
    sources = list(sources)
    if len(sources) <= 1:
        return dict(zip([""], sources, strict=False))
    given = [source.part for source in sources if isinstance(source, GivenData)]
    if len(sources) == len(task.evaluations) and not given:
        return dict(zip(task.evaluations, sources, strict=True))
    names = given or [s.split if isinstance(s, HubSplit) else Path(s).name.partition(".")[0] for s in sources]
    if len(set(names)) < len(names):
        raise ValueError(f"The files {', '.join(map(str, sources))} have the same name; expected different ones.")
    return dict(zip(names, sources, strict=True))
