"""Parts of settings that several commands share: a task and its data, a finished model and how it is computed."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ...files.checkpoint import Checkpoint, check_available
from ...files.errors import SettingError
from ...files.options import AT_LEAST_0, AT_LEAST_1, SHARE, Group, Range, option, options_of
from ...files.settings import Parts
from ...files.text import PAIR_SEPARATOR
from ...pipelines.options import Engine
from ..tasks.task_names import listed_tasks

if TYPE_CHECKING:
    from accelerate import PartialState

    from ..tasks.task import Task

MODEL_HELP = "Fine-tuned model, folder or Hub name."
LENGTH = Range("at least 3: [CLS], [SEP] and some text", 3)
SKIP_EMPTY_HELP = (
    "Leave out rows without text or label, and log how many; predict keeps those without text, with empty answers."
)


@dataclass(frozen=True, kw_only=True)
class DataColumns:
    """The columns of texts; those that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    text_column: str | None = option(
        None,
        "Column of the text: sentence, words, question or prompt (default: the task's; for classification text).",
    )
    text_pair_column: str | None = option(
        None, "Column of the second text: of a pair, the context, or the stem shared by all choices."
    )
    encoding: str | None = option(None, "Encoding of the data files (default: utf-8).")


@dataclass(frozen=True, kw_only=True)
class LabelColumn:
    """The column of labels."""

    group = Group.READING
    decides = True
    label_column: str | None = option(
        None, "Column of label, tags, value or answers (default: the task's; for classification label)."
    )


@dataclass(frozen=True, kw_only=True)
class LabelSettings(LabelColumn):
    """How labels are read; settings that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    label_columns: list[str] | None = option(
        None, "Columns of 0 and 1, one per label (multilabel), or of numbers (scores)."
    )
    label_separator: str | None = option(
        None, "Separator of the labels of a text, multilabel (default: whichever of , ; | occurs)."
    )


@dataclass(frozen=True, kw_only=True)
class TargetSettings(LabelSettings):
    """How labels are read, and what a network learns of them."""

    continuation_labels: Literal["ignore", "inside"] | None = option(
        None,
        "Label of a word's further pieces: ignored, or inside the entity (I-).",
        group=Group.ANSWERS,
        decides=True,
    )


@dataclass(frozen=True, kw_only=True)
class AnswerSettings:
    """Which answers are given; settings that are not given have the task's defaults."""

    group = Group.ANSWERS
    decides = True
    n_best_size: int | None = option(None, "Answers in nbest_predictions.json (default: 20).", AT_LEAST_1)
    confidence_threshold: float | None = option(
        None,
        "Leave a label empty if its probability is lower (one class per text).",
        SHARE,
    )


class TaskChoice:
    """The task that settings name, with the options given for it; methods import the tasks, and with them torch."""

    task: Any

    def resolve_task(self) -> "Task":
        """The task with the given settings, which must be its own."""
        name, task = self._chosen_task()
        return replace(task, **self._given_settings(name))

    @property
    def new_data(self) -> tuple[str, str | None]:
        """A file of new data for the model in `output_dir`, and what its lines hold if that is not one text."""
        from ..data import text_columns
        from ..tasks.registry import task_of_model

        folder = str(getattr(self, "output_dir", ""))
        _, task = task_of_model(Checkpoint(folder))
        if "choice_columns" in task.options:
            return "new.jsonl", f"an object with {', '.join(task.columns(labeled=False))}"
        return "new.txt", PAIR_SEPARATOR.join(text_columns(task)) if task.text_pair_column else None

    def _given_settings(self, name: str) -> dict[str, Any]:
        """The settings given for a task; a setting of other tasks, or a column named twice, is an error."""
        from ..tasks.task_table import TASKS

        if name not in TASKS:
            raise SettingError.worded(
                "{task} is {!r}; for labels of your own use classification. Expected one of {}.",
                name,
                ", ".join(TASKS),
                known=[*TASKS],
                unknown=[name],
            )
        task, given = TASKS[name], dict[str, Any]()
        for each in TASK_OPTIONS:
            if (value := getattr(self, each, None)) is None:
                continue
            if each not in task.options:
                template = "{:option} is not a setting of the task {}, which has {}."
                raise SettingError.worded(template, each, name, ", ".join(task.options))
            if isinstance(value, list) and (twice := [name for name in value if value.count(name) > 1]):
                raise SettingError.worded("{:option} names {!r} twice; expected different columns.", each, twice[0])
            given[each] = tuple(value) if isinstance(value, list) else value
        return given

    def _chosen_task(self) -> tuple[str, "Task"]:
        """The task and its name, before settings are applied."""
        from ..tasks.task_table import TASKS

        self._given_settings(self.task)  # checks the name
        return self.task, TASKS[self.task]


