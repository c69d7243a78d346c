"""The feature-based approach (paper, section 5.3): the encoder is frozen, and a tagger learns from its hidden states.

The tagger is a two-layer BiLSTM of 768 units with a linear layer on top. `TABLE_7` lists the features that the paper
compares; `mybert features` writes them to files.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from safetensors.numpy import save_file
from torch import nn
from tqdm.auto import tqdm
from transformers import (
    AutoConfig,
    AutoModel,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers import initialization as init
from transformers.modeling_outputs import TokenClassifierOutput

from ..files import open_text
from ..modeling_mybert import cross_entropy
from .bilstm import run_lstm
from .sources import Source
from .task import Labels, Task, TaskData, check_length, check_model_name, only_errors, read_config
from .token_classification import IGNORED_LABEL, TaggedSentence, TokenClassificationTask

logger = logging.getLogger(__name__)

PAIR_SEPARATOR = " ||| "  # between the sentences of a pair, as in Google's extract_features.py


@dataclass(frozen=True)
class Features:
    """Which hidden states make a token's features, and how.

    Attributes:
        first: First state, counted from the embeddings (0), or from the end if negative.
        last: The one after the last; None for the end.
        combination: Whether they stand one after the other, are added up, or are added up with weights.
    """

    first: int
    last: int | None
    combination: Literal["concat", "sum", "weighted"] = "concat"

    def states(self, num_layers: int) -> list[int]:
        """Numbers of the states for a model with so many layers; the embeddings count only where they are meant."""
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
    states: Sequence[int],
    batch_size: int = 32,
) -> Iterator[np.ndarray]:
    """Run sequences through a frozen encoder.

    Args:
        encoder: The encoder, in evaluation mode.
        tokenizer: Its tokenizer, which pads.
        sequences: Model argument -> values for each token.
        states: Numbers of the states to keep; 0 are the embeddings.
        batch_size: Sequences at a time.

    Yields:
        For each sequence its states (tokens, len(states), hidden_size).
    """
    for start in tqdm(range(0, len(sequences), batch_size), desc="Features", unit_scale=batch_size, delay=2):
        batch = tokenizer.pad(list(sequences[start : start + batch_size]), return_tensors="pt").to(encoder.device)
        with torch.inference_mode():
            hidden = encoder(**batch, output_hidden_states=True).hidden_states
        kept = torch.stack([hidden[number] for number in states], dim=2).float().cpu().numpy()
        mask = batch["attention_mask"].bool().cpu().numpy()
        yield from (row[real] for row, real in zip(kept, mask, strict=True))


def load_encoder(name: str, device: str | torch.device = "cpu") -> PreTrainedModel:
    """Load a model's encoder to be used frozen.

    Raises:
        OSError: If there is no such model.
    """
    with only_errors():
        return AutoModel.from_pretrained(name, config=read_config(name)).to(device).eval()


class FeatureTaggerConfig(PreTrainedConfig):
    """Configuration of `FeatureTagger`.

    Args:
        encoder: Folder or Hub name of the model that the features are from.
        features: Name of the features, a key of `FEATURES`.
        num_states: How many hidden states a token has.
        state_size: Size of each.
        lstm_size: Units of an LSTM in each direction.
        lstm_layers: Number of BiLSTM layers.
        dropout: Before each layer.
    """

    model_type = "mybert-feature-tagger"

    encoder: str = ""
    features: str = "concat_last_four"
    num_states: int = 4
    state_size: int = 768
    lstm_size: int = 768
    lstm_layers: int = 2
    dropout: float = 0.1


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
            *(size, config.lstm_size, config.lstm_layers),
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
            labels: Class ids (B, W), -100 where none counts.
            num_items_in_batch: Labelled words of a whole optimizer step; None: the mean over this batch.

        Returns:
            `loss`, and `logits` (B, W, num_labels).
        """
        weights = None if self.weights is None else self.weights.softmax(0)
        combined = combine(features, FEATURES[self.config.features], weights)
        states = run_lstm(self.lstm, self.dropout(combined), attention_mask)
        logits = self.classifier(self.dropout(states))
        loss = None
        if labels is not None:
            loss = cross_entropy(logits, labels, num_items_in_batch)
        return TokenClassifierOutput(loss=loss, logits=logits)


