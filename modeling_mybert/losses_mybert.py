"""Losses, computed in float32, in half precision too, and in float64 in a network of float64.

With `num_items_in_batch`, the loss is divided by that number, so that it is the batch's fraction of the mean over an
optimizer step. Means over single micro-batches would not add up to the gradients of one large batch.
"""

from typing import Any

import torch
import torch.nn.functional as F
from transformers.utils.import_utils import is_tracing

from .hooks_mybert import scan
from .linear_mybert import gradient_of_states, gradient_of_weight, is_plain, linear, multiply

IGNORE_INDEX = -100  # positions with this label are ignored in the loss
_CHUNK = 7_500_000  # probabilities, 30 MB: above 32 MB each allocation gets new pages from Linux
_TYPES = (torch.float32, torch.bfloat16)  # dtypes of the products of `linear_cross_entropy`
_SMALLEST_PROBABILITY = 1e-30  # the logarithm of smaller ones is not exact


def full_precision(values: torch.Tensor) -> torch.Tensor:
    """Values in float32, but in float64 if they are: what losses are computed in."""
    return values if values.dtype == torch.float64 else values.float()


def cross_entropy(
    logits: torch.Tensor, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Cross entropy over the labels that are not -100, in `full_precision`.

    Args:
        logits: (..., C).
        labels: Class ids (...), -100 at positions to ignore.
        num_items_in_batch: Labels of all micro-batches of an optimizer step; None for those of this batch.

    Returns:
        A scalar; over no labels see `mean_of`.
    """
    scores = full_precision(logits.flatten(0, -2))
    total = F.cross_entropy(scores, labels.flatten().long(), ignore_index=IGNORE_INDEX, reduction="sum")
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


def value_loss(
    logits: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
    is_regression: bool = True,
) -> torch.Tensor:
    """Mean squared error, or binary cross entropy with labels in [0, 1], of logits and labels of equal shape.

    In `full_precision`: half precision would round the labels.
    """
    function = F.mse_loss if is_regression else F.binary_cross_entropy_with_logits
    logits = full_precision(logits)
    total = function(logits, labels.to(logits.dtype), reduction="sum")
    return total / (labels.numel() if num_items_in_batch is None else num_items_in_batch)


def position_loss(
    scores: torch.Tensor, positions: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None
) -> torch.Tensor:
    """Cross entropy of positions (N,) by their scores (N, L), as in transformers' BERT for question answering.

    Negative positions count as 0; impossible ones, whose score is -inf, and those of at least L are ignored.
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
    """Whether no label (B, L) is at padding; the model's caller may say so, or values are read, which synchronizes."""
    if unpad_inputs is not None or token_indices is not None:
        return unpad_inputs is not False
    if labels is None or attention_mask is None or attention_mask.shape != labels.shape or is_tracing(labels):
        return True
    return not ((labels != IGNORE_INDEX) & (attention_mask == 0)).any()


# The masked-LM output layer in training on a CPU: gradients are computed in the same pass. The logits of 600 labeled
# positions and 30,522 tokens take 73 MB. PyTorch allocates as much again for their log-softmax, and once more for its
# gradient. Here chunks of rows become probabilities, in one reused buffer, and from these the gradients of hidden
# states and weights are computed. The logits remain an output with a gradient of its own.


def linear_cross_entropy(
    layer: Any,
    hidden_states: torch.Tensor,
    labels: torch.Tensor,
    num_items_in_batch: torch.Tensor | int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Logits (N, V) of a linear layer and their `cross_entropy`, with gradients in one pass if no label is -100.

    `hidden_states` (N, D) may have more rows than there are labels (N,), whose logits are dropped; see `filled_up`.
    """
    is_cast = torch.is_autocast_enabled("cpu")
    dtype = torch.get_autocast_dtype("cpu") if is_cast else torch.float32
    with torch.autocast("cpu", enabled=False):  # it may multiply a plain layer in another dtype
        is_simple = (
            torch.is_grad_enabled()
            and dtype in _TYPES
            and is_plain(hidden_states)
            and layer in scan(layer).layers
            and layer.bias is not None
            and layer.weight.dtype == torch.float32
            and (is_cast or hidden_states.dtype == torch.float32)
        )
    if not is_simple or (labels == IGNORE_INDEX).any():  # cheap: simple layers are on a CPU
        logits = linear(layer, hidden_states)[: len(labels)]
        return logits, cross_entropy(logits, labels, num_items_in_batch)
    with torch.autocast("cpu", enabled=False):
        total, logits = _LinearCrossEntropy.apply(
            hidden_states.contiguous(), layer.weight, layer.bias, labels.long(), dtype
        )
    return logits[: len(labels)], total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


class _LinearCrossEntropy(torch.autograd.Function):
    """Sum of the cross entropy of x W^T + b, with its gradients, and the logits; sums are in float32."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden_states: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor,
        labels: torch.Tensor,
        dtype: torch.dtype,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(hidden_states, weight, bias, labels)
        ctx.dtype, wanted = dtype, ctx.needs_input_grad
        of_states = torch.empty_like(hidden_states) if wanted[0] else None
        of_weight = torch.empty_like(weight) if wanted[1] else None
        of_bias = torch.zeros_like(bias) if wanted[2] else None
        total = bias.new_zeros(())
        states, weight = hidden_states.to(dtype), weight.to(dtype)
        logits = multiply(states, weight, bias.to(dtype))
        size = -(-len(logits) // -(-logits.numel() // _CHUNK))  # rows in a chunk
        buffer = bias.new_empty(size, len(bias))
        for start in range(0, len(logits), size):
            rows = slice(start, start + size)
            real = len(labels[rows])
            difference, losses = _difference(logits[rows][:real], labels[rows], buffer[:real])
            total += losses.sum()
            if of_bias is not None:
                of_bias += difference.sum(0)
            difference = buffer[: len(states[rows])]
            difference[real:] = 0
            difference = difference.to(dtype)
            if of_states is not None:
                of_states[rows] = gradient_of_states(difference, weight)
            if of_weight is not None and dtype == of_weight.dtype:
                of_weight.addmm_(difference.t(), states[rows], beta=int(start > 0))
            elif of_weight is not None and start == 0:
                of_weight.copy_(difference.t() @ states[rows])
            elif of_weight is not None:
                of_weight += difference.t() @ states[rows]
        ctx.gradients = of_states, of_weight, of_bias
        return total, logits

    @staticmethod
    def backward(
        ctx: Any, of_total: torch.Tensor | None, of_logits: torch.Tensor | None
    ) -> tuple[torch.Tensor | None, ...]:
        hidden_states, weight, bias, labels = ctx.saved_tensors
        gradients, ctx.gradients = ctx.gradients, None
        if gradients is not None and of_logits is None and of_total is not None and not torch.is_grad_enabled():
            return *(None if gradient is None else gradient.mul_(of_total) for gradient in gradients), None, None
        # A second backward pass, second derivatives or a gradient of the logits: in differentiable operations.
        states, weight = hidden_states.to(ctx.dtype), weight.to(ctx.dtype)
        difference = bias.new_zeros(len(states), len(bias)) if of_logits is None else of_logits.to(bias.dtype)
        if of_total is not None:
            logits = F.linear(states, weight, bias.to(ctx.dtype))[: len(labels)].to(bias.dtype)
            places, ones = labels[:, None], torch.ones_like(labels, dtype=bias.dtype)[:, None]
            of_losses = of_total * logits.softmax(1).scatter_add(1, places, -ones)
            difference = difference + F.pad(of_losses, (0, 0, 0, len(states) - len(labels)))
        rounded, wanted = difference.to(ctx.dtype), ctx.needs_input_grad
        return (
            gradient_of_states(rounded, weight).to(hidden_states.dtype) if wanted[0] else None,
            gradient_of_weight(rounded, states).to(bias.dtype) if wanted[1] else None,
            difference.sum(0) if wanted[2] else None,
            None,
            None,
        )


def _difference(logits: torch.Tensor, labels: torch.Tensor, buffer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradient of the logits, written to the buffer (N, V): probabilities, less 1 at the label; and losses (N, 1)."""
    logits = logits.to(buffer.dtype)
    probabilities, places = torch.softmax(logits, dim=1, out=buffer), labels[:, None]
    of_labels = probabilities.gather(1, places)
    losses = -of_labels.log()
    is_rare = (of_labels < _SMALLEST_PROBABILITY).squeeze(1)
    if is_rare.any():
        losses[is_rare] = logits[is_rare].logsumexp(1, keepdim=True) - logits[is_rare].gather(1, places[is_rare])
    return probabilities.scatter_(1, places, of_labels - 1), losses
