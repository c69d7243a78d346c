"""Perplexity of a language model from its losses; and masked language models compared on the same masked words."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from .classification import number_array

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

_WORDS_OF_A_TEXT = 36  # so that texts fit into 64 tokens
_LONGEST = 64
_MASKED_SHARE = 0.15
_BATCH = 64


def perplexity(losses: ArrayLike, token_counts: ArrayLike | None = None) -> float:
    """Perplexity, `exp` of the mean negative log-likelihood per token; infinite if that overflows.

    Args:
        losses: Negative log-likelihoods in nats, shape `(items,)`: one per token, or the mean of each batch.
        token_counts: Number of tokens of each loss, shape `(items,)`; by default all losses have equal weight.

    Raises:
        ValueError: The shapes differ, there are no tokens, a loss is not a number, or a count is not a finite number
            of at least 0.
    """
    losses = number_array("losses", losses)
    counts = np.ones_like(losses) if token_counts is None else number_array("token_counts", token_counts)
    if losses.shape != counts.shape or losses.ndim != 1:
        raise ValueError(
            f"losses have shape {losses.shape} and token_counts {counts.shape}; expected one number each per item."
        )
    if np.isnan(losses).any() or np.isneginf(losses).any() or not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("losses or token_counts hold values that are not numbers, or negative counts.")
    if not counts.sum() > 0:
        raise ValueError("no token to score: losses are empty or token_counts are all zero.")
    with np.errstate(over="ignore"):
        counted = counts > 0  # an infinite loss of no token is none
        return float(np.exp(np.average(losses[counted], weights=counts[counted])))


@dataclass(frozen=True)
class MaskedWords:
    """A text's words and punctuation marks, and the indices of those to predict."""

    words: list[str]
    hidden: frozenset[int]


def masked_words(documents: Iterable[Sequence[str]], limit: int, seed: int = 0) -> list[MaskedWords]:
    """Draw the words to predict from documents of words and punctuation marks, which are split into texts of 36.

    15 % of all positions are drawn, of which only words of letters are used; `limit` is the maximum number of texts.
    """
    generator = np.random.default_rng(seed)
    texts: list[MaskedWords] = []
    for words in documents:
        for begin in range(0, len(words) - _WORDS_OF_A_TEXT + 1, _WORDS_OF_A_TEXT):
            if len(texts) == limit:
                return texts
            part = list(words[begin : begin + _WORDS_OF_A_TEXT])
            drawn = generator.random(len(part)) < _MASKED_SHARE
            hidden = frozenset(place for place, word in enumerate(part) if drawn[place] and word.isalpha())
            if hidden:
                texts.append(MaskedWords(part, hidden))
    return texts


def fitting_words(tokenizer: PreTrainedTokenizerBase, texts: Iterable[MaskedWords]) -> list[MaskedWords]:
    """Keep only the words to predict that fit into 64 tokens, the length at which `word_loss` truncates a text.

    To compare models, apply this with each of their tokenizers, so that all predict the same words.
    """
    found = []
    for text in texts:
        places = tokenizer(text.words, is_split_into_words=True).word_ids()
        hidden = text.hidden.difference(places[_LONGEST - 1 :])  # where truncation puts [SEP]
        if hidden:
            found.append(MaskedWords(text.words, hidden))
    return found


def word_loss(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, texts: Sequence[MaskedWords]
) -> dict[str, float]:
    """The loss of masked words, of which all pieces are masked; -log p of a word is the sum over its pieces.

    The number of masks reveals how many pieces a word has, so of two equally good models, the one with more pieces per
    word has a slight advantage. Returns `nats_per_word`, `word_perplexity`, `nats_per_character` and `words`, the
    number of words.
    """
    import torch  # not needed by the other metrics

    texts = fitting_words(tokenizer, texts)
    model.eval()
    loss, words, characters = 0.0, 0, 0
    for begin in range(0, len(texts), _BATCH):
        part = texts[begin : begin + _BATCH]
        batch = tokenizer(
            [text.words for text in part],
            is_split_into_words=True,
            truncation=True,
            max_length=_LONGEST,
            padding=True,
            padding_side="right",
            return_tensors="pt",
        )
        is_hidden = torch.zeros_like(batch["input_ids"], dtype=torch.bool)
        for row, text in enumerate(part):
            for position, place in enumerate(batch.word_ids(row)):
                is_hidden[row, position] = place in text.hidden
            words += len(text.hidden)
            characters += sum(len(text.words[place]) for place in text.hidden)
        labels = batch["input_ids"][is_hidden]
        batch["input_ids"] = batch["input_ids"].masked_fill(is_hidden, tokenizer.mask_token_id)
        with torch.inference_mode():
            logits = model(**batch.to(model.device)).logits[is_hidden.to(model.device)]
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        loss += float(torch.nn.functional.cross_entropy(logits, labels.to(model.device), reduction="sum"))
    if not words:
        raise ValueError("There are no masked words to predict; expected texts of at least 36 words.")
    return {
        "nats_per_word": loss / words,
        "word_perplexity": math.exp(loss / words),
        "nats_per_character": loss / characters,
        "words": words,
    }
