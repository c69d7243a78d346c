"""What makes a run safe and fast to interrupt; optimizers and schedules."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .callbacks import TICKS, StopOnInterrupt, TimeBudget, log_or_print
    from .optimizers import OPTIMIZERS, MuonWithAdamW, MyBertAdamW, linear_schedule, matrix_groups, parameter_groups
    from .plan_report import dry_run_report, size_of
    from .run_folder import (
        RUN_FOLDER,
        RunFolder,
        draw_curves,
        is_sharded,
        log_on_main_process,
        prepare_once,
        started_on_cpus,
        state_of_run,
    )
    from .trainer import DivergedError, ResumableTrainer, last_complete_checkpoint
    from .trainer_arguments import (
        SCHEDULED_BY_EVALUATIONS,
        decided_by_machine,
        suggest_bfloat16,
        training_arguments,
    )
    from .training_settings import (
        Batches,
        EvaluationTimes,
        Machine,
        Optimization,
        Records,
        TrainingSettings,
        settings_by_name,
    )

__all__ = [
    "OPTIMIZERS",
    "RUN_FOLDER",
    "SCHEDULED_BY_EVALUATIONS",
    "TICKS",
    "Batches",
    "DivergedError",
    "EvaluationTimes",
    "Machine",
    "MuonWithAdamW",
    "MyBertAdamW",
    "Optimization",
    "Records",
    "ResumableTrainer",
    "RunFolder",
    "StopOnInterrupt",
    "TimeBudget",
    "TrainingSettings",
    "decided_by_machine",
    "draw_curves",
    "dry_run_report",
    "is_sharded",
    "last_complete_checkpoint",
    "linear_schedule",
    "log_on_main_process",
    "log_or_print",
    "matrix_groups",
    "parameter_groups",
    "prepare_once",
    "settings_by_name",
    "size_of",
    "started_on_cpus",
    "state_of_run",
    "suggest_bfloat16",
    "training_arguments",
]

__getattr__, __dir__ = lazy_names(__name__)
