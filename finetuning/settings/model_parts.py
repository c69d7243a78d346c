"""Parts of settings on a finished model and how it is computed; those of commands that use a fine-tuned one."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

from ...files.checkpoint import Checkpoint, check_available
from ...files.options import AT_LEAST_1, Group, option, options_of
from ...files.settings import Parts
from ...pipelines.options import Engine
from ..tasks.task_names import listed_tasks
from .task_parts import SKIP_EMPTY_HELP, TASK_OPTIONS, AnswerSettings, TaskArguments, TaskChoice

if TYPE_CHECKING:
    from accelerate import PartialState

    from ..tasks.task import Task

MODEL_HELP = "Fine-tuned model, folder or Hub name."


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


def task_of_checkpoint(checkpoint: Checkpoint, name: str | None) -> "tuple[str, Task]":
    """A model's own task with its recorded settings, unless another is named; with its name."""
    from ..tasks.registry import task_of_model

    check_available(checkpoint.name)
    return task_of_model(checkpoint.name, checkpoint.config, name)


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

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option; a path of the model is a text."""
        given = super().read(given)
        return given | ({"model": str(given["model"])} if given.get("model") else {})

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
        from ..tasks.task_table import TASKS

        if self.task is not None:
            self._given_settings(self.task)  # reports errors without loading the model
        if not self.model:
            name = self.task or TaskArguments.task
            return name, TASKS[name]
        return task_of_checkpoint(self.checkpoint, self.task)
