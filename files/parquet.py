"""Rows of Parquet files, page by page; nothing holds a whole file."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from .addresses import refuse_address

_ROWS_AT_A_TIME = 256


def read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read a Parquet file row by row; error messages name file and row."""
    refuse_address(path)
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"Reading {path} needs the pyarrow package: pip install pyarrow.") from error
    row = 0
    try:
        # Buffered: pages are read one by one, not whole row groups.
        with ParquetFile(path, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            for name in columns or ():
                if name not in names:
                    raise ValueError(f"{path} {lacks_column(name, names)}")
            refuse_doubled(str(path), [name for name in names if columns is None or name in columns])
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns, use_threads=False):
                rows = batch.to_pylist()
                row += len(rows)
                yield from rows
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file, or broken after row {row} ({first_line(error)}).") from error
    except UnicodeDecodeError as error:
        what = ", ".join(map(repr, columns)) if columns else "a column"
        raise ValueError(f"{path}: {what} holds bytes that are not UTF-8, after row {row}.") from error
    except OSError as error:
        raise OSError(f"{path} cannot be read as Parquet, after row {row} ({first_line(error)}).") from error


def refuse_doubled(what: str, names: Iterable[str]) -> None:
    """Reject columns with the same name: a row could hold only the last one."""
    # Unnamed columns may repeat, as they cannot be requested.
    for name, count in Counter(filter(None, names)).items():
        if count > 1:
            raise ValueError(f"{what} has {count} columns named {name[:60]!r}; expected a name for each column.")


def lacks_column(column: str, names: Sequence[str] | dict[str, Any]) -> str:
    """The message that a column is missing, with the existing ones."""
    return f"has no {column!r}, only {', '.join(map(repr, names)) or 'nothing'}; name it with --text_column."


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
