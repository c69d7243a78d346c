import pytest

from mybert.files.settings import build
from mybert.tokenization import MyBertTokenizer, load_vocab, save_vocab
from mybert.tokenization.settings import VocabularySettings, reserved_tokens
from mybert.tokenization.vocab import looks_accented, looks_cased, unknown_warning

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
    assert not looks_cased(vocab) and not looks_accented(vocab)
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


@pytest.mark.parametrize("vocabulary", [[], {}])
def test_tokenizer_of_no_pieces_says_what_is_expected(vocabulary):
    with pytest.raises(ValueError, match=r"^The vocabulary is empty; expected one piece per line\.$"):
        MyBertTokenizer(vocab=vocabulary)


@pytest.mark.parametrize("missing", ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
def test_missing_special_token(missing, write):
    path = write(SPECIAL.replace(f"{missing}\n", "") + "the\n")
    with pytest.raises(ValueError, match=rf"vocab.txt lacks the special token \[{missing[1:-1]}\]"):
        MyBertTokenizer(path)


def test_reserved_tokens(google_vocab_file):
    assert reserved_tokens("google") == list(load_vocab(google_vocab_file))[:999]
    assert reserved_tokens("compact") == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


HANGUL = [chr(code) for code in range(0xAC00, 0xAC00 + 2000)]
WORDS = [f"w{number}" for number in range(198)]


@pytest.mark.parametrize(
    ("pieces", "cased"),
    [
        (["[PAD]", "the", "The", "##s"], True),
        (["[PAD]", "[UNK]", "the"], False),
        (HANGUL, None),
        ([*HANGUL, *"ABCDabcd"], True),
        ([*HANGUL, *"abcd"], False),
        ([*WORDS, "A", "B"], False),  # one in a hundred may have capitals
        ([*WORDS[1:], "A", "B", "C"], True),
    ],
)
def test_looks_cased(pieces, cased):
    assert looks_cased(pieces) is cased


@pytest.mark.parametrize(
    ("pieces", "accented"),
    [
        (["[PAD]", "한", "##국", "the"], True),
        (["cafe", "café"], True),
        (["[PAD]", *WORDS, "é", "è"], False),  # one in a hundred may have accents
        (["[PAD]", *WORDS[1:], "é", "è", "ê"], True),
    ],
)
def test_looks_accented(pieces, accented):
    assert looks_accented(pieces) is accented


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"vocab_size": 999}, "--vocab_size"),  # those of the released vocabulary come first
        ({"vocab_size": 5, "vocab_layout": "compact"}, "--vocab_size"),
        ({"validation_split": 0.51}, "--validation_split"),
        ({"validation_split": -0.01}, "--validation_split"),
        ({"character_coverage": 0.0}, "--character_coverage"),
        ({"character_coverage": 1.01}, "--character_coverage"),
        ({"min_frequency": 0}, "--min_frequency"),
        ({"num_processes": 0}, "--num_processes"),
    ],
)
def test_settings_out_of_range_are_errors(settings, options, user_error):
    with user_error(options):
        build(VocabularySettings, settings)


def test_settings_at_their_limits_and_defaults():
    limits = {"vocab_size": 1000, "validation_split": 0.5, "character_coverage": 1.0, "min_frequency": 1}
    assert build(VocabularySettings, limits | {"num_processes": 1}).vocab_size == 1000
    assert build(VocabularySettings, {"vocab_size": 6, "vocab_layout": "compact"}).vocab_size == 6
    released = build(VocabularySettings, {})
    assert (released.vocab_size, released.vocab_layout, released.do_lower_case) == (30522, "google", True)
    assert (released.strip_accents, released.validation_split, released.min_frequency) == (False, 0.0, 2)


def test_a_tenth_of_unknown_tokens_is_no_warning():
    assert unknown_warning(10, 100, "") == unknown_warning(0, 0, "") == ""
    warning = unknown_warning(11, 100, "Try another.")
    assert warning.startswith("11 % of the tokens are [UNK]") and warning.endswith("Try another.")
