"""Predicting the words at the masks of a text: the masked language model of pretraining (paper, section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import torch
from transformers import AutoModelForMaskedLM, PreTrainedModel, PreTrainedTokenizerBase

from ...files.checkpoint import Checkpoint
from ...files.loading import load_tokenizer
from ...files.source import Source
from ...metrics import WeightedMetrics, accuracy, count_metrics
from ...modeling_mybert import IGNORE_INDEX
from ...pipelines import predict_labeled_only
from ..data import DataRow, Labels
from .tagging import add_sequence, tag_windows
from .task import Objective, Task, TaskData, TaskExample, rounded

_MAX_LISTED = 100
"""Number of most probable tokens kept for each mask."""


@dataclass(frozen=True)
class MaskedText(TaskExample):
    text: str
    hidden: tuple[str, ...] | None = None  # the word at each mask, or None if unknown
    # The same as a model predicts it: an uncased one in lower case. None before tokenizing.
    tokens: tuple[str, ...] | None = None
    mask_token: str = "[MASK]"  # of the tokenizer


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
class Vocabulary(Labels):
    """The tokens that fill masks, decoded when they are needed: a vocabulary may have 250,000."""

    names: tuple[str, ...] = ()
    tokenizer: Any = None
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
class FillMaskTask(Task[MaskedText, FilledMasks]):
    """The words at the masks of texts; a text of any length is read in windows, see `tag_windows`."""

    main_metric: str = "accuracy"

    auto_class: ClassVar[Any] = AutoModelForMaskedLM
    pipeline: ClassVar[str] = "fill-mask"
    objective: ClassVar[Objective] = "classes"
    most_listed: ClassVar[int | None] = _MAX_LISTED
    has_probabilities: ClassVar[bool] = False

    def example(self, row: DataRow, labeled: bool) -> MaskedText:
        hidden = tuple(row.words(self.label_column)) if labeled else None
        return MaskedText(row.text(self.text_column), hidden, row=row.number)

    def texts_of(self, example: MaskedText) -> tuple[str, ...]:
        return (example.text,)

    def training_examples(self, examples: Examples, source: Source) -> Examples:
        """Always an error: this task is not fine-tuned."""
        raise ValueError("fill_mask is only for predict and evaluate; mybert pretrain is what trains a model for it.")

    def load_finetuned(
        self, checkpoint: Checkpoint, load_graph: Callable[..., Any] | None = None
    ) -> tuple[Any, Labels]:
        """Load a model; its classes are the vocabulary's tokens."""
        model, _ = super().load_finetuned(checkpoint, load_graph)
        if isinstance(model, PreTrainedModel):  # and no graph
            predict_labeled_only(model)
        return model, Vocabulary(tokenizer=load_tokenizer(checkpoint))

    def config_fields(self, labels: Labels | None) -> dict[str, Any]:
        """None: the vocabulary is in the tokenizer."""
        return {}

    def encode(
        self, examples: Examples, labels: Labels | None, tokenizer: PreTrainedTokenizerBase, source: Source
    ) -> TaskData[MaskedText]:
        """Tokenize texts; the word at a mask becomes the tokenizer's token for it, if it is a single token.

        `layout` has the example of each sequence, and which of its masks are predicted from this sequence.
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
        return TaskData(known, inputs, source, sequences, windowed=windowed)

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
        assert isinstance(labels, Vocabulary)
        found: list[list[tuple[tuple[str, float], ...]]] = [[] for _ in data.examples]
        first: list[list[tuple[str, str]]] = [[] for _ in data.examples]
        for (example, own), scores, ids in zip(data.layout, *outputs, strict=True):
            for mask in own:
                texts = labels.texts(map(int, ids[mask]))
                found[example].append(tuple(zip((name for name, _ in texts), scores[mask].tolist(), strict=True)))
                first[example].append(texts[0])
        return [
            FilledMasks(tuple(best), _filled(example, texts))
            for example, best, texts in zip(data.examples, found, first, strict=True)
        ]

    def answer(self, prediction: FilledMasks, example: MaskedText, top_k: int) -> tuple[dict[str, Any], list[Any]]:
        """The best token for each mask with its score, and the text with these; the best ones for each mask."""
        best = [
            [{"label": name, "score": rounded(score)} for name, score in tokens[:top_k]] for tokens in prediction.best
        ]
        found = {name: [tokens[0][name] for tokens in best] for name in ("label", "score")}
        return {**found, "filled": prediction.filled}, best

    def score(self, predictions: Predictions, examples: Examples) -> dict[str, float]:
        """Accuracy: the fraction of masks whose best token is right."""
        pairs = [pair for example in _token_pairs(predictions, examples) for pair in example]
        return {"accuracy": accuracy([found for found, _ in pairs], [wanted for _, wanted in pairs])}

    def weighted_metrics(self, predictions: Predictions, examples: Examples) -> WeightedMetrics:
        pairs = _token_pairs(predictions, examples)
        right = [[sum(found == wanted for found, wanted in example)] for example in pairs]
        counts = np.array([right, *2 * [[[len(example)] for example in pairs]]])
        return lambda weights: {"accuracy": count_metrics(counts, weights)["accuracy"]}

    def gold_prediction(self, example: MaskedText) -> FilledMasks:
        return FilledMasks(tuple(((word, 1.0),) for word in example.tokens or example.hidden or ()))

    def as_text(self, prediction: FilledMasks) -> str:
        """The best token for each mask, separated by spaces."""
        return " ".join(prediction.tokens)

    def errors(self, prediction: FilledMasks, example: MaskedText) -> Iterator[tuple[float, dict[str, Any]]]:
        """The masks whose best token is wrong, with its probability."""
        for tokens, wanted in zip(prediction.best, example.tokens or example.hidden or (), strict=True):
            (token, probability), sides = tokens[0], {"true": wanted, "predicted": tokens[0][0]}
            if token != wanted:
                yield probability, {"text": example.text, **sides, "probability": rounded(probability)}

    def table(self, predictions: Predictions, examples: Examples) -> tuple[Sequence[str], list[list[str]]]:
        """The best token for each mask, separated by spaces."""
        # A token that is right is written as the data's own word, so that `read_predictions` needs no tokenizer.
        rows = []
        for found, example in zip(predictions, examples, strict=True):
            known = zip(found.tokens, example.tokens or found.tokens, example.hidden or found.tokens, strict=True)
            rows.append([" ".join(word if token == wanted else token for token, wanted, word in known)])
        return (), rows

    def read_prediction(self, row: DataRow, example: MaskedText) -> FilledMasks:
        words = row.words("prediction")
        if len(words) != len(example.hidden or ()):
            raise row.invalid(f"{len(words)} words; expected {len(example.hidden or ())}, one for each mask")
        return FilledMasks(tuple(((word, 1.0),) for word in words))


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
