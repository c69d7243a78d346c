import gzip

import pytest

from mybert.pretraining import read_documents, split_sentences


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
    assert list(read_documents(first, split=True)) == [["One.", "Two.", "Three."], ["Four."]]
    assert list(read_documents(tmp_path)) == list(read_documents([first, second]))


def test_text_that_is_not_text(tmp_path):
    path = tmp_path / "latin.txt"
    path.write_bytes("caf\xe9".encode("latin-1") + b" au lait\n")
    with pytest.raises(ValueError, match=r"latin.txt is not utf-8 text: bad byte at offset 3 .*--encoding"):
        list(read_documents(path))
    assert list(read_documents(path, encoding="latin-1")) == [["café au lait"]]
