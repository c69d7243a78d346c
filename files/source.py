"""Data in rows, wherever it is: files, standard input, data sets of the Hub, tables and other data in memory."""

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from .conll import Layout, layout_of, read_conll
from .errors import SettingError, how_to_install, refuse_address
from .tables import (
    USUAL,
    Reading,
    json_rows,
    lacks_column,
    question_rows,
    read_table,
    refuse_doubled,
    separator_of,
    until_filled,
    value_at,
)
from .text import (
    JSON_SUFFIXES,
    SEPARATED_SUFFIXES,
    SPREADSHEET_SUFFIX,
    STDIN,
    TABLE_SUFFIXES,
    content_suffix,
    file_of,
    new_digest,
    open_text,
    refuse_header,
    text_lines,
)

logger = logging.getLogger(__name__)

HUB = "hf:"  # begins the name of a data set on the Hub
_ROWS = 1024  # rows of a data frame read at a time
_MISSING = ("NAType", "NaTType")  # pandas' missing values in non-numeric columns


class Source(ABC):
    """Data in rows: a file, standard input, a split of a data set on the Hub, or data in memory."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def rows(self, reading: Reading = USUAL) -> Iterator[dict[str, Any]]:
        """Read row by row, as Python values."""

    def column(self, name: str, encoding: str = "utf-8") -> Iterator[Any]:
        """Read one column row by row, as text for a corpus; None for missing values."""
        for number, row in enumerate(self.rows(Reading(column=name, encoding=encoding)), start=1):
            try:
                value = value_at(row, name)
            except KeyError:
                raise ValueError(lacks_column(self.where(number), name, row)) from None
            yield value

    def where(self, number: int) -> str:
        """The place of a row of `column`, counted from 1, for error messages."""
        return f"{self}, row {number}"

    @property
    def described(self) -> str:
        """A description for the model's card."""
        return str(self)

    first_row = 1
    """The number of the first row: 2 in a spreadsheet, whose header is row 1."""

    @staticmethod
    def of(data: Any, name: str = "data") -> "Source":
        """The source of a path or of data in memory, which has the name of an argument."""
        if isinstance(data, Source):
            return data
        return FileSource(data) if isinstance(data, (str, os.PathLike)) else InMemoryData(name, data)


def sources_of(data: Any, name: str, in_parts: bool = True) -> list[Any]:
    """The data sets of an argument: names of files, or data in memory; `in_parts` a dictionary may name several."""
    if data is None:
        return []
    items = list(data) if isinstance(data, (list, tuple, set, frozenset)) else [data]
    if all(isinstance(item, (str, Path, Source)) for item in items):
        return [str(item) if isinstance(item, Path) else item for item in items]
    if isinstance(data, Mapping) and in_parts:
        return [InMemoryData(name, table, str(part)) for part, table in data.items()]
    return [InMemoryData(name, list(data) if isinstance(data, Iterator) else data)]


def source_of(data: Any, name: str) -> Any:
    """The data of an argument for a single data set, see `sources_of`; None if there is none."""
    sources = sources_of(data, name, in_parts=False)
    if len(sources) > 1:
        raise SettingError.worded("{:option} is {}; expected one file.", name, ", ".join(map(str, sources))[:160])
    return sources[0] if sources else None


def files_of(sources: Iterable[Any]) -> list[str]:
    """Those of the sources of `sources_of` that are files."""
    return [str(source) for source in sources if isinstance(source, str)]


