import copy
import pickle
import sys
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken
from transformers import BertTokenizer

from mybert.pretraining.build_store import _ChunkEncoder
from mybert.tokenization import BulkEncoder, MyBertTokenizer, encode_words
from mybert.tokenization.words import WordSplitter, _Counter

SETTINGS = list(product((True, False), (None, True, False), (True, False)))
EXTRA = [
    *("", " ", "\n", "\u3000", "\x0b", "\0", "a\0", "a\x0bb a\x85b", "[MASK]", "x[MASK]y[SEP] [MA\x0bSK]"),
    *("\ud800a b", "a b\nc\td", "a\u00a0b\u2028c", "ab" * 8, "ab" * 8 + "c", "ab" * 100, "ab" * 101),
    *("한국어 " * 5, "\u200b"),
]


def check(encoder, tokenizer, texts):
    ids, offsets = encoder.encode(texts)
    assert ids.dtype == encoder.dtype
    assert offsets.dtype == np.int64
    assert (offsets[0], offsets[-1], len(offsets)) == (0, len(ids), len(texts) + 1)
    expected = tokenizer(texts, add_special_tokens=False)["input_ids"]
    found = [ids[start:end].tolist() for start, end in pairwise(offsets)]
    assert found == expected


@pytest.mark.parametrize("lower", [True, False])
def test_identical_on_hostile_strings(lower, tokenizers, hostile_strings):
    tokenizer, _ = tokenizers[lower]
    encoder = BulkEncoder(tokenizer)
    for _ in range(2):  # cold, then from the memo
        check(encoder, tokenizer, [*hostile_strings, *EXTRA])


@pytest.fixture(scope="module")
def encoders(google_vocab_file):
    """For all settings: a tokenizer, and an encoder whose cache keeps the strings of earlier examples."""
    # the longest piece is never used: words of more than 200 characters are unknown
    pieces = [*Path(google_vocab_file).read_text(encoding="utf-8").splitlines(), "b" * 201]
    tokenizers = [
        MyBertTokenizer(pieces, lower, strip_accents=strip, tokenize_chinese_chars=chinese)
        for lower, strip, chinese in SETTINGS
    ]
    for tokenizer in tokenizers:
        tokenizer.add_tokens([AddedToken("qwertz", normalized=False)])
    return [(tokenizer, BulkEncoder(tokenizer)) for tokenizer in tokenizers]


HOSTILE = "aAbB.,'-#[] \n\r\t\x0b\0\x7f\x85\u00a0\u3000éÉ\u0301ΣσςİK中한ㄱ\ud800\U0001f600\u200b"
WHOLE = ["[MASK]", "[mask]", "[SEP]", "qwertz", "QWERTZ", "##ing", "a" * 16, "a" * 17, "É" * 8, "b" * 201]
FRAGMENTS = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(max_codepoint=0x7F), max_size=20),
    st.text(st.sampled_from(HOSTILE), max_size=40),
    st.sampled_from(WHOLE),
)


@given(st.lists(st.lists(FRAGMENTS, max_size=8).map("".join), min_size=1, max_size=5))
@example(["b" * 201])
@settings(deadline=None, max_examples=300)
def test_identical_on_any_text(encoders, texts):
    for tokenizer, encoder in encoders:
        check(encoder, tokenizer, texts)


@pytest.mark.parametrize("lower", [True, False])
def test_every_pair_of_ascii_characters(lower, tokenizers):
    tokenizer, _ = tokenizers[lower]
    texts = [f"x{a}{b}Y" for a, b in product(map(chr, range(0x80)), repeat=2)]
    check(BulkEncoder(tokenizer), tokenizer, texts)


@pytest.mark.slow
@pytest.mark.parametrize("lower", [True, False])
def test_every_character(lower, tokenizers):
    tokenizer, _ = tokenizers[lower]
    encoder = BulkEncoder(tokenizer)
    points = [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]
    for start in range(0, len(points), 1 << 15):
        texts = [f"a{chr(point)}B" for point in points[start : start + (1 << 15)]]
        expected = [row.ids for row in tokenizer.backend_tokenizer.encode_batch_fast(texts, add_special_tokens=False)]
        ids, offsets = encoder.encode(texts)
        assert ids.tolist() == [id_ for row in expected for id_ in row]
        assert np.diff(offsets).tolist() == list(map(len, expected))


def test_small_memo_and_slices(tokenizers, hostile_strings, monkeypatch):
    monkeypatch.setattr("mybert.tokenization.bulk_encoding._SLICE_CHARACTERS", 50)
    tokenizer, _ = tokenizers[True]
    encoder = BulkEncoder(tokenizer, memo_characters=100)
    check(encoder, tokenizer, hostile_strings[:1000])
    assert encoder._encoder._remembered < 2000


def test_memo_grows(tokenizers):
    """More distinct chunks than the first hash table can hold, with keys that share a slot."""
    tokenizer, _ = tokenizers[True]
    texts = [" ".join(f"{i:x}" for i in range(start, start + 1000)) for start in range(0, 100_000, 1000)]
    encoder = BulkEncoder(tokenizer)
    check(encoder, tokenizer, texts[:5])
    check(encoder, tokenizer, texts)
    check(encoder, tokenizer, texts[::-1])
    assert encoder._encoder._remembered == sum(map(len, " ".join(texts).split()))  # each word was cached once


