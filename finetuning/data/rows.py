"""Reading task data from files, the Hub or memory, as rows that know their source and number."""

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from ...files import is_table, read_conll, read_rows
from ...files.source import GivenData
from ...files.text import LINE_BREAKS

_MOST_NAMES, _LONGEST_NAME = 12, 40  # columns in messages; without a header they may be long texts


@dataclass(frozen=True)
class DataRow:
    values: dict[str, Any]  # by column; missing ones, such as NaN in tables, are None
    source: str  # the file or data set, for messages
    number: int  # of the row in it, from 1

    def __post_init__(self) -> None:
        """Replace NaN by None, and reject lone surrogates, which no file can hold."""
        if missing := [name for name, value in self.values.items() if _is_nan(value)]:
            object.__setattr__(self, "values", self.values | dict.fromkeys(missing))
        for name, value in self.values.items():
            if half := _lone_surrogate(value):
                raise self.mistake(f"half of a character pair, \\u{ord(half):x}, as {name}; expected Unicode")

    def has(self, name: str) -> bool:
        """Whether the column exists and is not empty."""
        return self.values.get(name) not in (None, "")

    def value(self, name: str) -> Any:
        """The value of a column; if there is no such column, the message lists those that exist."""
        if name not in self.values:
            raise ValueError(
                f"{self.source} has no column {name!r} in row {self.number}; its columns are {self._columns()}."
            )
        return self.values[name]

    def text(self, name: str, may_be_empty: bool = False) -> str:
        """The text of a column, which is not empty unless `may_be_empty`."""
        value = self.value(name)
        if isinstance(value, (list, dict, bytes)):
            raise self.mistake(f"{str(value)[:40]!r} as {name}; expected a text")
        text = "" if value is None else str(value)
        if not (text.strip() or may_be_empty):
            raise self.mistake(f"an empty {name}; expected a text")
        return text

    def finite_number(self, name: str) -> float:
        value = self.value(name)
        with suppress(TypeError, ValueError):
            if math.isfinite(number := float(value)):
                return number
        raise self.mistake(f"{str(value)[:40]!r} as {name}; expected a number")

    def words(self, name: str) -> list[str]:
        """The words of a column: a list, or a text with spaces between words."""
        self.refuse_written_list(name)
        value = self.value(name)
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, (list, tuple)) or not words or any(word is None for word in words):
            raise self.mistake(f"{str(value)[:40]!r} as {name}; expected a list of words")
        return [in_one_line(str(word)) for word in words]

    def refuse_written_list(self, name: str) -> None:
        """Reject a Python or JSON list in a text column: its brackets and quotes would be read as words."""
        value = self.value(name)
        if isinstance(value, str) and _WRITTEN_LIST.fullmatch(value.strip()):
            raise self.mistake(
                f"{value[:40]!r} as {name}; expected a list (.jsonl, .parquet), or text without [ and ]"
            )

    def lacks(self, columns: Mapping[str, str]) -> ValueError:
        """An error with the columns of the data; `columns` maps each missing one to the setting that names it."""
        missing = _enumerated(list(map(repr, columns)))
        settings = _enumerated([f"{setting}='NAME'" for setting in dict.fromkeys(columns.values())])
        found = f"{self.source} has no column {missing}; its columns are {self._columns()}"
        return ValueError(f"{found}; choose which to read with {settings}.")

    def _columns(self) -> str:
        shown = [repr(str(name)[:_LONGEST_NAME]) for name in islice(self.values, _MOST_NAMES)]
        return ", ".join(shown) + (", ..." if len(self.values) > _MOST_NAMES else "")

    def mistake(self, what: str) -> ValueError:
        """An error that says where it was found: `what` follows "<source>, row <number>: "."""
        return ValueError(f"{self.source}, row {self.number}: {what}.")


def check_columns(rows: Sequence[DataRow], columns: Mapping[str, str]) -> None:
    """Reject rows, at least one, if none of them has a required column; `columns` is as in `DataRow.lacks`."""
    for row in rows:
        columns = {name: setting for name, setting in columns.items() if name not in row.values}
        if not columns:
            return
    raise rows[0].lacks(columns)