class FileSource(Source):
    """A table, plain text or CoNLL columns in a file; "-" is standard input."""

    def __init__(self, path: str | os.PathLike[str], digests: dict[str, str] | None = None) -> None:
        self.path = os.fspath(path)
        self.first_row = 2 if content_suffix(self.path) == SPREADSHEET_SUFFIX else 1
        self.digests = digests  # gets that of the file when it has been read completely; not for Parquet

    def __str__(self) -> str:
        return "standard input" if self.path == STDIN else self.path

    @property
    def described(self) -> str:
        return Path(self.path).name

    def where(self, number: int) -> str:
        kind = "line" if content_suffix(self.path) in JSON_SUFFIXES else "row"
        return f"{self}, {kind} {number - 1 + self.first_row}"

    def rows(self, reading: Reading = USUAL) -> Iterator[dict[str, Any]]:
        """Read row by row; a file without rows is an error, unless it is new data or a corpus."""
        refuse_address(self.path)
        if self.path == STDIN and reading.as_row:
            # JSON lines if it begins like an object, else plain text.
            filled, lines = until_filled(open_text(self.path, reading.encoding, self.digests), 1)
            if filled and filled[0].lstrip().startswith("{"):
                return question_rows(str(self), json_rows(str(self), lines))
            if filled and reading.names:
                refuse_header(self, filled[0], reading.names[0])
            return self._text_rows(lines, reading)
        layout = self._layout(reading) if reading.conll else None
        if layout == "sentences":
            rows = read_table(self.path, replace(reading, columns=reading.names), self.digests)
        elif layout == "columns":
            rows = read_conll(self.path, reading.encoding, names=reading.names)
        elif content_suffix(self.path) in TABLE_SUFFIXES or not reading.as_row:
            rows = read_table(self.path, reading, self.digests)
        else:
            lines = text_lines(self.path, reading.encoding, self.digests, *reading.names[:1])
            return self._text_rows(lines, reading)
        if reading.column:
            return rows
        if (first := next(rows, None)) is None:
            raise ValueError(f"{self} holds no rows.")
        return chain([first], rows)

    def _layout(self, reading: Reading) -> Layout | None:
        """How words are tagged in a file; None if it is a table with a header, or text."""
        kind = content_suffix(self.path)
        is_table = kind in TABLE_SUFFIXES
        if is_table and kind not in SEPARATED_SUFFIXES:
            return None
        # A pipe can be read only once.
        layout = layout_of(self.path, reading.encoding, reading.names) if Path(file_of(self.path)).is_file() else None
        is_text = reading.as_row is not None and kind == ".txt"
        return layout or (None if is_text or is_table else "columns")

    def _text_rows(self, lines: Iterable[str], reading: Reading) -> Iterator[dict[str, Any]]:
        """One row per line, with its number as `line`; empty lines are left out."""
        assert reading.as_row is not None
        mark, is_declared, lines = separator_of(iter(lines), "\t")
        if is_declared:
            raise ValueError(f"{self} begins with 'sep={mark}', as tables of Excel do; save it as .csv.")
        empty = 0
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield {"line": number, **(reading.as_row(line) or {})}
            else:
                empty += 1
        if empty:
            logger.warning("%s: %s empty lines are left out.", self, f"{empty:,}")


def read_rows(path: str | os.PathLike[str], **reading: Any) -> list[dict[str, Any]]:
    """Read a whole table; keywords are fields of `Reading`."""
    return list(FileSource(path).rows(Reading(**reading)))


@dataclass(frozen=True)
class HubSplit(Source):
    """A split of a data set on the Hub (or of a folder that `datasets` reads)."""

    name: str
    config: str | None = None
    split: str = "train"

    def __str__(self) -> str:
        config = f" ({self.config})" if self.config else ""
        return f"{self.name}{config}, split {self.split}"

    @classmethod
    def all_of(cls, name: str, config: str | None) -> "list[HubSplit]":
        """The splits of a data set."""
        return [cls(name, config, split) for split in cls._load(name, config)]

    @classmethod
    def named(cls, name: str) -> "HubSplit":
        """The split of a name such as `hf:owner/name:configuration:split`."""
        name, configuration, split = [*name.removeprefix(HUB).split(":", 2), "", ""][:3]
        return cls(name, configuration or None, split or "train")

    def rows(self, reading: Reading = USUAL) -> Iterator[dict[str, Any]]:
        """Read row by row; a single column is streamed."""
        if reading.column:
            return iter(self._load(self.name, self.config, split=self.split, streaming=True))
        data = self._load(self.name, self.config)[self.split]
        return with_class_names(data, data.features, reading.class_names)

    @staticmethod
    def _load(name: str, config: str | None, **options: Any) -> Any:
        try:
            import datasets

            from .progress import are_bars_hidden
        except ImportError as error:
            raise ImportError(
                f"The data set {name} needs the package datasets: {how_to_install('train')} ({error})."
            ) from error
        if are_bars_hidden():
            datasets.disable_progress_bars()
        try:
            return datasets.load_dataset(name, config, **options)
        except (OSError, ValueError, RuntimeError) as error:  # no network, no such data set or configuration
            what = " ".join(str(error).split())
            raise OSError(
                f"The data set {name!r} could not be loaded ({what[:160]}); check its name and the network, or give "
                "files instead."
            ) from error


