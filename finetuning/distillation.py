"""Distillation from end to end: from a fine-tuned teacher and data to a student's folder (`mybert distill`)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import ArrayLike

from ..cards import Comparison, plain_text
from ..files.checkpoint import Checkpoint, check_available
from ..files.loading import load_tokenizer
from ..files.options import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE, Group, check_options, option, settings_of
from ..files.output import write_json
from ..files.source import Source, files_of
from ..modeling_mybert import MODEL_SIZES, MyBertConfig
from ..modeling_mybert.configuration_mybert import fields_of_size, is_size
from ..runs import arguments_by_name, is_sharded
from .data import Labels
from .distillation_trainer import (
    RELATIONS,
    SOFT_TARGETS,
    TEACHER_OUTPUTS,
    DistillationLoss,
    DistillationTrainer,
    LayerLosses,
    Teacher,
    init_embeddings_from_teacher,
    teaching_of,
    with_soft_targets,
)
from .heads import NetworkChanges
from .tasks.calibration import fitted_as
from .tasks.registry import TASKS, task_of_model
from .tasks.steps import in_order_of
from .tasks.task import Task
from .training.finetuning_arguments import FinetuningArguments
from .training.preparation import StartingModel, TaskRun, joined, read_run, starting_model
from .training.run import Finetuning
from .training.trainer import TaskTrainer

logger = logging.getLogger(__name__)

DISTILLATION = "distillation.json"
_KNOWN_RELATIONS = {*RELATIONS, "qk"}
STUDENT_SIZES = f"{', '.join(MODEL_SIZES)}, or layers x hidden size, such as 2x256"
_POSITIONS = 512  # minimum for a new student


@dataclass
class DistillationOptions:
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
        "", f"Model folder or Hub name, or the size of a new model: {STUDENT_SIZES}.", group=Group.INPUT, required=True
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

    In Python, `unlabeled` may also be data in memory, as for `mybert.predict`; a list of strings is file names.

    Raises:
        ValueError: If a setting is missing or out of range, or the teacher has no head for a task.
        OSError: If the teacher does not exist.
    """

    data_settings: ClassVar[tuple[str, ...]] = (*FinetuningArguments.data_settings, "unlabeled")

    group = Group.TRAINING
    task: str | None = option(  # type: ignore[assignment]
        None, "The task (default: what the teacher was fine-tuned for)."
    )
    model: str = option("", init=False, required=False)
    learning_rate: float | None = option(None, "Peak learning rate (default: as in finetune; 5e-4 for new students).")
    # Without a meaning in distillation:
    approach: Literal["finetune", "linear_probe", "auto", "features"] = option(init=False)
    features: str = option(init=False)
    lstm_size: int = option(init=False)
    folds: int = option(init=False)
    allow_unusual_labels: bool = option(init=False)
    lora: bool = option(init=False)
    peft_config: str | None = option(init=False)
    class_weights: Literal["balanced"] | None = option(init=False)
    label_smoothing_factor: float = option(init=False)

    def __post_init__(self) -> None:
        """Find the teacher's task, and check what can be checked without looking at data."""
        self._find_sources()
        check_options(self)
        self.teacher, self.student = str(self.teacher), str(self.student)
        if self.hard_label_weight == 1 and not self.learns_layers:
            raise ValueError(
                "hard_label_weight is 1, so the teacher has no effect; expected less than 1. mybert finetune trains "
                "without a teacher."
            )
        if not self.relations or set(self.relations) - _KNOWN_RELATIONS:
            raise ValueError(f"relations is {self.relations}; expected some of {', '.join(sorted(_KNOWN_RELATIONS))}.")
        if self.relation_heads and "qk" in self.relations:
            raise ValueError(
                f"relation_heads is {self.relation_heads}; attention (qk in relations) uses the models' own heads."
            )
        if self.validation_split and not (self.train_file or self.dataset or self.data_dir):
            raise ValueError("validation_split is set without train_file; only labeled data can be held out.")
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
        teacher = Checkpoint(self.teacher).check("teacher")
        if self.is_new_student and Path(self.student, "config.json").is_file() and self.student != self.output_dir:
            logger.warning(
                "student is %r, a new model of that size; to use the folder of that name write ./%s.",
                self.student,
                self.student,
            )
        self.model = self.teacher if self.is_new_student else self.student
        self.from_scratch = self.from_scratch or self.is_new_student
        if self.task is not None:
            self._given_settings(self.task)  # reports errors without loading the teacher
        self.teacher_task = task_of_model(self.teacher, teacher.config, self.task)
        self.task = self.teacher_task[0]
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
        name, task = self.teacher_task
        return name, fitted_as(task, TASKS[name])

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
        has_temperature = self.resolve_task().loss.has_temperature
        found = {
            "teacher": self.name_of_teacher,
            "student began as": f"a new model ({self.student})" if self.is_new_student else Path(self.student).name,
            "word embeddings began as": "principal components of the teacher's" if self.teacher_embeddings else None,
            "texts without labels": ", ".join(Source.of(data).described for data in self.unlabeled or ()) or None,
            "temperature of distillation": self.distillation_temperature if has_temperature else None,
            "weight of the data's labels": self.hard_label_weight if self.train_file or self.dataset else None,
            "weight of hidden states": self.hidden_state_weight or None,
            "weight of relations": self.relation_weight or None,
            "relations": " ".join(self.relations) if self.relation_weight else None,
        }
        return {name: value for name, value in found.items() if value is not None}

    def folders_read(self) -> list[str]:
        """Model folders that the run reads."""
        return [self.teacher, self.model, *([self.tokenizer] if self.tokenizer else [])]

    def result_settings(self) -> dict[str, Any]:
        """The settings that determine a run's result."""
        files = files_of(self.unlabeled or ())  # data in memory is recorded itself
        return super().result_settings() | {"unlabeled": files, "command": "distill"}


