"""BERT's words of many texts at once, at the speed of numpy.

Gives the same words as the normalizer and pre-tokenizer in `tokenizer.json`. Used where their cost per call would
dominate: counting words and encoding corpora. BERT's words never cross white space, so texts are split there first,
and equal chunks are processed only once.
"""

import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Executor, Future, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache, partial
from itertools import chain
from typing import TypeVar

import numpy as np
from tqdm.auto import tqdm

from ..files import usable_cores, worker_processes
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

Item = TypeVar("Item")
Result = TypeVar("Result")


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
    held_out_units = round(held_out_fraction * _HELD_OUT_UNITS)
    count = partial(_count_block, held_out_units=held_out_units)
    chunks = WordCounts()  # counts of white-space chunks, not of words
    first = next(blocks, None)
    second = next(blocks, None)
    processes = num_processes or usable_cores()
    if second is None:
        processes = 1
    with (
        worker_processes(processes) if processes > 1 else nullcontext() as pool,
        tqdm(desc="Counting words", unit="char", unit_scale=True, disable=not show_progress, delay=2) as bar,
    ):
        given = (block for block in chain((first, second), blocks) if block is not None)
        for part in _run(pool, processes, count, given):
            bar.update(part.characters)
            total.characters += part.characters
            chunks.words.update(part.words)
            chunks.held_out.update(part.held_out)
            if len(chunks.words) > _MAX_CHUNKS:
                _add_words(chunks, total, splitter, pool, processes)
        _add_words(chunks, total, splitter, pool, processes)
    if not total.words:  # a tiny text, all of it held out
        total.words, total.held_out = total.held_out, total.words
    return total


def _run(
    pool: Executor | None, processes: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Apply a function to items in the pool, in any order, with a few items in progress at a time."""
    if pool is None:
        yield from map(function, items)
        return
    pending: set[Future[Result]] = set()
    for item in items:
        pending.add(pool.submit(function, item))
        if len(pending) > processes + 1:
            done, pending = wait(pending, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)
    yield from (future.result() for future in pending)


def _count_block(block: str, held_out_units: int) -> WordCounts:
    """Count the white-space chunks of whole lines."""
    counts = WordCounts(characters=len(block))
    if not held_out_units:
        counts.words.update(whitespace_chunks(block))
        return counts
    kept: list[str] = []
    aside: list[str] = []
    for line in block.split("\n"):
        key = zlib.crc32(line.encode("utf-8", "surrogatepass")) % _HELD_OUT_UNITS
        (aside if key < held_out_units else kept).append(line)
    counts.words.update(whitespace_chunks("\n".join(kept)))
    counts.held_out.update(whitespace_chunks("\n".join(aside)))
    return counts


def _add_words(
    chunks: WordCounts, total: WordCounts, splitter: WordSplitter, pool: Executor | None, processes: int
) -> None:
    """Split the counted chunks into words and add them to the counts."""
    for source, target in ((chunks.words, total.words), (chunks.held_out, total.held_out)):
        items = list(source.items())
        source.clear()
        size = max(10_000, len(items) // (4 * processes) + 1)
        parts = (items[start : start + size] for start in range(0, len(items), size))
        for part in _run(pool, processes, partial(_split_chunks, splitter=splitter), parts):
            target.update(part)


def _split_chunks(chunks: list[tuple[str, int]], splitter: WordSplitter) -> dict[str, int]:
    words: dict[str, int] = {}
    counts = iter(chunks)
    _, count = next(counts)
    for word in splitter.split([chunk for chunk, _ in chunks]):
        if word == END_OF_CHUNK:
            _, count = next(counts, ("", 0))
        else:
            words[word] = words.get(word, 0) + count
    return words
