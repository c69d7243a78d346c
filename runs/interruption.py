"""Ctrl-C and SIGTERM: training stops after the current step, with a checkpoint."""

import logging
import signal
import threading
from types import FrameType
from typing import Any

from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from .processes import agree

logger = logging.getLogger(__name__)


class StopOnInterrupt(TrainerCallback):
    """Ctrl-C and SIGTERM end training after the current step, with a checkpoint.

    During and after the last step nothing is stopped: the rest, such as an evaluation, is completed, and the caller
    must skip what would follow (a next phase, a next seed). A log message says where training stopped and how to
    resume it. A second signal is handled as before training (see `interruptible`).

    Attributes:
        interrupted: Whether there was a signal, in any process of the run.
        stopped: Whether it ended training before the last step.
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
        """Install the signal handlers."""
        self.interrupted = self.stopped = False
        if threading.current_thread() is not threading.main_thread():
            return  # only the main thread can handle signals
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
        """Skip the actions of an epoch's end unless it is one: `Trainer` calls this wherever it stops."""
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
        """Agree on the step to stop at: the signal reaches processes in different steps, or only some of them."""
        self.interrupted = bool(agree(self.interrupted, args, largest=True))


def _way_on(args: TrainingArguments) -> str:
    if args.save_only_model:
        return "with save_only_model no optimizer is saved to continue with, so the same command starts over"
    if getattr(args, "overwrite", False):
        return "the same command without --overwrite continues from there"
    return "the same command continues from there"
