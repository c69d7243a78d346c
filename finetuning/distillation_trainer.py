"""The teacher and what its student learns: outputs, stored in parts that survive an interruption; losses; trainer.

Logits: Hinton et al. (2015), section 2: the cross-entropy with the teacher's probabilities at a temperature, times its
square, so that its fraction of the gradient does not depend on the temperature.

Hidden states: Jiao et al. (2020), "TinyBERT", section 3.1 (equations 8 and 9). Relations: Wang et al. (2021),
"MiniLMv2", section 3.1: queries with queries, keys with keys, values with values. Queries with keys (attention itself)
and values with values: Wang et al. (2020), "MiniLM", sections 3.1 and 3.2. The teacher then runs together with the
student on the same tokens.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from torch import nn
from torch.nn.functional import kl_div
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments
from transformers.trainer_utils import TrainOutput

from ..files.checkpoint import Checkpoint
from ..files.errors import SettingError
from ..files.moves import finish_all_moves
from ..files.output import written_beside
from ..files.progress import progress_bar
from ..files.text import new_digest
from ..modeling_mybert.losses_mybert import full_precision
from .data import LABEL_ARGUMENTS, WINDOW_WEIGHT, Labels, TaskData
from .features import FeatureTaggerConfig
from .heads import attention_projections, encoder_layers, other_head_error
from .prediction.predictor import FinetunedModel, load_finetuned_model
from .tasks.losses import SOFT_TARGETS, ItemLoss, Teaching, tables_of
from .tasks.steps import network_outputs, trained_classes
from .tasks.task import Task
from .training.plan import FinetunePlan
from .training.preparation import TaskRun
from .training.trainer import TaskLoss, TaskTrainer, weighted_sum

logger = logging.getLogger(__name__)

TEACHER_OUTPUTS = "teacher_outputs"
"""Folder, in that of the run, with the teacher's outputs."""

SEQUENCES_OF_A_PART = 1024
"""Number of sequences sorted by length together and written as one file, the most that an interruption loses."""

_DEVIATION = 3  # times that of random weights, so that words outweigh the position embeddings added to them


@dataclass(frozen=True)
class Teacher:
    """A fine-tuned model to learn from."""

    found: FinetunedModel

    @classmethod
    def load(cls, name: str, task: Task, device: torch.device) -> Teacher:
        """Load a teacher for a task; one without its head, or with another kind of head, is an error."""
        return cls(load_finetuned_model(task, cls.check(name, task), device))

    @staticmethod
    def check(name: str, task: Task) -> Checkpoint:
        """Check that a model's configuration is that of a teacher for a task; returns its checkpoint."""
        checkpoint = Checkpoint(name)
        config = checkpoint.config
        if isinstance(config, FeatureTaggerConfig):
            raise ValueError(
                f"{name} is a tagger on frozen features; expected a teacher whose encoder was fine-tuned."
            )
        problem, wanted = getattr(config, "problem_type", None), task.config_fields(None).get("problem_type")
        if problem is not None and wanted is not None and problem != wanted:
            raise ValueError(f"{name} was fine-tuned for {problem}; expected a teacher for {wanted}, as the task is.")
        if error := other_head_error(name, config, task.auto_class, task.pipeline):
            raise error
        trained_classes(task, name, config)
        return checkpoint

    def read(self, task: Task, data: TaskData) -> TaskData:
        """The examples of data, tokenized for the teacher."""
        return task.encode(data.examples, self.labels_of(task), self.found.tokenizer, data.source)

    def labels_of(self, task: Task) -> Labels | None:
        """The names of its outputs, if the data gives them; other names in the configuration are ignored."""
        return self.found.labels if task.names_outputs else None

    @cached_property
    def _digest(self) -> bytes:
        """A digest of its configuration and weights."""
        digest = new_digest()
        digest.update(self.found.model.config.to_json_string().encode())
        for name, tensor in sorted(self.found.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.digest()

    def fingerprint(self, data: TaskData) -> str:
        """A fingerprint of the teacher and the data."""
        digest = new_digest()
        digest.update(self._digest)
        for name in sorted(set(data.inputs) & set(self.found.tokenizer.model_input_names)):
            read = [name, SEQUENCES_OF_A_PART, data.inputs[name]]
            digest.update(json.dumps(read, default=np.ndarray.tolist).encode())
        return digest.hexdigest()

    def outputs(self, task: Task, data: TaskData, folder: Path) -> list[np.ndarray]:
        """The `tables_of` outputs for data, read from the folder, or computed by all processes and stored there."""
        state, fingerprint = PartialState(), self.fingerprint(data)
        starts = range(0, len(data), SEQUENCES_OF_A_PART)
        files = [folder / f"{fingerprint}-{number:05d}.safetensors" for number in range(len(starts))]
        if state.is_main_process and folder.is_dir():
            finish_all_moves(folder)  # of a call that was killed while writing
        state.wait_for_everyone()
        if state.is_main_process and not all(file.is_file() for file in files):  # there may be no progress bar
            logger.info("The teacher reads %s, %s examples.", data.source, f"{len(data):,}")
        shown = {"desc": f"Teacher on {data.source}", "unit_scale": SEQUENCES_OF_A_PART, "delay": 2}
        for number, start in enumerate(progress_bar(starts, disable=not state.is_main_process or None, **shown)):
            if number % state.num_processes == state.process_index and not files[number].is_file():
                self._write(task, data, start, files[number])
        state.wait_for_everyone()
        return [row for file in files for row in _read_part(file)]

    def _write(self, task: Task, data: TaskData, start: int, file: Path) -> None:
        """Compute and write a part."""
        end = start + SEQUENCES_OF_A_PART
        part = replace(data, inputs={name: values[start:end] for name, values in data.inputs.items()})
        outputs = network_outputs(task, part, self.found.model, self.found.tokenizer)
        rows = tables_of(teaching_of(task).learned(self.found.task, outputs), part)
        tensors = {"logits": np.concatenate(rows), "rows": np.array([len(row) for row in rows])}
        with written_beside(file) as path:
            save_file(tensors, path)


def _read_part(file: Path) -> Sequence[np.ndarray]:
    try:
        part: Mapping[str, np.ndarray] = load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} is not a complete safetensors file ({error}); delete it, and the same call computes it again."
        ) from error
    return np.split(part["logits"], np.cumsum(part["rows"])[:-1])


