"""The steps that are alike for all kinds of tasks: reading files, loading and running a network, answers and tables.

read_task_rows -> (examples, encode) -> network_outputs -> answers, write_predictions, write_errors
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ... import metrics
from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError, worded
from ...files.source import FileSource, Source
from ...files.tables import write_separated
from ...pipelines.batching import run_sorted
from ..data import (
    LABEL_ARGUMENTS,
    WINDOW_WEIGHT,
    DataRow,
    Labels,
    TaskData,
    accepted_rows,
    check_columns,
    has_class_numbers,
    listed,
    rounded,
    rows_of,
    sequences_of,
    text_columns,
)
from ..heads import check_head, check_max_length, keeps_head, load_with_head, starting_config
from ..network_settings import NetworkChanges
from .sentence_rows import continues_sentence
from .task import Task

logger = logging.getLogger(__name__)

PLACE_COLUMNS = ("source", "row")
"""The columns of a table of errors that locate an example."""

_LOSS_INPUTS = (*LABEL_ARGUMENTS, WINDOW_WEIGHT)
_MAX_LABELS = 10  # in the summary of predictions


# Rows and examples


def read_examples(task: Task, source: Source, skip_empty: bool = False) -> list[Any]:
    """Read labeled examples to be measured on, with the settings that they imply, see `Format.infer_columns`."""
    rows = read_task_rows(task, source, skip_empty=skip_empty)
    return task.infer_columns(rows).examples(rows, labeled=True)


def read_task_rows(task: Task, source: Source, labeled: bool | None = True, skip_empty: bool = False) -> list[DataRow]:
    """Read the rows of a file, with `skip_empty` those with text and label; columns may be missing in some.

    With `labeled` None, they have labels if any of them has one.
    """
    rows = list(rows_of(source, task))
    if not rows:
        raise ValueError(f"{source} holds no rows.")
    if labeled is None:
        labeled = any(task.has_label(row, may_be_blank=False) for row in rows)
    check_columns(rows, task.columns(labeled))
    if labeled:
        rows = list(accepted_rows(rows, task.columns(labeled)))
    if not skip_empty:
        return rows
    filled = [row for row in rows if not is_empty(task, row, labeled)]
    needed = ("text", "label") if labeled else ("text",)
    if not filled:
        raise ValueError(f"{source} has {len(rows)} rows, and none with {'both ' * labeled}{' and '.join(needed)}.")
    if left_out := len(rows) - len(filled):
        what = " or ".join(f"no {part}" for part in needed)
        logger.info("%s: %d of %d rows have %s and are left out.", source, left_out, len(rows), what)
    return filled


def is_empty(task: Task, row: DataRow, labeled: bool = True) -> bool:
    """Whether a row has no text, or, of labeled data, no label."""
    return not (has_text(task, row) and (not labeled or task.has_label(row, may_be_blank=False)))


def has_text(task: Task, row: DataRow) -> bool:
    """Whether a row has the texts that the task needs; of a pair, one may be enough."""
    filled = [row.has(name) for name in text_columns(task)]
    return {"first": filled[0], "any": any(filled), "all": all(filled)}[task.needed_texts]


def continues_example(task: Task, row: DataRow, previous: DataRow) -> bool:
    """Whether a row of new data belongs to the example of the row before it: both are words of one sentence."""
    return task.reads_conll and continues_sentence(row, previous, task.text_column)


# The network


def load_task_model(
    task: Task,
    name: str,
    labels: Labels | None,
    changes: NetworkChanges | None = None,
    config: PreTrainedConfig | None = None,  # of a model with random weights, in place of the model's
) -> tuple[PreTrainedModel, list[str]]:
    """Load a model with a task's head, or a new head if it has another one; also returns the new parameters."""
    before, changes = Checkpoint(name).config, changes or NetworkChanges()
    own = initial_config(task, name, before, labels, changes, config)
    return load_with_head(name, before, task.auto_class, own, changes, changes.from_scratch or config is not None)


