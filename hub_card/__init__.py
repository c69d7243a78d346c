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
from .card_command import CardArguments, make_card
from .examples import run_example
from .publish import publish, publishable_files, write_publishable
from .push_command import PushArguments, push

__all__ = [
    "CardArguments",
    "CardContent",
    "Comparison",
    "Example",
    "ModelDescription",
    "PushArguments",
    "TrainingDescription",
    "describe_model",
    "make_card",
    "publish",
    "publishable_files",
    "push",
    "render_card",
    "run_example",
    "write_card",
    "write_publishable",
]
