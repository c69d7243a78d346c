"""Task data: rows, from files, the Hub or memory, with source and number; labels; examples and what networks read."""

from __future__ import annotations

import logging
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import numpy as np
from torch.utils.data import Dataset
from transformers import PreTrainedConfig

from ..files.conll import split_words
from ..files.errors import SettingError, abbreviated, worded
from ..files.source import FileSource, Source, unless_missing
from ..files.tables import ALIKE_COLUMNS, LONGEST_NAME, Reading, lacking_columns, names_in, shown_columns, value_at
from ..files.text import LINE_BREAKS, PAIR_SEPARATOR

logger = logging.getLogger(__name__)

COLLECTIONS = (list, tuple, set, frozenset, Mapping, bytes)  # values that are no text, word or label
# What programs write in place of a missing value; of texts, NA and none are also names.
MISSING = frozenset(("nan", "NaN", "NAN", "None", "null", "NULL", "<NA>", "NaT", "#N/A", "\\N"))
NO_NUMBER = MISSING | {"NA", "N/A", "n/a", "na", "none", "-"}
_SHARE_AGAIN = 0.8  # of the parts of joined labels that occur in several


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

    def has_number(self, name: str) -> bool:
        """Whether the column is not blank, and does not hold what programs write for a missing number."""
        return self.has(name) and str(self.get(name)).strip() not in NO_NUMBER

    def value(self, name: str) -> Any:
        """The value of a column; if there is no such column, the message lists those that exist."""
        with suppress(KeyError):
            return value_at(self.values, name)
        template = "{} has no column {!r} in row {}; its columns are {}."
        values = (self.source, name, self.number, shown_columns(self.values))
        raise ValueError(worded(template, *values, unknown=[name], known=names_in(self.values), alike=ALIKE_COLUMNS))

    def text(self, name: str, may_be_empty: bool = False) -> str:
        """The text of a column, which is not empty unless `may_be_empty`."""
        value = self.value(name)
        if isinstance(value, COLLECTIONS):
            raise self.invalid(f"{str(value)[:40]!r} as {name}; expected a text")
        text = "" if value is None else str(value)
        if not (text.strip() or may_be_empty):
            raise self.invalid(worded("an empty {}; expected a text[, or pass {skip_empty=True}]", name))
        return text

    def finite_number(self, name: str) -> float:
        value = self.value(name)
        with suppress(TypeError, ValueError, OverflowError):
            if "_" not in str(value) and math.isfinite(number := float(value)):
                return number
        advice = "[, or pass {skip_empty=True}]" if str(value).strip() in NO_NUMBER else ""
        raise self.invalid(worded("{!r} as {}; expected a number" + advice, str(value)[:40], name))

    def words(self, name: str, kind: CellKind = "words") -> list[str]:
        """The words (or tags) of a column: a list, or a text with spaces between words."""
        self.refuse_written_list(name, kind)
        value = self.value(name)
        words = split_words(value) if isinstance(value, str) else value
        is_list = isinstance(words, (list, tuple)) and len(words) > 0
        if not is_list or any(word is None or isinstance(word, COLLECTIONS) for word in words):
            raise self.invalid(f"{str(value)[:40]!r} as {name}; expected a list of {kind}")
        return [in_one_line(str(word)) for word in words]

    def refuse_written_list(self, name: str, kind: CellKind) -> None:
        """Reject the text of a list, see `is_written_list`: its brackets and quotes would be read as names."""
        value = self.value(name)
        if isinstance(value, str) and is_written_list(value, kind):
            expected: str = "a list (.jsonl, .parquet), or text without [ and ] or other brackets"
            if kind == "label":
                expected = worded("one label (several: {task='multilabel'} with lists, as in .jsonl and .parquet)")
            raise self.invalid(worded("{!r} as {}; expected {}", value[:40], name, expected))

    def lacks(self, columns: Mapping[str, str]) -> ValueError:
        """An error with the columns of the data; `columns` maps each missing one to the setting that names it."""
        return ValueError(lacking_columns(self.source, self.values, columns))

    def invalid(self, what: str) -> ValueError:
        """An error that says where it was found: `what` follows "<source>, row <number>: "."""
        return ValueError(worded("{}, row {}: {}.", self.source, self.number, what))


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


