import gc
import re
import tempfile
from contextlib import suppress
from datetime import datetime, time
from zipfile import ZIP_LZMA, ZipFile

import pytest

from mybert.cli import main
from mybert.files.documents import Corpus, DocumentSettings
from mybert.files.source import FileSource, read_rows
from mybert.files.spreadsheets import read_sheet, write_sheet
from mybert.finetuning import TASKS
from mybert.finetuning.data import rows_of
from mybert.finetuning.tasks.steps import read_examples

openpyxl = pytest.importorskip("openpyxl")


@pytest.fixture
def workbook(tmp_path):
    """Writes `b.xlsx`, whose sheets are `hidden`, which is so, and those with these names and rows."""

    def write(**sheets):
        book = openpyxl.Workbook()
        book.active.title, book.active.sheet_state = "hidden", "hidden"
        book.active.append(["text"])
        for name, rows in sheets.items():
            sheet = book.create_sheet(name.replace("_", " "))
            for row in rows:
                sheet.append(row)
            sheet["H50"].font = openpyxl.styles.Font(bold=True)  # an empty cell beyond the data
        book.save(tmp_path / "b.xlsx")
        return tmp_path / "b.xlsx"

    return write


def test_read_sheet_gives_values_as_they_are_shown(workbook, caplog):
    caplog.set_level("INFO", "mybert")
    path = workbook(
        one=[
            [" text ", "label", None, 2025],
            ["a\ncat", 3.0, "x", 0.5],
            [],
            [7, True, None, "#N/A"],
            [datetime(2026, 1, 2), time(1, 2), None, datetime(2026, 1, 2, 3, 4, 5)],
            ["it_x000D_\n", " b ", "", None],
        ],
        v_1=[["text"], ["of another sheet"]],
    )
    rows = [
        ["a\ncat", 3, "x", 0.5],
        [None, None, None, None],
        [7, True, None, None],
        ["2026-01-02", "01:02:00", None, "2026-01-02 03:04:05"],
        ["it\r\n", " b ", None, None],
    ]
    found = read_rows(path)
    assert [list(row.values()) for row in found] == rows
    assert list(found[0]) == ["text", "label", "", "2025"]
    assert type(found[0]["label"]) is int
    assert caplog.messages == [f"{path}: the sheet 'one' is read; others are {path}:v 1."]
    assert list(FileSource(path).column("label")) == ["3", None, "True", "01:02:00", " b "]
    assert read_rows(f"{path}:v 1") == [{"text": "of another sheet"}]
    with pytest.raises(ValueError, match=r"b.xlsx:hidden holds no rows"):
        read_rows(f"{path}:hidden")
    assert len(caplog.messages) == 2  # not where a sheet is named


@pytest.mark.parametrize(
    ("sheet", "rows", "message"),
    [
        ("", [["text"], ["a", "b"]], r"b.xlsx, row 2: 2 columns; expected 1, each with a name in row 1 \(text\)"),
        ("", [["text", "text"], ["a", "b"]], r"b.xlsx has 2 columns named 'text'; expected a name for each"),
        ("", [["text", "label"], ["a", "x"], ["text", "label"]], r"b.xlsx, row 3: the names of the columns again"),
        ("", [], r"b.xlsx holds no rows"),
        ("", [["text", "label"]], r"b.xlsx holds no rows"),
        (":two", [["text"], ["a"]], r"b.xlsx has no 'two', only 'hidden', 'one'; expected one of its sheets"),
    ],
)
def test_read_sheet_rejects_broken_sheets(workbook, sheet, rows, message):
    path = workbook(one=rows)
    with pytest.raises(ValueError, match=message):
        read_rows(f"{path}{sheet}")


