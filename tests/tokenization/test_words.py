from functools import cache

import pytest

from mybert.tokenization.characters import build_normalizer, build_pre_tokenizer, replace_lone_surrogates
from mybert.tokenization.words import END_OF_CHUNK, WordSplitter, whitespace_chunks

SETTINGS = pytest.mark.parametrize(
    ("lower", "strip", "chinese"), [(True, None, True), (True, False, True), (False, False, True), (True, True, False)]
)


@cache  # building them compiles regular expressions
def backend(lower, strip, chinese):
    return build_normalizer(lower, strip), build_pre_tokenizer(chinese)


def backend_words(text, *settings):
    normalizer, pre_tokenizer = backend(*settings)
    normalized = normalizer.normalize_str(replace_lone_surrogates(text))
    return [word for word, _ in pre_tokenizer.pre_tokenize_str(normalized)]


@SETTINGS
def test_same_words_as_the_backend(lower, strip, chinese, hostile_strings):
    splitter = WordSplitter(lower, strip, chinese)
    for text in [*hostile_strings, "\x0b\x0c", "a\x0bb\x1cc d\x85e", "\ud800a", ""]:
        chunks = whitespace_chunks(text)
        words = splitter.split(chunks)
        assert [word for word in words if word != END_OF_CHUNK] == backend_words(text, lower, strip, chinese)


@SETTINGS
def test_marks_the_end_of_every_chunk(lower, strip, chinese, hostile_strings):
    splitter = WordSplitter(lower, strip, chinese)
    chunks = [chunk for text in hostile_strings[:500] for chunk in whitespace_chunks(text)] + ["\u200b", "a.b", ""]
    for group in (chunks, [chunk for chunk in chunks if chunk.isascii()]):
        expected = []
        for chunk in group:
            expected += [*backend_words(chunk, lower, strip, chinese), END_OF_CHUNK]
        assert splitter.split(group) == expected


def test_nothing():
    assert WordSplitter(True, None).split([]) == []
    assert whitespace_chunks(" \n\t\u3000") == []
