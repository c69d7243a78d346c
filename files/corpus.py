"""The text of a corpus: files, folders, tables and data sets of the Hub, read as lines.

Whatever the source, the text is passed on as lines without surrounding white space, with an empty line after each
document: the format of google-research/bert. Everything is streamed; nothing holds a whole file.
"""

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from .columns import read_column
from .frames import GivenData, frame_column, is_frame, items_of
from .line_layout import DocumentEnd, LineLayout, guess_layout, marked_documents, sentences_of_lines
from .options import Group, check_options, option
from .parquet import first_line, lacks_column
from .tables import is_table
from .text import COMPRESSED_SUFFIXES, JSON_SUFFIXES, TABLE_SUFFIXES, content_suffix, expand_paths, open_text

logger = logging.getLogger(__name__)

HUB = "hf:"
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_SUFFIXES = (*TABLE_SUFFIXES, *COMPRESSED_SUFFIXES, ".txt")
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 2000, 1 << 18  # at the start of a file, to guess its layout
_SHOWN_LINES, _SHOWN_CHARACTERS = 3, 90


@dataclass(kw_only=True)
class SourceSettings:
    """The location of text in a file."""

    group = Group.READING
    decides = True
    encoding: str = option("utf-8", "Encoding of plain text, tables and JSON.")
    text_column: str = option("text", "Column of the text in CSV, TSV, JSON, Parquet and on the Hub.")


@dataclass(kw_only=True)
class TextSettings(SourceSettings):
    """Settings for reading text."""

    group = Group.READING
    decides = True
    join_lines: bool | None = option(
        None,
        "Join lines into paragraphs and split these into sentences (default: if lines look wrapped at some column, "
        "which is logged).",
    )


@dataclass(kw_only=True)
class DocumentSettings(TextSettings):
    """Settings for reading text as documents of sentences."""

    group = Group.READING
    decides = True
    split_sentences: bool = option(False, "Split each line of running text into sentences.")
    document_end: DocumentEnd = option(
        "auto",
        "Where documents end: blank_line, blank_lines (two or more), form_feed, or file (only at its end). Default: "
        "at a blank line; where lines are joined, at two or more if the text has them, else at its end.",
    )
    heading_pattern: str | None = option(
        None, r"Regular expression for the line that begins a document, such as '^CHAPTER \d+'."
    )

    def __post_init__(self) -> None:
        """Check the settings."""
        check_options(self)
        self.heading()

    def heading(self) -> re.Pattern[str] | None:
        """The pattern of headings, if there is one."""
        try:
            return None if self.heading_pattern is None else re.compile(self.heading_pattern)
        except re.error as error:
            raise ValueError(
                f"heading_pattern is {self.heading_pattern!r}, which is not a regular expression ({error})."
            ) from error


def expand_sources(files: str | Path | Iterable[str | Path]) -> list[str]:
    """List files, as `expand_paths`, and Hub data sets (`hf:...`) of a corpus, in the order given, each once."""
    sources: dict[str, None] = {}
    for item in [files] if isinstance(files, (str, Path)) else files:
        name = str(item)
        # `hf:owner/name`, `hf:owner/name:configuration` or `hf:owner/name:configuration:split`, by default the split
        # `train`; the configuration may be empty. `owner/name` alone is accepted, too, if there is no file or folder
        # `owner` and the name does not have a file's ending.
        if name.startswith(HUB):
            sources[name] = None
        elif _is_hub_name(name):
            sources[HUB + name] = None
        else:
            sources.update(dict.fromkeys(expand_paths(item)))
    return list(sources)


