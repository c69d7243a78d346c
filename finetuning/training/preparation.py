"""Preparing a run: the task with tokenizer, classes and data, and the initial model."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)

from ...files.source import Source
from ...modeling_mybert import IGNORE_INDEX
from ..data import LABEL_ARGUMENTS, DataRow, Labels, rows_of
from ..network.encoder_parts import encoder_layers, reinitialize_layers
from ..network.heads import has_new_head, longest_sequence
from ..prediction.predictor import task_for_columns
from ..tasks.task import Task, TaskData
from .finetuning_arguments import FinetuningArguments
from .parameters import add_adapter, freeze_layers, read_adapter_config, set_head_bias
from .samples import equal_texts_line, fold_numbers, sample, split_off

logger = logging.getLogger(__name__)

StartingModel = tuple[PreTrainedModel, list[str]]  # with the names of newly initialised parameters


@dataclass(frozen=True)
class TaskRun:
    """A task with its data, read and tokenized."""

    task: Task  # completed by the classes
    tokenizer: PreTrainedTokenizerBase
    labels: Labels | None  # the classes, if it has any
    train: TaskData
    validation: Mapping[str, TaskData]  # by name; a single data set has the name ""
    test: Mapping[str, TaskData]
    parts: Sequence[TaskData] = ()  # what the training data was joined from: labelled data, files without labels

    def __post_init__(self) -> None:
        """Complete the task with the classes."""
        object.__setattr__(self, "task", self.task.with_classes(self.labels))


def load_tokenizer(name: str) -> PreTrainedTokenizerBase:
    """The tokenizer of a model, with the model's maximum length."""
    tokenizer = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
    longest = longest_sequence(AutoConfig.from_pretrained(name, trust_remote_code=False))
    if longest is not None:  # pipelines truncate to it; a tokenizer may not have it
        tokenizer.model_max_length = min(tokenizer.model_max_length, longest)
    return tokenizer


def read_run(
    arguments: FinetuningArguments,
    task: Task,
    tokenizer: PreTrainedTokenizerBase | None = None,  # by default that of the model
    unlabelled: Sequence[Source] = (),  # further training data, without labels
    labels_for: Callable[[Task, Sequence[tuple[Source, Sequence[Any]]]], Labels | None] | None = None,
) -> TaskRun:
    """Read a task's data, hold out validation data and draw a sample, according to the settings, and tokenize it all.

    The classes are those of the training data, or what `labels_for` returns, given the examples of each source.
    """
    tokenizer = tokenizer or load_tokenizer(arguments.model)
    sources = arguments.sources(task)
    seed = arguments.sampling_seed
    found: dict[tuple[str, str], Sequence[Any]] = {}
    everything: Sequence[Any] = ()
    for train in sources["train"].values():
        rows = _rows(task, train, arguments.skip_empty)
        task = task.settled(rows)
        found["train", ""] = everything = task.training_examples(task.examples(rows, labelled=True), train)
    for name, source in sources["validation"].items():
        found["validation", name] = task.examples(_rows(task, source, arguments.skip_empty), labelled=True)
    if (arguments.validation_split or arguments.folds) and (line := equal_texts_line(task, everything)):
        logger.warning("%s: %s", sources["train"][""], line)
    if arguments.validation_split:
        found["train", ""], found["validation", ""] = split_off(task, everything, arguments.validation_split, seed)
        sources["validation"] = dict(sources["train"])
    if arguments.max_train_samples and everything:
        found["train", ""] = sample(task, found["train", ""], arguments.max_train_samples, seed)
    for name, source in sources["test"].items():
        rows = task.rows(source, labelled=False)
        found["test", name] = task.examples(rows, labelled=any(map(task.has_label, rows)))  # in all rows, or in none
    source_of = {(split, name): sources[split][name] for split, name in found}
    if labels_for is not None:
        labels = labels_for(task, [(source_of[key], examples) for key, examples in found.items()])
    elif (labels := task.labels(everything, sources["train"][""])) is not None:  # before held-out data is removed
        labels = task.in_order_of(arguments.model, labels)
    for source in unlabelled:
        source_of["unlabelled", str(source)] = source
        found["unlabelled", str(source)] = _unlabelled_examples(source, task)
    encoded = [task.encode(examples, labels, tokenizer, source_of[key]) for key, examples in found.items()]
    data: dict[str, dict[str, TaskData]] = {}
    for (split, name), part in zip(found, task.complete(encoded, tokenizer), strict=True):
        data.setdefault(split, {})[name] = part
    parts = [*data.get("train", {}).values(), *data.get("unlabelled", {}).values()]
    return TaskRun(task, tokenizer, labels, joined(parts), data.get("validation", {}), data.get("test", {}), parts)


def _unlabelled_examples(source: Source, task: Task) -> list[Any]:
    rows = rows_of(source, task, new=True)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{source} holds no rows.")
    return task_for_columns(task, first, ()).new_examples(list(chain([first], rows)))


