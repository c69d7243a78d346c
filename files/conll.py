"""CoNLL's columns: a word in each line, followed by its tags, and an empty line between sentences."""

import csv
import logging
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Literal

from .text import HEADER_AGAIN, content_suffix, open_text, text_lines

logger = logging.getLogger(__name__)

DOCUMENT_START = "-DOCSTART-"  # first word of the line that starts a document in CoNLL-2003
_NODE = re.compile(r"\d+([-.]\d+)?")  # the first column of CoNLL-U: a word, a range of words, or an empty node
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_ENTITY = re.compile(r"O|[BI]-.+")
_WORD_NAMES, _TAG_NAMES = {"word", "words", "token", "tokens", "form"}, {"tag", "tags", "label", "labels", "ner"}
_MAX_WORDS = 200  # of a file's only sentence, above which a warning is logged
_LINES_OF_LAYOUT = 1000  # in which the layout of a file is looked for

Layout = Literal["columns", "sentences"]
"""Columns with a word in a line, or a table without header: a sentence, and its tags separated by spaces."""


def read_conll(
    path: str | Path, encoding: str = "utf-8", is_data: bool = True, names: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """Read CoNLL columns; those of data may have comments, numbers and a header: `names` or usual ones."""
    # A sentence has `tokens`, the first column; `tags`, the last one, if there are several; `0`, `1`, ..., every
    # column by its number, and by its name in a header; and `document`, its number: `-DOCSTART-` or `# newdoc` starts
    # one. In CoNLL-U, tokens and tags are FORM and UPOS. A column that numbers the words is not that of tokens; in
    # GermEval's four columns, tags are those of outer entities. Comments (before a sentence), and CoNLL-U's ranges and
    # empty nodes, are left out.
    words: list[list[str]] = []
    names_line: list[str] = []  # the fields of the header, if there is one
    header: list[str] = []
    sentences = document = width = length = 0
    is_conll_u = False
    columns: tuple[int, int] | None = None  # of tokens and tags
    waiting: list[tuple[list[list[str]], int]] = []  # sentences, with their document, until `columns` are known
    others: tuple[int, set[str]] | None = None
    left_out: Counter[str] = Counter()
    mark = _separator(path, encoding)
    for number, line in enumerate(chain(text_lines(path, encoding), [""]), start=1):
        fields = _fields(line, mark)
        starts_document = fields[:1] == [DOCUMENT_START]
        if is_data and not words and line.startswith("#"):
            expected, tags = others = others or _width_and_tags(path, encoding, mark)
            is_word = len(fields) == expected and (expected == 1 or fields[-1] in tags)
            if expected and not is_word:
                left_out["comments"] += 1
                document += line.startswith("# newdoc") and sentences > 0
                continue
        if not line.strip() or starts_document:
            if words:
                waiting.append((words, document))
                sentences, length, words = sentences + 1, len(words), []
                if is_conll_u or not is_data:
                    columns = (1, 3) if is_conll_u else (0, width - 1)
                columns = columns or _tokens_and_tags([each for each, _ in waiting], header)
                if columns:
                    yield from (_row(*sentence, columns, header) for sentence in waiting)
                    waiting = []
            document += starts_document and sentences > 0
            continue
        if not width:
            width, is_conll_u = len(fields), len(fields) == 10 and _NODE.fullmatch(fields[0]) is not None
            if is_data and _is_header(fields, names):
                names_line, header = fields, [field.strip() for field in fields]
                continue
        if fields == names_line:
            raise ValueError(f"{path}, line {number}: {HEADER_AGAIN}.")
        # A space may be a word, as in texts that are tagged by character.
        if len(fields) != width or not fields[0] or not all(map(str.strip, fields[1:])):
            raise ValueError(
                f"{path}, line {number}: {line[:40]!r} has {sum(bool(field.strip()) for field in fields)} fields; "
                f"expected {width} as in the first line, starting with the word."
            )
        if is_conll_u and not fields[0].isdigit():
            left_out["ranges of words" if "-" in fields[0] else "empty nodes"] += 1
        else:
            words.append(fields)
    yield from (_row(*sentence, (int(len(waiting) > 1), width - 1), header) for sentence in waiting)
    if is_data and sentences == 1 and length > _MAX_WORDS:
        logger.warning("%s has no empty line, so its %d words are one sentence.", path, length)
    if left_out:
        logger.info("%s: left out: %s.", path, ", ".join(f"{kind} ({count:,})" for kind, count in left_out.items()))


def layout_of(path: str, encoding: str, names: Sequence[str] = ()) -> Layout | None:
    """What a file holds whose ending says table or text; None if it is what its ending says."""
    mark = _separator(path, encoding)
    sentences: list[list[list[str]]] = [[]]  # the fields of lines between empty ones, without comments
    for line in islice(open_text(path, encoding), _LINES_OF_LAYOUT):
        if not line.strip():
            sentences.append([])
        elif sentences[-1] or not line.startswith("#"):
            sentences[-1].append(_fields(line, mark))
    rows = list(chain.from_iterable(sentences))
    if not rows:
        return None
    if _are_sentences(rows, names):
        return "sentences"
    has_borders = sum(map(bool, sentences)) > 1 and max(map(len, sentences)) > 1
    are_words = all(
        len(fields) == len(rows[0]) > 1 and fields[0] and len(split_words(fields[-1])) == 1 for fields in rows
    )
    # Plain texts of two words each are no columns.
    is_tagged = content_suffix(path) != ".txt" or any(_ENTITY.fullmatch(fields[-1]) for fields in rows)
    return "columns" if has_borders and are_words and is_tagged else None


def _are_sentences(rows: Sequence[Sequence[str]], names: Sequence[str]) -> bool:
    """Whether all rows are a sentence with a tag for each word; a header has other tags than the rows."""
    counts = [[len(split_words(field)) for field in fields] for fields in rows]
    if any(len(pair) != 2 or pair[0] != pair[1] for pair in counts) or max(counts) == [1, 1]:
        return False
    others = {tag for fields in rows[1:] for tag in split_words(fields[1])}
    return set(names).isdisjoint(rows[0]) and (counts[0][0] > 1 or rows[0][1] in others)


def split_words(text: str) -> list[str]:
    """The words of a text with spaces between them; other white space, such as a no-break space, may be in a word."""
    return [word for word in _SPACES.split(text) if word]


def _row(
    words: Sequence[Sequence[str]], document: int, columns: tuple[int, int], header: Sequence[str]
) -> dict[str, Any]:
    """A sentence, with its columns of tokens and tags."""
    values = [list(column) for column in zip(*words, strict=True)]
    token, tag = (values[column] for column in columns)
    row = {"tokens": token} | ({"tags": tag} if len(values) > 1 else {})
    row |= {str(number): column for number, column in enumerate(values)}
    return row | dict(zip(header, values, strict=False)) | {"document": document}


def _tokens_and_tags(sentences: Sequence[Sequence[Sequence[str]]], header: Sequence[str]) -> tuple[int, int] | None:
    """The columns of tokens and tags, by their names or the first sentences; None if these leave it open."""
    words = list(chain.from_iterable(sentences))
    width = len(words[0])
    if named := [column for column, name in enumerate(header) if name.casefold() in _WORD_NAMES]:
        return named[0], width - 1
    numbers = [[fields[0] for fields in sentence] for sentence in sentences]
    is_numbered = width > 2 and any(
        all(first == list(map(str, range(start, start + len(first)))) for first in numbers) for start in (0, 1)
    )
    if is_numbered and len(words) == len(sentences):
        return None  # 1 may be a word, or the number of one
    if is_numbered and width == 4 and all(_ENTITY.fullmatch(tag) for fields in words for tag in fields[2:]):
        return 1, 2
    return int(is_numbered), width - 1


def _is_header(fields: Sequence[str], names: Sequence[str]) -> bool:
    lower = [field.strip().casefold() for field in fields]
    is_usual = len(fields) > 1 and not _WORD_NAMES.isdisjoint(lower) and not _TAG_NAMES.isdisjoint(lower[-1:])
    return is_usual or (len(names) > 1 and set(names) <= set(fields))


def _separator(path: str | Path, encoding: str) -> str | None:
    """The separator of columns in a CSV file; None for tabs or else spaces."""
    if content_suffix(path) != ".csv":
        return None
    filled = islice((line for line in open_text(path, encoding) if line.strip()), 2)
    rows = list(filled)
    for mark in ",;|":
        widths = {len(fields) for fields in csv.reader(rows, delimiter=mark)}
        if len(widths) == 1 and min(widths) > 1:
            return mark
    return None


def _fields(line: str, mark: str | None) -> list[str]:
    if mark is not None:
        return next(csv.reader([line], delimiter=mark), [])
    return line.split("\t") if "\t" in line else split_words(line)


def _width_and_tags(path: str | Path, encoding: str, mark: str | None) -> tuple[int, set[str]]:
    """The number of columns and the values of the last one, in lines that cannot be comments."""
    width, tags, in_sentence = 0, set[str](), False
    for line in open_text(path, encoding):
        in_sentence = bool(line.strip()) and (in_sentence or not line.startswith("#"))
        if in_sentence and not line.startswith(DOCUMENT_START):
            fields = _fields(line, mark)
            width = width or len(fields)
            tags.add(fields[-1])
    return width, tags
