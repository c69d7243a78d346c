"""Model cards and publishing."""

from ..cards import (
    CardContent,
    Comparison,
    Example,
    HubMetadata,
    ModelDescription,
    PipelineCall,
    TrainingDescription,
    describe_model,
    head_examples,
    plain_text,
    render_card,
    run_example,
    run_pipelines,
    write_card,
)
from .commands import CardArguments, PushArguments, make_card, push
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
