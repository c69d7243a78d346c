"""Text to documents: lists of sentences in the order of the text.

Whatever the source, the text passes as lines without surrounding white space, an empty one after each document: the
format of google-research/bert, in which `store_builder` cuts it into chunks.
"""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..files import content_suffix, expand_paths, open_text
from ..files.columns import read_column
from ..files.parquet import first_line, lacks_column
from ..files.text import COMPRESSED_SUFFIXES, JSON_SUFFIXES, PARQUET_SUFFIX
from .data_settings import TextSettings

# A full stop after these is rarely the end of a sentence. Single letters are treated alike ("J. Smith", "e.g.").
_ABBREVIATIONS = frozenset(
    "al approx cf dr etc fig figs inc jr ltd mr mrs ms no nos prof resp sr st viz vol vs".split()
)
_FULL_WIDTH = "。！？｡"  # these need no space after them
_TERMINATOR = re.compile(
    rf"""([.!?…{_FULL_WIDTH}]+["'”’»)\]」』）]*)"""  # terminators, closing quotes and brackets
    r"""(\s*)(?=["'“‘«(\[]*([^\W_])?)"""  # a space, the first letter or digit of what follows
)
_LAST_WORD = re.compile(r"[^\W\d_]+$")

_HUB = "hf:"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_SUFFIXES = (*JSON_SUFFIXES, PARQUET_SUFFIX, *COMPRESSED_SUFFIXES, ".txt")


