"""The demo's picture: it says what the report says."""

import matplotlib.figure
import pytest

from mybert.demo.guesses import Guess
from mybert.demo.result_picture import draw_result, excerpt

REPORT = {
    "seconds": 251.3,
    "classes": ["a", "b", "c"],
    "majority": 0.34,
    "classifier": {"accuracy": 0.93},
    "classifier_without_pretraining": {"accuracy": 0.56},
    "masked_words": {"words": 1234, "right": 617},
}
LOG = [{"step": 10, "loss": 3.0}, {"step": 10, "eval_mlm_accuracy": 0.125}, {"step": 1200, "eval_mlm_accuracy": 0.25}]
GUESSES = [Guess("The cat ", "Sat", " $here_.", "sat", 0.52, True), Guess("", "A", " dog", "the", 0.4, False)]


@pytest.fixture
def texts(monkeypatch):
    """The texts of pictures by what they say, when they are written."""
    found, save = {}, matplotlib.figure.Figure.savefig

    def keep(figure, *args, **settings):
        shown = figure.findobj(matplotlib.text.Text)
        found.update({text.get_text().replace("\xa0", " ").strip(): text for text in shown})
        save(figure, *args, **settings)

    monkeypatch.setattr(matplotlib.figure.Figure, "savefig", keep)
    return found


def test_draw_result_states_what_the_report_states(tmp_path, texts):
    path = draw_result(REPORT, LOG, GUESSES, tmp_path / "result.png")
    assert path.read_bytes().startswith(b"\x89PNG")
    assert "From raw text to a BERT in 4 min 11 s, with one command: mybert demo" in texts
    assert "Fill in the blank: 1 of 2 words right" in texts
    assert any("in proportion to all 1,234, of which 50 % are right" in text for text in texts)
    assert {"The cat", "$here_.", "✓ sat", "Sat", "✗ the", "A", "dog"} <= texts.keys()
    assert {"25 %", "1,200", "93 %", "56 %", "34 %"} <= texts.keys()
    assert "Fine-tuning: which of 3 sources is a text from?" in texts
    assert draw_result(REPORT, LOG, GUESSES, tmp_path / "again.png").read_bytes() == path.read_bytes()


def test_draw_result_of_a_point_that_was_not_measured_draws_none(tmp_path, monkeypatch):
    drawn, plot = [], matplotlib.axes.Axes.plot

    def keep(ax, steps, accuracies, **looks):
        drawn.append((steps, accuracies))
        return plot(ax, steps, accuracies, **looks)

    monkeypatch.setattr(matplotlib.axes.Axes, "plot", keep)
    draw_result(REPORT, LOG, GUESSES, tmp_path / "result.png")
    assert drawn == [((10, 1200), (12.5, 25.0))]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ("The cat ", " sat.", ("The cat ", " sat.")),
        ("", " one two three four five", ("", " one two three …")),
        ("one two three four five ", "", ("… three four five ", "")),
        ("one two three four ", " five six seven eight", ("… four ", " five …")),
        ("하나 둘 셋 넷 다섯 여섯 ", "일곱", ("… 넷 다섯 여섯 ", "일곱")),  # letters of two columns
        ("", "今天天气很好我们去公园", ("", "今天天气很好我们去 …")),
    ],
)
def test_excerpt_is_cut_between_words_to_the_width(before, after, expected):
    assert excerpt(Guess(before, "x", after, "y", 0.5, False), columns=20) == expected
