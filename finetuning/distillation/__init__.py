"""A fine-tuning run that also learns from what a fine-tuned teacher says of the data (`mybert distill`)."""

from .distillation_arguments import DistillationArguments
from .distillation_run import distill

__all__ = ["DistillationArguments", "distill"]
