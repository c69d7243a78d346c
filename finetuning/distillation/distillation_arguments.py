"""The settings of `mybert distill`."""

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from ...files.checkpoint import Checkpoint
from ...files.options import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, Group, check_required, option, settings_of
from ...files.source import Source, files_of, sources_of
from ...hub_card import plain_text
from ...modeling_mybert import MODEL_SIZES
from ...modeling_mybert.configuration_mybert import fields_of_size, is_size
from ...runs import is_sharded
from ..network.heads import NetworkChanges
from ..tasks.registry import TASKS, task_for_model
from ..tasks.task import Task
from ..training.finetuning_arguments import FinetuningArguments
from .trainer import RELATIONS

logger = logging.getLogger(__name__)

_KNOWN_RELATIONS = {*RELATIONS, "qk"}
STUDENT_SIZES = f"{', '.join(MODEL_SIZES)}, or layers x width, such as 2x256"


@dataclass
class DistillationOptions:
    """The teacher, the student, and what it learns from the teacher."""

    group, decides = Group.TEACHER, True
    teacher: str = option(
        "", "Fine-tuned model to learn from, folder or Hub name.", group=Group.INPUT, required=True, positional=1
    )
    student: str = option(
        "", f"Model folder or Hub name, or the size of a new model: {STUDENT_SIZES}.", group=Group.INPUT, required=True
    )
    tokenizer: str | None = option(
        None, "Folder of a new student's tokenizer (default: the teacher's).", group=Group.INPUT
    )
    unlabelled: list[str] | None = option(
        None,
        "Texts for the teacher to label: .txt (one per line), or tables with the task's columns.",
        group=Group.INPUT,
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
        0.0, "Weight of the loss on relations of the last layer's queries, keys, values (MiniLM).", AT_LEAST_0
    )
    relations: list[str] = option(
        list(RELATIONS),
        "Which relations, each a pair of q, k, v (MiniLMv2: qq kk vv; MiniLM: qk vv).",
        needs="relation_weight",
    )
    relation_heads: int | None = option(
        None,
        "Heads of these relations (default: as many as fit, at most the teacher's).",
        AT_LEAST_1,
        needs="relation_weight",
    )


