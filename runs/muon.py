"""Muon for the layers' matrices and Adam for all other parameters, as one optimizer.

Muon (Jordan et al., 2024) takes the momentum of a matrix's gradient to the nearest orthogonal matrix before it steps.
It is for matrices between hidden states; embeddings, vectors and classifiers keep Adam. torch's own Muon always
multiplies in bfloat16, which a processor without instructions for it only imitates, several times slower than float32.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from ..files.machine import bfloat16_features
from .optimizers import MyBertAdamW, loss_of, parameter_groups

_MOMENTUM = "momentum"  # only Muon's groups have one
# Jordan's polynomial a x + b x^3 + c x^5: five times over, it takes singular values to between 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7


class _Muon(torch.optim.Optimizer):
    """The steps of `torch.optim.Muon`, multiplied in what is fast on the device.

    Args:
        params: Parameters of two dimensions, or groups of them.
        lr: Learning rate, for a matrix with O outputs and I inputs times sqrt(max(1, O / I)).
        weight_decay: Decoupled weight decay.
        momentum: In [0, 1); Nesterov's.
    """

    def __init__(self, params: Iterable[Any], lr: float, weight_decay: float, momentum: float) -> None:
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
    """About U V^T of a matrix U S V^T, by Newton and Schulz's iteration: singular values of 0.7 to 1.2.

    Args:
        matrix: (O, I), float32.

    Returns:
        (O, I), in bfloat16 where the device multiplies that fast, else in float32.
    """
    found = matrix.to(torch.bfloat16 if _multiplies_bfloat16(matrix.device) else torch.float32)
    is_tall = matrix.shape[0] > matrix.shape[1]
    if is_tall:
        found = found.T
    found = found / found.norm().clamp(min=_SMALLEST_NORM)
    for _ in range(_ITERATIONS):
        square = found @ found.T
        found = torch.addmm(found, torch.addmm(square, square, square, beta=_B, alpha=_C), found, beta=_A)
    return found.T if is_tall else found


def _multiplies_bfloat16(device: torch.device) -> bool:
    if device.type == "cpu":
        return bool(bfloat16_features())
    return True


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon and `MyBertAdamW` side by side: one state, one list of groups, one schedule.

    Args:
        matrix_groups: Parameter groups for Muon; all their parameters have two dimensions.
        other_groups: Parameter groups for Adam.
        lr: Learning rate of Adam, at least 0.
        muon_lr: Learning rate of Muon, at least 0, for a matrix with O outputs and I inputs times sqrt(max(1, O / I)).
        betas: Decay rates of Adam's running means, in [0, 1).
        eps: Added to Adam's denominator.
        weight_decay: Decoupled weight decay of groups that name none; each optimizer's rate multiplies it.
        momentum: Muon's, in [0, 1).
        correct_bias: Whether Adam corrects the bias of its running means.
        **kwargs: Further arguments of `MyBertAdamW`, such as `fused`.

    The state of a parameter is `momentum_buffer`, or that of `MyBertAdamW`.

    Raises:
        ValueError: If a value is outside its range, or a parameter of `matrix_groups` is no matrix.
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
            # The groups and states are this optimizer's own: `load_state_dict` and FSDP put others in their place.
            is_muon = isinstance(part, _Muon)
            part.param_groups = [group for group in self.param_groups if (_MOMENTUM in group) == is_muon]
            part.state = self.state
            part.step()
        return loss


def matrix_groups(model: nn.Module, weight_decay: float) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split the trainable parameters into matrices of the encoder's layers and all others.

    Args:
        model: A model built like BERT, whose layers stand under `encoder`.
        weight_decay: Decay of all but layer normalisations and biases.

    Returns:
        Groups for Muon and groups for Adam.

    Raises:
        ValueError: If there is no such matrix.
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