@dataclass(frozen=True, eq=False)
class InMemoryData(Source):
    """Data in memory, named after the argument through which it was given; an iterator can be read only once."""

    # Its pickle, which is saved with the settings in checkpoints, contains only the name.
    name: str  # of the argument, also used in messages
    data: Any  # rows or texts, see `items_of`
    part: str = ""  # its name if the argument has several tables, otherwise ""

    def __post_init__(self) -> None:
        data = self.data
        is_map_style = hasattr(data, "__getitem__") and hasattr(data, "__len__")
        is_table = is_frame(data) or isinstance(data, Iterable) or is_map_style
        is_one = isinstance(data, Mapping) or getattr(data, "shape", None) == ()  # a row, or an array's number
        if is_one or not is_table:
            found = " ".join(repr(data).split())
            if isinstance(data, Mapping) and data:
                found = f"a {type(data).__name__} of {', '.join(map(repr, data))}"
            raise ValueError(
                f"{self} is {found[:160]}; expected a file, a table (DataFrame, Dataset) or an iterable of rows."
            )

    def __str__(self) -> str:
        return f"{self.name}[{self.part!r}]" if self.part else self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def rows(self, reading: Reading = USUAL) -> Iterator[dict[str, Any]]:
        rows = with_class_names(self._rows(reading), getattr(self.data, "features", None), reading.class_names)
        return rows if is_frame(self.data) else question_rows(str(self), rows)  # tables have an answer for each row

    def _rows(self, reading: Reading) -> Iterator[dict[str, Any]]:
        for number, item in enumerate(items_of(self.data, reading.column), start=1):
            # `Path.is_file` would raise an error for a long text.
            if isinstance(item, str) and item.endswith((*TABLE_SUFFIXES, ".txt")) and os.path.isfile(item):  # noqa: PTH113
                raise ValueError(
                    f"{self.where(number)}: {item!r} is the name of a file; expected a text, or its path alone."
                )
            if hasattr(item, "_asdict"):  # a named tuple, whatever the order of its fields
                item = item._asdict()
            row = dict(item) if isinstance(item, Mapping) else reading.as_row(item) if reading.as_row else None
            if row is None:
                raise ValueError(f"{self.where(number)}: {str(item)[:60]!r}; expected {reading.expected}.")
            yield {name: _present(value) for name, value in row.items()}  # arrays' numbers are those of files

    def column(self, name: str, encoding: str = "utf-8") -> Iterator[Any]:
        """Read one column of a table; the items of other data are values themselves."""
        if is_frame(self.data):
            return super().column(name, encoding)
        return items_of(self.data)

    @property
    def described(self) -> str:
        return f"{self.part or 'data'} in memory ({type(self.data).__name__})"

    @cached_property
    def recorded(self) -> str:
        """A record that identifies the data: its kind, and a digest of all rows."""
        digest = new_digest()
        for row in items_of(self.data):
            digest.update(f"{json.dumps(_plain(row), default=str)}\n".encode())
        return f"{type(self.data).__name__} {digest.hexdigest()}"


def with_class_names(
    rows: Iterable[dict[str, Any]], features: Mapping[str, Any] | None, class_names: bool | None = True
) -> Iterator[dict[str, Any]]:
    """Rows of a data set with texts (the classes' names or their numbers) for classes; class -1 means no label."""
    if class_names is None:
        yield from rows
        return
    naming = {
        name: (_naming(feature, class_names), _naming(getattr(feature, "feature", None), class_names))
        for name, feature in (features or {}).items()
        if _naming(feature) or _naming(getattr(feature, "feature", None))
    }
    for row in rows:
        for name, (name_one, name_each) in naming.items():
            value = row.get(name)  # a transform may have dropped it
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


def is_data_frame(source: object) -> bool:
    """Whether an object is a data frame: of pandas or polars, or a `pyarrow.Table`."""
    return hasattr(source, "columns")


def is_frame(source: object) -> bool:
    """Whether an object is a table in memory: a data frame or a data set (`datasets`)."""
    return is_data_frame(source) or hasattr(source, "column_names")


