"""Pictures of attention, of the input, and of training."""

from .attention import AttentionMap, attention_map, attention_rollout
from .input_picture import InputPicture, input_picture
from .training_curves import plot_run, training_curves

__all__ = [
    "AttentionMap",
    "InputPicture",
    "attention_map",
    "attention_rollout",
    "input_picture",
    "plot_run",
    "training_curves",
]
