"""Cells of labels: one label, the names of several, or 0 and 1 for each label; the same for all data and commands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from ...files.errors import worded
from ...files.source import Source
from ..data import COLLECTIONS, TRUTH, DataRow, label_name, listed, quoted, whole_number

SEPARATORS = (",", ";", "|")  # of several labels in a text column


def one_label(row: DataRow, column: str) -> str:
    """The label in a column."""
    value = row.value(column)
    if isinstance(value, COLLECTIONS):
        raise row.invalid(
            worded("{!r} as {}; expected one label (several: {task='multilabel'})", str(value)[:40], column)
        )
    row.refuse_written_list(column, "label")
    return label_name(value)


def labels_in_columns(row: DataRow, columns: Sequence[str]) -> frozenset[str]:
    """The columns, one for each label, that contain 1."""
    values = {name: label_name(row.value(name)) for name in columns}
    for name, value in values.items():
        if value not in TRUTH:
            given = quoted(value) if row.has(name) else "an empty value"
            raise row.invalid(f"{given} as {name}; expected 0 or 1")
    return frozenset(name for name, value in values.items() if TRUTH[value])


def labels_in_cells(
    rows: Sequence[DataRow], column: str, separator: str | None, may_be_positions: bool = True
) -> tuple[list[frozenset[str]], int | None]:
    """The labels of each row, from lists or from text with a separator; and their number if they are positions.

    If all cells have 0 and 1 for each label, as simpletransformers and ktrain want them, labels are the positions of
    the 1s, from 0.
    """
    cells = [_cell(row, column, separator) for row in rows]
    bits = [cell for cell in cells if cell and TRUTH.keys() >= set(cell)]
    widths = {len(cell) for cell in cells if cell}
    # One list alone, [1, 0], might name the labels 1 and 0; not if all do so.
    if may_be_positions and len(bits) == sum(map(bool, cells)) and len(widths) == 1 and (width := widths.pop()) > 1:
        held = [frozenset(str(place) for place, bit in enumerate(cell) if TRUTH[bit]) for cell in cells]
        return held, width
    for row, cell in zip(rows, cells, strict=True):
        if len(cell) > len(set(cell)) and TRUTH.keys() >= set(cell):
            raise row.invalid(
                worded(
                    "{!r} as {}; expected names of labels, each once, or in all rows 0 and 1 for each label (or a "
                    "column for each, {label_columns})",
                    str(row.value(column))[:40],
                    column,
                )
            )
    return list(map(frozenset, cells)), None


def _cell(row: DataRow, column: str, separator: str | None) -> tuple[str, ...]:
    """What a cell lists, in its order."""
    row.refuse_written_list(column, "labels")
    value = row.value(column)
    names = value if isinstance(value, (list, tuple, set, frozenset)) else [] if value is None else [value]
    if any(name is None or isinstance(name, COLLECTIONS) for name in names):
        raise row.invalid(f"{str(value)[:40]!r} as {column}; expected a list of labels, or a text")
    if any(isinstance(name, float) and not name.is_integer() for name in names):
        raise row.invalid(f"{str(value)[:40]!r} as {column}; expected names of labels, or 0 and 1 for each")
    if isinstance(value, str):
        names = value.split(separator or SEPARATORS[0])
        if len(names) == 1 and len(digits := value.split()) > 1 and TRUTH.keys() >= set(map(label_name, digits)):
            names = digits
    return tuple(filter(None, map(label_name, names)))


def check_alike(source: str, predicted: Collection[str], true: Collection[str]) -> None:
    """Reject predictions whose labels are written otherwise than in the data: as numbers, or in capitals."""
    are_numbers = [all(whole_number(name) is not None for name in names) for names in (predicted, true)]
    missed = {name.casefold() for name in true if name not in predicted}
    written = {name for name in predicted if name not in true and name.casefold() in missed}
    if written or (predicted and true and are_numbers[0] != are_numbers[1] and set(predicted).isdisjoint(true)):
        found = f"{source} has the labels {listed(sorted(written or predicted))}, and the data {listed(sorted(true))}"
        raise ValueError(f"{found}; expected the same names in both.")


def mark_between(names: Iterable[str], source: Source | str = "The data") -> str:
    """The separator of several labels in a prediction file: a comma, unless a label contains one."""
    letters = "".join(names)
    if mark := next((mark for mark in SEPARATORS if mark not in letters), ""):
        return mark
    raise ValueError(
        f"{source} has labels with {' '.join(SEPARATORS)}: none of them could separate the labels of a prediction; "
        "expected labels without one of these characters."
    )
