"""Rows of JSON lines and of Parquet, and JSON that may be hostile: what is wrong is said with file and row.

Everything is streamed; nothing holds a whole file.
"""

import json
from collections.abc import Iterable, Iterator
from typing import Any

from .text import JSON_SUFFIXES, PARQUET_SUFFIX, content_suffix, open_text

_ROWS_AT_A_TIME = 256


def parse_json(text: str, where: str) -> Any:
    """Parse a JSON value.

    Args:
        text: The JSON.
        where: File and line, for the message.

    Raises:
        ValueError: If it is no JSON, holds a number of thousands of digits, or is nested too deep.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{where} is not JSON ({error.msg} at character {error.pos + 1}).") from error
    except RecursionError as error:
        raise ValueError(f"{where} is JSON that is nested too deep.") from error
    except ValueError as error:  # Python's limit for whole numbers
        raise ValueError(f"{where} is JSON with a number of too many digits.") from error


def read_column(path: str, column: str, encoding: str = "utf-8") -> Iterator[Any]:
    """Read one column of JSON lines (`.jsonl`, `.json`, `.ndjson`, plain or compressed) or Parquet, row by row.

    Args:
        path: The file.
        column: The field or column.
        encoding: Encoding of JSON.

    Yields:
        The value of each row; None for an empty line.

    Raises:
        OSError: If the file cannot be read.
        ValueError: If it is not what its name says or lacks the column; the message names file and line or row.
        ImportError: If pyarrow is missing, for Parquet.
    """
    if content_suffix(path) == PARQUET_SUFFIX:
        yield from _parquet_column(path, column)
        return
    assert content_suffix(path) in JSON_SUFFIXES
    for number, line in enumerate(open_text(path, encoding), start=1):
        if not line.strip():
            yield None
            continue
        where = f"{path}, line {number}"
        row = parse_json(line, where)
        if not isinstance(row, dict):
            raise ValueError(f"{where} is a JSON {type(row).__name__}; expected an object with {column!r}.")
        if column not in row:
            raise ValueError(f"{where} {lacks_column(column, row)}")
        yield row[column]


def lacks_column(column: str, names: Iterable[str]) -> str:
    """Say that a row has other columns than the one that is asked for."""
    return f"has no {column!r}, only {', '.join(map(repr, names)) or 'nothing'}; name it with --text_column."


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


def _parquet_column(path: str, column: str) -> Iterator[Any]:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"Reading {path} needs the pyarrow package: pip install pyarrow.") from error
    row = 0
    try:
        # Buffered: pages are read one by one, not whole row groups.
        with ParquetFile(path, buffer_size=1 << 20) as file:
            if column not in file.schema_arrow.names:
                raise ValueError(f"{path} {lacks_column(column, file.schema_arrow.names)}")
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=[column], use_threads=False):
                values = batch.column(0).to_pylist()
                row += len(values)
                yield from values
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file, or broken after row {row} ({first_line(error)}).") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: {column!r} holds bytes that are not UTF-8, after row {row}.") from error
    except OSError as error:
        raise OSError(f"{path} cannot be read as Parquet, after row {row} ({first_line(error)}).") from error
