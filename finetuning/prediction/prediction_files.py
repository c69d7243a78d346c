"""Writing predictions: in parts that survive an interruption, merged in the format of the file's ending."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from ...files import json_line, locked, open_text, separated_line, write_text, written_beside
from ...files.text import LINE_BREAKS, new_digest
from ..data.rows import new_name

OUTPUT_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet")

logger = logging.getLogger(__name__)

_PART = "predictions-{:08d}.jsonl"  # a head, and a line for each row: [columns of the data, prediction]


class PartHead(NamedTuple):
    """Description of a part of the predictions."""

    digest: str  # of its rows, see `digest_of`
    columns: Sequence[str]  # those of the data that its rows keep
    cut: int  # truncated texts
    windowed: int  # texts read in windows


def digest_of(rows: Iterable[Mapping[str, Any]]) -> str:
    """The digest that identifies rows of the data."""
    digest = new_digest()
    for row in rows:
        digest.update(f"{json_line(row)}\n".encode())
    return digest.hexdigest()


def _part_file(folder: Path, number: int) -> Path:
    return folder / _PART.format(number)


def any_part(folder: Path) -> bool:
    """Whether any part has been written."""
    return any(folder.glob("predictions-*.jsonl"))


def part_head(folder: Path, number: int) -> PartHead | None:
    """The head of a part; None if the part has not been written. Written parts are complete."""
    file = _part_file(folder, number)
    return PartHead(*json.loads(next(open_text(file)))) if file.is_file() else None


def write_part(
    folder: Path,
    number: int,
    head: PartHead,
    rows: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]],
    output: Path,
) -> None:
    """Write a part, kept columns and prediction of each row, completely or not at all."""
    lines = [f"[{json_line(kept)}, {json_line(answer)}]" for kept, answer in rows]
    # Now, not at the end: a TSV file cannot hold tabs or line breaks in values.
    if output.suffix.lower() == ".tsv":
        for row in chain.from_iterable(map(json.loads, lines)):
            _refuse_breaks(row, output)
    write_text(_part_file(folder, number), "".join(f"{line}\n" for line in (json.dumps(head), *lines)))


def output_row(kept: Mapping[str, Any], answer: Mapping[str, Any], columns: Collection[str]) -> dict[str, Any]:
    """A row of the output; predicted columns get other names than the `columns` of the data."""
    return {**kept, **{new_name(name, columns): value for name, value in answer.items()}}


def _refuse_breaks(row: Mapping[str, Any], output: Path) -> None:
    for name, value in row.items():
        for text, what in ((name, "the name of a column"), (_cell(value), name)):
            if any(sign in text for sign in f"\t{LINE_BREAKS}"):
                raise ValueError(
                    f"{output}: {text[:40]!r} as {what} has a tab or line break, which a .tsv file cannot hold; "
                    "expected an output that ends in .csv, .jsonl or .parquet."
                )


def merge_parts(folder: Path, count: int, output: Path) -> None:
    """Merge the parts in order, and delete their folder; the output's ending is one of `OUTPUT_ENDINGS`."""
    files = [_part_file(folder, number) for number in range(count)]
    heads = [PartHead(*json.loads(next(open_text(file)))) for file in files]
    columns = {name for head in heads for name in head.columns}

    def rows_of_part(file: Path) -> Iterator[dict[str, Any]]:
        lines = islice(open_text(file), 1, None)
        return (output_row(kept, answer, columns) for kept, answer in map(json.loads, lines))

    parts = [partial(rows_of_part, file) for file in files]
    with locked(output):
        with written_beside(output) as path:
            match output.suffix.lower():
                case ".jsonl":
                    with path.open("w", encoding="utf-8", newline="") as target:
                        target.writelines(f"{json_line(row)}\n" for rows in parts for row in rows())
                case ".parquet":
                    _write_parquet(path, parts, output)
                case ending:
                    _write_separated(path, parts, ending)
        folder.rename(path)  # to the name of what is incomplete: if this call is killed now, the next lock removes it
        shutil.rmtree(path)


_Part = Callable[[], Iterator[dict[str, Any]]]  # each call yields its rows from the start


def _write_separated(path: Path, parts: Sequence[_Part], ending: str) -> None:
    columns = list(dict.fromkeys(name for rows in parts for row in rows() for name in row))
    rows = chain.from_iterable(rows() for rows in parts)
    cells = ([_cell(row.get(name)) for name in columns] for row in rows)
    with path.open("w", encoding="utf-8", newline="") as target:
        mark = "," if ending == ".csv" else "\t"
        target.writelines(f"{separated_line(line, mark)}\n" for line in chain([columns], cells))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_parquet(path: Path, parts: Sequence[_Part], output: Path) -> None:
    try:
        import pyarrow
        from pyarrow.parquet import ParquetWriter
    except ImportError as error:
        raise ImportError(f"Writing {path} needs the pyarrow package: pip install pyarrow.") from error

    def type_of_all(earlier: Any, values: list[Any]) -> Any:
        """The common type of earlier and new values of a column; None if there is none."""
        if earlier is None:
            return None
        try:
            schemas = [pyarrow.schema({"column": kind}) for kind in (earlier, pyarrow.array(values).type)]
            return pyarrow.unify_schemas(schemas, promote_options="permissive").field("column").type
        except (pyarrow.ArrowException, OverflowError):
            return None

    types: dict[str, Any] = {}
    for rows in parts:
        for name, values in _columns(list(rows())).items():
            types[name] = type_of_all(types.get(name, pyarrow.null()), values)
    for name in (name for name, kind in types.items() if kind is None):
        logger.warning("%s: %r has values of several kinds; they are written as text.", output, name)
    schema = pyarrow.schema({name: kind or pyarrow.string() for name, kind in types.items()})
    with ParquetWriter(path, schema) as writer:
        for rows in parts:
            given = list(rows())
            columns = _columns(given)
            arrays = []
            for name, kind in types.items():
                values = columns.get(name, [None] * len(given))
                if kind is None:
                    values = [None if value is None else _cell(value) for value in values]
                arrays.append(pyarrow.array(values, kind or pyarrow.string()))
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _columns(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """For each column its values in the rows of a part, None where a row lacks it."""
    return {name: [row.get(name) for row in rows] for name in dict.fromkeys(chain.from_iterable(rows))}