CellKind = Literal["words", "tags", "label", "labels"]
"""What a column holds: words or tags with spaces between them, one label, or several with a separator."""

_QUOTED = r"""(?:'[^']*'|"[^"]*")"""
# As words, text in brackets is a list only in the form that programs write: a sentence may begin and end with them.
_LIST_OF_WORDS = re.compile(
    rf"""(?:\w+\()?\[(?:['"].*['"]|\d+(?:[\s,]+\d+)+|)\](?:,\s*dtype=\w+)?\)?"""
    rf"""|\((?:{_QUOTED},\s*)+{_QUOTED}?\)|\{{{_QUOTED}(?:,\s*{_QUOTED})*\}}""",
    re.DOTALL,
)
# Text in brackets, perhaps within a call such as array([...], dtype=object).
_BRACKETS = re.compile(r"(?:\w+\(\s*)?(\[.*\]|\(.*\)|\{.*\})(?:,\s*\w+=[^()]*)?\)?|\w+\(()\)", re.DOTALL)
_VALUE = r"(?:[-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:e[-+]?\d+)?|true|false|null|none|nan)"
_VALUES = re.compile(rf"{_VALUE}(?:[\s,;]+{_VALUE})*[\s,]*", re.IGNORECASE)


def is_written_list(text: str, kind: CellKind) -> bool:
    """Whether a text is a list, tuple, set, dictionary or array as Python, JSON, NumPy or a database writes it."""
    text = text.strip()
    if kind == "words":
        return _LIST_OF_WORDS.fullmatch(text) is not None
    if not (match := _BRACKETS.fullmatch(text)):
        return False
    if match[1] is None:
        return text in ("set()", "frozenset()")
    is_round, inside = match[1][0] == "(", match[1][1:-1].strip()
    if not inside:
        return True
    if inside[0] in "'\"[{(" and (inside.rstrip(", ")[-1] in "'\"]})" or match[1][0] == "{"):
        return inside[0] in "'\"" or not is_round
    if _VALUES.fullmatch(inside):
        return not is_round or not re.fullmatch(_VALUE, inside, re.IGNORECASE)
    if any(sign in inside for sign in "[](){}"):
        return False
    # Names without quotes, [joy, fear]: of one alone, [joy], only a column of several makes a list.
    has_several = "," in inside or ";" in inside
    return kind == "labels" and has_several if is_round else has_several or kind != "label"


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
    if may_read_pairs(reader):
        read = "a pair of texts" if reader.text_pair_column else "a text or a pair of texts"
    convert = _line if is_file else _texts if new else _labeled
    as_row = None if is_file and not new else partial(convert, reader)  # plain text has no labels
    reading = Reading(
        encoding=reader.encoding,
        literal_quotes=_is_published(reader, source),
        conll=reader.reads_conll,
        names=(reader.text_column, reader.label_column),
        class_names=None if new else not has_class_numbers(reader),
        as_row=as_row,
        **reader.reading,
        expected=f"{read if new else f'a tuple of {read} and its label'} or a dictionary",
    )
    name = str(source)
    for number, row in enumerate(source.rows(reading), start=source.first_row):
        yield DataRow(row, name, number)


def text_columns(task: Any) -> list[str]:
    """The columns of a task's texts: one, or two for pairs."""
    return [task.text_column, *([task.text_pair_column] if task.text_pair_column else [])]


def may_read_pairs(task: Any) -> bool:
    """Whether a task reads pairs of texts, or reads them if the data has them: no model says which."""
    by_data = not task.is_recorded and task.text_column == "text" and "text_pair_column" in task.options
    return task.text_pair_column is not None or by_data


