import gzip
import io
import json
import lzma
import sys

import pytest

from mybert.files.documents import Corpus, DocumentSettings, expand_sources
from mybert.pretraining import build_token_store, read_documents, split_sentences

TEXTS = ["One. Two.\nThree.\n\nFour.", None, "", ["Five.", " Six\n\nor so. "], "Seven\u2028still."]
DOCUMENTS = [["One. Two.", "Three.", "Four."], ["Five.", "Six  or so."], ["Seven\u2028still."]]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        ("no end", ["no end"]),
        ("One. Two! Three? Four", ["One.", "Two!", "Three?", "Four"]),
        ('He said "Go." Then he left.', ['He said "Go."', "Then he left."]),
        ("Mr. Smith met Dr. J. R. Jones, e.g. here. Good.", ["Mr. Smith met Dr. J. R. Jones, e.g. here.", "Good."]),
        ("Version 1.5 is out. 2 more follow.", ["Version 1.5 is out.", "2 more follow."]),
        ("It costs 3. Really?! Yes…  No.", ["It costs 3.", "Really?!", "Yes…", "No."]),
        ("Sie kam. Äpfel gab es.", ["Sie kam.", "Äpfel gab es."]),
        ("etc. and so on... then", ["etc. and so on... then"]),
        ("你好。再见！", ["你好。", "再见！"]),
        ("안녕하세요. 반갑습니다.", ["안녕하세요.", "반갑습니다."]),
        ('He said "No." Mr. Hall left.', ['He said "No."', "Mr. Hall left."]),
        ("他说：“好。”她走了？！是。", ["他说：“好。”", "她走了？！", "是。"]),
        ("line\nbreaks are. Spaces\n too", ["line breaks are.", "Spaces too"]),
    ],
)
def test_split_sentences(text, sentences):
    assert split_sentences(text) == sentences


def test_read_documents(tmp_path):
    first, second = tmp_path / "a.txt", tmp_path / "b.txt.gz"
    first.write_text("\n  One. Two. \nThree.\n\n\n \nFour.\n")
    second.write_bytes(gzip.compress(b"Five.\r\n\r\nSix."))
    assert list(read_documents([first, second])) == [["One. Two.", "Three."], ["Four."], ["Five."], ["Six."]]
    assert list(read_documents(first, split_sentences=True)) == [["One.", "Two.", "Three."], ["Four."]]
    assert list(read_documents(tmp_path)) == list(read_documents([first, second]))
    first.write_bytes(b"caf\xe9 au lait\n")
    assert list(read_documents(first, encoding="latin-1")) == [["café au lait"]]
    with pytest.raises(TypeError, match="split"):
        read_documents([], split=True)


def test_json_lines(tmp_path):
    lines = "\n".join(json.dumps({"id": 1, "text": text}) for text in TEXTS) + "\n\n"
    for name, data in (("a.jsonl", lines.encode()), ("b.json.xz", lzma.compress(lines.encode()))):
        (tmp_path / name).write_bytes(data)
        assert list(read_documents(tmp_path / name)) == DOCUMENTS
    split = [["One.", "Two.", "Three.", "Four."], ["Five.", "Six or so."], ["Seven still."]]
    assert list(read_documents(tmp_path / "a.jsonl", split_sentences=True)) == split
    (tmp_path / "c.ndjson").write_text('{"body": "One."}')
    assert list(read_documents(tmp_path / "c.ndjson", text_column="body")) == [["One."]]


def test_read_documents_of_a_table_without_its_ending_is_an_error(tmp_path):
    path = tmp_path / "a.txt"
    for line in ("text\tlabel", "id,text", '"text";"label"'):
        path.write_text(f"{line}\n\nOne\n")
        with pytest.raises(
            ValueError, match=r"a\.txt begins with names of columns, '.*'; expected lines of text, or a"
        ):
            list(read_documents(path))
    for line in ("text", "text, images", "texts\tlabel"):
        path.write_text(f"{line}\n")
        assert list(read_documents(path)) == [[line]]


