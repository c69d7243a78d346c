"""What makes a run safe and fast to interrupt; optimizers and schedules."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .callbacks import TICKS, StopOnInterrupt, TimeBudget, log_or_print
    from .optimizers import OPTIMIZERS, MuonWithAdamW, MyBertAdamW, linear_schedule, matrix_groups, parameter_groups
    from .run_arguments import EvaluationTimes, RunArguments, arguments_by_name, check_libraries, suggest_bfloat16
    from .run_folder import (
        RUN_FOLDER,
        RunFolder,
        draw_curves,
        is_sharded,
        log_on_main_process,
        prepare_once,
        started_on_cpus,
    )
    from .trainer import DivergedError, ResumableTrainer, last_complete_checkpoint

__all__ = [
    "OPTIMIZERS",
    "RUN_FOLDER",
    "TICKS",
    "DivergedError",
    "EvaluationTimes",
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
    "is_sharded",
    "last_complete_checkpoint",
    "linear_schedule",
    "log_on_main_process",
    "log_or_print",
    "matrix_groups",
    "parameter_groups",
    "prepare_once",
    "started_on_cpus",
    "suggest_bfloat16",
]

__getattr__, __dir__ = lazy_names(__name__)