def _enumerated(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


_WRITTEN_LIST = re.compile(r"""\[(?:['"].*['"]|\d+(?:[\s,]+\d+)+|)\]""", re.DOTALL)
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


def _is_nan(value: Any) -> bool:
    return isinstance(value, (float, np.floating)) and bool(value != value)


@dataclass(frozen=True)
class HubSplit:
    """A split of a data set on the Hub (or of a folder that `datasets` reads)."""

    name: str
    config: str | None
    split: str

    def __str__(self) -> str:
        config = f" ({self.config})" if self.config else ""
        return f"{self.name}{config}, split {self.split}"


DataSource = str | Path | HubSplit | GivenData


def read_data(
    source: str | Path | HubSplit,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    skip_broken_rows: bool = False,
    conll: bool = False,  # whether files without the ending of a table are read as CoNLL columns
    class_names: bool = True,  # whether classes of a Hub data set are given by name or by number
    literal_quotes: bool = False,
) -> list[DataRow]:
    """Read the rows of a file or a split, at least one; other settings are as in `stream_rows`."""
    if isinstance(source, HubSplit):
        data = _load(source.name, source.config)[source.split]
        values: Iterator[dict[str, Any]] | list[dict[str, Any]] = with_class_names(data, data.features, class_names)
    elif conll and not is_table(source):
        values = read_conll(source, encoding)
    else:
        values = read_rows(source, columns, encoding, skip_broken_rows, literal_quotes)
    rows = [DataRow(row, str(source), number) for number, row in enumerate(values, start=1)]
    if not rows:
        raise ValueError(f"{source} holds no rows.")
    return rows


def new_name(name: str, others: Collection[str]) -> str:
    """The name of a predicted column; if it exists in the data, with the prefix `predicted_`."""
    while name in others:
        name = f"predicted_{name}"
    return name


def prediction_columns(classes: Sequence[str]) -> list[str]:
    """The columns of a prediction table and their names in the file: `index`, `prediction`, and each class."""
    own = ["index", "prediction"]
    return own + [new_name(name, {*own, *classes}) if name in own else name for name in classes]


def read_prediction_rows(path: str | Path, count: int) -> list[DataRow]:
    """Read `count` predictions in the order of the examples: by the column `index`, from 0, else in file order."""
    rows = read_data(path)
    if len(rows) != count:
        raise ValueError(f"{path} has {len(rows)} predictions; expected {count}, one for each example.")
    if "index" not in rows[0].values:
        return rows
    places = {str(place): place for place in range(count)}
    found: dict[int, DataRow] = {}
    for row in rows:
        index = str(row.value("index")).strip()
        place = places.get(index)
        if place is None or place in found:
            again = "" if place is None else " a second time"
            raise row.mistake(f"{index[:40]!r} as index{again}; expected 0 to {count - 1}, each once")
        found[place] = row
    return [found[place] for place in range(count)]


def hub_splits(name: str, config: str | None) -> list[HubSplit]:
    return [HubSplit(name, config, split) for split in _load(name, config)]


def _load(name: str, config: str | None) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise ImportError(
            f"The data set {name} needs the package datasets: pip install mybert[train] ({error})."
        ) from error

    try:
        return datasets.load_dataset(name, config)
    except (OSError, ValueError, RuntimeError) as error:  # no network, no such data set, no such configuration
        what = " ".join(str(error).split())
        raise OSError(
            f"The data set {name!r} could not be loaded ({what[:160]}); check its name and the network, or give files "
            "with --train_file and --validation_file."
        ) from error


def with_class_names(
    rows: Iterable[dict[str, Any]], features: Mapping[str, Any] | None, class_names: bool = True
) -> Iterator[dict[str, Any]]:
    """Rows of a data set with texts (the classes' names or their numbers) for classes; class -1 means no label."""
    naming = {
        name: (_naming(feature, class_names), _naming(getattr(feature, "feature", None), class_names))
        for name, feature in (features or {}).items()
        if _naming(feature) or _naming(getattr(feature, "feature", None))
    }
    for row in rows:
        for name, (name_one, name_each) in naming.items():
            value = row[name]
            if value is None:
                continue
            if name_one:
                row[name] = None if value < 0 else name_one(value)
            else:
                row[name] = [None if number is None or number < 0 else name_each(number) for number in value]
        yield row


def _naming(feature: Any, class_names: bool = True) -> Any:
    """A function that converts classes of a `datasets.ClassLabel` to text; None for other columns."""
    name_of = getattr(feature, "int2str", None)
    return name_of if class_names or name_of is None else str
