"""Early stopping that survives an interruption."""

from pathlib import Path

from transformers import EarlyStoppingCallback
from transformers.trainer import TRAINER_STATE_NAME

from ...files import read_json_object


class PatientStop(EarlyStoppingCallback):
    """transformers' `EarlyStoppingCallback`, which continues its count from the checkpoint."""

    # `Trainer` restores callbacks only together with its control state, which would stop the run again.
    @classmethod
    def from_checkpoint(cls, patience: int, checkpoint: str | None) -> "PatientStop":
        """Continue the count of a checkpoint; without one, start at 0."""
        stop = cls(patience)
        if checkpoint is not None:
            saved = read_json_object(Path(checkpoint, TRAINER_STATE_NAME))["stateful_callbacks"].get(cls.__name__, {})
            stop.early_stopping_patience_counter = saved.get("attributes", {}).get(
                "early_stopping_patience_counter", 0
            )
        return stop

    @property
    def is_over(self) -> bool:
        """Whether the run is due to stop, see `ResumableTrainer`."""
        return self.early_stopping_patience_counter >= self.early_stopping_patience