@dataclass(frozen=True, kw_only=True)
class TaskArguments(DataColumns):
    """The task and its data; settings that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    task: str = option("classification", f"The task: {listed_tasks('fill_mask')}.", group=Group.INPUT)
    choice_columns: list[str] | None = option(None, "Columns of the choices, or the column that holds lists of them.")
    max_length: int | None = option(
        None, "Longest sequence in tokens (default: 128, question answering 384).", LENGTH, group=Group.SEQUENCES
    )
    max_document_context: bool | None = option(
        None, "Fill each sequence with the sentence's neighbors in its document, as context.", group=Group.SEQUENCES
    )
    window_pooling: Literal["mean", "max"] | None = option(
        None,
        "Read texts longer than max_length in windows and pool their logits (default: truncate them).",
        group=Group.SEQUENCES,
    )
    doc_stride: int | None = option(
        None,
        "Tokens that neighboring windows of a long text share (default: 128, or half a window).",
        AT_LEAST_0,
        group=Group.SEQUENCES,
    )
    max_question_length: int | None = option(
        None, "Longest question in tokens (default: 64).", AT_LEAST_1, group=Group.SEQUENCES
    )
    max_answer_length: int | None = option(
        None, "Longest answer in tokens (default: 30).", AT_LEAST_1, group=Group.ANSWERS
    )
    max_context: bool | None = option(
        None, "Take answers from the window with most context around them (Google's rule).", group=Group.ANSWERS
    )
    null_score_threshold: float | None = option(
        None,
        "SQuAD 2.0: no answer above this score difference (default: best on the validation data).",
        group=Group.ANSWERS,
    )


TASK_OPTIONS = [
    each.name
    for kind in (TaskArguments, TargetSettings, AnswerSettings)
    for each in fields(kind)
    if each.name != "task"
]


@dataclass(frozen=True, kw_only=True)
class Device:
    """Where a model is computed."""

    group = Group.TRAINING
    use_cpu: bool = option(False, "Use the CPU, even if there is an accelerator.")

    @property
    def state(self) -> "PartialState":
        """The processes and the device."""
        import torch
        from accelerate import PartialState

        from ...runs import started_on_cpus

        use_cpu = self.use_cpu or started_on_cpus()
        state = PartialState(cpu=use_cpu)
        if state.num_processes == 1 and (state.device.type == "cpu") != use_cpu:
            # It has the device of an earlier call, if there was one in this Python process.
            device = "cpu" if use_cpu else os.environ.get("ACCELERATE_TORCH_DEVICE", state.default_device)
            state.device = torch.device(device)
        return state


@dataclass(frozen=True, kw_only=True)
class Inference:
    """How a model is computed."""

    group = Group.SEQUENCES
    batch_size: int | None = option(
        None, "Sequences per batch (default: chosen by their lengths and the device).", AT_LEAST_1
    )
    dtype: Literal["float32", "bfloat16"] = option(
        "float32", "Type of the weights, and of the computation.", decides=True
    )


@dataclass(frozen=True, kw_only=True)
class EngineInference(Inference):
    """How PyTorch or OpenVINO computes a model."""

    group = Group.MODEL
    engine: Engine = option(
        "auto",
        "What computes the network: torch, or openvino on CPUs, for a model with a graph of `mybert convert openvino` "
        "or `mybert push --graphs openvino`. auto: openvino for such a model, if it is installed.",
        decides=True,
    )
    # PyTorch keeps this number for the whole process.
    threads: int | None = option(None, "Threads on a CPU, of PyTorch and other runtimes.", AT_LEAST_1)


@dataclass(frozen=True, kw_only=True)
class TaskInference(EngineInference):
    """How PyTorch or OpenVINO computes a fine-tuned model."""

    dtype: Literal["float32", "bfloat16", "int8"] = option(  # type: ignore[assignment]
        "float32",
        "Type of the computation; int8 is for folders that `mybert convert openvino --dtype int8` wrote.",
    )


@dataclass(frozen=True, kw_only=True)
class ModelsTask(TaskArguments):
    """The task, by default the model's own, and its data."""

    group = Group.READING
    decides = True
    task: str | None = option(  # type: ignore[assignment]
        None, f"The task: {listed_tasks()} (default: what the model was fine-tuned for).", group=Group.INPUT
    )
    skip_empty: bool = option(False, SKIP_EMPTY_HELP)


def check_model(checkpoint: Checkpoint, engine: Engine, dtype: str) -> None:
    """Reject a model that is broken, or that the engine cannot compute, without a request to the Hub."""
    from ...pipelines.openvino_model import runs_in_openvino  # imports torch

    checkpoint.check(ask_hub=False, needs_weights=not checkpoint.has_graph)
    if checkpoint.path.is_dir():
        runs_in_openvino(checkpoint, engine, dtype)


@dataclass(frozen=True, kw_only=True)
class FinetunedModelSettings(TaskChoice, Parts):
    """What a user says of a fine-tuned model, which records its task, and of data for it."""

    device: Device = field(default_factory=Device)
    inference: TaskInference = field(default_factory=TaskInference)
    reading: ModelsTask = field(default_factory=ModelsTask)
    answers: AnswerSettings = field(default_factory=AnswerSettings)

    @classmethod
    def of_training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Model and data format from the settings of its fine-tuning, as in a file for `finetune --config`."""
        shared = options_of(cls).keys() & {"task", "use_cpu", "skip_empty", *TASK_OPTIONS}
        given = {name: settings[name] for name in [*shared, "quiet"] if settings.get(name) is not None}
        return given | ({"model": settings["output_dir"]} if settings.get("output_dir") else {})

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at the data."""
        super().check()
        if self.model:
            check_model(self.checkpoint, self.engine, self.dtype)
        if not self.model or self.checkpoint.path.is_dir():
            self.resolve_task()
        elif self.task is not None:  # the task of a model on the Hub is read when it is loaded
            self._given_settings(self.task)

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model, each part of which is read once."""
        return Checkpoint(self.model)

    def _chosen_task(self) -> "tuple[str, Task]":
        """The model's own task with its recorded settings, unless another is named."""
        from ..tasks.registry import TASKS, task_of_model

        if self.task is not None:
            self._given_settings(self.task)  # reports errors without loading the model
        if not self.model:
            name = self.task or TaskArguments.task
            return name, TASKS[name]
        check_available(self.checkpoint.name)
        return task_of_model(self.checkpoint, self.task)