def combine(states: torch.Tensor, features: Features, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Make features of hidden states.

    Args:
        states: (..., K, D).
        features: How.
        weights: Those of a weighted sum (K,); None for equal ones with the sum 1.

    Returns:
        (..., K D) for `concat`, (..., D) for a sum.
    """
    if features.combination == "concat":
        return states.flatten(-2)
    if features.combination == "sum":
        return states.sum(-2)
    if weights is None:
        return states.mean(-2)
    return (weights[:, None] * states).sum(-2)


@dataclass(frozen=True, kw_only=True)
class FeatureTask(TokenClassificationTask):
    """Tagging by a BiLSTM on frozen features.

    Attributes:
        encoder: Folder or Hub name of the encoder.
        features: Name of the features.
        stored: Names of all features that the data is to serve; their states are kept, in half precision.
        lstm_size: Units of an LSTM in each direction.
        device: Where the encoder runs.
    """

    encoder: str
    features: str
    stored: tuple[str, ...]
    lstm_size: int = 768
    device: str = "cpu"

    auto_class: ClassVar[Any] = FeatureTagger

    def _states(self, names: Sequence[str]) -> list[int]:
        num_layers = AutoConfig.from_pretrained(self.encoder).num_hidden_layers
        return sorted({number for name in names for number in FEATURES[name].states(num_layers)})

    def encode(
        self,
        examples: Sequence[TaggedSentence],
        labels: Labels | None,
        tokenizer: PreTrainedTokenizerBase,
        source: Source,
    ) -> TaskData[TaggedSentence]:
        """Tokenize sentences and run them through the encoder; `layout` is (sentence, word) of each state."""
        data = super().encode(examples, labels, tokenizer, source)
        # A stretch of a very long word may hold none of a first piece.
        numbers = [number for number, places in enumerate(data.layout) if (places[:, 0] >= 0).any()]
        names = [name for name in data.inputs if name != "labels"]
        sequences = [{name: data.inputs[name][number] for name in names} for number in numbers]
        is_word = [data.layout[number][:, 0] >= 0 for number in numbers]
        encoder = load_encoder(self.encoder, self.device)
        check_length(self.max_length, self.encoder, encoder.config)
        found = hidden_states(encoder, tokenizer, sequences, self._states(self.stored))
        inputs: dict[str, Any] = {
            "features": [states[words].astype(np.float16) for states, words in zip(found, is_word, strict=True)]
        }
        if "labels" in data.inputs:
            inputs["labels"] = [
                np.array(data.inputs["labels"][number])[words] for number, words in zip(numbers, is_word, strict=True)
            ]
        layout = [data.layout[number][words] for number, words in zip(numbers, is_word, strict=True)]
        return TaskData(examples, inputs, source, layout)

    def collator(self, tokenizer: PreTrainedTokenizerBase) -> Any:
        """Batches of the states that these features take."""
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
                batch["labels"] = nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=IGNORED_LABEL)
            return batch

        return collate

    def load_model(
        self,
        name: str,
        labels: Labels | None,
        new_head: bool = False,
        from_scratch: bool = False,
        bilstm: bool = False,
        keep_model_type: bool = False,
    ) -> tuple[PreTrainedModel, list[str]]:
        """A fresh tagger for the encoder; see `Task.load_model`."""
        encoder = AutoConfig.from_pretrained(self.encoder)
        config = FeatureTaggerConfig(
            encoder=self.encoder,
            features=self.features,
            num_states=len(self._states([self.features])),
            state_size=encoder.hidden_size,
            lstm_size=self.lstm_size,
            pad_token_id=encoder.pad_token_id,  # else Trainer takes it over from the tokenizer, with a warning
            **self.config_fields(labels),
        )
        tagger = FeatureTagger(config)
        return tagger, [name for name, _ in tagger.named_parameters()]

    def snippet(self, example: TaggedSentence, model: str) -> tuple[str, str]:
        """The tagger on a sentence."""
        code = (
            "from mybert.finetuning import tag_words\n\n"
            f"words = {list(example.words)!r}\n"
            f"(tags,) = tag_words({model!r}, [words])\n"
            "print(*tags)"
        )
        return f"Tagging (the data says: {' '.join(example.tags or ())})", code


def feature_tasks(task: Task, features: str, encoder: str, lstm_size: int, device: str) -> dict[str, Task]:
    """The tasks of the feature-based approach.

    Args:
        task: The task, which tags words.
        features: Name of the features, or `"all"` for the rows of `TABLE_7`.
        encoder: Folder or Hub name of the encoder.
        lstm_size: Units of an LSTM in each direction.
        device: Where the encoder runs.

    Returns:
        Name -> task; a single one has the name "".

    Raises:
        ValueError: If the task is no tagging, or there are no such features.
    """
    if not isinstance(task, TokenClassificationTask):
        raise ValueError("The approach 'features' is for tagging words (ner, tagging); this task is another.")
    names = TABLE_7 if features == "all" else (features,)
    if names[0] not in FEATURES:
        raise ValueError(f"features is {features!r}; expected one of all, {', '.join(FEATURES)}.")
    inherited = {item.name: getattr(task, item.name) for item in fields(task)}
    shared = inherited | {"encoder": encoder, "stored": names, "lstm_size": lstm_size, "device": device}
    return {name if len(names) > 1 else "": FeatureTask(**shared, features=name) for name in names}


def tag_words(
    tagger: str | Path, sentences: Sequence[Sequence[str]], max_length: int | None = None
) -> list[tuple[str, ...]]:
    """Tag sentences with a tagger that `finetune` trained on frozen features; its encoder has to be where it was.

    Args:
        tagger: Folder of the tagger.
        sentences: Words of each sentence.
        max_length: Longest sequence of the encoder, in tokens; None for 128, or what it reads if that is less.

    Returns:
        A tag for each word.

    Raises:
        OSError: If tagger or encoder cannot be loaded.
        ValueError: If the encoder cannot read `max_length` tokens, or a sentence has no words.
    """
    for number, words in enumerate(sentences, start=1):
        if not words:
            raise ValueError(f"Sentence {number} has no words; expected at least one.")
    model = FeatureTagger.from_pretrained(tagger).eval()
    config = model.config
    tokenizer = AutoTokenizer.from_pretrained(config.encoder)
    longest = getattr(AutoConfig.from_pretrained(config.encoder), "max_position_embeddings", 128)
    task = FeatureTask(
        main_metric="f1",
        max_length=min(128, longest) if max_length is None else max_length,
        encoder=config.encoder,
        features=config.features,
        stored=(config.features,),
    )
    labels = Labels.from_config(config)
    data = task.encode([TaggedSentence(tuple(words), None) for words in sentences], labels, tokenizer, "sentences")
    collate = task.collator(tokenizer)
    with torch.inference_mode():
        logits = [model(**collate([data[number]])).logits[0].numpy() for number in range(len(data))]
    return task.predict(logits, data, labels)


@dataclass
class FeaturesArguments:
    """Settings of `extract_features`."""

    model: str = field(metadata={"help": "Model folder or Hub name."})
    files: list[str] = field(
        metadata={"help": f"Text files, a text a line; a pair has{PAIR_SEPARATOR}between its sentences."}
    )
    output: str = field(metadata={"help": "Where to: .jsonl or .safetensors."})
    features: str = field(default="concat_last_four", metadata={"help": f"What: {', '.join(FEATURES)}."})
    weights: list[float] | None = field(
        default=None, metadata={"help": "Weights of a weighted sum, the lowest layer first (default: equal ones)."}
    )
    max_length: int = field(default=128, metadata={"help": "Longest sequence in tokens; the rest is cut."})
    batch_size: int = field(default=32, metadata={"help": "Sequences at a time."})
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of the text files."})

    def __post_init__(self) -> None:
        """Check what can be checked without looking at files.

        Raises:
            ValueError: If a setting is out of its range.
            OSError: If there is no such model folder.
        """
        check_model_name(self.model)
        if self.features not in FEATURES:
            raise ValueError(f"features is {self.features!r}; expected one of {', '.join(FEATURES)}.")
        if Path(self.output).suffix not in (".jsonl", ".safetensors"):
            raise ValueError(f"output is {self.output!r}; expected a name that ends in .jsonl or .safetensors.")
        if self.weights and FEATURES[self.features].combination != "weighted":
            raise ValueError(f"weights are given, but {self.features} is no weighted sum.")
        if self.max_length < 3 or self.batch_size < 1:
            raise ValueError(
                f"max_length is {self.max_length} and batch_size {self.batch_size}; expected at least 3 and 1."
            )


@dataclass(frozen=True)
class TokenFeatures:
    """A token and its features.

    Attributes:
        token: The token.
        start: Its first character in the text (in its sentence, for a pair); special tokens have 0.
        end: The character after its last; special tokens have 0.
        sentence: 1 for the second sentence of a pair, else 0.
        features: Its features.
    """

    token: str
    start: int
    end: int
    sentence: int
    features: list[float]


def extract_features(arguments: FeaturesArguments) -> dict[str, int]:
    """Write the features of every token of texts.

    As JSON lines, a text a line: `index`, `text`, and `tokens`, see `TokenFeatures`. As safetensors, over the tokens
    of all texts one after the other: `features` (T, F); `input_ids` (T,); `offsets` (T, 2), the first character and
    the one after the last; `sentences` (T,), 1 in the second sentence of a pair; and `text_starts` (texts + 1,), the
    first token of each text.

    Args:
        arguments: The settings.

    Returns:
        `texts`, `tokens`, `size` of the features, and `cut`, how many texts were too long.

    Raises:
        ValueError: If there is no text, or the weights are not as many as the layers.
        OSError: If a file cannot be read or written.
    """
    texts = [line for file in arguments.files for line in open_text(file, arguments.encoding) if line.strip()]
    if not texts:
        raise ValueError(f"{', '.join(arguments.files)} hold no text.")
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    encoder = load_encoder(arguments.model, "cuda" if torch.cuda.is_available() else "cpu")
    check_length(arguments.max_length, arguments.model, encoder.config)
    features = FEATURES[arguments.features]
    states = features.states(encoder.config.num_hidden_layers)
    if arguments.weights and len(arguments.weights) != len(states):
        raise ValueError(f"{len(arguments.weights)} weights; {arguments.features} has {len(states)} layers here.")
    pairs = [line.split(PAIR_SEPARATOR, 1) for line in texts]
    encodings = [
        tokenizer(*pair, truncation=True, max_length=arguments.max_length, return_offsets_mapping=True)
        for pair in pairs
    ]
    cut = sum(len(tokenizer(*pair, verbose=False)["input_ids"]) > arguments.max_length for pair in pairs)
    if cut:
        logger.warning(
            "%d of %d texts are longer than max_length (%d) and cut.", cut, len(texts), arguments.max_length
        )
    names = tokenizer.model_input_names
    sequences = [{name: encoding[name] for name in names} for encoding in encodings]
    found = hidden_states(encoder, tokenizer, sequences, states, arguments.batch_size)
    weights = torch.tensor(arguments.weights) if arguments.weights else None
    rows = (combine(torch.from_numpy(row), features, weights).numpy() for row in found)
    output = Path(arguments.output)
    partial = output.with_name(f".{output.name}.partial")
    if output.suffix == ".jsonl":
        size = _write_json_lines(partial, texts, encodings, tokenizer, rows)
    else:
        size = _write_safetensors(partial, encodings, rows, {"model": arguments.model, "features": arguments.features})
    partial.replace(output)
    tokens = sum(len(encoding["input_ids"]) for encoding in encodings)
    logger.info("%s: %d texts, %d tokens, %d features each.", output, len(texts), tokens, size)
    return {"texts": len(texts), "tokens": tokens, "size": size, "cut": cut}


def _write_json_lines(
    path: Path,
    texts: Sequence[str],
    encodings: Sequence[Any],
    tokenizer: PreTrainedTokenizerBase,
    rows: Iterator[np.ndarray],
) -> int:
    """Write a text a line; returns the size of the features."""
    size = 0
    with path.open("w", encoding="utf-8") as file:
        for index, (text, encoding, row) in enumerate(zip(texts, encodings, rows, strict=True)):
            tokens = [
                TokenFeatures(token, start, end, sentence or 0, [round(value, 6) for value in values.tolist()])
                for token, (start, end), sentence, values in zip(
                    tokenizer.convert_ids_to_tokens(encoding["input_ids"]),
                    encoding["offset_mapping"],
                    encoding.sequence_ids(),
                    row,
                    strict=True,
                )
            ]
            line = {"index": index, "text": text, "tokens": [asdict(token) for token in tokens]}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")
            size = row.shape[1]
    return size


def _write_safetensors(
    path: Path, encodings: Sequence[Any], rows: Iterator[np.ndarray], metadata: Mapping[str, str]
) -> int:
    """Write all tokens one after the other; returns the size of the features."""
    features = np.concatenate(list(rows))
    lengths = [len(encoding["input_ids"]) for encoding in encodings]
    sentences = [[sentence or 0 for sentence in encoding.sequence_ids()] for encoding in encodings]
    save_file(
        {
            "features": features,
            "input_ids": np.concatenate([encoding["input_ids"] for encoding in encodings]).astype(np.int64),
            "offsets": np.concatenate([encoding["offset_mapping"] for encoding in encodings]).astype(np.int64),
            "sentences": np.concatenate(sentences).astype(np.int64),
            "text_starts": np.cumsum([0, *lengths], dtype=np.int64),
        },
        path,
        metadata=dict(metadata),
    )
    return features.shape[1]


AutoConfig.register(FeatureTaggerConfig.model_type, FeatureTaggerConfig, exist_ok=True)
