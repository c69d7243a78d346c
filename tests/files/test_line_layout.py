import gzip
import re
import textwrap
from pathlib import Path

import pytest

from mybert.files import documents
from mybert.files.documents import Corpus, DocumentSettings, wrapped_at
from mybert.files.text import split_sentences
from mybert.pretraining import read_documents

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"
PROSE = [
    "It was late when the two of them came down from the hills, and the road had long been dark.",
    "Nobody spoke. The older one carried a lamp that he had not lit, since there was no oil left in it.",
    "At the bridge they stopped, as they had agreed, to wait for the well-known third.",
    "He did not come that night! They waited until the first carts passed on their way to the market.",
    "Then they went on without him, each by a road of his own, as they had agreed to do in that case.",
    "In the village it was said later that there had never been a third man; who could tell?",
]
SENTENCES = [sentence for text in PROSE for sentence in split_sentences(text)]


def paragraphs(width, **options):
    """Three sentences of running text each, wrapped."""
    return [textwrap.wrap(" ".join(PROSE[start : start + 3]), width, **options) for start in (0, 3)]


def lines_of(text, tmp_path, **settings):
    path = tmp_path / "text.txt"
    path.write_text(text)
    return list(Corpus(path, DocumentSettings(**settings)).lines())


@pytest.mark.parametrize("width", [48, 60, 72, 79])
@pytest.mark.parametrize("indent", ["", "    "])
def test_wrapped_lines_are_told_from_sentences(width, indent):
    first, second = paragraphs(width, initial_indent=indent)
    lines = [*first, "", *second, "", *first]
    assert abs(wrapped_at(lines) - width) < 8
    assert abs(wrapped_at([f"    {line}" for line in lines]) - width - 4) < 8
    assert wrapped_at(PROSE) is None
    assert wrapped_at(SENTENCES * 10) is None
    assert wrapped_at([" ".join(PROSE), "", " ".join(PROSE)] * 20) is None
    assert wrapped_at([word.strip(".,") for line in PROSE for word in line.split()]) is None
    assert wrapped_at(["ACGTACGTAC" * 6] * 30) is None


def test_verse_is_not_wrapped():
    verse = "Tell me not in mournful numbers\nLife is but an empty dream\nFor the soul is dead that slumbers\n"
    verse += "And things are not what they seem\nLife is real and life is earnest\nAnd the grave is not its goal\n"
    assert wrapped_at((verse * 4).split("\n")) is None


def test_lines_are_joined_to_the_sentences_that_were_wrapped(tmp_path, caplog):
    first, second = ("\n".join(lines) for lines in paragraphs(60))
    with caplog.at_level("INFO", logger="mybert"):
        assert lines_of(f"{first}\n\n{second}\n", tmp_path) == [*SENTENCES, ""]
    assert re.search(r"text.txt: lines look wrapped at (59|60) columns; joined into paragraphs", caplog.text)
    assert "begins:\n" in caplog.text.replace("INFO", "") and SENTENCES[1] in caplog.text
    kept = lines_of(f"{first}\n\n{second}\n", tmp_path, join_lines=False)
    assert kept == [*first.split("\n"), "", *second.split("\n"), ""]
    indented = "\n".join("\n".join(lines) for lines in paragraphs(60, initial_indent="   "))
    assert lines_of(indented, tmp_path) == [*SENTENCES, ""]


def test_short_lines_stay_alone_and_words_stay_whole(tmp_path):
    wide = "".join(map(chr, range(0x4E00, 0x4E00 + 600)))
    lines = textwrap.wrap("\u3000\u3000" + wide, 40)
    assert lines_of("\n".join(lines), tmp_path) == [wide, ""]
    text = "\n".join(["CHAPTER ONE", *paragraphs(50)[0], *paragraphs(50)[1]])
    assert lines_of(text, tmp_path)[:2] == ["CHAPTER ONE", SENTENCES[0]]
    assert any("well-known" in line for line in lines_of(text, tmp_path))
    joined = lines_of("It is a well-\nknown fact\nthat soft\u00ad\nware is soft.", tmp_path, join_lines=True)
    assert joined == ["It is a well-known fact that software is soft.", ""]


