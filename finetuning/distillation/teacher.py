"""The teacher: its outputs, computed once and stored in parts that survive an interruption; its embeddings.

Its logits are a student's soft targets: for each text, word or token that the student reads.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from accelerate import PartialState
from safetensors import SafetensorError
from safetensors.numpy import load_file, save_file
from tqdm.auto import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...files.checkpoint import Checkpoint
from ...files.output import PARTIAL, written_beside
from ...files.text import new_digest
from ...pipelines import pool_windows
from ..data import Labels
from ..network.features import FeatureTaggerConfig
from ..prediction.predictor import FinetunedModel, load_finetuned_model
from ..tasks import ClassificationTask, TaggingTask
from ..tasks.task import WINDOW_WEIGHT, Task, TaskData, network_outputs

logger = logging.getLogger(__name__)

SOFT_TARGETS = "soft_targets"
"""Extra key of training inputs: the teacher's logits (K,) or (tokens, K), NaN where missing."""

TEACHER_OUTPUTS = "teacher_outputs"
"""Folder, in that of the run, with the teacher's outputs."""

SEQUENCES_OF_A_PART = 1024
"""Number of sequences sorted by length together and written as one file, the most that an interruption loses."""

_DEVIATION = 3  # times that of random weights, so that words outweigh the position embeddings added to them


@dataclass(frozen=True)
class Teacher:
    """A fine-tuned model to learn from."""

    found: FinetunedModel

    @classmethod
    def load(cls, name: str, task: Task, device: torch.device) -> Teacher:
        """Load a teacher for a task; one without its head, or with another kind of head, is an error."""
        checkpoint = Checkpoint(name)
        config = checkpoint.config
        if isinstance(config, FeatureTaggerConfig):
            raise ValueError(
                f"{name} is a tagger on frozen features; expected a teacher whose encoder was fine-tuned."
            )
        problem, wanted = getattr(config, "problem_type", None), getattr(task, "problem", None)
        if problem is not None and wanted is not None and problem != wanted:
            raise ValueError(f"{name} was fine-tuned for {problem}; expected a teacher for {wanted}, as the task is.")
        return cls(load_finetuned_model(task, checkpoint, device))

    def read(self, task: Task, data: TaskData) -> TaskData:
        """The examples of data, tokenized for the teacher."""
        return task.encode(data.examples, self.labels_of(task), self.found.tokenizer, data.source)

    def labels_of(self, task: Task) -> Labels | None:
        """Its classes, if the task has classes; other outputs' names in the configuration are ignored."""
        return self.found.labels if task.has_classes else None

    @cached_property
    def _digest(self) -> bytes:
        """A digest of its configuration and weights."""
        digest = new_digest()
        digest.update(self.found.model.config.to_json_string().encode())
        for name, tensor in sorted(self.found.model.state_dict().items()):
            digest.update(name.encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.digest()

    def fingerprint(self, data: TaskData) -> str:
        """A fingerprint of the teacher and the data."""
        digest = new_digest()
        digest.update(self._digest)
        for name in sorted(set(data.inputs) & set(self.found.tokenizer.model_input_names)):
            read = [name, SEQUENCES_OF_A_PART, data.inputs[name]]
            digest.update(json.dumps(read, default=np.ndarray.tolist).encode())
        return digest.hexdigest()

    def outputs(self, task: Task, data: TaskData, folder: Path) -> list[np.ndarray]:
        """The `rows_of_outputs` for data, read from the folder, or computed by all processes and stored there."""
        state, fingerprint = PartialState(), self.fingerprint(data)
        starts = range(0, len(data), SEQUENCES_OF_A_PART)
        files = [folder / f"{fingerprint}-{number:05d}.safetensors" for number in range(len(starts))]
        if state.is_main_process and folder.is_dir():
            for left in folder.glob(f".*{PARTIAL}"):  # left by a call that was killed while writing
                left.unlink()
        state.wait_for_everyone()
        if state.is_main_process and not all(file.is_file() for file in files):  # there may be no progress bar
            logger.info("The teacher reads %s, %s examples.", data.source, f"{len(data):,}")
        shown = {"desc": f"Teacher on {data.source}", "unit_scale": SEQUENCES_OF_A_PART, "delay": 2}
        for number, start in enumerate(tqdm(starts, disable=not state.is_main_process or None, **shown)):
            if number % state.num_processes == state.process_index and not files[number].is_file():
                self._write(task, data, start, files[number])
        state.wait_for_everyone()
        return [row for file in files for row in _read_part(file)]

    def _write(self, task: Task, data: TaskData, start: int, file: Path) -> None:
        """Compute and write a part."""
        end = start + SEQUENCES_OF_A_PART
        part = replace(data, inputs={name: values[start:end] for name, values in data.inputs.items()})
        outputs = network_outputs(task, part, self.found.model, self.found.tokenizer)
        rows = rows_of_outputs(outputs, part)
        tensors = {"logits": np.concatenate(rows), "rows": np.array([len(row) for row in rows])}
        with written_beside(file) as path:
            save_file(tensors, path)


def _read_part(file: Path) -> Sequence[np.ndarray]:
    try:
        part: Mapping[str, np.ndarray] = load_file(file)
    except SafetensorError as error:
        raise ValueError(
            f"{file} is not a complete safetensors file ({error}); delete it, and the same call computes it again."
        ) from error
    return np.split(part["logits"], np.cumsum(part["rows"])[:-1])


@torch.no_grad()
def init_embeddings_from_teacher(
    student: PreTrainedModel,
    teacher: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    tokenizer_of_teacher: PreTrainedTokenizerBase,
) -> int:
    """Initialize word embeddings with the teacher's principal components; returns the number of common pieces."""
    known = tokenizer_of_teacher.get_vocab()
    both = [(own, known[piece]) for piece, own in sorted(tokenizer.get_vocab().items()) if piece in known]
    if not both:
        raise ValueError("teacher_embeddings is set, but the vocabularies of student and teacher share no piece.")
    own, theirs = torch.tensor(both).T
    weights = student.get_input_embeddings().weight
    states = teacher.get_input_embeddings().weight[theirs.to(teacher.device)].double()
    states = states - states.mean(0)
    _, directions = torch.linalg.eigh(states.T @ states)  # the one with the largest variance is the last
    width = min(weights.shape[1], states.shape[1])
    found = torch.zeros(len(own), weights.shape[1], dtype=torch.float64, device=states.device)
    found[:, :width] = states @ directions.flip(1)[:, :width]
    length = _DEVIATION * student.config.initializer_range * weights.shape[1] ** 0.5
    found *= length / found.norm(dim=1).mean()
    # Embeddings of pieces that the teacher lacks do not change.
    weights[own.to(weights.device)] = found.to(weights)
    return len(both)


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
