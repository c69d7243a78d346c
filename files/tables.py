"""Files of task data: tables (CSV, TSV, JSON, Parquet, Excel) and SQuAD's JSON, read as rows."""

import codecs
import csv
import json
import logging
import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from io import StringIO
from itertools import chain, islice, takewhile, tee, zip_longest
from pathlib import Path
from typing import Any

from .errors import Wording, abbreviated, first_line, worded
from .output import write_lines
from .spreadsheets import openpyxl_for, read_sheet
from .text import (
    HEADER_AGAIN,
    JSON_SUFFIXES,
    LINE_BREAKS,
    PARQUET_SUFFIX,
    SEPARATED_SUFFIXES,
    SPREADSHEET_SUFFIX,
    TABLE_SUFFIXES,
    content_suffix,
    file_of,
    has_byte_order_mark,
    is_object,
    open_text,
)

logger = logging.getLogger(__name__)

_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}  # column separators
_LONGEST_FIELD = 2**31 - 1  # csv's own limit, 128 KiB, is too small for long texts
_FIELD_SIZE_LIMIT = threading.RLock()  # held while csv's limit is changed
_ROWS_AT_A_TIME = 256  # of Parquet
_LINES_OF_STYLE = 1000  # in which a file's decimal sign is looked for
_LINES_OF_HEAD = 200  # in which the first two rows are looked for
_DECIMAL = re.compile(r"\s*[-+]?\d*([.,])\d+\s*")
_DECLARATION = re.compile(r"""\s*"?sep=([^\w"\s]|\t)"?\1*\s*""", re.IGNORECASE)  # quoted, or padded, if written again
_HALF_PAIR = re.compile(r"\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]..", re.IGNORECASE)
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in LINE_BREAKS if sign >= " "}  # which JSON does not escape
_TAG = re.compile(r"[BIO]|[BIES]-\S+|\S+-[BIES]")
_BACKSLASH = re.compile(r"""\\"[^",;|\s]""")  # before a quote within text, as Spark and MySQL write it
_HUGE_NUMBER = re.compile(r"\d{4000,}")  # Python reads integers of up to 4,300 digits
_SQUAD = "expected SQuAD's format: data > paragraphs > context, and qas with question and answers"


@dataclass(frozen=True)
class Reading:
    """How rows are read; what does not concern a source, or the format of its file, is ignored."""

    column: str | None = None  # only this one is read, as text for a corpus: JSON is lines, which hold any Unicode
    encoding: str = "utf-8"
    # The names for a CSV or TSV file that may lack a header: a first line with one of these names is a header (among
    # CoLA's files only the test data has one).
    columns: Sequence[str] | None = None
    skip_broken_rows: bool = False  # those of a CSV or TSV file with too few or too many fields, as some of GLUE's QQP
    # Quotes of a TSV file are part of the text, as in GLUE's files, even if the whole file is quoted as in CSV.
    literal_quotes: bool = False
    conll: bool = False  # whether words are tagged: files without the ending of a table hold CoNLL columns
    names: Sequence[str] = ()  # of the columns of words and tags, see `conll`
    class_names: bool | None = None  # classes of a data set become text: names or numbers; None leaves them
    # Makes a row of a line of plain text, or of an item in memory that is no dictionary; None if it is `expected`.
    as_row: Callable[[Any], dict[str, Any] | None] | None = None
    expected: str = "a dictionary"


USUAL = Reading()


def read_table(path: str, reading: Reading, digests: dict[str, str] | None = None) -> Iterator[dict[str, Any]]:
    """Read a table, plain or compressed, row by row; values are text, except for JSON, Parquet and spreadsheets."""
    kind = content_suffix(path)
    if kind in SEPARATED_SUFFIXES or (reading.conll and kind not in TABLE_SUFFIXES):
        return _read_separated(path, reading, digests)
    if kind == PARQUET_SUFFIX:
        return _read_parquet(path, reading.column)
    if kind == SPREADSHEET_SUFFIX:
        return _read_spreadsheet(path, reading.column)
    if kind not in JSON_SUFFIXES:
        expected = f"a {', '.join(TABLE_SUFFIXES[:-1])} or {TABLE_SUFFIXES[-1]} file"
        advice = worded("[ ({task='ner'} reads words with tags)]") if kind.startswith(".conll") else ""
        raise ValueError(worded("{} ends in {}; expected {}{}.", path, kind or "nothing", expected, advice))
    lines = open_text(path, reading.encoding, digests)
    if reading.column:
        return json_rows(path, lines, reading.column)
    return question_rows(path, _read_json(path, lines) if kind == ".json" else json_rows(path, lines))


