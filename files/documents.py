"""The text of a corpus: files, folders, tables and data sets of the Hub, read as documents of sentences.

Everything is streamed; nothing holds a whole file.
"""

import logging
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, count, groupby, pairwise
from pathlib import Path
from typing import Literal, TypeVar

from .cleaning import CLEANERS, require_cleaners
from .errors import SettingError, Wording, abbreviated, worded
from .options import Group, option
from .settings import Part
from .source import HUB, FileSource, HubSplit, InMemoryData, Source
from .text import (
    COMPRESSED_SUFFIXES,
    PARQUET_SUFFIX,
    SPREADSHEET_SUFFIX,
    STDIN,
    TABLE_SUFFIXES,
    EncodingError,
    content_suffix,
    ends_sentence,
    expand_paths,
    is_encoded,
    split_sentences,
    text_lines,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
DocumentEnd = Literal["auto", "blank_line", "blank_lines", "form_feed", "file"]

_WIDTHS = range(40, 201)  # columns at which text is wrapped
_MIN_BREAKS = 8  # within paragraphs, needed for a guess
_TOLERANCE = 0.1  # of the width: text wrapped by hand is ragged
_SHORT = 0.2  # of the width: a line this much shorter ends a paragraph
_WORD_HYPHEN = re.compile(r"[^\W\d_]-$")
_WIDE = "WF"  # classes of Unicode's East Asian width that take two columns


@dataclass(frozen=True)
class LineLayout:
    """How lines become sentences and documents."""

    joined: bool  # into paragraphs, which are then split into sentences
    width: int | None  # columns at which lines are wrapped; None if unknown or not wrapped
    document_end: DocumentEnd  # apart from the end of a file or row


def guess_layout(
    lines: Sequence[str | None], join_lines: bool | None, document_end: DocumentEnd, in_rows: bool
) -> LineLayout:
    """Guess the layout of a text by its first lines; settings other than None and "auto" stay."""
    parts = [part for line in lines for part in (line or "").split("\f")]
    width = None if join_lines is False else wrapped_at(parts)
    joined = width is not None if join_lines is None else join_lines
    if document_end == "auto":
        if in_rows:
            document_end = "file"
        elif not joined:
            document_end = "blank_line"
        else:
            # Blank lines separate paragraphs here, and several of them documents if the text has them.
            gaps = [len(list(run)) for is_blank, run in groupby(parts, lambda part: not part.strip()) if is_blank]
            document_end = "blank_lines" if sum(gap > 1 for gap in gaps) > 1 else "file"
    return LineLayout(joined, width, document_end)


def wrapped_at(lines: Sequence[str]) -> int | None:
    """The column at which lines are wrapped, None if they are not."""
    # Wrapped lines are as long as possible: the first word of the next line would not have fitted. Lines of one
    # sentence each are of any length, and most of them end as sentences do.
    breaks = [
        (line.rstrip(), following.strip())
        for line, following in pairwise(lines)
        if line.strip() and following.strip() and _indent(following) <= _indent(line)
    ]
    if len(breaks) < _MIN_BREAKS:
        return None
    if sum(ends_sentence(line) for line, _ in breaks) > len(breaks) / 2:
        return None
    if sum(" " in line.strip() or _breaks_anywhere(line[-1]) for line, _ in breaks) < 0.8 * len(breaks):
        return None
    measures: tuple[Callable[[str], int], ...] = (len, _columns)
    for measure in measures:
        lengths = sorted(measure(line) for line, _ in breaks)
        width = lengths[int(0.98 * len(lengths))]
        least = width - _TOLERANCE * width
        full = sum(measure(line) + 1 + measure(_first_word(following)) > least for line, following in breaks)
        long = sum(length > 0.6 * width for length in lengths)
        if width in _WIDTHS and min(full, long) >= 0.8 * len(breaks):
            return width
    return None


def marked_documents(
    lines: Iterable[str | None], document_end: DocumentEnd, heading: re.Pattern[str] | None
) -> Iterator[str | None]:
    """Put None where documents end; None in `lines` already marks a certain end."""
    blank = 0
    needed = {"blank_line": 1, "blank_lines": 2}.get(document_end, 0)
    for line in lines:
        if line is None:
            blank = 0
            yield None
            continue
        if heading is not None and heading.search(line.lstrip("\f")):  # which begins a page, not the text of its line
            yield None
        if "\f" in line and document_end == "form_feed":
            first, *others = line.split("\f")
            yield first
            for other in others:
                yield None
                yield other
            continue
        blank = 0 if line.strip() else blank + 1
        yield None if needed and blank == needed else line


def sentences_of_lines(lines: Iterable[str | None], width: int | None) -> Iterator[str | None]:
    """Join lines into paragraphs and split these into sentences; None is the end of a document."""
    # A paragraph ends at a blank line, at a line much shorter than the others although the next word would have
    # fitted, and, after the end of a sentence, before an indented line. Without a width everything between blank lines
    # is joined.
    paragraph: list[str] = []
    last = ""
    for line in lines:
        text = (line or "").replace("\f", " ").strip()
        if paragraph and (not text or _ends_paragraph(last, line or "", width)):
            yield from split_sentences("".join(paragraph))
            paragraph = []
        if line is None:
            yield None
        elif text:
            if paragraph:
                paragraph[-1] = _before(text, paragraph[-1])
            paragraph.append(text)
            last = line
    if paragraph:
        yield from split_sentences("".join(paragraph))


def _ends_paragraph(line: str, following: str, width: int | None) -> bool:
    if _indent(following) > _indent(line) and ends_sentence(line.rstrip()):
        return True
    if width is None:
        return False
    least = width - _SHORT * width
    line, word = line.rstrip(), _first_word(following.strip())
    return len(line) + 1 + len(word) < least and (line.isascii() or _columns(line) + 1 + len(word) < least)


def _before(following: str, line: str) -> str:
    """A line as it is joined to the following one: with a space at its end, unless both are parts of a word."""
    if _breaks_anywhere(line[-1]) and _breaks_anywhere(following[0]):
        return line
    if line.endswith("\u00ad"):
        return line[:-1]
    return line if _WORD_HYPHEN.search(line) else f"{line} "


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _columns(text: str) -> int:
    """Number of columns of a text in a terminal."""
    if text.isascii():
        return len(text)
    return sum(1 + (unicodedata.east_asian_width(character) in _WIDE) for character in text)


def _breaks_anywhere(character: str) -> bool:
    """Whether lines may break next to a character that is not a space: Chinese, kana and their punctuation."""
    return unicodedata.east_asian_width(character) in _WIDE and not "가" <= character <= "힣"


def _first_word(text: str) -> str:
    """The part of a line that a line break may not divide."""
    word = text.split(None, 1)[0]
    return word[:1] if _breaks_anywhere(word[0]) else word


_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_FILE_SUFFIXES = (*TABLE_SUFFIXES, *COMPRESSED_SUFFIXES, ".txt")
_SAMPLE_LINES, _SAMPLE_CHARACTERS = 2000, 1 << 18  # at the start of a file, to guess its layout
_SHOWN_LINES, _SHOWN_CHARACTERS = 3, 90
_CONTEXT = 25  # characters before and after an example of what to clean
_UNCLEAN = {"html": "HTML", "mojibake": "mojibake"}
_MAX_FILES = 8  # listed in a message
_ENDS = {
    "blank_line": "a blank line ends a document",
    "blank_lines": "two or more blank lines end a document",
    "form_feed": "a form feed ends a document",
    "file": "a document ends with its file or row",
}


@dataclass(frozen=True, kw_only=True)
class SourceSettings(Part):
    """The location of text in a file."""

    group = Group.READING
    decides = True
    encoding: str = option("utf-8", "Encoding of plain text, tables and JSON.")
    text_column: str = option("text", "Column of the text in tables (review.text in nested JSON) and on the Hub.")


@dataclass(frozen=True, kw_only=True)
class TextSettings(SourceSettings):
    """Settings for reading text."""

    group = Group.READING
    decides = True
    join_lines: bool | None = option(
        None,
        "Join lines into paragraphs and split these into sentences (default: if lines look wrapped at some column, "
        "which is logged).",
    )
    clean: list[str] = option(
        [],
        f"What to turn into plain text, some of {', '.join(CLEANERS)}: HTML's tags and entities; text decoded by "
        "another encoding than its own. Reading reports how many lines have them.",
        decides="if_not_default",
    )

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        if unknown := [name for name in self.clean if name not in CLEANERS]:
            raise SettingError("clean", unknown[0], known=CLEANERS, verb="has")


@dataclass(frozen=True, kw_only=True)
class DocumentSettings(TextSettings):
    """Settings for reading text as documents of sentences."""

    group = Group.READING
    decides = True
    split_sentences: bool = option(False, "Split each line of running text into sentences.")
    document_end: DocumentEnd = option(
        "auto",
        "What ends a document: blank_line, blank_lines (two or more), form_feed or file (only its end). auto: a blank "
        "line; where lines are joined, two or more if the text has them, else the end of the file.",
    )
    heading_pattern: str | None = option(
        None, r"Regular expression for the line that begins a document, such as '^CHAPTER \d+'."
    )

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        self.heading()

    def heading(self) -> re.Pattern[str] | None:
        """The pattern of headings, if there is one."""
        try:
            return None if self.heading_pattern is None else re.compile(self.heading_pattern)
        except re.error as error:
            raise SettingError.worded(
                "{heading_pattern} is {!r}, which is not a regular expression ({}).", self.heading_pattern, error
            ) from error


def expand_sources(files: str | Path | Iterable[str | Path]) -> list[str]:
    """List files, as `expand_paths`, and Hub data sets (`hf:...`) of a corpus, in the order given.

    What is named twice is there twice; what two names have in common, such as a folder and a file in it, once.
    """
    named: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    sources: list[str] = []
    for item in [files] if isinstance(files, (str, Path)) else files:
        name, path = str(item), Path(item)
        # `hf:owner/name`, `hf:owner/name:configuration` or `hf:owner/name:configuration:split`, by default the split
        # `train`; the configuration may be empty. `owner/name` alone is accepted, too, if there is no file or folder
        # `owner` and the name does not have a file's ending.
        if name.startswith(HUB):
            found = [name]
        elif _HUB_NAME.fullmatch(name) and not (
            path.suffix.lower() in _FILE_SUFFIXES or path.exists() or path.parent.exists()
        ):
            found = [HUB + name]
        else:
            found = expand_paths(item)
        named[str(path)] += 1
        lacking = [source for source in found if counts[source] < named[str(path)]]
        counts.update(lacking)
        sources += lacking
    return sources


class Corpus:
    """Files and data sets, read as lines; can be read repeatedly."""

    # The format of a file follows from its name, before `.gz`, `.xz`, `.bz2` or `.zst` of compressed files: `.jsonl`,
    # `.json` and `.ndjson` have one document per line, a JSON object; `.csv`, `.tsv` and `.parquet` one per row; all
    # others are plain text. In rows, and on the Hub, `text_column` contains a document: text, whose lines are its
    # sentences, or a list of sentences, in which line breaks count as spaces. Null and empty documents are skipped.
    def __init__(
        self,
        files: str | Path | InMemoryData | Iterable[str | Path | InMemoryData],
        settings: DocumentSettings,
        digests: dict[str, str] | None = None,  # filled with those of completely read files
    ) -> None:
        items = [files] if isinstance(files, (str, Path, InMemoryData)) else list(files)
        in_memory: list[Source] = [item for item in items if isinstance(item, InMemoryData)]
        names = expand_sources(item for item in items if not isinstance(item, InMemoryData))
        self.sources = [*map(str, in_memory), *names]
        self._sources = in_memory + [
            HubSplit.named(name) if name.startswith(HUB) else FileSource(name, digests) for name in names
        ]
        require_cleaners(settings.clean)
        self._settings = settings
        self._said: set[object] = set()
        try:
            for source in self._sources:
                if _in_rows(source) and not isinstance(source, HubSplit):
                    next(source.column(settings.text_column, settings.encoding), None)  # errors are reported at once
        except EncodingError as error:
            raise self._with_others(error) from error

    def lines(self) -> Iterator[str]:
        """Read all sources as lines without surrounding white space, and `""` after each document."""
        cleaning = Cleaning(self._settings.clean)
        named = zip(self.sources, self._sources, strict=True)
        shown = (self._shown(name, self._lines_of(name, source, cleaning)) for name, source in named)
        yield from self._some(chain.from_iterable(shown))
        if "cleaning" not in self._said:  # of the first of several readings
            self._said.add("cleaning")
            cleaning.log()

    def texts(self) -> Iterator[tuple[int, str]]:
        """Read texts, lines or rows, each with its number from 0; empty ones count, and are skipped with a warning."""
        return self._some(self._texts())

    def _some(self, texts: Iterator[T]) -> Iterator[T]:
        """Pass on texts; none at all is an error."""
        try:
            if (first := next(texts, None)) is None:
                raise ValueError(f"There is no text in {', '.join(self.sources)}.")
            yield from chain([first], texts)
        except EncodingError as error:
            raise self._with_others(error) from error

    def _with_others(self, error: EncodingError) -> EncodingError:
        """The error that a file has another encoding, with the names of all other files that have one."""
        encoding = self._settings.encoding
        files = [source.path for source in self._sources if isinstance(source, FileSource)]
        texts = [file for file in files if content_suffix(file) not in (PARQUET_SUFFIX, SPREADSHEET_SUFFIX)]
        others = [
            Path(file).name for file in texts if file not in (error.path, STDIN) and not is_encoded(file, encoding)
        ]
        if not others:
            return error
        shown = ", ".join([*others[:_MAX_FILES], *["..."] * (len(others) > _MAX_FILES)])
        count = "1 other file is" if len(others) == 1 else f"{len(others)} other files are"
        first = Wording(error.args[0].parts[:-1])  # without the full stop
        message = worded("{}; {} not {} text either: {}.", first, count, encoding, shown)
        return EncodingError(error.path, message)

    def _texts(self) -> Iterator[tuple[int, str]]:
        numbers = count()
        for name, source in zip(self.sources, self._sources, strict=True):
            empty = 0
            for text in self._documents(source) if _in_rows(source) else self._plain_lines(source):
                value, number = " ".join(text) if isinstance(text, list) else text, next(numbers)
                if value.strip():
                    yield number, value
                else:
                    empty += 1
            if empty:
                what = "rows without text" if _in_rows(source) else "empty lines"
                logger.warning("%s: %s %s are left out.", name, f"{empty:,}", what)

    def _lines_of(self, name: str, source: Source, cleaning: "Cleaning") -> Iterator[str]:
        settings, in_rows = self._settings, _in_rows(source)
        lines: Iterator[str | None] = (
            self._lines_of_rows(source, cleaning) if in_rows else cleaning.lines(self._plain_lines(source))
        )
        sample, rest = _beginning(lines)
        document_end = settings.document_end
        if document_end == "auto" and settings.heading_pattern is not None:
            document_end = "file"
        layout = guess_layout(sample, settings.join_lines, document_end, in_rows)
        key = (layout.joined, layout.document_end)
        if layout.joined and key not in self._said:
            self._said.add(key)
            logger.info(
                "%s: %s into paragraphs and split into sentences; %s (--join_lines, --document_end).",
                name,
                f"lines look wrapped at {layout.width} columns; joined" if layout.width else "lines are joined",
                _ENDS[layout.document_end],
            )
        parts = marked_documents(chain(sample, rest), layout.document_end, settings.heading())
        if layout.joined:
            parts = sentences_of_lines(parts, layout.width)
        return _ended(parts)

    def _plain_lines(self, source: Source) -> Iterator[str]:
        assert isinstance(source, FileSource)
        return text_lines(source.path, self._settings.encoding, source.digests, self._settings.text_column)

    def _lines_of_rows(self, source: Source, cleaning: "Cleaning") -> Iterator[str | None]:
        for document in self._documents(source):
            if isinstance(document, str):
                yield from cleaning.text(document).split("\n")
            else:
                yield from (" ".join(cleaning.text(sentence).split("\n")) for sentence in document)
            yield None

    def _documents(self, source: Source) -> Iterator[str | list[str]]:
        """The documents in rows, each a text or a list of sentences; "" for none."""
        column = self._settings.text_column
        for number, text in enumerate(source.column(column, self._settings.encoding), start=1):
            if text is None or isinstance(text, str):
                yield text or ""
            elif isinstance(text, list) and all(isinstance(sentence, str) for sentence in text):
                yield [sentence.replace("\n", " ") for sentence in text]
            else:
                found = f"{source.where(number)}: {column!r} is {type(text).__name__}"
                raise ValueError(f"{found}; expected text or a list of texts.")

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
                    logger.info("  %s", abbreviated(line, _SHOWN_CHARACTERS))
            yield from first
        yield from lines


class Cleaning:
    """Cleans texts, and counts those with something to clean; an ImportError if a cleaner's package is missing."""

    def __init__(self, names: Sequence[str]) -> None:
        require_cleaners(names)
        self._names = names
        self._texts = 0
        self._counts: Counter[str] = Counter()
        self._examples: dict[str, str] = {}

    def text(self, text: str) -> str:
        self._texts += bool(text)
        for name, (find, cleaned) in CLEANERS.items():
            if (match := find(text)) is not None:
                self._counts[name] += 1
                if name not in self._examples:
                    self._examples[name] = text[max(0, match.start() - _CONTEXT) : match.end() + _CONTEXT].strip()
                if name in self._names:
                    text = cleaned(text)
        return text

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Clean lines; what becomes several lines is no end of a document, and what was only a tag is no line."""
        for line in lines:
            cleaned = self.text(line)
            if cleaned is line or not line.strip():
                yield cleaned
            else:
                yield from filter(str.strip, cleaned.split("\n"))

    def log(self) -> None:
        for name, unclean_texts in self._counts.items():
            amount = f"{unclean_texts:,} of {self._texts:,} lines or rows"
            excerpt = abbreviated(self._examples[name], _SHOWN_CHARACTERS)
            if name in self._names:
                logger.info(
                    "%s had %s, which was turned into plain text, such as %r.", amount, _UNCLEAN[name], excerpt
                )
            else:
                step = f"--clean {name} turns it into plain text"
                logger.info("%s have %s, such as %r; %s.", amount, _UNCLEAN[name], excerpt, step)


def _in_rows(source: Source) -> bool:
    return not isinstance(source, FileSource) or content_suffix(source.path) in TABLE_SUFFIXES


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
