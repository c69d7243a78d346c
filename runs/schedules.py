"""Learning-rate schedules: Google's, from google-research/bert, `optimization.py` (paper, appendix A.2)."""

from collections.abc import Callable

import torch
from torch.optim.lr_scheduler import LambdaLR


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
