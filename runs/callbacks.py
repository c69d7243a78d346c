"""Callbacks of a run: what it shows, how long it takes, Ctrl-C and SIGTERM, and when its checkpoints count."""

import logging
import signal
import sys
import textwrap
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from tqdm import tqdm
from transformers import ProgressCallback, TrainerCallback, TrainingArguments
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import SaveStrategy, has_length

from ..files.checkpoint import read_json_object
from ..files.errors import SettingError
from ..files.machine import duration
from ..files.progress import CellBar, progress_bar
from .run_folder import broadcast_value
from .trainer_arguments import LOGGED_EVERY

logger = logging.getLogger(__name__)

TICKS = 10**9  # ticks in a whole run that is measured in time
_COLUMNS = 80
_MIN_POINTS = 20  # log entries of a run
# Left out of the line; the log has them all.
_LEFT_OUT = ("epoch", "step", "total_flos", "grad_norm", "learning_rate", "num_input_tokens_seen")
_TOKEN_SPEED = "tokens_per_second"
_UNSAID = ("runtime", "samples_per_second", "steps_per_second", "model_preparation_time", "mlm_share")


class TimeBudget(TrainerCallback, ExportableState):
    """Tracks how much of a run's time is used, and ends training when it is used up (Izsak et al., 2021).

    The clock runs during training, including evaluation and checkpoints, from the end of a call's first step, which
    may compile the model for longer than the warm-up takes. It continues from the time in a checkpoint.
    All processes of a run use the clock of the first one.

    Args:
        seconds: Duration of the whole run, above 0.
        used: Seconds used before.

    Attributes:
        position: Time used at the end of the last step, 0 to `TICKS`. A tensor in shared memory, so that data-loader
            workers see it change.
    """

    def __init__(self, seconds: float, used: float = 0.0) -> None:
        self.seconds = seconds
        self.position = torch.zeros((), dtype=torch.int64).share_memory_()
        self._used = used
        self._since: float | None = None
        self._move(used)

    @classmethod
    def from_checkpoint(cls, seconds: float, checkpoint: str | None) -> "TimeBudget":
        """Continue from a checkpoint; without one, start at 0.

        Raises:
            ValueError: If the checkpoint belongs to a run that was not measured in time.
        """
        if checkpoint is None:
            return cls(seconds)
        state_file = Path(checkpoint, TRAINER_STATE_NAME)
        state = read_json_object(state_file).get("stateful_callbacks", {}).get(cls.__name__)
        if not isinstance(state, Mapping):
            raise SettingError.worded(
                "{} does not say how much time was used; expected a run with {max_hours}.", state_file
            )
        return cls(seconds, float(state["attributes"]["used"]))

    @property
    def is_over(self) -> bool:
        """Whether the time is up."""
        return int(self.position) >= TICKS

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores: the seconds used."""
        return {"args": {"seconds": self.seconds}, "attributes": {"used": self._seconds_used()}}

    def _seconds_used(self) -> float:
        return self._used + (0.0 if self._since is None else time.monotonic() - self._since)

    def _move(self, used: float) -> None:
        self.position.fill_(min(round(used / self.seconds * TICKS), TICKS))

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """If the time is already up, stop before the first step."""
        if self.is_over:
            state.max_steps = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Read the clock, which the first step starts; end training once the time is up."""
        if self._since is None:
            self._since = time.monotonic()
        self._move(broadcast_value(self._seconds_used(), args))
        if self.is_over:
            state.max_steps = state.global_step
            control.should_save = control.should_log = control.should_training_stop = True


class StopOnInterrupt(TrainerCallback):
    """Ctrl-C and SIGTERM end training after the current step, with a checkpoint.

    During and after the last step nothing is stopped: the rest, such as an evaluation, is completed, and the caller
    must skip what would follow (a next phase, a next seed). A log message says where training stopped and how to
    resume it. A second signal is handled as before training (see `interruptible`), and so is one after training,
    however that ended: `ResumableTrainer` calls `give_back`.

    Args:
        overwrites: Whether the command replaces an earlier run, so that the same one would not continue.

    Attributes:
        interrupted: Whether there was a signal, in any process of the run.
        stopped: Whether it ended training before the last step.
    """

    def __init__(self, overwrites: bool = False) -> None:
        self.interrupted = self.stopped = False
        self._overwrites = overwrites
        self._previous: dict[signal.Signals, Any] = {}

    def _on_interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self.give_back()

    def give_back(self) -> None:
        """Restore the signal handlers that were there before training, once."""
        while self._previous:
            signal.signal(*self._previous.popitem())

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Install the signal handlers."""
        self.interrupted = self.stopped = False
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread can handle signals
        self._previous = {
            number: signal.signal(number, self._on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Save and stop if there was a signal, in any process."""
        self._agree(args)
        if self.interrupted and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Skip the actions of an epoch's end unless it is one: `Trainer` calls this wherever it stops."""
        if self.stopped and (state.epoch or 0) % 1:
            control.should_evaluate = control.should_save = False

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore the signal handlers, and log how to resume training."""
        self.give_back()
        self._agree(args)
        if not self.interrupted or not state.is_world_process_zero:
            return
        if self.stopped:
            way_on = "the same command continues from there"
            if args.save_only_model:
                way_on = "with save_only_model no optimizer is saved to continue with, so the same command starts over"
            elif self._overwrites:
                way_on = "the same command without --overwrite continues from there"
            logger.warning("Stopped at step %d; %s.", state.global_step, way_on)
        else:
            logger.warning(
                "Step %d was the last one; what follows it (evaluation, saving) is finished first.", state.global_step
            )

    def _agree(self, args: TrainingArguments) -> None:
        """Agree on the step to stop at: the signal reaches processes in different steps, or only some of them."""
        self.interrupted = bool(broadcast_value(self.interrupted, args, largest=True))


class SaveAfterEvaluation(TrainerCallback):
    """Delays the checkpoint of an epoch's last step until the epoch is evaluated."""

    # `Trainer` would write it before that: a run killed in between would resume without that evaluation.
    _is_due = False

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        ends = control.should_training_stop or control.should_epoch_stop or not (state.epoch or 0) % 1
        # BEST saves after evaluations.
        self._is_due = control.should_save and ends and args.save_strategy != SaveStrategy.BEST
        control.should_save = control.should_save and not self._is_due

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        control.should_save = control.should_save or self._is_due
        self._is_due = False


