"""A run that ends when its time is up, its learning-rate schedule with it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from ..files import read_json_object
from .processes import agree

TICKS = 10**9  # parts of a run that is measured in time


class TimeBudget(TrainerCallback, ExportableState):
    """Tells how much of a run's time is used, and ends training when all of it is (Izsak et al., 2021).

    The clock runs while there is training, with what belongs to it (evaluation, checkpoints); it continues from the
    time in a checkpoint. All processes of a run go by the first one's clock.

    Args:
        seconds: Time of the whole run, above 0.
        used: Seconds of it that were used before.

    Attributes:
        position: Used time at the end of the last step, in `TICKS` of the whole, 0 to `TICKS`. A tensor in shared
            memory, which workers of a data loader see move.
    """

    def __init__(self, seconds: float, used: float = 0.0) -> None:
        self.seconds = seconds
        self.position = torch.zeros((), dtype=torch.int64).share_memory_()
        self._used = used
        self._since: float | None = None
        self._move(used)

    @classmethod
    def from_checkpoint(cls, seconds: float, checkpoint: str | None) -> "TimeBudget":
        """Continue from a checkpoint; from the beginning without one.

        Raises:
            ValueError: If the checkpoint is of a run that was not measured in time.
        """
        if checkpoint is None:
            return cls(seconds)
        state_file = Path(checkpoint, "trainer_state.json")
        state = read_json_object(state_file).get("stateful_callbacks", {}).get(cls.__name__)
        if not isinstance(state, Mapping):
            raise ValueError(f"{state_file} does not say how much time was used; expected a run with max_hours.")
        return cls(seconds, float(state["attributes"]["used"]))

    def state(self) -> dict[str, Any]:
        """What a checkpoint keeps: the used seconds."""
        return {"args": {"seconds": self.seconds}, "attributes": {"used": self._seconds_used()}}

    def _seconds_used(self) -> float:
        return self._used + (0.0 if self._since is None else time.monotonic() - self._since)

    def _move(self, used: float) -> None:
        self.position.fill_(min(round(used / self.seconds * TICKS), TICKS))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock; a run whose time is up takes no further step."""
        if self._since is None:
            self._since = time.monotonic()
        if int(self.position) >= TICKS:
            state.max_steps = state.global_step

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Look at the clock; the step in which the time is up is the last one."""
        self._move(agree(self._seconds_used(), args))
        if int(self.position) >= TICKS:
            state.max_steps = state.global_step
            control.should_save = control.should_log = control.should_training_stop = True
