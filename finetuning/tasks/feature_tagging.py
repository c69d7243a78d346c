"""Tagging of words by a BiLSTM on the hidden states of a frozen encoder (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from ...cards import Example, run_example
from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError
from ...files.loading import load_model
from ...files.source import Source
from ...modeling_mybert import IGNORE_INDEX
from ..data import Labels, TaskData
from ..feature_table import FEATURES, TABLE_7
from ..features import FeatureTagger, FeatureTaggerConfig, hidden_states, load_encoder
from ..heads import check_max_length
from .tagging import Examples, TaggedSentence, Words, tag
from .task import Task


@dataclass(frozen=True, kw_only=True)
class FeatureTask(Words):
    """Tagging by a BiLSTM on frozen features."""

    encoder: str  # folder or Hub name
    features: str
    # Names of all features to compute, of which `features` is one; their hidden states are stored in half precision.
    stored: tuple[str, ...]
    lstm_size: int = 768  # units in each direction
    device: str = "cpu"  # of the encoder

    auto_class: ClassVar[Any] = FeatureTagger

    @cached_property
    def _encoder_config(self) -> PreTrainedConfig:
        return Checkpoint(self.encoder).config

    @cached_property
    def _network(self) -> PreTrainedModel:
        """The encoder, kept for the data that this task reads."""
        return load_encoder(self.encoder, self.device)

    def _states(self, names: Sequence[str]) -> list[int]:
        num_layers = self._encoder_config.num_hidden_layers
        return sorted({number for name in names for number in FEATURES[name].states(num_layers)})

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[TaggedSentence]:
        """Run sentences through the encoder; `layout` has (sentence, word) of each hidden state."""
        check_max_length(self.max_length, self.encoder, self._encoder_config)
        data = super().encode(examples, labels, tokenizer, source)
        # A window within a very long word may have no first piece.
        is_word = {number: places[:, 0] >= 0 for number, places in enumerate(data.layout) if places.max() >= 0}
        names = [name for name in data.inputs if name != "labels"]
        sequences = [{name: data.inputs[name][number] for name in names} for number in is_word]
        found = hidden_states(self._network, tokenizer, sequences, self._states(self.stored))
        inputs: dict[str, Any] = {
            "features": [
                states[words].astype(np.float16) for states, words in zip(found, is_word.values(), strict=True)
            ]
        }
        if "labels" in data.inputs:
            inputs["labels"] = [np.array(data.inputs["labels"][number])[words] for number, words in is_word.items()]
        return replace(data, inputs=inputs, layout=[data.layout[number][words] for number, words in is_word.items()])

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator for the hidden states of these features."""
        stored = self._states(self.stored)
        chosen = [stored.index(number) for number in self._states([self.features])]

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            states = [torch.from_numpy(row["features"][:, chosen]).float() for row in rows]
            ones = [torch.ones(len(row), dtype=torch.long) for row in states]
            batch = {
                "features": nn.utils.rnn.pad_sequence(states, batch_first=True),
                "attention_mask": nn.utils.rnn.pad_sequence(ones, batch_first=True),
            }
            if "labels" in rows[0]:
                labels = [torch.from_numpy(row["labels"]) for row in rows]
                batch["labels"] = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORE_INDEX)
            return batch

        return collate


def new_tagger(task: Any, labels: Labels | None) -> tuple[PreTrainedModel, list[str]]:
    """A tagger with random weights for a `FeatureTask`, and the names of all its parameters."""
    encoder, path = task._encoder_config, Checkpoint(task.encoder).path
    config = FeatureTaggerConfig(
        encoder=str(path.resolve()) if path.is_dir() else task.encoder,  # the same one from any folder
        features=task.features,
        num_states=len(task._states([task.features])),
        state_size=encoder.hidden_size,
        lstm_size=task.lstm_size,
        pad_token_id=encoder.pad_token_id,  # otherwise Trainer copies it from the tokenizer, with a warning
        **task.config_fields(labels),
    )
    tagger = FeatureTagger(config)
    return tagger, [name for name, _ in tagger.named_parameters()]


def tagger_examples(
    task: Any, examples: Examples, model_dir: str | Path, model: Any, tokenizer: PreTrainedTokenizerBase
) -> list[Example]:
    """Tag sentences for the card; a tagger on features has no pipeline."""
    tagger: Any = load_model(Checkpoint(model_dir), FeatureTagger)[0] if model is None else model
    tags = tag(task, [example.words for example in examples], tagger, Labels.from_config(tagger.config), tokenizer)
    return [
        run_example(
            f"Tagging (the data says: {' '.join(example.tags or ())})",
            f"words = {list(example.words)!r}\n(tags,) = tag_words({str(model_dir)!r}, [words])\nprint(*tags)",
            "from mybert.finetuning import tag_words\n\n",
            tag_words=lambda folder, sentences, found=found: [found],
        )
        for example, found in zip(examples, tags, strict=True)
    ]


def feature_task(task: Task, features: str, encoder: str, lstm_size: int, device: str) -> FeatureTask:
    """The task of the feature-based approach, with one of `FEATURES`, or the first row of table 7 and all stored."""
    if not isinstance(task, Words):
        raise ValueError("The approach 'features' is only for tagging words (ner, tagging).")
    names = TABLE_7 if features == "all" else (features,)
    if names[0] not in FEATURES:
        raise SettingError("features", features, known=["all", *FEATURES])
    inherited = {item.name: getattr(task, item.name) for item in fields(task)}
    shared = inherited | {"encoder": encoder, "stored": names, "lstm_size": lstm_size, "device": device}
    return FeatureTask(**shared, features=names[0])
