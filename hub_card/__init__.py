"""Model cards and publishing."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
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
    from .commands import make_card, push
    from .publishing import publish, publishable_files, write_benchmark_results, write_publishable
    from .settings import CardArguments, CardSettings, PushArguments, PushSettings, UploadOptions

__all__ = [
    "CardArguments",
    "CardContent",
    "CardSettings",
    "Comparison",
    "Example",
    "HubMetadata",
    "ModelDescription",
    "PipelineCall",
    "PushArguments",
    "PushSettings",
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

__getattr__, __dir__ = lazy_names(__name__)