@torch.no_grad()
def init_embeddings_from_teacher(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokenizer_of_teacher: PreTrainedTokenizerBase,
) -> int:
    """Initialize word embeddings with the teacher's principal components; returns the number of common pieces."""
    known = tokenizer_of_teacher.get_vocab()
    both = [(own, known[piece]) for piece, own in sorted(tokenizer.get_vocab().items()) if piece in known]
    if not both:
        raise SettingError.worded(
            "{teacher_embeddings} is set, but the vocabularies of student and teacher share no piece."
        )
    own, of_teacher = torch.tensor(both).T
    weights = student.get_input_embeddings().weight
    states = teacher.get_input_embeddings().weight.cpu()[of_teacher].double()  # MPS has no double precision
    states = states - states.mean(0)
    _, directions = torch.linalg.eigh(states.T @ states)  # the one with the largest variance is the last
    width = min(weights.shape[1], states.shape[1])
    found = torch.zeros(len(own), weights.shape[1], dtype=torch.float64)
    found[:, :width] = states @ directions.flip(1)[:, :width]
    length = _DEVIATION * student.config.initializer_range * weights.shape[1] ** 0.5
    found *= length / found.norm(dim=1).mean()
    # Embeddings of pieces that the teacher lacks do not change.
    weights[own.to(weights.device)] = found.to(weights)
    return len(both)


def teaching_of(task: Task) -> Teaching:
    """How a student learns a task that can be distilled."""
    assert task.teaching is not None
    return task.teaching


def with_soft_targets(
    task: Task, data: TaskData, read: TaskData, tables: Sequence[np.ndarray], columns: Sequence[int] | None = None
) -> TaskData:
    """Add the teacher's logits for the same examples, read as `read`, to a student's data."""
    # For each class of the student, its index in the teacher's.
    if columns is not None:
        tables = [table[:, columns] for table in tables]
    return replace(data, inputs={**data.inputs, **teaching_of(task).targets(task, data, read, tables)})


# What the student learns.

PROJECTIONS = "hidden_state_projections"
"""Attribute of a student in training: linear maps from its width to the teacher's, one for each state."""

LAYER_LOSSES = "layer_losses"
"""Key in a student's outputs: the loss of each sequence (B,)."""

_READ = ("input_ids", "attention_mask", "token_type_ids")


