"""Optimizers, schedules, trainers, and what makes a run safe to interrupt."""

from .optimization import Lamb, MyBertAdamW, linear_schedule, parameter_groups
from .processes import prepare_once, speak_in_one_process
from .resumable_trainer import DivergedError, ResumableTrainer
from .run_folder import (
    draw_curves,
    last_complete_checkpoint,
    moved_when_complete,
    nothing_left_behind,
    open_run_folder,
    write_json,
)
from .trainer import OPTIMIZERS, PretrainingTrainer, StopOnInterrupt

__all__ = [
    "OPTIMIZERS",
    "DivergedError",
    "Lamb",
    "MyBertAdamW",
    "PretrainingTrainer",
    "ResumableTrainer",
    "StopOnInterrupt",
    "draw_curves",
    "last_complete_checkpoint",
    "linear_schedule",
    "moved_when_complete",
    "nothing_left_behind",
    "open_run_folder",
    "parameter_groups",
    "prepare_once",
    "speak_in_one_process",
    "write_json",
]
