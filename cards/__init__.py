"""Model cards: their content, and examples that are run."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .card import (
        CardContent,
        Comparison,
        Example,
        ModelDescription,
        TrainingDescription,
        describe_model,
        plain_text,
        render_card,
        taken_from_hub,
        write_card,
    )
    from .examples import PipelineCall, head_examples, run_example, run_pipelines
    from .metadata import HubMetadata

__all__ = [
    "CardContent",
    "Comparison",
    "Example",
    "HubMetadata",
    "ModelDescription",
    "PipelineCall",
    "TrainingDescription",
    "describe_model",
    "head_examples",
    "plain_text",
    "render_card",
    "run_example",
    "run_pipelines",
    "taken_from_hub",
    "write_card",
]

__getattr__, __dir__ = lazy_names(__name__)
