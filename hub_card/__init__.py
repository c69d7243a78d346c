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
from .examples import run_example

__all__ = [
    "CardContent",
    "Comparison",
    "Example",
    "ModelDescription",
    "TrainingDescription",
    "describe_environment",
    "describe_model",
    "render_card",
    "run_example",
    "write_card",
]
