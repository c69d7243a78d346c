"""SQuAD scores: numbers frozen from the official scripts, thresholds tried one by one, and hand-made edges."""

import gzip
import json
import random
from collections import Counter
from pathlib import Path

import pytest

from mybert import metrics

SQUAD = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "squad"

# What the official evaluate-v1.1.py and evaluate-v2.0.py gave for `plausible_predictions` below.
FROZEN_V1 = {"exact_match": 36.14001892147588, "f1": 37.60734813313566}
FROZEN_V2 = {
    "exact": 51.86557736039754,
    "f1": 52.631940945908376,
    "total": 11873,
    "HasAns_exact": 31.73076923076923,
    "HasAns_f1": 33.26569413811912,
    "HasAns_total": 5928,
    "NoAns_exact": 71.94280908326324,
    "NoAns_f1": 71.94280908326324,
    "NoAns_total": 5945,
    "best_exact": 50.20635054324939,
    "best_exact_thresh": -5.0,
    "best_f1": 50.210040387754525,
    "best_f1_thresh": -4.9,
}


def read_articles(name):
    path = SQUAD / name
    if not path.exists():
        pytest.skip(f"the SQuAD files are not at {SQUAD}")
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return json.load(file)["data"]


def questions(articles):
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                yield paragraph["context"], question


def plausible_predictions(articles):
    """Right, partly right, wrong, empty and odd answers, the same on every run."""
    generator = random.Random(7)
    predictions = {}
    for context, question in questions(articles):
        words = context.split()
        draw = generator.random()
        if draw < 0.4 and question["answers"]:
            text = generator.choice(question["answers"])["text"]
        elif draw < 0.6:
            text = ""
        elif draw < 0.65:
            text = generator.choice(["the", "A.", "...", " ", "An The"])
        else:
            start = generator.randrange(len(words))
            text = " ".join(words[start : start + generator.randrange(1, 6)])
        predictions[question["id"]] = f"The {text.upper()}!" if generator.random() < 0.3 else text
    probabilities = {key: round(generator.uniform(-5, 5), 1) for key in sorted(predictions)}
    return predictions, probabilities


def test_normalization():
    assert metrics.normalize_answer("The  “Cat's” an-swer, A\ttheme.") == "“cats” answer theme"


def test_squad_by_hand():
    answers = {"1": ["the red cat", "cat"], "2": ["1999"], "3": ["x"]}
    scores = metrics.squad_metrics({"1": "A red, cat!", "2": "in 1999", "unknown": "y"}, answers)
    # question 1 is exact; question 2 has precision 1/2 and recall 1; question 3 is missing
    assert scores == {"exact_match": pytest.approx(100 / 3), "f1": pytest.approx(100 * (1 + 2 / 3) / 3)}


def test_two_empty_answers_agree_in_version_2_only():
    assert metrics.squad_metrics({"1": "the"}, {"1": ["a"]}) == {"exact_match": 100.0, "f1": 0.0}
    scores = metrics.squad_v2_metrics({"1": "the"}, {"1": ["a"]})
    assert (scores["exact"], scores["f1"], scores["HasAns_total"]) == (100.0, 100.0, 1)
    assert "NoAns_total" not in scores and "best_f1" not in scores


def test_squad_v2_by_hand():
    answers = {"1": ["cat"], "2": [], "3": []}
    predictions = {"1": "cat", "2": "dog", "3": ""}
    probabilities = {"1": 0.1, "2": 0.9, "3": 0.5}
    plain = metrics.squad_v2_metrics(predictions, answers, probabilities)
    assert plain == {
        "exact": pytest.approx(200 / 3), "f1": pytest.approx(200 / 3), "total": 3,
        "HasAns_exact": 100.0, "HasAns_f1": 100.0, "HasAns_total": 1,
        "NoAns_exact": 50.0, "NoAns_f1": 50.0, "NoAns_total": 2,
        "best_exact": 100.0, "best_exact_thresh": 0.1, "best_f1": 100.0, "best_f1_thresh": 0.1,
    }  # fmt: skip
    assert metrics.squad_v2_metrics(predictions, answers, probabilities, no_answer_threshold=0.5)["exact"] == 100.0
    assert metrics.squad_v2_metrics(predictions, answers, probabilities, no_answer_threshold=0.0)["HasAns_f1"] == 0.0
    certain = metrics.squad_v2_metrics(predictions, answers, {"1": 0.1, "2": 1.5, "3": 1.0})
    assert certain["exact"] == 100.0  # by default those above 1 are silent
    # without probabilities each is 0, also for the official script
    without = metrics.squad_v2_metrics(predictions, answers, no_answer_threshold=0.0)
    assert (without["HasAns_exact"], without["NoAns_exact"]) == (plain["HasAns_exact"], plain["NoAns_exact"])
    silent = metrics.squad_v2_metrics(predictions, answers, no_answer_threshold=-1.0)
    assert (silent["HasAns_f1"], silent["NoAns_f1"], silent.get("best_f1")) == (0.0, 100.0, None)


