"""Predictions on the way to a file: parts that outlive a kill, put together in the format of the file's ending."""

from __future__ import annotations

import csv
import json
import math
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..files import open_text, write_text, written_beside

OUTPUT_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")

_PART = "predictions-{:08d}.jsonl"


def part_file(folder: Path, number: int) -> Path:
    """The file of a part of the rows; it is there only if it is whole."""
    return folder / _PART.format(number)


def write_part(folder: Path, number: int, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write a part, whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    write_text(part_file(folder, number), "".join(f"{json_line(row)}\n" for row in rows))


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
        output: The file; its ending is one of `OUTPUT_ENDINGS`. Values of CSV and TSV that are lists are JSON.

    Raises:
        ValueError: If a value has a tab or line break in it, which a TSV file cannot hold.
        OSError: If a file cannot be read or written.
        ImportError: If pyarrow is missing, for Parquet.
    """
    files = [part_file(folder, number) for number in range(count)]
    with written_beside(output) as path:
        match output.suffix.lower():
            case ".jsonl":
                with path.open("wb") as target:
                    for file in files:
                        with file.open("rb") as source:
                            shutil.copyfileobj(source, target)
            case ".parquet":
                _write_parquet(path, files)
            case ending:
                _write_separated(path, files, output, ending)


def _rows(file: Path) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in open_text(file))


def _write_separated(path: Path, files: Sequence[Path], output: Path, ending: str) -> None:
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
                    continue
                for name, cell in zip(columns, cells, strict=True):
                    if any(sign in cell for sign in "\t\n\r"):
                        raise ValueError(
                            f"{output}: {cell[:40]!r} as {name} has a tab or line break, which no .tsv file holds; "
                            "expected an output that ends in .csv, .jsonl or .parquet."
                        )
                target.write("\t".join(cells) + "\n")


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_parquet(path: Path, files: Sequence[Path]) -> None:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise ImportError(f"Writing {path} needs the pyarrow package: pip install pyarrow.") from error
    schemas = (pyarrow.Table.from_pylist(list(_rows(file))).schema for file in files)
    schema = next(schemas)
    for other in schemas:
        schema = pyarrow.unify_schemas([schema, other], promote_options="permissive")
    with ParquetWriter(path, schema) as writer:
        for file in files:
            writer.write_table(pyarrow.Table.from_pylist(list(_rows(file)), schema=schema))
