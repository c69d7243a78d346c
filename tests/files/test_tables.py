import csv
import gzip
import io
import json
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from mybert.files import text
from mybert.files.source import FileSource, read_rows
from mybert.files.tables import CsvStyle, json_line, style_of, value_at, write_separated
from mybert.finetuning import TASKS
from mybert.finetuning.data import rows_of
from mybert.finetuning.tasks import steps


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'text,label\n"a, ""b""\nc",x\nd,y\n'),
        ("t.jsonl", '{"text": "a, \\"b\\"\\nc", "label": "x"}\n\n{"text": "d", "label": "y"}\n'),
        ("t.json", '{"text": "a, \\"b\\"\\nc", "label": "x"}\n\n{"text": "d", "label": "y"}\n'),
        ("t.json", '[{"text": "a, \\"b\\"\\nc", "label": "x"},\n {"text": "d", "label": "y"}]'),
    ],
)
def test_formats(tmp_path, name, content):
    path = tmp_path / name
    path.write_text(content)
    rows = [{"text": 'a, "b"\nc', "label": "x"}, {"text": "d", "label": "y"}]
    assert read_rows(path) == rows
    compressed = tmp_path / f"{name}.gz"
    compressed.write_bytes(gzip.compress(content.encode()))
    assert read_rows(compressed) == rows


def test_parquet(tmp_path):
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    rows = [{"text": f"text {number}", "label": number, "tags": ["a", "b"]} for number in range(1000)]
    parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "t.parquet")
    assert read_rows(tmp_path / "t.parquet") == rows
    doubled = pyarrow.table([["a"], ["1"], ["2"]], names=["text", "label", "label"])
    parquet.write_table(doubled, tmp_path / "doubled.parquet")
    with pytest.raises(ValueError, match=r"doubled.parquet has 2 columns named 'label'; expected a name for each"):
        read_rows(tmp_path / "doubled.parquet")
    assert list(FileSource(tmp_path / "doubled.parquet").column("text")) == ["a"]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1" + b"0" * 100)
    with pytest.raises(ValueError, match=r"bad.parquet is not a Parquet file, or broken after row 0"):
        read_rows(tmp_path / "bad.parquet")


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.jsonl", "t.ndjson", "t.json"])
def test_rows_are_streamed(tmp_path, monkeypatch, name):
    line = '{"text": "a", "label": "b"}' if "son" in name else "a,b".replace(",", "\t" if name == "t.tsv" else ",")
    (tmp_path / name).write_text("text,label\n".replace(",", "\t" if name == "t.tsv" else ",") * ("son" not in name))
    with (tmp_path / name).open("a") as file:
        file.write(f"{line}\n" * 400_000)
    read, blocks = [], text.read_blocks
    monkeypatch.setattr(
        text, "read_blocks", lambda *args, **kwargs: (read.append(1) or b for b in blocks(*args, **kwargs))
    )
    rows = FileSource(tmp_path / name).rows()
    assert [next(rows), next(rows)] == [{"text": "a", "label": "b"}] * 2
    assert len(read) == 1


