"""Which task: the settings that all commands on task data share, and the record in a model's `config.json`."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import torch
from accelerate import PartialState
from transformers import PreTrainedConfig

from ...files.checkpoint import TASK_RECORD, Checkpoint, check_available, head_name, read_json_object
from ...files.errors import SettingError, worded
from ...files.loading import longest_sequence
from ...files.options import AT_LEAST_0, AT_LEAST_1, SHARE, Group, Range, check_options, option
from ...files.output import write_json
from ...files.source import HubSplit, InMemoryData, Source
from ...files.text import PAIR_SEPARATOR
from ...runs import started_on_cpus
from ..data import Labels, text_columns
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


def task_of_model(model: str, config: PreTrainedConfig, wanted: str | None = None) -> tuple[str, Task]:
    """The task that a model was fine-tuned for, or a wanted one, as recorded if it is that; with its name."""
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
    fitting = [
        name
        for name, task in TASKS.items()
        if not task.files  # not a benchmark
        and head_name(task.auto_class.__name__) in heads
        and _fits(task, config, problem)
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
    return name, replace(task, max_length=longest_sequence(config) or max(task.max_length, 512))


def _fits(task: Task, config: PreTrainedConfig, problem: str) -> bool:
    """Whether a model's kind of labels, and the number of its outputs, are those of a task."""
    if getattr(task, "problem", problem) != problem:
        return False
    outputs = task.config_fields(Labels.from_config(config)).get("id2label", range(config.num_labels))
    return len(outputs) == config.num_labels


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


LENGTH = Range("at least 3: [CLS], [SEP] and some text", 3)
SKIP_EMPTY_HELP = (
    "Leave out rows without text or label, and log how many; predict keeps those without text, with empty answers."
)
BATCH_SIZE_HELP = "Sequences per batch (default: chosen by their lengths and the device)."


def _listed(*without: str) -> str:
    """The tasks for help: those on a user's own data, then the benchmarks."""
    benchmarks = [name for name, task in TASKS.items() if task.files]
    own = [name for name in TASKS if name not in (*benchmarks, *without)]
    return f"on your own data {', '.join(own)}; benchmarks {', '.join(benchmarks)}"


@dataclass
class DataColumns:
    """The columns of texts; those that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    text_column: str | None = option(
        None,
        "Column of the text: sentence, words, question or prompt (default: the task's; for classification text).",
    )
    text_pair_column: str | None = option(
        None, "Column of the second text: of a pair, the context, or the stem shared by all choices."
    )
    encoding: str | None = option(None, "Encoding of the data files (default: utf-8).")


@dataclass
class LabelColumn:
    """The column of labels."""

    group = Group.READING
    decides = True
    label_column: str | None = option(
        None, "Column of label, tags, value or answers (default: the task's; for classification label)."
    )


@dataclass
class LabelSettings(LabelColumn):
    """How labels are read; settings that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    label_columns: list[str] | None = option(
        None, "Columns of 0 and 1, one per label (multilabel), or of numbers (scores)."
    )
    label_separator: str | None = option(
        None, "Separator of the labels of a text, multilabel (default: whichever of , ; | occurs)."
    )


@dataclass
class TargetSettings(LabelSettings):
    """How labels are read, and what a network learns of them."""

    continuation_labels: Literal["ignore", "inside"] | None = option(
        None,
        "Label of a word's further pieces: ignored, or inside the entity (I-).",
        group=Group.ANSWERS,
        decides=True,
    )


@dataclass
class AnswerSettings:
    """Which answers are given; settings that are not given have the task's defaults."""

    group = Group.ANSWERS
    decides = True
    n_best_size: int | None = option(None, "Answers in nbest_predictions.json (default: 20).", AT_LEAST_1)
    confidence_threshold: float | None = option(
        None,
        "Leave a label empty if its probability is lower (one class per text).",
        SHARE,
        idle_with="predictions",
    )


