"""`Trainer` of a student, and its loss: on the teacher's logits, the data's labels and, optionally, layers.

Hinton et al. (2015), section 2: the cross-entropy with the teacher's probabilities at a temperature, times its square,
so that its share of the gradient does not depend on the temperature.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from transformers.trainer_utils import TrainOutput

from ...modeling_mybert import IGNORE_INDEX
from ..tasks.task import WINDOW_WEIGHT, Objective
from ..training.finetuning_arguments import FinetuningArguments
from ..training.preparation import TaskRun
from ..training.trainer import TaskTrainer
from .layer_losses import LAYER_LOSSES, LayerLosses
from .soft_targets import SOFT_TARGETS, collate_soft_targets


class DistillationLoss:
    """The loss of a student; an evaluation uses only labels."""

    # For each item (a text, a word, the answer in a window) its label has the weight `hard_label_weight`, in [0, 1],
    # and the teacher the rest; for an item without a label the teacher has all the weight. The temperature, above 0,
    # divides both logits. Regression has none: its loss is the squared error. A batch has the labels, if there are
    # some; the teacher's logits as `SOFT_TARGETS`, (B, K) or (B, L, K), NaN where missing, unless it is evaluated;
    # and as `WINDOW_WEIGHT` the weight of each sequence, unless that is 1.
    def __init__(self, objective: Objective, temperature: float, hard_label_weight: float) -> None:
        self.objective = objective
        self.temperature = temperature
        self.hard_label_weight = hard_label_weight

    def __call__(
        self, outputs: Any, batch: Mapping[str, torch.Tensor], num_items_in_batch: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The loss of a batch; `num_items_in_batch` is the sum of `count` over the optimizer step, or None."""
        logits, targets, shares = self._logits(outputs), batch.get(SOFT_TARGETS), batch.get(WINDOW_WEIGHT)
        has_label = self._labelled(batch)
        items, sequences = self.count(batch) if num_items_in_batch is None else num_items_in_batch
        total = torch.zeros((), device=logits.device)
        if has_label is not None:
            weight = 1.0 if targets is None else self.hard_label_weight
            total = total + weight * _sum(self._hard(logits, batch), has_label, shares)
        if targets is None:
            return total / items
        soft = self.soft(logits, targets)
        if has_label is not None:
            soft = soft * (1 - self.hard_label_weight * has_label.float())
        loss = (total + _sum(soft, self._taught(targets), shares)) / items
        if (each := outputs.get(LAYER_LOSSES)) is not None:
            loss = loss + (each if shares is None else each * shares).sum() / sequences
        return loss

    def count(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The weighted numbers of items and of sequences, by which the losses are divided (2,)."""
        shares = batch.get(WINDOW_WEIGHT)
        there = self._taught(batch[SOFT_TARGETS]) if SOFT_TARGETS in batch else self._labelled(batch)
        assert there is not None
        sequences = torch.ones(len(there), device=there.device) if shares is None else shares.float()
        return torch.stack([_sum(torch.ones(there.shape, device=there.device), there, shares), sequences.sum()])

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

    def _labelled(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor | None:
        """Which items have a label."""
        labels = batch.get("start_positions" if self.objective == "span" else "labels")
        if labels is None:
            return None
        if self.objective == "labels":
            return ~labels.isnan().any(-1)
        return ~labels.isnan() if labels.is_floating_point() else labels != IGNORE_INDEX

    def _taught(self, targets: torch.Tensor) -> torch.Tensor:
        """Which items have the teacher's logits."""
        if self.objective == "span":
            return torch.ones(len(targets), dtype=torch.bool, device=targets.device)
        return ~targets.isnan().any(-1)


def _sum(each: torch.Tensor, there: torch.Tensor, shares: torch.Tensor | None) -> torch.Tensor:
    """The sum over the marked items, weighted by their sequences."""
    each = each.masked_fill(~there, 0.0)
    if shares is not None:
        each = each * shares.reshape(-1, *[1] * (each.ndim - 1))
    return each.sum()


def _cross_entropy(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Cross-entropy of each item (...), with logits (..., C)."""
    flat = cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction="none", ignore_index=IGNORE_INDEX)
    return flat.view(labels.shape)


class DistillationTrainer(TaskTrainer):
    """`TaskTrainer` whose training data has soft targets."""

    of_the_loss = (*TaskTrainer.of_the_loss, SOFT_TARGETS)

    def __init__(
        self,
        run: TaskRun,
        args: FinetuningArguments,
        loss: DistillationLoss,
        layers: LayerLosses | None = None,  # attached to the model during training
        **kwargs: Any,
    ) -> None:
        args.remove_unused_columns = False  # soft targets are for the loss, not for the model
        self.loss = loss
        self.layers = layers
        if layers is not None:
            layers.attach(kwargs["model"], args.seed)
        super().__init__(run, args, compute_loss_func=loss, **kwargs)
        if layers is not None:
            layers.autocast = self.accelerator.autocast  # its hook runs after the student's own
        self.data_collator = collate_soft_targets(self.data_collator)

    def with_all_for_the_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The model inputs of a batch, hidden states requested if a loss is on them; the loss's inputs as `labels`."""
        wants_states = self.layers is not None and SOFT_TARGETS in inputs
        return super().with_all_for_the_loss(inputs) | ({"output_hidden_states": True} if wants_states else {})

    def count_own(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """The numbers by which the losses of a step are divided, see `DistillationLoss.count`."""
        total = torch.stack([self.loss.count(batch) for batch in batches]).sum(0).to(device)
        if not self.args.average_tokens_across_devices or self.args.world_size == 1:
            return total
        return self.accelerator.gather(total[None]).sum(0)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """`Trainer.train`; then remove the parts that the student has only for training."""
        output = super().train(*args, **kwargs)
        if self.layers is not None:
            self.layers.detach()
        return output
