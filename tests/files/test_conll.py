"""CoNLL columns, in files of any name, and tables of sentences and tags without a header."""

import pytest

from mybert.files.conll import read_conll
from mybert.files.source import read_rows

CONLL = """-DOCSTART- -X- -X- O

EU NNP B-NP B-ORG
rejects VBZ B-VP O

-DOCSTART- -X- -X- O

Peter NNP B-NP B-PER
"""


def test_conll_columns_and_documents(tmp_path):
    path = tmp_path / "eng.train"
    path.write_text(CONLL)
    first, second = read_rows(path, conll=True)
    assert first["tokens"] == ["EU", "rejects"]
    assert first["tags"] == ["B-ORG", "O"]
    assert first["1"] == ["NNP", "VBZ"]
    assert second["document"] == first["document"] + 1
    path.write_text("EU\nrejects\n\nit\n")
    assert [row["tokens"] for row in read_rows(path, conll=True)] == [["EU", "rejects"], ["it"]]
    assert "tags" not in read_rows(path, conll=True)[0]
    path.write_text("New York\tB-LOC\nis\tO\n")
    assert read_rows(path, conll=True)[0]["tokens"] == ["New York", "is"]


@pytest.mark.parametrize(
    ("lines", "tokens", "tags"),
    [
        # The tag of the second line occurs in no other; the others are a hashtag and a number sign.
        (["# doc1", "#fun O", "it B-X", "# O"], ["#fun", "it", "#"], ["O", "B-X", "O"]),
        (["## klue-1\ta text", "#\tO", "a\tB-X", "b\tO"], ["#", "a", "b"], ["O", "B-X", "O"]),
        (["#\thttp://x", "# id 1\tdomain=en", "EU NNP B-NP B-ORG"], ["EU"], ["B-ORG"]),
        (["# a comment", "#fun", "is"], ["#fun", "is"], None),
        (["#\tO"], ["#"], ["O"]),
    ],
)
def test_read_conll_leaves_out_comments(tmp_path, lines, tokens, tags, caplog):
    caplog.set_level("INFO", "mybert")
    (tmp_path / "t.conll").write_text("\n".join(lines))
    (row,) = read_rows(tmp_path / "t.conll", conll=True)
    assert (row["tokens"], row.get("tags")) == (tokens, tags)
    left_out = len(lines) - len(tokens)
    assert caplog.messages == [f"{tmp_path}/t.conll: left out: comments ({left_out})."] * bool(left_out)


CONLL_U = """# newdoc id = 1
# text = vámonos
1-2 vámonos _ _ _ _ _ _ _ _
1 vamos ir VERB V _ 0 root _ _
2 nos nosotros PRON P _ 1 obj _ _
2.1 x _ _ _ _ _ _ _ _

# newdoc id = 2
1 al al ADP A _ 0 root _ _
"""


def test_read_conll_u_has_words_and_parts_of_speech(tmp_path, caplog):
    caplog.set_level("INFO", "mybert")
    path = tmp_path / "t.conllu"
    lines = [line if line.startswith("#") else line.replace(" ", "\t") for line in CONLL_U.splitlines()]
    path.write_text("\n".join(lines), encoding="utf-8")
    first, second = read_rows(path, conll=True)
    assert first["tokens"] == ["vamos", "nos"] and first["tags"] == ["VERB", "PRON"] and first["4"] == ["V", "P"]
    assert second["tokens"] == ["al"] and second["document"] == first["document"] + 1
    assert caplog.messages == [f"{path}: left out: comments (3), ranges of words (1), empty nodes (1)."]


def test_read_conll_with_no_break_space_keeps_it_in_the_word(tmp_path):
    (tmp_path / "t.conll").write_text("10\u00a0000 B-NUM\neuros\u3000 O\n", encoding="utf-8")
    (row,) = read_rows(tmp_path / "t.conll", conll=True)
    assert (row["tokens"], row["tags"]) == (["10\u00a0000", "euros\u3000"], ["B-NUM", "O"])


