"""Sentences and pairs are truncated as by Google's code, with any tokenizer."""

import copy
import csv
from itertools import product

import numpy as np
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from mybert.tokenization import encode_and_truncate
from mybert.tokenization.truncation import lengths_of_pair


def as_google_cuts(first, second, space):
    """`_truncate_seq_pair` of google-research/bert, in its own steps."""
    first, second = list(first), list(second)
    while len(first) + len(second) > space:
        (first if len(first) > len(second) else second).pop()
    return first, second


@pytest.fixture(scope="module")
def roberta_like():
    """Another vocabulary, other special tokens, four of them around a pair."""
    backend = Tokenizer(models.WordLevel({"<s>": 0, "</s>": 1, "<unk>": 2, "a": 3, "b": 4}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 1)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>", cls_token="<s>", sep_token="</s>")


def test_the_room_of_a_pair():
    for first in range(9):
        for second in range(9):
            for space in range(17):
                google = as_google_cuts(range(first), range(second), space)
                assert lengths_of_pair(first, second, space) == tuple(map(len, google)), (first, second, space)


def test_where_the_librarys_own_truncation_differs(roberta_like):
    """As docs/tokenization.md says."""
    for first, second, space in product(range(1, 8), range(1, 8), range(2, 10)):
        texts = " ".join("a" * first), " ".join("b" * second)
        sides = roberta_like(*texts, truncation=True, max_length=space + 4).sequence_ids()
        google = lengths_of_pair(first, second, space)
        differs = first + second > space and space % 2 == 1 and second >= first > space // 2
        assert (sides.count(0), sides.count(1)) == (google[::-1] if differs else google)


def test_pairs_are_googles(tokenizer, roberta_like):
    generator = np.random.default_rng(0)
    for _ in range(50):
        words = [["a b"[2 * n] for n in generator.integers(0, 2, size)] for size in generator.integers(1, 12, 2)]
        length = int(generator.integers(4, 20))
        found = encode_and_truncate(roberta_like, [[" ".join(part) for part in words]], length)
        first, second = as_google_cuts(*words, length - 4)
        expected = ["<s>", *first, "</s>", "</s>", *second, "</s>"]
        assert roberta_like.convert_ids_to_tokens(found.inputs["input_ids"][0]) == expected
        assert found.sides[0] == [None, *[0] * len(first), None, None, *[1] * len(second), None]
        assert len(found.too_long) == (sum(map(len, words)) + 4 > length)
    found = encode_and_truncate(tokenizer, [("the cat sat", "a dog ran"), ("the cat", "fish")], 8)
    tokens = [tokenizer.convert_ids_to_tokens(row) for row in found.inputs["input_ids"]]
    assert tokens == ["[CLS] the cat sat [SEP] a dog [SEP]".split(), "[CLS] the cat [SEP] fish [SEP]".split()]
    assert found.inputs["token_type_ids"] == [[0, 0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1]]


def test_single_sentences_lose_their_end(tokenizer):
    texts = [("the cat sat on the mat",), ("a dog",)]
    found = encode_and_truncate(tokenizer, texts, 5, return_offsets_mapping=True)
    expected = tokenizer([text for (text,) in texts], truncation=True, max_length=5, return_offsets_mapping=True)
    assert found.inputs == dict(expected)
    assert len(found.too_long) == 1


def test_a_tokenizer_that_cuts_on_the_left(roberta_like):
    tokenizer = copy.deepcopy(roberta_like)
    tokenizer.truncation_side = "left"
    found = encode_and_truncate(tokenizer, [("a a b b", "a b")], 8).inputs["input_ids"]
    assert tokenizer.convert_ids_to_tokens(found[0]) == ["<s>", "b", "b", "</s>", "</s>", "a", "b", "</s>"]


def test_long_texts_are_tokenized_few_at_a_time(tokenizer, monkeypatch):
    texts = [("the cat " * length, "a dog") for length in (1, 40, 2, 3, 50, 60, 1)]
    whole = encode_and_truncate(tokenizer, texts, 12)
    sizes = []
    encode = type(tokenizer)._encode_plus

    def counted(self, *args, **settings):
        found = encode(self, *args, **settings)
        sizes.append(len(found["input_ids"]))
        return found

    monkeypatch.setattr(type(tokenizer), "_encode_plus", counted)
    monkeypatch.setattr("mybert.tokenization.truncation._CHUNK_CHARACTERS", 300)
    assert encode_and_truncate(tokenizer, texts, 12) == whole
    assert sizes == [2, 3, 1, 1]
    monkeypatch.setattr("mybert.tokenization.truncation._CHUNK_TEXTS", 2)
    monkeypatch.setattr("mybert.tokenization.truncation._CHUNK_CHARACTERS", 10_000)
    sizes.clear()
    assert encode_and_truncate(tokenizer, texts, 12) == whole and sizes == [2, 2, 2, 1]
    assert encode_and_truncate(tokenizer, [], 12) == ({}, [], [], [])


def test_truncation_without_space_for_text_is_an_error(roberta_like):
    assert encode_and_truncate(roberta_like, [("a", "b")], 4).inputs["input_ids"] == [[0, 1, 1, 1]]
    with pytest.raises(ValueError, match="max_length is 3; expected at least 4, the special tokens"):
        encode_and_truncate(roberta_like, [("a", "b")], 3)


def test_a_slow_tokenizer_truncates_by_its_own_rule_and_makes_no_windows():
    slow = ByT5Tokenizer()  # of bytes
    found = encode_and_truncate(slow, [("abcdef", "xy"), ("a", "x")], 8)
    assert [slow.decode(ids, skip_special_tokens=True) for ids in found.inputs["input_ids"]] == ["abcdxy", "ax"]
    with pytest.raises(ValueError, match="ByT5Tokenizer is not a fast tokenizer, which windows of long texts need"):
        encode_and_truncate(slow, [("abcdef", "xy")], 8, windows=lambda side, length: [range(length)])


def test_mrpc_is_googles_token_for_token(data_dir, tokenizer):
    with (data_dir / "glue" / "MRPC" / "dev.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    pairs = [(row["#1 String"], row["#2 String"]) for row in rows]
    found = encode_and_truncate(tokenizer, pairs, 32).inputs["input_ids"]
    assert len(found) == 408
    for pair, ids in zip(pairs, found, strict=True):
        first, second = as_google_cuts(*(tokenizer.tokenize(text) for text in pair), 29)
        assert tokenizer.convert_ids_to_tokens(ids) == ["[CLS]", *first, "[SEP]", *second, "[SEP]"]
