"""Distillation from end to end: from a fine-tuned teacher and data to a student's folder (`mybert distill`)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from transformers import PreTrainedModel, TrainingArguments

from ..cards import Comparison, plain_text
from ..files.checkpoint import Checkpoint, check_available
from ..files.errors import SettingError, message_of, worded
from ..files.loading import load_tokenizer
from ..files.options import deciding, options_of
from ..files.output import write_json
from ..files.settings import Decision, assemble, build, flat
from ..files.source import InMemoryData, Source, files_of
from ..metrics import metric_of
from ..modeling_mybert import MyBertConfig
from ..runs import is_sharded, settings_by_name
from ..runs.model_sizes import SIZE_NAMES, fields_of_size
from .data import Labels
from .distill_settings import DistillSettings
from .distillation_trainer import (
    SOFT_TARGETS,
    TEACHER_OUTPUTS,
    DistillationLoss,
    DistillationTrainer,
    LayerLosses,
    Teacher,
    init_embeddings_from_teacher,
    relation_heads,
    teaching_of,
    with_soft_targets,
)
from .tasks.calibration import fitted_as
from .tasks.steps import in_order_of, named
from .tasks.task import Task
from .training.finetune_settings import Approach, FinetuneSettings
from .training.plan import FinetunePlan, plan_finetuning
from .training.preparation import StartingModel, TaskRun, joined, read_run, starting_model
from .training.run import Finetuning
from .training.trainer import TaskTrainer

logger = logging.getLogger(__name__)

DISTILLATION = "distillation.json"
_POSITIONS = 512  # minimum for a new student


def DistillationArguments(**given: Any) -> DistillSettings:  # noqa: N802  # a class in earlier versions
    """The settings of `distill`, from the options of the command as keywords; checked as by `distill` itself.

    In Python, `unlabeled` may also be data in memory, as for `mybert.predict`; a list of strings is file names.

    Raises:
        TypeError: If there is no such option.
        ValueError: If a value is missing or out of range, or the teacher has no head for a task.
        OSError: If the teacher does not exist.
    """
    settings = build(DistillSettings, given)
    plan_student(settings)
    return settings


def plan_student(settings: DistillSettings) -> FinetunePlan:
    """The plan of the student's training, before the data is read."""
    task, is_new = settings.resolve_task(), settings.is_new_student
    options = options_of(FinetuneSettings)
    given = {name: value for name, value in flat(settings).items() if name in options}
    student = assemble(
        FinetuneSettings,
        given
        | {
            "model": settings.teacher if is_new else settings.student,
            "from_scratch": settings.from_scratch or is_new,
            "task": settings.teacher_task[0],
        },
    )
    plan = plan_finetuning(student, task, Decision(5e-4, "for a new student") if is_new else None)
    if settings.learns_layers and is_sharded(plan.training):
        name = "hidden_state_weight" if settings.hidden_state_weight else "relation_weight"
        raise SettingError.worded(
            "{:option} is set with {fsdp}: a loss on layers needs whole weights; leave fsdp out.", name
        )
    return plan


def distill(arguments: DistillSettings | None = None, **settings: Any) -> dict[str, Any]:
    """Train a student on a fine-tuned teacher's outputs for task data and unlabeled texts.

        >>> mybert.distill(teacher="my-sst2", student="tiny", unlabeled="reviews.txt", output_dir="my-tiny-sst2")

    The output folder is that of a fine-tuned model, see `finetune`. In it, `teacher_outputs/` has the teacher's
    outputs, which an interrupted run does not compute again, and `distillation.json` compares both models.

    Args:
        arguments: The settings.
        **settings: Instead, the options of the command; data may also be in
            memory, as for `finetune` and, without labels, for `predict`.

    Returns:
        What `finetune` returns, and `teacher`, its metrics on the validation data.

    Raises:
        ValueError: If the teacher has no head for the task or other labels than the data, the student's tokens differ
            from the teacher's where they must not, or a setting is out of range; see also `finetune`.
        OSError: If a model or a file cannot be read or written.
    """
    run = Distillation(settings_by_name(DistillSettings, arguments, settings))
    return run.describe() if run.settings.dry_run else run.run()


