"""Optimizers and Google's schedule.

- Google's Adam and schedule: google-research/bert, `optimization.py` (paper, appendix A.2).
- Muon (Jordan et al., 2024) for the layers' matrices and Adam for all other parameters, as one optimizer: it replaces
  the momentum of a matrix's gradient by the nearest orthogonal matrix before the update. torch's own Muon always
  multiplies in bfloat16, which is several times slower than float32 on processors that only emulate it.
"""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR

from ..files.machine import bfloat16_features

# Adam's bias corrections are 1 - beta ** step: after this many steps they are 1 in float32, for every beta up to
# 0.999998. With a step count that starts here, torch's own (fused) kernels compute Adam without bias correction.
UNCORRECTED_STEP = 2**23
# Names for `optim` in addition to transformers': Google's Adam, Adam with bias correction, Muon.
OPTIMIZERS = ("google", "adamw", "muon")
_MOMENTUM = "momentum"  # key that only Muon's groups have
# Jordan's polynomial a x + b x^3 + c x^5: applied five times, it moves singular values to between 0.7 and 1.2.
_A, _B, _C = 3.4445, -4.7750, 2.0315
_ITERATIONS = 5
_SMALLEST_NORM = 1e-7


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """The loss of an optimizer's closure, evaluated with gradients; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class _CountsUncorrected(torch.optim.Optimizer):
    """An optimizer whose steps without bias correction count from `UNCORRECTED_STEP`."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; see `torch.optim.Optimizer.load_state_dict`."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state.get(parameter, {})
                if "step" in state and not group["correct_bias"] and float(state["step"]) < UNCORRECTED_STEP:
                    state["step"] = torch.as_tensor(state["step"], dtype=torch.float32) + UNCORRECTED_STEP


class MyBertAdamW(_CountsUncorrected, torch.optim.AdamW):
    """AdamW with the paper's values, by default without bias correction, as in Google's `AdamWeightDecayOptimizer`.

    The update is `w -= lr * (m / (sqrt(v) + eps) + weight_decay * w)`, with m and v the running means of the gradient
    and its square. Without bias correction the first updates are too large, by up to sqrt(1 - beta2) / (1 - beta1).
    The warm-up of pretraining makes up for that, but fine-tuning on small data needs `correct_bias=True` (Mosbach et
    al., 2020).

    Args:
        params: Parameters or parameter groups (`parameter_groups`).
        lr: Learning rate, at least 0.
        betas: Decay rates of the running means, in [0, 1).
        eps: Added to the denominator.
        weight_decay: Decoupled weight decay, at least 0.
        correct_bias: Whether to correct the bias of the running means.
        **kwargs: Other arguments of `torch.optim.AdamW`, such as `fused`.

    The state of a parameter is `exp_avg`, `exp_avg_sq` and `step`. Without bias correction `step` counts from
    `UNCORRECTED_STEP`; `load_state_dict` raises a count from 0, as in converted checkpoints.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        correct_bias: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, **kwargs)
        for group in self.param_groups:
            group.setdefault("correct_bias", correct_bias)
        self.defaults["correct_bias"] = correct_bias

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the loss of the closure, if there is one."""
        loss = loss_of(closure)
        for group in self.param_groups:
            if group["correct_bias"]:
                continue
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    on_device = group["fused"] or group["capturable"]
                    step = torch.tensor(float(UNCORRECTED_STEP), device=parameter.device if on_device else "cpu")
                    means = ("exp_avg", "exp_avg_sq", *(["max_exp_avg_sq"] if group["amsgrad"] else []))
                    self.state[parameter] = {"step": step} | {name: torch.zeros_like(parameter) for name in means}
        super().step()
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state, even one of torch's AdamW, whose groups have no `correct_bias`."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("correct_bias", self.defaults["correct_bias"])


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """Split the trainable parameters: layer normalizations and biases are not decayed (paper, appendix A.2).

    Args:
        model: The model.
        weight_decay: Weight decay of all other parameters.

    Returns:
        Two parameter groups, decayed and not decayed; an empty group is omitted.
    """
    decayed: list[nn.Parameter] = []
    not_decayed: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            is_exempt = "norm" in name.lower() or "bias" in name.rpartition(".")[2]
            (not_decayed if is_exempt else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": not_decayed, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


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
            for matrices in _stacks([matrix for matrix in group["params"] if matrix.grad is not None]):
                gradients = []
                for matrix in matrices:
                    state = self.state[matrix]
                    if not state:
                        state["momentum_buffer"] = torch.zeros_like(matrix.grad)
                    state["momentum_buffer"].lerp_(matrix.grad, 1 - momentum)
                    gradients.append(matrix.grad.lerp(state["momentum_buffer"], momentum))
                if len(matrices) > 1:
                    updates = nearest_orthogonal(torch.stack(gradients)).unbind()
                else:
                    updates = (nearest_orthogonal(gradients[0]),)
                outputs, inputs = matrices[0].shape
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - rate * group["weight_decay"])
                    matrix.add_(update, alpha=-rate * math.sqrt(max(1, outputs / inputs)))
        return loss