def has_class_numbers(task: Any) -> bool:
    """Whether classes are numbers in the data files; class names on the Hub are then not used."""
    return bool(task.classes) and task.classes == Labels.numbered(len(task.classes)).names


def _is_published(task: Any, source: Source) -> bool:
    """Whether a file has the name of one of the benchmark's; quotes in those are part of the text."""
    names = [f"{pattern}{ending}" for group in task.files.values() for pattern in group for ending in ("", ".gz")]
    return isinstance(source, FileSource) and any(map(Path(source.path).match, names))


_DECISIONS = ("accept", "reject", "ignore")  # of an annotator, in the column `answer` of Prodigy's files


def accepted_rows(rows: Sequence[DataRow], columns: Collection[str]) -> Sequence[DataRow]:
    """The rows without those that an annotator rejected or left open in Prodigy; `columns` are those of the task."""
    answers = [row.values.get("answer") for row in rows]
    if "answer" in columns or not all(answer in (None, "", *_DECISIONS) for answer in answers):
        return rows
    accepted = [row for row, answer in zip(rows, answers, strict=True) if answer not in _DECISIONS[1:]]
    if left_out := len(rows) - len(accepted):
        what = "have the answer reject or ignore, as annotated with Prodigy"
        if not accepted:
            raise ValueError(f"{rows[0].source}: all of {len(rows)} rows {what}; expected some with accept.")
        logger.warning("%s: %d of %d rows %s, and are left out.", rows[0].source, left_out, len(rows), what)
    return accepted


def _line(reader: Any, line: str) -> dict[str, Any]:
    """The columns of a line of text: a pair, separated as in `features`, if the task reads pairs."""
    parts = line.rsplit(PAIR_SEPARATOR, 1) if may_read_pairs(reader) else [line]
    return dict(zip(("text", "text_pair"), parts, strict=False))


def _texts(reader: Any, item: Any) -> dict[str, Any] | None:
    """The columns of a text, a pair of texts, or words, whichever the task reads; None for anything else."""
    item = unless_missing(item)
    if item is None or isinstance(item, str):
        return {"text": item}
    if not isinstance(item, (list, tuple)) or not item:
        return None
    if reader.reads_conll:
        are_words = all(
            isinstance(word, str) and len(split_words(word)) < 2 for word in item
        )  # not a text and its label
        return {"text": list(item)} if are_words else None
    parts = list(map(unless_missing, item))
    is_pair = len(parts) == 2 and all(part is None or isinstance(part, str) for part in parts)
    return dict(zip(("text", "text_pair"), parts, strict=True)) if is_pair and may_read_pairs(reader) else None


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


def read_prediction_rows(path: str | Path, given: Mapping[str, Sequence[Any]], text_column: str) -> list[DataRow]:
    """Read the predictions for examples, in their order: by the column `index`, from 0, else in file order.

    Of `given`, the values of the examples' columns, a column that the file repeats must be in the same order: the
    text, and what identifies rows, such as an id.
    """
    count = len(given[text_column])
    rows = [DataRow(row, str(path), number) for number, row in enumerate(FileSource(path).rows(), start=1)]
    if len(rows) != count:
        raise ValueError(f"{path} has {len(rows)} predictions; expected {count}, one for each example.")
    if "index" in rows[0]:
        ordered: dict[int, DataRow] = {}
        for row in rows:
            value = row.value("index")
            index = whole_number(value)
            if index is None or index not in range(count) or index in ordered:
                again = " a second time" if index in ordered else ""
                raise row.invalid(f"{str(value)[:40]!r} as index{again}; expected 0 to {count - 1}, each once")
            ordered[index] = row
        rows = [ordered[index] for index in range(count)]
    for column, values in given.items():
        if column not in rows[0]:
            continue
        repeated, expected = ([*map(one_line_text, each)] for each in ([row.get(column, "") for row in rows], values))
        places = set(expected)
        is_key = len(places) == count and places == set(repeated)
        for row, found, value in zip(rows, repeated, expected, strict=True):
            # Another tool may have changed texts.
            if found != value and found in places and (is_key or column == text_column):
                raise row.invalid(f"{found[:40]!r} as {column}; expected the data's order, and {value[:40]!r} here")
    return rows