def frame_rows(frame: Any, column: str | None = None) -> Iterator[dict[str, Any]]:
    """Read a table in memory (see `is_frame`) row by row, or one column, as Python values (None if missing, lists)."""
    if hasattr(frame, "with_format"):  # of `datasets`, whose rows may be set to be tables; a transform stays
        formatted = getattr(frame, "format", None)  # not of a streamed one
        if formatted is None:
            frame = frame.with_format(None)
        elif formatted["type"] != "custom":
            frame = frame.with_format(None, formatted["columns"], formatted["output_all_columns"])
    found = frame.column_names if hasattr(frame, "column_names") else frame.columns
    names = None if found is None else list(map(str, found))  # a streamed data set may not know them
    what = f"The {type(frame).__name__}"
    if column is not None and names is not None and column not in names:
        raise ValueError(lacks_column(what, column, names))
    if hasattr(frame, "iloc"):
        if column is not None:
            frame = frame.iloc[:, [number for number, name in enumerate(names or ()) if name == column]]
        names = list(map(str, frame.columns))
        refuse_doubled(what, names)
        for start in range(0, len(frame), _ROWS):
            part = frame.iloc[start : start + _ROWS].astype(object)
            for values in part.where(part.notna(), None).itertuples(index=False, name=None):
                yield dict(zip(names, map(_plain, values), strict=True))
        return
    if column is not None and names is not None:
        frame = frame.select_columns(column) if hasattr(frame, "select_columns") else frame.select([column])
    if hasattr(frame, "to_pylist"):  # pyarrow's
        for start in range(0, len(frame), _ROWS):
            yield from frame.slice(start, _ROWS).to_pylist()
        return
    for row in frame.iter_rows(named=True) if hasattr(frame, "iter_rows") else frame:
        yield {name: _present(value) for name, value in row.items()}


def items_of(data: Any, column: str | None = None) -> Iterator[Any]:
    """Read data in memory: the rows of a table, the items of an iterable or, by index, of a map-style data set."""
    if is_frame(data):
        return frame_rows(data, column)
    return iter(data) if isinstance(data, Iterable) else (data[index] for index in range(len(data)))


def rows_of_batch(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch that Ray Data or Spark passes to a function, as Python values, see `frame_rows`."""
    # Column -> values (NumPy arrays or lists), or a data frame.
    if isinstance(batch, Mapping):
        for name, values in batch.items():
            if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
                raise ValueError(
                    f"The batch has {str(values)[:40]!r} as column {name!r}; expected the values of several rows "
                    "(Ray Data: use map_batches instead of map)."
                )
        rows = zip(*batch.values(), strict=True)
        return [{name: _present(value) for name, value in zip(batch, row, strict=True)} for row in rows]
    if not is_data_frame(batch):
        raise ValueError(
            f"The batch is {repr(batch)[:40]}; expected a dictionary of columns, a DataFrame or a pyarrow.Table."
        )
    return list(frame_rows(batch))


def check_kept_columns(batch: Any, kept: Sequence[str]) -> None:
    """Reject the name of a value within a column of a batch, which cannot be a column of the result."""
    there = set(map(str, getattr(batch, "column_names", getattr(batch, "columns", batch))))
    if part := next((name for name in kept if name not in there), None):
        raise ValueError(f"{part!r} is no column of the data frame, but in one; expected columns to keep.")


def with_columns(batch: Any, kept: Sequence[str], columns: Mapping[str, list[Any]]) -> Any:
    """A batch, see `rows_of_batch`, with some of its columns, unchanged, followed by new ones."""
    if isinstance(batch, Mapping):
        return {name: batch[name] for name in kept} | dict(columns)
    if hasattr(batch, "to_pylist"):
        import pyarrow

        batch = batch.select(kept)
        for name, values in columns.items():
            batch = batch.append_column(name, pyarrow.array(values))
        return batch
    if hasattr(batch, "hstack"):  # polars'
        return batch.select(kept).hstack(type(batch)(dict(columns)))
    names = {str(name): name for name in batch.columns}
    return batch[[names[name] for name in kept]].assign(**columns)


def _present(value: Any) -> Any:
    """Convert a value of an array to a Python value; None if missing."""
    return unless_missing(_plain(value))


def unless_missing(value: Any) -> Any:
    """The value; None for NaN, and for what data frames have in its place."""
    is_missing = isinstance(value, float) and value != value
    return None if is_missing or type(value).__name__ in _MISSING else value


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's and torch's arrays and numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)  # the same in every process
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
