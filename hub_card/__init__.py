"""Model cards and publishing."""

from .card import (
    CardContent,
    Comparison,
    Example,
    ModelDescription,
    TrainingDescription,
    describe_model,
    render_card,
    write_card,
)
from .environment import describe_environment

__all__ = [
    "CardContent",
    "Comparison",
    "Example",
    "ModelDescription",
    "TrainingDescription",
    "describe_environment",
    "describe_model",
    "render_card",
    "write_card",
]
