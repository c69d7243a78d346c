"""Texts that are longer than a network reads: windows that overlap, and their outputs combined.

Where windows lie, which one has the say about a token, and how the logits of a text's windows become its own.
Fine-tuning and pipelines share it. (The windows of question answering are those of Google's code, see `spans`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

WindowPooling = Literal["mean", "max"]


def default_stride(room: int) -> int:
    """Tokens that neighbouring windows share by default: 128, or half of a window if that is less."""
    return min(128, room // 2)


def window_starts(tokens: int, room: int, stride: int | None = None) -> list[int]:
    """The first token of each window of a text.

    Args:
        tokens: Tokens of the text.
        room: Tokens of a window.
        stride: Tokens that neighbouring windows share, in [0, room); None for `default_stride`. The last two windows
            share more where the text ends: all windows of a long text are full.

    Raises:
        ValueError: If a window has no room, or windows share all of it.
    """
    if room < 1:
        raise ValueError(f"a window has room for {room} tokens of the text; expected a larger max_length")
    if tokens <= room:
        return [0]
    stride = default_stride(room) if stride is None else stride
    if not 0 <= stride < room:
        raise ValueError(f"doc_stride is {stride}; expected less than {room}, what a window holds of the text")
    return [*range(0, tokens - room, room - stride), tokens - room]


def own_tokens(starts: Sequence[int], room: int, tokens: int) -> list[tuple[int, int]]:
    """Which tokens each window decides about: those that have the most context there, on their shorter side.

    Args:
        starts: What `window_starts` gave.
        room: Tokens of a window.
        tokens: Tokens of the text.

    Returns:
        For each window its first own token and the one after its last; of equal windows the first counts.
    """
    borders = [(before + room + after + 1) // 2 for before, after in pairwise(starts)]
    return list(pairwise([0, *borders, tokens]))


def window_places(sides: Sequence[int | None], max_length: int, stride: int | None = None) -> list[list[int]]:
    """Cut a tokenized text, or a pair, into windows, each with its special tokens.

    Of a pair the windows slide over the longer text, and of two equally long ones over the second; the other stands in
    every window, as far as it fits into half of it.

    Args:
        sides: For each token 0 in the first text, 1 in the second, and None for special tokens.
        max_length: Tokens of a window, special tokens included.
        stride: See `window_starts`.

    Returns:
        For each window the places of its tokens.

    Raises:
        ValueError: If there is no room for windows.
    """
    texts = [[place for place, side in enumerate(sides) if side == number] for number in (0, 1)]
    kept, slid = sorted(texts, key=len)
    if len(kept) == len(slid):
        kept, slid = texts
    room = max_length - (len(sides) - len(kept) - len(slid))
    kept = kept[: max(room, 0) // 2]
    room -= len(kept)
    fixed = {place for place, side in enumerate(sides) if side is None} | set(kept)
    return [sorted(fixed | set(slid[start : start + room])) for start in window_starts(len(slid), room, stride)]


def pool_windows(logits: np.ndarray, owners: Sequence[int], pooling: WindowPooling) -> np.ndarray:
    """The logits of texts from those of their windows.

    Logits and not probabilities are pooled: what comes out is again logits, so classes, labels that hold each by
    itself, values of a regression, thresholds and calibration are as they are without windows.

    Args:
        logits: Of the windows (windows, C).
        owners: The text of each window (windows,), counted from 0; every text has one at least.
        pooling: `"mean"` over a text's windows, or `"max"` for each class by itself.

    Returns:
        (texts, C).
    """
    texts = np.asarray(owners)
    shape = (texts.max() + 1, logits.shape[1])
    if pooling == "mean":
        total = np.zeros(shape)
        np.add.at(total, texts, logits)
        return total / np.bincount(texts)[:, None]
    highest = np.full(shape, -np.inf)
    np.maximum.at(highest, texts, logits)
    return highest
