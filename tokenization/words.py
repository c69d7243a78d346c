"""BERT's words of many texts at once, at the speed of numpy.

Gives the same words as the normalizer and pre-tokenizer in `tokenizer.json`. Used where their cost per call would
dominate: counting words and encoding corpora. BERT's words never cross white space, so texts are split there first,
and equal chunks are processed only once.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from ..files.processes import fitting_processes, map_in_processes
from ..files.progress import progress_bar
from .characters import (
    CJK,
    DELETED,
    PUNCTUATION,
    Ranges,
    build_normalizer,
    regex_class,
    replace_lone_surrogates,
)

# Comes after the words of each chunk. BERT deletes NUL, so no word contains it; str.split does not split at it.
END_OF_CHUNK = "\0"

# Characters that str.split treats as white space, but BERT deletes, joining the characters around them.
_DELETED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")
_CHUNK = re.compile(r"(?:[\x0b\x0c\x1c-\x1f\x85]|\S)+")
_DELETED_ASCII = re.compile(f"[{regex_class([r for r in DELETED if r[0] < 0x80])}]")

_NEWLINE, _SPACE = 10, 32


def whitespace_chunks(text: str) -> list[str]:
    """Split a text at white space as BERT does; the words of the text are the words of its chunks."""
    return _CHUNK.findall(text) if _DELETED_SPACES.search(text) else text.split()


class WordSplitter:
    """Splits white-space chunks into BERT's words; arguments as in `MyBertTokenizer`."""

    def __init__(self, do_lower_case: bool, strip_accents: bool | None, tokenize_chinese_chars: bool = True) -> None:
        self._lower_case = do_lower_case
        self._normalizer = build_normalizer(do_lower_case, strip_accents)
        self._is_alone = _is_alone(tokenize_chinese_chars)

    def split(self, chunks: list[str]) -> list[str]:
        """Return the words of all chunks in order, with `END_OF_CHUNK` after each chunk's words."""
        if not chunks:
            return []
        text = "\n".join(chunks)
        if text.isascii():
            # No accents, no final sigma: same as the normalizer, several times faster.
            text = _DELETED_ASCII.sub("", text)
            text = text.lower() if self._lower_case else text
        else:
            text = self._normalizer.normalize_str(replace_lone_surrogates(text))
        # Put spaces around single-character words, including newlines.
        code_points = np.frombuffer(f"{text}\n".encode("utf-32-le"), np.uint32)
        alone = self._is_alone[code_points]
        places = np.arange(len(code_points)) + 2 * np.cumsum(alone) - alone
        spaced = np.full(places[-1] + 2, _SPACE, np.uint32)
        spaced[places] = np.where(code_points == _NEWLINE, ord(END_OF_CHUNK), code_points)
        return spaced.tobytes().decode("utf-32-le").split()


@cache
def _is_alone(tokenize_chinese_chars: bool) -> np.ndarray:
    """Tell for every code point whether it is a word by itself; so are newlines, which end chunks."""
    table = np.zeros(0x110000, bool)
    ranges: Ranges = PUNCTUATION + CJK if tokenize_chinese_chars else PUNCTUATION
    for first, last in ranges:
        table[first : last + 1] = True
    table[_NEWLINE] = True
    return table


# Number of distinct white-space chunks collected before they are split into words, which are far fewer.
_MAX_CHUNKS = 4 << 20

_HELD_OUT_UNITS = 10_000


@dataclass
class WordCounts:
    """The words of a text, normalized and split as BERT does, with their counts."""

    words: Counter[str] = field(default_factory=Counter)
    held_out: Counter[str] = field(default_factory=Counter)  # the words of held-out lines
    characters: int = 0  # of the whole text


def count_words(
    blocks: Iterator[str],
    splitter: WordSplitter,
    held_out_fraction: float = 0.0,
    num_processes: int | None = None,
    show_progress: bool = True,
) -> WordCounts:
    """Count words; memory is bounded by the number of different words and a few blocks of text.

    The result does not depend on the order of the text or on the number of processes. A hash of the line decides
    whether it is held out, so equal lines stay together. If all text would be held out, none is.
    """
    total = WordCounts()
    chunks = WordCounts()  # counts of white-space chunks, not of words
    counter = _Counter(splitter, round(held_out_fraction * _HELD_OUT_UNITS))
    processes, blocks = fitting_processes(blocks, num_processes)
    with (
        map_in_processes(counter, processes) as counted,
        progress_bar(desc="Counting words", unit="char", unit_scale=True, disable=not show_progress, delay=2) as bar,
    ):
        for part in counted(blocks):
            bar.update(part.characters)
            total.characters += part.characters
            chunks.words.update(part.words)
            chunks.held_out.update(part.held_out)
            if len(chunks.words) > _MAX_CHUNKS:
                _add_words(chunks, total, counted, processes)
        _add_words(chunks, total, counted, processes)
    if not total.words:  # a tiny text, all of it held out
        total.words, total.held_out = total.held_out, total.words
    return total


class _Counter:
    """Counts the white-space chunks of a block of whole lines, or the words of counted chunks, in any process."""

    def __init__(self, splitter: WordSplitter, held_out_units: int) -> None:
        self._splitter = splitter
        self._held_out_units = held_out_units

    def __call__(self, item: str | list[tuple[str, int]]) -> Any:
        return self._chunks(item) if isinstance(item, str) else self._words(item)

    def _chunks(self, block: str) -> WordCounts:
        if not self._held_out_units:
            return WordCounts(Counter(whitespace_chunks(block)), characters=len(block))
        kept: list[str] = []
        aside: list[str] = []
        for line in block.split("\n"):
            key = zlib.crc32(line.encode("utf-8", "surrogatepass")) % _HELD_OUT_UNITS
            (aside if key < self._held_out_units else kept).append(line)
        words, held_out = (Counter(whitespace_chunks("\n".join(lines))) for lines in (kept, aside))
        return WordCounts(words, held_out, len(block))

    def _words(self, chunks: list[tuple[str, int]]) -> dict[str, int]:
        words: dict[str, int] = {}
        counts = iter(chunks)
        _, count = next(counts)
        for word in self._splitter.split([chunk for chunk, _ in chunks]):
            if word == END_OF_CHUNK:
                _, count = next(counts, ("", 0))
            else:
                words[word] = words.get(word, 0) + count
        return words


def _add_words(chunks: WordCounts, total: WordCounts, counted: Callable[[Iterable], Iterator], processes: int) -> None:
    """Split the counted chunks into words and add them to the counts."""
    for source, target in ((chunks.words, total.words), (chunks.held_out, total.held_out)):
        items = list(source.items())
        source.clear()
        size = max(10_000, len(items) // (4 * processes) + 1)
        parts = (items[start : start + size] for start in range(0, len(items), size))
        for part in counted(parts):
            target.update(part)