class DistillationLoss(TaskLoss):
    """The loss of a student; an evaluation uses only labels."""

    # For each item its label has the weight `hard_label_weight`, in [0, 1], and the teacher the rest; for an item
    # without a label the teacher has all the weight. The temperature, above 0, divides both logits. Regression has
    # none: its loss is the squared error. A batch has the teacher's logits as `SOFT_TARGETS`, (B, K) or (B, L, K), NaN
    # where missing, unless it is evaluated.
    def __init__(self, items: ItemLoss, temperature: float, hard_label_weight: float) -> None:
        super().__init__(items)
        self.temperature = temperature
        self.hard_label_weight = hard_label_weight

    def __call__(
        self, outputs: Any, batch: Mapping[str, torch.Tensor], num_items_in_batch: Any = None
    ) -> torch.Tensor:
        """The loss of a batch; `num_items_in_batch` is the sum of `count` over the optimizer step, or None."""
        counts = self.count(batch) if num_items_in_batch is None else num_items_in_batch
        items, sequences, labeled, labeled_items = counts
        if SOFT_TARGETS not in batch:
            return super().__call__(outputs, batch, items)
        logits, targets, shares = self.items.logits(outputs), batch[SOFT_TARGETS], batch.get(WINDOW_WEIGHT)
        soft = self.items.distance(logits, targets, self.temperature)
        total = torch.zeros((), device=logits.device)
        if not batch.keys().isdisjoint(LABEL_ARGUMENTS):
            has_label = self.items.labeled(batch)
            hard = weighted_sum(self.items.of_labels(logits, batch), has_label, shares)
            # Labels of more pieces than the teacher has logits for count no more than if they were of these.
            total = self.hard_label_weight * hard * labeled_items / labeled.where(labeled > 0, 1)
            soft = soft * (1 - self.hard_label_weight * has_label.float())
        loss = (total + weighted_sum(soft, self.counted(batch), shares)) / items
        if (each := outputs.get(LAYER_LOSSES)) is not None:
            loss = loss + (each if shares is None else each * shares).sum() / sequences
        return loss

    def count(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The weighted numbers of items, sequences, labels, and labels of items: the losses' divisors (4,)."""
        shares, counted = batch.get(WINDOW_WEIGHT), self.counted(batch)
        labeled = torch.zeros_like(counted) if batch.keys().isdisjoint(LABEL_ARGUMENTS) else self.items.labeled(batch)
        sequences = torch.ones(len(counted), dtype=torch.bool, device=counted.device)
        masks = (counted, sequences, labeled, labeled & counted)
        return torch.stack([weighted_sum(mask.float(), mask, shares) for mask in masks])

    def counted(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Which items count: those with the teacher's logits, or in an evaluation with a label."""
        if SOFT_TARGETS not in batch:
            return super().counted(batch)
        return self.items.taught(batch[SOFT_TARGETS])


@dataclass(eq=False)
class LayerLosses:
    """Losses, in float32 or float64, on hidden states and on relations of the last layers."""

    # The student's hidden state i of M (0 is the embeddings) learns from the teacher's hidden state i N / M of N,
    # through a linear map that is trained with it and then discarded.
    teacher: PreTrainedModel  # in eval mode, on the student's device
    hidden_state_weight: float  # of the mean squared error, at least 0
    relation_weight: float  # of the divergence, summed over relations, at least 0
    # Makes the context of mixed precision in which both models run.
    autocast: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext, init=False)

    def check(self, student: PreTrainedModel) -> None:
        """Check that the relations of student and teacher can be computed."""
        if self.relation_weight:
            relation_heads(self.teacher, student)

    def attach(self, student: PreTrainedModel, seed: int) -> None:
        """Add `LAYER_LOSSES` to a student's outputs whenever its hidden states are requested."""
        self.student = student
        # The losses are part of the outputs, so that wrappers such as DDP know which parameters they depend on.
        self._hook = student.register_forward_hook(self._add_to_outputs, with_kwargs=True)
        if self.hidden_state_weight:
            generator = torch.Generator().manual_seed(seed)
            width, wanted = student.config.hidden_size, self.teacher.config.hidden_size
            count, dtype = student.config.num_hidden_layers + 1, student.dtype
            maps = [nn.Linear(width, wanted, bias=False, dtype=dtype) for _ in range(count)]
            for each in maps:
                nn.init.normal_(each.weight, std=width**-0.5, generator=generator)
            # As part of the student the linear maps are trained, and saved in checkpoints.
            student.add_module(PROJECTIONS, nn.ModuleList(maps))

    def detach(self) -> None:
        """Undo `attach`."""
        self._hook.remove()
        if self.hidden_state_weight:
            delattr(self.student, PROJECTIONS)

    def _add_to_outputs(self, student: nn.Module, args: Any, inputs: Mapping[str, Any], outputs: Any) -> Any:
        if not inputs.get("output_hidden_states"):
            return outputs
        return {**outputs, LAYER_LOSSES: self(outputs["hidden_states"], inputs)}

    def __call__(self, hidden_states: Sequence[torch.Tensor], inputs: Mapping[str, Any]) -> torch.Tensor:
        """The loss of each sequence (B,), given the student's hidden states, embeddings first, each (B, L, D)."""
        read = {name: inputs[name] for name in _READ if name in inputs}
        with torch.no_grad(), self.autocast():
            wanted = self.teacher.base_model(**read, output_hidden_states=True).hidden_states
        mask = read["attention_mask"].bool()
        loss = torch.zeros(len(mask), device=mask.device)
        if self.hidden_state_weight:
            loss = loss + self.hidden_state_weight * self._of_states(hidden_states, wanted, mask)
        if self.relation_weight:
            loss = loss + self.relation_weight * self._of_relations(hidden_states[-2], wanted[-2], mask)
        return loss

    def _of_states(
        self, found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        maps = getattr(self.student, PROJECTIONS)
        last = len(found) - 1
        places = [round(number * (len(wanted) - 1) / last) for number in range(last + 1)]
        with self.autocast():
            said = [map_(state) for map_, state in zip(maps, found, strict=True)]
        each = [
            _mean_of_tokens((full_precision(state) - wanted[place]).square().mean(-1), mask)
            for state, place in zip(said, places, strict=True)
        ]
        return torch.stack(each).mean(0)

    def _of_relations(self, found: torch.Tensor, wanted: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """The divergence of relations, from the inputs of both models' last layers (B, L, D)."""
        heads = relation_heads(self.teacher, self.student)
        with self.autocast():
            with torch.no_grad():
                right = [part(wanted) for part in attention_projections(encoder_layers(self.teacher)[-1])]
            own = [part(found) for part in attention_projections(encoder_layers(self.student)[-1])]
        total = torch.zeros(len(mask), device=mask.device)
        for expected_vectors, vectors in zip(right, own, strict=True):  # queries, keys, values, as in MiniLMv2
            expected = _log_relations(expected_vectors, heads, mask)
            said = _log_relations(vectors, heads, mask)
            divergence = kl_div(said, expected, reduction="none", log_target=True)
            total = total + _mean_of_tokens(divergence.sum(-1).mean(1), mask)  # over keys, then heads: (B, L)
        return total


def relation_heads(teacher: PreTrainedModel, student: PreTrainedModel) -> int:
    """The number of parts of split vectors: as many as fit, at most the teacher's heads."""
    # The width of queries is less than the hidden size if heads were pruned.
    queries: list[Any] = [attention_projections(encoder_layers(model)[-1])[0] for model in (teacher, student)]
    widths = [len(query.weight) for query in queries]
    choices = range(teacher.config.num_attention_heads, 0, -1)
    return next(heads for heads in choices if not any(width % heads for width in widths))


def _log_relations(vectors: torch.Tensor, heads: int, mask: torch.Tensor) -> torch.Tensor:
    """Log-softmax over tokens of scaled dot products of vectors (B, L, D) split into parts: (B, H, L, L)."""
    parts = full_precision(vectors).unflatten(-1, (heads, -1)).transpose(1, 2)
    scores = parts @ parts.transpose(-1, -2) / parts.shape[-1] ** 0.5
    return scores.masked_fill(~mask[:, None, None, :], torch.finfo(scores.dtype).min).log_softmax(-1)


def _mean_of_tokens(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of (B, L) over tokens, excluding padding: (B,)."""
    return values.masked_fill(~mask, 0.0).sum(-1) / mask.sum(-1)


def collate_soft_targets(collate: Callable[[list[Any]], Mapping[str, Any]], rows: list[Any]) -> dict[str, Any]:
    """A collator's batch with soft targets: (B, K), or (B, L, K) with NaN at padding."""
    batch = dict(collate([{name: row[name] for name in row if name != SOFT_TARGETS} for row in rows]))
    if SOFT_TARGETS in rows[0]:
        targets = [torch.as_tensor(row[SOFT_TARGETS], dtype=torch.float32) for row in rows]
        batch[SOFT_TARGETS] = pad_sequence(targets, batch_first=True, padding_value=torch.nan)
    return batch


class DistillationTrainer(TaskTrainer):
    """`TaskTrainer` whose training data has soft targets."""

    of_the_loss = (*TaskTrainer.of_the_loss, SOFT_TARGETS)

    def __init__(
        self,
        run: TaskRun,
        plan: FinetunePlan,
        args: TrainingArguments,
        loss: DistillationLoss,
        layers: LayerLosses | None = None,  # attached to the model during training
        **kwargs: Any,
    ) -> None:
        args.remove_unused_columns = False  # soft targets are for the loss, not for the model
        self.loss = loss
        self.layers = layers
        if layers is not None:
            layers.attach(kwargs["model"], args.seed)
        super().__init__(run, plan, args, compute_loss_func=loss, **kwargs)
        if layers is not None:
            layers.autocast = self.accelerator.autocast  # its hook runs after the student's own
        self.data_collator = partial(collate_soft_targets, self.data_collator)

    def with_all_for_the_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The model inputs of a batch, hidden states requested if a loss is on them; the loss's inputs as `labels`."""
        wants_states = self.layers is not None and SOFT_TARGETS in inputs
        return super().with_all_for_the_loss(inputs) | ({"output_hidden_states": True} if wants_states else {})

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """`Trainer.train`; then remove the parts that the student has only for training."""
        output = super().train(*args, **kwargs)
        if self.layers is not None:
            self.layers.detach()
        return output
