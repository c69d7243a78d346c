"""Spreadsheets (.xlsx): the rows of a sheet, read and written by openpyxl."""

import logging
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

from .errors import first_line, how_to_install
from .text import file_of

logger = logging.getLogger(__name__)

MAX_ROWS = 2**20  # of a sheet
_MAX_CHARACTERS = 2**15 - 1  # of a cell
_NO_TEXT = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\ud800-\udfff\ufffe\uffff]")  # characters that XML cannot hold
_ESCAPE = re.compile("_x([0-9A-Fa-f]{4})_")  # of a carriage return, for example
_ESCAPED = re.compile("\r|_(?=x[0-9A-Fa-f]{4}_)")  # what would be read as a line feed, or as an escape


def openpyxl_for(path: str | Path) -> Any:
    """The library, which a spreadsheet needs."""
    try:
        import openpyxl
    except ImportError as error:
        raise ImportError(f"{path} needs the package openpyxl: {how_to_install('excel')} ({error}).") from error
    return openpyxl


def read_sheet(path: str) -> Iterator[list[Any]]:
    """The rows of a sheet, from its first one: the one that is named (`file_of`), or the first visible one."""
    # A row ends at its last filled cell; empty rows are rows, except those at the end. Whole numbers are integers,
    # dates are text (ISO 8601), formulas their last results, errors such as #N/A None. Of merged cells only the first
    # is filled.
    openpyxl = openpyxl_for(path)
    file = file_of(path)
    name = path[len(file) + 1 :]
    with Path(file).open("rb") as stream:
        with _broken(lambda: f"{file} is not an .xlsx file, or it is broken or has a password"):
            _check_compression(stream)
            book = openpyxl.load_workbook(stream, read_only=True, data_only=True)
        sheets = {sheet.title: sheet for sheet in book.worksheets if name or sheet.sheet_state == "visible"}
        name = name or next(iter(sheets), "")
        if name not in sheets:
            known = ", ".join(map(repr, sheets))
            raise ValueError(f"{file} has no {name!r}, only {known}; expected one of its sheets.")
        if path == file and len(sheets) > 1:
            others = ", ".join(f"{file}:{other}" for other in list(sheets)[1:4])
            logger.info("%s: the sheet %r is read; others are %s.", file, name, others)
        sheets[name].reset_dimensions()  # some programs write wrong ones
        empty = 0
        for row in _rows(f"{file}:{name}", sheets[name]):
            values = list(map(_value, row))
            while values and values[-1] is None:
                values.pop()
            if not values:
                empty += 1
                continue
            yield from ([] for _ in range(empty))
            empty = 0
            yield values


def _rows(where: str, sheet: Any) -> Iterator[Any]:
    number = 0
    with _broken(lambda: f"{where} is broken after row {number}"):
        for row in sheet.iter_rows():
            yield row
            number += 1


def _check_compression(stream: IO[bytes]) -> None:
    """Reject (ValueError) what no spreadsheet has, and what asks for gigabytes: LZMA, parts larger than the file."""
    size = stream.seek(0, os.SEEK_END)
    with ZipFile(stream) as archive:
        for entry in archive.infolist():
            if entry.compress_type not in (ZIP_STORED, ZIP_DEFLATED) or entry.compress_size > size:
                raise ValueError("it is compressed in another way than spreadsheets are")
    stream.seek(0)


@contextmanager
def _broken(message: Callable[[], str]) -> Iterator[None]:
    """Explain errors of openpyxl, which broken files can make raise any exception."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:
        kind = OSError if isinstance(error, OSError) else ValueError
        raise kind(f"{message()} ({first_line(error)}).") from error


def _value(cell: Any) -> Any:
    value = cell.value
    if cell.data_type == "e":
        return None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), value) or None
    return value if value is None or isinstance(value, (int, float)) else str(value).removesuffix(" 00:00:00")


def fits_cell(text: str) -> bool:
    """Whether a cell can hold a text."""
    return len(_escaped(text)) <= _MAX_CHARACTERS and not _NO_TEXT.search(text)


def _escaped(value: Any) -> Any:
    """The value of a cell from which `_value` reads the same text."""
    return _ESCAPED.sub(lambda found: f"_x{ord(found[0]):04X}_", value) if isinstance(value, str) else value


def write_sheet(path: Path, rows: Iterable[Sequence[Any]]) -> None:
    """Write texts, numbers and truth values as the only sheet of a spreadsheet; no text is a formula."""
    openpyxl = openpyxl_for(path)
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    scratch, tempfile.tempdir = tempfile.tempdir, str(path.parent)  # for the file in which openpyxl collects rows
    try:
        for row in rows:
            cells = [openpyxl.cell.WriteOnlyCell(sheet, _escaped(value)) for value in row]
            for cell in cells:
                if isinstance(cell.value, str):
                    cell.data_type = "s"  # also of "=1+1" and "#N/A"
            sheet.append(cells)
        sheet.close()
        with ZipFile(path, "w", ZIP_DEFLATED) as archive:
            openpyxl.writer.excel.ExcelWriter(book, archive).save()
    finally:  # what is not closed would raise a second error when it is collected
        tempfile.tempdir = scratch
        if not sheet.closed:
            with suppress(Exception):
                sheet.close()
