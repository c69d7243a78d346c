"""Texts that are longer than the model's input: overlapping windows, and combining their outputs.

Where windows start, which window decides about a token, and how the logits of windows become those of the text. Shared
by fine-tuning and pipelines. (The windows of question answering follow Google's code, see `spans`.)
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import numpy as np

WindowPooling = Literal["mean", "max"]


def default_stride(room: int) -> int:
    """Tokens that neighbouring windows share by default: 128, or half of a window if that is fewer."""
    return min(128, room // 2)


def window_starts(tokens: int, room: int, stride: int | None = None) -> list[int]:
    """The index of the first token of each window of a text.

    Args:
        tokens: Length of the text, in tokens.
        room: Tokens of the text in a window.
        stride: Number of tokens that neighbouring windows share, in [0, room); None for `default_stride`. The last two
            windows may share more, so that all windows of a long text are full.

    Raises:
        ValueError: If a window has no room for text, or `stride` is not less than the room.
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
    """The tokens each window decides about: those with the most context there, on their shorter side.

    Args:
        starts: The result of `window_starts`.
        room: Tokens of the text in a window.
        tokens: Length of the text, in tokens.

    Returns:
        For each window its range of tokens, (first, end); ties go to the first window.
    """
    borders = [(before + room + after + 1) // 2 for before, after in pairwise(starts)]
    return list(pairwise([0, *borders, tokens]))


def window_places(sides: Sequence[int | None], max_length: int, stride: int | None = None) -> list[list[int]]:
    """Split a tokenized text, or a pair, into windows, each with its special tokens.

    For a pair the windows slide over the longer text (over the second if they are equally long); the other is in every
    window, truncated to half of it.

    Args:
        sides: For each token, 0 in the first text, 1 in the second, and None for special tokens.
        max_length: Maximum length of a window in tokens, special tokens included.
        stride: See `window_starts`.

    Returns:
        For each window, the indices of its tokens.

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

    Logits and not probabilities are pooled, so the result is again logits: single labels, multiple labels, regression,
    thresholds and calibration work as without windows.

    Args:
        logits: Logits of the windows (windows, C).
        owners: Index of the text of each window (windows,), from 0; every text has at least one.
        pooling: `"mean"` over a text's windows, or `"max"` for each class.

    Returns:
        Logits of the texts (texts, C).
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
