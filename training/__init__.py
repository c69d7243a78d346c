"""Optimizers, schedules and trainers."""

from .optimization import MyBertAdamW, linear_schedule, parameter_groups
from .run_folder import nothing_left_behind, open_run_folder
from .trainer import PretrainingTrainer, StopOnInterrupt

__all__ = [
    "MyBertAdamW",
    "PretrainingTrainer",
    "StopOnInterrupt",
    "linear_schedule",
    "nothing_left_behind",
    "open_run_folder",
    "parameter_groups",
]
