"""Task data: tables in CSV, TSV, JSON and JSON lines."""

import csv
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..tokenization import open_text

_COMPRESSIONS = (".gz", ".xz", ".bz2", ".zst")


def read_table(
    path: str | Path, columns: Sequence[str] | None = None, encoding: str = "utf-8"
) -> list[dict[str, Any]]:
    r"""Read a table, plain or compressed.

    Formats, by the file's ending: `.csv` with quotes as in RFC 4180; `.tsv` without any quoting, as GLUE's files;
    `.jsonl`, an object a line; `.json`, a list of objects.

    Args:
        path: The file.
        columns: Names of the columns of a CSV or TSV file that has no header; None if it has one.
        encoding: Encoding of the file.

    Returns:
        A dictionary for each row, column -> value (text, but for JSON).

    Raises:
        OSError: If the file is missing or cannot be read.
        ValueError: If the ending is another one, the file is empty, or a row is broken; the message names file and
            line.
    """
    path = Path(path)
    suffixes = [suffix for suffix in path.suffixes if suffix not in _COMPRESSIONS]
    kind = suffixes[-1] if suffixes else ""
    if kind not in (".csv", ".tsv", ".jsonl", ".json"):
        raise ValueError(f"{path} ends in {kind or 'nothing'}; expected a .csv, .tsv, .jsonl or .json file.")
    if kind in (".csv", ".tsv"):
        rows = list(_read_separated(path, kind, columns, encoding))
    elif kind == ".jsonl":
        rows = [
            _object(path, number, _parse(path, number, line))
            for number, line in enumerate(open_text(path, encoding), start=1)
            if line.strip()
        ]
    else:
        content = _parse(path, 1, "\n".join(open_text(path, encoding)))
        if not isinstance(content, list):
            raise ValueError(f"{path} holds a JSON {type(content).__name__}; expected a list of objects.")
        rows = [_object(path, number, value) for number, value in enumerate(content, start=1)]
    if not rows:
        raise ValueError(f"{path} holds no rows.")
    return rows


def column(rows: Sequence[dict[str, Any]], name: str, path: str | Path) -> list[Any]:
    """Values of a column.

    Args:
        rows: Rows of `read_table`.
        name: The column.
        path: The file they come from, for the message.

    Raises:
        ValueError: If a row lacks the column; the message lists the columns that exist.
    """
    for number, row in enumerate(rows, start=1):
        if name not in row:
            there = ", ".join(repr(key) for key in row)
            raise ValueError(f"{path} has no column {name!r} in row {number}; its columns are {there}.")
    return [row[name] for row in rows]


def _read_separated(path: Path, kind: str, columns: Sequence[str] | None, encoding: str) -> Iterator[dict[str, Any]]:
    lines = (line + "\n" for line in open_text(path, encoding))
    reader = csv.reader(lines) if kind == ".csv" else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)
    for fields in reader:
        if not fields:
            continue
        if columns is None:
            columns = fields
        elif len(fields) != len(columns):
            raise ValueError(
                f"{path}, line {reader.line_num}: {len(fields)} fields; expected {len(columns)} "
                f"({', '.join(columns)})."
            )
        else:
            yield dict(zip(columns, fields, strict=True))


def _parse(path: Path, number: int, text: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number + error.lineno - 1}: not JSON ({error.msg}).") from error


def _object(path: Path, number: int, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{path}, entry {number}: a JSON {type(value).__name__}; expected an object.")
    return value
