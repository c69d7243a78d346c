"""Data in rows, wherever it is: files, standard input, data sets of the Hub, tables and other data in memory."""

import json
import logging
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

from .tables import (
    is_table,
    json_rows,
    lacks_column,
    read_conll,
    read_parquet,
    read_separated,
    refuse_doubled,
    stream_rows,
)
from .text import PARQUET_SUFFIX, SEPARATED_SUFFIXES, STDIN, content_suffix, new_digest, open_text

logger = logging.getLogger(__name__)

HUB = "hf:"  # begins the name of a data set on the Hub
_ROWS = 1024  # rows of a data frame read at a time
_MISSING = ("NAType", "NaTType")  # pandas' missing values in non-numeric columns


@dataclass(frozen=True)
class Reading:
    """How the rows of a `Source` are read; a source ignores what does not concern it."""

    columns: Sequence[str] | None = None  # of a CSV or TSV file that may lack a header
    encoding: str = "utf-8"
    skip_broken_rows: bool = False  # those of a CSV or TSV file with too few or too many fields
    literal_quotes: bool = False  # quotes of a TSV file are part of the text
    conll: bool = False  # whether files without the ending of a table hold CoNLL columns
    class_names: bool | None = None  # classes of a data set become text: names or numbers; None leaves them
    # Makes a row of a line of plain text, or of an item in memory that is no dictionary; None if it is `expected`.
    as_row: Callable[[Any], dict[str, Any] | None] | None = None
    expected: str = "a dictionary"


class Source(ABC):
    """Data in rows: a file, standard input, a split of a data set on the Hub, or data in memory."""

    @abstractmethod
    def __str__(self) -> str: ...

    @abstractmethod
    def rows(self, reading: Reading = Reading()) -> Iterator[dict[str, Any]]:
        """Read row by row, as Python values."""

    @abstractmethod
    def column(self, name: str, encoding: str = "utf-8", digests: dict[str, str] | None = None) -> Iterator[Any]:
        """Read one column row by row, as text for a corpus; None for missing values and empty lines.

        Args:
            name: The column.
            encoding: That of a file of text.
            digests: Gets the digest of a file when it has been read completely, see `open_text`; not for Parquet.
        """

    def where(self, number: int) -> str:
        """The place of a row, counted from 1, for error messages."""
        return f"{self}, row {number}"

    @staticmethod
    def of(data: Any, name: str = "data") -> "Source":
        """The source of a path or of data in memory, which has the name of an argument."""
        if isinstance(data, Source):
            return data
        return FileSource(data) if isinstance(data, (str, os.PathLike)) else GivenData(name, data)


