"""Files of task data: tables (CSV, TSV, JSON, JSON lines, Parquet), SQuAD's JSON and CoNLL's columns, read as rows."""

import csv
import json
import logging
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import StringIO
from itertools import chain
from pathlib import Path
from typing import Any

from .errors import refuse_address
from .output import write_lines
from .text import (
    LINE_BREAKS,
    PARQUET_SUFFIX,
    SEPARATED_SUFFIXES,
    TABLE_SUFFIXES,
    content_suffix,
    open_text,
)

logger = logging.getLogger(__name__)

_MARKS = {",": "commas", ";": "semicolons", "\t": "tabs"}  # column separators, of this file type or others
_LONGEST_FIELD = 2**31 - 1  # csv's own limit, 128 KiB, is too small for long texts
_HALF_PAIR = re.compile(r"\\ud[89ab]..(?!\\ud[c-f])|(?<!\\ud[89ab]..)\\ud[c-f]..", re.IGNORECASE)
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in LINE_BREAKS if sign >= " "}  # which JSON does not escape
_HUGE_NUMBER = re.compile(r"\d{4000,}")  # Python reads integers of up to 4,300 digits
DOCUMENT_START = "-DOCSTART-"  # first word of the line that starts a document in CoNLL-2003


def read_rows(
    path: str | Path,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    skip_broken_rows: bool = False,
    literal_quotes: bool = False,
) -> list[dict[str, Any]]:
    """Read a whole table; see `stream_rows`."""
    return list(stream_rows(path, columns, encoding, skip_broken_rows, literal_quotes))


def stream_rows(
    path: str | Path,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    skip_broken_rows: bool = False,
    literal_quotes: bool = False,
) -> Iterator[dict[str, Any]]:
    """Read a table, plain or compressed, row by row; values are text, except for JSON and Parquet."""
    # `columns` are the names for a CSV or TSV file that may lack a header: a first line with one of these names is a
    # header (among CoLA's files only the test data has one). Rows are broken if they have too few or too many fields,
    # as some of GLUE's QQP. Quotes of a TSV file are part of the text with `literal_quotes`, as in GLUE's files, or
    # unless the whole file is quoted as in CSV (RFC 4180).
    refuse_address(path)
    path = Path(path)
    kind = content_suffix(path)
    if kind in SEPARATED_SUFFIXES:
        rows: Iterator[dict[str, Any]] = read_separated(path, columns, encoding, skip_broken_rows, literal_quotes)
    elif kind in (".jsonl", ".ndjson"):
        rows = (row for _, row in json_rows(path, open_text(path, encoding)))
    elif kind == ".json":
        # Held in memory if it is a list: of objects, or SQuAD's articles, which become one row per question.
        rows = _read_json(path, encoding)
    elif kind == PARQUET_SUFFIX:
        rows = read_parquet(path)
    else:
        expected = f"a {', '.join(TABLE_SUFFIXES[:-1])} or {TABLE_SUFFIXES[-1]} file"
        raise ValueError(f"{path} ends in {kind or 'nothing'}; expected {expected}.")
    is_empty = True
    for row in rows:
        is_empty = False
        yield row
    if is_empty:
        raise ValueError(f"{path} holds no rows.")


def read_conll(path: str | Path, encoding: str = "utf-8") -> list[dict[str, Any]]:
    """Read CoNLL columns: a word per line, followed by its tags, and an empty line between sentences."""
    # A sentence has `tokens`, the first column; `tags`, the last one, if there are several; `0`, `1`, ..., every
    # column by its number; and `document`, its number: `-DOCSTART-` starts one.
    path = Path(path)
    rows: list[dict[str, Any]] = []
    words: list[list[str]] = []
    document, width = 0, 0

    def end_sentence() -> None:
        if words:
            named = {str(number): list(values) for number, values in enumerate(zip(*words, strict=True))}
            tags = {"tags": named[str(width - 1)]} if width > 1 else {}
            rows.append({"tokens": named["0"], **tags, **named, "document": document})
            words.clear()

    for number, line in enumerate(open_text(path, encoding), start=1):
        if not line.strip():
            end_sentence()
            continue
        fields = line.split("\t") if "\t" in line else line.split()
        if fields[0] == DOCUMENT_START:
            end_sentence()
            document += bool(rows)
            continue
        width = width or len(fields)
        if len(fields) != width or not all(field.strip() for field in fields):
            raise ValueError(
                f"{path}, line {number}: {line[:40]!r} has {sum(bool(field.strip()) for field in fields)} fields; "
                f"expected {width} as in the first line, starting with the word."
            )
        words.append(fields)
    end_sentence()
    if not rows:
        raise ValueError(f"{path} holds no rows.")
    return rows


def is_table(path: str | Path) -> bool:
    """Whether a file's ending says that it is a table."""
    return content_suffix(path) in TABLE_SUFFIXES


