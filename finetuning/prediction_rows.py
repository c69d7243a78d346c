"""What is to be predicted, row by row: files of any kind, standard input, Python's iterables, tables in memory."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from ..files import is_table, parse_json, read_conll, stream_rows
from ..files.text import STDIN, content_suffix, open_text
from .features import PAIR_SEPARATOR
from .rows import DataRow
from .task import Task

logger = logging.getLogger(__name__)

# Names that columns of texts often have; of the pairs and then of the single names the first that is there counts.
_PAIRS = (
    *(("text", "text_pair"), ("sentence1", "sentence2"), ("premise", "hypothesis"), ("question", "context")),
    *(("question1", "question2"), ("question", "sentence"), ("text_a", "text_b"), ("#1 String", "#2 String")),
)
_TEXTS = ("text", "sentence", "tokens", "words", "document", "content", "review", "comment", "question", "sent1")
_FRAME_ROWS = 1024  # of a DataFrame at a time


def rows_to_predict(data: Any, task: Task) -> Iterator[DataRow]:
    """Rows of any kind of data; nothing is held but what is read at a time.

    Args:
        data: A file (`str` or `Path`; `"-"` is standard input), or an iterable: of texts, of pairs of texts, of lists
            of words where words are tagged, of dictionaries; a `pandas.DataFrame`; a `datasets.Dataset`.
        task: The task, which says how files without header or ending are read.

    Yields:
        The rows. Texts without columns have the columns `text` and `text_pair`, and lines of a file `line`.

    Raises:
        OSError: If a file cannot be read.
        ValueError: If a file is broken, or the data is nothing of this kind.
    """
    if isinstance(data, (str, Path)):
        yield from _file_rows(data, task)
        return
    if hasattr(data, "to_dict") and hasattr(data, "iloc"):
        yield from _frame_rows(data)
        return
    if isinstance(data, Mapping) or not isinstance(data, Iterable):
        what = f"splits {', '.join(map(str, data))}" if isinstance(data, Mapping) else f"a {type(data).__name__}"
        raise ValueError(f"data is {what}; expected a file, an iterable of texts, pairs or rows, or a table.")
    for number, item in enumerate(data, start=1):
        yield DataRow(_values(item, number, task), "data", number)


def _values(item: Any, number: int, task: Task) -> dict[str, Any]:
    """The columns of an item of an iterable."""
    if isinstance(item, Mapping):
        return dict(item)
    if isinstance(item, str):
        return {"text": item}
    if isinstance(item, (list, tuple)) and all(isinstance(part, str) for part in item) and item:
        if task.reads_conll:
            return {"text": list(item)}
        if len(item) == 2:
            return dict(zip(("text", "text_pair"), item, strict=True))
    raise ValueError(f"data has in row {number} {str(item)[:60]!r}; expected a text, a pair of texts or a dictionary.")


def _frame_rows(frame: Any) -> Iterator[DataRow]:
    names = [str(name) for name in frame.columns]
    number = 0
    for start in range(0, len(frame), _FRAME_ROWS):
        part = frame.iloc[start : start + _FRAME_ROWS].astype(object)
        for values in part.where(part.notna(), None).itertuples(index=False, name=None):
            number += 1
            yield DataRow(dict(zip(names, values, strict=True)), "data", number)


def _file_rows(path: str | Path, task: Task) -> Iterator[DataRow]:
    if str(path) == STDIN:
        lines = open_text(path, task.encoding)
        first = next((line for line in lines if line.strip()), "")
        lines = chain([first], lines)
        if first.lstrip().startswith("{"):
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    value = parse_json("standard input", number, line)
                    if not isinstance(value, dict):
                        raise ValueError(f"standard input, line {number}: {line[:40]!r}; expected a JSON object.")
                    yield DataRow(value, "standard input", number)
            return
        yield from _text_rows(lines, "standard input")
    elif is_table(path):
        rows = stream_rows(path, task.file_columns, task.encoding, task.skip_broken_rows)
        yield from (DataRow(row, str(path), number) for number, row in enumerate(rows, start=1))
    elif task.reads_conll and content_suffix(path) != ".txt":
        rows = iter(read_conll(path, task.encoding))
        yield from (DataRow(row, str(path), number) for number, row in enumerate(rows, start=1))
    else:
        yield from _text_rows(open_text(path, task.encoding), str(path))


def _text_rows(lines: Iterable[str], source: str) -> Iterator[DataRow]:
    """A text a line, the sentences of a pair parted as in `features`; empty lines are left out."""
    empty = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            empty += 1
            continue
        texts = dict(zip(("text", "text_pair"), line.rsplit(PAIR_SEPARATOR, 1), strict=False))
        yield DataRow({"line": number, **texts}, source, number)
    if empty:
        logger.warning("%s has %d empty lines; nothing is predicted for them.", source, empty)


def task_for_columns(task: Task, row: DataRow, given: Sequence[str]) -> Task:
    """The task with columns that the data has: those that it knows, or else those with a usual name.

    Args:
        task: The task.
        row: The first row of the data.
        given: The settings that the user has named; they are not changed.

    Raises:
        ValueError: If it cannot be told which column holds the text.
    """
    names = set(row.values)
    pair_name = getattr(task, "text_pair_column", None)
    knows_pair = "text_pair_column" in task.options and pair_name is not None
    if "text_column" in given or (task.text_column in names and (not knows_pair or pair_name in names)):
        is_pair = "text_pair_column" in task.options and not knows_pair and not given
        if is_pair and task.text_column == "text" and "text_pair" in names:
            return replace(task, text_pair_column="text_pair")  # type: ignore[call-arg]
        return task
    may_be_pair = "text_pair_column" in task.options and (knows_pair or task.text_column == "text")
    pairs = [pair for pair in _PAIRS if names.issuperset(pair)] if may_be_pair else []
    if pairs and "choice_columns" not in task.options:
        found: dict[str, str] = dict(zip(("text_column", "text_pair_column"), pairs[0], strict=True))
    else:
        singles = [name for name in _TEXTS if name in names]
        others = [name for name in row.values if name != "line"]
        singles += others if len(others) == 1 else []
        if not singles or knows_pair:
            needed = "--text_column and --text_pair_column" if knows_pair else "--text_column"
            known = " and ".join(map(repr, filter(None, (task.text_column, pair_name))))
            there = ", ".join(map(repr, islice(row.values, 12)))
            raise ValueError(
                f"{row.source} has no column {known}, which the model reads; its columns are {there}: name what it is "
                f"to read by {needed}."
            )
        found = {"text_column": singles[0]}
    if row.values.keys() - {"line", "text", "text_pair"}:
        logger.info("Texts are read from %s.", " and ".join(map(repr, found.values())))
    return replace(task, **found)  # type: ignore[arg-type]