def test_objects_of_json_are_no_plain_text(tmp_path, monkeypatch):
    line = '\n{"text": "One."}\n'
    for name in ("a.txt", "a", "a.txt.gz"):
        (tmp_path / name).write_bytes(gzip.compress(line.encode()) if name.endswith(".gz") else line.encode())
        with pytest.raises(ValueError, match=rf"{name} holds objects of JSON; expected a file .* ends in \.jsonl\."):
            list(read_documents(tmp_path / name))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(line.encode())))
    with pytest.raises(ValueError, match="Standard input holds objects of JSON"):
        list(read_documents("-"))
    for text in ("{One}", '["One"]', "{"):
        (tmp_path / "a.txt").write_text(f"{text}\n")
        assert list(read_documents(tmp_path / "a.txt")) == [[text]]


@pytest.mark.parametrize("name", ["a.csv", "a.TSV", "a.csv.gz", "a.ndjson.gz"])
def test_tables_are_read_by_their_column(tmp_path, name):
    data = b'{"id": 7, "body": "One, two."}\n'
    if "json" not in name:
        data = b'id,body\n7,"One, two."\n' if "csv" in name else b"id\tbody\n7\tOne, two.\n"
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert list(read_documents(tmp_path, text_column="body")) == [["One, two."]]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{'text': 1}", "bad.jsonl, line 2: not JSON"),
        ('{"body": "a", "id": 1}', "line 2 has no 'text', only 'body', 'id'"),
        ('{"text": 5}', "bad.jsonl, line 2: 'text' is int"),
        ('{"text": ["a", 5]}', "bad.jsonl, line 2: 'text' is list"),
    ],
)
def test_json_that_is_not_as_expected(tmp_path, line, message):
    path = tmp_path / "bad.jsonl"
    path.write_text('{"text": "good"}\n' + line)
    documents = read_documents(path)
    assert next(documents) == ["good"]
    with pytest.raises(ValueError, match=message):
        next(documents)


def test_half_a_character_pair_in_json_is_text(tmp_path, tokenizer):
    path = tmp_path / "half.jsonl"
    path.write_text('{"text": "the cat \\ud83d sat"}')
    assert list(read_documents(path)) == [["the cat \ud83d sat"]]
    assert build_token_store(path, tokenizer, tmp_path / "store", show_progress=False).tokens == 4


def test_parquet(tmp_path, monkeypatch):
    pyarrow = pytest.importorskip("pyarrow", reason="Parquet files are read with pyarrow")
    from pyarrow import parquet

    strings = [text for text in TEXTS if not isinstance(text, list)]
    expected = [DOCUMENTS[0], DOCUMENTS[2]]
    path = tmp_path / "a.parquet"
    for column in (pyarrow.array(strings), pyarrow.array(strings).dictionary_encode(), pyarrow.array(strings * 300)):
        parquet.write_table(pyarrow.table({"id": range(len(column)), "text": column}), path, row_group_size=100)
        assert list(read_documents(path)) == expected * (len(column) // len(strings))
    parquet.write_table(pyarrow.table({"text": [TEXTS[3], None]}), path)
    assert list(read_documents(path)) == [DOCUMENTS[1]]
    parquet.write_table(pyarrow.table({"text": [7]}), path)
    with pytest.raises(ValueError, match=r"a.parquet, row 1: 'text' is int"):
        list(read_documents(path))
    with pytest.raises(ValueError, match=r"a.parquet has no 'body', only 'text'; rename it, or pass text_column"):
        list(read_documents(path, text_column="body"))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"a.parquet needs the package pyarrow: pip install pyarrow"):
        list(read_documents(path))


