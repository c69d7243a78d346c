"""Checks of settings that transformers, accelerate and PyTorch would look at only when training begins."""

import copy
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import torch
from accelerate.utils import DynamoBackend, FullyShardedDataParallelPlugin
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import (
    INTEGRATION_TO_CALLBACK,
    get_reporting_integration_callbacks,
)
from transformers.trainer_pt_utils import AcceleratorConfig
from transformers.trainer_utils import SchedulerType
from transformers.training_args import OptimizerNames

from ..files.checkpoint import read_json_object

_MAY_BE_FILES = ("accelerator_config", "fsdp_config", "deepspeed")
_OF_MODULES = ("galore", "apollo")  # optimizers for some of the layers
_OF_A_MODEL = (*_OF_MODULES, "lomo", "adalomo")  # their settings are read with the model


def check_objects(arguments: TrainingArguments) -> None:
    """Check settings that are a JSON object, given as one, as its text or as a file."""
    # `HfArgumentParser` changes the types of the fields, but not the annotations.
    for name in (name for name, kind in get_type_hints(TrainingArguments).items() if "dict" in str(kind)):
        value = getattr(arguments, name)
        found = _read_object(name, value) if isinstance(value, str) else value
        if name == "accelerator_config" and isinstance(found, Mapping):
            known = [option.name for option in fields(AcceleratorConfig)]
            if unknown := [key for key in found if key not in known]:
                raise ValueError(f"{name} has {', '.join(unknown)}; expected some of {', '.join(known)}.")
    if arguments.fsdp_config and not arguments.fsdp:
        raise ValueError("fsdp_config is set without fsdp, so it would have no effect; set fsdp, too.")


def _read_object(name: str, value: str) -> Any:
    may_be_file = name in _MAY_BE_FILES
    if may_be_file and Path(value).is_file():
        return read_json_object(value)
    if not value.startswith("{"):
        raise ValueError(f"{name} is {value!r}; expected a JSON object{' or a file with one' if may_be_file else ''}.")
    try:
        return json.loads(value)
    except ValueError as error:
        raise ValueError(f"{name} is {value!r}, which is not JSON ({error}).") from error


def check_libraries(arguments: TrainingArguments) -> None:
    """Check what the libraries are told to use, after `__post_init__`; an ImportError if a package is missing."""
    _check_optimization(arguments)
    _check_compilation(arguments)
    _check_reports(arguments)
    if arguments.fsdp_plugin_args is not None:
        try:
            FullyShardedDataParallelPlugin(**arguments.fsdp_plugin_args)
        except (AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
            raise ValueError(
                f"fsdp_config has a value that does not fit ({type(error).__name__}: {error})."
            ) from error


def _check_optimization(arguments: TrainingArguments) -> None:
    """Refuse an optimizer and a schedule without what they need, and settings that they do not read."""
    _check_optimizer(arguments)
    settings: Any = arguments.lr_scheduler_kwargs or {}
    if arguments.lr_scheduler_type == "linear" and settings:
        raise ValueError(f"lr_scheduler_kwargs is {settings}; the linear schedule takes none.")
    rate = 1.0 if arguments.learning_rate is None else arguments.learning_rate  # chosen once the model is read
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=rate)
    try:
        get_scheduler(arguments.lr_scheduler_type, optimizer, 1, 100, scheduler_specific_kwargs=settings)
    except (TypeError, ValueError) as error:
        name = SchedulerType(arguments.lr_scheduler_type).value
        raise ValueError(
            f"lr_scheduler_type is {name!r} with lr_scheduler_kwargs {settings}, which do not fit: {error}."
        ) from error


def _check_optimizer(arguments: TrainingArguments) -> None:
    given, name = arguments.optim_args, OptimizerNames(arguments.optim).value
    parts = given.split(",") if given else []
    if any(part.count("=") != 1 for part in parts):
        raise ValueError(f"optim_args is {given!r}; expected name=value, several separated by commas.")
    if name.startswith(_OF_MODULES) and not arguments.optim_target_modules:
        raise ValueError(f"optim is {name!r} without optim_target_modules; expected the layers that it is for.")
    if arguments.optim_target_modules and not name.startswith(_OF_MODULES):
        raise ValueError(
            f"optim_target_modules is {arguments.optim_target_modules!r}, which only optimizers of type "
            f"{' and '.join(_OF_MODULES)} read; leave it out."
        )
    if name.startswith(_OF_A_MODEL):
        with suppress(ValueError):  # the model is not loaded yet
            Trainer.get_optimizer_cls_and_kwargs(arguments)
        return
    try:
        Trainer.get_optimizer_cls_and_kwargs(arguments)
    except (AttributeError, ValueError) as error:
        with_settings = f" with optim_args {given!r}" if given else ""
        raise ValueError(f"optim is {name!r}{with_settings}, which does not fit: {error}.") from error
    if unread := [key for key in (part.partition("=")[0].strip() for part in parts) if not _reads(arguments, key)]:
        raise ValueError(f"optim_args has {', '.join(unread)}, which the optimizer does not read; leave it out.")


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


def _check_compilation(arguments: TrainingArguments) -> None:
    backend, mode = arguments.torch_compile_backend, arguments.torch_compile_mode
    backends = [known.value.lower() for known in DynamoBackend]
    if backend is not None and backend.lower() not in backends:
        raise ValueError(f"torch_compile_backend is {backend!r}; expected one of {', '.join(backends)}.")
    if mode is not None and mode not in (modes := torch._inductor.list_mode_options()):
        raise ValueError(f"torch_compile_mode is {mode!r}; expected one of {', '.join(modes)}.")


def _check_reports(arguments: TrainingArguments) -> None:
    for name in arguments.report_to or ():
        if name not in INTEGRATION_TO_CALLBACK:
            raise ValueError(f"report_to is {name!r}; expected none, all or {', '.join(INTEGRATION_TO_CALLBACK)}.")
    for callback in get_reporting_integration_callbacks(arguments.report_to):
        try:
            callback()
        except (ImportError, RuntimeError) as error:  # RuntimeError for most missing packages
            raise ImportError(f"report_to is {', '.join(arguments.report_to)}: {error}") from error
