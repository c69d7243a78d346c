"""Pictures of attention, of the input, and of training."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .attention import AttentionMap, attention_map, attention_rollout
    from .commands import draw_attention, draw_run
    from .curves import learning_curves, plot_run, training_curves
    from .input_and_confusion import InputPicture, confusion_picture, input_picture
    from .pair_groups import accuracy_bars
    from .settings import AttentionSettings, CurvesSettings

__all__ = [
    "AttentionMap",
    "AttentionSettings",
    "CurvesSettings",
    "InputPicture",
    "accuracy_bars",
    "attention_map",
    "attention_rollout",
    "confusion_picture",
    "draw_attention",
    "draw_run",
    "input_picture",
    "learning_curves",
    "plot_run",
    "training_curves",
]

__getattr__, __dir__ = lazy_names(__name__)
