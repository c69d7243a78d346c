"""Tables in memory, row by row: data frames (pandas, polars), data sets (`datasets`), batches of cluster engines."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from .tables import lacks_column, refuse_doubled
from .text import new_digest

_ROWS = 1024  # rows of a data frame read at a time
_MISSING = ("NAType", "NaTType")  # pandas' missing values in non-numeric columns


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


@dataclass(frozen=True, eq=False)
class GivenData:
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
