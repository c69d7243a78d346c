"""A moving average of the weights, which is better than the last weights while the learning rate is high."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.swa_utils import get_ema_multi_avg_fn

_AVERAGE = "average"  # key in the state of each parameter
_COUNT = "averaged_steps"  # key in each group


class WeightAverage:
    """An exponential moving average of an optimizer's weights (Polyak and Juditsky, 1992).

    After step n it is `d * average + (1 - d) * weights`, with d the smaller of `decay` and (1 + n) / (10 + n), so that
    the first steps are soon forgotten. It is part of the optimizer's state, and so is saved, restored and sharded with
    it.

    Args:
        optimizer: The optimizer; the average is updated after each of its steps.
        decay: Share of the average that is kept at each step, in (0, 1); it covers about 1 / (1 - decay) steps.
    """

    def __init__(self, optimizer: torch.optim.Optimizer, decay: float) -> None:
        self._optimizer = optimizer
        self._decay = decay
        # If a class's `step` calls its parent's, hooks run twice once an object of the parent exists.
        self._depth = 0
        optimizer.register_step_pre_hook(self._enter)
        optimizer.register_step_post_hook(self._leave)

    def _enter(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._depth += 1

    def _leave(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._follow(optimizer)

    @torch.no_grad()
    def _follow(self, optimizer: torch.optim.Optimizer) -> None:
        for group in optimizer.param_groups:
            changed = [parameter for parameter in group["params"] if parameter.grad is not None]
            count = group[_COUNT] = group.get(_COUNT, 0) + 1
            for parameter in changed:
                optimizer.state[parameter].setdefault(_AVERAGE, parameter.detach().clone())
            averages = [optimizer.state[parameter][_AVERAGE] for parameter in changed]
            if changed:
                decay = min(self._decay, (1 + count) / (10 + count))
                get_ema_multi_avg_fn(decay)(averages, [parameter.detach() for parameter in changed], count)

    @torch.no_grad()
    def exchange(self) -> None:
        """Swap the weights in the model and the average in the optimizer's state."""
        for parameter, state in self._optimizer.state.items():
            if _AVERAGE in state:
                weights = parameter.detach().clone()
                parameter.copy_(state[_AVERAGE])
                state[_AVERAGE].copy_(weights)

    @contextmanager
    def in_the_model(self) -> Iterator[None]:
        """Put the average into the model until the `with` block ends."""
        self.exchange()
        try:
            yield
        finally:
            self.exchange()
