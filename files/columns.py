"""One column of a table, row by row: CSV, TSV, JSON lines or Parquet.

Everything is streamed; nothing holds a whole file.
"""

from collections.abc import Iterator
from typing import Any

from .parquet import lacks_column, read_parquet
from .tables import parse_json, read_separated
from .text import JSON_SUFFIXES, PARQUET_SUFFIX, SEPARATED_SUFFIXES, content_suffix, open_text


def read_column(
    path: str, column: str, encoding: str = "utf-8", digests: dict[str, str] | None = None
) -> Iterator[Any]:
    """Read one column of a table row by row; all formats but Parquet may be compressed. None is an empty line."""
    if content_suffix(path) == PARQUET_SUFFIX:
        for row in read_parquet(path, [column]):
            yield row[column]
        return
    if content_suffix(path) in SEPARATED_SUFFIXES:
        for row in read_separated(path, encoding=encoding, digests=digests):
            if column not in row:
                raise ValueError(f"{path} {lacks_column(column, row)}")
            yield row[column]
        return
    assert content_suffix(path) in JSON_SUFFIXES
    for number, line in enumerate(open_text(path, encoding, digests), start=1):
        if not line.strip():
            yield None
            continue
        row = parse_json(path, number, line, refuse_halves=False)  # lone surrogates are replaced
        where = f"{path}, line {number}"
        if not isinstance(row, dict):
            raise ValueError(f"{where} is a JSON {type(row).__name__}; expected an object with {column!r}.")
        if column not in row:
            raise ValueError(f"{where} {lacks_column(column, row)}")
        yield row[column]