class FileSource(Source):
    """A table, plain text or CoNLL columns in a file; "-" is standard input."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.fspath(path)

    def __str__(self) -> str:
        return "standard input" if self.path == STDIN else self.path

    def rows(self, reading: Reading = Reading()) -> Iterator[dict[str, Any]]:
        path, as_row = self.path, reading.as_row
        if path == STDIN and as_row:
            # JSON lines if it begins like an object, else plain text.
            lines = open_text(path, reading.encoding)
            head: list[str] = []  # up to the first non-empty line
            while (not head or not head[-1].strip()) and (line := next(lines, None)) is not None:
                head.append(line)
            lines = chain(head, lines)
            if head and head[-1].lstrip().startswith("{"):
                return (row for _, row in json_rows(str(self), lines))
            return self._text_rows(lines, as_row)
        if not is_table(path):
            if reading.conll and not (as_row and content_suffix(path) == ".txt"):
                return iter(read_conll(path, reading.encoding))
            if as_row:
                return self._text_rows(open_text(path, reading.encoding), as_row)
        return stream_rows(path, reading.columns, reading.encoding, reading.skip_broken_rows, reading.literal_quotes)

    def _text_rows(
        self, lines: Iterable[str], as_row: Callable[[str], dict[str, Any] | None]
    ) -> Iterator[dict[str, Any]]:
        """One row per line, with its number as `line`; empty lines are left out."""
        empty = 0
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield {"line": number, **(as_row(line) or {})}
            else:
                empty += 1
        if empty:
            logger.warning("%s: %s empty lines are left out.", self, f"{empty:,}")

    def column(self, name: str, encoding: str = "utf-8", digests: dict[str, str] | None = None) -> Iterator[Any]:
        path, suffix = self.path, content_suffix(self.path)
        if suffix == PARQUET_SUFFIX:
            yield from (row[name] for row in read_parquet(path, [name]))
        elif suffix in SEPARATED_SUFFIXES:
            for row in read_separated(path, encoding=encoding, digests=digests):
                if name not in row:
                    raise ValueError(f"{path} {lacks_column(name, row)}")
                yield row[name]
        else:
            last = 0
            # Lone surrogates are replaced when the text is encoded.
            for number, row in json_rows(path, open_text(path, encoding, digests), refuse_halves=False):
                if name not in row:
                    raise ValueError(f"{path}, line {number} {lacks_column(name, row)}")
                yield from (None for _ in range(number - last - 1))
                yield row[name]
                last = number


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

    def rows(self, reading: Reading = Reading()) -> Iterator[dict[str, Any]]:
        data = self._load(self.name, self.config)[self.split]
        return with_class_names(data, data.features, reading.class_names)

    def column(self, name: str, encoding: str = "utf-8", digests: dict[str, str] | None = None) -> Iterator[Any]:
        rows = self._load(self.name, self.config, split=self.split, streaming=True)
        for number, row in enumerate(rows, start=1):
            if name not in row:
                raise ValueError(f"{self.where(number)} {lacks_column(name, row)}")
            yield row[name]

    @staticmethod
    def _load(name: str, config: str | None, **options: Any) -> Any:
        try:
            import datasets
        except ImportError as error:
            raise ImportError(
                f"The data set {name} needs the package datasets: pip install mybert[train] ({error})."
            ) from error
        try:
            return datasets.load_dataset(name, config, **options)
        except (OSError, ValueError, RuntimeError) as error:  # no network, no such data set or configuration
            what = " ".join(str(error).split())
            raise OSError(
                f"The data set {name!r} could not be loaded ({what[:160]}); check its name and the network, or give "
                "files instead."
            ) from error


@dataclass(frozen=True, eq=False)
class GivenData(Source):
    """Data in memory, named after the argument through which it was given; can be read repeatedly."""

    # Its pickle, which is saved with the settings in checkpoints, contains only the name.
    name: str  # of the argument, also used in messages
    data: Any  # rows or texts, see `items_of`; an iterator is read at once
    part: str = ""  # its name if the argument has several tables, otherwise ""

    def __post_init__(self) -> None:
        if isinstance(self.data, Iterator):
            object.__setattr__(self, "data", list(self.data))

    def __str__(self) -> str:
        return f"{self.name}[{self.part!r}]" if self.part else self.name

    def __reduce__(self) -> tuple[Any, ...]:
        return str, (str(self),)

    def rows(self, reading: Reading = Reading()) -> Iterator[dict[str, Any]]:
        return rows_in_memory(self.data, str(self), reading)

    def column(self, name: str, encoding: str = "utf-8", digests: dict[str, str] | None = None) -> Iterator[Any]:
        # The items of data that is no table are values themselves.
        return frame_column(self.data, name) if is_frame(self.data) else items_of(self.data)

    @property
    def described(self) -> str:
        """A description for the model's card."""
        return f"{self.part or 'data'} in memory ({type(self.data).__name__})"

    @cached_property
    def recorded(self) -> str:
        """A record that identifies the data: its kind, and a digest of all rows."""
        digest = new_digest()
        for row in items_of(self.data):
            digest.update(f"{json.dumps(_plain(row), default=str)}\n".encode())
        return f"{type(self.data).__name__} {digest.hexdigest()}"


