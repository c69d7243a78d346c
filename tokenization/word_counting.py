"""Counting the words of a corpus, in several processes and with bounded memory."""

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TypeVar

from tqdm.auto import tqdm

from ..files import content_suffix, expand_paths, read_blocks, usable_cores
from ..files.text import JSON_SUFFIXES, PARQUET_SUFFIX, STDIN
from .word_splitting import END_OF_CHUNK, WordSplitter, whitespace_chunks

# Text that one process counts at a time, in characters; less than one block is counted in this process.
_BLOCK_CHARACTERS = 8 << 20

# So many different white-space chunks are kept before they are split into words, of which there are far fewer.
_MAX_CHUNKS = 4 << 20

_HELD_OUT_UNITS = 10_000

TextSource = str | Path | Iterable[str] | Iterable[str | Path] | Iterable[Sequence[str]]

Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass
class WordCounts:
    """The words of a text, normalized and split as BERT does.

    Attributes:
        words: Word -> how often it occurs.
        held_out: The same for the lines that were put aside.
        characters: Length of the whole text in characters, without line ends.
    """

    words: Counter[str] = field(default_factory=Counter)
    held_out: Counter[str] = field(default_factory=Counter)
    characters: int = 0


def count_words(
    source: TextSource,
    splitter: WordSplitter,
    *,
    held_out_fraction: float = 0.0,
    encoding: str = "utf-8",
    num_processes: int | None = None,
    show_progress: bool = True,
) -> WordCounts:
    """Count words.

    The result does not depend on the order of the text or on the number of processes. Memory is bounded by the number
    of different words and a few blocks of text.

    Args:
        source: Paths (files, folders, patterns, ``"-"``) or texts: see `read_source`.
        splitter: What a word is.
        held_out_fraction: Share of the lines (0 to 0.5) to put aside. The lines' content decides, so equal lines stay
            together and nothing depends on their order. Where nothing would be left, nothing is put aside.
        encoding: Of the files.
        num_processes: By default the number of usable cores.
        show_progress: Whether to show a bar.

    Raises:
        ValueError: An item of an iterator is not text, or see `text_files.open_text`.
        OSError: A file cannot be read.
    """
    total = WordCounts()
    held_out_units = round(held_out_fraction * _HELD_OUT_UNITS)
    blocks = read_source(source, encoding)
    count = partial(_count_block, held_out_units=held_out_units)
    chunks = WordCounts()  # of white-space chunks, not of words
    first = next(blocks, None)
    second = next(blocks, None)
    processes = num_processes or usable_cores()
    if second is None:
        processes = 1
    with (
        ProcessPoolExecutor(processes) if processes > 1 else nullcontext() as pool,
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
    if not total.words:  # a tiny text, put aside as a whole
        total.words, total.held_out = total.held_out, total.words
    return total


def read_source(source: TextSource, encoding: str = "utf-8") -> Iterator[str]:
    """Read paths or texts as blocks of whole lines.

    Args:
        source: A ``str`` or ``Path`` is one path. A list or tuple of ``str`` holds paths if one of them exists or all
            look like file names (no white space, an extension or a slash); else, as any other iterable, texts or lists
            of texts. ``Path`` objects are always paths.
        encoding: Of the files.

    Raises:
        ValueError: An item is neither text nor a list of texts, or a path's name is that of JSON or Parquet.
        OSError: A path does not exist.
    """
    if isinstance(source, (str, Path)):
        source = [Path(source)] if source != STDIN else [source]
    if isinstance(source, (list, tuple)) and source and _are_paths(source):
        paths = expand_paths(source)
        for path in paths:
            if content_suffix(path) in (*JSON_SUFFIXES, PARQUET_SUFFIX):
                raise ValueError(
                    f"{path} is not plain text, by its name; `mybert pretrain --text` learns a vocabulary from JSON "
                    "lines and Parquet, in Python train_wordpiece(read_documents(...)) does."
                )
        for path in paths:
            yield from read_blocks(path, encoding, _BLOCK_CHARACTERS)
        return
    lines: list[str] = []
    size = 0
    for number, item in enumerate(source):
        if isinstance(item, Path):
            yield from read_source([item], encoding)
            continue
        for text in [item] if isinstance(item, str) else item if isinstance(item, (list, tuple)) else [None]:
            if not isinstance(text, str):
                raise ValueError(
                    f"Item {number} of the texts is a {type(item).__name__}, expected str or list of str."
                )
            lines.append(text)
            size += len(text)
        if size >= _BLOCK_CHARACTERS:
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)


def _are_paths(items: Sequence[object]) -> bool:
    if not all(isinstance(item, (str, Path)) and len(str(item)) < 4096 for item in items):
        return False
    names = [str(item) for item in items]
    return any(isinstance(item, Path) or item == STDIN or _exists(str(item)) for item in items) or all(
        len(name.split()) == 1 and (Path(name).suffix[1:].isalnum() or "/" in name) for name in names
    )


def _exists(name: str) -> bool:
    try:
        return bool(name) and Path(name).exists()
    except (OSError, ValueError):  # too long, or a NUL in it: a text
        return False


def _run(
    pool: Executor | None, processes: int, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Apply a function to items in the pool, in any order, with a few items in work at a time."""
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
    """Move counted chunks to the counted words."""
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
