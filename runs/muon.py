"""Muon for the layers' matrices and Adam for all other parameters, as one optimizer.

Muon (Jordan et al., 2024) replaces the momentum of a matrix's gradient by the nearest orthogonal matrix before the
update. It is for matrices between hidden states; embeddings, vectors and classifiers keep Adam. torch's own Muon
always multiplies in bfloat16, which is several times slower than float32 on processors that only emulate it.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..files.machine import bfloat16_features
from .optimizers import MyBertAdamW, loss_of, parameter_groups

_MOMENTUM = "momentum"  # key that only Muon's groups have
# Jordan's polynomial a x + b x^3 + c x^5: applied five times, it moves singular values to between 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7


class _Muon(torch.optim.Optimizer):
    """`torch.optim.Muon`, with products in the dtype that is fast on the device."""

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float, momentum: float) -> None:
        # The rate is, for a matrix with O outputs and I inputs, times sqrt(max(1, O / I)); weight decay is decoupled,
        # and momentum Nesterov's, in [0, 1).
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay, _MOMENTUM: momentum})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = loss_of(closure)
        for group in self.param_groups:
            rate, momentum = group["lr"], group[_MOMENTUM]
            for matrix in group["params"]:
                if matrix.grad is None:
                    continue
                state = self.state[matrix]
                if not state:
                    state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                mean = state["momentum_buffer"]
                mean.lerp_(matrix.grad, 1 - momentum)
                update = nearest_orthogonal(matrix.grad.lerp(mean, momentum))
                outputs, inputs = matrix.shape
                matrix.mul_(1 - rate * group["weight_decay"])
                matrix.add_(update, alpha=-rate * math.sqrt(max(1, outputs / inputs)))
        return loss


def nearest_orthogonal(matrix: torch.Tensor) -> torch.Tensor:
    """Approximate U V^T of a float32 matrix U S V^T by Newton-Schulz iteration."""
    found = matrix.to(torch.bfloat16 if _multiplies_bfloat16(matrix.device) else torch.float32)
    is_tall = matrix.shape[0] > matrix.shape[1]
    if is_tall:
        found = found.T
    found = found / found.norm().clamp(min=_SMALLEST_NORM)
    for _ in range(_ITERATIONS):
        square = found @ found.T
        found = torch.addmm(found, torch.addmm(square, square, square, beta=_B, alpha=_C), found, beta=_A)
    # Singular values are 0.7 to 1.2.
    return found.T if is_tall else found


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cpu":
        return bool(bfloat16_features())
    return True


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon and `MyBertAdamW` as one optimizer, with one state, one list of groups and one schedule.

    Args:
        matrix_groups: Parameter groups for Muon; all their parameters have two dimensions.
        other_groups: Parameter groups for Adam.
        lr: Learning rate of Adam, at least 0.
        muon_lr: Learning rate of Muon, at least 0, for a matrix with O outputs and I inputs times sqrt(max(1, O / I)).
        betas: Decay rates of Adam's running means, in [0, 1).
        eps: Added to Adam's denominator.
        weight_decay: Decoupled weight decay of groups without their own, multiplied by each optimizer's learning rate.
        momentum: Muon's momentum, in [0, 1).
        correct_bias: Whether Adam corrects the bias of its running means.
        **kwargs: Other arguments of `MyBertAdamW`, such as `fused`.

    The state of a parameter is `momentum_buffer`, or that of `MyBertAdamW`.

    Raises:
        ValueError: If a value is outside its range, or a parameter of `matrix_groups` is not a matrix.
    """

    def __init__(
        self,
        matrix_groups: list[dict[str, Any]],
        other_groups: list[dict[str, Any]],
        lr: float = 1e-3,
        muon_lr: float = 0.02,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        momentum: float = 0.95,
        correct_bias: bool = True,
        **kwargs: Any,
    ) -> None:
        if not 0 <= momentum < 1:
            raise ValueError(f"momentum is {momentum}; expected a value in [0, 1).")
        if muon_lr < 0:
            raise ValueError(f"muon_lr is {muon_lr}; expected at least 0.")
        for group in matrix_groups:
            for parameter in group["params"]:
                if parameter.ndim != 2:
                    raise ValueError(
                        f"A parameter of matrix_groups has shape {tuple(parameter.shape)}; expected a matrix."
                    )
        parts: list[torch.optim.Optimizer] = []
        if other_groups:  # first, since the rate of the first group is the one that is logged
            parts.append(MyBertAdamW(other_groups, lr, betas, eps, weight_decay, correct_bias, **kwargs))
        if matrix_groups:
            parts.append(_Muon(matrix_groups, muon_lr, weight_decay, momentum))
        self._parts = parts
        # Schedules of transformers that end at a rate of their own look for the peak among the defaults.
        super().__init__([group for part in parts for group in part.param_groups], {"lr": lr})

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Re-evaluates the model and returns the loss.

        Returns:
            The closure's loss, or None.
        """
        loss = loss_of(closure)
        for part in self._parts:
            # Share groups and state again: `load_state_dict` and FSDP replace those of this optimizer.
            is_muon = isinstance(part, _Muon)
            part.param_groups = [group for group in self.param_groups if (_MOMENTUM in group) == is_muon]
            part.state = self.state
            part.step()
        return loss


def matrix_groups(model: nn.Module, weight_decay: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the trainable parameters into matrices of the encoder's layers and all others.

    Args:
        model: A model like BERT, whose layers are in `encoder`.
        weight_decay: Weight decay of all parameters except layer normalisations and biases.

    Returns:
        Groups for Muon and groups for Adam.

    Raises:
        ValueError: If the encoder has no matrices.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    matrices: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for group in parameter_groups(model, weight_decay):
        is_matrix = [p.ndim == 2 and "encoder." in names[id(p)] for p in group["params"]]
        for groups, wanted in ((matrices, True), (others, False)):
            if chosen := [p for p, matrix in zip(group["params"], is_matrix, strict=True) if matrix == wanted]:
                groups.append({**group, "params": chosen})
    if not matrices:
        raise ValueError(f"{type(model).__name__} has no matrices in encoder layers for Muon to optimize.")
    return matrices, others
