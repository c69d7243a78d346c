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

__all__ = [
    "CardContent",
    "Comparison",
    "Example",
    "ModelDescription",
    "TrainingDescription",
    "describe_model",
    "render_card",
    "write_card",
]