class TaskChoice:
    """The task that settings name, with the settings given for it."""

    task: Any

    def resolve_task(self) -> Task:
        """The task with the given settings, which must be its own."""
        name, task = self._chosen_task()
        return replace(task, **self._given_settings(name))

    @property
    def new_data(self) -> tuple[str, str | None]:
        """A file of new data for the model in `output_dir`, and what its lines hold if that is not one text."""
        folder = str(getattr(self, "output_dir", ""))
        _, task = task_of_model(folder, Checkpoint(folder).config)
        if "choice_columns" in task.options:
            return "new.jsonl", f"an object with {', '.join(task.columns(labeled=False))}"
        return "new.txt", PAIR_SEPARATOR.join(text_columns(task)) if task.text_pair_column else None

    def _given_settings(self, name: str) -> dict[str, Any]:
        """The settings given for a task; a setting of other tasks, or a column named twice, is an error."""
        if name not in TASKS:
            raise SettingError.worded(
                "{task} is {!r}; for labels of your own use classification. Expected one of {}.",
                name,
                ", ".join(TASKS),
                known=[*TASKS],
                unknown=[name],
            )
        task, given = TASKS[name], dict[str, Any]()
        for each in TASK_OPTIONS:
            if (value := getattr(self, each, None)) is None:
                continue
            if each not in task.options:
                template = "{:option} is not a setting of the task {}, which has {}."
                raise SettingError.worded(template, each, name, ", ".join(task.options))
            if isinstance(value, list) and (twice := [name for name in value if value.count(name) > 1]):
                raise SettingError.worded("{:option} names {!r} twice; expected different columns.", each, twice[0])
            given[each] = tuple(value) if isinstance(value, list) else value
        return given

    def _chosen_task(self) -> tuple[str, Task]:
        """The task and its name, before settings are applied."""
        self._given_settings(self.task)  # checks the name
        return self.task, TASKS[self.task]


@dataclass
class TaskArguments(TaskChoice, DataColumns):
    """The task and its data; settings that are not given have the task's defaults."""

    group = Group.READING
    decides = True
    task: str = option("classification", f"The task: {_listed('fill_mask')}.", group=Group.INPUT)
    choice_columns: list[str] | None = option(None, "Columns of the choices, or the column that holds lists of them.")
    max_length: int | None = option(
        None, "Longest sequence in tokens (default: 128, question answering 384).", LENGTH, group=Group.SEQUENCES
    )
    max_document_context: bool | None = option(
        None, "Fill each sequence with the sentence's neighbors in its document, as context.", group=Group.SEQUENCES
    )
    window_pooling: Literal["mean", "max"] | None = option(
        None,
        "Read texts longer than max_length in windows and pool their logits (default: truncate them).",
        group=Group.SEQUENCES,
    )
    doc_stride: int | None = option(
        None,
        "Tokens that neighboring windows of a long text share (default: 128, or half a window).",
        AT_LEAST_0,
        group=Group.SEQUENCES,
    )
    max_question_length: int | None = option(
        None, "Longest question in tokens (default: 64).", AT_LEAST_1, group=Group.SEQUENCES
    )
    max_answer_length: int | None = option(
        None, "Longest answer in tokens (default: 30).", AT_LEAST_1, group=Group.ANSWERS
    )
    max_context: bool | None = option(
        None, "Take answers from the window with most context around them (Google's rule).", group=Group.ANSWERS
    )
    null_score_threshold: float | None = option(
        None,
        "SQuAD 2.0: no answer above this score difference (default: best on the validation data).",
        group=Group.ANSWERS,
    )


TASK_OPTIONS = [
    each.name
    for kind in (TaskArguments, TargetSettings, AnswerSettings)
    for each in fields(kind)
    if each.name != "task"
]


