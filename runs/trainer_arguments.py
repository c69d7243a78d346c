"""What transformers' `Trainer` reads, made from the settings of a training; what libraries reject is found first."""

import copy
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.metadata import version
from typing import Any

import torch
from accelerate.utils import DynamoBackend, FullyShardedDataParallelPlugin
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK, get_reporting_integration_callbacks
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from ..files.errors import SettingError, worded
from ..files.machine import bfloat16_features, usable_cores
from ..files.options import default_of
from ..files.settings import Decision
from .optimizers import OPTIMIZERS
from .trainer_options import TrainerOptions, table
from .training_settings import TrainingSettings

logger = logging.getLogger(__name__)

_CHOSEN_LATER = ("learning_rate", "num_train_epochs", "per_device_train_batch_size", "load_best_model_at_end")
_MAX_WORKERS = 4  # one worker masks about a million tokens per second
LOGGED_EVERY = 50  # steps between log entries
SCHEDULED_BY_EVALUATIONS = ("reduce_lr_on_plateau", "greedy")  # by `metric_for_best_model`
_OF_MODULES = ("galore", "apollo")  # optimizers for some of the layers
_OF_A_MODEL = (*_OF_MODULES, "lomo", "adalomo")  # their settings are read with the model


def _fitting_workers() -> int:
    """Number of data-loader workers with a GPU: up to 4."""
    share = usable_cores() // int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return max(0, min(_MAX_WORKERS, share - 1))


def training_arguments(settings: TrainingSettings, **chosen: Any) -> TrainingArguments:
    """The arguments of transformers' `Trainer` for a training, with values that a plan has chosen.

    `optim` may be one of `OPTIMIZERS`, and `logging_steps` None, to fit the number of steps: for `ResumableTrainer`.

    Raises:
        ValueError: If transformers rejects a value, or a library would.
        ImportError: If a package for `report_to` is missing.
    """
    options, known = TrainingArguments.__dataclass_fields__, TrainerOptions.__dataclass_fields__
    for name in settings.transformers.keys() - options.keys():
        template = (
            "{:option} is set, but transformers {} has no such argument; leave it out, or install transformers {}."
        )
        raise SettingError.worded(template, name, version("transformers"), table()["transformers"])
    shared = options.keys() & known.keys() - settings.unsupported.keys()
    values = {name: getattr(settings, name) for name in options if name in shared} | chosen
    uses_gpu = torch.cuda.is_available() and not values["use_cpu"]
    if values["dataloader_num_workers"] is None:
        values["dataloader_num_workers"] = _fitting_workers() if uses_gpu else 0
    if values["dataloader_pin_memory"] is None:
        values["dataloader_pin_memory"] = uses_gpu
    if values["bf16"] == "auto":
        values["bf16"] = not values["fp16"] and _multiplies_bfloat16(uses_gpu)
    if (values["bf16"] or values["bf16_full_eval"]) and not torch.accelerator.is_available():
        values["use_cpu"] = True  # otherwise TrainingArguments would raise an error without an accelerator
    if values["accelerator_config"] is None and values["dataloader_pin_memory"]:
        values["accelerator_config"] = {"non_blocking": True}  # pinned batches are copied while the GPU computes
    optim = getattr(values["optim"], "value", values["optim"])
    if optim not in (*OPTIMIZERS, *(known.value for known in OptimizerNames)):
        raise SettingError(
            "optim", optim, f"one of {', '.join(OPTIMIZERS)}, or one of transformers'", known=OPTIMIZERS
        )
    # transformers accepts only numbers, and its own optimizers.
    accepted: dict[str, Any] = {"logging_steps": values["logging_steps"] or LOGGED_EVERY}
    if optim in OPTIMIZERS:
        accepted["optim"] = TrainingArguments.optim
    accepted |= {name: default_of(options[name]) for name in _CHOSEN_LATER if values[name] is None}
    made: Any = TrainingArguments(**values | accepted)
    made.optim, made.logging_steps = optim if optim in OPTIMIZERS else made.optim, values["logging_steps"]
    if made.lr_scheduler_type in SCHEDULED_BY_EVALUATIONS and made.greater_is_better:
        # By default they expect a metric to fall, and reduce the rate while it rises.
        made.lr_scheduler_kwargs = {"mode": "max"} | (made.lr_scheduler_kwargs or {})
    # The precision of `accelerate launch` counts as a flag: a run records it, and resumes with it.
    made.bf16, made.fp16 = made.mixed_precision == "bf16", made.mixed_precision == "fp16"
    if made.fp16 and made.device.type == "cpu":
        logger.warning("fp16 is set and has no effect on a CPU: this run computes in float32.")
    if getattr(made.accelerator_config, "dispatch_batches", None):
        raise SettingError.worded(
            "{accelerator_config} has dispatch_batches, by which one process makes the batches of all "
            "processes; here each makes its own: leave it out."
        )
    check_libraries(made)
    return made


def decided_by_machine(settings: TrainingSettings, training: TrainingArguments) -> dict[str, Decision]:
    """What the machine decided for options that leave it open."""
    decisions = {}
    if settings.bf16 == "auto":
        why = "this machine multiplies in bfloat16" if training.bf16 else "this machine does not multiply in bfloat16"
        decisions["bf16"] = Decision(training.bf16, why)
    if settings.dataloader_num_workers is None and training.dataloader_num_workers:
        why = "one core of this process is kept for the training"
        decisions["dataloader_num_workers"] = Decision(training.dataloader_num_workers, why)
    return decisions


