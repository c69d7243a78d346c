import pytest

from mybert.tokenization import MyBertTokenizer, load_vocab, save_vocab
from mybert.tokenization.vocab import looks_accented, looks_cased, reserved_tokens

SPECIAL = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "vocab.txt"
        path.write_bytes(data if isinstance(data, bytes) else data.encode())
        return path

    return write


def test_released_vocabulary_and_back(google_vocab_file, tmp_path):
    vocab = load_vocab(google_vocab_file)
    assert len(vocab) == 30522
    assert (vocab["[PAD]"], vocab["[unused98]"], vocab["[MASK]"], vocab["the"]) == (0, 99, 103, 1996)
    save_vocab(vocab, tmp_path / "vocab.txt")
    assert (tmp_path / "vocab.txt").read_bytes() == google_vocab_file.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["vocab.txt"]


@pytest.mark.parametrize(
    "data",
    [
        SPECIAL + "the\n##s\n",
        SPECIAL + "the\n##s",
        SPECIAL + "the\n##s\n\n \t\n",
        (SPECIAL + "the\n##s\n").replace("\n", "\r\n"),
        SPECIAL + " the \n##s\t\n",
        "\ufeff" + SPECIAL + "the\n##s\n",
    ],
    ids=["plain", "no last newline", "blank end", "crlf", "spaces", "byte-order mark"],
)
def test_tolerated(data, write):
    path = write(data)
    assert list(load_vocab(path)) == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "##s"]
    assert MyBertTokenizer(path).tokenize("the") == ["the"]


def test_unicode_line_ends_are_pieces(write):
    """Only newlines end a line; splitlines would split at these and shift all later ids."""
    assert list(load_vocab(write("a\n\u2028\n\u0085\nb\n"))) == ["a", "\u2028", "\u0085", "b"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (SPECIAL + "the\ncat\nthe\n", r"vocab.txt: 'the' is on line 6 and again on line 8"),
        (SPECIAL + "the \nthe\n", r"'the' is on line 6 and again on line 7"),
        (SPECIAL + "\nthe\n", r"vocab.txt: line 6 is blank"),
        ("", r"vocab.txt: line 1 is blank"),
        (SPECIAL.encode() + b"caf\xe9\n", r"vocab.txt is not a UTF-8 vocabulary: bad byte at offset 34"),
        (SPECIAL.encode("utf-16"), r"vocab.txt is not a UTF-8 vocabulary: bad byte at offset 0"),
    ],
)
def test_errors(data, message, write):
    path = write(data)
    for read in (load_vocab, MyBertTokenizer, MyBertTokenizer.from_pretrained):
        with pytest.raises(ValueError, match=message):
            read(path)


@pytest.mark.parametrize("missing", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
def test_missing_special_token(missing, write):
    path = write(SPECIAL.replace(f"{missing}\n", "") + "the\n")
    with pytest.raises(ValueError, match=rf"vocab.txt lacks the special token \[{missing[1:-1]}\]"):
        MyBertTokenizer(path)


def test_reserved_tokens(google_vocab_file):
    assert reserved_tokens("google") == list(load_vocab(google_vocab_file))[:999]
    assert reserved_tokens("compact") == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    with pytest.raises(ValueError, match="expected 'google' or 'compact'"):
        reserved_tokens("other")


def test_looks_cased(google_vocab_file):
    assert not looks_cased(load_vocab(google_vocab_file))
    assert looks_cased(["[PAD]", "the", "The", "##s"])
    assert looks_cased(["[PAD]", "[UNK]", "the"]) is False
    hangul = [chr(code) for code in range(0xAC00, 0xAC00 + 2000)]
    assert looks_cased(hangul) is None
    assert looks_cased([*hangul, *"ABCDabcd"]) and looks_cased([*hangul, *"abcd"]) is False


def test_looks_accented(google_vocab_file):
    assert not looks_accented(load_vocab(google_vocab_file))
    assert looks_accented(["[PAD]", "한", "##국", "the"]) and looks_accented(["cafe", "café"])
    words = [f"w{i}" for i in range(198)]
    assert not looks_accented(["[PAD]", *words, "é", "è"])  # one in a hundred may be
    assert looks_accented(["[PAD]", *words[1:], "é", "è", "ê"])


def test_one_piece_in_a_hundred_may_have_capitals():
    words = [f"w{i}" for i in range(198)]
    assert looks_cased([*words, "A", "B"]) is False
    assert looks_cased([*words[1:], "A", "B", "C"])
