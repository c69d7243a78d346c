"""The settings of `mybert distill`."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from ..files.checkpoint import Checkpoint
from ..files.choices import choice
from ..files.errors import SettingError
from ..files.options import ABOVE_0, AT_LEAST_0, SHARE, Group, option, said, settings_of
from ..runs.model_sizes import SIZE_NAMES, fields_of_size, is_size
from .network_settings import NetworkChanges
from .settings.parts import TaskArguments
from .training.finetune_settings import (
    FineTune,
    FinetuningOptimization,
    GivenFile,
    HeadOnly,
    HeldOut,
    TaskTrainingSettings,
)

if TYPE_CHECKING:
    from .tasks.task import Task

logger = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class TeacherSettings:
    """The teacher, the student, and what it learns from the teacher."""

    group, decides = Group.TEACHER, True
    teacher: str = option(
        "",
        "Fine-tuned model to learn from, folder or Hub name.",
        group=Group.INPUT,
        required=True,
        positional=1,
        reads="model",
    )
    student: str = option(
        "",
        f"Model folder or Hub name, or the size of a new model: {SIZE_NAMES}.",
        group=Group.INPUT,
        required=True,
    )
    tokenizer: str | None = option(
        None, "Folder of a new student's tokenizer (default: the teacher's).", group=Group.INPUT, reads="model"
    )
    unlabeled: list[str] | None = option(
        None,
        "Texts for the teacher to label: .txt (one per line), or tables with the task's columns.",
        group=Group.INPUT,
        reads="rows",
    )
    teacher_embeddings: bool = option(
        False,
        "Start a new student's word embeddings from the principal components of the teacher's.",
        group=Group.MODEL,
    )
    distillation_temperature: float = option(
        2.0, "Temperature that divides the logits of teacher and student (Hinton et al., 2015).", ABOVE_0
    )
    hard_label_weight: float = option(
        0.5, "Weight of the data's own labels, in [0, 1]; the teacher gets the rest.", SHARE
    )
    hidden_state_weight: float = option(
        0.0, "Weight of the loss on hidden states, layer by layer (TinyBERT); 0 for none.", AT_LEAST_0
    )
    relation_weight: float = option(
        0.0, "Weight of the loss on relations of the last layer's queries, keys, values (MiniLMv2).", AT_LEAST_0
    )


@dataclass(frozen=True, kw_only=True)
class TeachersTask(TaskArguments):
    """The task, by default the teacher's, and its data."""

    group = Group.READING
    decides = True
    task: str | None = option(  # type: ignore[assignment]
        None, "The task (default: what the teacher was fine-tuned for)."
    )


@dataclass(frozen=True, kw_only=True)
class DistillationOptimization(FinetuningOptimization):
    """The optimizer and schedule of fine-tuning, with another default for new students."""

    group, decides = Group.TRAINING, True
    learning_rate: float | None = option(None, "Peak learning rate (default: as in finetune; 5e-4 for new students).")


@dataclass(frozen=True, kw_only=True)
class DistillSettings(TaskTrainingSettings):
    """What a user says of a distillation: the teacher, and all of `TaskTrainingSettings` for the student."""

    unsupported: ClassVar[Mapping[str, str]] = {
        **TaskTrainingSettings.unsupported,
        "label_smoothing_factor": "the teacher's probabilities say how sure a label is",
    }
    data_settings: ClassVar[tuple[str, ...]] = (*TaskTrainingSettings.data_settings, "unlabeled")
    optimization: DistillationOptimization = field(default_factory=DistillationOptimization)
    reading: TeachersTask = field(default_factory=TeachersTask)
    trained: FineTune | HeadOnly = choice(FineTune)
    validation: GivenFile | HeldOut = choice(GivenFile)
    from_teacher: TeacherSettings = field(default_factory=TeacherSettings)

    @property
    def is_new_student(self) -> bool:
        """Whether the student is a new model, given by its size."""
        return is_size(self.student)

    @property
    def learns_layers(self) -> bool:
        """Whether the student also learns from the teacher's layers; the teacher then runs during training."""
        return bool(self.hidden_state_weight or self.relation_weight)

    @cached_property
    def teacher_task(self) -> "tuple[str, Task]":
        """The name of the task, and the task as the teacher records it."""
        from .tasks.registry import task_of_model

        if self.task is not None:
            self._given_settings(self.task)  # reports errors without loading the teacher
        return task_of_model(Checkpoint(self.teacher), self.task)

    def _chosen_task(self) -> "tuple[str, Task]":
        """The teacher's task, without what was fitted to its predictions (thresholds, temperature)."""
        from .tasks.calibration import fitted_as
        from .tasks.task_table import TASKS

        name, task = self.teacher_task
        return name, fitted_as(task, TASKS[name])

    @property
    def teachers_name(self) -> str:
        """The name of the teacher; for a folder, without its path."""
        return Path(self.teacher).resolve().name if Path(self.teacher).is_dir() else self.teacher

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at the data."""
        super().check()
        if self.hard_label_weight == 1 and not self.learns_layers:
            raise SettingError.worded(
                "{hard_label_weight} is 1, so the teacher has no effect; expected less than 1. mybert finetune "
                "trains without a teacher."
            )
        if self.validation_split and not (self.train_file or self.dataset or self.data_dir):
            raise SettingError.worded(
                "{validation_split} is set without {train_file}; only labeled data can be held out."
            )
        if self.is_new_student:
            fields_of_size(self.student, "student")  # checks it
            plain = NetworkChanges(dropout=self.dropout, from_scratch=self.from_scratch)
            for name, value in settings_of(NetworkChanges, self).items():
                if value != getattr(plain, name):
                    raise SettingError.worded(
                        "{:option} is {!r} but a new student ({}) is a plain MyBERT; leave it out.",
                        name,
                        value,
                        self.student,
                    )
        elif self.tokenizer or self.teacher_embeddings:
            what = said("tokenizer", self.tokenizer) if self.tokenizer else said("teacher_embeddings", True)
            raise SettingError.worded(
                "{} and {} has its own; it is for a new student, one of {}.", what, self.student, SIZE_NAMES
            )
        Checkpoint(self.teacher).check("teacher")
        if self.is_new_student and Path(self.student, "config.json").is_file() and self.student != self.output_dir:
            logger.warning(
                "student is %r, a new model of that size; to use the folder of that name write ./%s.",
                self.student,
                self.student,
            )
        self.resolve_task()