@dataclass
class InferenceSettings:
    """A model, and how it is run."""

    group = Group.SEQUENCES
    model: str | None = option(None, "Fine-tuned model, folder or Hub name.", group=Group.INPUT, reads="model")
    batch_size: int | None = option(None, BATCH_SIZE_HELP, AT_LEAST_1, idle_with="predictions")
    dtype: Literal["float32", "bfloat16"] = option(
        "float32", "Type of the weights, and of the computation.", decides=True
    )
    use_cpu: bool = option(False, "Use the CPU, even if there is an accelerator.", group=Group.TRAINING)

    def __post_init__(self) -> None:
        check_options(self)
        if started_on_cpus():
            self.use_cpu = True

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """The model, each part of which is read once."""
        assert self.model
        return Checkpoint(self.model)

    @property
    def state(self) -> PartialState:
        """The processes and the device."""
        state = PartialState(cpu=self.use_cpu)
        if state.num_processes == 1 and (state.device.type == "cpu") != self.use_cpu:
            # It has the device of an earlier call, if there was one in this Python process.
            device = "cpu" if self.use_cpu else os.environ.get("ACCELERATE_TORCH_DEVICE", state.default_device)
            state.device = torch.device(device)
        return state


@dataclass
class FinetunedModelArguments(TaskArguments, InferenceSettings):
    """The settings of commands that use a fine-tuned model; it records what it was trained for."""

    task: str | None = option(  # type: ignore[assignment]  # the model's own
        None, f"The task: {_listed()} (default: what the model was fine-tuned for).", group=Group.INPUT
    )
    dtype: Literal["float32", "bfloat16", "int8"] = option(  # type: ignore[assignment]
        "float32",
        "Type of the computation; int8 is for folders that `mybert convert openvino --dtype int8` wrote.",
        group=Group.SEQUENCES,
        decides=True,
        idle_with="predictions",
    )
    skip_empty: bool = option(False, SKIP_EMPTY_HELP, group=Group.READING, decides=True)

    def __post_init__(self) -> None:
        """Check what can be checked without looking at data."""
        super().__post_init__()
        if self.model:
            self.checkpoint.check(ask_hub=False, needs_weights=not self.checkpoint.has_graph)
        if self.model is None or Path(self.model).is_dir():
            self.resolve_task()
        elif self.task is not None:  # the task of a model on the Hub is read when it is loaded
            self._given_settings(self.task)

    @classmethod
    def of_training(cls, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Model and data format from the settings of its fine-tuning, as in a file for `finetune --config`."""
        shared = {each.name for each in fields(cls)} & {"task", "use_cpu", "skip_empty", *TASK_OPTIONS}
        found = {name: settings[name] for name in [*shared, "quiet"] if settings.get(name) is not None}
        return found | ({"model": settings["output_dir"]} if settings.get("output_dir") else {})

    @property
    def task_name(self) -> str:
        """The name of the task, which may be the model's own."""
        return self._chosen_task()[0]

    def _chosen_task(self) -> tuple[str, Task]:
        """The model's own task with its recorded settings, unless another is named."""
        if self.task is not None:
            self._given_settings(self.task)  # reports errors without loading the model
        if self.model is None:
            name = self.task or TaskArguments.task
            return name, TASKS[name]
        check_available(self.model)
        return task_of_model(self.model, self.checkpoint.config, self.task)


@dataclass
class MeasuredModelArguments(LabelSettings, FinetunedModelArguments):
    """The settings of commands that measure a fine-tuned model on labeled data."""


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
    names = given or [
        s.split if isinstance(s, HubSplit) else s.described.rpartition(":")[2].partition(".")[0] for s in sources
    ]
    if wrong := [name for name in names if not name or Path(name).name != name]:
        raise ValueError(f"{wrong[0]!r} names a data set, and files of its results; expected the name of a file.")
    if len(set(map(str.casefold, names))) < len(names):  # on macOS and Windows, case makes no difference
        raise ValueError(f"The files {', '.join(map(str, sources))} have the same name; expected different ones.")
    return dict(zip(names, sources, strict=True))