def test_tsv_has_no_quoting(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text('text\tlabel\n"He said\t1\r\nfine"\t0\n')
    assert read_rows(path) == [{"text": '"He said', "label": "1"}, {"text": 'fine"', "label": "0"}]
    path.write_text("a\t1\nb\t0\n")
    assert read_rows(path, columns=("x", "y")) == [{"x": "a", "y": "1"}, {"x": "b", "y": "0"}]


QUOTED = ['he said "the cat"', '"the cat sat"', "a\tb", "the dog\nran", '"', "plain", ""]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
def test_a_tsv_that_is_quoted_as_csv_is_read_so(tmp_path, quoting):
    rows = [{"text": value, "label": str(number)} for number, value in enumerate(QUOTED)]
    for name, mark in (("t.csv", ","), ("t.tsv", "\t")):
        with (tmp_path / name).open("w", newline="") as file:
            writer = csv.writer(file, delimiter=mark, quoting=quoting)
            writer.writerows([["text", "label"], *(row.values() for row in rows)])
        assert read_rows(tmp_path / name) == rows
    (tmp_path / "t.tsv").write_text('text\tlabel\n"a"\t1\n')
    for literal, found in ((False, "a"), (True, '"a"')):
        assert read_rows(tmp_path / "t.tsv", literal_quotes=literal)[0]["text"] == found


@pytest.mark.parametrize(
    "lines",
    [
        ['"a fine film\t1', "b\t0", 'c "film"\t0'],  # what follows the second quote is not the end of a field
        ['"a fine film" he said\t1', '"b"\t0'],
        ['"a fine film\t1', "b\t0"],  # never closed
        ['"a\t1', 'b"\t0', '"c"\t1'],  # rows by themselves, which CSV's quotes would join
        ['"a\t1"', "b\t0"],  # one field of CSV in place of two
    ],
)
def test_quotes_of_other_tsv_files_are_part_of_the_text(tmp_path, lines, caplog):
    (tmp_path / "t.tsv").write_text("\n".join(["text\tlabel", *lines]))
    expected = [dict(zip(("text", "label"), line.split("\t"), strict=True)) for line in lines]
    with caplog.at_level("INFO", logger="mybert"):
        assert read_rows(tmp_path / "t.tsv") == expected
    assert "quotes are part of the text" in caplog.text


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.csv", 'text;label\n"a, b";1\n'),
        ("t.csv", 'text\tlabel\n"a, b"\t1\n'),
        ("t.csv", "text|label\na, b|1\n"),
        ("t.tsv", 'text,label\n"a, b",1\n'),
        ("t.tsv", " text ; label\na, b;1\n"),  # blanks around names
    ],
)
def test_read_rows_finds_the_separator_of_columns(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    assert read_rows(tmp_path / name) == [{"text": "a, b", "label": "1"}]


@pytest.mark.parametrize(("name", "mark"), [("t.csv", ";"), ("t.csv", "\t"), ("t.tsv", ","), ("t.csv", ",")])
def test_read_rows_first_text_of_several_lines_finds_the_separator(tmp_path, name, mark):
    text = f"Hello\n\nworld{mark} yes"
    (tmp_path / name).write_text(f'text{mark}label\n"{text}"{mark}1\nb{mark}2\n')
    assert read_rows(tmp_path / name) == [{"text": text, "label": "1"}, {"text": "b", "label": "2"}]


@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_read_rows_empty_line_of_one_column_is_an_empty_cell(tmp_path, name):
    content = b"\r\ntext\r\na\r\n\r\n\r\nb\r\n\r\n\r\n"  # as spreadsheets write it
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
    assert [row["text"] for row in read_rows(tmp_path / name)] == ["a", "", "", "b"]
    assert list(FileSource(tmp_path / name).column("text")) == ["a", "", "", "b"]


def test_read_rows_empty_line_of_several_columns_is_no_row(tmp_path):
    (tmp_path / "t.csv").write_text("text,label\na,1\n\nb,2\n")
    assert [row["text"] for row in read_rows(tmp_path / "t.csv")] == ["a", "b"]


@pytest.mark.parametrize("first", ["sep={}", '"sep={}"', "SEP={}", "sep={0}{0}", "sep={} "])
@pytest.mark.parametrize("name", ["t.csv", "t.tsv", "t.csv.gz"])
def test_case_17_the_separator_that_excel_declares_is_no_row(tmp_path, first, name):
    rows = [["text", "label"], ["ein Film", "gut"], ["noch einer, länger", "gut"], ["schlecht", ""]]
    expected = [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
    for mark, encoding in product(";,|\t:^", ["utf-8", "utf-8-sig", "utf-16"]):
        lines = [mark.join(f'"{cell}"' if "," in cell else cell for cell in row) for row in rows]
        content = "\r\n".join([first.format(mark), *lines]).encode(encoding)
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        assert read_rows(tmp_path / name) == expected
        assert list(FileSource(tmp_path / name).column("text")) == [row["text"] for row in expected]


def test_case_17_lines_below_the_declared_separator_keep_their_numbers(tmp_path):
    (tmp_path / "t.csv").write_text("sep=;\ntext;label\na;1\nb;2;3\n")
    with pytest.raises(ValueError, match=r"t.csv, line 4: 3 fields; expected 2 \(text, label\)"):
        read_rows(tmp_path / "t.csv")
    (tmp_path / "t.tsv").write_text('sep=\t\ntext\tlabel\nb\t0\n"a\t1\n')
    assert [row["text"] for row in read_rows(tmp_path / "t.tsv")] == ["b", '"a']


@pytest.mark.parametrize("line", ["sep=", "sep=a", "sep=;x", "sep", "step=;", "sep=;|"])
def test_case_17_other_first_lines_are_headers(tmp_path, line):
    (tmp_path / "t.csv").write_text(f"{line},label\na,b\n")
    assert read_rows(tmp_path / "t.csv") == [{line: "a", "label": "b"}]


def test_case_17_a_table_in_a_text_file_is_an_error(tmp_path):
    (tmp_path / "t.txt").write_text("sep=;\ntext;label\na;1\n")
    rows = rows_of(str(tmp_path / "t.txt"), TASKS["classification"], new=True)
    with pytest.raises(ValueError, match=r"t.txt begins with 'sep=;', as tables of Excel do; save it as .csv"):
        next(rows)


def test_rows_of_a_table_in_a_text_file_or_standard_input_is_an_error(tmp_path, monkeypatch):
    """Its lines, names of columns and labels included, were predicted as texts."""
    (tmp_path / "t.txt").write_text("text,label\na,1\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"text\tlabel\na\t1\n")))
    for path, source in ((str(tmp_path / "t.txt"), r"t\.txt"), ("-", "standard input")):
        with pytest.raises(ValueError, match=f"{source} begins with names of columns, 'text.*label'; expected lines"):
            next(rows_of(path, TASKS["classification"], new=True))


def test_case_17_the_style_of_the_data_is_that_below_the_declared_separator(tmp_path):
    (tmp_path / "t.csv").write_text("sep=;\ntext;value\na, b, c;1,5\n")
    assert style_of(str(tmp_path / "t.csv"), "utf-8") == CsvStyle(";", ",")


def test_a_quote_over_several_lines_of_one_column_is_an_error(tmp_path):
    (tmp_path / "t.tsv").write_text('text\nplain\n"a fine film\nb\nc film"\nd\n')
    with pytest.raises(ValueError, match=r"t.tsv, line 3: a quote opens here and closes in line 5; expected a .csv"):
        read_rows(tmp_path / "t.tsv")


def test_lines_that_are_written_have_no_break_that_a_reader_may_see(tmp_path):
    rows = [[f"a{mark}b", '"'] for mark in f'{text.LINE_BREAKS},"']
    write_separated(tmp_path / "t.csv", [["x", "y"], *rows])
    with (tmp_path / "t.csv").open(newline="", encoding="utf-8") as file:
        assert list(csv.reader(file.read().splitlines(keepends=True))) == [["x", "y"], *rows]
    for value, _ in rows:
        line = json_line({"x": value})
        assert line.splitlines() == [line] and json.loads(line) == {"x": value}


def test_json_line_with_numbers_that_json_lacks_writes_null():
    row = {"a": np.float32("nan"), "b": [1.0, float("inf")], "c": {"d": np.array([np.nan])}}
    assert json_line(row) == '{"a": null, "b": [1.0, null], "c": {"d": [null]}}'


def test_read_rows_of_unusual_tables_reads_them(tmp_path):
    """Long fields, quotes that are text, columns without names, endings in capitals, characters in two escapes."""
    path = tmp_path / "t.CSV"
    path.write_text(f',text,\n1,"{"a cat " * 50_000}",x\n2,"a"b,y\n')
    assert [row["text"] for row in read_rows(path)] == ["a cat " * 50_000, "ab"]
    path = tmp_path / "T.JSONL"
    path.write_text('{"text": "\\ud83d\\ude00 \\\\ud800"}\n')
    assert read_rows(path) == [{"text": "\U0001f600 \\ud800"}]


def test_read_rows_of_csv_with_backslashes_before_quotes_says_so(tmp_path, caplog):
    path = tmp_path / "t.csv"
    path.write_text('text,label\n"a \\"good\\" film",x\n"b",y\n')  # Spark's default
    assert len(read_rows(path)) == 2
    (message,) = caplog.messages
    assert message.startswith(f"{path}: 1 lines, such as line 2, have a backslash before a quote; CSV doubles")
    caplog.clear()
    path.write_text('text,label\n"a ""good"" film",x\n"C:\\",y\n"a \\""b",z\n')
    assert [row["text"] for row in read_rows(path)] == ['a "good" film', "C:\\", 'a \\"b']
    assert caplog.messages == []


def test_only_colas_test_file_has_a_header(tmp_path):
    (tmp_path / "dev.tsv").write_text("gj04\t1\t\tThe cat sat.\ngj04\t0\t*\tCat the.\n")
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tThe cat sat.\n1\tCat the.\n")
    task = TASKS["cola"]
    labeled = steps.read_examples(task, tmp_path / "dev.tsv")
    unlabeled = task.examples(steps.read_task_rows(task, tmp_path / "test.tsv", labeled=False), labeled=False)
    assert [example.label for example in labeled] == ["1", "0"]
    assert [example.label for example in unlabeled] == [None, None]
    assert [example.texts for example in labeled] == [example.texts for example in unlabeled]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.csv", 'text,label\n"a,1\n' + 30_000 * "b,1 b\n", r"t.csv, line 2: not CSV \(a quote is never closed\)"),
        ("t.csv", 'text\nb\n"a', r"t.csv, line 3: not CSV \(a quote is never closed\)"),
        # Behind a field that only a lenient reader reads, the rest of the file was taken in as text.
        ("t.csv", 'text,label\n""a,"b\nc,1\n', r"t.csv, line 2: not CSV \(a quote is never closed\)"),
        ("t.csv", 'text,label\na,1\n"b\n",2,"c\nd,3\n', r"t.csv, line 3: not CSV \(a quote is never closed\)"),
        ("t.csv", 'text,label\n"a\nb",1,2\n', r"t.csv, line 2: 3 fields; expected 2 \(text, label\)"),
        ("t.csv", "text,label,text\na,1,b\n", r"t.csv has 2 columns named 'text'; expected a name for each column"),
        ("t.csv", "text;label\na;1;2\n", r"t.csv has one column, 'text;label'; expected commas .*, or semicolons"),
        ("t.csv", 'text;label\na;1\n"b;2\n', r"t.csv, line 3: not CSV \(a quote is never closed\)"),
        ("t.tsv", "text,label\na\n", r"t.tsv has one column, 'text,label'; expected tabs .*, or commas"),
        ("t.txt", "text", r"t.txt ends in .txt; expected a .csv, .* .parquet or .xlsx file"),
        ("t", "text", r"ends in nothing"),
        ("t.csv", "", r"t.csv holds no rows"),
        ("t.tsv", "text\tlabel\n", r"t.tsv holds no rows"),
        ("t.tsv", "text\tlabel\na\t1\nb\n", r"t.tsv, line 3: 1 fields; expected 2 \(text, label\)"),
        ("t.jsonl", '{"a": 1}\n{"a": \n', r"t.jsonl, line 2: not JSON"),
        ("t.jsonl", "[1]\n", r"t.jsonl, line 1: a JSON list; expected an object"),
        ("t.json", '{"a": 1}', r"t.json holds a JSON dict; expected a list"),
        ("t.jsonl", '{"a": "\\\\ud800"}\n{"a": "b\\ud83d"}\n', r"line 2: half of a character pair, \\ud83d"),
        ("t.json", '[{"a": "\\ud83d\\ude00"},\n {"a": "\\uDE00"}]', r"t.json, line 2: half of a character pair"),
        ("t.jsonl", f'{{"a": 1}}\n{{"a": {"7" * 5000}}}\n', r"t.jsonl, line 2: a number with thousands of digits\.$"),
        ("t.json", f'{{"a": {"7" * 5000}}}\n{{"a": 1}}\n', r"t.json, line 1: a number with thousands of digits\.$"),
        ("t.json", f'[{{"a": 1}},\n{{"a": {"7" * 5000}}}]', r"t.json, line 2: a number with thousands of digits\.$"),
        (
            "t.jsonl",
            '{"a": 1}\n{"a": 1, "b": 2, "a": 3}\n',
            r"t.jsonl, line 2: an object has 'a' twice; expected each",
        ),
        ("t.json", '[{"a": {"b": 1,\n"b": 2}}]', r"t.json: an object has 'b' twice; expected each name once\.$"),
        ("t.json", "[" * 100_000, r"t.json, line 1: nested too deep"),
        (
            "t.json",
            '{"data": {"text": ["a"]}}',
            r"t.json holds a JSON dict; .* with such a list as data \(pandas: orie",
        ),
        ("t.json", '{"columns": ["a"], "data": [["b"]]}', r"t.json, data, entry 1: a JSON list; expected an object"),
        ("t.conll", "EU\tB-ORG\nrejects\n", r"t.conll, line 2: 'rejects' has 1 fields; expected 2"),
        ("t.conll", "EU\tB-ORG\n\tO\n", r"t.conll, line 2: '\\tO' has 1 fields; expected 2"),
        ("t.conll", "EU\tNNP\tB-ORG\na\t\tO\n", r"t.conll, line 2: 'a\\t\\tO' has 2 fields; expected 3"),
        ("t.conll", "\n\n", r"t.conll holds no rows"),
        # Joined files, each with its header, which became a row and its name a class.
        ("t.csv", "text, label\na,x\ntext, label\nb,y\n", r"t.csv, line 3: the names of the columns again, as in joi"),
        ("t.tsv", "text\tlabel\na\tx\ntext\tlabel\n", r"t.tsv, line 3: the names of the columns again"),
        ("t.conll", "word tag\na X\n\nword tag\nb X\n", r"t.conll, line 4: the names of the columns again"),
    ],
)
def test_broken_tables(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message):
        read_rows(path, conll=name.endswith("conll"))


def test_glue_files_are_read_as_published(data_dir):
    rows = {"cola": 1043, "sst2": 872, "mrpc": 408, "stsb": 1500, "qnli": 5463, "rte": 277, "wnli": 71}
    folders = {"cola": "CoLA", "sst2": "SST-2", "stsb": "STS-B"}
    for task, count in rows.items():
        examples = steps.read_examples(TASKS[task], data_dir / "glue" / folders.get(task, task.upper()) / "dev.tsv")
        assert len(examples) == count, task
        if task != "stsb":
            assert {example.label for example in examples} == set(TASKS[task].classes)


@pytest.mark.parametrize("name", ["t.csv", "t.tsv"])
@pytest.mark.parametrize("quote", ["", '"'])
def test_read_table_leaves_the_limit_of_a_field_to_the_caller(tmp_path, name, quote):
    mark, long = ("," if name == "t.csv" else "\t"), "x" * 200_000
    (tmp_path / name).write_text(f"a{mark}b\n{quote}{long}{quote}{mark}1\n2{mark}3\n")
    before = csv.field_size_limit(1000)
    try:
        limits, rows = [], []
        for row in read_rows(str(tmp_path / name)):
            limits.append(csv.field_size_limit())
            rows.append(row)
        assert rows == [{"a": long, "b": "1"}, {"a": "2", "b": "3"}]
        assert {*limits, csv.field_size_limit()} == {1000}
        (tmp_path / name).write_text(f"a{mark}b\n1{mark}2{mark}3\n")
        with pytest.raises(ValueError, match="fields; expected"):
            list(read_rows(str(tmp_path / name)))
        assert csv.field_size_limit() == 1000
    finally:
        csv.field_size_limit(before)


def test_read_table_with_a_long_field_finds_the_separator_and_the_style(tmp_path):
    """csv reads at most 128 KiB of a field by default."""
    path, long = str(tmp_path / "t.csv"), "x" * 200_000
    Path(path).write_text(f'text;value\n"{long}";"1,5"\na;2,5\n')
    assert list(read_rows(path)) == [{"text": long, "value": "1,5"}, {"text": "a", "value": "2,5"}]
    assert style_of(path, "utf-8") == CsvStyle(";", ",")
    Path(path).write_text(f'text,value\n"{long}')
    with pytest.raises(ValueError, match="a quote is never closed"):
        list(read_rows(path))


def test_value_at_of_a_part_that_is_no_object_is_a_missing_column():
    assert value_at({"a": {"b": 1}}, "a.b") == 1
    with pytest.raises(KeyError, match=r"a\.b"):
        value_at({"a": 1}, "a.b")


@pytest.mark.parametrize("column", [None, "text"])
def test_read_rows_of_parquet_names_what_is_broken(tmp_path, column):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    latin = pyarrow.array([b"caf\xe9"], pyarrow.binary()).cast(pyarrow.string(), safe=False)
    parquet.write_table(pyarrow.table({"text": latin}), path)
    what = "a column" if column is None else "'text'"
    with pytest.raises(ValueError, match=rf"a\.parquet: {what} holds bytes that are not UTF-8, after row 0"):
        list(FileSource(path).column(column) if column else read_rows(path))


def test_read_rows_of_parquet_with_a_broken_page_names_the_row(tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "a.parquet"
    parquet.write_table(pyarrow.table({"text": ["a b c d"] * 1000}), path, compression="gzip", use_dictionary=False)
    content = bytearray(path.read_bytes())
    place = content.index(b"\x1f\x8b")
    content[place : place + 20] = bytes(20)
    path.write_bytes(content)
    with pytest.raises((ValueError, OSError), match=r"a\.parquet .* row 0 \("):
        read_rows(path)
