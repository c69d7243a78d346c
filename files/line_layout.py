"""Whether the lines of a text are single sentences, or paragraphs wrapped at some column.

Lines are passed as text, `""` for a blank line, and None at the end of a document.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from .sentences import ends_sentence, split_sentences

DocumentEnd = Literal["auto", "blank_line", "blank_lines", "form_feed", "file"]

_WIDTHS = range(40, 201)  # columns at which text is wrapped
_FEWEST_BREAKS = 8  # within paragraphs, needed for a guess
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
    if len(breaks) < _FEWEST_BREAKS:
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
        if heading is not None and heading.search(line):
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
    paragraph, last = "", ""
    for line in lines:
        text = (line or "").replace("\f", " ").strip()
        if paragraph and (not text or _ends_paragraph(last, line or "", width)):
            yield from split_sentences(paragraph)
            paragraph = ""
        if line is None:
            yield None
        elif text:
            paragraph = _joined(paragraph, text) if paragraph else text
            last = line
    if paragraph:
        yield from split_sentences(paragraph)


def _ends_paragraph(line: str, following: str, width: int | None) -> bool:
    if _indent(following) > _indent(line) and ends_sentence(line.rstrip()):
        return True
    if width is None:
        return False
    least = width - _SHORT * width
    line, word = line.rstrip(), _first_word(following.strip())
    return len(line) + 1 + len(word) < least and (line.isascii() or _columns(line) + 1 + len(word) < least)


def _joined(line: str, following: str) -> str:
    if _breaks_anywhere(line[-1]) and _breaks_anywhere(following[0]):
        return line + following
    if line.endswith("\u00ad"):
        return line[:-1] + following
    return line + following if _WORD_HYPHEN.search(line) else f"{line} {following}"


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