def _stacks(matrices: list[Any]) -> list[list[Any]]:
    """Matrices in lists that are updated at once: those of a shape on a GPU, where small products leave it idle.

    A CPU is no faster with several at once, and parts of matrices (FSDP 2) need products of their own.
    """
    stacks: dict[Any, list[Any]] = {}
    for number, matrix in enumerate(matrices):
        is_stacked = matrix.device.type != "cpu" and type(matrix.detach()) is torch.Tensor
        key = (matrix.shape, matrix.dtype, matrix.device) if is_stacked else number
        stacks.setdefault(key, []).append(matrix)
    return list(stacks.values())


def nearest_orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Approximate U V^T of each float32 matrix U S V^T (..., O, I) by Newton-Schulz iteration."""
    is_fast = matrices.device.type != "cpu" or bool(bfloat16_features())
    found = matrices.to(torch.bfloat16 if is_fast else torch.float32)
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    if is_tall:
        found = found.mT
    found = found / found.norm(dim=(-2, -1), keepdim=True).clamp(min=_SMALLEST_NORM)
    add_product: Any = torch.addmm if found.ndim == 2 else torch.baddbmm
    for _ in range(_ITERATIONS):
        square = found @ found.mT
        found = add_product(found, add_product(square, square, square, beta=_B, alpha=_C), found, beta=_A)
    # Singular values are 0.7 to 1.2.
    return found.mT if is_tall else found


class MuonWithAdamW(_CountsUncorrected):
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
        # The defaults are for groups that are added later, Adam's unless they have a momentum. Schedules of
        # transformers that end at a rate of their own look for the peak among them.
        super().__init__([group for part in parts for group in part.param_groups], parts[0].defaults | {"lr": lr})

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold, the optimizers of both parts included."""
        return super().__getstate__() | {"_parts": self._parts}

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient; returns the loss of the closure, if there is one."""
        loss = loss_of(closure)
        for part in self._parts:
            # Share groups and state again: `load_state_dict` and FSDP replace those of this optimizer.
            is_muon = isinstance(part, _Muon)
            part.param_groups = [group for group in self.param_groups if (_MOMENTUM in group) == is_muon]
            part.state = self.state
            part.step()
        return loss


def matrix_groups(
    model: nn.Module, groups: Iterable[dict[str, Any]]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Split parameter groups into matrices of the encoder's layers and all other parameters.

    Args:
        model: A model like BERT, whose layers are in `encoder`.
        groups: Its parameter groups (`parameter_groups`).

    Returns:
        Groups for Muon and groups for Adam.

    Raises:
        ValueError: If the encoder has no matrices.
    """
    of_muon = {id(each) for name, each in model.named_parameters() if each.ndim == 2 and "encoder." in name}
    matrices: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for group in groups:
        for part, wanted in ((matrices, True), (others, False)):
            if chosen := [each for each in group["params"] if (id(each) in of_muon) == wanted]:
                part.append({**group, "params": chosen})
    if not matrices:
        raise ValueError(f"{type(model).__name__} has no matrices in encoder layers for Muon to optimize.")
    return matrices, others


def linear_schedule(
    optimizer: torch.optim.Optimizer,
    num_warmup_steps: int,
    num_training_steps: int,
    position: Callable[[], int] | None = None,
) -> LambdaLR:
    """Google's schedule: linear warm-up, then linear decay to 0 along a line that starts at step 0.

    At step s, counted from 0, the factor is s / num_warmup_steps during warm-up, then 1 - s / num_training_steps.
    (transformers' `get_linear_schedule_with_warmup` lets the decay begin at 1 after warm-up.)

    Args:
        optimizer: The optimizer; its learning rates are the peak rates.
        num_warmup_steps: Steps of warm-up, at least 0.
        num_training_steps: Total number of steps, at least 1.
        position: Returns the current step of a run that is not measured in optimizer steps (see `TimeBudget`).

    Returns:
        The schedule; call its `step` after each optimizer step.

    Raises:
        ValueError: If a number of steps is out of range.
    """
    if num_warmup_steps < 0 or num_training_steps < 1:
        raise ValueError(
            f"num_warmup_steps is {num_warmup_steps} and num_training_steps {num_training_steps}; "
            "expected at least 0 and at least 1."
        )

    def factor(step: int) -> float:
        if position is not None:
            step = position()
        if step < num_warmup_steps:
            return step / num_warmup_steps
        return max(0.0, 1 - step / num_training_steps)

    return LambdaLR(optimizer, factor)
