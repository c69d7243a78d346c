"""A teacher's logits as soft targets for a student: for each text, word or token that it reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...pipelines import pool_windows
from ..tasks import (
    ClassificationTask,
    FillMaskTask,
    NextSentenceTask,
    TaggingTask,
)
from ..tasks.task import WINDOW_WEIGHT, Task, TaskData

SOFT_TARGETS = "soft_targets"
"""Extra key of training inputs: the teacher's logits (K,) or (tokens, K), NaN where missing."""


def check_can_be_distilled(name: str, task: Task) -> None:
    """Reject tasks of the pretraining heads."""
    if isinstance(task, (NextSentenceTask, FillMaskTask)):
        raise ValueError(
            f"task is {name!r}; distillation is for classification, regression, tagging, multiple choice and question "
            "answering."
        )


def rows_of_outputs(outputs: Any, data: TaskData) -> list[np.ndarray]:
    """A table for each sequence: (1, K), or (tokens, K) without padding; an answer's start and end are two columns."""
    values = [np.stack(row, axis=-1) for row in zip(*outputs, strict=True)] if isinstance(outputs, tuple) else outputs
    return [
        row[None] if row.ndim == 1 else row[: len(ids)]
        for row, ids in zip(values, data.inputs["input_ids"], strict=True)
    ]


def outputs_of_rows(task: Task, rows: Sequence[np.ndarray]) -> Any:
    """The inverse of `rows_of_outputs`, for `Task.predict`."""
    if task.objective == "span":
        return tuple([row[:, column] for row in rows] for column in (0, 1))
    return list(rows) if isinstance(task, TaggingTask) else [row[0] for row in rows]


def with_soft_targets(
    task: Task, data: TaskData, read: TaskData, rows: Sequence[np.ndarray], columns: Sequence[int] | None = None
) -> TaskData:
    """Add the teacher's logits for the same examples, read as `read`, to a student's data."""
    # For each class of the student, its index in the teacher's.
    if columns is not None:
        rows = [row[:, columns] for row in rows]
    inputs = dict(data.inputs)
    if isinstance(task, TaggingTask):
        # A word has them at its first piece, even if the tokenizers differ.
        inputs[SOFT_TARGETS] = _of_words(data, read, rows)
    elif task.objective == "span":
        # Student and teacher read the same tokens.
        inputs[SOFT_TARGETS] = list(rows)
    else:
        logits = np.concatenate(rows)
        owners = np.arange(len(data))
        if isinstance(task, ClassificationTask) and task.window_pooling is not None:
            logits = pool_windows(logits, read.layout, task.window_pooling).astype(np.float32)
            owners = data.layout
            inputs[WINDOW_WEIGHT] = (1 / np.bincount(owners))[owners].tolist()
        inputs[SOFT_TARGETS] = [logits[owner] for owner in owners]
    return replace(data, inputs=inputs)


def _of_words(data: TaskData, read: TaskData, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The logits of each sequence's tokens, NaN except at the first piece of each word that is tagged in it."""
    of_word: dict[tuple[int, int], np.ndarray] = {}
    for row, layout in zip(rows, read.layout, strict=True):
        for place in np.flatnonzero(layout[:, 0] >= 0):
            of_word[tuple(layout[place].tolist())] = row[place]
    found = []
    for layout in data.layout:
        targets = np.full((len(layout), rows[0].shape[1]), np.nan, dtype=np.float32)
        for place in np.flatnonzero(layout[:, 0] >= 0):
            targets[place] = of_word[tuple(layout[place].tolist())]
        found.append(targets)
    return found


def collate_soft_targets(
    collate: Callable[[list[dict[str, Any]]], Mapping[str, Any]],
) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """Extend a collator by soft targets: (B, K), or (B, L, K) with NaN at padding."""

    def batch_of(rows: list[dict[str, Any]]) -> dict[str, Any]:
        batch = dict(collate([{name: row[name] for name in row if name != SOFT_TARGETS} for row in rows]))
        if SOFT_TARGETS in rows[0]:
            targets = [torch.as_tensor(row[SOFT_TARGETS], dtype=torch.float32) for row in rows]
            if targets[0].ndim == 2:
                length = batch["input_ids"].shape[1]
                targets = [
                    torch.nn.functional.pad(row, (0, 0, 0, length - len(row)), value=torch.nan) for row in targets
                ]
            batch[SOFT_TARGETS] = torch.stack(targets)
        return batch

    return batch_of
