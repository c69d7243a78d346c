"""What makes a run safe and fast to interrupt; optimizers and schedules."""

from .checkpoints import last_complete_checkpoint
from .interruption import StopOnInterrupt
from .library_settings import check_libraries
from .muon import MuonWithAdamW, matrix_groups
from .optimizers import Lamb, MyBertAdamW, parameter_groups
from .processes import prepare_once, speak_in_one_process, started_on_cpus
from .run_arguments import RunArguments, arguments_by_name, suggest_bfloat16
from .run_folder import RUN_FOLDER, RunFolder, draw_curves
from .schedules import linear_schedule
from .time_budget import TICKS, TimeBudget
from .trainer_overrides import DivergedError, ResumableTrainer

__all__ = [
    "RUN_FOLDER",
    "TICKS",
    "DivergedError",
    "Lamb",
    "MuonWithAdamW",
    "MyBertAdamW",
    "ResumableTrainer",
    "RunArguments",
    "RunFolder",
    "StopOnInterrupt",
    "TimeBudget",
    "arguments_by_name",
    "check_libraries",
    "draw_curves",
    "last_complete_checkpoint",
    "linear_schedule",
    "matrix_groups",
    "parameter_groups",
    "prepare_once",
    "speak_in_one_process",
    "started_on_cpus",
    "suggest_bfloat16",
]
