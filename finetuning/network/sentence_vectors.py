"""One vector per text: hidden states pooled as by sentence-transformers for the same folder.

Format of the settings: what `save` of sentence_transformers' `SentenceTransformer` writes next to a model.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import numpy as np
from safetensors.numpy import save_file
from tokenizers.normalizers import Lowercase

from ...files import companion_files, json_line, read_json_object

Pooling = Literal["mean", "cls", "max"]

# Names before sentence-transformers 5.
_FLAGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "max": "pooling_mode_max_tokens"}


@dataclass(frozen=True)
class SentenceSettings:
    """Settings of text vectors."""

    pooling: Pooling = "mean"  # of all tokens, special tokens included; "cls" reads the first one
    normalize: bool = False  # to length 1
    max_length: int | None = None  # in tokens; None for the model's maximum
    prompt: str = ""  # prefix of every text
    lower_case: bool = False  # whatever the tokenizer does

    def text(self, line: str) -> str:
        """The text that the model reads for a line."""
        text = f"{self.prompt}{line}"
        return Lowercase().normalize_str(text) if self.lower_case else text

    def vector(self, states: np.ndarray) -> np.ndarray:
        """Pool the hidden states of a text's tokens (tokens, D) to (D,)."""
        match self.pooling:
            case "cls":
                pooled = states[0]
            case "max":
                pooled = states.max(0)
            case _:
                pooled = states.mean(0)
        return pooled / max(float(np.linalg.norm(pooled)), 1e-12) if self.normalize else pooled


def sentence_settings(model_dir: str | Path) -> SentenceSettings:
    """The settings that sentence-transformers has saved with a model, or its defaults; other modules are an error."""
    folder = Path(model_dir)
    if not companion_files(folder):
        return SentenceSettings()
    modules = json.loads((folder / "modules.json").read_bytes()) if (folder / "modules.json").is_file() else []
    found: dict[str, Any] = {}
    for module in modules:
        match str(module.get("type")).rpartition(".")[2]:
            case "Transformer":
                pass
            case "Pooling":
                file = folder / PurePosixPath(module["path"]) / "config.json"
                found["pooling"] = _pooling(file, read_json_object(file))
            case "Normalize":
                found["normalize"] = True
            case other:
                raise ValueError(
                    f"{folder / 'modules.json'} names {other!r:.80}, which is not supported; expected "
                    "Transformer, Pooling and Normalize."
                )
    texts = _content(folder / "sentence_bert_config.json")
    if isinstance(length := texts.get("max_seq_length"), int):
        found["max_length"] = length
    found["lower_case"] = texts.get("do_lower_case") is True
    prompts = _content(folder / "config_sentence_transformers.json")
    if chosen := prompts.get("default_prompt_name"):
        found["prompt"] = str(prompts.get("prompts", {}).get(chosen, ""))
    return SentenceSettings(**found)


def _content(file: Path) -> dict[str, Any]:
    return read_json_object(file) if file.is_file() else {}


def _pooling(file: Path, content: dict[str, Any]) -> Any:
    """The pooling mode of a Pooling module."""
    held = [mode for mode, flag in _FLAGS.items() if content.get(flag)]
    mode = content.get("pooling_mode", held[0] if len(held) == 1 else held)
    others = [name for name, value in content.items() if value is True and name.startswith("pooling_mode_")]
    if mode not in get_args(Pooling) or len(others) > 1 or content.get("include_prompt") is False:
        what = "include_prompt false" if content.get("include_prompt") is False else repr(others or mode)[:80]
        raise ValueError(f"{file} pools by {what}; expected {', '.join(get_args(Pooling))}, of all tokens.")
    return mode


def write_vectors(
    path: Path, ending: str, texts: list[str], vectors: Iterable[np.ndarray], metadata: dict[str, str]
) -> int:
    """Write a vector for each text: JSON lines, or a tensor `features` (texts, D); returns D."""
    if ending == ".jsonl":
        size = 0
        with path.open("w", encoding="utf-8") as file:
            for index, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
                values = [round(value, 7) for value in vector.tolist()]
                file.write(json_line({"index": index, "text": text, "features": values}) + "\n")
                size = len(values)
        return size
    features = np.stack(list(vectors)).astype(np.float32)
    save_file({"features": features}, path, metadata=metadata)
    return features.shape[1]