def test_data_sets_of_the_hub(tmp_path, monkeypatch):
    datasets = pytest.importorskip("datasets", reason="data sets of the Hub are read with datasets")
    asked = []

    def load_dataset(name, configuration, *, split, streaming):
        asked.append((name, configuration, split))
        if name == "owner/none":
            raise datasets.exceptions.DatasetNotFoundError("Dataset 'owner/none' doesn't exist on the Hub.")
        assert streaming
        return iter([{"text": text} for text in TEXTS])

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    monkeypatch.chdir(tmp_path)
    for name in ("owner/name", "hf:owner/name", "hf:wikitext:raw", "hf:owner/name:a:test[:5%]", "hf:owner/name::dev"):
        assert list(read_documents(name)) == DOCUMENTS
    assert asked == [
        ("owner/name", None, "train"),
        ("owner/name", None, "train"),
        ("wikitext", "raw", "train"),
        ("owner/name", "a", "test[:5%]"),
        ("owner/name", None, "dev"),
    ]
    with pytest.raises(ValueError, match=r"owner/name, split train, row 1 has no 'body', only 'text'"):
        list(read_documents("owner/name", text_column="body"))
    with pytest.raises(OSError, match=r"'owner/none' could not be loaded \(Dataset 'owner/none' doesn't"):
        list(read_documents("owner/none"))
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ImportError, match=r"needs the package datasets"):
        list(read_documents("owner/name"))


def test_a_name_is_of_the_hub_only_where_nothing_on_disk_looks_like_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "text").write_text("One.")
    assert expand_sources(["folder/text", "folder", "owner/name", "hf:folder/text"]) == [
        "folder/text",
        "hf:owner/name",
        "hf:folder/text",
    ]
    for missing in ("folder/none", "data/corpus.txt", "none", "a/b/c"):
        with pytest.raises(FileNotFoundError, match=f"There is no file or folder {missing}"):
            expand_sources(missing)


@pytest.mark.parametrize(
    ("named", "read"),
    [
        (["a.txt", "a.txt"], "AA"),
        (["a.txt", "b.txt", "./a.txt"], "ABA"),
        (["", ""], "ABAB"),
        (["", "a.txt", "*.txt"], "AB"),
        (["", "a.txt", "a.txt"], "ABA"),
    ],
)
def test_what_is_named_twice_is_read_twice(tmp_path, monkeypatch, named, read):
    """A file in a folder that is named, too, is read once."""
    monkeypatch.chdir(tmp_path)
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"{name.upper()}\n")
    documents = list(read_documents([name or "." for name in named], document_end="file"))
    assert documents == [[letter] for letter in read]


@pytest.mark.parametrize("name", ["b.txt", "b.csv", "b.jsonl", "b.txt.gz"])
def test_a_corpus_names_all_files_of_another_encoding(tmp_path, name):
    """Whether the first one is read as lines or as rows."""
    texts = {"a.txt": "a cat", name: "café", "c.txt": "한국어", "d.txt": "naïve", "e.txt": "a dog"}
    for file, text in texts.items():
        text = {"b.csv": f"text\n{text}\n", "b.jsonl": f'{{"text": "{text}"}}\n'}.get(file, text)
        encoding = "cp949" if file == "c.txt" else "cp1252"
        content = text.encode(encoding)
        (tmp_path / file).write_bytes(gzip.compress(content) if file.endswith("gz") else content)
    message = rf"{name} is not utf-8 text: .*[^.]; 2 other files are not utf-8 text either: c.txt, d.txt\.$"
    for read in ("lines", "texts"):
        with pytest.raises(ValueError, match=message):
            list(getattr(Corpus(tmp_path, DocumentSettings()), read)())


def test_a_corpus_names_a_single_file_of_another_encoding_as_before(tmp_path):
    (tmp_path / "a.txt").write_bytes("café".encode("cp1252"))
    (tmp_path / "b.txt").write_text("a cat")
    with pytest.raises(ValueError, match=r"a.txt is not utf-8 text: .* pass encoding=.*\.$") as caught:
        list(Corpus(tmp_path, DocumentSettings()).lines())
    assert "other" not in str(caught.value)
