"""A run of a given duration, which also determines its learning-rate schedule."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from ..files import read_json_object
from .processes import agree

TICKS = 10**9  # ticks in a whole run that is measured in time


class TimeBudget(TrainerCallback, ExportableState):
    """Tracks how much of a run's time is used, and ends training when it is used up (Izsak et al., 2021).

    The clock runs during training, including evaluation and checkpoints; it continues from the time in a checkpoint.
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
        state_file = Path(checkpoint, "trainer_state.json")
        state = read_json_object(state_file).get("stateful_callbacks", {}).get(cls.__name__)
        if not isinstance(state, Mapping):
            raise ValueError(f"{state_file} does not say how much time was used; expected a run with max_hours.")
        return cls(seconds, float(state["attributes"]["used"]))

    @property
    def is_over(self) -> bool:
        """Whether the time is up, see `ResumableTrainer`."""
        return int(self.position) >= TICKS

    def state(self) -> dict[str, Any]:
        """What a checkpoint stores: the seconds used."""
        return {"args": {"seconds": self.seconds}, "attributes": {"used": self._seconds_used()}}

    def _seconds_used(self) -> float:
        return self._used + (0.0 if self._since is None else time.monotonic() - self._since)

    def _move(self, used: float) -> None:
        self.position.fill_(min(round(used / self.seconds * TICKS), TICKS))

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Start the clock; if the time is already up, stop before the first step."""
        if self._since is None:
            self._since = time.monotonic()
        if self.is_over:
            state.max_steps = state.global_step

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Read the clock; end training once the time is up."""
        self._move(agree(self._seconds_used(), args))
        if self.is_over:
            state.max_steps = state.global_step
            control.should_save = control.should_log = control.should_training_stop = True
