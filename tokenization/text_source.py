"""The training text of a vocabulary: files or texts, read as blocks of whole lines."""

import errno
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from ..files.documents import Corpus, DocumentSettings, TextSettings
from ..files.source import GivenData, is_frame

# Text that one process counts at a time, in characters; smaller texts are counted in the main process.
BLOCK_CHARACTERS = 8 << 20

Texts = Iterable[str | Sequence[str]]  # texts, or lists of texts
FilesOrTexts = str | Path | Collection[str | Path] | Texts


def read_source(source: FilesOrTexts | None, texts: Texts | None, settings: TextSettings) -> Iterator[str]:
    """Read the text given to `train_wordpiece`; names in a list are files, other iterables hold texts."""
    if (source is None) == (texts is None):
        found = "Neither files nor" if texts is None else "Both files and"
        raise TypeError(f"{found} texts are given; expected one of them.")
    if isinstance(texts, (str, Path)):
        raise ValueError(f"texts is a single {type(texts).__name__}, expected an iterable of texts.")
    if is_frame(given := texts if source is None else source):
        return _lines_of_corpus(GivenData(type(given).__name__, given), settings)
    names = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(names, (list, tuple, set, frozenset)):
        return read_texts(cast(Texts, texts if source is None else source))
    for number, name in enumerate(names):
        if not isinstance(name, (str, Path)):
            raise ValueError(
                f"Item {number} of the files is a {type(name).__name__}, expected a path; pass texts as texts=[...]."
            )
    try:
        return read_files(names, settings)
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and error.errno != errno.ENAMETOOLONG:
            raise
        raise FileNotFoundError(f"{str(error)[:400]} Texts are passed as texts=[...].") from error


def read_files(files: str | Path | Iterable[str | Path], settings: TextSettings) -> Iterator[str]:
    """Read the sources that `Corpus` accepts, a block of whole lines at a time."""
    if not isinstance(files, (str, Path)):
        files = list(files)
        if not files:
            raise ValueError("No file is given, expected at least one.")
    return _lines_of_corpus(files, settings)


def _lines_of_corpus(files: Any, settings: TextSettings) -> Iterator[str]:
    known = {option.name: getattr(settings, option.name) for option in fields(TextSettings)}
    return read_texts(Corpus(files, DocumentSettings(**known)).lines())


def read_texts(texts: Texts) -> Iterator[str]:
    """Join texts, or lists of texts, of one or more whole lines each, into blocks of whole lines."""
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
