"""Data to predict, row by row: files of any kind, standard input, iterables, tables in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from ...files import is_table, parse_json, read_conll, stream_rows
from ...files.text import SEPARATED_SUFFIXES, STDIN, content_suffix, open_text
from ..data.given_data import rows_of
from ..data.rows import DataRow
from ..network.features import PAIR_SEPARATOR
from ..tasks.task import Task

logger = logging.getLogger(__name__)

# Usual names of text columns; the first pair, or else the first single name, that the data has is used.
_PAIRS = (
    *(("text", "text_pair"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question", "context")),
    *(("question1", "question2"), ("question", "sentence"), ("text_a", "text_b"), ("#1 String", "#2 String")),
)
_TEXTS = ("text", "sentence", "tokens", "words", "document", "content", "review", "comment", "question", "sent1")


def rows_to_predict(data: Any, task: Task) -> Iterator[DataRow]:
    """Stream rows of a file ("-" is standard input) or of data in memory, see `rows_of`."""
    if isinstance(data, (str, Path)):
        # Texts without columns have the columns `text` and `text_pair`, and lines of a file `line`.
        yield from _file_rows(data, task)
        return
    yield from rows_of(data, "data", task, labelled=False)


def _file_rows(path: str | Path, task: Task) -> Iterator[DataRow]:
    if str(path) == STDIN:
        lines = open_text(path, task.encoding)
        head: list[str] = []  # up to the first non-empty line
        while (not head or not head[-1].strip()) and (line := next(lines, None)) is not None:
            head.append(line)
        lines = chain(head, lines)
        if head and head[-1].lstrip().startswith("{"):
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    value = parse_json("standard input", number, line)
                    if not isinstance(value, dict):
                        raise ValueError(f"standard input, line {number}: {line[:40]!r}; expected a JSON object.")
                    yield DataRow(value, "standard input", number)
            return
        yield from _text_rows(lines, "standard input", task)
    elif is_table(path):
        rows = stream_rows(path, task.file_columns, task.encoding, task.skip_broken_rows, task.is_published(path))
        yield from (DataRow(row, str(path), number) for number, row in enumerate(rows, start=1))
    elif task.reads_conll and content_suffix(path) != ".txt":
        rows = iter(read_conll(path, task.encoding))
        yield from (DataRow(row, str(path), number) for number, row in enumerate(rows, start=1))
    else:
        yield from _text_rows(open_text(path, task.encoding), str(path), task)


def _text_rows(lines: Iterable[str], source: str, task: Task) -> Iterator[DataRow]:
    """One text per line, or a pair separated as in `features` if the task reads pairs; empty lines are left out."""
    empty = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            empty += 1
            continue
        parts = line.rsplit(PAIR_SEPARATOR, 1) if task.may_read_pairs else [line]
        texts = dict(zip(("text", "text_pair"), parts, strict=False))
        yield DataRow({"line": number, **texts}, source, number)
    if empty:
        logger.warning("%s: %s empty lines are left out.", source, f"{empty:,}")


def task_for_columns(task: Task, row: DataRow, given: Sequence[str]) -> Task:
    """The task with its own columns if the data has them, else with usual names; `given` settings stay."""
    names = set(row.values)
    pair_name = task.text_pair_column
    knows_pair = "text_pair_column" in task.options and pair_name is not None
    if "text_column" in given or (task.text_column in names and (not knows_pair or pair_name in names)):
        if task.may_read_pairs and not knows_pair and "text_column" not in given and "text_pair" in names:
            return replace(task, text_pair_column="text_pair")
        return task
    pairs = [pair for pair in _PAIRS if names.issuperset(pair)] if task.may_read_pairs else []
    if "text_pair_column" in given:
        pairs = [pair for pair in pairs if pair[1] == pair_name]
    if pairs and "choice_columns" not in task.options:
        found: dict[str, str] = dict(zip(("text_column", "text_pair_column"), pairs[0], strict=True))
    else:
        singles = [name for name in _TEXTS if name in names]
        others = [name for name in row.values if name != "line"]
        if len(others) == 1 and not singles:
            if content_suffix(row.source) in SEPARATED_SUFFIXES and others[0].strip().casefold() not in _TEXTS:
                raise ValueError(
                    f"{row.source} has one column, and {others[0][:60]!r} in its first line; if that is the column's "
                    "name, give it with text_column; otherwise begin the file with a line 'text', or call it .txt."
                )
            singles = others
        if not singles or knows_pair:
            raise row.lacks({name: option for name, option in task.columns(False).items() if name not in names})
        found = {"text_column": singles[0]}
    if row.values.keys() - {"line", "text", "text_pair"}:
        logger.info("Texts are read from %s.", " and ".join(map(repr, found.values())))
    return replace(task, **found)  # type: ignore[arg-type]