def rows_in_memory(data: Any, name: str, reading: Reading = Reading()) -> Iterator[dict[str, Any]]:
    """Read data in memory row by row, an iterator only once; its name is for messages."""
    if isinstance(data, Mapping) or not has_items(data):
        found = " ".join(repr(data).split())
        if isinstance(data, Mapping):
            found = f"a {type(data).__name__} of {', '.join(map(repr, data))}"
        raise ValueError(
            f"{name} is {found[:160]}; expected a file, a table (DataFrame, Dataset) or an iterable of rows."
        )

    def rows() -> Iterator[dict[str, Any]]:
        for number, item in enumerate(items_of(data), start=1):
            row = dict(item) if isinstance(item, Mapping) else reading.as_row(item) if reading.as_row else None
            if row is None:
                raise ValueError(f"{name}, row {number}: {str(item)[:60]!r}; expected {reading.expected}.")
            yield row

    return with_class_names(rows(), getattr(data, "features", None), reading.class_names)


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


def is_frame(source: object) -> bool:
    """Whether an object is a table in memory: a data frame (pandas, polars) or a data set (`datasets`)."""
    return hasattr(source, "columns") or hasattr(source, "column_names")


def frame_column(frame: Any, column: str) -> Iterator[Any]:
    """Read one column of a table in memory (see `is_frame`), row by row; None for missing values."""
    found = frame.columns if hasattr(frame, "columns") else frame.column_names
    names = None if found is None else list(found)  # a streamed data set may not know them
    if names is not None and column not in names:
        raise ValueError(f"The {type(frame).__name__} {lacks_column(column, list(map(str, names)))}")
    if hasattr(frame, "iloc"):
        yield from (row[str(column)] for row in frame_rows(frame[[column]]))
        return
    values = frame[column] if hasattr(frame, "columns") else (row[column] for row in frame)
    yield from map(_present, values)


def frame_rows(frame: Any) -> Iterator[dict[str, Any]]:
    """Read a table in memory (see `is_frame`) row by row, as Python values (None if missing, lists)."""
    if hasattr(frame, "iloc"):
        names = [str(name) for name in frame.columns]
        refuse_doubled(f"The {type(frame).__name__}", names)
        for start in range(0, len(frame), _ROWS):
            part = frame.iloc[start : start + _ROWS].astype(object)
            for values in part.where(part.notna(), None).itertuples(index=False, name=None):
                yield dict(zip(names, map(_plain, values), strict=True))
        return
    for row in frame.iter_rows(named=True) if hasattr(frame, "iter_rows") else frame:
        yield {name: _plain(value) for name, value in row.items()}


def has_items(data: object) -> bool:
    """Whether `items_of` can read it."""
    return is_frame(data) or isinstance(data, Iterable) or (hasattr(data, "__getitem__") and hasattr(data, "__len__"))


def items_of(data: Any) -> Iterator[Any]:
    """Read data in memory: the rows of a table, the items of an iterable or, by index, of a map-style data set."""
    if is_frame(data):
        return frame_rows(data)
    return iter(data) if isinstance(data, Iterable) else (data[index] for index in range(len(data)))


def rows_of_batch(batch: Any) -> list[dict[str, Any]]:
    """The rows of a batch that Ray Data or Spark passes to a function, as Python values, see `frame_rows`."""
    # Column -> values (NumPy arrays or lists), a `pandas.DataFrame` or a `pyarrow.Table`.
    if isinstance(batch, Mapping):
        for name, values in batch.items():
            if isinstance(values, (str, bytes)) or not hasattr(values, "__len__"):
                raise ValueError(
                    f"The batch has {str(values)[:40]!r} as column {name!r}; expected the values of several rows "
                    "(Ray Data: use map_batches instead of map)."
                )
        rows = zip(*batch.values(), strict=True)
        return [{name: _present(value) for name, value in zip(batch, row, strict=True)} for row in rows]
    if hasattr(batch, "to_pylist"):
        return batch.to_pylist()
    if not hasattr(batch, "iloc"):
        raise ValueError(
            f"The batch is {repr(batch)[:40]}; expected a dictionary of columns, a pandas.DataFrame or a "
            "pyarrow.Table."
        )
    return list(frame_rows(batch))


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
    return batch.rename(columns=str)[list(kept)].assign(**columns)


def _present(value: Any) -> Any:
    """Convert a value of an array to a Python value; None if missing."""
    value = _plain(value)
    is_missing = isinstance(value, float) and value != value
    return None if is_missing or type(value).__name__ in _MISSING else value


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy's and torch's arrays and numbers
        value = value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, (list, tuple)) else value