def joined(parts: Sequence[TaskData]) -> TaskData:
    """Join data of several sources, without a `layout`; parts without labels get ignored labels."""
    if len(parts) == 1:
        return parts[0]
    names = dict.fromkeys(name for part in parts for name in part.inputs)
    like = {name: next(part.inputs[name][0] for part in parts if name in part.inputs) for name in names}
    inputs: dict[str, list[Any]] = {name: [] for name in names}
    for part in parts:
        for name in names:
            inputs[name] += part.inputs[name] if name in part.inputs else _no_labels(like[name], part)
    return TaskData(
        [example for part in parts for example in part.examples],
        inputs,
        parts[0].source,
        cut=sum(part.cut for part in parts),
        windowed=sum(part.windowed for part in parts),
    )


def _no_labels(label: Any, data: TaskData) -> list[Any]:
    """Ignored labels for every sequence, in the form of another part's labels."""
    if isinstance(label, float):
        return [np.nan] * len(data)
    if isinstance(label, list) and isinstance(label[0], float):
        return [[np.nan] * len(label)] * len(data)
    if isinstance(label, list):
        return [[IGNORE_INDEX] * len(ids) for ids in data.inputs["input_ids"]]
    return [IGNORE_INDEX] * len(data)


def _rows(task: Task, source: Source, skip_empty: bool) -> list[DataRow]:
    """The rows of labelled data; with `skip_empty` only those with text and label."""
    rows = task.rows(source, labelled=True)
    if not skip_empty:
        return rows
    kept = [row for row in rows if not task.is_empty(row)]
    if not kept:
        raise ValueError(f"{source} has {len(rows)} rows, and none with both text and label.")
    if len(kept) < len(rows):
        logger.info(
            "%s: %d of %d rows have no text or no label and are left out.", source, len(rows) - len(kept), len(rows)
        )
    return kept


def check_metric(run: TaskRun, arguments: FinetuningArguments) -> None:
    """Check that the validation data can be scored and has the metric that selects the best model."""
    names: set[str] = set()
    if arguments.folds:
        names = set.intersection(*map(set, _scores_of_folds(run, arguments))) | {"loss"}
    for name, data in run.validation.items():
        scores = _scores_of_right(run.task, data.examples, str(data.source))
        names |= {f"{name}_{metric}" if name else metric for metric in ("loss", *scores)}
    for data in run.test.values():
        if not data.inputs.keys().isdisjoint(LABEL_ARGUMENTS):
            _scores_of_right(run.task, data.examples, str(data.source))
    metric = str(arguments.metric_for_best_model).removeprefix("eval_")
    if names and metric not in names:
        raise ValueError(f"metric_for_best_model is {metric!r}; expected one of {', '.join(sorted(names))}.")


def _scores_of_folds(run: TaskRun, arguments: FinetuningArguments) -> list[dict[str, float]]:
    examples, source = run.train.examples, run.train.source
    numbers = fold_numbers(run.task, examples, arguments.folds, arguments.sampling_seed)
    parts: list[list[Any]] = [[] for _ in range(arguments.folds)]
    for example, number in zip(examples, numbers, strict=True):
        parts[number].append(example)
    return [_scores_of_right(run.task, part, f"A fold of {source} with {len(part)} examples") for part in parts]


def _scores_of_right(task: Task, examples: Sequence[Any], what: str) -> dict[str, float]:
    """The scores of all-correct predictions; `what` names the data in the message."""
    try:
        return task.score([task.right_prediction(example) for example in examples], examples)
    except ValueError as error:
        raise ValueError(f"{what} cannot be measured: {error}") from None


def check_batches(run: TaskRun, arguments: FinetuningArguments) -> None:
    """Check that there is at least one whole batch if incomplete batches are dropped."""
    whole = arguments.per_device_train_batch_size * arguments.world_size
    there = len(run.train)
    if arguments.folds:
        there -= -(-there // arguments.folds)
    if arguments.dataloader_drop_last and there < whole:
        raise ValueError(
            f"dataloader_drop_last is set and there are {there} sequences to train on, less than a batch of {whole}; "
            "leave it out, or give a smaller per_device_train_batch_size."
        )


def starting_model(
    run: TaskRun, arguments: FinetuningArguments, seed: int, config: PreTrainedConfig | None = None
) -> StartingModel:
    """The initial model, with adapters or frozen layers, and the names of its new, seeded parameters."""
    adapter = read_adapter_config(arguments.peft_config) if arguments.has_adapter else None
    set_seed(seed)
    model, new = run.task.load_model(arguments.model, run.labels, arguments, config)
    if has_new_head(model, new) and not arguments.class_weights:  # under which all classes are equally frequent
        set_head_bias(model, run.task, run.train)
    fresh, frozen = arguments.reinitialize_layers, arguments.freeze_layers
    reinitialize_layers(model, fresh)
    freeze_layers(model, None if arguments.freeze == "encoder" else frozen)
    if fresh and fresh + frozen > len(encoder_layers(model)):
        raise ValueError(
            f"reinitialize_layers is {fresh} and freeze_layers {frozen} of {len(encoder_layers(model))} layers: some "
            "would be random and never trained; expected less."
        )
    return (model if adapter is None else add_adapter(model, adapter)), new