def test_best_threshold_is_the_best_of_all_thresholds():
    generator = random.Random(3)
    answers = {str(i): ["yes it is"] if generator.random() < 0.5 else [] for i in range(200)}
    predictions = {key: generator.choice(["yes it is", "yes", "no", ""]) for key in answers}
    probabilities = {key: generator.random() for key in answers}  # no ties
    scores = metrics.squad_v2_metrics(predictions, answers, probabilities)
    everywhere = [0.0, *probabilities.values()]
    for name in ("exact", "f1"):
        by_threshold = {t: metrics.squad_v2_metrics(predictions, answers, probabilities, t)[name] for t in everywhere}
        assert scores[f"best_{name}"] == pytest.approx(max(by_threshold.values()))
        assert by_threshold[scores[f"best_{name}_thresh"]] == pytest.approx(max(by_threshold.values()))


def test_frozen_official_scores_of_version_1():
    articles = read_articles("dev-v1.1.json.gz")
    predictions, _ = plausible_predictions(articles)
    missing = sorted(predictions)[::10]
    for key in missing:
        del predictions[key]
    assert metrics.squad_metrics(predictions, metrics.squad_answers(articles)) == FROZEN_V1


def test_frozen_official_scores_of_version_2():
    articles = read_articles("dev-v2.0.json.gz")
    predictions, probabilities = plausible_predictions(articles)
    answers = metrics.squad_answers(articles)
    assert metrics.squad_v2_metrics(predictions, answers, probabilities, 3.0) == FROZEN_V2


def test_real_file_has_the_published_counts():
    answers = metrics.squad_answers(read_articles("dev-v2.0.json.gz"))
    assert Counter(map(bool, answers.values())) == {True: 5928, False: 5945}


def test_missing_predictions(caplog):
    with caplog.at_level("WARNING"):
        assert metrics.squad_metrics({}, {"1": ["x"]}) == {"exact_match": 0.0, "f1": 0.0}
    assert "1 of 1 questions have no prediction" in caplog.text
    with pytest.raises(ValueError, match="predictions lack 1 of 2 questions, the first is '2'"):
        metrics.squad_v2_metrics({"1": "x"}, {"1": ["x"], "2": []})
    with pytest.raises(ValueError, match="no_answer_probabilities lack 1 of 1 questions"):
        metrics.squad_v2_metrics({"1": "x"}, {"1": ["x"]}, {"other": 0.5})


def test_squad_metrics_wrong_inputs_are_errors():
    with pytest.raises(ValueError, match="question '1' has no answer: use squad_v2"):
        metrics.squad_metrics({"1": ""}, {"1": []})
    with pytest.raises(ValueError, match="no question to score"):
        metrics.squad_v2_metrics({}, {})
    for score in (metrics.squad_metrics, metrics.squad_v2_metrics):
        for predictions, answers, message in (
            ({"1": None}, {"1": ["x"]}, "the prediction for question '1' is None; expected a text"),
            ({"1": 5}, {"1": ["x"]}, "the prediction for question '1' is 5; expected a text"),
            ({"1": "x"}, {"1": "x"}, "the answers of question '1' are 'x'; expected a list of texts"),
            ({"1": "x"}, {"1": [None]}, r"the answers of question '1' are \[None\]"),
            ({"1": "x"}, {"1": None}, "the answers of question '1' are None"),
            ([("1", "x")], {"1": ["x"]}, "predictions are a list; expected a mapping"),
            ({}, None, "answers are a NoneType; expected a mapping"),
        ):
            with pytest.raises(ValueError, match=message):
                score(predictions, answers)
    for probability in (None, "0.5", float("nan")):
        with pytest.raises(ValueError, match=r"the probability or threshold '1' is .*; expected a number"):
            metrics.squad_v2_metrics({"1": "x"}, {"1": ["x"]}, {"1": probability})
    with pytest.raises(ValueError, match="the answer is None"):
        metrics.normalize_answer(None)
    for articles in (None, "abc", {"data": []}, [{"paragraphs": [{"qas": [{"id": "1"}]}]}]):
        with pytest.raises(ValueError, match="these are not SQuAD articles with answers"):
            metrics.squad_answers(articles)
    article = {"paragraphs": [{"qas": [{"id": "1", "answers": []}, {"id": "1", "answers": []}]}]}
    with pytest.raises(ValueError, match="two questions have the id '1'"):
        metrics.squad_answers([article])
