"""Task data before any task reads it: rows, from files, the Hub or memory, with source and number; labels."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedConfig

from ..files.conll import split_words
from ..files.source import FileSource, Source, sources_of
from ..files.tables import Reading, names_in, value_at
from ..files.text import LINE_BREAKS, PAIR_SEPARATOR

_SHARE_AGAIN = 0.8  # of the parts of joined labels that occur in several
_MAX_NAMES, _LONGEST_NAME = 12, 40  # columns in messages, and characters of a name


@dataclass(frozen=True)
class DataRow:
    values: dict[str, Any]  # by column; missing ones, such as NaN in tables, are None
    source: str  # the file or data set, for messages
    number: int  # of the row in it, from 1

    def __post_init__(self) -> None:
        """Replace NaN by None, and reject lone surrogates, which no file can hold."""
        # Only NaN differs from itself.
        if missing := [name for name, v in self.values.items() if isinstance(v, (float, np.floating)) and v != v]:
            object.__setattr__(self, "values", self.values | dict.fromkeys(missing))
        for name, value in self.values.items():
            if half := _lone_surrogate(value):
                raise self.invalid(f"half of a character pair, \\u{ord(half):x}, as {name}; expected Unicode")

    def __contains__(self, name: str) -> bool:
        """Whether there is such a column, see `value_at`."""
        with suppress(KeyError):
            value_at(self.values, name)
            return True
        return False

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a column, or the default if there is no such column."""
        return value_at(self.values, name) if name in self else default

    def has(self, name: str) -> bool:
        """Whether the column exists and is not blank."""
        value = self.get(name)
        return bool(value.strip()) if isinstance(value, str) else value not in (None, [], ())

    def value(self, name: str) -> Any:
        """The value of a column; if there is no such column, the message lists those that exist."""
        if name not in self:
            raise ValueError(
                f"{self.source} has no column {name!r} in row {self.number}; its columns are {self._columns()}."
            )
        return value_at(self.values, name)

    def text(self, name: str, may_be_empty: bool = False) -> str:
        """The text of a column, which is not empty unless `may_be_empty`."""
        value = self.value(name)
        if isinstance(value, (list, dict, bytes)):
            raise self.invalid(f"{str(value)[:40]!r} as {name}; expected a text")
        text = "" if value is None else str(value)
        if not (text.strip() or may_be_empty):
            raise self.invalid(f"an empty {name}; expected a text, or pass --skip_empty")
        return text

    def finite_number(self, name: str) -> float:
        value = self.value(name)
        with suppress(TypeError, ValueError, OverflowError):
            if math.isfinite(number := float(value)):
                return number
        raise self.invalid(f"{str(value)[:40]!r} as {name}; expected a number")

    def words(self, name: str) -> list[str]:
        """The words of a column: a list, or a text with spaces between words."""
        self.refuse_written_list(name)
        value = self.value(name)
        words = split_words(value) if isinstance(value, str) else value
        if not isinstance(words, (list, tuple)) or not words or any(word is None for word in words):
            raise self.invalid(f"{str(value)[:40]!r} as {name}; expected a list of words")
        return [in_one_line(str(word)) for word in words]

    def refuse_written_list(self, name: str) -> None:
        """Reject a Python or JSON list in a text column: its brackets and quotes would be read as words."""
        value = self.value(name)
        if isinstance(value, str) and _WRITTEN_LIST.fullmatch(value.strip()):
            raise self.invalid(
                f"{value[:40]!r} as {name}; expected a list (.jsonl, .parquet), or text without [ and ]"
            )

    def lacks(self, columns: Mapping[str, str]) -> ValueError:
        """An error with the columns of the data; `columns` maps each missing one to the setting that names it."""
        missing = _enumerated(list(map(repr, columns)))
        settings = _enumerated([f"{setting}='NAME'" for setting in dict.fromkeys(columns.values())])
        found = f"has no column{'s' * (len(columns) > 1)} {missing}; its columns are {self._columns()}"
        return ValueError(f"{self.source} {found}; choose which to read with {settings}.")

    def _columns(self) -> str:
        names = names_in(self.values)
        shown = [repr(name[:_LONGEST_NAME]) for name in names[:_MAX_NAMES]]
        return ", ".join(shown) + (", ..." if len(names) > _MAX_NAMES else "")

    def invalid(self, what: str) -> ValueError:
        """An error that says where it was found: `what` follows "<source>, row <number>: "."""
        return ValueError(f"{self.source}, row {self.number}: {what}.")


def with_decimal_points(rows: Sequence[DataRow], column: str) -> Sequence[DataRow]:
    """The rows, with decimal points in a column that has decimal commas; what may be something else is an error."""
    texts = [(row, value) for row in rows if isinstance(value := row.get(column), str)]
    commas = [(row, value) for row, value in texts if _DECIMAL_COMMA.fullmatch(value)]
    if not commas:
        return rows
    first, shown = commas[0]
    if all(_PERHAPS_THOUSANDS.fullmatch(value) for _, value in commas):
        raise first.invalid(f"{shown!r} as {column}, which may group thousands; expected numbers with a decimal point")
    for row, value in texts:
        if "." in value:
            rule = f"expected one decimal sign in the column, and row {first.number} has {shown!r}"
            raise row.invalid(f"{value[:40]!r} as {column}; {rule}")
    points = {row.number: value.replace(",", ".") for row, value in commas}
    return [
        replace(row, values=row.values | {column: points[row.number]}) if row.number in points else row for row in rows
    ]


