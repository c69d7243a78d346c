"""Task data as rows that know their source and number: from files, the Hub or memory."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

import numpy as np

from ...files import is_table, parse_json, read_conll, stream_rows
from ...files.source import GivenData, has_items, items_of
from ...files.text import LINE_BREAKS, STDIN, content_suffix, open_text

logger = logging.getLogger(__name__)

# between the sentences of a pair; the last occurrence in a line counts: Google's extract_features.py
PAIR_SEPARATOR = " ||| "
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


def rows_of(source: Any, reader: Any, new: bool = False) -> Iterator[DataRow]:
    """Yield the rows of data, one after the other.

    Args:
        source: A file ("-" is standard input), a split, or data in memory: a `pandas.DataFrame` or a
            `datasets.Dataset`; or an iterable or `torch.utils.data.Dataset` of dictionaries or of what the task reads:
            texts, pairs of texts, or lists of words for tagging; unless it is new, of dictionaries or tuples of one of
            these and its label. None is an empty text.
        reader: The task.
        new: Whether it is data to predict, which is not prepared for the task. Texts without columns then have the
            columns `text` and `text_pair`, and lines of a file `line`.

    Raises:
        ValueError: If the data, or an item, is of another kind.
    """
    name = str(source)
    if isinstance(source, HubSplit):
        data = _load(source.name, source.config)[source.split]
        rows: Iterable[Any] = enumerate(with_class_names(data, data.features, not reader.has_class_numbers), start=1)
    elif isinstance(source, (str, Path)):
        name = "standard input" if new and name == STDIN else name
        rows = _file_rows(source, name, reader, new)
    else:
        data, name = (source.data, name) if isinstance(source, GivenData) else (source, "data")
        items = _items(data, name, reader, new)
        if not new:
            items = with_class_names(items, getattr(data, "features", None), not reader.has_class_numbers)
        rows = enumerate(items, start=1)
    for number, values in rows:
        yield DataRow(values, name, number)


def _file_rows(path: str | Path, name: str, reader: Any, new: bool) -> Iterator[tuple[int, dict[str, Any]]]:
    if name == "standard input":
        lines = open_text(path, reader.encoding)
        head: list[str] = []  # up to the first non-empty line
        while (not head or not head[-1].strip()) and (line := next(lines, None)) is not None:
            head.append(line)
        lines = chain(head, lines)
        if not head or not head[-1].lstrip().startswith("{"):
            yield from _text_rows(lines, name, reader)
            return
        for number, line in enumerate(lines, start=1):
            if line.strip():
                value = parse_json(name, number, line)
                if not isinstance(value, dict):
                    raise ValueError(f"{name}, line {number}: {line[:40]!r}; expected a JSON object.")
                yield number, value
    elif is_table(path) or not (new or reader.reads_conll):
        literal_quotes = reader.is_published(path)
        rows = stream_rows(path, reader.file_columns, reader.encoding, reader.skip_broken_rows, literal_quotes)
        yield from enumerate(rows, start=1)
    elif reader.reads_conll and not (new and content_suffix(path) == ".txt"):
        yield from enumerate(read_conll(path, reader.encoding), start=1)
    else:
        yield from _text_rows(open_text(path, reader.encoding), name, reader)


def _text_rows(lines: Iterable[str], name: str, reader: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    """One text per line, or a pair separated as in `features` if the task reads pairs; empty lines are left out."""
    empty = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            empty += 1
            continue
        parts = line.rsplit(PAIR_SEPARATOR, 1) if reader.may_read_pairs else [line]
        yield number, {"line": number, **dict(zip(("text", "text_pair"), parts, strict=False))}
    if empty:
        logger.warning("%s: %s empty lines are left out.", name, f"{empty:,}")


def _items(data: Any, name: str, reader: Any, new: bool) -> Iterator[dict[str, Any]]:
    """The rows of data in memory; those that are not new, without columns, get the task's columns."""
    if isinstance(data, Mapping) or not has_items(data):
        found = " ".join(repr(data).split())
        if isinstance(data, Mapping):
            found = f"a {type(data).__name__} of {', '.join(map(repr, data))}"
        raise ValueError(
            f"{name} is {found[:160]}; expected a file, a table (DataFrame, Dataset) or an iterable of rows."
        )
    for number, item in enumerate(items_of(data), start=1):
        if isinstance(item, Mapping):
            values: dict[str, Any] | None = dict(item)
        else:
            values = _texts(item, reader) if new else _labelled(item, reader)
        if values is None:
            read = "a text, a list of words" if reader.reads_conll else "one text (the task reads no pairs)"
            if reader.may_read_pairs:
                read = "a pair of texts" if reader.text_pair_column else "a text or a pair of texts"
            expected = read if new else f"a tuple of {read} and its label"
            raise ValueError(f"{name}, row {number}: {str(item)[:60]!r}; expected {expected} or a dictionary.")
        yield values