@dataclass
class DistillationArguments(DistillationOptions, FinetuningArguments):
    """Settings of `distill`: the fields below and those of `finetune`, with the teacher's task and columns.

    In Python, `unlabelled` may also be data in memory, as for `mybert.predict`; a list of strings is file names.

    Raises:
        ValueError: If a setting is missing or out of range, or the teacher has no head for a task.
        OSError: If the teacher does not exist.
    """

    data_settings: ClassVar[tuple[str, ...]] = (*FinetuningArguments.data_settings, "unlabelled")

    group = Group.TRAINING
    task: str | None = option(  # type: ignore[assignment]
        None, "The task (default: what the teacher was fine-tuned for)."
    )
    model: str = option("", init=False, required=False)
    learning_rate: float | None = option(None, "Peak learning rate (default: as in finetune; 5e-4 for new students).")
    # Without a meaning in distillation:
    approach: Literal["finetune", "features"] = option(init=False)
    features: str = option(init=False)
    lstm_size: int = option(init=False)
    folds: int = option(init=False)
    lora: bool = option(init=False)
    peft_config: str | None = option(init=False)
    class_weights: Literal["balanced"] | None = option(init=False)
    label_smoothing_factor: float = option(init=False)

    def __post_init__(self) -> None:
        """Find the teacher's task, and check what can be checked without looking at data."""
        check_required(self)
        self.teacher, self.student = str(self.teacher), str(self.student)
        self.unlabelled = sources_of(self.unlabelled, "unlabelled") or None
        if self.hard_label_weight == 1 and not self.learns_layers:
            raise ValueError(
                "hard_label_weight is 1, so the teacher teaches nothing; expected less, or use mybert finetune."
            )
        if not self.relations or set(self.relations) - _KNOWN_RELATIONS:
            raise ValueError(f"relations is {self.relations}; expected some of {', '.join(sorted(_KNOWN_RELATIONS))}.")
        if self.relation_heads and "qk" in self.relations:
            raise ValueError(
                f"relation_heads is {self.relation_heads}; attention (qk in relations) uses the models' own heads."
            )
        if self.is_new_student:
            fields_of_size(self.student, "student")  # checks it
            plain = NetworkChanges(dropout=self.dropout, from_scratch=self.from_scratch)
            for name, value in settings_of(NetworkChanges, self).items():
                if value != getattr(plain, name):
                    raise ValueError(
                        f"{name} is {value!r} but a new student ({self.student}) is a plain MyBERT; leave it out."
                    )
        elif self.tokenizer or self.teacher_embeddings:
            what = f"tokenizer is {self.tokenizer!r}" if self.tokenizer else "teacher_embeddings is set"
            raise ValueError(
                f"{what} and {self.student} has its own; it is for a new student, one of {STUDENT_SIZES}."
            )
        Checkpoint(self.teacher).check("teacher")
        if self.is_new_student and Path(self.student, "config.json").is_file() and self.student != self.output_dir:
            logger.warning(
                "student is %r, a new model of that size; to use the folder of that name write ./%s.",
                self.student,
                self.student,
            )
        self.model = self.teacher if self.is_new_student else self.student
        self.from_scratch = self.from_scratch or self.is_new_student
        self._teacher_task = task_for_model(self, Checkpoint(self.teacher))
        self.task = self._teacher_task[0]
        super().__post_init__()
        if self.learns_layers and is_sharded(self):
            name = "hidden_state_weight" if self.hidden_state_weight else "relation_weight"
            raise ValueError(f"{name} is set with fsdp: a loss on layers needs whole weights; leave fsdp out.")

    @property
    def is_new_student(self) -> bool:
        """Whether the student is a new model, given by its size."""
        return is_size(self.student)

    @property
    def learns_layers(self) -> bool:
        """Whether the student also learns from the teacher's layers; the teacher then runs during training."""
        return bool(self.hidden_state_weight or self.relation_weight)

    def _chosen_task(self) -> tuple[str, Task]:
        """The teacher's task, without what was fitted to its predictions (thresholds, temperature)."""
        name, task = self._teacher_task
        return name, task.fitted_as(TASKS[name])

    def task_of_teacher(self, task: Task) -> Task:
        """The task with the thresholds or temperature fitted to the teacher's predictions."""
        return task.fitted_as(self._teacher_task[1])

    def _check_training_data(self) -> None:
        if not (self.train_file or self.dataset or self.unlabelled):
            raise ValueError("neither train_file nor unlabelled is set; distillation needs labelled data or texts.")
        if self.validation_split and not (self.train_file or self.dataset):
            raise ValueError("validation_split is set without train_file; only labelled data can be held out.")

    def _default_learning_rate(self) -> tuple[float, str]:
        return (5e-4, "for a new student") if self.is_new_student else super()._default_learning_rate()

    @property
    def card_summary(self) -> str:
        """The first sentence of the card (Markdown)."""
        return f"A BERT model for {self.task}, distilled from {plain_text(self.name_of_teacher)}."

    @property
    def name_of_teacher(self) -> str:
        """The name of the teacher; for a folder, without its path."""
        return Path(self.teacher).resolve().name if Path(self.teacher).is_dir() else self.teacher

    @property
    def card_settings(self) -> dict[str, Any]:
        """The distillation settings on the card."""
        is_of_values = self.resolve_task().objective == "value"  # a value has no temperature
        found = {
            "teacher": self.name_of_teacher,
            "student began as": f"a new model ({self.student})" if self.is_new_student else Path(self.student).name,
            "word embeddings began as": "principal components of the teacher's" if self.teacher_embeddings else None,
            "texts without labels": ", ".join(Source.of(data).described for data in self.unlabelled or ()) or None,
            "temperature of distillation": None if is_of_values else self.distillation_temperature,
            "weight of the data's labels": self.hard_label_weight if self.train_file or self.dataset else None,
            "weight of hidden states": self.hidden_state_weight or None,
            "weight of relations": self.relation_weight or None,
            "relations": " ".join(self.relations) if self.relation_weight else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def folders_read(self) -> list[str]:
        """Model folders that the run reads."""
        return [self.teacher, self.model, *([self.tokenizer] if self.tokenizer else [])]

    def decisive(self) -> dict[str, Any]:
        """The settings that determine a run's result."""
        files = files_of(self.unlabelled or ())  # data in memory is recorded itself
        return super().decisive() | {"unlabelled": files, "command": "distill"}
