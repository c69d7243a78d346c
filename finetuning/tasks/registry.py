"""Which task: the record in a model's `config.json`, and the files of a benchmark."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from transformers import PreTrainedConfig

from ...files.checkpoint import TASK_RECORD, Checkpoint, head_name, read_json_object
from ...files.errors import worded
from ...files.loading import longest_sequence, recorded_length
from ...files.output import write_json
from ...files.source import HubSplit, InMemoryData, Source
from ...files.text import content_name
from ..data import Labels
from ..features import FeatureTaggerConfig
from ..heads import heads_of
from .task import Task
from .task_table import TASKS


def task_record(name: str, task: Task) -> dict[str, Any]:
    """The record of a task: its name, and the settings for reading data and making predictions."""
    record: dict[str, Any] = {"task": name}
    for field in (*task.options, *task.fitted_fields, *task.learned_fields):
        if field != "encoding":
            value = getattr(task, field)
            record[field] = list(value) if isinstance(value, tuple) else value
    return record


def write_task_record(model_dir: str | Path, record: Mapping[str, Any]) -> None:
    path = Path(model_dir) / "config.json"
    write_json(path, read_json_object(path) | {TASK_RECORD: dict(record)}, sort_keys=True)


def task_of_model(checkpoint: Checkpoint, wanted: str | None = None) -> tuple[str, Task]:
    """The task that a model was fine-tuned for, or a wanted one, as recorded if it is that; with its name."""
    model, config = checkpoint.name, checkpoint.config
    heads = heads_of(config)
    record = getattr(config, TASK_RECORD, None)
    if record is not None:
        name, task = read_task_record(model, record)
        own = heads | ({"TokenClassification"} if isinstance(config, FeatureTaggerConfig) else set())
        if wanted in (None, name) and head_name(task.auto_class.__name__) in own:  # else it has got another head
            return name, task
        if wanted is not None and type(TASKS[wanted]) is type(task):  # such as ner for a model of tagging
            learned = {field: getattr(task, field) for field in task.learned_fields}
            return wanted, replace(fitted_to_model(TASKS[wanted], config), **learned)
    if wanted is not None:
        return wanted, fitted_to_model(TASKS[wanted], config)
    # Without a record, the head decides, with the model's maximum length and the default column names.
    problem = config.problem_type or ("regression" if config.num_labels == 1 else "single_label_classification")
    labels, count = Labels.from_config(config), config.num_labels
    fitting = [
        name
        for name, task in TASKS.items()
        if not task.files  # not a benchmark
        and head_name(task.auto_class.__name__) in heads
        and getattr(task, "problem", problem) == problem
        and len(task.config_fields(labels).get("id2label", range(count))) == count
    ]
    has_both = heads >= {"MaskedLM", "NextSentencePrediction"}
    if not fitting or has_both:
        kinds = ", ".join(config.architectures or []) or "a plain encoder"
        template = (
            "{} is {}, without a head for a task; expected a fine-tuned model (mybert finetune)"
            + ", or evaluate and predict with {task='fill_mask'} or next_sentence" * has_both
            + ", or mybert features --pooling mean for vectors of texts."
        )
        raise ValueError(worded(template, model, kinds))
    name, task = fitting[0], TASKS[fitting[0]]
    return name, replace(task, max_length=recorded_length(checkpoint) or max(task.max_length, 512))


def read_task_record(model: str, record: Any) -> tuple[str, Task]:
    """The task of a record and its name; the record is not trusted."""
    where = f"{TASK_RECORD} in the configuration of {model}"
    if not isinstance(record, dict) or not isinstance(record.get("task"), str) or record["task"] not in TASKS:
        raise ValueError(f"{where} is {str(record)[:80]}; expected an object with a task: {', '.join(TASKS)}.")
    task = TASKS[record["task"]]
    known, hints = task_record(record["task"], task), get_type_hints(type(task))
    values: dict[str, Any] = {}
    for name, value in record.items():
        if name == "task" or name not in known:  # a setting from a later version
            continue
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


def fitted_to_model(task: Task, config: PreTrainedConfig) -> Task:
    """The task with sequences no longer than a model can read."""
    return replace(task, max_length=min(task.max_length, longest_sequence(config) or task.max_length))


def benchmark_files(folder: str | Path, task: Task, split: str) -> list[str]:
    """The files of a split in the folder of a benchmark, compressed or not; several if the task has names for them."""
    found = [
        next(iter(sorted(Path(folder).glob(pattern)) or sorted(Path(folder).glob(f"{pattern}.gz"))), None)
        for pattern in task.files.get(split, ())
    ]
    files = [str(path) for path in found if path]
    return files if len(task.evaluations) > 1 else files[:1]


def evaluation_names(task: Task, sources: Any) -> dict[str, Source]:
    """Name several files of a split: by the task's names, or else by their own; a single one has the name ""."""
    sources = [Source.of(source) for source in sources]
    if len(sources) <= 1:
        return dict(zip([""], sources, strict=False))
    given = [source.part for source in sources if isinstance(source, InMemoryData)]
    if len(sources) == len(task.evaluations) and not given:
        return dict(zip(task.evaluations, sources, strict=True))
    names = given or [s.split if isinstance(s, HubSplit) else content_name(s.described) for s in sources]
    if wrong := [name for name in names if not name or Path(name).name != name]:
        raise ValueError(f"{wrong[0]!r} names a data set, and files of its results; expected the name of a file.")
    if len(set(map(str.casefold, names))) < len(names):  # on macOS and Windows, case makes no difference
        raise ValueError(f"The files {', '.join(map(str, sources))} have the same name; expected different ones.")
    return dict(zip(names, sources, strict=True))
