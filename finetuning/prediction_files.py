"""Predictions on the way to a file: parts that outlive a kill, put together in the format of the file's ending."""

from __future__ import annotations

import csv
import json
import logging
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from ..files import open_text, write_json, write_text, written_beside

OUTPUT_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")

logger = logging.getLogger(__name__)

_PART = "predictions-{:08d}.jsonl"
_LONG_TEXTS = "predictions-{:08d}-long-texts.json"


def _part_file(folder: Path, number: int) -> Path:
    return folder / _PART.format(number)


def part_is_there(folder: Path, number: int) -> bool:
    """Whether a part of the rows was written; then it is whole."""
    return _part_file(folder, number).is_file() and (folder / _LONG_TEXTS.format(number)).is_file()


def long_texts_of_part(folder: Path, number: int) -> tuple[int, int]:
    """How many texts of a part that is there were cut, and how many were read in windows."""
    cut, windowed = json.loads((folder / _LONG_TEXTS.format(number)).read_text(encoding="utf-8"))
    return cut, windowed


def write_part(
    folder: Path, number: int, rows: Iterable[Mapping[str, Any]], output: Path, long_texts: tuple[int, int]
) -> None:
    """Write a part, whole or not at all.

    Args:
        folder: Where to.
        number: Which part it is.
        rows: Its rows.
        output: The file that all parts are for, which may not be able to hold them: that shows now, not at the end.
        long_texts: See `long_texts_of_part`.

    Raises:
        ValueError: If a value has a tab or line break in it, which a TSV file cannot hold.
        OSError: If it cannot be written.
    """
    lines = [json_line(row) for row in rows]
    if output.suffix.lower() == ".tsv":
        for row in map(json.loads, lines):
            _refuse_breaks(row, output)
    write_json(folder / _LONG_TEXTS.format(number), long_texts)
    write_text(_part_file(folder, number), "".join(f"{line}\n" for line in lines))


def _refuse_breaks(row: Mapping[str, Any], output: Path) -> None:
    for name, value in row.items():
        for text, what in ((name, "the name of a column"), (_cell(value), name)):
            if any(sign in text for sign in "\t\n\r"):
                raise ValueError(
                    f"{output}: {text[:40]!r} as {what} has a tab or line break, which no .tsv file holds; expected "
                    "an output that ends in .csv, .jsonl or .parquet."
                )


def json_line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON; what JSON has no number for is null, dates and the like are text."""
    safe = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
    return json.dumps(safe, ensure_ascii=False, default=_plain)


def _plain(value: Any) -> Any:
    """What JSON does not know: numpy's numbers and arrays, bytes, dates."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def merge_parts(folder: Path, count: int, output: Path) -> None:
    """Put the parts together in their order.

    Args:
        folder: Where they are.
        count: How many.
        output: The file; its ending is one of `OUTPUT_ENDINGS`. Values of CSV and TSV that are lists are JSON, and so
            are all of a column of Parquet for which no type holds them all.

    Raises:
        OSError: If a file cannot be read or written.
        ImportError: If pyarrow is missing, for Parquet.
    """
    files = [_part_file(folder, number) for number in range(count)]
    with written_beside(output) as path:
        match output.suffix.lower():
            case ".jsonl":
                with path.open("wb") as target:
                    for file in files:
                        with file.open("rb") as source:
                            shutil.copyfileobj(source, target)
            case ".parquet":
                _write_parquet(path, files, output)
            case ending:
                _write_separated(path, files, ending)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in open_text(file))


def _write_separated(path: Path, files: Sequence[Path], ending: str) -> None:
    columns = list(dict.fromkeys(name for file in files for row in _rows(file) for name in row))
    with path.open("w", encoding="utf-8", newline="") as target:
        writer = csv.writer(target, lineterminator="\n")
        if ending == ".csv":
            writer.writerow(columns)
        else:
            target.write("\t".join(columns) + "\n")
        for file in files:
            for row in _rows(file):
                cells = [_cell(row.get(name)) for name in columns]
                if ending == ".csv":
                    writer.writerow(cells)
                else:
                    target.write("\t".join(cells) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_parquet(path: Path, files: Sequence[Path], output: Path) -> None:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise ImportError(f"Writing {path} needs the pyarrow package: pip install pyarrow.") from error

    def type_of_all(earlier: Any, values: list[Any]) -> Any:
        """The type that holds what a column had and has; None if none does."""
        if earlier is None:
            return None
        try:
            schemas = [pyarrow.schema({"column": kind}) for kind in (earlier, pyarrow.array(values).type)]
            return pyarrow.unify_schemas(schemas, promote_options="permissive").field("column").type
        except (pyarrow.ArrowException, OverflowError):
            return None

    types: dict[str, Any] = {}
    for file in files:
        for name, values in _columns(file).items():
            types[name] = type_of_all(types.get(name, pyarrow.null()), values)
    for name in (name for name, kind in types.items() if kind is None):
        logger.warning("%s: %r has values of several kinds; they are written as text.", output, name)
    schema = pyarrow.schema({name: kind or pyarrow.string() for name, kind in types.items()})
    with ParquetWriter(path, schema) as writer:
        for file in files:
            columns, rows = _columns(file), sum(1 for _ in _rows(file))
            arrays = []
            for name, kind in types.items():
                values = columns.get(name, [None] * rows)
                if kind is None:
                    values = [None if value is None else _cell(value) for value in values]
                arrays.append(pyarrow.array(values, kind or pyarrow.string()))
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _columns(file: Path) -> dict[str, list[Any]]:
    """Column -> its value in each row of a part, None where a row has no such column."""
    rows = list(_rows(file))
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
