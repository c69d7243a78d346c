"""The task of a fine-tuned model, recorded in its `config.json`."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from transformers import PreTrainedConfig

from ...files import TASK_RECORD, head_name, read_json_object, write_json
from ...files.checkpoint import PRETRAINING_HEAD
from ..network.heads import heads_of, longest_sequence
from ..network.tagger import FeatureTaggerConfig
from .registry import TASKS
from .task import Task

logger = logging.getLogger(__name__)


def task_record(name: str, task: Task) -> dict[str, Any]:
    """The record of a task: its name, and the settings for reading data and making predictions."""
    values = {field: getattr(task, field) for field in _recorded_fields(task)}
    return {"task": name} | {
        field: list(value) if isinstance(value, tuple) else value for field, value in values.items()
    }


def _recorded_fields(task: Task) -> list[str]:
    return [name for name in dict.fromkeys((*task.options, *task.fitted_fields)) if name != "encoding"]


def write_task_record(model_dir: str | Path, record: Mapping[str, Any]) -> None:
    path = Path(model_dir) / "config.json"
    write_json(path, read_json_object(path) | {TASK_RECORD: dict(record)}, sort_keys=True)


def task_of_model(model: str, config: PreTrainedConfig) -> tuple[str, Task]:
    """The task that a model was fine-tuned for, and its name."""
    if found := recorded_task(model, config):
        return found
    # Without a record, the head decides, with the model's maximum length and the default column names.
    heads = heads_of(config)
    problem = config.problem_type or ("regression" if config.num_labels == 1 else "single_label_classification")
    fitting = [
        name
        for name, task in TASKS.items()
        if not task.files  # not a benchmark
        and head_name(task.auto_class.__name__) in heads
        and getattr(task, "problem", problem) == problem
    ]
    if not fitting or PRETRAINING_HEAD in heads:
        kinds = ", ".join(config.architectures or []) or "a plain encoder"
        raise ValueError(
            f"{model} is {kinds}, without a head for a task; expected a fine-tuned model (mybert finetune)"
            + (", or evaluate and predict with --task fill_mask or next_sentence" if PRETRAINING_HEAD in heads else "")
            + ", or mybert features --pooling mean for vectors of texts."
        )
    name, task = fitting[0], TASKS[fitting[0]]
    longest = longest_sequence(config) or task.max_length
    return name, replace(task, max_length=min(longest, max(task.max_length, 512)))


def recorded_task(model: str, config: PreTrainedConfig) -> tuple[str, Task] | None:
    """The recorded task of a model's configuration, with its name; None if its head is no longer that task's."""
    record = getattr(config, TASK_RECORD, None)
    if record is None:
        return None
    name, task = read_task_record(model, record)
    heads = heads_of(config) | ({"TokenClassification"} if isinstance(config, FeatureTaggerConfig) else set())
    return (name, task) if head_name(task.auto_class.__name__) in heads else None


def read_task_record(model: str, record: Any) -> tuple[str, Task]:
    """The task of a record and its name; the record is not trusted."""
    where = f"{TASK_RECORD} in the configuration of {model}"
    if not isinstance(record, dict) or not isinstance(record.get("task"), str) or record["task"] not in TASKS:
        raise ValueError(f"{where} is {str(record)[:80]}; expected an object with a task: {', '.join(TASKS)}.")
    task = TASKS[record["task"]]
    hints = get_type_hints(type(task))
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name not in _recorded_fields(task):
            continue  # the task's name, or a setting from a later version
        value = tuple(value) if isinstance(value, list) else value
        if not _is_of(value, hints[name]):
            expected = getattr(hints[name], "__name__", "") if type(hints[name]) is type else hints[name]
            raise ValueError(f"{where} has {str(value)[:80]!r} as {name}; expected {expected}.")
        values[name] = value
    return record["task"], replace(task, is_recorded="text_pair_column" in values, **values)


def _is_of(value: Any, hint: Any) -> bool:
    """Whether a value is of a field's type."""
    kind, parts = get_origin(hint), get_args(hint)
    if kind in (Union, UnionType):
        return any(_is_of(value, part) for part in parts)
    if kind is Literal:
        return value in parts
    if kind is tuple:
        return isinstance(value, tuple) and all(_is_of(item, parts[0]) for item in value)
    if kind is not None:  # Mapping
        return isinstance(value, dict) and all(
            _is_of(name, parts[0]) and _is_of(item, parts[1]) for name, item in value.items()
        )
    if hint is float:
        return type(value) in (int, float)
    return value is None if hint is NoneType else type(value) is hint
