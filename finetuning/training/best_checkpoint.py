"""Which checkpoint is best: that of the best metric and, among equal ones, of the lowest loss."""

import math
from collections.abc import Mapping
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments


def loss_in(metrics: Mapping[str, Any]) -> float:
    """The loss among the metrics of an evaluation, the first one if there are several; infinite if there is none."""
    return float(next((value for name, value in metrics.items() if name.endswith("loss")), math.inf))


class LossBreaksTies(TrainerCallback):
    """Lets an evaluation be better than the best one if its metric is equal and its loss lower."""

    # `Trainer` would keep the first of them: that of the first epoch if F1 is 0 in all.
    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, float] | None = None,
        **kwargs: Any,
    ) -> None:
        """Lower the best metric so far by a hair, before `Trainer` and early stopping compare with it."""
        name = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        value = (metrics or {}).get(name)
        if metrics is None or value is None or value != state.best_metric or state.best_global_step is None:
            return  # without checkpoints no step is the best
        best = next(
            entry for entry in state.log_history if entry.get("step") == state.best_global_step and name in entry
        )
        if loss_in(metrics) < loss_in({key: entry for key, entry in best.items() if key in metrics}):
            state.best_metric = math.nextafter(value, -math.inf if args.greater_is_better else math.inf)