class Distillation(Finetuning):
    """A fine-tuning run whose training data includes the teacher's logits."""

    command = "distill"

    def __init__(self, settings: DistillSettings) -> None:
        super().__init__(plan_student(settings))
        self.settings = settings
        self.of_teacher: dict[str, float] = {}  # the teacher's metrics on the validation data
        self.parameters: dict[str, int] = {}

    @property
    def said(self) -> DistillSettings:
        """What the user said."""
        return self.settings

    @property
    def model_name(self) -> str:
        """The student, by its folder, Hub name or size."""
        return self.settings.student

    @property
    def summary(self) -> str:
        """The first sentence of the card (Markdown)."""
        return f"A BERT model for {self.plan.settings.task}, distilled from {plain_text(self.settings.teachers_name)}."

    @property
    def further(self) -> dict[str, Any]:
        """The distillation settings on the card."""
        settings, has_temperature = self.settings, self.plan.task.loss.has_temperature
        is_labeled = bool(self.plan.files.train_file or self.plan.files.dataset)
        is_new = settings.is_new_student
        further = {
            "teacher": settings.teachers_name,
            "student began as": f"a new model ({settings.student})" if is_new else Path(settings.student).name,
            "word embeddings began as": "principal components of the teacher's"
            if settings.teacher_embeddings
            else None,
            "texts without labels": ", ".join(Source.of(data).described for data in settings.unlabeled or ()) or None,
            "temperature of distillation": settings.distillation_temperature if has_temperature else None,
            "weight of the data's labels": settings.hard_label_weight if is_labeled else None,
            "weight of hidden states": settings.hidden_state_weight or None,
            "weight of relations": settings.relation_weight or None,
        }
        return {name: value for name, value in further.items() if value is not None}

    @property
    def folders_read(self) -> list[str]:
        """Model folders that the run reads."""
        settings = self.settings
        return [settings.teacher, self.plan.settings.model, *([settings.tokenizer] if settings.tokenizer else [])]

    @property
    def offers_linear_probe(self) -> bool:
        """Whether the command could fit a linear probe instead."""
        return False

    def result_settings(self, plan: FinetunePlan) -> dict[str, Any]:
        """The settings that determine the run's result, those of the teacher too."""
        unlabeled = self.settings.unlabeled or ()
        record = plan.result_settings("distill") | deciding(self.settings.from_teacher)
        data = {str(source): source.recorded for source in unlabeled if isinstance(source, InMemoryData)}
        return record | data | {"unlabeled": files_of(unlabeled)}  # data in memory is recorded itself

    @cached_property
    def teacher(self) -> Teacher:
        """The teacher, loaded on first access."""
        return Teacher.load(self.settings.teacher, self.plan.task, self.plan.training.device)

    def check(self) -> None:
        """Reject a student that does not exist, and tasks that cannot be distilled."""
        settings = self.settings
        if self.plan.task.teaching is None:
            raise SettingError.worded(
                "{task} is {!r}; distillation is for classification, regression, tagging, multiple choice and "
                "question answering.",
                self.plan.settings.task,
            )
        if settings.is_new_student:
            return
        try:
            check_available(settings.student, "student")
        except OSError as error:
            raise OSError(worded("{} A new student has a size: {}.", message_of(error), SIZE_NAMES)) from error
        student = Checkpoint(settings.student).check("student", needs_weights=not settings.from_scratch)
        student.refuse_quantized_weights()

    def read(self, task: Task) -> TaskRun:
        """Read the data, labeled and not, and check that teacher and student fit together."""
        unlabeled = [Source.of(data) for data in self.settings.unlabeled or ()]
        tokenizer: Any = None  # that of the student
        if name := self.settings.tokenizer:
            check_available(name, "tokenizer")
            tokenizer = load_tokenizer(Checkpoint(name))
            tokenizer.model_max_length = min(tokenizer.model_max_length, _POSITIONS)
        if self.settings.dry_run:
            Teacher.check(self.settings.teacher, self.plan.task)
        run = read_run(self.plan, task, tokenizer, unlabeled, self._labels)
        self._check_same_tokens(run)
        return run

    def _labels(self, task: Task, data: Sequence[tuple[Source, Sequence[Any]]]) -> Labels | None:
        """The teacher's classes, in the student's order if it has the same; other classes in the data are an error."""
        known: Labels | None
        if self.settings.dry_run:  # the teacher's weights are not needed, nor downloaded
            known = named(task, Labels.from_config(Checkpoint(self.settings.teacher).config))
            known = known if task.names_outputs else None
        else:
            known = self.teacher.labels_of(task)
        if known is None:
            return None
        for source, examples in data:
            try:
                task.with_names(examples, known, source)
            except ValueError as error:
                template = "{} was fine-tuned with other labels than the data has: {}"
                raise ValueError(worded(template, self.settings.teacher, message_of(error))) from None
        return known if self.settings.is_new_student else in_order_of(task, self.plan.settings.model, known)

    def _check_same_tokens(self, run: TaskRun) -> None:
        """Reject a student with other tokens than the teacher if a loss compares them token by token."""
        settings, task = self.settings, run.task
        wanted = [name for name in ("hidden_state_weight", "relation_weight") if getattr(settings, name)]
        if wanted and not teaching_of(task).has_hidden_states:
            raise SettingError.worded(
                "{:option} is {}; there is no such loss for multiple choice.", wanted[0], getattr(settings, wanted[0])
            )
        compares = worded("{:option} compares", wanted[0]) if wanted else "the task's answers compares"
        if settings.dry_run or (not wanted and not teaching_of(task).compares_tokens):
            return
        teacher = self.teacher.found.tokenizer
        same = run.tokenizer.get_vocab() == teacher.get_vocab()
        for part in run.parts if same else ():
            read = self.teacher.read(task, part).inputs["input_ids"]
            same = same and all(map(np.array_equal, read, part.inputs["input_ids"]))
        if not same:
            raise SettingError.worded(
                "{} has another vocabulary than {}, and {} token with token; expected a student with the teacher's "
                "tokenizer.",
                settings.tokenizer or self.plan.settings.model,
                settings.teacher,
                compares,
            )

    def files(self, run: TaskRun) -> list[str]:
        """Files whose contents determine the result, including the teacher's."""
        unlabeled = files_of(self.settings.unlabeled or ())
        return [*super().files(run), *unlabeled, *Checkpoint(self.settings.teacher).deciding_files]

    def begun(self, run: TaskRun) -> TaskRun:
        """The run with the teacher's logits for its training data; logs the teacher's metrics."""
        folder = Path(self.settings.output_dir) / TEACHER_OUTPUTS
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
            fitted = fitted_as(task, self.settings.teacher_task[1])
            predictions = fitted.predict(outputs, read, teacher.found.labels)
            found = fitted.measures(predictions, read.examples).scores()
            self.of_teacher |= {metric_of(name, metric): value for metric, value in found.items()}
        self.parameters["teacher"] = teacher.found.model.num_parameters()
        worth = f", {metric} {self.of_teacher[metric]:.4g}" if (metric := self.plan.metric) in self.of_teacher else ""
        sizes = {name: f"{count:,}" for name, count in self.parameters.items()}
        logger.info("Teacher: %s, %s parameters%s.", self.settings.teacher, sizes["teacher"], worth)
        logger.info("Student: %s, %s parameters.", self.settings.student, sizes["student"])
        if not (self.settings.learns_layers or self.settings.teacher_embeddings):
            del self.teacher  # no longer needed
        return replace(run, train=joined(taught))

    def targets(self, run: TaskRun) -> ArrayLike:
        """The teacher's numbers; a text may lack a label."""
        return np.stack(run.train.inputs[SOFT_TARGETS])

    def new_config(self, run: TaskRun) -> MyBertConfig | None:
        """The configuration of a new student; None for one that exists."""
        if not self.settings.is_new_student:
            return None
        return MyBertConfig(
            **fields_of_size(self.settings.student),
            vocab_size=len(run.tokenizer),
            max_position_embeddings=max(_POSITIONS, run.task.max_length),
            pad_token_id=run.tokenizer.pad_token_id,
        )

    def start(self, run: TaskRun, plan: FinetunePlan, approach: Approach, seed: int) -> StartingModel:
        """The student at the start of training."""
        model, new = starting_model(run, plan, approach, seed, self.new_config(run))
        if self.settings.teacher_embeddings:
            found = self.teacher.found
            init_embeddings_from_teacher(model, found.model, run.tokenizer, found.tokenizer)
        if (layers_learned := self._layer_losses()) is not None:
            layers_learned.check(model)
        self.parameters["student"] = model.num_parameters()
        return model, new

    def empty(self, run: TaskRun, plan: FinetunePlan) -> PreTrainedModel:
        """The student at the start of training, without weights; its relations must fit the teacher's."""
        student = super().empty(run, plan)
        if self.settings.relation_weight:
            with torch.device("meta"):
                relation_heads(run.task.auto_class.from_config(Checkpoint(self.settings.teacher).config), student)
        return student

    def _layer_losses(self) -> LayerLosses | None:
        settings = self.settings
        if not settings.learns_layers:
            return None
        return LayerLosses(
            self.teacher.found.model,
            settings.hidden_state_weight,
            settings.relation_weight,
        )

    def trainer(self, run: TaskRun, plan: FinetunePlan, args: TrainingArguments, **settings: Any) -> TaskTrainer:
        """The trainer of the student."""
        own = self.settings
        loss = DistillationLoss(run.task.loss, own.distillation_temperature, own.hard_label_weight)
        return DistillationTrainer(run, plan, args, loss, self._layer_losses(), **settings)

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
        return [Comparison(f"The teacher, {plain_text(self.settings.teachers_name)}, and this model.", rows)]

    def run(self) -> dict[str, Any]:
        """Train, measure, write and compare; see `distill`."""
        result = super().run()
        if result == {"interrupted": True}:
            return result
        metric = self.plan.metric
        student = {name: result[name] for name in self.of_teacher if name in result}
        if self.plan.training.should_save:
            report = {
                "teacher": {"name": self.settings.teacher, "metrics": self.of_teacher},
                "student": {"metrics": student},
                "parameters": self.parameters,
            }
            write_json(Path(self.settings.output_dir) / DISTILLATION, report)
        if metric in student and self.of_teacher[metric]:
            logger.info(
                "%s %.4g, %.3g %% of the teacher's %.4g, with %s parameters instead of %s.",
                *(metric, student[metric], 100 * student[metric] / self.of_teacher[metric], self.of_teacher[metric]),
                *(f"{self.parameters[name]:,}" for name in ("student", "teacher")),
            )
        return result | {"teacher": self.of_teacher}
