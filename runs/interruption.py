"""Ctrl-C and SIGTERM: training stops after the step that is running, with a checkpoint."""

import logging
import signal
import threading
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .processes import agree

logger = logging.getLogger(__name__)


class StopOnInterrupt(TrainerCallback):
    """Ctrl-C and SIGTERM end training after the step that is running, with a checkpoint.

    In and after the last step there is nothing to stop: what is left, say an evaluation, is completed, and what would
    follow (a next phase, a next seed) is for the caller to leave out. A log message says where training stopped, and
    how to resume it. A second signal is handled as before training (see `interruptible`).

    Attributes:
        interrupted: Whether there was a signal, in any process of the run.
        stopped: Whether training was ended for it before its last step.
    """

    def __init__(self) -> None:
        self.interrupted = self.stopped = False
        self._previous: dict[signal.Signals, Any] = {}

    def _on_interrupt(self, signal_number: int, frame: FrameType | None) -> None:
        self.interrupted = True
        self._give_back()

    def _give_back(self) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Handle the signals."""
        self.interrupted = self.stopped = False
        if threading.current_thread() is not threading.main_thread():
            return  # signals are the main thread's
        self._previous = {
            number: signal.signal(number, self._on_interrupt) for number in (signal.SIGINT, signal.SIGTERM)
        }

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Save and stop if there was a signal, in any process."""
        self._agree(args)
        if self.interrupted and state.global_step < state.max_steps:
            self.stopped = control.should_save = control.should_training_stop = True

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave out what comes at the end of an epoch, unless this is one: `Trainer` calls it wherever it stops."""
        if self.stopped and (state.epoch or 0) % 1:
            control.should_evaluate = control.should_save = False

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore the signal handlers, and log how to resume training."""
        self._give_back()
        self._agree(args)
        if not self.interrupted or not state.is_world_process_zero:
            return
        if self.stopped:
            logger.warning("Stopped at step %d; %s.", state.global_step, _way_on(args))
        else:
            logger.warning(
                "Step %d was the last one; what follows it (evaluation, saving) is finished first.", state.global_step
            )

    def _agree(self, args: TrainingArguments) -> None:
        """The signal reaches the processes in different steps, or only some; they must stop in the same."""
        self.interrupted = bool(agree(self.interrupted, args, largest=True))


def _way_on(args: TrainingArguments) -> str:
    if args.save_only_model:
        return "with save_only_model no optimizer is saved to continue with, so the same command starts over"
    if getattr(args, "overwrite", False):
        return "the same command without --overwrite continues from there"
    return "the same command continues from there"
