"""Early stopping that survives an interruption."""

from typing import Any

from transformers import EarlyStoppingCallback, TrainerControl, TrainerState, TrainingArguments


class PatientStop(EarlyStoppingCallback):
    """transformers' `EarlyStoppingCallback`, which continues its count from the checkpoint.

    When resuming, `Trainer` restores callbacks only together with its control state, which would stop the run again.
    """

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore the count from the checkpoint; stop if the run was due to stop."""
        super().on_train_begin(args, state, control, **kwargs)
        callbacks: Any = state.stateful_callbacks
        saved = callbacks.get(type(self).__name__, {}).get("attributes", {})
        self.early_stopping_patience_counter = saved.get("early_stopping_patience_counter", 0)
        control.should_training_stop = self.early_stopping_patience_counter >= self.early_stopping_patience
