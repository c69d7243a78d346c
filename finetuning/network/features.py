"""Features of a frozen encoder: the hidden states of a token and how to combine them (paper, section 5.3)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from safetensors.numpy import save_file
from tqdm.auto import tqdm
from transformers import AutoModel, PreTrainedModel, PreTrainedTokenizerBase

from ...files import json_line, only_errors
from ...pipelines.batched_pipeline import EXAMPLES_AT_ONCE, batches_by_length
from ...tokenization import TruncatedTexts
from .heads import check_encoder, read_config

# between the sentences of a pair; the last occurrence in a line counts: Google's extract_features.py
PAIR_SEPARATOR = " ||| "


@dataclass(frozen=True)
class Features:
    """The hidden states of a token's features, and how to combine them."""

    first: int  # counted from the embeddings (0), or from the end if negative
    last: int | None  # exclusive; None for the end
    combination: Literal["concat", "sum", "weighted"] = "concat"

    def states(self, num_layers: int) -> list[int]:
        """Indices of the hidden states in a model with this many layers."""
        is_embeddings = self.first == 0
        chosen = range(num_layers + 1)[self.first : self.last]
        return [number for number in chosen if number or is_embeddings or num_layers < 2]


FEATURES = {
    "embeddings": Features(0, 1),
    "second_to_last": Features(-2, -1),
    "last": Features(-1, None),
    "weighted_last_four": Features(-4, None, "weighted"),
    "concat_last_four": Features(-4, None),
    "weighted_all": Features(1, None, "weighted"),
    "sum_last_four": Features(-4, None, "sum"),
    "sum_all": Features(1, None, "sum"),
}
"""Features by name; "all" are all layers without the embeddings."""

TABLE_7 = ("embeddings", "second_to_last", "last", "weighted_last_four", "concat_last_four", "weighted_all")
"""The feature-based rows of the paper's table 7, in its order."""


def hidden_states(
    encoder: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    sequences: Sequence[Mapping[str, Sequence[int]]],
    states: Sequence[int],  # indices; 0 is the embeddings
    batch_size: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the hidden states of each sequence (tokens, len(states), hidden_size) in a frozen encoder."""
    chunks = range(0, len(sequences), EXAMPLES_AT_ONCE)
    for start in tqdm(chunks, desc="Features", unit_scale=EXAMPLES_AT_ONCE, delay=2):
        chunk = sequences[start : start + EXAMPLES_AT_ONCE]
        found: list[Any] = [None] * len(chunk)
        for places in batches_by_length([len(item["input_ids"]) for item in chunk], encoder.device, batch_size):
            batch = tokenizer.pad([chunk[place] for place in places], return_tensors="pt").to(encoder.device)
            with torch.inference_mode():
                hidden = encoder(**batch, output_hidden_states=True).hidden_states
            kept = torch.stack([hidden[number] for number in states], dim=2).float().cpu().numpy()
            for place, row, real in zip(places, kept, batch["attention_mask"].bool().cpu().numpy(), strict=True):
                found[place] = row[real]
        yield from found


def load_encoder(name: str, device: str | torch.device = "cpu") -> PreTrainedModel:
    """Load a model's encoder to be used frozen; weights that do not fit its configuration are an error."""
    with only_errors():
        encoder, loaded = AutoModel.from_pretrained(
            name,
            config=read_config(name),
            output_loading_info=True,
            ignore_mismatched_sizes=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    check_encoder(name, encoder, loaded)
    return encoder.to(device).eval()


def combine(states: torch.Tensor, features: Features, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Combine K hidden states (..., K, D) of each token: (..., K D) for `concat`, (..., D) for a sum."""
    if features.combination == "concat":
        return states.flatten(-2)
    if features.combination == "sum":
        return states.sum(-2)
    if weights is None:  # 1 / K each
        return states.mean(-2)
    return (weights[:, None] * states).sum(-2)


@dataclass(frozen=True)
class TokenFeatures:
    token: str
    start: int  # first character in the text (in its sentence, for a pair); 0 for special tokens
    end: int  # after its last character; 0 for special tokens
    sentence: int  # 1 for the second sentence of a pair, otherwise 0
    features: list[float]


def write_json_lines(
    path: Path,
    texts: Sequence[str],
    encodings: Sequence[TruncatedTexts],
    tokenizer: PreTrainedTokenizerBase,
    rows: Iterator[np.ndarray],
) -> int:
    """Write one text per line; returns the size of the features."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for index, (text, encoding, row) in enumerate(zip(texts, encodings, rows, strict=True)):
            tokens = [
                TokenFeatures(token, start, end, sentence or 0, [round(value, 6) for value in values.tolist()])
                for token, (start, end), sentence, values in zip(
                    tokenizer.convert_ids_to_tokens(encoding.inputs["input_ids"][0]),
                    encoding.inputs["offset_mapping"][0],
                    encoding.sides[0],
                    row,
                    strict=True,
                )
            ]
            line = {"index": index, "text": text, "tokens": [asdict(token) for token in tokens]}
            file.write(json_line(line) + "\n")
            size = row.shape[1]
    return size


def write_safetensors(
    path: Path, encodings: Sequence[TruncatedTexts], rows: Iterator[np.ndarray], metadata: Mapping[str, str]
) -> int:
    """Write all tokens concatenated; returns the size of the features."""
    features = np.concatenate(list(rows))

    def joined(parts: Iterable[Sequence[Any]]) -> np.ndarray:
        return np.concatenate([np.array(part, dtype=np.int64) for part in parts])

    tensors = {
        "features": features,
        "input_ids": joined(encoding.inputs["input_ids"][0] for encoding in encodings),
        "offsets": joined(encoding.inputs["offset_mapping"][0] for encoding in encodings),
        "sentences": joined([sentence or 0 for sentence in encoding.sides[0]] for encoding in encodings),
        "text_starts": np.cumsum([0, *(len(encoding.sides[0]) for encoding in encodings)], dtype=np.int64),
    }
    save_file(tensors, path, metadata=dict(metadata))
    return features.shape[1]