def suggest_bfloat16(arguments: TrainingArguments) -> None:
    """Suggest `--bf16` if the CPU has instructions for it, or the GPU, and the run computes in float32."""
    if arguments.bf16 or arguments.fp16 or not arguments.should_log:
        return
    if arguments.device.type == "cuda" and _multiplies_bfloat16(uses_gpu=True):
        _log_once(
            "This GPU multiplies in bfloat16: with --bf16 steps take less time, and with --dropout 0 in addition "
            "padding is not computed."
        )
    elif arguments.device.type == "cpu" and (instructions := bfloat16_features()):
        _log_once(
            f"This processor multiplies in bfloat16 ({', '.join(instructions)}): with --bf16 steps would take about "
            "two thirds of the time."
        )


@cache
def _log_once(line: str) -> None:
    """Log a line that is true of every run of the process."""
    logger.info("%s", line)


def _multiplies_bfloat16(uses_gpu: bool) -> bool:
    if uses_gpu:
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return bool(bfloat16_features())


def check_libraries(arguments: TrainingArguments) -> None:
    """Check what libraries would look at only when training begins; an ImportError if a package is missing."""
    _check_optimizer(arguments)
    settings: Any = arguments.lr_scheduler_kwargs or {}
    if arguments.lr_scheduler_type == "linear" and settings:
        raise SettingError.worded("{lr_scheduler_kwargs} is {}; the linear schedule takes none.", settings)
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=arguments.learning_rate)
    name = SchedulerType(arguments.lr_scheduler_type).value
    with _fits("{lr_scheduler_type} is {!r} with {lr_scheduler_kwargs} {}, which do not fit", name, settings):
        get_scheduler(name, optimizer, 1, 100, scheduler_specific_kwargs=settings)
    if arguments.fsdp_plugin_args is not None:
        with _fits("{fsdp_config} has a value that does not fit"):
            FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
    backend, mode = arguments.torch_compile_backend, arguments.torch_compile_mode
    backends = [known.value.lower() for known in DynamoBackend]
    if backend is not None and backend.lower() not in backends:
        raise SettingError("torch_compile_backend", backend, known=backends)
    if mode is not None and mode not in (modes := torch._inductor.list_mode_options()):
        raise SettingError("torch_compile_mode", mode, known=modes)
    for name in arguments.report_to or ():
        if name not in (known := [*INTEGRATION_TO_CALLBACK]):
            raise SettingError("report_to", name, f"none, all or {', '.join(known)}", known=known)
    for callback in get_reporting_integration_callbacks(arguments.report_to):
        try:
            callback()
        except (ImportError, RuntimeError) as error:  # RuntimeError for most missing packages
            raise ImportError(worded("{report_to} is {}: {}", ", ".join(arguments.report_to), error)) from error


@contextmanager
def _fits(template: str, *values: Any) -> Iterator[None]:
    """Report that a library rejects a setting, whichever error it raises, with a message as of `worded`."""
    try:
        yield
    except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        raise SettingError.worded(f"{template} ({{}}: {{}}).", *values, type(error).__name__, error) from error


def _check_optimizer(arguments: TrainingArguments) -> None:
    given, name = arguments.optim_args, getattr(arguments.optim, "value", arguments.optim)
    parts = given.split(",") if given else []
    if any(part.count("=") != 1 for part in parts):
        raise SettingError("optim_args", given, "name=value, several separated by commas")
    if name.startswith(_OF_MODULES) and not arguments.optim_target_modules:
        raise SettingError.worded(
            "{optim} is {!r} without {optim_target_modules}; expected the layers that it is for.", name
        )
    if arguments.optim_target_modules and not name.startswith(_OF_MODULES):
        raise SettingError.worded(
            "{optim_target_modules} is {!r}, which only optimizers of type {} read; leave it out.",
            arguments.optim_target_modules,
            " and ".join(_OF_MODULES),
        )
    if name.startswith(_OF_A_MODEL):
        with suppress(ValueError):  # the model is not loaded yet
            Trainer.get_optimizer_cls_and_kwargs(arguments)
        return
    is_own = name in OPTIMIZERS
    if not is_own:
        with_args = worded(" with {optim_args} {!r}", given) if given else ""
        with _fits("{optim} is {!r}{}, which does not fit", name, with_args):
            Trainer.get_optimizer_cls_and_kwargs(arguments)
    keys = [part.partition("=")[0].strip() for part in parts]
    if unread := [key for key in keys if is_own or not _reads(arguments, key)]:
        raise SettingError.worded(
            "{optim_args} has {}, which the optimizer does not read; leave it out.", ", ".join(unread)
        )


def _reads(arguments: TrainingArguments, key: str) -> bool:
    """Whether an optimizer reads a setting of `optim_args`: its value changes the optimizer's arguments."""
    made = []
    for value in "01":
        changed = copy.copy(arguments)
        changed.optim_args = f"{key}={value}"
        try:
            made.append(Trainer.get_optimizer_cls_and_kwargs(changed))
        except (AttributeError, ValueError):  # it is not a number
            return True
    return made[0] != made[1]
