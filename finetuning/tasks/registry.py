"""The registry of tasks, and the record of a model's task in its `config.json`.

A task of the registry is one entry, with the files, metrics and training settings of its benchmark, whose files are
read as published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from transformers import PreTrainedConfig

from ...files import TASK_RECORD, head_name, read_json_object, write_json
from ...files.checkpoint import PRETRAINING_HEAD
from ..network.features import FeatureTaggerConfig
from ..network.heads import heads_of, longest_sequence
from .classification import ClassificationTask, NextSentenceTask
from .fill_mask import FillMaskTask
from .multiple_choice import MultipleChoiceTask
from .question_answering import QuestionAnsweringTask
from .tagging import TaggingTask
from .task import Task

_BINARY = ("0", "1")
_ENTAILMENT = ("entailment", "not_entailment")
_GLUE_FILES = {"train": ("train.tsv",), "validation": ("dev.tsv",), "test": ("test.tsv",)}


def _glue(name: str, main_metric: str, text: str, pair: str | None = None, **fields: Any) -> ClassificationTask:
    """A GLUE task (Wang et al., 2019); with the settings of the paper (section 4.1): batches of 32, three epochs."""
    defaults = {
        "glue": name,
        "main_metric": main_metric,
        "text_column": text,
        "text_pair_column": pair,
        "files": _GLUE_FILES,
    }
    return ClassificationTask(**defaults | fields)


def _squad(version: str, epochs: float, **fields: Any) -> QuestionAnsweringTask:
    """SQuAD (Rajpurkar et al., 2016, 2018); epochs of the paper (sections 4.2 and 4.3)."""
    return QuestionAnsweringTask(
        files={"train": (f"train-v{version}.json",), "validation": (f"dev-v{version}.json",)},
        defaults={"num_train_epochs": epochs},
        **fields,
    )


TASKS: dict[str, Task] = {
    "classification": ClassificationTask(main_metric="accuracy"),
    "cola": _glue(
        "cola",
        "matthews_correlation",
        "sentence",
        file_columns=("source", "label", "author_mark", "sentence"),
        classes=_BINARY,
    ),
    "sst2": _glue("sst2", "accuracy", "sentence", classes=_BINARY),
    "mrpc": _glue(
        "mrpc",
        "f1",
        "#1 String",
        "#2 String",
        label_column="Quality",
        classes=_BINARY,
        hub={"text_column": "sentence1", "text_pair_column": "sentence2", "label_column": "label"},
    ),
    "stsb": _glue(
        "stsb",
        "pearson",
        "sentence1",
        "sentence2",
        label_column="score",
        problem="regression",
        hub={"label_column": "label", "unlabelled": -1.0},
    ),
    "qqp": _glue(
        "qqp",
        "f1",
        "question1",
        "question2",
        label_column="is_duplicate",
        classes=_BINARY,
        skip_broken_rows=True,
        hub={"label_column": "label"},
    ),
    "mnli": _glue(
        "mnli",
        "accuracy",
        "sentence1",
        "sentence2",
        label_column="gold_label",
        classes=("entailment", "neutral", "contradiction"),
        files={
            "train": ("train.tsv",),
            "validation": ("dev_matched.tsv", "dev_mismatched.tsv"),
            "test": ("test_matched.tsv", "test_mismatched.tsv"),
        },
        evaluations=("matched", "mismatched"),
        hub={"text_column": "premise", "text_pair_column": "hypothesis", "label_column": "label"},
    ),
    "qnli": _glue("qnli", "accuracy", "question", "sentence", classes=_ENTAILMENT),
    "rte": _glue("rte", "accuracy", "sentence1", "sentence2", classes=_ENTAILMENT),
    "wnli": _glue("wnli", "accuracy", "sentence1", "sentence2", classes=_BINARY),
    "squad": _squad("1.1", 3.0, main_metric="f1"),
    "squad_v2": _squad("2.0", 2.0, main_metric="best_f1", unanswerable=True),
    # Zellers et al. (2018); the paper, section 4.4: batches of 16, three epochs, 2e-5.
    "swag": MultipleChoiceTask(
        main_metric="accuracy",
        text_column="sent1",
        text_pair_column="sent2",
        choice_columns=("ending0", "ending1", "ending2", "ending3"),
        files={"train": ("train.csv",), "validation": ("val.csv",), "test": ("test.csv",)},
        defaults={"learning_rate": 2e-5, "per_device_train_batch_size": 16},
    ),
    # CoNLL-2003 (Tjong Kim Sang and De Meulder, 2003) and everything in its format.
    "ner": TaggingTask(
        main_metric="f1",
        text_column="tokens",
        label_column="tags",
        files={
            "train": ("eng.train", "train.txt", "train.conll", "*train.conll"),
            "validation": ("eng.testa", "valid.txt", "dev.conll", "*dev.conll"),
            "test": ("eng.testb", "test.txt", "test.conll", "*test.conll"),
        },
        hub={"label_column": "ner_tags"},
    ),
    # For a user's own data, like classification.
    "multilabel": ClassificationTask(
        main_metric="micro_f1", label_column="labels", problem="multi_label_classification"
    ),
    "regression": ClassificationTask(main_metric="pearson", label_column="score", problem="regression"),
    "multiple_choice": MultipleChoiceTask(main_metric="accuracy"),
    "tagging": TaggingTask(main_metric="f1", text_column="tokens", label_column="tags", any_tags=True),
    "question_answering": QuestionAnsweringTask(main_metric="f1"),
    # With the pretraining heads.
    "next_sentence": NextSentenceTask(main_metric="accuracy"),
    "fill_mask": FillMaskTask(),
}


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
