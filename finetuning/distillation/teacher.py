"""The teacher: its outputs are computed once, and stored in parts that survive an interruption; its embeddings."""

from __future__ import annotations

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

from ...files import PARTIAL, Checkpoint, written_beside
from ...files.text import new_digest
from ..data import Labels
from ..network.features import FeatureTaggerConfig
from ..prediction.predictor import FinetunedModel, load_finetuned_model
from ..tasks.task import Task, TaskData, network_outputs
from .soft_targets import rows_of_outputs

logger = logging.getLogger(__name__)

TEACHER_OUTPUTS = "teacher_outputs"
"""Folder, in that of the run, with the teacher's outputs."""

SEQUENCES_OF_A_PART = 1024
"""Number of sequences sorted by length together and written as one file, the most that an interruption loses."""

_DEVIATION = 3  # times that of random weights, so that words outweigh the position embeddings added to them


@dataclass(frozen=True)
class Teacher:
    """A fine-tuned model to learn from."""

    name: str  # folder or Hub name
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
        return cls(name, load_finetuned_model(task, checkpoint, device))

    @property
    def files(self) -> list[str]:
        """The files of its folder that determine its outputs."""
        return Checkpoint(self.name).deciding_files

    @property
    def parameters(self) -> int:
        return self.found.model.num_parameters()

    def columns(self, labels: Labels | None) -> list[int] | None:
        """For each class of a student, its index in the teacher; None if there are no classes."""
        return None if labels is None else [self.found.labels.names.index(name) for name in labels.names]

    def read(self, task: Task, data: TaskData) -> TaskData:
        """The examples of data, tokenized for the teacher."""
        encoded = task.encode(data.examples, self.labels_of(task), self.found.tokenizer, data.source)
        return task.complete([encoded], self.found.tokenizer)[0]

    def labels_of(self, task: Task) -> Labels | None:
        """Its classes, if the task has classes; other outputs' names in the configuration are ignored."""
        return self.found.labels if task.has_classes else None

    def scores(self, task: Task, data: TaskData, outputs: Any) -> dict[str, float]:
        """The metrics of its outputs for labelled data."""
        return task.score(task.predict(outputs, data, self.found.labels), data.examples)

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
            digest.update(f"{name} {SEQUENCES_OF_A_PART} {len(data)}".encode())
            for sequence in data.inputs[name]:
                choices = sequence if np.ndim(sequence[0]) else [sequence]  # of different lengths
                for ids in [np.array(choice, dtype=np.int64) for choice in choices]:
                    digest.update(np.array(ids.shape, dtype=np.int64).tobytes())
                    digest.update(ids.tobytes())
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