def read_separated(
    path: str | Path,
    columns: Sequence[str] | None = None,
    encoding: str = "utf-8",
    skip_broken_rows: bool = False,
    literal_quotes: bool = False,
    digests: dict[str, str] | None = None,
) -> Iterator[dict[str, str]]:
    """Read a CSV or TSV file, which may have no rows, row by row, as `stream_rows`."""
    kind = content_suffix(path)
    csv.field_size_limit(_LONGEST_FIELD)
    record: list[str] = []  # lines of the current row

    number = 0  # of the last line that was read

    def lines() -> Iterator[str]:
        nonlocal number
        for line in open_text(path, encoding, digests):
            number += 1
            record.append(f"{line}\n")
            yield record[-1]

    rows: Iterator[list[str]] = csv.reader(lines())
    if kind == ".tsv":
        rows = _tab_separated(lines(), lambda: not literal_quotes and _is_quoted(path, encoding))
    header, row = columns, [""]
    is_first, skipped = True, 0

    def mistake(what: str) -> ValueError:
        if kind == ".csv" and _is_unclosed(row):  # only possible in a file's last row
            what = "not CSV (a quote is never closed)"
        return ValueError(f"{path}, line {number - len(row) + 1}: {what}.")

    try:
        for fields in rows:
            row = record.copy()
            record.clear()
            if not fields:
                continue
            if is_first:
                is_first = False
                if columns is None or not set(columns).isdisjoint(fields):
                    header = _checked_header(path, fields, kind)
                    continue
            assert header is not None
            if len(fields) == len(header):
                yield dict(zip(header, fields, strict=True))
            elif skip_broken_rows:
                skipped += 1
            else:
                raise mistake(f"{len(fields)} fields; expected {len(header)} ({_shown(header)})")
    except csv.Error as error:
        raise mistake(f"not {kind[1:].upper()} ({error})") from error
    if kind == ".csv" and _is_unclosed(row):
        raise mistake("")
    if skipped:
        logger.warning("%s: %d broken rows are left out.", path, skipped)


def _tab_separated(lines: Iterator[str], is_quoted: Callable[[], bool]) -> Iterator[list[str]]:
    """The rows of a TSV file; the first field that begins with a quote has `is_quoted` decide what quotes are."""
    rest: list[str] = []

    def without_quotes() -> Iterator[str]:
        for line in lines:
            if line.startswith('"') or '\t"' in line:
                rest.append(line)
                return
            yield line

    yield from csv.reader(without_quotes(), delimiter="\t", quoting=csv.QUOTE_NONE)
    if rest:
        lines = chain(rest, lines)
        quoted = csv.reader(lines, delimiter="\t")
        yield from quoted if is_quoted() else csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE)


def _is_quoted(path: str | Path, encoding: str) -> bool:
    """Whether all fields of a TSV file that begin with a quote are quoted as in CSV."""
    record: list[str] = []
    width = number = 0

    def lines() -> Iterator[str]:
        nonlocal number
        for line in open_text(path, encoding):
            number += 1
            record.append(line)
            yield f"{line}\n"

    try:
        for fields in csv.reader(lines(), delimiter="\t", strict=True):
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
    safe = {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in row.items()
    }
    return json.dumps(safe, ensure_ascii=False, default=_plain).translate(_ESCAPES)


def _plain(value: Any) -> Any:
    """Convert values that JSON does not support: numpy's numbers and arrays, bytes, dates."""
    if hasattr(value, "tolist"):
        return value.tolist()
    return value.decode("utf-8", errors="replace") if isinstance(value, bytes) else str(value)


def _is_unclosed(record: Sequence[str]) -> bool:
    """Whether a row ends within quotes, at the end of the file."""
    try:
        list(csv.reader(record, strict=True))
    except csv.Error as error:
        return "unexpected end of data" in str(error)
    return False


def _checked_header(path: str | Path, header: Sequence[str], kind: str) -> Sequence[str]:
    """The names of the columns."""
    if len(header) == 1:
        mark = "," if kind == ".csv" else "\t"
        other = next((sign for sign in _MARKS if sign != mark and sign in header[0]), None)
        if other is not None:
            raise ValueError(
                f"{path} has one column, {header[0][:60]!r}; expected {_MARKS[mark]} between the columns of a {kind} "
                f"file, not {_MARKS[other]}, and their names in its first line."
            )
    refuse_doubled(str(path), header)
    return header


def _shown(names: Sequence[str]) -> str:
    text = ", ".join(names)
    return text if len(text) <= 200 else f"{text[:197]}..."


def _squad_rows(path: Path, articles: Sequence[Any]) -> Iterator[dict[str, Any]]:
    try:
        for article in articles:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    row = {"id": question["id"], "question": question["question"], "context": paragraph["context"]}
                    if "answers" in question:
                        row["answers"] = question["answers"]
                    yield row | {"is_impossible": question.get("is_impossible", False)}
    except (KeyError, TypeError) as error:
        raise ValueError(
            f"{path} is not a SQuAD file ({type(error).__name__}: {error}); expected data > paragraphs > qas with id "
            "and question, and a context."
        ) from error


