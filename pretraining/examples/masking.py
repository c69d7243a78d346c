"""Masking for the masked LM (paper, section 3.1, task 1)."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from ...modeling_mybert import IGNORE_INDEX
from .example_settings import MaskingRates

# Span lengths in words: geometric with p = 0.2, cut off at 10 (SpanBERT, Joshi et al. 2020, section 3.1).
_SPAN_LENGTHS = np.arange(1, 11)
_SPAN_SHARES = 0.8**_SPAN_LENGTHS / np.sum(0.8**_SPAN_LENGTHS)


@dataclass(frozen=True)
class ChangingRate:
    """A fraction of tokens to predict that changes linearly over a run (Ankner et al., 2023, arXiv 2305.15096)."""

    first: float  # up to step `begin`, in [0, 1]
    last: float  # at step `end`, in [0, 1]
    # optimizer steps, counted from 0, or times in `TICKS` for a run that is measured in time
    begin: int
    end: int
    position: Callable[[int, int], int]  # maps an example's epoch and index to its step, or to the current time

    def __call__(self, epoch: int, index: int) -> float:
        """Return the fraction for an example, in [0, 1]."""
        done = min(max(0.0, (self.position(epoch, index) - self.begin) / (self.end - self.begin)), 1.0)
        return self.first + (self.last - self.first) * done


@dataclass(frozen=True)
class StepOfExample:
    """Maps an example to the optimizer step that trains on it, in any process."""

    batch_size: int  # examples per step
    examples: int  # per epoch

    def __call__(self, epoch: int, index: int) -> int:
        """Return the step, counted from 0; an epoch ends with its last whole batch."""
        return epoch * max(1, self.examples // self.batch_size) + index // self.batch_size


@dataclass(frozen=True)
class PositionNow:
    """Progress of a run that is measured in time, as of its last step."""

    position: torch.Tensor  # a scalar in shared memory

    def __call__(self, epoch: int, index: int) -> int:
        return int(self.position)


def mask_tokens(
    input_ids: np.ndarray,
    is_special: np.ndarray,
    mask_token_id: int,
    ordinary_ids: np.ndarray,
    rates: MaskingRates,
    generator: np.random.Generator,
    is_continuation: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens to predict and replace them.

    As in Google's script, the number of predictions is the rate times the length, special tokens included, rounded.

    Args:
        input_ids: Token ids of a sequence, (length,).
        is_special: Whether a token is special and never chosen, (length,).
        mask_token_id: Id of [MASK].
        ordinary_ids: Ids to draw random replacements from: all but special and reserved tokens.
        rates: The rates.
        generator: Source of all random choices.
        is_continuation: Whether a token continues the word before it (`##`), (length,); needed for words and spans.

    Returns:
        The masked ids and the labels (the original id at chosen positions, -100 elsewhere), both (length,), int64.
    """
    candidates = np.flatnonzero(~is_special)
    count = min(max(1, round(len(input_ids) * rates.mlm_probability)), len(candidates))
    if rates.max_predictions is not None:
        count = min(count, rates.max_predictions)
    if rates.masking_unit == "token":
        chosen = generator.permutation(candidates)[:count]
        draw = generator.random(count)
    else:
        assert is_continuation is not None
        # Words do not span special tokens.
        is_start = ~is_continuation[candidates] | (np.diff(candidates, prepend=-2) > 1)
        words = np.append(np.flatnonzero(is_start), len(candidates))
        spans = _choose_spans(candidates, words, count, generator, rates.masking_unit == "span")
        chosen = np.concatenate([*spans, candidates[:0]])
        if rates.masking_unit == "span":
            draw = np.repeat(generator.random(len(spans)), [len(span) for span in spans])
        else:
            draw = generator.random(len(chosen))
    labels = np.full(len(input_ids), IGNORE_INDEX, dtype=np.int64)
    labels[chosen] = input_ids[chosen]
    masked = input_ids.astype(np.int64)
    masked[chosen[draw < rates.mask_replace_prob]] = mask_token_id
    replaced = chosen[(draw >= rates.mask_replace_prob) & (draw < rates.mask_replace_prob + rates.random_replace_prob)]
    masked[replaced] = ordinary_ids[generator.integers(0, len(ordinary_ids), len(replaced))]
    return masked, labels


def _choose_spans(
    candidates: np.ndarray, words: np.ndarray, count: int, generator: np.random.Generator, are_longer: bool
) -> list[np.ndarray]:
    """Choose words, or spans of consecutive words, with at most `count` tokens; return the positions of each."""
    # word i is `candidates[words[i]:words[i + 1]]`
    number = len(words) - 1
    order = generator.permutation(number).tolist()
    wanted = generator.choice(_SPAN_LENGTHS, number, p=_SPAN_SHARES).tolist() if are_longer else [1] * number
    starts = words.tolist()
    goes_on = (np.diff(candidates, prepend=-2) == 1).tolist()  # not preceded by a special token
    is_free = [True] * number
    spans: list[np.ndarray] = []
    for first, length in zip(order, wanted, strict=True):
        word = first
        while word < min(first + length, number):
            size = starts[word + 1] - starts[word]
            if not is_free[word] or size > count or (word > first and not goes_on[starts[word]]):
                break
            is_free[word] = False
            count -= size
            word += 1
        if word > first:
            spans.append(candidates[starts[first] : starts[word]])
        if not count:
            break
    return spans
