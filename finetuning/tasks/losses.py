"""What heads learn: the loss of each item (a text, a word, an answer), against its label and against a teacher."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ...modeling_mybert import IGNORE_INDEX
from ...modeling_mybert.losses_mybert import full_precision
from ..data import WINDOW_WEIGHT, TaskData

SOFT_TARGETS = "soft_targets"
"""Extra key of training inputs: the teacher's logits (K,) or (tokens, K), NaN where missing."""

Batch = Mapping[str, torch.Tensor]
Tables = Sequence[np.ndarray]  # a teacher's outputs, as stored: (rows, K) for each sequence


@dataclass(frozen=True)
class ItemLoss(ABC):
    """The loss of each item of a batch, before it is weighted and averaged."""

    name: ClassVar[str]
    """What an item has, for messages."""
    has_temperature: ClassVar[bool] = True  # whether a temperature divides logits in distillation
    has_class_weights: ClassVar[bool] = False  # whether classes may have weights, and labels be smoothed
    is_regression: ClassVar[bool] = False
    has_independent_outputs: ClassVar[bool] = False  # whether a linear probe fits each output alone
    is_never_the_models_own: ClassVar[bool] = False  # whether labels may be missing in a way that no head expects

    def logits(self, outputs: Any) -> torch.Tensor:
        """The logits of each item (..., K)."""
        return full_precision(outputs["logits"])

    @abstractmethod
    def labeled(self, batch: Batch) -> torch.Tensor:
        """Which items have a label."""

    def similarity(self, labels: torch.Tensor, others: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        """How alike two sets of labels are, in [0, 1], of shape (labels, others): 1 for equal classes, else 0.

        `spread` is the difference between largest and smallest label of the training data, by column.
        """
        return (labels[:, None] == others).float()

    @abstractmethod
    def of_labels(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        """The loss of each item against its label; undefined for items without one."""

    def taught(self, targets: torch.Tensor) -> torch.Tensor:
        """Which items have a teacher's logits, of shape (..., K), NaN where missing."""
        return ~targets.isnan().any(-1)

    @abstractmethod
    def distance(self, logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
        """The loss of each item against a teacher's logits, both (..., K)."""

    def head_bias(self, data: TaskData, size: int) -> np.ndarray | None:
        """The first bias (size,) of a new output layer, by how frequent labels are; None for the usual one."""
        return None


@dataclass(frozen=True)
class ClassLoss(ItemLoss):
    """Cross-entropy of one of several classes."""

    name: ClassVar[str] = "classes"
    has_class_weights: ClassVar[bool] = True
    class_weights: torch.Tensor | None = None  # (C,)
    label_smoothing: float = 0.0

    def labeled(self, batch: Batch) -> torch.Tensor:
        return batch["labels"] != IGNORE_INDEX

    def of_labels(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        return self._cross_entropy(logits, batch["labels"])

    def _cross_entropy(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Cross-entropy of each item (...), with logits (..., C)."""
        weights = None if self.class_weights is None else self.class_weights.to(logits)
        flat = logits.flatten(0, -2), labels.flatten(), weights
        how: Any = {"reduction": "none", "ignore_index": IGNORE_INDEX, "label_smoothing": self.label_smoothing}
        return cross_entropy(*flat, **how).view(labels.shape)

    def distance(self, logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
        logits, targets = logits / temperature, targets.nan_to_num().to(logits.dtype) / temperature
        return -(targets.softmax(-1) * logits.log_softmax(-1)).sum(-1) * temperature**2

    def head_bias(self, data: TaskData, size: int) -> np.ndarray | None:
        """The classes' log-frequencies; each count is one larger, so that all are finite."""
        counts = label_counts(data, size) + 1
        return np.log(counts / counts.sum())


@dataclass(frozen=True)
class SpanLoss(ClassLoss):
    """Mean cross-entropy of start and end of a span; logits are (B, L, 2)."""

    name: ClassVar[str] = "span"
    has_class_weights: ClassVar[bool] = False

    def logits(self, outputs: Any) -> torch.Tensor:
        return full_precision(torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1))

    def labeled(self, batch: Batch) -> torch.Tensor:
        return batch["start_positions"] != IGNORE_INDEX

    def of_labels(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        ends = batch["start_positions"], batch["end_positions"]
        return torch.stack([self._cross_entropy(logits[..., end], ends[end]) for end in (0, 1)]).mean(0)

    def taught(self, targets: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(targets), dtype=torch.bool, device=targets.device)

    def distance(self, logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
        """The distance of the probabilities over tokens, excluding padding, where targets are NaN."""
        is_padding, nothing = targets.isnan(), torch.finfo(logits.dtype).min
        targets = targets.nan_to_num().to(logits.dtype) / temperature
        logits = (logits / temperature).masked_fill(is_padding, nothing)
        targets = targets.masked_fill(is_padding, nothing)
        return -(targets.softmax(1) * logits.log_softmax(1)).sum(1).mean(-1) * temperature**2


@dataclass(frozen=True)
class LabelLoss(ItemLoss):
    """Mean binary cross-entropy of independent labels; labels are 0 and 1 (B, K), or NaN."""

    name: ClassVar[str] = "labels"
    has_independent_outputs: ClassVar[bool] = True

    def labeled(self, batch: Batch) -> torch.Tensor:
        return ~batch["labels"].isnan().any(-1)

    def similarity(self, labels: torch.Tensor, others: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        """The fraction of labels in common of those that one of the two texts has; 1 if neither has any."""
        labels, others = labels.nan_to_num().float(), others.nan_to_num().float()
        common = labels @ others.T
        either = labels.sum(1)[:, None] + others.sum(1) - common
        return torch.where(either > 0, common / either.clamp(min=1), 1.0)

    def of_labels(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        labels = batch["labels"].nan_to_num().to(logits.dtype)
        return binary_cross_entropy_with_logits(logits, labels, reduction="none").mean(-1)

    def distance(self, logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
        logits, targets = logits / temperature, targets.nan_to_num().to(logits.dtype) / temperature
        each = binary_cross_entropy_with_logits(logits, targets.sigmoid(), reduction="none").mean(-1)
        return each * temperature**2

    def head_bias(self, data: TaskData, size: int) -> np.ndarray | None:
        """The labels' log-odds; each count is one larger, so that a label without examples has a finite bias."""
        # A task of a few rare labels otherwise spends its training on learning how rare they are.
        labels = data.inputs["labels"]
        weights = np.asarray(data.inputs.get(WINDOW_WEIGHT, np.ones(len(labels))))
        rows = np.asarray(labels, dtype=np.float64)  # NaN without labels
        counts = weights @ np.nan_to_num(rows)
        return np.log(counts + 1) - np.log(weights @ ~np.isnan(rows) - counts + 1)


@dataclass(frozen=True)
class NumberLoss(ItemLoss):
    """Squared error of a number; labels are (B,), NaN where missing."""

    name: ClassVar[str] = "value"
    has_temperature: ClassVar[bool] = False
    is_regression: ClassVar[bool] = True
    has_independent_outputs: ClassVar[bool] = True

    def labeled(self, batch: Batch) -> torch.Tensor:
        return ~batch["labels"].isnan()

    def similarity(self, labels: torch.Tensor, others: torch.Tensor, spread: torch.Tensor) -> torch.Tensor:
        """1 for equal numbers, 0 for the smallest and the largest; of several, the mean of those that both have."""
        apart = (labels.float()[:, None] - others.float()).abs() / spread.clamp(min=torch.finfo(torch.float32).tiny)
        near = 1 - apart
        return near if near.ndim == 2 else near.nanmean(-1).nan_to_num()

    def of_labels(self, logits: torch.Tensor, batch: Batch) -> torch.Tensor:
        labels = batch["labels"].nan_to_num().to(logits.dtype)
        return (logits.reshape(labels.shape) - labels).square()

    def distance(self, logits: torch.Tensor, targets: torch.Tensor, temperature: float) -> torch.Tensor:
        return (logits - targets.nan_to_num().to(logits.dtype)).square().squeeze(-1)


def label_counts(data: TaskData, classes: int) -> np.ndarray:
    """The number of labels of each class, one per sequence or per token; windows of a text count as one label."""
    labels = np.concatenate([np.asarray(label).reshape(-1) for label in data.inputs["labels"]])
    weights = np.asarray(data.inputs.get(WINDOW_WEIGHT, np.ones(len(labels))))
    is_label = labels != IGNORE_INDEX
    return np.bincount(labels[is_label], weights[is_label], minlength=classes)


@dataclass(frozen=True)
class Teaching:
    """How a student learns from a teacher's outputs: one row of logits for each sequence."""

    compares_tokens: bool = False  # whether student and teacher must read the same tokens
    has_hidden_states: bool = True  # whether a student can learn hidden states, too

    def learned(self, task: Any, outputs: Any) -> Any:
        """What a student learns of the network's outputs."""
        return outputs

    def outputs(self, tables: Tables) -> Any:
        """The network's outputs, for `Task.predict`; the inverse of `tables_of`."""
        return [table[0] for table in tables]

    def targets(self, task: Any, data: TaskData, read: TaskData, tables: Tables) -> dict[str, Any]:
        """The `SOFT_TARGETS` of a student's data, of the same examples as the teacher's, `read`."""
        return {SOFT_TARGETS: list(np.concatenate(tables))}


class SpanTeaching(Teaching):
    """A row for each token, with the logits of start and end."""

    def outputs(self, tables: Tables) -> Any:
        return tuple([table[:, column] for table in tables] for column in (0, 1))

    def targets(self, task: Any, data: TaskData, read: TaskData, tables: Tables) -> dict[str, Any]:
        return {SOFT_TARGETS: list(tables)}


def tables_of(outputs: Any, data: TaskData) -> list[np.ndarray]:
    """A table for each sequence: (1, K), or (tokens, K) without padding; an answer's start and end are two columns."""
    values = [np.stack(row, axis=-1) for row in zip(*outputs, strict=True)] if isinstance(outputs, tuple) else outputs
    return [
        row[None] if row.ndim == 1 else row[: len(ids)]
        for row, ids in zip(values, data.inputs["input_ids"], strict=True)
    ]