FIRST, SECOND = ("\n".join(lines) for lines in paragraphs(60))
HALF = len(split_sentences(" ".join(PROSE[:3])))
BOTH = [SENTENCES[:HALF], SENTENCES[HALF:]]
PLAIN = "Part 1\nOne.\n\nTwo.\nPart 2\nThree."


@pytest.mark.parametrize(
    ("text", "settings", "documents"),
    [
        (f"{FIRST}\n\n{SECOND}", {}, [SENTENCES]),
        (f"{FIRST}\n\n{SECOND}", {"document_end": "blank_line"}, BOTH),
        (f"{FIRST}\n\n\n{SECOND}\n\n\n{FIRST}", {}, [*BOTH, BOTH[0]]),
        (f"{FIRST}\n\n\n{SECOND}", {"document_end": "file"}, [SENTENCES]),
        (f"{FIRST}\f{SECOND}\f{FIRST}", {"document_end": "form_feed"}, [*BOTH, BOTH[0]]),
        (f"{FIRST}\n\n{SECOND}\n\n\f\n", {}, [SENTENCES]),
        (
            f"Part 1\n\n{FIRST}\n\n\nPart 2\n\n{SECOND}",
            {"heading_pattern": r"^Part \d"},
            [["Part 1", *BOTH[0]], ["Part 2", *BOTH[1]]],
        ),
        (PLAIN, {"heading_pattern": "^Part"}, [["Part 1", "One.", "Two."], ["Part 2", "Three."]]),
        (
            PLAIN.replace("Part 2", "\fPart 2"),
            {"heading_pattern": "^Part"},
            [["Part 1", "One.", "Two."], ["Part 2", "Three."]],
        ),
        (PLAIN, {"document_end": "file"}, [["Part 1", "One.", "Two.", "Part 2", "Three."]]),
        ("One.\n\nTwo.\n\n\n\nThree.", {"document_end": "blank_lines"}, [["One.", "Two."], ["Three."]]),
    ],
)
def test_where_documents_end(tmp_path, text, settings, documents):
    (tmp_path / "text.txt").write_text(text)
    assert list(read_documents(tmp_path / "text.txt", **settings)) == documents


def test_rows_are_joined_as_well(tmp_path):
    path = tmp_path / "mails.csv"
    path.write_text(f'id,body\n1,"{FIRST}"\n2,"{SECOND}"\n')
    assert list(read_documents(path, text_column="body")) == BOTH


def test_wrong_settings(user_error):
    with user_error("--document_end"):
        DocumentSettings(document_end="page")
    with pytest.raises(ValueError, match=r"heading_pattern is '\(', which is not a regular expression"):
        DocumentSettings(heading_pattern="(")


@pytest.mark.slow
@pytest.mark.skipif(not DATA.is_dir(), reason="needs the corpora")
def test_the_guess_is_right_on_real_text():
    """One sentence per line is never detected as wrapped; the same text wrapped always is, from any excerpt."""
    for path in sorted(DATA.glob("corpus_*/*.gz")):
        lines = gzip.decompress(path.read_bytes())[:2_000_000].decode(errors="ignore").split("\n")
        for start in range(0, len(lines), 2000):
            assert wrapped_at(lines[start : start + 2000]) is None, (path, start)
        text = " ".join(lines[:400])
        for width in (60, 72, 100):
            assert abs(wrapped_at(textwrap.wrap(text, width)) - width) < 3, (path, width)


def test_sentences_of_lines_in_a_long_paragraph_looks_at_each_line_once(monkeypatch):
    """Otherwise the time would grow with the square of the paragraph."""
    seen = []

    class Recorded:
        def search(self, line):
            seen.append(line)

    monkeypatch.setattr(documents, "_WORD_HYPHEN", Recorded())
    lines = ["one of many lines"] * 50
    assert list(documents.sentences_of_lines(lines, None)) == [" ".join(lines)]
    assert seen == lines[1:]
