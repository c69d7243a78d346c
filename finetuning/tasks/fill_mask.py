"""Predicting the words at the masks of a text: the masked language model of pretraining (paper, section 3.1)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase
from typing_extensions import Self

from ...cards import PipelineCall
from ...files.source import Source
from ...metrics import WeightedMetrics, accuracy, count_metrics
from ...modeling_mybert import IGNORE_INDEX
from ..data import DataRow, Labels, TaskData, TaskExample, rounded
from .losses import ClassLoss, ItemLoss
from .tagging import add_sequence, tag_windows
from .task import Columns, Measures, Task

_MAX_LISTED = 100
"""Number of most probable tokens kept for each mask."""


@dataclass(frozen=True)
class MaskedText(TaskExample):
    text: str
    hidden: tuple[str, ...] | None = None  # the word at each mask, or None if unknown
    # The same as a model predicts it: an uncased one in lower case. None before tokenizing.
    tokens: tuple[str, ...] | None = None
    mask_token: str = "[MASK]"  # of the tokenizer
    classes: ClassVar[tuple[str, ...]] = ()

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.text,)


@dataclass(frozen=True)
class FilledMasks:
    # For each mask the most probable tokens with their probabilities, the best first.
    best: tuple[tuple[tuple[str, float], ...], ...]
    filled: str = ""  # the text with the best tokens; "" if unknown

    @property
    def tokens(self) -> tuple[str, ...]:
        """The best token for each mask."""
        return tuple(found[0][0] for found in self.best)


@dataclass(frozen=True)
class Vocabulary:
    """The tokens that fill masks, decoded when they are needed: a vocabulary may have 250,000."""

    tokenizer: Any
    _texts: dict[int, tuple[str, str]] = field(default_factory=dict)

    def texts(self, ids: Iterable[int]) -> list[tuple[str, str]]:
        """Each token as text, and how it is read behind a word: with a space before it if it begins the next one."""
        ids = list(ids)
        if new := list({*ids} - self._texts.keys()):
            word = self.tokenizer("a", add_special_tokens=False)["input_ids"]
            before = self.tokenizer.decode(word)
            alone = self.tokenizer.batch_decode([[token] for token in new])
            behind = self.tokenizer.batch_decode([[*word, token] for token in new])
            texts = zip((text.strip() for text in alone), (text.removeprefix(before) for text in behind), strict=True)
            self._texts.update(zip(new, texts, strict=True))
        return [self._texts[token] for token in ids]


Examples = Sequence[MaskedText]
Predictions = Sequence[FilledMasks]


@dataclass(frozen=True, kw_only=True)
class Masks(Task[MaskedText, FilledMasks]):
    """The words at the masks of texts; a text of any length is read in windows, see `tag_windows`."""

    main_metric: str = "accuracy"

    auto_class: ClassVar[Any] = AutoModelForMaskedLM
    pipeline: ClassVar[str] = "fill-mask"
    loss: ClassVar[ItemLoss] = ClassLoss()
    predicts_labeled_only: ClassVar[bool] = True
    most_listed: ClassVar[int | str | None] = _MAX_LISTED
    has_probabilities: ClassVar[bool] = False

    def examples(self, rows: Sequence[DataRow], labeled: bool, new: bool = False) -> list[MaskedText]:
        column = self.label_column
        return [
            MaskedText(row.text(self.text_column), tuple(row.words(column)) if labeled else None, row=row.number)
            for row in rows
        ]

    def trained_on(self, examples: Examples, source: Source) -> tuple[Self, Examples]:
        """Always an error: this task is not fine-tuned."""
        raise ValueError("fill_mask is only for predict and evaluate; mybert pretrain is what trains a model for it.")

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """None: the vocabulary is in the tokenizer."""
        return {}

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[MaskedText]:
        """Tokenize texts; the word at a mask becomes the tokenizer's token for it, if it is a single token.

        `layout` has the vocabulary, and of each sequence the example and which of its masks are predicted from it.
        """
        if tokenizer.mask_token_id is None:
            raise ValueError(
                f"The tokenizer {type(tokenizer).__name__} has no mask token; expected that of a masked language "
                "model."
            )
        texts = [example.text for example in examples]
        encoded = tokenizer(texts, add_special_tokens=False, truncation=False, verbose=False)["input_ids"]
        inputs: dict[str, list[Any]] = {name: [] for name in tokenizer.model_input_names}
        sequences: list[tuple[int, range]] = []
        known: list[MaskedText] = []
        windowed = 0
        for number, (example, ids) in enumerate(zip(examples, encoded, strict=True)):
            masks = [place for place, token in enumerate(ids) if token == tokenizer.mask_token_id]
            where, words = f"{source}, row {example.row}", example.hidden
            if not masks:
                raise ValueError(
                    f"{where}: a text without {tokenizer.mask_token}; expected at least one to be filled."
                )
            if words is not None and len(words) != len(masks):
                raise ValueError(
                    f"{where}: {len(masks)} masks and {len(words)} masked words; expected one word for each mask."
                )
            windows = tag_windows(0, len(ids), 0, len(ids), self.max_length - 2)
            windowed += len(windows) > 1
            for window in windows:
                before = sum(window.start <= place < window.own_start for place in masks)
                own = sum(window.own_start <= place < window.own_end for place in masks)
                if own:
                    add_sequence(inputs, tokenizer, ids[window.start : window.end])
                    sequences.append((number, range(before, before + own)))
            tokens = words and tuple(_as_token(word, tokenizer) for word in words)
            known.append(replace(example, tokens=tokens, mask_token=tokenizer.mask_token))
        return TaskData(known, inputs, source, (vocabulary_of(tokenizer), sequences), windowed=windowed)

    def collator(self, tokenizer: PreTrainedTokenizerBase, model: PreTrainedModel | None = None) -> Any:
        """A collator whose labels mark the masks, so that logits are computed only there."""
        pad = super().collator(tokenizer)

        def collate(rows: list[dict[str, Any]]) -> dict[str, torch.Tensor]:
            batch = pad(rows)
            is_mask = batch["input_ids"] == tokenizer.mask_token_id
            return {**batch, "labels": torch.where(is_mask, 0, IGNORE_INDEX)}

        return collate

    def kept_outputs(self, outputs: Any, batch: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
        """Probabilities and ids of the best tokens at the masks of each sequence, both (sequences, masks, tokens)."""
        is_mask = batch["labels"] != IGNORE_INDEX
        logits = outputs["logits"]
        logits = logits[is_mask] if logits.ndim == 3 else logits
        found = logits.float().softmax(-1).topk(min(_MAX_LISTED, logits.shape[-1]))
        rows, counts = is_mask.nonzero()[:, 0], is_mask.sum(1)
        places = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
        kept = []
        for values in (found.values, found.indices):
            padded = values.new_zeros(len(is_mask), int(counts.max()), values.shape[-1])
            padded[rows, places] = values
            kept.append(padded)
        return tuple(kept)

    def predict(self, outputs: Any, data: TaskData[MaskedText], labels: Labels | None) -> list[FilledMasks]:
        """The most probable tokens at every mask."""
        vocabulary, sequences = data.layout
        found: list[list[tuple[tuple[str, float], ...]]] = [[] for _ in data.examples]
        first: list[list[tuple[str, str]]] = [[] for _ in data.examples]
        for (example, own), scores, ids in zip(sequences, *outputs, strict=True):
            for mask in own:
                texts = vocabulary.texts(map(int, ids[mask]))
                found[example].append(tuple(zip((name for name, _ in texts), scores[mask].tolist(), strict=True)))
                first[example].append(texts[0])
        return [
            FilledMasks(tuple(best), _filled(example, texts))
            for example, best, texts in zip(data.examples, found, first, strict=True)
        ]

    def columns_of(self, prediction: FilledMasks, example: MaskedText, top_k: int = 1) -> Columns:
        """The best token for each mask; in the answer with its score, and the text with all of them.

        In `text` a right token is the data's own word, so that models of any tokenizer and case, and files, agree.
        """
        best = [
            [{"label": name, "score": rounded(score)} for name, score in tokens[:top_k]] for tokens in prediction.best
        ]
        answer: dict[str, Any] = {name: [tokens[0][name] for tokens in best] for name in ("label", "score")}
        tokens = prediction.tokens
        masks = zip(tokens, example.tokens or tokens, example.hidden or tokens, strict=True)
        text = " ".join(word if token == true else token for token, true, word in masks)
        return Columns(text, answer | {"filled": prediction.filled}, best)

    def predictions_of(self, rows: Sequence[DataRow], examples: Examples) -> list[FilledMasks]:
        predictions = []
        for row, example in zip(rows, examples, strict=True):
            words, count = row.words("prediction"), len(example.hidden or ())
            if len(words) != count:
                raise row.invalid(f"{len(words)} words; expected {count}, one for each mask")
            predictions.append(FilledMasks(tuple(((word, 1.0),) for word in words)))
        return predictions

    def gold_prediction(self, example: MaskedText) -> FilledMasks:
        return FilledMasks(tuple(((word, 1.0),) for word in example.tokens or example.hidden or ()))

    def measures(self, predictions: Predictions, examples: Examples) -> Measures:
        """Accuracy: the fraction of masks whose best token is right."""
        pairs = _token_pairs(predictions, examples)

        def scores() -> dict[str, float]:
            predicted, true = ([pair[side] for example in pairs for pair in example] for side in (0, 1))
            return {"accuracy": accuracy(predicted, true)}

        def resampled() -> WeightedMetrics:
            right = [[sum(token == true for token, true in example)] for example in pairs]
            counts = np.array([right, *2 * [[[len(example)] for example in pairs]]])
            return lambda weights: {"accuracy": count_metrics(counts, weights)["accuracy"]}

        return Measures(scores, resampled)

    def errors(self, prediction: FilledMasks, example: MaskedText) -> Iterator[tuple[float, dict[str, Any]]]:
        """The masks whose best token is wrong, with its probability."""
        for tokens, wanted in zip(prediction.best, example.tokens or example.hidden or (), strict=True):
            (token, probability), sides = tokens[0], {"true": wanted, "predicted": tokens[0][0]}
            if token != wanted:
                yield probability, {"text": example.text, **sides, "probability": rounded(probability)}

    def pipeline_call(self, example: MaskedText) -> PipelineCall:
        return PipelineCall("Filling masks", self.pipeline, f"print(run({example.text!r}))")


@lru_cache(maxsize=1)
def vocabulary_of(tokenizer: PreTrainedTokenizerBase) -> Vocabulary:
    """The vocabulary of a tokenizer; that of the last one is kept, with the texts of its tokens."""
    return Vocabulary(tokenizer)


def _token_pairs(predictions: Predictions, examples: Examples) -> list[list[tuple[str, str]]]:
    """The predicted and the true token of each mask, by example."""
    return [
        list(zip(prediction.tokens, example.tokens or example.hidden or (), strict=True))
        for prediction, example in zip(predictions, examples, strict=True)
    ]


def _as_token(word: str, tokenizer: PreTrainedTokenizerBase) -> str:
    ids = tokenizer(word, add_special_tokens=False, verbose=False)["input_ids"]
    return tokenizer.decode(ids).strip() if len(ids) == 1 else word


def _filled(example: MaskedText, texts: Sequence[tuple[str, str]]) -> str:
    """Replace the masks of a text by `Vocabulary.texts`; one that continues a word has no space before it."""
    filled, *rest = example.text.split(example.mask_token)
    for (name, behind), after in zip(texts, rest, strict=True):
        begins_word = behind.startswith(" ") or not behind
        filled = f"{filled}{name}{after}" if begins_word else f"{filled.rstrip()}{behind}{after}"
    return filled
