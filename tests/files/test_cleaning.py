"""HTML and mojibake in the text of a corpus: counted, and turned into plain text by `clean`."""

import json
import logging

import pytest

from mybert.files.cleaning import find_html, find_mojibake, without_html
from mybert.files.documents import Corpus, DocumentSettings
from mybert.files.settings import build
from mybert.pretraining import inspect_corpus


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("<p>Tom &amp; Jerry&#8217;s <b>film</b><br/>is <i class='x'>fun</i></p>", "\nTom & Jerry’s film\nis fun\n"),
        ("<td>1</td><td>2</td>", " 1  2 "),
        ("<script>var a = 1 < 2;</script>read<!-- not\nthis --> on", " read  on"),
        ("twice &amp;lt;br&amp;gt; &amp;amp; more", "twice \n & more"),
        ("<!DOCTYPE html><A HREF='/'>Home</A>", "Home"),
    ],
)
def test_without_html_of_markup_is_the_displayed_text(text, plain):
    assert find_html(text) is not None
    assert without_html(text) == plain and find_html(plain) is None


@pytest.mark.parametrize("text", ["a < b and c > d", "R&D at AT&T; &nothing; else", "<unk> [MASK] <T>", "x<y>z", "&"])
def test_without_html_of_other_text_changes_nothing(text):
    assert find_html(text) is None and without_html(text) == text


MISREAD = ["étude", "it’s", "안녕하세요", "Привет", "naïve"]


@pytest.mark.parametrize("text", MISREAD)
def test_find_mojibake_recognizes_utf8_read_as_windows_1252(text):
    misread = "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in text.encode())
    assert find_mojibake(misread) and not find_mojibake(text)


@pytest.mark.parametrize("text", ["„Spaß“", "CAFÉ”, MENÜ“", "l'idée…»", "voilà…", "«À Å»", "ÄÖÜ", "São 1º, 2ª"])
def test_find_mojibake_of_letters_before_punctuation_is_none(text):
    assert find_mojibake(text) is None


def test_find_mojibake_in_real_text_is_none(data_dir):
    for name in ("corpus_en/heldout.txt.gz", "corpus_ko/heldout_ko.txt.gz"):
        lines = list(Corpus(data_dir / name, DocumentSettings()).lines())
        assert sum(find_mojibake(line) is not None for line in lines) / len(lines) < 0.001


PAGES = ["<p>One film.</p><p>Two&nbsp;films.</p>", "<p>", "Ordinary &amp; plain.", "", "Of another document.", "</p>"]


def read(path, caplog, **settings):
    with caplog.at_level(logging.INFO, logger="mybert"):
        corpus = Corpus(path, build(DocumentSettings, settings))
        first = list(corpus.lines())
        messages = [record.getMessage() for record in caplog.records if "HTML" in record.getMessage()]
        assert list(corpus.lines()) == first  # and nothing is reported twice
    assert len([record for record in caplog.records if "HTML" in record.getMessage()]) == len(messages)
    return first, messages


def test_lines_of_a_text_file_with_html_are_reported_or_cleaned(tmp_path, caplog):
    path = tmp_path / "pages.txt"
    path.write_text("\n".join(PAGES), encoding="utf-8")
    lines, (message,) = read(path, caplog)
    assert lines[:2] == PAGES[:2]
    assert message.startswith("4 of 5 lines or rows have HTML, such as '<p>One film.") and "--clean html" in message
    caplog.clear()
    lines, (message,) = read(path, caplog, clean=["html"])
    assert lines == ["One film.", "Two\xa0films.", "Ordinary & plain.", "", "Of another document.", ""]
    assert message.startswith("4 of 5 lines or rows had HTML")


def test_rows_with_html_are_cleaned_across_lines(tmp_path, caplog):
    path = tmp_path / "pages.jsonl"
    rows = ["<div\nclass='a'>First.<br>Second.</div>", "Other.", ["In <b>a</b> list<br>of sentences."]]
    path.write_text("".join(json.dumps({"text": row}) + "\n" for row in rows), encoding="utf-8")
    lines, _ = read(path, caplog, clean="html")
    assert lines == ["First.", "Second.", "", "Other.", "", "In a list of sentences.", ""]


def test_clean_mojibake_repairs_text_with_ftfy(tmp_path):
    pytest.importorskip("ftfy")
    path = tmp_path / "text.txt"
    path.write_text("Une Ã©tude, itâ€™s &Atilde;&copy;.\nUne étude.\n", encoding="utf-8")
    lines = list(Corpus(path, DocumentSettings(clean=["mojibake", "html"])).lines())
    assert lines == ["Une étude, it’s é.", "Une étude.", ""]


def test_clean_mojibake_without_ftfy_says_how_to_install_it(tmp_path, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "ftfy", None)
    (tmp_path / "text.txt").write_text("text\n", encoding="utf-8")
    with pytest.raises(ImportError, match=r"needs the package ftfy: run pip install '\.\[corpus\]'"):
        Corpus(tmp_path / "text.txt", DocumentSettings(clean=["mojibake"]))


def test_clean_of_an_unknown_name_is_an_error(user_error):
    with user_error("--clean"):
        DocumentSettings(clean=["xml"])


def test_inspect_corpus_of_html_reports_it(tmp_path, caplog):
    path = tmp_path / "pages.txt"
    path.write_text("<p>A first page.</p>\n\nA second page, Ã©tude.\n", encoding="utf-8")
    with caplog.at_level(logging.INFO, logger="mybert"):
        report = inspect_corpus(str(path), filter=["duplicates"], clean=["html"])
    assert report.read.characters == len("A first page.") + len("A second page, Ã©tude.")
    assert "1 of 2 lines or rows had HTML" in caplog.text and "1 of 2 lines or rows have mojibake" in caplog.text