class Corpus:
    """Files and data sets, read as lines; can be read repeatedly."""

    # The format of a file follows from its name, before `.gz`, `.xz`, `.bz2` or `.zst` of compressed files: `.jsonl`,
    # `.json` and `.ndjson` have one document per line, a JSON object; `.csv`, `.tsv` and `.parquet` one per row; all
    # others are plain text. In rows, and on the Hub, `text_column` contains a document: text, whose lines are its
    # sentences, or a list of sentences, in which line breaks count as spaces. Null and empty documents are skipped.
    def __init__(
        self, files: str | Path | GivenData | Iterable[str | Path | GivenData], settings: DocumentSettings
    ) -> None:
        items = [files] if isinstance(files, (str, Path, GivenData)) else list(files)
        self._given = {str(item): item.data for item in items if isinstance(item, GivenData)}
        self.sources = [*self._given, *expand_sources(item for item in items if not isinstance(item, GivenData))]
        self._settings = settings
        self._said: set[object] = set()
        for source in self.sources:
            if source in self._given or _is_table(source):
                next(self._values(source, None), None)

    def lines(self, digests: dict[str, str] | None = None) -> Iterator[str]:
        """Read all sources as lines without surrounding white space, and `""` after each document."""
        for source in self.sources:
            yield from self._shown(source, self._lines_of(source, digests))

    def texts(self) -> Iterator[str]:
        """Read texts: the lines of plain text, the rows of tables; empty ones are skipped, with a warning."""
        for source in self.sources:
            in_rows, empty = self._in_rows(source), 0
            found = self._rows(source) if in_rows else open_text(source, self._settings.encoding)
            for text in found:
                value = " ".join(text) if isinstance(text, list) else text
                if value.strip():
                    yield value
                else:
                    empty += 1
            if empty:
                what = "rows without text" if in_rows else "empty lines"
                logger.warning("%s: %s %s are left out.", source, f"{empty:,}", what)

    def _lines_of(self, source: str, digests: dict[str, str] | None) -> Iterator[str]:
        settings = self._settings
        in_rows = self._in_rows(source)
        lines: Iterator[str | None]
        if in_rows:
            lines = _lines_of_rows(self._rows(source, digests))
        else:
            lines = open_text(source, settings.encoding, digests)
        sample, rest = _beginning(lines)
        document_end = settings.document_end
        if document_end == "auto" and settings.heading_pattern is not None:
            document_end = "file"
        layout = guess_layout(sample, settings.join_lines, document_end, in_rows)
        self._say_layout(source, layout)
        parts = marked_documents(chain(sample, rest), layout.document_end, settings.heading())
        if layout.joined:
            parts = sentences_of_lines(parts, layout.width)
        return _ended(parts)

    def _rows(self, source: str, digests: dict[str, str] | None = None) -> Iterator[str | list[str]]:
        """The documents in rows, each a text or a list of sentences."""
        is_lines = source not in self._given and content_suffix(source) in JSON_SUFFIXES
        where = f"{source}, {'line' if is_lines else 'row'}"
        return _texts_of_values(self._values(source, digests), where, self._settings.text_column)

    def _in_rows(self, source: str) -> bool:
        return source in self._given or source.startswith(HUB) or _is_table(source)

    def _values(self, source: str, digests: dict[str, str] | None) -> Iterator[object]:
        column = self._settings.text_column
        if source in self._given:
            data = self._given[source]
            return frame_column(data, column) if is_frame(data) else items_of(data)
        if source.startswith(HUB):
            return _hub_column(source, column)
        return read_column(source, column, self._settings.encoding, digests)

    def _say_layout(self, source: str, layout: LineLayout) -> None:
        key = (layout.joined, layout.document_end)
        if not layout.joined or key in self._said:
            return
        self._said.add(key)
        ends = {
            "blank_line": "a blank line ends a document",
            "blank_lines": "two or more blank lines end a document",
            "form_feed": "a form feed ends a document",
            "file": "a document ends with its file or row",
        }[layout.document_end]
        wrapped = f"lines look wrapped at {layout.width} columns; joined" if layout.width else "lines are joined"
        logger.info(
            "%s: %s into paragraphs and split into sentences; %s (--join_lines, --document_end).",
            source,
            wrapped,
            ends,
        )

    def _shown(self, source: str, lines: Iterator[str]) -> Iterator[str]:
        """Pass on lines, and log the beginning of the text once."""
        if "first" not in self._said:
            first = []
            for line in lines:
                first.append(line)
                if not line or len(first) == _SHOWN_LINES:
                    break
            if first:
                self._said.add("first")
                logger.info("%s begins:", source)
                for line in filter(None, first):
                    logger.info("  %s", line if len(line) <= _SHOWN_CHARACTERS else f"{line[:_SHOWN_CHARACTERS]}...")
            yield from first
        yield from lines


def _beginning(lines: Iterator[str | None]) -> tuple[list[str | None], Iterator[str | None]]:
    """The first lines, and an iterator over the rest; errors are raised in their place."""
    sample: list[str | None] = []
    characters = 0
    try:
        for line in lines:
            sample.append(line)
            characters += len(line or "")
            if len(sample) >= _SAMPLE_LINES or characters >= _SAMPLE_CHARACTERS:
                break
    except (OSError, ValueError, ImportError) as error:
        return sample, _raising(error)
    return sample, lines


def _raising(error: Exception) -> Iterator[None]:
    raise error
    yield


def _is_table(source: str) -> bool:
    return not source.startswith(HUB) and is_table(source)


def _is_hub_name(name: str) -> bool:
    path = Path(name)
    is_file_like = path.suffix.lower() in _FILE_SUFFIXES or path.exists() or path.parent.exists()
    return bool(_HUB_NAME.fullmatch(name)) and not is_file_like


def _ended(parts: Iterable[str | None]) -> Iterator[str]:
    """Lines without white space around them, and "" after each document that has some."""
    is_open = False
    for part in parts:
        if part is None:
            if is_open:
                yield ""
            is_open = False
        elif line := part.strip():
            yield line
            is_open = True
    if is_open:
        yield ""


def _lines_of_rows(rows: Iterable[str | list[str]]) -> Iterator[str | None]:
    for row in rows:
        yield from row.split("\n") if isinstance(row, str) else row
        yield None


def _texts_of_values(values: Iterable[object], where: str, column: str) -> Iterator[str | list[str]]:
    """Check documents, each a text, a list of texts or None for no text."""
    for number, text in enumerate(values, start=1):
        if text is None or isinstance(text, str):
            yield text or ""
        elif isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
            yield [sentence.replace("\n", " ") for sentence in text]
        else:
            raise ValueError(
                f"{where} {number}: {column!r} is {type(text).__name__}, expected text or a list of texts."
            )


def _hub_column(source: str, column: str) -> Iterator[object]:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(f"Reading {source} needs the datasets package: pip install datasets.") from error
    name, configuration, split = [*source.removeprefix(HUB).split(":", 2), "", ""][:3]
    try:
        rows = datasets.load_dataset(name, configuration or None, split=split or "train", streaming=True)
    except (OSError, ValueError) as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{source} cannot be read from the Hub ({first_line(error)}).") from error
    for number, row in enumerate(rows, start=1):
        if column not in row:
            raise ValueError(f"{source}, row {number} {lacks_column(column, row)}")
        yield row[column]
