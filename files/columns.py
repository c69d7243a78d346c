"""One column of JSON lines or Parquet, row by row.

Everything is streamed; nothing holds a whole file.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from .tables import parse_json
from .text import JSON_SUFFIXES, PARQUET_SUFFIX, content_suffix, open_text

_ROWS_AT_A_TIME = 256


def read_column(
    path: str, column: str, encoding: str = "utf-8", digests: dict[str, str] | None = None
) -> Iterator[Any]:
    """Read one column of JSON lines (`.jsonl`, `.json`, `.ndjson`, plain or compressed) or Parquet, row by row.

    Args:
        path: The file.
        column: The field or column.
        encoding: Encoding of JSON.
        digests: As in `open_text`; not of Parquet.

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
    for number, line in enumerate(open_text(path, encoding, digests), start=1):
        if not line.strip():
            yield None
            continue
        row = parse_json(path, number, line, refuse_halves=False)  # a half pair becomes a sign of its own there
        where = f"{path}, line {number}"
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
