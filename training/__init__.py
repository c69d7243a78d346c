"""Optimizers, schedules and trainers."""

from .optimization import MyBertAdamW, linear_schedule, parameter_groups
from .trainer import PretrainingTrainer, StopOnInterrupt

__all__ = ["MyBertAdamW", "PretrainingTrainer", "StopOnInterrupt", "linear_schedule", "parameter_groups"]