def check_columns(rows: Sequence[DataRow], columns: Mapping[str, str]) -> None:
    """Reject rows, at least one, if none of them has a required column; `columns` is as in `DataRow.lacks`."""
    for row in rows:
        columns = {name: setting for name, setting in columns.items() if name not in row}
        if not columns:
            return
    raise rows[0].lacks(columns)


def _enumerated(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


_WRITTEN_LIST = re.compile(r"""\[(?:['"].*['"]|\d+(?:[\s,]+\d+)+|)\]""", re.DOTALL)
_DECIMAL_COMMA = re.compile(r"\s*[-+]?\d*,\d+\s*")
_PERHAPS_THOUSANDS = re.compile(r"\s*[-+]?[1-9]\d{0,2},\d{3}\s*")
_SURROGATE = re.compile("[\ud800-\udfff]")
_BREAKS = re.compile(rf"\s*[\t{LINE_BREAKS}]\s*")


def in_one_line(text: str) -> str:
    """A word or label without tabs and line breaks, which prediction files cannot contain."""
    return _BREAKS.sub(" ", text)


def _lone_surrogate(value: Any) -> str:
    """The first lone surrogate in a value, or ""."""
    if isinstance(value, str):
        match = None if value.isascii() else _SURROGATE.search(value)
        return match.group() if match else ""
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return next(filter(None, map(_lone_surrogate, parts)), "")


def rows_of(data: Any, reader: Any, new: bool = False) -> Iterator[DataRow]:
    """Stream the rows of a task's data: a file, a split on the Hub, or data in memory.

    Args:
        data: A `Source`, a path, "-" for standard input, a `pandas.DataFrame` or a `datasets.Dataset`; or an iterable
            or `torch.utils.data.Dataset` of dictionaries or of what the task reads: texts, pairs of texts, or lists of
            words for tagging; for labeled data, of dictionaries or tuples of one of these and its label. None is an
            empty text.
        reader: The task.
        new: Whether rows need no label, and a line of a file of another kind, which is plain text, is a row.
            Texts without columns then have the columns `text` and `text_pair`, otherwise those of the task.

    Raises:
        ValueError: If the data, or a row, is of another kind.
        OSError: If it cannot be read.
    """
    source = Source.of(data)
    is_file = isinstance(source, FileSource)
    read = "a text, a list of words" if reader.reads_conll else "one text (the task reads no pairs)"
    if reader.may_read_pairs:
        read = "a pair of texts" if reader.text_pair_column else "a text or a pair of texts"
    convert = _line if is_file else _texts if new else _labeled
    as_row = None if is_file and not new else partial(convert, reader)  # plain text has no labels
    reading = Reading(
        columns=reader.file_columns,
        encoding=reader.encoding,
        skip_broken_rows=reader.skip_broken_rows,
        literal_quotes=reader.is_published(source),
        conll=reader.reads_conll,
        names=(reader.text_column, reader.label_column),
        class_names=None if new else not reader.has_class_numbers,
        as_row=as_row,
        expected=f"{read if new else f'a tuple of {read} and its label'} or a dictionary",
    )
    name = str(source)
    for number, row in enumerate(source.rows(reading), start=source.first_row):
        yield DataRow(row, name, number)


def _line(reader: Any, line: str) -> dict[str, Any]:
    """The columns of a line of text: a pair, separated as in `features`, if the task reads pairs."""
    parts = line.rsplit(PAIR_SEPARATOR, 1) if reader.may_read_pairs else [line]
    return dict(zip(("text", "text_pair"), parts, strict=False))


def _texts(reader: Any, item: Any) -> dict[str, Any] | None:
    """The columns of a text, a pair of texts, or words, whichever the task reads; None for anything else."""
    if item is None or isinstance(item, str):
        return {"text": item}
    if not isinstance(item, (list, tuple)) or not item:
        return None
    if reader.reads_conll:
        are_words = all(
            isinstance(word, str) and len(split_words(word)) < 2 for word in item
        )  # not a text and its label
        return {"text": list(item)} if are_words else None
    is_pair = len(item) == 2 and all(part is None or isinstance(part, str) for part in item)
    return dict(zip(("text", "text_pair"), item, strict=True)) if is_pair and reader.may_read_pairs else None


def _labeled(reader: Any, item: Any) -> dict[str, Any] | None:
    """The same with the task's column names, for an item alone or in a tuple with its label."""
    has_label = isinstance(item, tuple) and len(item) == 2
    texts = _texts(reader, item[0] if has_label else item)
    if texts is None:
        return None
    columns = {"text": reader.text_column, "text_pair": reader.text_pair_column or "text_pair"}
    label = {reader.label_column: item[1]} if has_label else {}
    return {columns[column]: text for column, text in texts.items()} | label


def new_name(name: str, others: Collection[str]) -> str:
    """The name of a predicted column; if it exists in the data, with the prefix `predicted_`."""
    while name in others:
        name = f"predicted_{name}"
    return name


def read_prediction_rows(path: str | Path, count: int) -> list[DataRow]:
    """Read `count` predictions in the order of the examples: by the column `index`, from 0, else in file order."""
    rows = [DataRow(row, str(path), number) for number, row in enumerate(FileSource(path).rows(), start=1)]
    if len(rows) != count:
        raise ValueError(f"{path} has {len(rows)} predictions; expected {count}, one for each example.")
    if "index" not in rows[0]:
        return rows
    places = {str(place): place for place in range(count)}
    found: dict[int, DataRow] = {}
    for row in rows:
        index = str(row.value("index")).strip()
        place = places.get(index)
        if place is None or place in found:
            again = "" if place is None else " a second time"
            raise row.invalid(f"{index[:40]!r} as index{again}; expected 0 to {count - 1}, each once")
        found[place] = row
    return [found[place] for place in range(count)]


def source_of(data: Any, name: str) -> Any:
    """The data of an argument for a single data set, see `sources_of`; None if there is none."""
    sources = sources_of(data, name, in_parts=False)
    if len(sources) > 1:
        raise ValueError(f"{name} is {', '.join(map(str, sources))[:160]}; expected one file.")
    return sources[0] if sources else None


LABEL_ARGUMENTS = ("labels", "start_positions", "end_positions")
"""The arguments of models that are labels."""

TRUTH = {"True": "1", "False": "0", "true": "1", "false": "0"}  # as text tables write 1 and 0
_WITHOUT_NAME = re.compile(r"^LABEL_(\d+)$")  # transformers' names for unnamed classes
_WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0+$")  # as tables write integers in a column with missing values


@dataclass(frozen=True)
class Labels:
    """The classes of a task, in the order of their ids."""

    names: tuple[str, ...]

    @classmethod
    def from_data(cls, values: Sequence[str], source: Source | str) -> Labels:
        """Find the classes of training data: numbers in numerical order, names in alphabetical order."""
        names = sorted(set(values), key=_natural_order)
        if len(names) < 2:
            raise ValueError(f"{source} has only one class ({', '.join(map(quoted, names))}); expected at least two.")
        return cls(tuple(names))

    @classmethod
    def from_config(cls, config: PreTrainedConfig) -> Labels:
        """The classes of a fine-tuned model; unnamed ones (LABEL_0) are named by their number."""
        names = [str(config.id2label[number]) for number in range(config.num_labels)]
        return cls(tuple(_WITHOUT_NAME.sub(r"\1", name) for name in names))

    def ids(self, values: Sequence[str], source: Source | str) -> list[int]:
        """Ids of labels, given by name; by id if names are not numbers; true and false if the classes are 0 and 1."""
        index = {name: number for number, name in enumerate(self.names)}
        by_number = {str(number): number for number in range(len(self.names))}
        unknown = sorted({value for value in values if value not in index}, key=_natural_order)
        if unknown and not index.keys() & by_number.keys() and set(values) <= by_number.keys():
            return [by_number[value] for value in values]
        if unknown and set(self.names) == {"0", "1"} and set(values) <= TRUTH.keys():
            return [index[TRUTH[value]] for value in values]
        if unknown:
            known = ", ".join(map(quoted, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
            sign = joining_sign([*self.names, *unknown])
            several = f" Are these several labels, joined by {sign!r} (--task multilabel)?" if sign else ""
            raise ValueError(f"{source} has the label {quoted(unknown[0])}; expected one of {known}.{several}")
        return [index[value] for value in values]


def joining_sign(names: Iterable[str]) -> str:
    """The sign that seems to join several labels in names of classes, of which most parts occur again; "" if none."""
    for sign in ";|,/+&":
        parts = [{part.strip() for part in name.split(sign)} for name in names]
        counts = Counter(part for each in parts for part in each)
        joined = set().union(*(each for each in parts if len(each) > 1))
        again = sum(counts[part] > 1 for part in joined)
        is_decimal = sign == "," and all(part.isdigit() for part in joined)
        if len(joined) > 1 and "" not in joined and not is_decimal and again >= _SHARE_AGAIN * len(joined):
            return sign
    return ""


def listed(names: Sequence[str]) -> str:
    return ", ".join(map(_short, names[:5])) + (", ..." if len(names) > 5 else "")


def quoted(name: str) -> str:
    """A class name for messages, shortened: by mistake it may be a page of text."""
    return repr(_short(name))


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 3]}..."


def _natural_order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)  # "nan" cannot be sorted among numbers


def label_name(value: Any) -> str:
    """A label as text in one line; equal numbers give equal text (1, 1.0, "1", "1.0", "LABEL_1")."""
    text = str(int(value)) if isinstance(value, bool) else in_one_line(str(value).strip())
    return _WHOLE_NUMBER.sub(r"\1", _WITHOUT_NAME.sub(r"\1", text))
