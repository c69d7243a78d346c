"""Losses, computed in float32 whatever the dtype of the network.

With `num_items_in_batch`, the loss is divided by that number, so that it is the batch's share of the mean over an
optimizer step. Means over single micro-batches would not add up to the gradients of one large batch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from transformers.utils.import_utils import is_tracing

IGNORE_INDEX = -100  # positions with this label are ignored in the loss


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Cross entropy over the labels that are not -100, in float32.

    Args:
        logits: (..., C).
        labels: Class ids (...), -100 at positions to ignore.
        num_items_in_batch: Labels of all micro-batches of an optimizer step; None for those of this batch.

    Returns:
        A scalar; over no labels see `mean_of`.
    """
    total = F.cross_entropy(
        logits.flatten(0, -2).float(), labels.flatten().long(), ignore_index=IGNORE_INDEX, reduction="sum"
    )
    if num_items_in_batch is None:
        num_items_in_batch = (labels != IGNORE_INDEX).sum()
    return mean_of(total, num_items_in_batch)


def mean_of(total: torch.Tensor, count: torch.Tensor | int) -> torch.Tensor:
    """The mean, from the sum over `count` labels.

    With no labels it is 0, with gradients of 0, if `total` requires gradients. Otherwise it is NaN, like any mean of
    nothing: `Trainer` skips NaN losses when it averages an evaluation's batches.
    """
    count = torch.as_tensor(count)
    return total / (count + (count == 0) if total.requires_grad else count)


def squared_error(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Mean squared error, in float32 (half precision would round the labels).

    Args:
        logits, labels: Of equal shape.
        num_items_in_batch: Values in all micro-batches of an optimizer step; None for those of this batch.
    """
    total = F.mse_loss(logits.float(), labels.float(), reduction="sum")
    return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


def binary_cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Binary cross entropy of independent labels, in float32.

    Args:
        logits: Of any shape.
        labels: Probabilities in [0, 1], usually 0 or 1, of the same shape.
        num_items_in_batch: Labels in all micro-batches of an optimizer step; None for those of this batch.
    """
    total = F.binary_cross_entropy_with_logits(logits.float(), labels.float(), reduction="sum")
    return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


def position_loss(
    scores: torch.Tensor, positions: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Cross entropy of a position in each sequence, as in transformers' BERT for question answering.

    Args:
        scores: (N, L), -inf where no position is possible.
        positions: (N,); negative ones count as 0, impossible ones and those of at least L are ignored.
        num_items_in_batch: Positions in all micro-batches of an optimizer step; None for those of this batch.

    Returns:
        A scalar; over no positions see `mean_of`.
    """
    length = scores.shape[1]
    positions = positions.long().clamp(min=0)
    scores_there = scores.gather(1, positions.clamp(max=length - 1)[:, None]).squeeze(1)
    labels = positions.masked_fill((positions >= length) | (scores_there == -torch.inf), IGNORE_INDEX)
    return cross_entropy(scores, labels, num_items_in_batch)


def padding_is_ignored(
    labels: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    unpad_inputs: bool | None = None,
    token_indices: torch.Tensor | None = None,
    **kwargs: Any,
) -> bool:
    """Whether no label (B, L) is at padding, so that padding may be removed from the computation.

    Args:
        labels: Class ids (B, L), -100 at positions to ignore.
        attention_mask: 1 at tokens, 0 at padding (B, L).
        unpad_inputs: The caller's answer. None looks at the values, which synchronizes with an accelerator.
        token_indices: If given, the caller guarantees that no label is at padding.
        **kwargs: Other arguments of the model, ignored.
    """
    if unpad_inputs is not None or token_indices is not None:
        return unpad_inputs is not False
    if labels is None or attention_mask is None or attention_mask.shape != labels.shape or is_tracing(labels):
        return True
    return not ((labels != IGNORE_INDEX) & (attention_mask == 0)).any()


__all__ = [
    "IGNORE_INDEX",
    "binary_cross_entropy",
    "cross_entropy",
    "mean_of",
    "padding_is_ignored",
    "position_loss",
    "squared_error",
]