def initial_config(
    task: Task,
    name: str,
    before: PreTrainedConfig,  # the configuration in its folder
    labels: Labels | None,
    changes: NetworkChanges,
    own_config: PreTrainedConfig | None = None,  # of a model with random weights, in place of the model's
) -> PreTrainedConfig:
    """The configuration of a model with a task's head, before it is trained; the model must fit the task."""
    check_max_length(task.max_length, name, before)
    config_fields = task.config_fields(labels)
    if keeps_head(before, task.auto_class, changes):
        _check_order(task, name, before)
        if "id2label" in config_fields:
            check_head(name, before, Labels(tuple(config_fields["id2label"].values())))
    return starting_config(name, before, config_fields, changes, own_config)


def trained_classes(task: Task, name: str, config: PreTrainedConfig) -> Labels:
    """The classes of a fine-tuned model, which must be able to do the task."""
    check_max_length(task.max_length, name, config)
    _check_order(task, name, config)
    labels = named(task, Labels.from_config(config))
    fields = task.config_fields(labels)
    outputs = fields.get("id2label", labels.names)
    if len(outputs) != len(labels.names):
        raise ValueError(
            f"{name} was fine-tuned with {len(labels.names)} labels ({listed(labels.names)}); this task has "
            f"{len(outputs)}."
        )
    trained = getattr(config, "problem_type", None)
    if trained and fields.get("problem_type", trained) != trained:
        template = "{task} is for {}, and {} was fine-tuned for {}; leave it out."
        raise SettingError.worded(template, fields["problem_type"], name, trained)
    return labels


def in_order_of(task: Task, name: str, labels: Labels) -> Labels:
    """The classes in the order of a model, folder or Hub name, that was fine-tuned for the same classes."""
    trained = named(task, Labels.from_config(Checkpoint(name).config))
    return trained if set(trained.names) == set(labels.names) else labels


def named(task: Task, labels: Labels) -> Labels:
    """A model's classes with the benchmark's names, if the data or the model only numbers them."""
    if not task.has_named_head:
        return Labels(task.classes)
    if len(labels.names) != len(task.classes) or set(labels.names) == set(task.classes):
        return labels
    is_numbered = has_class_numbers(task) or labels.names == Labels.numbered(len(task.classes)).names
    return Labels(task.classes) if is_numbered else labels


def _check_order(task: Task, name: str, config: PreTrainedConfig) -> None:
    """Reject unnamed classes if published models order them differently (MNLI)."""
    names = Labels.from_config(config).names
    if task.glue and names == Labels.numbered(len(names)).names:  # LABEL_0 or 0
        metrics.require_named_labels(name, task.glue, {number: f"LABEL_{number}" for number in range(len(names))})


def network_outputs(
    task: Task,
    data: TaskData,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    batch_size: int | None = None,  # sequences; None to choose it for the device
    shared: bool = False,  # whether the processes of a run divide the work; each returns all results
    progress: bool = False,
) -> Any:
    """Run data through a model in eval mode: an array for each sequence, the input of `Task.predict`."""
    unlabeled = {name: values for name, values in data.inputs.items() if name not in _LOSS_INPUTS}
    rows: Any = replace(data, inputs=unlabeled)
    tokens = unlabeled["input_ids"] if "input_ids" in unlabeled else next(iter(unlabeled.values()))
    lengths = [sum(map(len, sequences_of(ids))) for ids in tokens]  # over all choices

    def keep(outputs: Any, batch: Mapping[str, Any], rows: object) -> Any:
        kept = [values.float().cpu().numpy() for values in task.kept_outputs(outputs, batch)]
        if not all(np.isfinite(values).all() for values in kept):  # the probability of infinity is NaN
            found = "NaN" if any(np.isnan(values).any() for values in kept) else "infinity"
            raise ValueError(
                f"The model computes {found} for {data.source}; expected numbers. Are its weights damaged?"
            )
        return zip(*kept, strict=True)

    collate = task.collator(tokenizer, model)
    outputs = run_sorted(model, rows, collate, keep, batch_size, lengths, shared, progress)
    columns = [list(column) for column in zip(*outputs, strict=True)]
    # A tuple of such lists for several outputs.
    return columns[0] if len(columns) == 1 else tuple(columns)


# Predictions


