"""Features of a frozen encoder: a token's hidden states (paper, section 5.3), their tagger, and one vector per text.

Texts are pooled as by sentence-transformers for the same folder. Format of its settings: what `save` of
sentence_transformers' `SentenceTransformer` writes next to a model.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Literal, get_args

import numpy as np
import torch
from tokenizers.normalizers import Lowercase
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import initialization as init
from transformers.modeling_outputs import TokenClassifierOutput

from ..files.checkpoint import (
    COMPANIONS,
    SENTENCE_SETTINGS,
    Checkpoint,
    companion_files,
    head_name,
    module_class,
    read_json_object,
    sentence_modules,
    transformer_folder,
)
from ..files.loading import load_model
from ..files.progress import progress_bar
from ..modeling_mybert import cross_entropy
from ..modeling_mybert.bilstm import run_lstm
from ..pipelines.batching import EXAMPLES_AT_ONCE, run_sorted
from ..pipelines.openvino_model import OpenVinoModel
from ..tokenization import TruncatedTexts
from .feature_table import FEATURES, Features
from .heads import for_inference, has_pooling, heads_of, read_config


def hidden_states(
    encoder: Any,
    tokenizer: PreTrainedTokenizerBase,
    sequences: Sequence[Mapping[str, Sequence[int]]],
    states: Sequence[int],  # indices; 0 is the embeddings
    batch_size: int | None = None,
) -> Iterator[np.ndarray]:
    """Yield the hidden states of each sequence (tokens, len(states), hidden_size) in a frozen encoder."""
    needs_all = list(states) != [encoder.config.num_hidden_layers]

    def collate(chosen: list[Any]) -> Any:
        batch = tokenizer.pad(chosen, padding_side="right", return_tensors="pt")  # see `Task.collator`
        return {**batch, **({"output_hidden_states": True} if needs_all else {})}

    def keep(outputs: Any, batch: Mapping[str, Any], chosen: object) -> list[np.ndarray]:
        found = [outputs.hidden_states[number] if needs_all else outputs.last_hidden_state for number in states]
        kept = torch.stack(found, dim=2).float().cpu().numpy()
        return [row[real] for row, real in zip(kept, batch["attention_mask"].bool().cpu().numpy(), strict=True)]

    chunks = range(0, len(sequences), EXAMPLES_AT_ONCE)
    for start in progress_bar(chunks, desc="Features", unit_scale=EXAMPLES_AT_ONCE, delay=2):
        yield from run_sorted(encoder, sequences[start : start + EXAMPLES_AT_ONCE], collate, keep, batch_size)


def load_encoder(name: str, device: str | torch.device = "cpu", dtype: str = "float32") -> PreTrainedModel:
    """Load a model's encoder to be used frozen; weights that do not fit its configuration are an error."""
    model, _ = load_model(Checkpoint(name), AutoModel, read_config(name))
    return for_inference(model, device, dtype)


def load_encoder_graph(checkpoint: Checkpoint, dtype: str = "float32") -> OpenVinoModel:
    """Load an encoder that was converted for OpenVINO."""
    config = read_config(checkpoint.name)
    if heads := heads_of(config) - {""}:
        raise ValueError(
            f"{checkpoint.name} has a graph with a head ({', '.join(sorted(heads))}), which gives no vectors; "
            "expected an encoder that `mybert convert openvino` wrote, or a folder with weights."
        )
    assert checkpoint.graph_file is not None
    return OpenVinoModel(checkpoint.graph_file.parent, config, dtype=dtype)


