"""Distillation: fine-tuning that also learns from a fine-tuned teacher's outputs (`mybert distill`)."""

from .distillation_arguments import DistillationArguments
from .run import distill

__all__ = ["DistillationArguments", "distill"]
