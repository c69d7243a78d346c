"""Windows of long texts: their positions, the window that decides about a token, and pooling."""

import numpy as np
import pytest
from transformers import BertForSequenceClassification, BertForTokenClassification, TokenClassificationPipeline

from mybert.pipelines import (
    WindowedTextClassificationPipeline,
    WindowedTokenClassificationPipeline,
    own_tokens,
    pool_windows,
    window_places,
    window_starts,
)


def test_windows_share_their_stride_and_are_full():
    assert window_starts(4, 4) == [0]
    assert window_starts(10, 4, 2) == [0, 2, 4, 6]
    assert window_starts(11, 4, 2) == [0, 2, 4, 6, 7]
    assert window_starts(9, 4, 0) == [0, 4, 5]
    assert window_starts(9, 4, 3) == [0, 1, 2, 3, 4, 5]
    assert window_starts(5, 4) == [0, 1]
    assert window_starts(1000, 500) == [0, 372, 500]


@pytest.mark.parametrize("stride", [-1, 4, 9])
def test_windows_that_share_all_are_refused(stride):
    with pytest.raises(ValueError, match=rf"doc_stride is {stride}; expected 0 to 3"):
        window_starts(5, 4, stride)


def test_windows_without_space_for_text_are_refused():
    with pytest.raises(ValueError, match="a window has space for 0 tokens of the text; expected a larger max_length"):
        window_starts(5, 0)


@pytest.mark.parametrize(("tokens", "space", "stride"), [(10, 4, 2), (11, 4, 2), (50, 7, 3), (50, 7, 0), (23, 10, 9)])
def test_a_token_belongs_to_the_window_with_most_context(tokens, space, stride):
    starts = window_starts(tokens, space, stride)
    found = own_tokens(starts, space, tokens)
    for token in range(tokens):
        context = [min(token - start, start + space - 1 - token) for start in starts]
        best = int(np.argmax(context))
        (owner,) = [number for number, (first, last) in enumerate(found) if first <= token < last]
        # The first and last tokens of a text have no context on one side in any window.
        if starts[1] <= token < starts[-2] + space:
            assert owner == best
    assert own_tokens([0], 4, 3) == [(0, 3)]
    assert own_tokens([0, 2, 4, 6], 4, 10) == [(0, 3), (3, 5), (5, 7), (7, 10)]


def test_windows_of_one_text():
    sides = [None, *[0] * 6, None]
    assert window_places(sides, 6, 2) == [[0, 1, 2, 3, 4, 7], [0, 3, 4, 5, 6, 7]]
    assert window_places(sides, 8) == [list(range(8))]
    assert window_places([None, *[0] * 7, None], 6, 1) == [
        [0, 1, 2, 3, 4, 8],
        [0, 4, 5, 6, 7, 8],
    ]


def test_windows_of_a_pair_slide_over_the_longer_text():
    # [CLS] a0 a1 [SEP] b0 b1 b2 b3 b4 [SEP]
    sides = [None, 0, 0, None, *[1] * 5, None]
    assert window_places(sides, 8, 1) == [
        [0, 1, 2, 3, 4, 5, 6, 9],
        [0, 1, 2, 3, 6, 7, 8, 9],
    ]
    # The same with swapped texts; the shorter one is truncated to half.
    sides = [None, *[0] * 9, None, *[1] * 5, None]
    assert window_places(sides, 9, 1) == [
        [0, 1, 2, 3, 10, 11, 12, 13, 16],
        [0, 3, 4, 5, 10, 11, 12, 13, 16],
        [0, 5, 6, 7, 10, 11, 12, 13, 16],
        [0, 7, 8, 9, 10, 11, 12, 13, 16],
    ]
    # Of two equally long ones the second.
    sides = [None, 0, 0, 0, None, 1, 1, 1, None]
    assert window_places(sides, 7, 0) == [[0, 1, 2, 4, 5, 6, 8], [0, 1, 2, 4, 6, 7, 8]]


def test_logits_are_pooled_by_text():
    logits = np.array([[1.0, 0.0], [3.0, 4.0], [-5.0, 2.0]])
    owners = [0, 0, 1]
    assert pool_windows(logits, owners, "mean").tolist() == [[2.0, 2.0], [-5.0, 2.0]]
    assert pool_windows(logits, owners, "max").tolist() == [[3.0, 4.0], [-5.0, 2.0]]


def test_windowed_pipeline_with_max_length_below_one_raises_one_sentence(tiny, tokenizer):
    model = tiny(BertForSequenceClassification)
    classify = WindowedTextClassificationPipeline(model=model, tokenizer=tokenizer, window_pooling="mean")
    assert classify("the cat sat", max_length=None) == classify("the cat sat", max_length=64)
    for value in (0, -1, "16"):
        with pytest.raises(ValueError, match=f"max_length is {value!r}; expected at least 1"):
            classify("the cat sat", max_length=value)


def test_windows_are_as_long_as_texts_in_fine_tuning_without_windows(tiny, tokenizer):
    model, text = tiny(BertForSequenceClassification), "the cat sat " * 10
    classify = WindowedTextClassificationPipeline(model=model, tokenizer=tokenizer, window_pooling="mean")
    expected = classify(text, max_length=10)
    assert expected != classify(text)
    model.config.finetuned_for = {"task": "classification", "max_length": 10}
    assert classify(text) == expected


def test_windowed_token_pipeline_of_a_model_without_windows_is_that_of_transformers(tiny, tokenizer):
    model, texts = tiny(BertForTokenClassification), ["the cat sat in berlin", "the " * 80]
    windowed, stock = (
        kind(model=model, tokenizer=tokenizer, aggregation_strategy="simple")
        for kind in (WindowedTokenClassificationPipeline, TokenClassificationPipeline)
    )
    assert windowed(texts[0]) == stock(texts[0]) and windowed.tokenizer.model_max_length == tokenizer.model_max_length
    assert windowed.tokenizer is stock.tokenizer