def _read_separated(path: str, reading: Reading, digests: dict[str, str] | None) -> Iterator[dict[str, str]]:
    kind = content_suffix(path)
    usual = "," if kind == ".csv" else "\t"
    # `number` is that of the last line that was read.
    mark, number, text = separator_of(open_text(path, reading.encoding, digests), usual)
    if reading.columns is not None and not number:
        mark = usual
    is_over = False  # whether all lines were read
    escaped: list[int] = []  # lines with a backslash before a quote

    def lines() -> Iterator[str]:
        nonlocal number, is_over
        for line in text:
            number += 1
            if '\\"' in line and _BACKSLASH.search(line):
                escaped.append(number)
            yield f"{line}\n"
        is_over = True
        yield ""  # a row without fields, unless a quote is not closed

    if kind == ".csv" or mark != usual:
        rows = _split_lines(lines(), delimiter=mark)
    else:
        rows = _tab_separated(lines(), lambda: not reading.literal_quotes and _is_quoted(path, reading.encoding))
    header = reading.columns
    header_fields: list[str] = []  # the fields of the header, if the file has one
    is_first, skipped, empty = True, 0, 0
    following = number + 1  # the first line of the next row

    def invalid(line: int, what: str) -> ValueError:
        return ValueError(f"{path}, line {line}: {what}.")

    try:
        for fields in rows:
            first, following = following, number + 1
            if not fields:
                empty += 1
                continue
            if is_over:
                raise invalid(first, "not CSV (a quote is never closed)")
            if is_first:
                is_first, empty = False, 0
                if header is None or not set(header).isdisjoint(fields):
                    header_fields, header = fields, _checked_header(path, [name.strip() for name in fields], usual)
                    if reading.column is not None and reading.column not in header:
                        raise ValueError(lacks_column(path, reading.column, header))
                    continue
            assert header is not None
            if fields == header_fields and len(fields) > 1:  # a column may have its name as a text
                raise invalid(first, HEADER_AGAIN)
            if len(header) == 1:  # spreadsheets write an empty cell as an empty line, which is no row at the end
                yield from ({header[0]: ""} for _ in range(empty))
            empty = 0
            if len(fields) == len(header):
                yield dict(zip(header, fields, strict=True))
            elif reading.skip_broken_rows:
                skipped += 1
            else:
                names = abbreviated(", ".join(header), 200)
                raise invalid(first, f"{len(fields)} fields; expected {len(header)} ({names})")
    except csv.Error as error:
        raise invalid(following, f"not {kind[1:].upper()} ({error})") from error
    if escaped and kind == ".csv":
        template = (
            "%s: %d lines, such as line %d, have a backslash before a quote; CSV doubles a quote within a cell, so "
            "their texts may have lost quotes."
        )
        logger.warning(template, path, len(escaped), escaped[0])
    if skipped:
        logger.warning("%s: %d broken rows are left out.", path, skipped)


def _split_lines(lines: Iterable[str], **dialect: Any) -> Iterator[list[str]]:
    """The rows of `csv.reader`, for fields of any length; the limit is the whole process's, so it changes briefly."""
    rows = csv.reader(lines, **dialect)
    while True:
        with _FIELD_SIZE_LIMIT:
            before = csv.field_size_limit(_LONGEST_FIELD)
            try:
                fields = next(rows)
            except StopIteration:
                return
            finally:
                csv.field_size_limit(before)
        yield fields