class ReadableProgress(ProgressCallback):
    """A progress bar in a terminal or notebook, and lines of at most 80 columns instead of dictionaries."""

    # Lines go to this package's logger, or, if that is off, as in scripts that do not set up logging, they are printed
    # above the bar; in a notebook the bar ends with the last one. The logging interval adapts to the length of the
    # run, if the settings give none.
    def __init__(self, budget: TimeBudget | None = None) -> None:
        super().__init__()
        self.prediction_bar: Any = None
        self._bar: Any = None  # of the training, also after its end
        self.budget = budget
        self._first_step = 0  # first step of this call's training
        self._last = ""
        self._evaluations: set[str] = set()

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Start the bar at the step from which training continues."""
        if args.logging_steps is None:
            # fewer steps in a short run, so that its curves have enough points
            state.logging_steps = max(1, min(LOGGED_EVERY, state.max_steps // _MIN_POINTS))
        self.current_step = self._first_step = state.global_step
        if state.is_world_process_zero:
            total = state.max_steps if self.budget is None else None
            self._bar = self.training_bar = _bar(args, total=total, initial=state.global_step, unit="step")

    def on_prediction_step(
        self, args: Any, state: Any, control: Any, eval_dataloader: Any = None, **kwargs: Any
    ) -> None:
        """Advance the evaluation bar, which is removed at its end."""
        if self.prediction_bar is None and state.is_world_process_zero:
            total = len(eval_dataloader) if has_length(eval_dataloader) else None
            self.prediction_bar = _bar(args, desc="evaluation", total=total, leave=False)
        if self.prediction_bar is not None:
            self.prediction_bar.update()

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        """Log an entry, unless it is the same as the one before, or as an evaluation of this step."""
        share = None if self.budget is None else int(self.budget.position) / TICKS
        line = log_line(logs or {}, state.global_step, state.max_steps, share, self._first_step)
        if not state.is_world_process_zero or not line or line == self._last or line in self._evaluations:
            return
        self._last = line
        if any(name.startswith("eval_") for name in logs or {}):
            self._evaluations.add(line)
        self._say(line, args)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Close the bar, and log which checkpoint is kept if it is not the last one."""
        super().on_train_end(args, state, control, **kwargs)
        best = state.best_global_step if args.load_best_model_at_end and state.best_model_checkpoint else None
        if state.is_world_process_zero and best and best != state.global_step:
            self._say(f"Kept: the best checkpoint, that of step {best:,}.", args)

    def _say(self, line: str, args: TrainingArguments) -> None:
        if isinstance(self._bar, CellBar) and not logger.isEnabledFor(logging.INFO):
            self._bar.say(line)
        else:
            log_or_print(line, args)


def _bar(args: TrainingArguments, **settings: Any) -> Any:
    # Without a terminal or notebook, None disables it.
    return progress_bar(**settings, dynamic_ncols=True, disable=True if args.disable_tqdm else None)


def log_or_print(line: str, args: TrainingArguments) -> None:
    """Log a line, or print it if the log is off and progress is to be shown."""
    if logger.isEnabledFor(logging.INFO):
        logger.info(line)
    elif not args.disable_tqdm:
        tqdm.write(line)


def log_line(
    logs: Mapping[str, Any], step: int, max_steps: int, share_of_time: float | None = None, first_step: int = 0
) -> str:
    """A log entry of `Trainer` as text, in a terminal in lines of at most 80 columns; "" if it has nothing to show."""
    # `first_step` is the step at which this call, or this phase of the run, began; `share_of_time` is the fraction of
    # the time budget that is used.
    if "train_runtime" in logs:
        steps = step - first_step
        text = f"Trained {steps:,} step{'' if steps == 1 else 's'} in {duration(logs['train_runtime'])}."
        return text if "train_loss" not in logs else f"{text[:-1]}, with a mean loss of {logs['train_loss']:.4g}."
    values = {name: value for name, value in logs.items() if name not in _LEFT_OUT and not name.endswith(_UNSAID)}
    parts = {name.partition("_")[0] for name in values}
    where = f"step {step:,}/{max_steps:,}" if max_steps > 0 else ""
    if share_of_time is not None:
        where = f"step {step:,}, {100 * share_of_time:.0f} % of the time"
    if len(parts) == 1 and (kind := {"eval": "evaluation", "test": "test"}.get(next(iter(parts)))):
        values = {name.partition("_")[2]: value for name, value in values.items() if not name.endswith(_TOKEN_SPEED)}
        where = f"{where}, {kind}" if where and kind == "evaluation" else kind
    said = _said(values)
    text = f"{where}: {', '.join(said)}".lstrip(": ") if said else ""
    if sys.stdout.isatty():
        text = textwrap.fill(text, _COLUMNS, subsequent_indent="  ", break_on_hyphens=False, break_long_words=False)
    return text.replace("\0", " ")


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