def test_read_conll_with_spaces_as_words_keeps_them(tmp_path):
    """As in KLUE's files, which tag characters."""
    (tmp_path / "t.tsv").write_text(
        "## klue-1\t가 나\n가\tB-LC\n \tO\n나\tO\n\n## klue-2\t나\n나\tO\n", encoding="utf-8"
    )
    first, second = read_rows(tmp_path / "t.tsv", conll=True)
    assert (first["tokens"], first["tags"]) == (["가", " ", "나"], ["B-LC", "O", "O"])
    assert second["tokens"] == ["나"]


BIOBERT = "Aspirin\tB\ninhibits\tO\nCOX\tB\n-\tI\n2\tI\n\nIt\tO\nworks\tO\n"
GERMEVAL = "#\thttp://x [2009]\n1\tSchartau\tB-PER\tO\n2\tsagte\tO\tB-LOC\n\n#\thttp://y\n1\tBMW\tB-ORG\tO\n"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", BIOBERT),
        ("t.csv", BIOBERT),
        ("t.csv", BIOBERT.replace("\t", ",").replace("-,", '"-",')),
        ("t.csv", BIOBERT.replace("\t", ";")),
        ("t.csv", BIOBERT.replace("\t", " ")),
        ("t.tsv", BIOBERT.replace("\t", " ")),
        ("t.tsv", f"word\ttag\n{BIOBERT}"),
        ("t.txt", f"TOKEN LABEL\n{BIOBERT}".replace("\t", " ")),
        ("t.tsv", f"# a comment\n# another\tone\n{BIOBERT}"),
        ("t.conll", f"tokens\ttags\n{BIOBERT}"),
    ],
)
def test_case_13_columns_in_a_file_of_any_name_are_read(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    rows = read_rows(tmp_path / name, conll=True, names=("tokens", "tags"))
    assert [row["tokens"] for row in rows] == [["Aspirin", "inhibits", "COX", "-", "2"], ["It", "works"]]
    assert [row["tags"] for row in rows] == [["B", "O", "B", "I", "I"], ["O", "O"]]


@pytest.mark.parametrize("name", ["t.tsv", "NER-de-train.conll"])
def test_case_13_numbered_words_of_germeval_have_outer_tags(tmp_path, name):
    (tmp_path / name).write_text(GERMEVAL)
    first, second = read_rows(tmp_path / name, conll=True)
    assert (first["tokens"], first["tags"], first["3"]) == (["Schartau", "sagte"], ["B-PER", "O"], ["O", "B-LOC"])
    assert (second["tokens"], second["tags"]) == (["BMW"], ["B-ORG"])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1\tHi\tO\n\n1\tthe\tO\n2\tcat\tO\n", [["Hi"], ["the", "cat"]]),
        ("1\tHi\tO\n\n1\tHo\tO\n", [["Hi"], ["Ho"]]),
        ("1\tCD\tO\n\n7\tCD\tO\n", [["1"], ["7"]]),
        ("1\tCD\tO\n", [["1"]]),
        ("id\tword\ttag\n1\tHi\tO\n", [["Hi"]]),
    ],
)
def test_read_conll_of_one_numbered_word_reads_it_as_the_others(text, expected, tmp_path):
    (tmp_path / "t.tsv").write_text(text)
    assert [row["tokens"] for row in read_conll(tmp_path / "t.tsv")] == expected


def test_read_conll_of_words_numbered_from_zero_reads_the_words(tmp_path):
    """As a data frame is written with its index."""
    (tmp_path / "t.tsv").write_text("0\tAda\tB-PER\n1\tran\tO\n\n2\tBob\tB-PER\n3\tsat\tO\n")
    rows = read_rows(tmp_path / "t.tsv", conll=True, names=("tokens", "tags"))
    assert [row["tokens"] for row in rows] == [["Ada", "ran"], ["Bob", "sat"]]


def test_read_conll_without_empty_lines_says_that_it_is_one_sentence(tmp_path, caplog):
    path = tmp_path / "t.conll"
    path.write_text("Ada B-PER\nran O\n" * 101)
    read_rows(path, conll=True)
    assert caplog.messages == [f"{path} has no empty line, so its 202 words are one sentence."]
    caplog.clear()
    path.write_text("Ada B-PER\nran O\n" * 101 + "\nAda O\n")
    read_rows(path, conll=True)
    assert caplog.messages == []