def _texts(item: Any, reader: Any) -> dict[str, Any] | None:
    """The columns of a text, a pair of texts, or words, whichever the task reads; None for anything else."""
    if item is None or isinstance(item, str):
        return {"text": item}
    if not isinstance(item, (list, tuple)) or not item:
        return None
    if reader.reads_conll:
        are_words = all(isinstance(word, str) and len(word.split()) < 2 for word in item)  # not a text and its label
        return {"text": list(item)} if are_words else None
    is_pair = len(item) == 2 and all(part is None or isinstance(part, str) for part in item)
    return dict(zip(("text", "text_pair"), item, strict=True)) if is_pair and reader.may_read_pairs else None


def _labelled(item: Any, reader: Any) -> dict[str, Any] | None:
    """The same with the task's column names, for an item alone or in a tuple with its label."""
    has_label = isinstance(item, tuple) and len(item) == 2
    texts = _texts(item[0] if has_label else item, reader)
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


def prediction_columns(classes: Sequence[str]) -> list[str]:
    """The columns of a prediction table and their names in the file: `index`, `prediction`, and each class."""
    own = ["index", "prediction"]
    return own + [new_name(name, {*own, *classes}) if name in own else name for name in classes]


def read_prediction_rows(path: str | Path, count: int) -> list[DataRow]:
    """Read `count` predictions in the order of the examples: by the column `index`, from 0, else in file order."""
    rows = [DataRow(row, str(path), number) for number, row in enumerate(stream_rows(path), start=1)]
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


def data_name(source: DataSource) -> str:
    """The name of data in descriptions; for a file, without its folder."""
    if isinstance(source, GivenData):
        return source.described
    return Path(source).name if isinstance(source, (str, Path)) else str(source)


def source_of(data: Any, name: str) -> DataSource | None:
    """The data of an argument for a single data set, see `sources_of`."""
    sources = [GivenData(name, data)] if isinstance(data, Mapping) else sources_of(data, name)
    if len(sources) > 1:
        raise ValueError(f"{name} is {', '.join(map(str, sources))[:160]}; expected one file.")
    return sources[0] if sources else None


def sources_of(data: Any, name: str) -> list[DataSource]:
    """The data sets of an argument: files, or data in memory (see `rows_of`); a dictionary names several."""
    if data is None:
        return []
    if isinstance(data, (str, Path, HubSplit, GivenData)):
        return [str(data) if isinstance(data, Path) else data]
    if isinstance(data, Mapping):
        return [GivenData(name, table, str(part)) for part, table in data.items()]
    if isinstance(data, (list, tuple)) and all(isinstance(item, (str, Path, GivenData)) for item in data):
        return [str(item) if isinstance(item, Path) else item for item in data]
    return [GivenData(name, data)]


def files_of(sources: Iterable[DataSource]) -> list[str]:
    """The sources that are files."""
    return [str(source) for source in sources if isinstance(source, (str, Path))]