def split_sentences(text: str) -> list[str]:
    """Split running text at sentence ends, by rules that need no language.

    A sentence ends at `. ! ? …` with closing quotes or brackets, before white space and a word that does not begin
    with a lower-case letter, and at a full-width terminator. A full stop does not end one after a single letter or a
    common abbreviation.

    Args:
        text: One or more sentences; line breaks count as spaces.

    Returns:
        The sentences without surrounding white space; none is empty.
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for match in _TERMINATOR.finditer(text):
        end, space, following = match.groups()
        if not any(mark in end for mark in _FULL_WIDTH):
            if not space or not following or following.islower():
                continue
            if end == "." and (word := _LAST_WORD.search(text[max(start, match.start() - 20) : match.start()])):
                last_word = word[0].lower()
                if len(last_word) == 1 or last_word in _ABBREVIATIONS:
                    continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def read_documents(
    files: str | Path | Iterable[str | Path], *, digests: dict[str, str] | None = None, **settings: Any
) -> Iterator[list[str]]:
    """Read documents from files or from the Hub, one after the other; memory holds one document at a time.

    What a file holds is told from its name, after `.gz`, `.xz`, `.bz2` or `.zst` for compressed ones:

    - `.jsonl`, `.json`, `.ndjson`: a document per line, a JSON object;
    - `.parquet`: a document per row (needs `pyarrow`);
    - all others: plain text, one sentence a line, a blank line between documents; the end of a file ends a document.

    In JSON, Parquet and on the Hub `text_column` holds a document: text, whose lines are its sentences, or a list of
    sentences, in which a line break is a space. Null and empty documents are left out.

    Args:
        files: Files, folders or patterns; "-" is standard input; see `expand_sources` for data sets of the Hub.
        digests: Takes up the digests of files that were read to their ends, see `mybert.files.open_text`; of Parquet
            none.
        settings: Those of `TextSettings`: `split_sentences`, `encoding`, `text_column`.

    Yields:
        Documents, each a list of at least one sentence without surrounding white space.

    Raises:
        OSError: A file is missing, broken or cannot be read, or there is no such data set.
        ValueError: A file is not what its name says, or has no such column; the message names the file and the byte
            offset, line or row (counted from 1).
        ImportError: The package that reads this kind of file is missing.
        TypeError: There is no such setting.
    """
    text = TextSettings(**settings)  # here, not when the first document is asked for
    return _documents(read_text_lines(expand_sources(files), text, digests), text.split_sentences)


def _documents(lines: Iterable[str], split: bool) -> Iterator[list[str]]:
    document: list[str] = []
    for line in lines:
        if line:
            document.extend(split_sentences(line) if split else [line])
        elif document:
            yield document
            document = []


def expand_sources(files: str | Path | Iterable[str | Path]) -> list[str]:
    """List the files and Hub data sets that the `files` of `read_documents` name.

    Args:
        files: Files, folders, patterns and "-", as in `mybert.files.expand_paths`; or data sets of the Hub as
            `hf:owner/name`, `hf:owner/name:configuration` or `hf:owner/name:configuration:split` (the split is `train`
            unless named; the configuration may be empty). `owner/name` alone is one too, where there is no file or
            folder `owner` and the name does not end like a file's.

    Returns:
        Paths, and data sets as `hf:...`, in the order given, each once.

    Raises:
        FileNotFoundError: A path does not exist, or a folder or pattern holds no file.
    """
    sources: dict[str, None] = {}
    for item in [files] if isinstance(files, (str, Path)) else files:
        name = str(item)
        if name.startswith(_HUB):
            sources[name] = None
        elif _is_hub_name(name):
            sources[_HUB + name] = None
        else:
            sources.update(dict.fromkeys(expand_paths(item)))
    return list(sources)


def read_text_lines(
    sources: Iterable[str], settings: TextSettings, digests: dict[str, str] | None = None
) -> Iterator[str]:
    """Read sources line by line.

    Args:
        sources: What `expand_sources` lists.
        settings: Of the text; lines are not split into sentences here.
        digests: As in `read_documents`.

    Yields:
        Lines without surrounding white space, and `""` after each document.

    Raises:
        OSError, ValueError, ImportError: As in `read_documents`.
    """
    encoding, column = settings.encoding, settings.text_column
    for source in sources:
        suffix = content_suffix(source)
        if source.startswith(_HUB):
            yield from _lines_of_values(_hub_column(source, column), f"{source}, row", column)
        elif suffix in JSON_SUFFIXES or suffix == PARQUET_SUFFIX:
            where = f"{source}, {'row' if suffix == PARQUET_SUFFIX else 'line'}"
            yield from _lines_of_values(read_column(source, column, encoding, digests), where, column)
        else:
            yield from _plain_lines(open_text(source, encoding, digests))


def _is_hub_name(name: str) -> bool:
    path = Path(name)
    is_file_like = path.suffix.lower() in _FILE_SUFFIXES or path.exists() or path.parent.exists()
    return bool(_HUB_NAME.fullmatch(name)) and not is_file_like


def _plain_lines(lines: Iterable[str]) -> Iterator[str]:
    is_open = False
    for line in lines:
        line = line.strip()
        if line or is_open:
            yield line
        is_open = bool(line)
    if is_open:
        yield ""


def _lines_of_values(values: Iterable[object], where: str, column: str) -> Iterator[str]:
    """Lines of documents that are one value each: text, a list of texts or None."""
    for number, text in enumerate(values, start=1):
        if isinstance(text, str):
            text = text.split("\n")
        elif text is None:
            continue
        elif not isinstance(text, list) or not all(isinstance(sentence, str) for sentence in text):
            raise ValueError(
                f"{where} {number}: {column!r} is {type(text).__name__}, expected text or a list of texts."
            )
        else:
            text = [sentence.replace("\n", " ") for sentence in text]
        lines = [line for line in map(str.strip, text) if line]
        if lines:
            yield from lines
            yield ""


def _hub_column(source: str, column: str) -> Iterator[object]:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"Reading {source} needs the datasets package: pip install datasets.") from error
    name, configuration, split = [*source.removeprefix(_HUB).split(":", 2), "", ""][:3]
    try:
        rows = datasets.load_dataset(name, configuration or None, split=split or "train", streaming=True)
    except (OSError, ValueError) as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{source} cannot be read from the Hub ({first_line(error)}).") from error
    for number, row in enumerate(rows, start=1):
        if column not in row:
            raise ValueError(f"{source}, row {number} {lacks_column(column, row)}")
        yield row[column]