def _tab_separated(lines: Iterator[str], is_quoted: Callable[[], bool]) -> Iterator[list[str]]:
    """The rows of a TSV file; the first field that begins with a quote has `is_quoted` decide what quotes are."""
    rest: list[str] = []

    def without_quotes() -> Iterator[str]:
        for line in lines:
            if line.startswith('"') or '\t"' in line:
                rest.append(line)
                return
            yield line

    yield from _split_lines(without_quotes(), delimiter="\t", quoting=csv.QUOTE_NONE)
    if rest:
        lines = chain(rest, lines)
        yield from _split_lines(lines, delimiter="\t", quoting=csv.QUOTE_MINIMAL if is_quoted() else csv.QUOTE_NONE)


def _is_quoted(path: str, encoding: str) -> bool:
    """Whether all fields of a TSV file that begin with a quote are quoted as in CSV."""
    record: list[str] = []
    _, number, text = separator_of(open_text(path, encoding), "\t")
    width = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for line in text:
            number += 1
            record.append(line)
            yield f"{line}\n"

    try:
        for fields in _split_lines(lines(), delimiter="\t", strict=True):
            width = width or len(fields)
            # Lines that are rows by themselves would be joined: two quotes begin and end fields by chance.
            if len(record) > 1 and all(line.count("\t") == width - 1 for line in record):
                if width == 1:
                    raise ValueError(
                        f"{path}, line {number - len(record) + 1}: a quote opens here and closes in line {number}; "
                        "expected a .csv file for texts of several lines, or a .txt file for texts with quotes."
                    )
                break
            if fields and len(fields) != width:
                break
            record.clear()
        else:
            return True
    except csv.Error:
        pass
    logger.info("%s: quotes are part of the text, as line %d is not quoted as in CSV.", path, number)
    return False


@dataclass(frozen=True)
class CsvStyle:
    """How a CSV file is written."""

    mark: str = ","  # between columns
    decimal_sign: str = "."
    encoding: str = "utf-8"  # or utf-8-sig, with a byte-order mark


USUAL_STYLE = CsvStyle()


def style_of(path: str, encoding: str) -> CsvStyle:
    """The style of a CSV file in UTF-8; with a byte-order mark if it has one, or is not in UTF-8."""
    is_plain = codecs.lookup(encoding).name == "utf-8" and not has_byte_order_mark(file_of(path))
    style = CsvStyle(encoding="utf-8" if is_plain else "utf-8-sig")
    if content_suffix(path) != ".csv":
        return style
    mark, _, lines = separator_of(open_text(path, encoding), ",")
    if mark != ";":  # decimal commas would be separators, or in quotes
        return replace(style, mark=mark)
    rows = _split_lines(islice(lines, _LINES_OF_STYLE), delimiter=mark)
    signs = {match[1] for row in rows for value in row if (match := _DECIMAL.fullmatch(value))}
    return replace(style, mark=mark, decimal_sign="," if signs == {","} else ".")


def separated_line(cells: Sequence[str], mark: str) -> str:
    """A line of a CSV or TSV file, in quotes whatever a reader could take for a separator, a quote or a line's end."""
    line = StringIO()
    csv.writer(line, delimiter=mark, lineterminator=LINE_BREAKS).writerow(cells)  # which quotes these characters
    return line.getvalue().removesuffix(LINE_BREAKS)


def write_separated(path: Path, rows: Iterable[Sequence[str]]) -> None:
    """Write a CSV or TSV file, by its ending, completely or not at all."""
    write_lines(path, [separated_line(row, "," if content_suffix(path) == ".csv" else "\t") for row in rows])


def json_line(row: Mapping[str, Any]) -> str:
    """A row as a line of JSON; NaN and infinity are null, dates and the like are text."""
    try:
        line = json.dumps(row, ensure_ascii=False, default=_plain, allow_nan=False)
    except ValueError:
        finite = json.loads(json.dumps(row, default=_plain), parse_constant=lambda name: None)
        line = json.dumps(finite, ensure_ascii=False)
    return line.translate(_ESCAPES)


