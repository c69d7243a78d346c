"""The loss of a student: on the teacher's logits, the data's labels and, optionally, layers.

Hinton et al. (2015), section 2: the cross-entropy with the teacher's probabilities at a temperature, times its square,
so that its share of the gradient does not depend on the temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from ...modeling_mybert import IGNORE_INDEX
from ..tasks.task import Objective
from .layer_losses import LAYER_LOSSES


@dataclass(frozen=True)
class Lesson:
    """The inputs of a batch's loss, other than the student's outputs."""

    inputs: Mapping[str, Any]  # the student's model inputs
    labels: Mapping[str, torch.Tensor]  # `labels`, or `start_positions` and `end_positions`; empty if there are none
    # The teacher's logits, (B, K) or (B, L, K), NaN where missing; None in an evaluation.
    targets: torch.Tensor | None = None
    shares: torch.Tensor | None = None  # weight of each sequence (B,); None for 1


class DistillationLoss:
    """The loss of a student; an evaluation uses only labels."""

    # For each item (a text, a word, the answer in a window) its label has the weight `hard_label_weight`, in [0, 1],
    # and the teacher the rest; for an item without a label the teacher has all the weight. The temperature, above 0,
    # divides both logits. Regression has none: its loss is the squared error.
    def __init__(self, objective: Objective, temperature: float, hard_label_weight: float) -> None:
        self.objective = objective
        self.temperature = temperature
        self.hard_label_weight = hard_label_weight

    def __call__(self, outputs: Any, lesson: Lesson, num_items_in_batch: torch.Tensor | None = None) -> torch.Tensor:
        """The loss of a batch; `num_items_in_batch` is the sum of `count` over the optimizer step, or None."""
        logits = self._logits(outputs)
        has_label = self._labelled(lesson)
        items, sequences = self.count(lesson) if num_items_in_batch is None else num_items_in_batch
        total = torch.zeros((), device=logits.device)
        if has_label is not None:
            weight = 1.0 if lesson.targets is None else self.hard_label_weight
            total = total + weight * self._sum(self._hard(logits, lesson.labels), has_label, lesson)
        if lesson.targets is None:
            return total / items
        soft = self.soft(logits, lesson.targets)
        if has_label is not None:
            soft = soft * (1 - self.hard_label_weight * has_label.float())
        loss = (total + self._sum(soft, self._taught(lesson.targets), lesson)) / items
        if (each := outputs.get(LAYER_LOSSES)) is not None:
            loss = loss + (each if lesson.shares is None else each * lesson.shares).sum() / sequences
        return loss

    def count(self, lesson: Lesson) -> torch.Tensor:
        """The weighted numbers of items and of sequences, by which the losses are divided (2,)."""
        there = self._labelled(lesson) if lesson.targets is None else self._taught(lesson.targets)
        assert there is not None
        sequences = torch.ones(len(there), device=there.device) if lesson.shares is None else lesson.shares.float()
        return torch.stack([self._sum(torch.ones(there.shape, device=there.device), there, lesson), sequences.sum()])

    def soft(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """The loss of each item against the teacher's logits, both (..., K), or (B, L, 2) for a span."""
        if self.objective == "value":
            return (logits - targets.nan_to_num()).square().squeeze(-1)
        is_there = ~targets.isnan()
        logits, targets = logits / self.temperature, targets.nan_to_num() / self.temperature
        if self.objective == "labels":
            each = binary_cross_entropy_with_logits(logits, targets.sigmoid(), reduction="none").mean(-1)
            return each * self.temperature**2
        axis = -1
        if self.objective == "span":  # softmax over tokens, excluding padding
            axis, nothing = 1, torch.finfo(logits.dtype).min
            logits, targets = logits.masked_fill(~is_there, nothing), targets.masked_fill(~is_there, nothing)
        each = -(targets.softmax(axis) * logits.log_softmax(axis)).sum(axis)
        each = each.mean(-1) if self.objective == "span" else each
        return each * self.temperature**2

    def _logits(self, outputs: Any) -> torch.Tensor:
        if self.objective == "span":
            return torch.stack([outputs["start_logits"], outputs["end_logits"]], dim=-1).float()
        return outputs["logits"].float()

    def _hard(self, logits: torch.Tensor, labels: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The loss of each item against its label; undefined for items without one."""
        if self.objective == "span":
            ends = [labels[f"{end}_positions"] for end in ("start", "end")]
            return torch.stack([_cross_entropy(logits[..., end], ends[end]) for end in (0, 1)]).mean(0)
        wanted = labels["labels"]
        if self.objective == "classes":
            return _cross_entropy(logits, wanted)
        if self.objective == "value":
            return (logits.squeeze(-1) - wanted.nan_to_num().float()).square()
        return binary_cross_entropy_with_logits(logits, wanted.nan_to_num().float(), reduction="none").mean(-1)

    def _labelled(self, lesson: Lesson) -> torch.Tensor | None:
        """Which items have a label."""
        if not lesson.labels:
            return None
        labels = lesson.labels["start_positions" if self.objective == "span" else "labels"]
        if self.objective == "labels":
            return ~labels.isnan().any(-1)
        return ~labels.isnan() if labels.is_floating_point() else labels != IGNORE_INDEX

    def _taught(self, targets: torch.Tensor) -> torch.Tensor:
        """Which items have the teacher's logits."""
        if self.objective == "span":
            return torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        return ~targets.isnan().any(-1)

    def _sum(self, each: torch.Tensor, there: torch.Tensor, lesson: Lesson) -> torch.Tensor:
        """The sum over the marked items, weighted by their sequences."""
        each = each.masked_fill(~there, 0.0)
        if lesson.shares is not None:
            each = each * lesson.shares.reshape(-1, *[1] * (each.ndim - 1))
        return each.sum()


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each item (...), with logits (..., C)."""
    flat = cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORE_INDEX)
    return flat.view(labels.shape)
