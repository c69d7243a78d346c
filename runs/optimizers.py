"""Optimizers: Google's (google-research/bert, `optimization.py`; paper, appendix A.2) and LAMB (You et al., 2020)."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

# Adam's bias corrections are 1 - beta ** step: after this many steps they are 1, for every beta up to 0.999999. With a
# step count that starts here, torch's own (fused) kernels compute Adam without bias correction.
UNCORRECTED_STEP = 2**23


def loss_of(closure: Callable[[], Any] | None) -> Any:
    """The loss of an optimizer's closure, evaluated with gradients; None without one."""
    if closure is None:
        return None
    with torch.enable_grad():
        return closure()


class MyBertAdamW(torch.optim.AdamW):
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
        """Update every parameter that has a gradient.

        Args:
            closure: Re-evaluates the model and returns the loss.

        Returns:
            The closure's loss, or None.
        """
        loss = loss_of(closure)
        for group in self.param_groups:
            if group["correct_bias"]:
                continue
            for parameter in group["params"]:
                if parameter.grad is not None and not self.state[parameter]:
                    on_device = group["fused"] or group["capturable"]
                    self.state[parameter] = {
                        "step": torch.tensor(
                            float(UNCORRECTED_STEP), device=parameter.device if on_device else torch.device("cpu")
                        ),
                        "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                        "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    }
                    if group["amsgrad"]:
                        self.state[parameter]["max_exp_avg_sq"] = torch.zeros_like(self.state[parameter]["exp_avg_sq"])
        super().step()
        return loss

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Restore a state, even one of torch's AdamW, whose groups have no `correct_bias`."""
        super().__setstate__(state)
        for group in self.param_groups:
            group.setdefault("correct_bias", self.defaults["correct_bias"])

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state; see `torch.optim.Optimizer.load_state_dict`."""
        super().load_state_dict(state_dict)
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state.get(parameter)
                if state and not group["correct_bias"] and float(state["step"]) < UNCORRECTED_STEP:
                    state["step"] = torch.as_tensor(state["step"], dtype=torch.float32) + UNCORRECTED_STEP


class Lamb(torch.optim.Optimizer):
    """LAMB, for batches of thousands of sequences (You et al., 2020, arXiv 1904.00962, algorithm 2).

    With m and v the bias-corrected running means of the gradient g and its square, the update of each parameter w is

        r = m / (sqrt(v) + eps) + weight_decay * w
        w -= lr * (norm(w) / norm(r)) * r

    where the ratio of norms, the trust ratio, is 1 if either norm is 0. As in Google's and NVIDIA's implementations,
    parameters without weight decay (biases and layer normalisations, see `parameter_groups`) have no trust ratio. The
    gradients' global norm is clipped by the `Trainer`, not here.

    Args:
        params: Parameters or parameter groups.
        lr: Learning rate, at least 0.
        betas: Decay rates of the running means, in [0, 1).
        eps: Added to the denominator.
        weight_decay: Decoupled weight decay, at least 0.

    Raises:
        ValueError: If a value is outside its range.

    The state of a parameter is `step`, `exp_avg` and `exp_avg_sq`, as that of torch's Adam.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        if lr < 0 or eps < 0 or weight_decay < 0 or not all(0 <= beta < 1 for beta in betas):
            raise ValueError(
                f"lr is {lr}, eps {eps}, weight_decay {weight_decay} and betas {betas}; "
                "expected at least 0, and betas in [0, 1)."
            )
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient.

        Args:
            closure: Re-evaluates the model and returns the loss.

        Returns:
            The closure's loss, or None.
        """
        loss = loss_of(closure)
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(parameters, group)
        return loss

    def _update(self, parameters: list[torch.Tensor], group: dict[str, Any]) -> None:
        """Update the parameters of a group with multi-tensor operations, without reading values from the device."""
        (beta1, beta2), weight_decay = group["betas"], group["weight_decay"]
        for parameter in parameters:
            if not self.state[parameter]:
                self.state[parameter] = {
                    "step": torch.tensor(0.0),  # on the CPU
                    "exp_avg": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                    "exp_avg_sq": torch.zeros_like(parameter, memory_format=torch.preserve_format),
                }
        steps, means, squares = (
            [self.state[parameter][name] for parameter in parameters] for name in ("step", "exp_avg", "exp_avg_sq")
        )
        gradients: list[Any] = [parameter.grad for parameter in parameters]
        torch._foreach_add_(steps, 1)
        torch._foreach_lerp_(means, gradients, 1 - beta1)
        torch._foreach_mul_(squares, beta2)
        torch._foreach_addcmul_(squares, gradients, gradients, 1 - beta2)
        counts = [step.item() for step in steps]
        denominators = torch._foreach_div(squares, [1 - beta2**count for count in counts])
        torch._foreach_sqrt_(denominators)
        torch._foreach_add_(denominators, group["eps"])
        updates = torch._foreach_div(means, [1 - beta1**count for count in counts])
        torch._foreach_div_(updates, denominators)
        if weight_decay:
            torch._foreach_add_(updates, parameters, alpha=weight_decay)
            torch._foreach_mul_(updates, _trust_ratios(parameters, updates))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])


def _trust_ratios(parameters: list[torch.Tensor], updates: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """The norm of each parameter divided by that of its update; 1 if either is 0."""
    norms, update_norms = (torch.stack(torch._foreach_norm(tensors)) for tensors in (parameters, updates))
    ratios = torch.where((norms > 0) & (update_norms > 0), norms / update_norms, 1.0)
    return tuple(ratios.unbind())


def parameter_groups(model: nn.Module, weight_decay: float = 0.01) -> list[dict[str, Any]]:
    """Split the trainable parameters: layer normalisations and biases are not decayed (paper, appendix A.2).

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
            is_exempt = "LayerNorm" in name or "bias" in name.rpartition(".")[2]
            (not_decayed if is_exempt else decayed).append(parameter)
    groups = [
        {"params": decayed, "weight_decay": weight_decay},
        {"params": not_decayed, "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]
