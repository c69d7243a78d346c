"""Words that the demo masks: drawn by a seed before training, and shown as often right as in all."""

import numpy as np
import pytest
import torch

from mybert import MyBertForMaskedLM, MyBertTokenizer
from mybert.demo.guesses import Guess, MaskedWord, draw_words, guess_words, in_proportion


def test_draw_words_leaves_out_parts_that_are_accents_alone():
    passage = "a" + 99 * "\u0301"
    drawn = {draw_words([passage], np.random.default_rng(seed))[0].word for seed in range(20)}
    assert drawn == {passage[:4]}


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory, tiny_model):
    return tiny_model(tmp_path_factory.mktemp("model"), MyBertForMaskedLM, max_position_embeddings=12)


def guesses(rights):
    return [Guess("", str(number), "", "x", 0.5, is_right) for number, is_right in enumerate(rights)]


def test_draw_words_draws_one_word_of_each_passage_by_the_seed():
    passages = [
        "The cat, x1, sat on 12 mats.",
        "...",
        "날씨가 좋다.",
        "今天天气",
        "\ud800 naïve",
        "กขคงจฉชซฌญฎฏฐฑฒณดตถทธ",
    ]
    words = draw_words(passages, np.random.default_rng(0))
    assert words == draw_words(passages, np.random.default_rng(0)) != draw_words(passages, np.random.default_rng(1))
    texts = [f"{before}{word}{after}" for before, word, after in words]
    assert sorted(texts) == sorted(
        ["The cat, x1, sat on 12 mats.", "날씨가 좋다.", "今天天气", "\uffff naïve", passages[-1]]
    )
    drawn = {word for seed in range(99) for _, word, _ in draw_words(passages, np.random.default_rng(seed))}
    assert drawn == {"The", "cat", "x1", "sat", "on", "mats", "날씨가", "좋다", "naïve", *"今天气"} | {
        *("กขคง", "จฉชซ", "ฌญฎฏ", "ฐฑฒณ", "ดตถท", "ธ"),  # of a script without spaces
    }


def test_guess_words_masks_all_tokens_of_a_word_with_as_much_context_as_fits(model_dir):
    words = [
        MaskedWord("the ", "cat", " sat on the mat"),
        MaskedWord("the cat sat on the mat and the ", "dog", " ate bread and the fish sat on the mat"),
        MaskedWord("", "cats", " sat"),  # of several tokens
        MaskedWord("the [MASK] sat on ", "Mat", ""),
    ]
    found = guess_words(model_dir, words)
    assert [guess.word for guess in found] == ["cat", "dog", "cats", "Mat"]
    model = MyBertForMaskedLM.from_pretrained(model_dir).eval()
    tokenizer = MyBertTokenizer.from_pretrained(model_dir)
    context = [
        (words[0].before, words[0].after),
        ("the mat and the ", " ate bread and the fish"),
        ("", " sat"),
        (words[3].before, ""),
    ]
    for guess, (before, after) in zip(found, context, strict=True):
        tokens = tokenizer(guess.word, add_special_tokens=False)["input_ids"]
        left = tokenizer(before, add_special_tokens=False)["input_ids"]
        text = f"{before}{'[MASK]' * len(tokens)}{after}"
        with torch.inference_mode():
            probabilities = model(**tokenizer(text, return_tensors="pt")).logits[0].softmax(-1)
        values, ids = probabilities[len(left) + 1 : len(left) + 1 + len(tokens)].max(-1)
        assert guess.guess == tokenizer.decode(ids) and guess.probability == pytest.approx(
            float(values.prod()), rel=1e-4
        )
        assert guess.is_right == (ids.tolist() == tokens)


def test_guess_words_of_a_part_of_a_token_masks_the_token(model_dir):
    (guess,) = guess_words(model_dir, [MaskedWord("the b", "re", "ad was here")])
    assert (guess.before, guess.word, guess.after) == ("the ", "bread", " was here")


def test_guess_words_is_right_about_a_whole_word_only(model_dir, monkeypatch):
    tokenizer = MyBertTokenizer.from_pretrained(model_dir)
    mat, unknown = tokenizer.convert_tokens_to_ids(["mat", "[UNK]"])

    def forward(self, input_ids, **_):
        logits = torch.zeros(*input_ids.shape, len(tokenizer))
        for row, ids in zip(logits, input_ids, strict=True):
            row[:, unknown if mat in ids else mat] = 9
        return type("Output", (), {"logits": logits})

    monkeypatch.setattr(MyBertForMaskedLM, "forward", forward)
    words = [MaskedWord("the ", "MAT", ""), MaskedWord("the ", "mats", ""), MaskedWord("the mat ", "zebra", "")]
    assert [guess.is_right for guess in guess_words(model_dir, words)] == [True, False, False]  # never an unknown word


@pytest.mark.parametrize(
    "rights", [[1] * 3 + [0] * 97, [0, 1] * 50, [0] * 31 + [1] * 69, [0] * 20, [1] * 20, [1, 0, 0], [1]]
)
def test_in_proportion_shows_right_and_wrong_as_frequent_as_in_all(rights):
    drawn = guesses(map(bool, rights))
    shown = in_proportion(drawn)
    count = min(8, len(rights))
    assert len(shown) == count
    assert sum(guess.is_right for guess in shown) == round(count * np.mean(rights))
    for is_right in (True, False):  # the first ones of each kind, in the order of the draw
        part = [guess for guess in shown if guess.is_right is is_right]
        assert part == [guess for guess in drawn if guess.is_right is is_right][: len(part)]
    assert shown == sorted(shown, key=drawn.index)