LABEL_ARGUMENTS = ("labels", "start_positions", "end_positions")
"""The arguments of models that are labels."""

TRUTH = {  # what tables write for yes and no
    word: is_true
    for is_true, name in ((False, "false"), (True, "true"))
    for word in (f"{is_true:d}", name, name.title(), name.upper())
}
_WITHOUT_NAME = re.compile(r"^LABEL_(\d+)$")  # transformers' names for unnamed classes
_WHOLE_NUMBER = re.compile(r"^(-?\d+)\.0+$")  # as tables write integers in a column with missing values
_INTEGER = re.compile(r"-?\d{1,18}")
_DIGITS = re.compile(r"\d+")


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
        names = [_WITHOUT_NAME.sub(r"\1", str(config.id2label[number])) for number in range(config.num_labels)]
        if len(set(names)) < len(names):
            again = next(name for name in names if names.count(name) > 1)
            model = config.name_or_path or "the model"
            raise ValueError(f"{model} has {quoted(again)} for two classes (id2label); expected different names.")
        return cls(tuple(names))

    @classmethod
    def numbered(cls, count: int) -> Labels:
        """Unnamed classes, by their number."""
        return cls(tuple(map(str, range(count))))

    @property
    def numbers_are_ids(self) -> bool:
        """Whether a number in data can only be a class's id: no name is a number, or contains one that is an id.

        In data, true is 1, which is not the id of true in every model.
        """
        if any(map(_is_number, self.names)) or [name.casefold() for name in self.names] == ["true", "false"]:
            return False
        contained = {int(digits) for name in self.names for digits in _DIGITS.findall(name) if len(digits) < 10}
        return contained.isdisjoint(range(len(self.names)))

    def ids(self, values: Sequence[str], source: Source | str) -> list[int]:
        """Ids of labels: by name, or by id (see `numbers_are_ids`); true and false if the classes are 0 and 1."""
        alike = list(map(label_name, self.names))  # a model from elsewhere may have "1.0", or a tab
        counts = Counter(alike)
        index = {name: number for number, name in enumerate(alike) if counts[name] == 1}
        index |= {name: number for number, name in enumerate(self.names)}
        unknown = sorted({value for value in values if value not in index}, key=_natural_order)
        if not unknown:
            return [index[value] for value in values]
        by_number = {str(number): number for number in range(len(self.names))}
        if set(values) <= by_number.keys() and self.numbers_are_ids:
            return [by_number[value] for value in values]
        if set(self.names) == {"0", "1"} and set(values) <= TRUTH.keys():
            return [index[f"{TRUTH[value]:d}"] for value in values]
        known = ", ".join(map(quoted, self.names[:20])) + (", ..." if len(self.names) > 20 else "")
        sign = joining_sign([*self.names, *unknown])
        hint: str = ""
        if sign:
            hint = worded(" Are these several labels, joined by {!r} ({task='multilabel'})?", sign)
        elif all(map(_is_number, unknown)) and not (self.numbers_are_ids or all(map(_is_number, self.names))):
            hint = " A number could be a name or an id here; give the names."
        template = "{} has the label {}; expected one of {}.{}"
        raise SettingError.worded(template, source, quoted(unknown[0]), known, hint)

    def names_of(self, values: Iterable[str], source: Source | str) -> dict[str, str]:
        """The name of each label, which may be given by its id, see `ids`."""
        values = list(dict.fromkeys(values))
        names = {value: self.names[label] for value, label in zip(values, self.ids(values, source), strict=True)}
        if numbered := [f"{value} is {quoted(name)}" for value, name in names.items() if value != name]:
            logger.info("%s: its labels are read as classes: %s.", source, ", ".join(sorted(numbered)[:10]))
        return names


