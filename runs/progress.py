"""What a run shows while it trains: a progress bar, and a readable line for each log entry."""

import logging
import textwrap
from collections.abc import Mapping
from typing import Any

from tqdm.auto import tqdm
from transformers import ProgressCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_utils import has_length

from ..files import duration
from .run_arguments import fitting_logging_steps
from .time_budget import TICKS, TimeBudget

logger = logging.getLogger(__name__)

_COLUMNS = 80
# Left out of the line; the log has them all.
_LEFT_OUT = ("epoch", "step", "total_flos", "grad_norm", "learning_rate", "num_input_tokens_seen")
_TOKEN_SPEED = "tokens_per_second"
_SPEEDS = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time")


class ReadableProgress(ProgressCallback):
    """A progress bar if there is a terminal, and lines of at most 80 columns instead of dictionaries."""

    # Lines go to this package's logger, or, if that is off, as in scripts that do not set up logging, they are printed
    # above the bar. The logging interval adapts to the length of the run, if the settings give none.
    def __init__(self, budget: TimeBudget | None = None) -> None:
        super().__init__()
        self.prediction_bar: Any = None
        self.budget = budget
        self._first_step = 0  # first step of this call's training
        self._last = ""
        self._last_evaluation = ""

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the bar at the step from which training continues."""
        if args.logging_steps is None:
            state.logging_steps = fitting_logging_steps(state.max_steps)
        self.current_step = self._first_step = state.global_step
        if state.is_world_process_zero:
            self.training_bar = tqdm(
                total=state.max_steps if self.budget is None else None,
                initial=state.global_step,
                unit="step",
                dynamic_ncols=True,
                disable=True if args.disable_tqdm else None,  # None: disabled without a terminal
            )

    def on_prediction_step(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        eval_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Advance the evaluation bar, which is removed at its end."""
        if self.prediction_bar is None and state.is_world_process_zero:
            self.prediction_bar = tqdm(
                desc="evaluation",
                total=len(eval_dataloader) if has_length(eval_dataloader) else None,
                leave=False,
                dynamic_ncols=True,
                disable=True if args.disable_tqdm else None,
            )
        if self.prediction_bar is not None:
            self.prediction_bar.update()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Log an entry, unless it is the same as the one before, or as the last evaluation."""
        share = None if self.budget is None else int(self.budget.position) / TICKS
        line = log_line(logs or {}, state.global_step, state.max_steps, share, self._first_step)
        if not state.is_world_process_zero or not line or line in (self._last, self._last_evaluation):
            return
        self._last = line
        if any(name.startswith("eval_") for name in logs or {}):
            self._last_evaluation = line
        _say(line, args)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Close the bar, and log which checkpoint is kept if it is not the last one."""
        super().on_train_end(args, state, control, **kwargs)
        best = state.best_global_step if args.load_best_model_at_end and state.best_model_checkpoint else None
        if state.is_world_process_zero and best and best != state.global_step:
            _say(f"Kept: the best checkpoint, that of step {best:,}.", args)


def _say(line: str, args: TrainingArguments) -> None:
    if logger.isEnabledFor(logging.INFO):
        logger.info(line)
    elif not args.disable_tqdm:
        tqdm.write(line)


def log_line(
    logs: Mapping[str, Any], step: int, max_steps: int, share_of_time: float | None = None, first_step: int = 0
) -> str:
    """A log entry of `Trainer` as text, in lines of at most 80 columns; "" if there is nothing to show."""
    # `first_step` is the step at which this call, or this phase of the run, began; `share_of_time` is the fraction of
    # the time budget that is used.
    if "train_runtime" in logs:
        text = f"Trained {step - first_step:,} steps in {duration(logs['train_runtime'])}."
        return text if "train_loss" not in logs else f"{text[:-1]}, with a mean loss of {logs['train_loss']:.4g}."
    values = {name: value for name, value in logs.items() if name not in _LEFT_OUT and not name.endswith(_SPEEDS)}
    parts = {name.partition("_")[0] for name in values}
    where = f"step {step:,}/{max_steps:,}" if max_steps > 0 else ""
    if share_of_time is not None:
        where = f"step {step:,}, {100 * share_of_time:.0f} % of the time"
    if len(parts) == 1 and (kind := {"eval": "evaluation", "test": "test"}.get(next(iter(parts)))):
        values = {name.partition("_")[2]: value for name, value in values.items() if not name.endswith(_TOKEN_SPEED)}
        where = f"{where}, {kind}" if where and kind == "evaluation" else kind
    said = _said(values)
    text = f"{where}: {', '.join(said)}".lstrip(": ") if said else ""
    lines = textwrap.fill(text, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return lines.replace("\0", " ")


def _said(values: Mapping[str, Any]) -> list[str]:
    """Text for each value, with non-breaking spaces; a loss with its accuracy, speed last."""
    said = []
    for name, value in values.items():
        task, _, kind = name.rpartition("_")
        if name == _TOKEN_SPEED or (name == "loss" and any(other.endswith("_loss") for other in values)):
            continue  # the sum of the other losses
        if kind == "loss" and f"{task}_accuracy" in values:
            said.append(f"{task} {value:.4g} ({100 * values[f'{task}_accuracy']:.1f} %)")
        elif kind == "accuracy" and f"{task}_loss" in values:
            continue
        else:
            shown = f"{value:.4g}" if isinstance(value, int | float) else str(value)
            said.append(f"{name.replace('_', ' ')} {shown}")
    if _TOKEN_SPEED in values:
        said.append(f"{values[_TOKEN_SPEED]:,.0f} tokens/s")
    return [part.replace(" ", "\0") for part in said]