def combine(states: torch.Tensor, features: Features, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Combine K hidden states (..., K, D) of each token: (..., K D) for `concat`, (..., D) for a sum."""
    if features.combination == "concat":
        return states.flatten(-2)
    if features.combination == "sum":
        return states.sum(-2)
    if weights is None:  # 1 / K each
        return states.mean(-2)
    return (weights[:, None] * states).sum(-2)


def token_features(
    encodings: Sequence[TruncatedTexts], tokenizer: PreTrainedTokenizerBase, rows: Iterator[np.ndarray]
) -> Iterator[list[dict[str, Any]]]:
    """The tokens of each text with their features, as JSON values."""
    for encoding, row in zip(encodings, rows, strict=True):
        pieces = tokenizer.convert_ids_to_tokens(encoding.inputs["input_ids"][0])
        places = zip(pieces, encoding.inputs["offset_mapping"][0], encoding.sides[0], row, strict=True)
        yield [
            {"token": piece, "start": start, "end": end, "sentence": side or 0, "features": rounded_values(values, 6)}
            for piece, (start, end), side, values in places
        ]


def rounded_values(values: np.ndarray, digits: int) -> list[float]:
    return [round(value, digits) for value in values.tolist()]


def token_tensors(encodings: Sequence[TruncatedTexts], rows: Iterator[np.ndarray]) -> dict[str, np.ndarray]:
    """The tokens of all texts concatenated, and where each text starts."""

    def joined(parts: Iterable[Sequence[Any]]) -> np.ndarray:
        return np.concatenate([np.array(part, dtype=np.int64) for part in parts])

    return {
        "features": np.concatenate(list(rows)),
        "input_ids": joined(encoding.inputs["input_ids"][0] for encoding in encodings),
        "offsets": joined(encoding.inputs["offset_mapping"][0] for encoding in encodings),
        "sentences": joined([sentence or 0 for sentence in encoding.sides[0]] for encoding in encodings),
        "text_starts": np.cumsum([0, *(len(encoding.sides[0]) for encoding in encodings)], dtype=np.int64),
    }


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
    size: int | None = None  # of vectors, which end there; None for all of it

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
        if self.normalize:
            pooled = pooled / max(float(np.linalg.norm(pooled)), 1e-12)
        return pooled[: self.size]


def sentence_settings(model_dir: str | Path) -> SentenceSettings:
    """The settings that sentence-transformers has saved with a model, or its defaults; other modules are an error."""
    folder = Path(model_dir)
    if not companion_files(folder):
        return SentenceSettings()
    found: dict[str, Any] = {}
    for module in sentence_modules(folder):
        match module_class(module):
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
    texts = _content(folder / transformer_folder(folder) / "sentence_bert_config.json")
    if isinstance(length := texts.get("max_seq_length"), int):
        found["max_length"] = length
    found["lower_case"] = texts.get("do_lower_case") is True
    whole = _content(folder / SENTENCE_SETTINGS)
    if chosen := whole.get("default_prompt_name"):
        found["prompt"] = str(whole.get("prompts", {}).get(chosen, ""))
    if isinstance(size := whole.get("truncate_dim"), int):
        found["size"] = size
    return SentenceSettings(**found)


def classifies_mean(model: str, is_probe: bool) -> bool:
    """Whether a new classifier on a model reads the mean by default: as a probe, or as its sentence vectors do."""
    checkpoint = Checkpoint(model)
    config = checkpoint.config
    if not has_pooling(config) or head_name(AutoModelForSequenceClassification.__name__) in heads_of(config):
        return False  # it has no choice, or is a classifier
    if is_probe:  # a frozen pooler, of next sentences or random, is poor
        return True
    folder = checkpoint.local_folder(COMPANIONS)
    try:
        return bool(companion_files(folder)) and sentence_settings(folder).pooling == "mean"
    except ValueError:  # modules that are not supported
        return False


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


class FeatureTaggerConfig(PreTrainedConfig):
    """Configuration of `FeatureTagger`."""

    model_type = "mybert-feature-tagger"

    encoder: str = ""  # absolute path of its folder, or Hub name
    features: str = "concat_last_four"  # a key of `FEATURES`
    num_states: int = 4  # hidden states per token
    state_size: int = 768  # of each hidden state
    lstm_size: int = 768  # units in each direction
    lstm_layers: int = 2
    dropout: float = 0.1  # before each layer


class FeatureTagger(PreTrainedModel):
    """A BiLSTM over the frozen features of a sentence's words, and a linear layer (paper, section 5.3)."""

    config: FeatureTaggerConfig
    config_class = FeatureTaggerConfig
    main_input_name = "features"

    def __init__(self, config: FeatureTaggerConfig) -> None:
        super().__init__(config)
        combination = FEATURES[config.features].combination
        self.weights = nn.Parameter(torch.zeros(config.num_states)) if combination == "weighted" else None
        size = config.state_size * (config.num_states if combination == "concat" else 1)
        self.dropout = nn.Dropout(config.dropout)
        self.lstm = nn.LSTM(
            size,
            config.lstm_size,
            config.lstm_layers,
            batch_first=True,
            bidirectional=True,
            dropout=config.dropout if config.lstm_layers > 1 else 0.0,
        )
        self.classifier = nn.Linear(2 * config.lstm_size, config.num_labels)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, FeatureTagger) and module.weights is not None:
            init.zeros_(module.weights)

    def forward(
        self,
        features: torch.Tensor,
        attention_mask: torch.Tensor,
        labels: torch.Tensor | None = None,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> TokenClassifierOutput:
        """Tag words.

        Args:
            features: Hidden states of each word's first piece (B, W, num_states, state_size).
            attention_mask: 1 at words, 0 at padding (B, W).
            labels: Class ids (B, W), -100 at words to ignore.
            num_items_in_batch: Labeled words in the optimizer step; None: the mean over this batch.

        Returns:
            `loss` (None without labels) and `logits` (B, W, num_labels).
        """
        weights = None if self.weights is None else self.weights.softmax(0)
        combined = combine(features, FEATURES[self.config.features], weights)
        states = run_lstm(self.lstm, self.dropout(combined), attention_mask)
        logits = self.classifier(self.dropout(states))
        loss = None
        if labels is not None:
            loss = cross_entropy(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)


AutoConfig.register(FeatureTaggerConfig.model_type, FeatureTaggerConfig, exist_ok=True)