def test_words_of_an_equal_half_share_slots(tokenizers):
    """Words are compared by 8 bytes at a time."""
    tokenizer, _ = tokenizers[True]
    texts = [f"{before:04}{'x' * 4}{after:04}" for before in (0, 1) for after in range(1500)]
    check(BulkEncoder(tokenizer), tokenizer, [" ".join(texts), *(text[4:] + text[:4] for text in texts)])


def test_processes(tokenizers, hostile_strings, monkeypatch):
    monkeypatch.setattr("mybert.tokenization.bulk_encoding._SLICE_CHARACTERS", 5000)
    tokenizer, _ = tokenizers[True]
    with BulkEncoder(tokenizer, num_processes=2) as encoder:
        check(encoder, tokenizer, hostile_strings[:1000])
        batches = [hostile_strings[i : i + 100] for i in range(0, 1000, 100)]
        streamed = list(encoder.encode_stream(iter(batches)))
    whole, _ = BulkEncoder(tokenizer).encode(hostile_strings[:1000])
    np.testing.assert_array_equal(np.concatenate([ids for ids, _ in streamed]), whole)
    np.testing.assert_array_equal(encode_words(hostile_strings[:1000], tokenizer)[0], whole)
    ids, offsets = BulkEncoder(tokenizer).encode([])
    assert (len(ids), offsets.tolist()) == (0, [0])


def test_functions_of_workers_can_be_pickled(tmp_path, tokenizers):
    """Where processes are started afresh, as on Windows and macOS."""
    tokenizer, _ = tokenizers[True]
    check(pickle.loads(pickle.dumps(BulkEncoder(tokenizer))), tokenizer, EXTRA)
    chunks, counter = (
        pickle.loads(pickle.dumps(function))
        for function in (
            _ChunkEncoder(tokenizer, "fingerprint", False, tmp_path),
            _Counter(WordSplitter(True, None), 0),
        )
    )
    assert chunks(["the cat", ""]) == next(tmp_path.iterdir())
    assert counter([("cat.", 2)]) == {"cat": 2, ".": 2}


def test_state_of_the_tokenizer_does_not_matter(google_vocab_file):
    tokenizer = MyBertTokenizer(google_vocab_file)
    tokenizer("a b c d", truncation=True, max_length=2, padding="max_length")
    assert BulkEncoder(tokenizer).encode(["the cat sat"])[0].tolist() == [1996, 4937, 2938]


def test_interrupted_learning_leaves_nothing_behind(tokenizers, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    tokenizer, _ = tokenizers[True]
    encoder = BulkEncoder(tokenizer)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr("mybert.tokenization.bulk_encoding._cut_out", interrupt)
        encoder.encode(["unbelievable words"])
    check(encoder, tokenizer, ["unbelievable words"])


def test_added_tokens(google_vocab_file):
    tokenizer = MyBertTokenizer(google_vocab_file)
    tokenizer.add_tokens([AddedToken("qwertz", normalized=False)])
    check(
        BulkEncoder(tokenizer),
        tokenizer,
        ["qwertz QWERTZ", "QWERTZ. qwertz. qwertzQWERTZ", "QWERTZ qwertz\x01 QWERTZ\x01"],
    )
    tokenizer.add_tokens([AddedToken("Zürich", normalized=True)])
    check(BulkEncoder(tokenizer), tokenizer, ["a qwertzqwertz Zürich ZURICH zurich b", *EXTRA])
    tokenizer.add_tokens(["new york"])
    with pytest.raises(ValueError, match="'new york' holds white space"):
        BulkEncoder(tokenizer)


def test_large_vocabulary():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(chr(0x10000 + i) for i in range(70_000))]
    tokenizer = MyBertTokenizer(pieces, do_lower_case=False)
    encoder = BulkEncoder(tokenizer)
    assert encoder.dtype == np.uint32
    check(encoder, tokenizer, ["\U0001f600 \U00020c00"])


def test_bulk_encoder_wrong_inputs_are_errors(google_vocab_file):
    with pytest.raises(TypeError, match="found BertTokenizer"):
        BulkEncoder(BertTokenizer(str(google_vocab_file)))
    with pytest.raises(TypeError, match="texts is a str"):
        BulkEncoder(MyBertTokenizer(google_vocab_file)).encode("the cat")


@pytest.mark.parametrize("split", [False, True])
def test_bulk_encoder_follows_the_tokenizer_not_its_last_call(tokenizers, split):
    tokenizer = copy.deepcopy(tokenizers[True][0])
    tokenizer.split_special_tokens = split
    text = "the [MASK] sat.[SEP]"
    expected = tokenizer(text, add_special_tokens=False).input_ids
    other = tokenizer(text, add_special_tokens=False, split_special_tokens=not split).input_ids
    assert expected != other
    assert BulkEncoder(tokenizer).encode([text])[0].tolist() == expected
    assert encode_words([text], tokenizer)[0].tolist() == expected