def json_values(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The row that is read from its `json_line`."""
    for name, value in row.items():
        is_same = type(value) in (str, int, bool, type(None)) or (type(value) is float and math.isfinite(value))
        if type(name) is not str or not is_same:
            values: dict[str, Any] = json.loads(json_line(row))
            return values
    return row


def _plain(value: Any) -> Any:
    """Convert values that JSON does not support: numpy's numbers and arrays, bytes, dates."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def separator_of(lines: Iterator[str], usual: str) -> tuple[str, int, Iterator[str]]:
    """The separator of columns; the number of lines that declare it (Excel's `sep=;`); and the lines below these.

    Undeclared it is the usual one, unless only another divides the header, and the next row alike.
    """
    filled, lines = until_filled(lines, 1)
    if filled and (match := _DECLARATION.fullmatch(filled[0])):
        return match[1], 1 + sum(1 for _ in takewhile(filled[0].__ne__, lines)), lines
    with suppress(csv.Error):  # which is reported when the row is read
        for mark in (usual, *_MARKS):
            lines, head = tee(lines)
            filled_lines = filter(str.strip, islice(head, _LINES_OF_HEAD))
            rows = islice(_split_lines(filled_lines, delimiter=mark), 2)  # a row may have several lines
            widths = [len(fields) for fields in rows]
            if widths and widths[0] > 1 and (mark == usual or len(set(widths)) == 1):
                return mark, 0, lines
    return usual, 0, lines


def _checked_header(path: str, header: Sequence[str], mark: str) -> Sequence[str]:
    """The names of the columns."""
    if len(header) == 1 and (other := next((sign for sign in _MARKS if sign != mark and sign in header[0]), None)):
        raise ValueError(
            f"{path} has one column, {header[0][:60]!r}; expected {_MARKS[mark]} between the columns, or "
            f"{_MARKS[other]} in every row, and their names in its first line."
        )
    refuse_doubled(path, header)
    return header


def question_rows(name: str, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """The rows, and of SQuAD's articles (`paragraphs`) and paragraphs (`context`, `qas`) a row for each question."""
    # simpletransformers writes paragraphs without articles; cdQA's questions have no id.
    for number, row in enumerate(rows, start=1):
        where, paragraphs = f"{name}, entry {number}", row.get("paragraphs")
        if isinstance(row.get("qas"), list) and "context" in row:
            yield from _questions(where, row)
        elif isinstance(paragraphs, list) and any(isinstance(each, dict) and "qas" in each for each in paragraphs):
            for paragraph in paragraphs:
                yield from _questions(where, paragraph)
        else:
            yield row


def _questions(where: str, paragraph: Any) -> Iterator[dict[str, Any]]:
    """A row for each question of a paragraph."""
    paragraph = paragraph if isinstance(paragraph, dict) else {}
    questions = paragraph.get("qas")
    if not isinstance(paragraph.get("context"), str) or not isinstance(questions, list):
        raise ValueError(f"{where}: a paragraph without context or qas; {_SQUAD}.")
    for question in questions:
        if not isinstance(question, dict) or not isinstance(question.get("question"), str):
            raise ValueError(f"{where}: one of qas without a question; {_SQUAD}.")
        given = {key: question[key] for key in ("id", "answers") if key in question}
        row = {"question": question["question"], "context": paragraph["context"], **given}
        yield row | {"is_impossible": question.get("is_impossible", False)}


def until_filled(lines: Iterator[str], count: int) -> tuple[list[str], Iterator[str]]:
    """The first lines that are not empty, up to `count` of them, and all lines."""
    head: list[str] = []
    filled: list[str] = []
    while len(filled) < count and (line := next(lines, None)) is not None:
        head.append(line)
        filled += [line] if line.strip() else []
    return filled, chain(head, lines)


def _read_json(path: str, lines: Iterator[str]) -> Iterator[dict[str, Any]]:
    """Read lines of objects, or a list of objects in memory, perhaps under `data`, as in SQuAD's files."""
    filled, lines = until_filled(lines, 2)
    if len(filled) == 2 and is_object(filled[0]):
        yield from json_rows(path, lines)
        return
    content = parse_json(path, 1, "\n".join(lines))
    where = path
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        content, where = content["data"], f"{path}, data"
    if not isinstance(content, list):
        raise ValueError(
            f"{path} holds a JSON {type(content).__name__}; expected a list of objects, or an object with such a list "
            "as data (pandas: orient='records')."
        )
    for number, value in enumerate(content, start=1):
        if not isinstance(value, dict):
            found = f"{where}, entry {number}: a JSON {type(value).__name__}"
            raise ValueError(f"{found}; expected an object (pandas: orient='records').")
        yield value


def json_rows(path: str, lines: Iterable[str], column: str | None = None) -> Iterator[dict[str, Any]]:
    """Parse lines of JSON, each an object; empty ones are left out, or None if only a column is read."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            # Lone surrogates of a corpus are replaced when the text is encoded.
            row = parse_json(path, number, line, refuse_halves=column is None)
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: a JSON {type(row).__name__}; expected an object.")
            yield row
        elif column is not None:
            yield {column: None}


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; a KeyError if it has a name twice, of which it could hold only the last value."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise KeyError(next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1))
    return value


_DECODER = json.JSONDecoder(object_pairs_hook=_object)


def parse_json(path: str | Path, number: int, text: str, refuse_halves: bool = True) -> Any:
    """Parse untrusted JSON, whose first line has a number; error messages name file and line."""

    def invalid(what: str, pattern: re.Pattern[str]) -> ValueError:
        match = pattern.search(text)
        line = number + (text.count("\n", 0, match.start()) if match else 0)
        return ValueError(f"{path}, line {line}: {what}.")

    try:
        value = _DECODER.decode(text)
        if refuse_halves and "\\u" in text:  # lone surrogates
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number + error.lineno - 1}: not JSON ({error.msg}).") from error
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise invalid(f"half of a character pair, \\u{half:x}; expected Unicode", _HALF_PAIR) from None
    except KeyError as error:
        where = path if "\n" in text else f"{path}, line {number}"
        raise ValueError(f"{where}: an object has {error.args[0][:60]!r} twice; expected each name once.") from None
    except RecursionError:
        raise ValueError(f"{path}, line {number}: nested too deeply; expected plain objects.") from None
    except ValueError:
        raise invalid("a number with thousands of digits", _HUGE_NUMBER) from None
    return value


def pyarrow_for(path: str | Path) -> Any:
    """The library, which a Parquet file needs."""
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError(f"{path} needs the package pyarrow: pip install pyarrow ({error}).") from error
    return pyarrow


LIBRARIES: dict[str, Callable[[str | Path], Any]] = {PARQUET_SUFFIX: pyarrow_for, SPREADSHEET_SUFFIX: openpyxl_for}
"""By ending, what raises `ImportError` if the library that such a file needs is not installed."""


def _read_parquet(path: str, column: str | None) -> Iterator[dict[str, Any]]:
    pyarrow = pyarrow_for(path)
    columns, row = None if column is None else [column], 0
    try:
        # Buffered: pages are read one by one, not whole row groups.
        with pyarrow.parquet.ParquetFile(path, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            if column is not None and column not in names:
                raise ValueError(lacks_column(path, column, names))
            refuse_doubled(path, names if column is None else filter(column.__eq__, names))
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns, use_threads=False):
                rows = batch.to_pylist()
                row += len(rows)
                yield from rows
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file, or broken after row {row} ({first_line(error)}).") from error
    except UnicodeDecodeError as error:
        what = "a column" if column is None else repr(column)
        raise ValueError(f"{path}: {what} holds bytes that are not UTF-8, after row {row}.") from error
    except OSError as error:
        raise OSError(f"{path} cannot be read as Parquet, after row {row} ({first_line(error)}).") from error


def _read_spreadsheet(path: str, column: str | None) -> Iterator[dict[str, Any]]:
    """Read a sheet whose first row has the names of the columns; a single column is text."""
    rows = read_sheet(path)
    names = next(rows, [])
    header = ["" if name is None else str(name).strip() for name in names]
    refuse_doubled(path, header)
    if column is not None and column not in header:
        raise ValueError(lacks_column(path, column, header))
    for number, row in enumerate(rows, start=2):
        if len(row) > len(header):
            what = f"{len(row)} columns; expected {len(header)}, each with a name in row 1"
            raise ValueError(f"{path}, row {number}: {what} ({abbreviated(', '.join(header), 200)}).")
        if row == names and len(names) > 1:
            raise ValueError(f"{path}, row {number}: {HEADER_AGAIN}.")
        values = dict(zip_longest(header, row))
        if column is not None:
            values = {column: None if values[column] is None else str(values[column])}
        yield values


def refuse_doubled(what: str, names: Iterable[str]) -> None:
    """Reject columns with the same name: a row could hold only the last one."""
    # Unnamed columns may repeat, as they cannot be requested.
    for name, count in Counter(filter(None, names)).items():
        if count > 1:
            raise ValueError(f"{what} has {count} columns named {name[:60]!r}; expected a name for each column.")


def value_at(row: Mapping[str, Any], name: str) -> Any:
    """The value of a column, or of one in an object, such as `review.text`; a KeyError if there is none."""
    if name in row:
        return row[name]
    value: Any = row
    for part in name.split("."):
        if value is None:
            break
        if not isinstance(value, Mapping):
            raise KeyError(name)
        value = value[part]
    return value


def names_in(row: Mapping[str, Any]) -> list[str]:
    """The names of columns; of an object those of its parts, such as `review.text`."""
    names = []
    for name, value in row.items():
        parts = names_in(value) if isinstance(value, Mapping) else []
        names += [f"{name}.{part}" for part in parts] or [str(name)]
    return names


_MAX_NAMES, LONGEST_NAME = 12, 40  # columns in messages, and characters of a name
ALIKE_COLUMNS = 0.75  # of which another one is suggested, see `Wording`


def shown_columns(row: Mapping[str, Any]) -> str:
    """The names of a row's columns, for messages."""
    names = list(filter(None, names_in(row)))  # an unnamed column cannot be requested
    shown = [repr(name[:LONGEST_NAME]) for name in names[:_MAX_NAMES]]
    return ", ".join(shown) + (", ..." if len(names) > _MAX_NAMES else "")


def lacking_columns(source: str, row: Mapping[str, Any], columns: Mapping[str, str]) -> Wording:
    """The message that columns are missing, with those of a row; `columns` maps each to the setting that names it."""
    template = "{} has no column{} {}; its columns are {}; choose which to read with {}{}."
    settings = _enumerated([f"{{{setting}='NAME'}}" for setting in dict.fromkeys(columns.values())])
    missing, shown = _enumerated(list(map(repr, columns))), shown_columns(row)
    advice = _other_task(row) if "text_column" in columns.values() and "tokens" not in columns else ""
    values = (source, "s" * (len(columns) > 1), missing, shown, worded(settings), advice)
    return worded(template, *values, unknown=[*columns], known=names_in(row), alike=ALIKE_COLUMNS)


def _other_task(row: Mapping[str, Any]) -> str:
    """The task that reads columns of questions, or a table whose header is a word or sentence with its tags."""
    names = [str(name) for name in row]
    if {"question", "context"} <= {*names}:
        return worded("[; {task='question_answering'} reads questions with their contexts]")
    if len(names) > 1 and (tags := names[-1].split()) and all(map(_TAG.fullmatch, tags)):
        return worded("[; {task='ner'} reads words with tags]")
    return ""


def _enumerated(parts: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def lacks_column(source: object, column: str, names: Sequence[str] | Mapping[str, Any]) -> Wording:
    """The message that a column is missing, with the existing ones."""
    names = names_in(names) if isinstance(names, Mapping) else names
    template = "{} has no {!r}, only {}; rename it[, or pass {text_column}]."
    there = ", ".join(map(repr, names)) or "nothing"
    return worded(template, source, column, there, unknown=[column], known=names, alike=ALIKE_COLUMNS)
