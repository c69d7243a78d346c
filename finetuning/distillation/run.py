"""Distillation from end to end: from a fine-tuned teacher and data to a student's folder (`mybert distill`)."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from ...files.checkpoint import Checkpoint, check_available
from ...files.output import write_json
from ...files.source import Source, files_of
from ...hub_card import Comparison, plain_text
from ...modeling_mybert import MyBertConfig
from ...modeling_mybert.configuration_mybert import fields_of_size
from ...runs import arguments_by_name
from ..data import Labels
from ..tasks import FillMaskTask, MultipleChoiceTask, NextSentenceTask
from ..tasks.task import Task
from ..training.finetuning_arguments import FinetuningArguments
from ..training.preparation import StartingModel, TaskRun, joined, load_tokenizer, read_run, starting_model
from ..training.run import Finetuning
from ..training.trainer import TaskTrainer
from .distillation_arguments import STUDENT_SIZES, DistillationArguments
from .teacher import (
    SOFT_TARGETS,
    TEACHER_OUTPUTS,
    Teacher,
    init_embeddings_from_teacher,
    outputs_of_rows,
    with_soft_targets,
)
from .trainer import DistillationLoss, DistillationTrainer, LayerLosses

logger = logging.getLogger(__name__)

DISTILLATION = "distillation.json"
_POSITIONS = 512  # minimum for a new student


def distill(arguments: DistillationArguments | None = None, **settings: Any) -> dict[str, Any]:
    """Train a student on a fine-tuned teacher's outputs for task data and unlabelled texts.

        >>> mybert.distill(teacher="my-sst2", student="tiny", unlabelled="reviews.txt", output_dir="my-tiny-sst2")

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
        if isinstance(arguments.resolve_task(), (NextSentenceTask, FillMaskTask)):
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
        """Read the data, labelled and not, and check that teacher and student fit together."""
        unlabelled = [Source.of(data) for data in self.arguments.unlabelled or ()]
        run = read_run(self.arguments, task, self._tokenizer(), unlabelled, self._labels)
        self._check_same_tokens(run)
        return run

    def _tokenizer(self) -> PreTrainedTokenizerBase:
        """The student's tokenizer."""
        arguments = self.arguments
        if not arguments.tokenizer:
            return load_tokenizer(arguments.model)
        check_available(arguments.tokenizer, "tokenizer")
        tokenizer = AutoTokenizer.from_pretrained(arguments.tokenizer, trust_remote_code=False)
        tokenizer.model_max_length = min(tokenizer.model_max_length, _POSITIONS)
        return tokenizer

    def _labels(self, task: Task, data: Sequence[tuple[Source, Sequence[Any]]]) -> Labels | None:
        """The teacher's classes, in the student's order if it has the same; other classes in the data are an error."""
        known = self.teacher.labels_of(task)
        if known is None:
            return None
        for source, examples in data:
            try:
                known.ids(sorted({label for example in examples for label in task.classes_of(example)}), source)
            except ValueError as error:
                raise ValueError(
                    f"{self.arguments.teacher} was fine-tuned with other labels than the data has: {error}"
                ) from None
        return known if self.arguments.is_new_student else task.in_order_of(self.arguments.model, known)

    def _check_same_tokens(self, run: TaskRun) -> None:
        """Reject a student with other tokens than the teacher if a loss compares them token by token."""
        arguments, task = self.arguments, run.task
        wanted = [name for name in ("hidden_state_weight", "relation_weight") if getattr(arguments, name)]
        if wanted and isinstance(task, MultipleChoiceTask):
            raise ValueError(
                f"{wanted[0]} is {getattr(arguments, wanted[0])}; there is no such loss for multiple choice."
            )
        wanted += ["the task's answers"] if task.objective == "span" else []
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
        unlabelled = files_of(arguments.unlabelled or ())
        return [*super().files(run), *unlabelled, *Checkpoint(arguments.teacher).deciding_files]

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
            outputs = outputs_of_rows(task, teacher.outputs(task, read, folder))
            found = teacher.scores(self.arguments.task_of_teacher(task), read, outputs)
            self.of_teacher |= {f"{name}_{metric}" if name else metric: value for metric, value in found.items()}
        self.parameters["teacher"] = teacher.parameters
        worth = f", {metric} {self.of_teacher[metric]:.4g}" if (metric := self._metric) in self.of_teacher else ""
        logger.info("Teacher: %s, %s parameters%s.", self.arguments.teacher, f"{teacher.parameters:,}", worth)
        logger.info("Student: %s, %s parameters.", self.arguments.student, f"{self.parameters['student']:,}")
        if not (self.arguments.learns_layers or self.arguments.teacher_embeddings):
            del self.teacher  # no longer needed
        return replace(run, train=joined(taught))

    def targets(self, run: TaskRun) -> Sequence[float]:
        """The teacher's numbers; a text may lack a label."""
        return np.concatenate(run.train.inputs[SOFT_TARGETS]).tolist()

    @property
    def _metric(self) -> str:
        return str(self.arguments.metric_for_best_model).removeprefix("eval_")

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
        if (layers_learnt := self._layer_losses()) is not None:
            layers_learnt.check(model)
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
        loss = DistillationLoss(run.task.objective, own.distillation_temperature, own.hard_label_weight)
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
        if set(result) == {"interrupted"}:
            return result
        metric = self._metric
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
