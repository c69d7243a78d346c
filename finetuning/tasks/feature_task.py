"""Tagging by a BiLSTM on frozen features (paper, section 5.3 and table 7)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import nn
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from ...hub_card import Example, run_example
from ...modeling_mybert import IGNORE_INDEX
from ..data.labels import Labels
from ..network.features import FEATURES, TABLE_7, hidden_states, load_encoder
from ..network.heads import Beginning, check_max_length
from ..network.tagger import FeatureTagger, FeatureTaggerConfig
from .tagged_sentences import TaggedSentence
from .tagging_task import TaggingTask
from .task import Task, TaskData


@dataclass(frozen=True, kw_only=True)
class FeatureTask(TaggingTask):
    """Tagging by a BiLSTM on frozen features."""

    encoder: str  # folder or Hub name
    features: str
    # Names of all features to compute; their hidden states are stored in half precision.
    stored: tuple[str, ...]
    lstm_size: int = 768  # units in each direction
    device: str = "cpu"  # of the encoder

    auto_class: ClassVar[Any] = FeatureTagger

    def _states(self, names: Sequence[str]) -> list[int]:
        num_layers = AutoConfig.from_pretrained(self.encoder, trust_remote_code=False).num_hidden_layers
        return sorted({number for name in names for number in FEATURES[name].states(num_layers)})

    def complete(
        self, data: Sequence[TaskData[TaggedSentence]], tokenizer: PreTrainedTokenizerBase
    ) -> list[TaskData[TaggedSentence]]:
        """Run sentences through the encoder; `layout` becomes (sentence, word) of each hidden state."""
        encoder = load_encoder(self.encoder, self.device)
        check_max_length(self.max_length, self.encoder, encoder.config)
        return [self._with_states(item, encoder, tokenizer) for item in data]

    def _with_states(
        self, data: TaskData[TaggedSentence], encoder: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
    ) -> TaskData[TaggedSentence]:
        # A window within a very long word may have no first piece.
        numbers = [number for number, places in enumerate(data.layout) if (places[:, 0] >= 0).any()]
        names = [name for name in data.inputs if name != "labels"]
        sequences = [{name: data.inputs[name][number] for name in names} for number in numbers]
        is_word = [data.layout[number][:, 0] >= 0 for number in numbers]
        found = hidden_states(encoder, tokenizer, sequences, self._states(self.stored))
        inputs: dict[str, Any] = {
            "features": [states[words].astype(np.float16) for states, words in zip(found, is_word, strict=True)]
        }
        if "labels" in data.inputs:
            inputs["labels"] = [
                np.array(data.inputs["labels"][number])[words] for number, words in zip(numbers, is_word, strict=True)
            ]
        layout = [data.layout[number][words] for number, words in zip(numbers, is_word, strict=True)]
        return replace(data, inputs=inputs, layout=layout)

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

    def load_model(
        self, name: str, labels: Labels | None, beginning: Beginning | None = None
    ) -> tuple[PreTrainedModel, list[str]]:
        encoder = AutoConfig.from_pretrained(self.encoder, trust_remote_code=False)
        config = FeatureTaggerConfig(
            encoder=self.encoder,
            features=self.features,
            num_states=len(self._states([self.features])),
            state_size=encoder.hidden_size,
            lstm_size=self.lstm_size,
            pad_token_id=encoder.pad_token_id,  # otherwise Trainer copies it from the tokenizer, with a warning
            **self.config_fields(labels),
        )
        tagger = FeatureTagger(config)
        return tagger, [name for name, _ in tagger.named_parameters()]

    def card_examples(
        self,
        examples: Sequence[TaggedSentence],
        model_dir: str | Path,
        model: PreTrainedModel | None,
        tokenizer: PreTrainedTokenizerBase,
    ) -> list[Example]:
        """Tag sentences for the card; it has no pipeline."""
        tagger = FeatureTagger.from_pretrained(model_dir) if model is None else model
        tags = self.tag([example.words for example in examples], tagger, Labels.from_config(tagger.config), tokenizer)
        return [
            run_example(
                f"Tagging (the data says: {' '.join(example.tags or ())})",
                f"words = {list(example.words)!r}\n(tags,) = tag_words({str(model_dir)!r}, [words])\nprint(*tags)",
                "from mybert.finetuning import tag_words\n\n",
                tag_words=lambda folder, sentences, found=found: [found],
            )
            for example, found in zip(examples, tags, strict=True)
        ]


def feature_tasks(task: Task, features: str, encoder: str, lstm_size: int, device: str) -> dict[str, Task]:
    """The tasks of the feature-based approach by name; a single one has the name ""."""
    if not isinstance(task, TaggingTask):
        raise ValueError("The approach 'features' is only for tagging words (ner, tagging).")
    # One of `FEATURES`, or "all" for the rows of table 7.
    names = TABLE_7 if features == "all" else (features,)
    if names[0] not in FEATURES:
        raise ValueError(f"features is {features!r}; expected one of all, {', '.join(FEATURES)}.")
    inherited = {item.name: getattr(task, item.name) for item in fields(task)}
    shared = inherited | {"encoder": encoder, "stored": names, "lstm_size": lstm_size, "device": device}
    return {name if len(names) > 1 else "": FeatureTask(**shared, features=name) for name in names}