def joining_sign(names: Iterable[str]) -> str:
    """The sign that seems to join several labels in names of classes, of which most parts occur again; "" if none."""
    for sign in ";|,/+&#":
        parts = [{part.strip() for part in name.split(sign)} for name in names]
        counts = Counter(part for each in parts for part in each)
        joined = set().union(*(each for each in parts if len(each) > 1))
        again = sum(counts[part] > 1 for part in joined)
        is_decimal = sign == "," and all(part.isdigit() for part in joined)
        if len(joined) > 1 and "" not in joined and not is_decimal and again >= _SHARE_AGAIN * len(joined):
            return sign
    return ""


def listed(names: Sequence[str]) -> str:
    return ", ".join(abbreviated(name, LONGEST_NAME) for name in names[:5]) + (", ..." if len(names) > 5 else "")


def quoted(name: str) -> str:
    """A class name for messages, shortened: by mistake it may be a page of text."""
    return repr(abbreviated(name, LONGEST_NAME))


def _natural_order(name: str) -> tuple[int, float, str]:
    try:
        number = float(name)
    except ValueError:
        number = math.nan
    return (0, number, name) if math.isfinite(number) else (1, 0.0, name)  # "nan" cannot be sorted among numbers


def _is_number(name: str) -> bool:
    return _natural_order(name)[0] == 0


def one_line_text(value: Any) -> str:
    """A value as text in one line; equal numbers give equal text (1, 1.0, "1", "1.0", true)."""
    text = str(int(value)) if isinstance(value, bool) else in_one_line(str(value).strip())
    return _WHOLE_NUMBER.sub(r"\1", text)


def label_name(value: Any) -> str:
    """A label as text in one line, see `one_line_text`; "LABEL_1" is "1"."""
    return _WITHOUT_NAME.sub(r"\1", one_line_text(value))


def whole_number(value: Any) -> int | None:
    """The integer that a value is, in any form (24, 24.0, "24", "24.0"); None if it is none."""
    text = one_line_text(value)
    return int(text) if _INTEGER.fullmatch(text) else None


# Examples

WINDOW_WEIGHT = "window_weight"
"""Extra key of labeled data with windows: weight of a sequence in the loss; those of a text add up to 1."""


@dataclass(frozen=True, kw_only=True)
class TaskExample:
    """An example of a task's data.

    Each kind also has `texts` (a tuple), and `classes`, one for each of its labels; empty if there are no classes.
    """

    row: int = field(default=0, compare=False)  # its number in the data, from 1

    @property
    def numbers(self) -> Mapping[str, float]:
        """The numbers that are its label, by column; "" for the column of a single one."""
        return {}


E = TypeVar("E", bound=TaskExample)


@dataclass(frozen=True)
class TaskData(Dataset, Generic[E]):
    """The model inputs of a data set, with its examples."""

    examples: Sequence[E]
    # Values for each sequence by model argument. Some tasks make several sequences of an example, and may give them
    # weights (`WINDOW_WEIGHT`).
    inputs: Mapping[str, Sequence[Any]]
    source: Source
    # How sequences and tokens belong to examples; its format depends on the kind of task.
    layout: Any = None
    cut: int = 0  # truncated examples
    windowed: int = 0  # examples read in several windows
    warnings: Collection[str] = ()  # about what was made of the examples

    def __len__(self) -> int:
        return len(next(iter(self.inputs.values())))

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {name: values[index] for name, values in self.inputs.items()}


def sequences_of(ids: Sequence[Any]) -> list[Any]:
    """The sequences in a value of `TaskData.inputs`: itself, or those of several choices."""
    return list(ids) if len(ids) and isinstance(ids[0], (list, tuple)) else [ids]


def rounded(value: float) -> float:
    """Round a score for reports to six decimals, about the precision of float32."""
    return round(float(value), 6)


def seven_digits(value: float) -> float:
    """A predicted number without the digits that float32 does not have, whatever its unit."""
    return float(f"{value:.7g}")