def distill(arguments: DistillationArguments | None = None, **settings: Any) -> dict[str, Any]:
    """Train a student on a fine-tuned teacher's outputs for task data and unlabeled texts.

        >>> mybert.distill(teacher="my-sst2", student="tiny", unlabeled="reviews.txt", output_dir="my-tiny-sst2")

    The output folder is that of a fine-tuned model, see `finetune`. In it, `teacher_outputs/` has the teacher's
    outputs, which an interrupted run does not compute again, and `distillation.json` compares both models.

    Args:
        arguments: The settings.
        **settings: Instead, the fields of `DistillationArguments`, which are those of the command; data may also be in
            memory, as for `finetune` and, without labels, for `predict`.

    Returns:
        What `finetune` returns, and `teacher`, its metrics on the validation data.

    Raises:
        ValueError: If the teacher has no head for the task or other labels than the data, the student's tokens differ
            from the teacher's where they must not, or a setting is out of range; see also `finetune`.
        OSError: If a model or a file cannot be read or written.
    """
    return Distillation(arguments_by_name(DistillationArguments, arguments, settings)).run()


class Distillation(Finetuning):
    """A fine-tuning run whose training data includes the teacher's logits."""

    arguments: DistillationArguments

    def __init__(self, arguments: DistillationArguments) -> None:
        super().__init__(arguments)
        self.of_teacher: dict[str, float] = {}  # the teacher's metrics on the validation data
        self.parameters: dict[str, int] = {}

    @cached_property
    def teacher(self) -> Teacher:
        """The teacher, loaded on first access."""
        return Teacher.load(self.arguments.teacher, self.arguments.resolve_task(), self.arguments.device)

    def check(self) -> None:
        """Reject a student that does not exist, and tasks that cannot be distilled."""
        arguments = self.arguments
        if arguments.resolve_task().teaching is None:
            raise ValueError(
                f"task is {arguments.task!r}; distillation is for classification, regression, tagging, multiple "
                "choice and question answering."
            )
        if arguments.is_new_student:
            return
        try:
            check_available(arguments.student, "student")
        except OSError as error:
            raise OSError(f"{error} A new student has a size: {STUDENT_SIZES}.") from error
        student = Checkpoint(arguments.student).check("student", needs_weights=not arguments.from_scratch)
        student.refuse_quantized_weights()

    def read(self, task: Task) -> TaskRun:
        """Read the data, labeled and not, and check that teacher and student fit together."""
        unlabeled = [Source.of(data) for data in self.arguments.unlabeled or ()]
        tokenizer: Any = None  # that of the student
        if name := self.arguments.tokenizer:
            check_available(name, "tokenizer")
            tokenizer = load_tokenizer(Checkpoint(name))
            tokenizer.model_max_length = min(tokenizer.model_max_length, _POSITIONS)
        run = read_run(self.arguments, task, tokenizer, unlabeled, self._labels)
        self._check_same_tokens(run)
        return run

    def _labels(self, task: Task, data: Sequence[tuple[Source, Sequence[Any]]]) -> Labels | None:
        """The teacher's classes, in the student's order if it has the same; other classes in the data are an error."""
        known = self.teacher.labels_of(task)
        if known is None:
            return None
        for source, examples in data:
            try:
                task.with_names(examples, known, source)
            except ValueError as error:
                raise ValueError(
                    f"{self.arguments.teacher} was fine-tuned with other labels than the data has: {error}"
                ) from None
        return known if self.arguments.is_new_student else in_order_of(task, self.arguments.model, known)

    def _check_same_tokens(self, run: TaskRun) -> None:
        """Reject a student with other tokens than the teacher if a loss compares them token by token."""
        arguments, task = self.arguments, run.task
        wanted = [name for name in ("hidden_state_weight", "relation_weight") if getattr(arguments, name)]
        if wanted and not teaching_of(task).has_hidden_states:
            raise ValueError(
                f"{wanted[0]} is {getattr(arguments, wanted[0])}; there is no such loss for multiple choice."
            )
        wanted += ["the task's answers"] if teaching_of(task).compares_tokens else []
        if not wanted:
            return
        teacher = self.teacher.found.tokenizer
        same = run.tokenizer.get_vocab() == teacher.get_vocab()
        for part in run.parts if same else ():
            read = self.teacher.read(task, part).inputs["input_ids"]
            same = same and all(map(np.array_equal, read, part.inputs["input_ids"]))
        if not same:
            raise ValueError(
                f"{arguments.tokenizer or arguments.model} has another vocabulary than {arguments.teacher}, and "
                f"{wanted[0]} compares token with token; expected a student with the teacher's tokenizer."
            )

    def files(self, run: TaskRun) -> list[str]:
        """Files whose contents determine the result, including the teacher's."""
        arguments = self.arguments
        unlabeled = files_of(arguments.unlabeled or ())
        return [*super().files(run), *unlabeled, *Checkpoint(arguments.teacher).deciding_files]

    def begun(self, run: TaskRun) -> TaskRun:
        """The run with the teacher's logits for its training data; logs the teacher's metrics."""
        folder = Path(self.arguments.output_dir) / TEACHER_OUTPUTS
        teacher, task = self.teacher, run.task
        # For each class of the student, its index in the teacher; None if there are no classes.
        columns = None if run.labels is None else [teacher.found.labels.names.index(name) for name in run.labels.names]
        taught = []
        for part in run.parts:
            read = teacher.read(task, part)
            rows = teacher.outputs(task, read, folder)
            taught.append(with_soft_targets(task, part, read, rows, columns))
        for name, data in run.validation.items():
            read = teacher.read(task, data)
            outputs = teaching_of(task).outputs(teacher.outputs(task, read, folder))
            # With the thresholds or temperature that were fitted to the teacher's predictions.
            fitted = fitted_as(task, self.arguments.teacher_task[1])
            predictions = fitted.predict(outputs, read, teacher.found.labels)
            found = fitted.measures(predictions, read.examples).scores()
            self.of_teacher |= {f"{name}_{metric}" if name else metric: value for metric, value in found.items()}
        self.parameters["teacher"] = teacher.found.model.num_parameters()
        worth = (
            f", {metric} {self.of_teacher[metric]:.4g}" if (metric := self.arguments.metric) in self.of_teacher else ""
        )
        sizes = {name: f"{count:,}" for name, count in self.parameters.items()}
        logger.info("Teacher: %s, %s parameters%s.", self.arguments.teacher, sizes["teacher"], worth)
        logger.info("Student: %s, %s parameters.", self.arguments.student, sizes["student"])
        if not (self.arguments.learns_layers or self.arguments.teacher_embeddings):
            del self.teacher  # no longer needed
        return replace(run, train=joined(taught))

    def targets(self, run: TaskRun) -> ArrayLike:
        """The teacher's numbers; a text may lack a label."""
        return np.stack(run.train.inputs[SOFT_TARGETS])

    def start(self, run: TaskRun, arguments: FinetuningArguments, seed: int) -> StartingModel:
        """The student at the start of training."""
        config = None
        if self.arguments.is_new_student:
            config = MyBertConfig(
                **fields_of_size(self.arguments.student),
                vocab_size=len(run.tokenizer),
                max_position_embeddings=max(_POSITIONS, run.task.max_length),
                pad_token_id=run.tokenizer.pad_token_id,
            )
        model, new = starting_model(run, arguments, seed, config)
        if self.arguments.teacher_embeddings:
            found = self.teacher.found
            init_embeddings_from_teacher(model, found.model, run.tokenizer, found.tokenizer)
        if (layers_learned := self._layer_losses()) is not None:
            layers_learned.check(model)
        self.parameters["student"] = model.num_parameters()
        return model, new

    def _layer_losses(self) -> LayerLosses | None:
        arguments = self.arguments
        if not arguments.learns_layers:
            return None
        return LayerLosses(
            self.teacher.found.model,
            arguments.hidden_state_weight,
            arguments.relation_weight,
            arguments.relation_heads,
            arguments.relations,
        )

    def trainer(self, run: TaskRun, arguments: FinetuningArguments, **settings: Any) -> TaskTrainer:
        """The trainer of the student."""
        own = self.arguments
        loss = DistillationLoss(run.task.loss, own.distillation_temperature, own.hard_label_weight)
        return DistillationTrainer(run, arguments, loss, self._layer_losses(), **settings)

    def comparisons(self, metrics: Mapping[str, Any]) -> list[Comparison]:
        """Student and teacher on the validation data."""
        if not self.of_teacher:
            return []
        rows = {
            "teacher": {"parameters": self.parameters["teacher"], **self.of_teacher},
            "this model": {
                "parameters": self.parameters["student"],
                **{name: metrics[name] for name in self.of_teacher if name in metrics},
            },
        }
        return [Comparison(f"The teacher, {plain_text(self.arguments.name_of_teacher)}, and this model.", rows)]

    def run(self) -> dict[str, Any]:
        """Train, measure, write and compare; see `distill`."""
        result = super().run()
        if result == {"interrupted": True}:
            return result
        metric = self.arguments.metric
        student = {name: result[name] for name in self.of_teacher if name in result}
        if self.arguments.should_save:
            report = {
                "teacher": {"name": self.arguments.teacher, "metrics": self.of_teacher},
                "student": {"metrics": student},
                "parameters": self.parameters,
            }
            write_json(Path(self.arguments.output_dir) / DISTILLATION, report)
        if metric in student and self.of_teacher[metric]:
            logger.info(
                "%s %.4g, %.3g %% of the teacher's %.4g, with %s parameters instead of %s.",
                *(metric, student[metric], 100 * student[metric] / self.of_teacher[metric], self.of_teacher[metric]),
                *(f"{self.parameters[name]:,}" for name in ("student", "teacher")),
            )
        return result | {"teacher": self.of_teacher}
