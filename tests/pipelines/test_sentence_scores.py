"""Pseudo-log-likelihoods of sentences, against a loop over transformers' BERT."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tqdm import tqdm

from mybert import MyBertTokenizer
from mybert.pipelines import minimal_pair_accuracy, pseudo_log_likelihoods
from mybert.pipelines.batching import batches_by_length

PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] the un ##want ##ed ##s cat dog mat sat on . '".split()
TEXTS = ["The unwanted cats sat on the mat.", "dog", "", "the dog's [MASK] sat on zebras , the mat .", "the " * 30]


@pytest.fixture(scope="module")
def tokenizer():
    return MyBertTokenizer(vocab=PIECES)


def looped(model, tokenizer, text, method, space=1000):
    """One forward pass for each token, without padding, all logits computed."""
    encoded = tokenizer(text, add_special_tokens=False)
    ids, words = encoded["input_ids"], encoded.word_ids()
    scores = []
    for place, wanted in enumerate(ids):
        masked = [
            tokenizer.mask_token_id
            if other == place or (method != "original" and other > place and words[other] == words[place])
            else token
            for other, token in enumerate(ids)
        ]
        start = min(max(0, place - space // 2), max(0, len(ids) - space))
        row = [tokenizer.cls_token_id, *masked[start : start + space], tokenizer.sep_token_id]
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([row])).logits[0, 1 + place - start]
        scores.append(float(logits.double().log_softmax(-1)[wanted]))
    return scores


@pytest.mark.parametrize("method", ["original", "within_word_l2r"])
@pytest.mark.parametrize("batch_size", [None, 1, 5])
def test_pseudo_log_likelihoods_are_those_of_a_loop_over_transformers(heads, tokenizer, method, batch_size):
    my_bert, bert = heads("ForMaskedLM").matched_models(
        vocab_size=len(PIECES), dropout=0.1, max_position_embeddings=40
    )
    expected = [looped(bert, tokenizer, text, method) for text in TEXTS]
    for model in (my_bert.train(), bert):
        found = pseudo_log_likelihoods(model, tokenizer, TEXTS, method, batch_size=batch_size)
        assert [len(scores) for scores in found] == [len(scores) for scores in expected] == [11, 1, 0, 12, 30]
        for scores, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(scores, wanted, atol=1e-5)
    assert my_bert.config.sparse_prediction is False


def test_pseudo_log_likelihoods_of_a_long_text_use_a_window_for_each_token(heads, tokenizer, user_error):
    my_bert, bert = heads("ForMaskedLM").matched_models(vocab_size=len(PIECES), max_position_embeddings=9)
    text = "the unwanted cats sat on the mat . the dog sat unwanted on unwanted cats ."
    for max_length, space in ((None, 7), (6, 4)):
        (found,) = pseudo_log_likelihoods(my_bert, tokenizer, [text], max_length=max_length)
        np.testing.assert_allclose(found, looped(bert, tokenizer, text, "within_word_l2r", space), atol=1e-5)
    for wrong in (10, 2, 0, "6"):
        with user_error("--max_length"):
            pseudo_log_likelihoods(my_bert, tokenizer, [text], max_length=wrong)


def test_pseudo_log_likelihoods_compute_one_row_of_logits_for_each_token(heads, tokenizer, watch):
    model = heads("ForMaskedLM").model(vocab_size=len(PIECES), max_position_embeddings=40)
    shapes, layers = watch(model.cls.predictions.transform), watch(model.bert.encoder.layer[0])
    pseudo_log_likelihoods(model, tokenizer, ["the cat sat on the mat", "dog"], batch_size=7)
    assert shapes == [(7, 32)]
    assert layers == [(1, 6 * 8 + 3, 32)]  # no padding


def test_pseudo_log_likelihoods_of_equal_texts_are_computed_once(heads, tokenizer, watch):
    model = heads("ForMaskedLM").model(vocab_size=len(PIECES), max_position_embeddings=40)
    shapes = watch(model.cls.predictions.transform)
    first, other, second = pseudo_log_likelihoods(model, tokenizer, ["the cat", "dog", "the cat"])
    assert shapes == [(3, 32)] and len(other) == 1
    np.testing.assert_array_equal(first, second)


def test_pseudo_log_likelihoods_of_a_large_vocabulary_have_few_logits_at_once(heads, tokenizer, watch, monkeypatch):
    model = heads("ForMaskedLM").model(vocab_size=len(PIECES), max_position_embeddings=40)
    shapes = watch(model.cls.predictions.transform)
    monkeypatch.setattr("mybert.pipelines.sentence_scores._CPU_LOGITS", 4 * len(PIECES) + 1)
    pseudo_log_likelihoods(model, tokenizer, ["the cat sat on the mat"])
    assert shapes == [(4, 32), (2, 32)]


@pytest.mark.parametrize(("hidden_size", "rows"), [(128, 8192 // 512), (768, 1365 // 512), (2048, 1024 // 512)])
def test_run_sorted_on_a_cpu_has_larger_batches_for_smaller_networks(hidden_size, rows):
    model = SimpleNamespace(device=torch.device("cpu"), config=SimpleNamespace(hidden_size=hidden_size))
    assert next(batches_by_length([512] * 100, model)) == list(range(rows))
    assert list(batches_by_length([2, 9, 2], model, max_rows=2)) == [[1, 0], [2]]


def test_pseudo_log_likelihoods_reject_models_without_masks(heads, tokenizer, user_error):
    model = heads("ForMaskedLM").model(vocab_size=len(PIECES), is_decoder=True)
    with pytest.raises(ValueError, match="The model is left-to-right; expected a masked"):
        pseudo_log_likelihoods(model, tokenizer, ["the cat"])
    with user_error("--method"):
        pseudo_log_likelihoods(model, tokenizer, ["the cat"], "l2r")


def test_minimal_pair_accuracy_counts_ties_as_wrong():
    assert minimal_pair_accuracy([-1.0, -2.0, -3.0, -4.00001], [-2.0, -1.0, -3.0, -4.00002]) == 0.25


def test_pseudo_log_likelihoods_of_a_long_text_show_progress_within_it(heads, tokenizer, monkeypatch):
    model, _ = heads("ForMaskedLM").matched_models(vocab_size=len(PIECES), max_position_embeddings=9)
    updates = []
    monkeypatch.setattr(tqdm, "update", lambda bar, n=1: updates.append(n))
    pseudo_log_likelihoods(model, tokenizer, ["the " * 20, ""], batch_size=5, progress=True)
    assert updates == pytest.approx([0.25] * 4 + [2])  # `bar.n` stays 0 here