def test_rows_of_sheets_have_the_numbers_of_the_sheet(workbook):
    path = workbook(one=[["text", "label"], ["a", 1], ["", 0]])
    assert [row.number for row in rows_of(path, TASKS["classification"])] == [2, 3]
    with pytest.raises(ValueError, match=r"b.xlsx, row 3: an empty text"):
        read_examples(TASKS["classification"], path)
    with pytest.raises(ValueError, match=r"b.xlsx has no 'txt', only 'text', 'label'"):
        next(FileSource(path).column("txt"))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("t.xlsx", b"text,label\n", "t.xlsx is not an .xlsx file, or it is broken or has a password (File is not"),
        ("t.xls", b"\xd0\xcf\x11\xe0", "t.xls ends in .xls; save the spreadsheet as .xlsx or .csv."),
        ("t.ods", b"PK\3\4", "t.ods ends in .ods; save the spreadsheet as .xlsx or .csv."),
    ],
)
def test_other_spreadsheets_are_an_error(tmp_path, capsys, name, content, message):
    (tmp_path / name).write_bytes(content)
    assert main(["vocab", "--text", str(tmp_path / name), "--output_dir", str(tmp_path / "v")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "v").exists()


def test_read_sheet_reads_what_other_programs_write(workbook, tmp_path):
    """A wrong size of the sheet, and whole numbers with a decimal point."""
    path = workbook(one=[["text", "label"], ["a", 7], ["b", 0.5]])
    with ZipFile(path) as old, ZipFile(tmp_path / "small.xlsx", "w") as new:
        for item in old.infolist():
            data = re.sub(rb'<dimension ref="[^"]*"', b'<dimension ref="A1:A2"', old.read(item))
            new.writestr(item, data.replace(b"<v>7</v>", b"<v>7.0</v>"))
    assert str(read_rows(tmp_path / "small.xlsx")) == "[{'text': 'a', 'label': 7}, {'text': 'b', 'label': 0.5}]"


def test_a_broken_sheet_is_an_error_with_its_last_row(workbook, tmp_path):
    path = workbook(one=[["text"], ["a"], ["b"], ["c"]])
    with ZipFile(path) as old, ZipFile(tmp_path / "cut.xlsx", "w") as new:
        for item in old.infolist():
            data = old.read(item)
            new.writestr(
                item, data[: data.index(b"</row>", data.index(b'r="3"'))] if "sheet2" in item.filename else data
            )
    with pytest.raises(ValueError, match=r"cut.xlsx:one is broken after row 2 "):
        read_rows(tmp_path / "cut.xlsx")


def test_a_corpus_is_read_from_sheets(workbook, tmp_path):
    path = workbook(one=[["id", "body"], [1, "the cat sat"], [2, None], [3, 2026]], two=[["body"], ["a dog ran"]])
    (tmp_path / "~$b.xlsx").write_bytes(b"the name of who has it open")
    for name, texts in ((path, ["the cat sat", "2026"]), (f"{path}:two", ["a dog ran"]), (path.parent, None)):
        corpus = Corpus(name, DocumentSettings(text_column="body"))
        assert [text for _, text in corpus.texts()] == (texts or ["the cat sat", "2026"])


def test_read_sheet_reads_what_write_sheet_wrote(tmp_path):
    rows = [["text"], ["_x0041_"], ["a\rb"], ["a\r\nb"], ["_x000D_"], ["_x005F_x0041_"], ["_x_"], ["\U0001f600é"]]
    write_sheet(tmp_path / "x.xlsx", rows)
    assert list(read_sheet(str(tmp_path / "x.xlsx"))) == rows


@pytest.mark.filterwarnings("error")
def test_write_sheet_on_a_full_disk_raises_one_error(tmp_path):
    (tmp_path / "x.xlsx").symlink_to("/dev/full")
    with pytest.raises(OSError, match="No space left"):
        write_sheet(tmp_path / "x.xlsx", [["a"] * 10] * 1000)
    gc.collect()  # no second error of what is collected


@pytest.mark.parametrize("value", ["a", object()])
def test_write_sheet_leaves_no_file_and_the_temporary_folder_of_others(tmp_path, monkeypatch, value):
    monkeypatch.setattr(tempfile, "tempdir", "of others")
    with suppress(ValueError):
        write_sheet(tmp_path / "x.xlsx", [[value]])
    assert tempfile.tempdir == "of others"
    assert {path.name for path in tmp_path.iterdir()} <= {"x.xlsx"}


def test_read_sheet_of_a_file_with_another_compression_is_an_error(tmp_path):
    with ZipFile(tmp_path / "t.xlsx", "w", ZIP_LZMA) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
    with pytest.raises(ValueError, match=r"t\.xlsx is not an \.xlsx file, .* compressed in another way"):
        read_rows(tmp_path / "t.xlsx")


def test_read_sheet_without_memory_is_no_broken_file(workbook, monkeypatch):
    path = workbook(one=[["text"], ["a"]])

    def load(*args, **options):
        raise MemoryError

    monkeypatch.setattr(openpyxl, "load_workbook", load)
    with pytest.raises(MemoryError):
        read_rows(path)
