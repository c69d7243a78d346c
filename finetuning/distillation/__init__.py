"""Distillation: fine-tuning that also learns from a fine-tuned teacher's outputs (`mybert distill`)."""

from .run import DistillationArguments, distill

__all__ = ["DistillationArguments", "distill"]