def check_answers(task: Task, top_k: int, probabilities: bool) -> None:
    """Check that a task can give such `answers`."""
    if task.loss.is_regression and (top_k > 1 or probabilities):
        numbers = "numbers" if task.names_outputs else "one number per text"
        raise SettingError.worded(
            "{top_k} or {probabilities} is set, but this task predicts {}; leave it out.", numbers
        )
    option, most = "", task.most_listed
    if isinstance(most, str):
        option, most = most, getattr(task, most)
    if most is not None and top_k > most:
        limit = worded("expected at most {:option}, {}", option, most) if option else f"this task lists at most {most}"
        raise SettingError.worded("{top_k} is {}; {}.", top_k, limit)
    if probabilities and not task.has_probabilities:
        raise SettingError.worded("{probabilities} is set, but this task has no class probabilities; leave it out.")


def answers(
    task: Task, predictions: Sequence[Any], examples: Sequence[Any], top_k: int = 1, probabilities: bool = False
) -> list[dict[str, Any]]:
    """Predictions for users: for each row `label` and `score`, or the fields of the kind of task.

    With `top_k` above 1 so many are listed as `best`; with `probabilities` each class has a `probability_<class>`.
    """
    rows: list[dict[str, Any]] = []
    for prediction, example in zip(predictions, examples, strict=True):
        columns = task.columns_of(prediction, example, top_k)
        if columns.row_answers:
            rows += columns.row_answers
            continue
        answer: dict[str, Any] = dict(columns.answer)
        if top_k > 1:
            answer |= {"best": columns.best}
        if probabilities:
            answer |= {f"probability_{name}": rounded(value) for name, value in columns.probabilities.items()}
        rows.append(answer)
    return rows


def counted_labels(task: Task, answer: Mapping[str, Any]) -> Sequence[str]:
    """The labels that a summary counts in one of `answers`, "" for none: those of entities, if it has them."""
    if not task.has_classes:
        return ()
    if "entities" in answer:
        return [entity["label"] for entity in answer["entities"]]
    label = answer["label"]
    return label if label and isinstance(label, list) else (label or "",)


def label_count_line(task: Task, counts: Counter[str], rows: int) -> str:
    """How often each label was predicted in so many rows, the most frequent ones first; "" if none was counted."""
    shown = counts.most_common(_MAX_LABELS)
    parts = [
        f"{name or 'no label'} {count:,}{f' ({count / rows:.1%})' if task.labels_rows else ''}"
        for name, count in shown
    ]
    if others := counts.total() - sum(count for _, count in shown):
        parts.append(f"others {others:,}")
    return f"Labels: {', '.join(parts)}." if parts else ""


def long_text_lines(task: Task, examples: int, cut: int, windowed: int) -> list[str]:
    """Messages about texts longer than the model's input, of which so many were truncated or read in windows."""
    advice = " (--window_pooling mean reads them whole)" if "window_pooling" in task.options else ""
    counts = {f"truncated{advice}": cut, "read in windows": windowed}
    longer = f"longer than {task.max_length} tokens"
    return [
        f"{count:,} of {examples:,} texts {'is' if count == 1 else 'are'} {longer}: {done}."
        for done, count in counts.items()
        if count
    ]


def write_predictions(
    task: Task, predictions: Sequence[Any], examples: Sequence[Any], folder: Path, suffix: str = ""
) -> None:
    """Write predictions in the benchmark's format: `predictions<suffix>`, with the ending of the format."""
    task.prediction_file.write(task, predictions, examples, folder, suffix)


def read_predictions(task: Task, path: Path, examples: Sequence[Any], source: Source | None = None) -> list[Any]:
    """Read a file written by `write_predictions`, or by another tool in the same format.

    With the file of the examples, columns that both files have show whether the predictions are in the data's order.
    """
    can_be_read_again = isinstance(source, FileSource) and Path(source.path).is_file()
    numbered = {row.number: row for row in rows_of(source, task)} if can_be_read_again else {}
    rows = [numbered[example.row] for example in examples] if numbered else []
    return task.prediction_file.read(task, path, examples, rows)


def write_errors(task: Task, predictions: Sequence[Any], data: TaskData, path: Path) -> None:
    """Write a table of the errors in predictions, the surest first, each with its source and row there."""
    errors = [
        (rank, columns | dict(zip(PLACE_COLUMNS, (data.source, example.row), strict=True)))
        for prediction, example in zip(predictions, data.examples, strict=True)
        for rank, columns in task.errors(prediction, example)
    ]
    errors.sort(key=itemgetter(0), reverse=True)
    names = list(errors[0][1]) if errors else PLACE_COLUMNS
    write_separated(path, [names, *([str(columns[name]) for name in names] for _, columns in errors)])
