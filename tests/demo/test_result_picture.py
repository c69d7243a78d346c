"""The demo's picture: which words are hidden, what is drawn, and that it says what the report says."""

import matplotlib.figure
import numpy as np
import pytest

from mybert import MyBertForMaskedLM
from mybert.demo.result_picture import HiddenWord, draw_result, guess_hidden_words

REPORT = {
    "classes": ["a", "b", "c"],
    "majority": 0.34,
    "classifier": {"accuracy": 0.93},
    "classifier_without_pretraining": {"accuracy": 0.56},
}
LOG = [{"step": 10, "loss": 3.0}, {"step": 10, "eval_mlm_accuracy": 0.125}, {"step": 1200, "eval_mlm_accuracy": 0.25}]


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory, tiny_model):
    return tiny_model(tmp_path_factory.mktemp("model"), MyBertForMaskedLM)


def test_a_word_of_a_plain_passage_of_each_source_is_hidden(model_dir):
    plain = [("the cat slept on the mat.", "one"), ("a dog ate bread", "two"), ("the dog was happy", "two")]
    refused = [
        ("the cats slept", "three"),  # not one piece
        ("the zebra slept", "four"),  # unknown
        ("the_cat slept", "five"),  # code
        ("the cat sat", "six"),  # no word of five letters to hide
        (" ".join(["the cat slept"] * 20), "seven"),  # too long
    ]
    found = guess_hidden_words(model_dir, refused + plain, np.random.default_rng(0))
    assert len(found) == 2
    texts = {f"{hidden.before}{hidden.word}{hidden.after}" for hidden in found}
    assert plain[0][0] in texts and texts <= {text for text, _ in plain}
    for hidden in found:
        assert len(hidden.word) >= 5 and len(hidden.guesses) == 3
        shares = [share for _, share in hidden.guesses]
        assert shares == sorted(shares, reverse=True) and all(0 < share < 1 for share in shares)
    assert found == guess_hidden_words(model_dir, refused + plain, np.random.default_rng(0))
    assert not guess_hidden_words(model_dir, refused, np.random.default_rng(0))


@pytest.mark.parametrize("is_guessed", [True, False])
def test_the_picture_says_what_came_of_it(tmp_path, monkeypatch, is_guessed):
    figures, save = [], matplotlib.figure.Figure.savefig

    def keep(figure, *args, **settings):
        figures.append(figure)
        save(figure, *args, **settings)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    hidden = HiddenWord("The cat ", "sat" if is_guessed else "slept", " here.", [("Sat", 0.52), ("ran", 0.11)])
    path = draw_result(REPORT, LOG, [hidden], tmp_path / "result.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    texts = {text.get_text().replace("\xa0", " ").strip(): text for text in figures[0].findobj(matplotlib.text.Text)}
    assert {"25 % of masked\nwords right", "1,200 steps", "20 %", "93 %", "56 %", "34 %"} <= texts.keys()
    assert "It tells 3 sources of text apart" in texts and "ran 11 %" in texts
    assert (texts["Sat 52 %"].get_fontweight() == "bold") is is_guessed
    assert ("(it was: slept)" in texts) is not is_guessed
    assert draw_result(REPORT, LOG, [hidden], tmp_path / "again.png").read_bytes() == path.read_bytes()
