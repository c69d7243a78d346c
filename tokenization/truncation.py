"""Truncate sentences and pairs as Google's `_truncate_seq_pair` does, with any fast tokenizer.

The longer sentence loses its last token until both fit; of two equally long ones, the second does
(google-research/bert, `run_classifier.py`, also in `extract_features.py`). The tokenizers' own "longest_first" differs
if both sentences are cut, the number of tokens left is odd and the second was not the shorter: it gives the extra
token to the second.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from transformers import PreTrainedTokenizerBase

from ..files.errors import SettingError

# Number of texts tokenized at a time: before truncation, texts may be many times longer.
_CHUNK_TEXTS, _CHUNK_CHARACTERS = 1000, 1 << 20


class TruncatedTexts(NamedTuple):
    """Tokenized texts.

    Attributes:
        inputs: Name -> values for each token of each text, such as `input_ids`.
        sides: For each token of each text, 0 in the first sentence, 1 in the second, None for special tokens.
        too_long: Indices of the texts that were too long.
        owners: Index of the text of each sequence, if long texts are split into several sequences.
    """

    inputs: dict[str, list[list[Any]]]
    sides: list[list[int | None]]
    too_long: list[int]
    owners: list[int]


def lengths_of_pair(first: int, second: int, space: int) -> tuple[int, int]:
    """Return how many tokens of two sentences, given their lengths, remain if at most `space` may."""
    if first + second <= space:
        return first, second
    second = min(second, max(space // 2, space - first))
    return space - second, second


def encode_and_truncate(
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[Sequence[str]],
    max_length: int,
    windows: Callable[[Sequence[int | None], int], Sequence[Sequence[int]]] | None = None,
    **options: Any,
) -> TruncatedTexts:
    """Tokenize sentences or pairs, and truncate those that are too long.

    Args:
        tokenizer: A fast tokenizer; a slow one truncates by its own rule.
        texts: For each text one sentence or two, the same number for all.
        max_length: Maximum length in tokens, special tokens included.
        windows: Splits a long text into several sequences instead of truncating it: called with the sides and
            `max_length`, it returns the indices of the tokens of each sequence.
        **options: Other arguments of the tokenizer, such as `return_offsets_mapping`.

    Raises:
        ValueError: If the special tokens alone are more than `max_length`, or `windows` is given with a slow
            tokenizer.
    """
    inputs: dict[str, list[list[Any]]] = {}
    sides: list[list[int | None]] = []
    owners: list[int] = []
    too_long: list[int] = []
    if windows is not None and not tokenizer.is_fast:
        raise ValueError(f"{type(tokenizer).__name__} is not a fast tokenizer, which windows of long texts need.")
    if not tokenizer.is_fast:
        options |= {"truncation": True, "max_length": max_length}
    for start, chunk in _chunks(texts):
        columns = map(list, zip(*chunk, strict=True))
        encodings = tokenizer(*columns, **{"truncation": False, "verbose": False, **options})
        for number in range(len(encodings["input_ids"])):
            side = (
                encodings.sequence_ids(number) if tokenizer.is_fast else [None] * len(encodings["input_ids"][number])
            )
            sequences: Sequence[Sequence[int]] = [range(len(side))]
            if len(side) > max_length:
                too_long.append(start + number)
                if windows is not None:
                    sequences = windows(side, max_length)
                else:
                    sequences = [_kept_places(side, max_length, tokenizer.truncation_side == "left")]
            for kept in sequences:
                for name, values in encodings.items():
                    inputs.setdefault(name, []).append([values[number][place] for place in kept])
                sides.append([side[place] for place in kept])
                owners.append(start + number)
    return TruncatedTexts(inputs, sides, too_long, owners)


def _chunks(texts: Sequence[Sequence[str]]) -> Iterator[tuple[int, Sequence[Sequence[str]]]]:
    """Yield the texts in chunks, each with the index of its first text, to bound memory."""
    start = size = 0
    for end, text in enumerate(texts, start=1):
        size += sum(map(len, text))
        if size >= _CHUNK_CHARACTERS or end - start == _CHUNK_TEXTS or end == len(texts):
            yield start, texts[start:end]
            start, size = end, 0


def _kept_places(side: Sequence[int | None], max_length: int, from_left: bool) -> list[int]:
    places = [[place for place, value in enumerate(side) if value == number] for number in (0, 1)]
    space = max_length - side.count(None)
    if space < 0:
        raise SettingError("max_length", max_length, f"at least {side.count(None)}, the special tokens")
    counts = lengths_of_pair(len(places[0]), len(places[1]), space)
    dropped: set[int] = set()
    for found, count in zip(places, counts, strict=True):
        dropped |= set(found[: len(found) - count] if from_left else found[count:])
    return [place for place in range(len(side)) if place not in dropped]
