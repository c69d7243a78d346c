"""Model cards and publishing."""

from .card import (
    CardContent,
    Comparison,
    Example,
    HubMetadata,
    ModelDescription,
    TrainingDescription,
    describe_model,
    plain_text,
    render_card,
    write_card,
)
from .commands import CardArguments, PushArguments, make_card, push
from .examples import PipelineCall, head_examples, run_example, run_pipelines
from .publish import UploadOptions, publish, publishable_files, write_benchmark_results, write_publishable

__all__ = [
    "CardArguments",
    "CardContent",
    "Comparison",
    "Example",
    "HubMetadata",
    "ModelDescription",
    "PipelineCall",
    "PushArguments",
    "TrainingDescription",
    "UploadOptions",
    "describe_model",
    "head_examples",
    "make_card",
    "plain_text",
    "publish",
    "publishable_files",
    "push",
    "render_card",
    "run_example",
    "run_pipelines",
    "write_benchmark_results",
    "write_card",
    "write_publishable",
]
