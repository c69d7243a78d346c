"""The text that a vocabulary is learnt from: files or texts, read as blocks of whole lines."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import cast

from ..files import content_suffix, expand_paths, read_blocks
from ..files.text import JSON_SUFFIXES, PARQUET_SUFFIX

# Text that one process counts at a time, in characters; less than one block is counted in the process that reads it.
BLOCK_CHARACTERS = 8 << 20

Texts = Iterable[str | Sequence[str]]  # texts, or lists of texts
FilesOrTexts = str | Path | Collection[str | Path] | Texts

_TABLE_SUFFIXES = (".csv", ".tsv")


def read_source(source: FilesOrTexts | None, texts: Texts | None, encoding: str) -> Iterator[str]:
    """Read what `train_wordpiece` was given.

    Args:
        source: Files, if it is a name or a list, tuple or set of names; else an iterable of texts.
        texts: Texts in any iterable, in place of `source`.
        encoding: Of the files.

    Raises:
        TypeError: None of the two is given, or both.
        ValueError: See `read_files` and `read_texts`.
        OSError: See `read_files`.
    """
    if (source is None) == (texts is None):
        found = "Neither files nor" if texts is None else "Both files and"
        raise TypeError(f"{found} texts are given; expected one of them.")
    if isinstance(texts, (str, Path)):
        raise ValueError(f"texts is a single {type(texts).__name__}, expected an iterable of texts.")
    names = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(names, (list, tuple, set, frozenset)):
        return read_texts(cast(Texts, texts if source is None else source))
    for number, name in enumerate(names):
        if not isinstance(name, (str, Path)):
            raise ValueError(
                f"Item {number} of the files is a {type(name).__name__}, expected a path; pass texts as texts=[...]."
            )
    try:
        return read_files(names, encoding)
    except FileNotFoundError as error:
        raise FileNotFoundError(f"{str(error)[:400]} Texts are passed as texts=[...].") from error


def read_files(files: str | Path | Iterable[str | Path], encoding: str = "utf-8") -> Iterator[str]:
    """Read plain text, a block of whole lines at a time.

    Args:
        files: Files, folders, patterns, ``"-"`` for standard input: see `mybert.files.expand_paths`.
        encoding: Of the files.

    Raises:
        ValueError: By its name a file is no plain text (nothing is read then), or see `mybert.files.open_text`.
        OSError: A path does not exist, or a file cannot be read.
    """
    paths = expand_paths(files)
    if not paths:
        raise ValueError("No file is named, expected at least one.")
    for path in paths:
        suffix = content_suffix(path)
        if suffix in (*JSON_SUFFIXES, PARQUET_SUFFIX):
            raise ValueError(
                f"{path} is not plain text, by its name; `mybert pretrain` learns a vocabulary from JSON lines and "
                "Parquet, in Python train_wordpiece(mybert.pretraining.read_documents(...)) does."
            )
        if suffix in _TABLE_SUFFIXES:
            raise ValueError(
                f"{path} is a table and not plain text, by its name; in Python a column of it is learnt from by "
                "train_wordpiece(row['text'] for row in mybert.files.read_rows(...))."
            )
    return (block for path in paths for block in read_blocks(path, encoding, BLOCK_CHARACTERS))


def read_texts(texts: Texts) -> Iterator[str]:
    """Join texts to blocks.

    Args:
        texts: Texts, or lists of texts; every one is one or more whole lines.

    Raises:
        ValueError: An item is neither text nor a list of texts.
    """
    lines: list[str] = []
    size = 0
    for number, item in enumerate(texts):
        for text in [item] if isinstance(item, str) else item if isinstance(item, (list, tuple)) else [None]:
            if not isinstance(text, str):
                found = type(item if text is None else text).__name__
                raise ValueError(f"Item {number} of the texts is a {found}, expected str or list of str.")
            lines.append(text)
            size += len(text)
        if size >= BLOCK_CHARACTERS:
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)
