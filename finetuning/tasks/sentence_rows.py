"""Tables with one word in a row, whose sentences are numbered by a column (`sentence_id`, `Sentence #`)."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from dataclasses import replace

from ...files.conll import split_words
from ..data import DataRow

logger = logging.getLogger(__name__)

_NAMES = {"sentence", "sentenceid", "sentenceno", "sentencenumber", "sentenceindex", "sentenceidx", "sentid", "sentno"}


def sentence_column(row: DataRow, text_column: str) -> str | None:
    """The column that numbers the sentences, by its name."""
    names = (name for name in row.values if name != text_column)
    return next((name for name in names if re.sub(r"[\W_]+", "", name).casefold() in _NAMES), None)


def continues_sentence(row: DataRow, previous: DataRow, text_column: str) -> bool:
    """Whether both rows have one word, and the number of the sentence is equal, or blank in the second one."""
    column = sentence_column(row, text_column)
    if column is None or not (_has_one_word(row, text_column) and _has_one_word(previous, text_column)):
        return False
    return not row.has(column) or row.get(column) == previous.get(column)


def rows_by_sentence(rows: Sequence[DataRow], text_column: str, is_part: bool = False) -> list[list[DataRow]] | None:
    """The rows of each sentence; None if rows are not words with the number of their sentence.

    All sentences of a part of the data may have one word; in the whole data some must have two.
    """
    if sentence_column(rows[0], text_column) is None or not all(_has_one_word(row, text_column) for row in rows):
        return None
    sentences: list[list[DataRow]] = []
    number = None  # of the sentence; only its first row may have it
    known, returning = set[str](), set[str]()
    for row in rows:
        column = sentence_column(row, text_column)
        given = row.get(column) if column is not None and row.has(column) else None
        if not sentences or (given is not None and given != number):
            sentences.append([])
            number = given
            (returning if str(given) in known else known).add(str(given))
        word = str(row.get(text_column))  # a number, as a spreadsheet may hold it
        sentences[-1].append(replace(row, values=row.values | {text_column: word}))
    if returning and not is_part:
        logger.warning(
            "%s: the number of a sentence, %r, returns after another one, so its words are several sentences: right "
            "if each document counts from the start, but not if the rows are out of order.",
            rows[0].source,
            min(returning),
        )
    return sentences if is_part or len(sentences) < len(rows) else None


def refuse_single_words(rows: Sequence[DataRow], text_column: str, label_column: str) -> None:
    """Reject labeled texts that all have one word: a table with a word in each row, without sentences."""
    if len(rows) > 1 and all(_has_one_word(row, text_column) and _has_one_word(row, label_column) for row in rows):
        raise ValueError(
            f"{rows[0].source} has one word in every row, and no column that numbers the sentences; expected a column "
            "named sentence_id, a sentence in each row, or CoNLL columns with an empty line after each sentence "
            "(a file named .conll)."
        )


def _has_one_word(row: DataRow, column: str) -> bool:
    value = row.get(column)
    return isinstance(value, (str, int, float)) and len(split_words(str(value))) == 1
