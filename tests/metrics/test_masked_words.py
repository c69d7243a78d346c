"""Models with different vocabularies predict the same words."""

import math

import pytest
import torch

from mybert import MyBertTokenizer
from mybert.metrics import MaskedWords, fitting_words, masked_words, word_loss

TEXTS = [
    MaskedWords("the cat sat on the mat".split(), frozenset({1, 5})),
    MaskedWords("a dog ate the bread .".split(), frozenset({4})),
]


def test_words_are_drawn_from_letters_and_twice_the_same():
    documents = [["1999"] * 36, "the cat , in 1999 , sat on it .".split() * 40, ["short"]]
    texts = masked_words(iter(documents), 5)
    assert len(texts) == 5 and texts == masked_words(documents, 5) != masked_words(documents, 5, seed=1)
    assert {len(text.words) for text in texts} == {36} and all(text.hidden for text in texts)
    asked = [text.words[place] for text in texts for place in text.hidden]
    assert set(asked) <= {"the", "cat", "in", "sat", "on", "it"}
    assert 0.05 < len(asked) / (5 * 36) < 0.25


def test_the_loss_of_a_word_is_that_of_all_its_pieces(tokenizer, heads):
    model = heads("ForMaskedLM").model(vocab_size=len(tokenizer))
    measured = word_loss(model, tokenizer, TEXTS)
    loss, characters = 0.0, 0
    for text in TEXTS:
        pieces = [tokenizer.tokenize(word) for word in text.words]
        shown = [["[MASK]"] * len(parts) if place in text.hidden else parts for place, parts in enumerate(pieces)]
        flat = ["[CLS]", *(part for parts in shown for part in parts), "[SEP]"]
        with torch.no_grad():
            scores = model(torch.tensor([tokenizer.convert_tokens_to_ids(flat)])).logits[0].log_softmax(-1)
        position = 1
        for place, parts in enumerate(pieces):
            for piece in tokenizer.convert_tokens_to_ids(parts):
                if place in text.hidden:
                    loss -= float(scores[position, piece])
                position += 1
        characters += sum(len(text.words[place]) for place in text.hidden)
    assert measured["words"] == 3
    assert measured["nats_per_word"] == pytest.approx(loss / 3, rel=1e-5)
    assert measured["word_perplexity"] == pytest.approx(math.exp(loss / 3), rel=1e-4)
    assert measured["nats_per_character"] == pytest.approx(loss / characters, rel=1e-5)


def test_models_of_two_tokenizers_are_asked_for_what_both_read_whole(tokenizer, heads):
    letters = MyBertTokenizer(
        vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(p + c for c in "abcdehmnorstu" for p in ("", "##"))]
    )
    words = "the cat sat on the mat and".split() * 5 + ["bread"]
    text = MaskedWords(words, frozenset(range(36)))
    (coarse,), (fine,) = (fitting_words(each, [text]) for each in (tokenizer, letters))
    assert coarse == text
    assert fine.hidden == set(range(21))  # three times 20 letters; for the next "the" two of 62 places are left
    assert fitting_words(letters, [MaskedWords(words, frozenset({35}))]) == []
    model = heads("ForMaskedLM").model(vocab_size=len(letters), max_position_embeddings=64)
    assert word_loss(model, letters, [text]) == word_loss(model, letters, [fine])
    assert word_loss(model, letters, [text])["words"] == 21


def test_without_words_there_is_no_loss(tokenizer):
    with pytest.raises(ValueError, match="no masked words"):
        word_loss(torch.nn.Identity(), tokenizer, masked_words([["short"]], 3))


def test_word_loss_with_a_tokenizer_that_pads_on_the_left_is_the_same(tokenizer, heads):
    model = heads("ForMaskedLM").model(vocab_size=len(tokenizer))
    left = MyBertTokenizer(vocab=tokenizer.get_vocab(), padding_side="left")
    assert word_loss(model, left, TEXTS) == word_loss(model, tokenizer, TEXTS)
