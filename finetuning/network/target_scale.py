"""Regression in the unit of its data: the output layer learns standardized numbers, whatever their mean and scale.

In training a hook turns the layer's outputs into the data's unit, so that losses and metrics are in that unit. At the
end mean and deviation are folded into the layer, which leaves a plain model. Checkpoints in between have the layer as
it is trained; their configuration says so, and the loaders of `heads` fold it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle
from transformers import PreTrainedModel

from .encoder_parts import output_layer

TARGET_SCALE = "target_scale"
"""Field of a checkpoint's configuration: mean and standard deviation of the numbers it learns."""


class _InUnit(torch.autograd.Function):
    """Standardized outputs in the data's unit, with the gradients of the loss of standardized numbers."""

    # Clipping, Adam's epsilon and the balance with other losses then do not depend on the unit.
    @staticmethod
    def forward(ctx: Any, outputs: torch.Tensor, mean: float, deviation: float) -> torch.Tensor:
        ctx.deviation = deviation
        return outputs * deviation + mean

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # Of the loss divided by the variance, which is that of standardized numbers.
        return gradients[0] / ctx.deviation, None, None


def learn_standardized(model: PreTrainedModel, targets: Sequence[float], has_new_head: bool) -> RemovableHandle | None:
    """Let the output layer learn standardized numbers; remove the returned hook before `fold_target_scale`."""
    layer = output_layer(model)
    if layer is None or layer.bias is None:
        return None
    # Equal numbers have no deviation; neither has a rounding error one that could be learnt.
    numbers = np.asarray(targets, dtype=np.float64)
    mean, deviation = float(numbers.mean()), float(numbers.std())
    if deviation <= 1e-6 * abs(mean):
        deviation = 1.0
    if not has_new_head:  # it has the data's unit, and its outputs stay the same
        with torch.no_grad():
            layer.weight.div_(deviation)
            layer.bias.sub_(mean).div_(deviation)
    setattr(model.config, TARGET_SCALE, [mean, deviation])
    return layer.register_forward_hook(lambda module, inputs, outputs: _InUnit.apply(outputs.float(), mean, deviation))


def fold_target_scale(model: PreTrainedModel) -> None:
    """Put mean and deviation of the targets into the output layer, if it has learnt standardized numbers."""
    scale, layer = getattr(model.config, TARGET_SCALE, None), output_layer(model)
    if scale is None or layer is None:
        return
    mean, deviation = scale
    with torch.no_grad():
        layer.weight.mul_(deviation)
        layer.bias.mul_(deviation).add_(mean)
    delattr(model.config, TARGET_SCALE)
