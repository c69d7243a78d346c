"""New pieces for an existing vocabulary: their saving and their ids; words are split by BERT's rule."""

import inspect
import random
from collections import Counter

import pytest

from mybert import MyBertTokenizer
from mybert.tokenization import count_corpus_words, extend_vocabulary, spell

SPECIAL = ["[PAD]", "[unused0]", "[unused1]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = [prefix + letter for letter in "abcd" for prefix in ("", "##")]


@pytest.fixture
def letters() -> MyBertTokenizer:
    return MyBertTokenizer(vocab=[*SPECIAL, *LETTERS, "ab", "##cd"])


def tokens(tokenizer, words):
    return sum(count * len(tokenizer.tokenize(word)) for word, count in words.items())


def test_extend_vocabulary_takes_best_savings_first_and_unused_entries(letters):
    words = Counter({"abcd": 10, "abcda": 6, "bbbb": 7, "dd": 4, "a": 50})
    extension = extend_vocabulary(letters, words, 3, min_frequency=5)
    # By hand: ab ##cd -> abcd saves 16; b ##b ##b ##b -> bbbb saves 21; then abcda 6; dd occurs too rarely.
    assert list(extension.spellings.items()) == [
        ("bbbb", ["b", "##b", "##b", "##b"]),
        ("abcd", ["ab", "##cd"]),
        ("abcda", ["ab", "##cd", "##a"]),
    ]
    assert extension.in_place == 2
    vocab, old = extension.tokenizer.get_vocab(), letters.get_vocab()
    assert (vocab["bbbb"], vocab["abcd"], vocab["abcda"]) == (1, 2, len(old))
    assert all(vocab[piece] == index for piece, index in old.items() if "unused" not in piece)
    assert "[unused0]" not in vocab and "[unused0]" in old and len(letters) == len(old)
    assert extension.tokens_per_word == pytest.approx(
        (tokens(letters, words) / words.total(), tokens(extension.tokenizer, words) / words.total())
    )
    assert extension.tokenizer.tokenize("ABCDA bbbbb") == ["abcda", "bbbb", "##b"]


def test_extend_vocabulary_counts_what_a_new_piece_splits_differently(letters):
    words = Counter({"dac": 20, "dacdb": 6, "bdb": 5, "cdb": 5, "adb": 5, "aaaa": 6})
    # ##db saves 15 at first. dac saves 2 x 20 + 6, and turns d ##a ##cd ##b into dac ##d ##b, where ##db saves 6 more:
    # with 21 it comes before aaaa, which saves 3 x 6.
    assert list(extend_vocabulary(letters, words, 3, min_frequency=5).spellings) == ["dac", "##db", "aaaa"]


def test_a_new_piece_occurs_often_enough(letters):
    """Of one that saves three tokens each time, its count decides."""
    found = [extend_vocabulary(letters, Counter({"bbbb": count}), 3, min_frequency=5).spellings for count in (4, 5)]
    assert list(map(list, found)) == [[], ["bbbb"]]


def test_without_appending_there_are_as_many_as_entries_are_free(letters):
    words = Counter({"abcd": 10, "abcda": 6, "bbbb": 7})
    extension = extend_vocabulary(letters, words, 9, append=False)
    assert list(extension.spellings) == ["bbbb", "abcd"] and len(extension.tokenizer) == len(letters)
    with pytest.raises(ValueError, match=r"no free \[unused...\] entry"):
        extend_vocabulary(extension.tokenizer, words, 9, append=False)
    for wrong in ({"number": 0}, {"number": 1, "min_frequency": 0}):
        with pytest.raises(ValueError, match="expected at least 1"):
            extend_vocabulary(letters, words, **wrong)
    with pytest.raises(ValueError, match="holds no word"):
        extend_vocabulary(letters, Counter(), 1)


def test_characters_that_are_unknown_come_first(letters):
    words = Counter({"xab": 6, "abx": 7, "yy": 3, "abcd": 50})
    extension = extend_vocabulary(letters, words, 3, min_frequency=5)
    assert list(extension.spellings.items()) == [("##x", []), ("x", []), ("abcd", ["ab", "##cd"])]
    assert extension.tokenizer.tokenize("xab") == ["x", "##a", "##b"]
    assert extension.tokenizer.tokenize("yy") == ["[UNK]"]


@pytest.mark.parametrize("seed", range(6))
def test_every_piece_saves_tokens_and_the_order_of_words_does_not_matter(letters, seed):
    generator = random.Random(seed)
    words = Counter(
        {"".join(generator.choices("abcd", k=generator.randint(1, 9))): generator.randint(1, 40) for _ in range(80)}
    )
    extension = extend_vocabulary(letters, words, 25, min_frequency=3)
    pieces = list(extension.spellings)
    shuffled = list(words.items())
    generator.shuffle(shuffled)
    assert list(extend_vocabulary(letters, Counter(dict(shuffled)), 25, min_frequency=3).spellings) == pieces
    needed = tokens(letters, words)
    for count in range(1, len(pieces) + 1):
        shorter = extend_vocabulary(letters, words, count, min_frequency=3)
        assert list(shorter.spellings) == pieces[:count]
        saved, needed = needed - tokens(shorter.tokenizer, words), tokens(shorter.tokenizer, words)
        assert saved > 0, pieces[count - 1]
    # A new piece replaces the pieces into which the old tokenizer splits it.
    for piece, parts in extension.spellings.items():
        assert parts == spell(piece, letters.get_vocab())
        if not piece.startswith("##"):
            assert parts == letters.tokenize(piece)


def test_words_are_those_of_the_tokenizer(letters):
    assert inspect.signature(count_corpus_words).parameters["show_progress"].default is True
    documents = [["Ab, CD!", "ab"], ["É ab"]]
    assert count_corpus_words(documents, letters, 1, False) == Counter({"ab": 3, "cd": 1, ",": 1, "!": 1, "e": 1})


def test_the_tokenizer_is_saved_as_any_other(letters, tmp_path):
    extended = extend_vocabulary(letters, Counter({"abcd": 9}), 1).tokenizer
    extended.save_pretrained(tmp_path)
    loaded = MyBertTokenizer.from_pretrained(tmp_path)
    assert loaded.get_vocab() == extended.get_vocab() and loaded.tokenize("abcd") == ["abcd"]
    assert (tmp_path / "vocab.txt").read_text().splitlines()[1] == "abcd"


def test_the_unknown_token_may_have_another_name():
    names = {
        "pad_token": "<pad>",
        "unk_token": "<unk>",
        "cls_token": "<s>",
        "sep_token": "</s>",
        "mask_token": "<mask>",
    }
    tokenizer = MyBertTokenizer([*names.values(), *"abcd", "##b", "##c", "##d"], **names)
    extension = extend_vocabulary(tokenizer, Counter({"abc": 9, "abd": 8, "xb": 7}), 3)
    assert next(iter(extension.spellings)) == "x" and extension.tokens_per_word[1] < 2
    assert extension.tokenizer.unk_token == "<unk>" and extension.tokenizer.tokenize("abcz") == ["<unk>"]