def test_read_conll_of_numbers_as_words_keeps_them(tmp_path):
    (tmp_path / "t.conll").write_text("1 CD O\n\n7 CD O\n8 CD O\n\n1 CD O\n2 CD O\n")
    rows = read_rows(tmp_path / "t.conll", conll=True)
    assert [row["tokens"] for row in rows] == [["1"], ["7", "8"], ["1", "2"]]
    (tmp_path / "predictions.conll").write_text("1 CD O\n2 CD O\n")
    (row,) = read_conll(tmp_path / "predictions.conll", is_data=False)
    assert row["tokens"] == ["1", "2"]


def test_read_conll_with_header_has_columns_by_name(tmp_path):
    (tmp_path / "t.tsv").write_text("id\tWord\tPOS\tTag\na\tBob\tNNP\tB-per\nb\tran\tVBD\tO\n\nc\tno\tUH\tO\n")
    first, second = read_rows(tmp_path / "t.tsv", conll=True)
    assert (first["tokens"], first["tags"], first["POS"]) == (["Bob", "ran"], ["B-per", "O"], ["NNP", "VBD"])
    assert second["Word"] == ["no"]
    (tmp_path / "t.tsv").write_text("w\tner\na\tO\nb\tO\n\nc\tO\n")
    first, _ = read_rows(tmp_path / "t.tsv", conll=True, names=("w", "ner"))
    assert first["w"] == ["a", "b"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", "서울 사는 김 철수\tLOC-B O PER-B PER-I\n네\tO\n"),
        ("t.tsv", "네\tO\n서울 사는 김 철수\tLOC-B O PER-B PER-I\n"),
        ("t.csv", '"서울 사는 김 철수",LOC-B O PER-B PER-I\n네,O\n'),
        ("train.txt", "서울 사는 김 철수\tLOC-B O PER-B PER-I\n네\tO\n"),
    ],
)
def test_case_14_sentences_and_tags_without_header_are_read(tmp_path, name, content):
    (tmp_path / name).write_text(content, encoding="utf-8")
    rows = read_rows(tmp_path / name, conll=True, names=("tokens", "tags"))
    found = {row["tokens"]: row["tags"] for row in rows}
    assert found == {"서울 사는 김 철수": "LOC-B O PER-B PER-I", "네": "O"}


@pytest.mark.parametrize(
    ("name", "content", "first"),
    [
        ("t.tsv", "tokens\ttags\na cat\tO B-A\n\nsat\tO\n", {"tokens": "a cat", "tags": "O B-A"}),
        ("t.tsv", "text\tlabels\na cat\tO B-A\na dog\tO B-A\n", {"text": "a cat", "labels": "O B-A"}),
        ("t.csv", "id,word,tag\n1,Bob,O\n,ran,O\n\n2,Ada,O\n,ran,O\n", {"id": "1", "word": "Bob", "tag": "O"}),
        ("t.csv", "words,labels\n\nBob,O\n\nAda,O\n", {"words": "Bob", "labels": "O"}),  # Windows' line ends, twice
    ],
)
def test_read_rows_of_table_with_header_remains_a_table(tmp_path, name, content, first):
    (tmp_path / name).write_text(content)
    assert read_rows(tmp_path / name, conll=True, names=("tokens", "tags"))[0] == first


def test_read_rows_of_texts_for_tagging_are_no_columns(tmp_path):
    """New texts are not taken for columns if each has two words."""
    (tmp_path / "t.txt").write_text("good morning\nmany thanks\n\nbest wishes\n")
    rows = read_rows(tmp_path / "t.txt", conll=True, as_row=lambda line: {"text": line})
    assert [row["text"] for row in rows] == ["good morning", "many thanks", "best wishes"]
    (tmp_path / "t.txt").write_text("Bob B-PER\nran O\n\nno O\n")
    rows = read_rows(tmp_path / "t.txt", conll=True, as_row=lambda line: {"text": line})
    assert [row["tokens"] for row in rows] == [["Bob", "ran"], ["no"]]


@pytest.mark.parametrize(("first", "words"), [("word\tpos\ttag", ["b"]), ("word\ttag\tO", ["word", "b"])])
def test_a_header_ends_with_a_name_of_tags(first, words, tmp_path):
    path = tmp_path / "a.conll"
    path.write_text(f"{first}\nb\tNN\tO\n")
    assert read_rows(path, conll=True)[0]["tokens"] == words