def _read_json(path: Path, encoding: str) -> Iterator[dict[str, Any]]:
    lines = open_text(path, encoding)
    head: list[str] = []  # up to the second non-empty line
    filled = 0
    while filled < 2 and (line := next(lines, None)) is not None:
        head.append(line)
        filled += bool(line.strip())
    if filled == 2 and _is_object(next(line for line in head if line.strip())):
        yield from (row for _, row in json_rows(path, chain(head, lines)))
        return
    content = parse_json(path, 1, "\n".join(chain(head, lines)))
    if isinstance(content, dict) and isinstance(content.get("data"), list):
        yield from _squad_rows(path, content["data"])
    elif isinstance(content, list):
        for number, value in enumerate(content, start=1):
            if not isinstance(value, dict):
                raise ValueError(f"{path}, entry {number}: a JSON {type(value).__name__}; expected an object.")
            yield value
    else:
        raise ValueError(f"{path} holds a JSON {type(content).__name__}; expected a list of objects.")


def _is_object(line: str) -> bool:
    """Whether a line alone is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except json.JSONDecodeError:
        return False
    except (ValueError, RecursionError):  # reported when the line is read
        return True


def json_rows(
    path: str | Path, lines: Iterable[str], refuse_halves: bool = True
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Parse lines of JSON, each an object, with their numbers; empty lines are left out."""
    for number, line in enumerate(lines, start=1):
        if line.strip():
            row = parse_json(path, number, line, refuse_halves)
            if not isinstance(row, dict):
                raise ValueError(f"{path}, line {number}: a JSON {type(row).__name__}; expected an object.")
            yield number, row


def parse_json(path: str | Path, number: int, text: str, refuse_halves: bool = True) -> Any:
    """Parse untrusted JSON, whose first line has a number; error messages name file and line."""

    def mistake(what: str, pattern: re.Pattern[str]) -> ValueError:
        match = pattern.search(text)
        line = number + (text.count("\n", 0, match.start()) if match else 0)
        return ValueError(f"{path}, line {line}: {what}.")

    try:
        value = json.loads(text)
        if refuse_halves and "\\u" in text:  # lone surrogates
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {number + error.lineno - 1}: not JSON ({error.msg}).") from error
    except UnicodeEncodeError as error:
        half = ord(error.object[error.start])
        raise mistake(f"half of a character pair, \\u{half:x}; expected Unicode", _HALF_PAIR) from None
    except RecursionError:
        raise ValueError(f"{path}, line {number}: nested too deeply; expected plain objects.") from None
    except ValueError:
        raise mistake("a number with thousands of digits", _HUGE_NUMBER) from None
    return value


_ROWS_AT_A_TIME = 256


def read_parquet(path: str | Path, columns: Sequence[str] | None = None) -> Iterator[dict[str, Any]]:
    """Read a Parquet file row by row; error messages name file and row."""
    refuse_address(path)
    try:
        import pyarrow
        from pyarrow.parquet import ParquetFile
    except ImportError as error:
        raise ImportError(f"Reading {path} needs the pyarrow package: pip install pyarrow.") from error
    row = 0
    try:
        # Buffered: pages are read one by one, not whole row groups.
        with ParquetFile(path, buffer_size=1 << 20) as file:
            names = file.schema_arrow.names
            for name in columns or ():
                if name not in names:
                    raise ValueError(f"{path} {lacks_column(name, names)}")
            refuse_doubled(str(path), [name for name in names if columns is None or name in columns])
            for batch in file.iter_batches(_ROWS_AT_A_TIME, columns=columns, use_threads=False):
                rows = batch.to_pylist()
                row += len(rows)
                yield from rows
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path} is not a Parquet file, or broken after row {row} ({first_line(error)}).") from error
    except UnicodeDecodeError as error:
        what = ", ".join(map(repr, columns)) if columns else "a column"
        raise ValueError(f"{path}: {what} holds bytes that are not UTF-8, after row {row}.") from error
    except OSError as error:
        raise OSError(f"{path} cannot be read as Parquet, after row {row} ({first_line(error)}).") from error


def refuse_doubled(what: str, names: Iterable[str]) -> None:
    """Reject columns with the same name: a row could hold only the last one."""
    # Unnamed columns may repeat, as they cannot be requested.
    for name, count in Counter(filter(None, names)).items():
        if count > 1:
            raise ValueError(f"{what} has {count} columns named {name[:60]!r}; expected a name for each column.")


def lacks_column(column: str, names: Sequence[str] | dict[str, Any]) -> str:
    """The message that a column is missing, with the existing ones."""
    return f"has no {column!r}, only {', '.join(map(repr, names)) or 'nothing'}; name it with --text_column."


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
