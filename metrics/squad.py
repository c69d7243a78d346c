"""SQuAD's metrics as the official scripts compute them, in percent. Predictions come first and references second."""

from __future__ import annotations

import logging
import math
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

logger = logging.getLogger(__name__)


def squad_answers(dataset: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The accepted answer texts of every question of a SQuAD file, an empty list for unanswerable questions.

    Args:
        dataset: The articles, i.e. the value of `"data"` in the official JSON files of SQuAD 1.1 and 2.0.

    Raises:
        ValueError: Two questions have the same id, or a key is missing.
    """
    answers: dict[str, list[str]] = {}
    try:
        for article in dataset:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    if question["id"] in answers:
                        raise ValueError(f"two questions have the id {question['id']!r}; expected unique ids.")
                    answers[question["id"]] = [answer["text"] for answer in question["answers"]]
    except (KeyError, TypeError) as error:
        raise ValueError(
            "these are not SQuAD articles with answers; expected paragraphs > qas with id and answers > text "
            f"({type(error).__name__}: {error})."
        ) from error
    return answers


def squad_metrics(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Exact match and token F1 in percent, as the official script of SQuAD 1.1 computes them.

    A question without a prediction scores 0 (and is logged); predictions for other questions are ignored.

    Args:
        predictions: Answer text by question id.
        answers: Accepted answer texts by question id, at least one each (see `squad_answers`).

    Returns:
        `{"exact_match": ..., "f1": ...}`, 0 to 100.

    Raises:
        ValueError: There is no question, one has no answer (as in SQuAD 2.0), or an answer is not a string.
    """
    _check_texts(predictions, answers)
    exact = f1_sum = 0.0
    missing = 0
    for question_id, texts in answers.items():
        if not texts:
            raise ValueError(f"question {question_id!r} has no answer: use squad_v2 for unanswerable questions.")
        if question_id not in predictions:
            missing += 1
            continue
        prediction = normalize_answer(predictions[question_id])
        golds = [normalize_answer(text) for text in texts]
        exact += max(prediction == gold for gold in golds)
        f1_sum += max(_token_f1(prediction, gold) for gold in golds)
    if missing:
        logger.warning("%d of %d questions have no prediction and score 0", missing, len(answers))
    return {"exact_match": 100.0 * exact / len(answers), "f1": 100.0 * f1_sum / len(answers)}


def squad_v2_metrics(
    predictions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    no_answer_probabilities: Mapping[str, float] | None = None,
    no_answer_threshold: float = 1.0,
) -> dict[str, float]:
    """Exact match and token F1 in percent with unanswerable questions, as in the official script of SQuAD 2.0.

    Args:
        predictions: Answer text by question id; the empty string means "no answer".
        answers: Accepted answer texts by question id, an empty list where there is no answer (see `squad_answers`).
        no_answer_probabilities: A score for "no answer" by question id. With it the best thresholds are searched;
            without it every question has 0.
        no_answer_threshold: A question whose score is above it counts as predicted "no answer".

    Returns:
        `exact`, `f1`, `total`; `HasAns_*` and `NoAns_*` with the same three for the questions with and without an
        answer (where there are any); `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh` if probabilities
        are given.

    Raises:
        ValueError: There is no question, a question has no prediction or no probability (where the official script
            raises a KeyError), an answer is not a string, or a probability or the threshold is not a number.
    """
    _check_texts(predictions, answers)
    _require_questions("predictions", predictions, answers)
    exact: dict[str, float] = {}
    f1_scores: dict[str, float] = {}
    for question_id, texts in answers.items():
        prediction = normalize_answer(predictions[question_id])
        golds = [gold for gold in map(normalize_answer, texts) if gold] or [""]
        exact[question_id] = max(int(prediction == gold) for gold in golds)
        f1_scores[question_id] = (
            max(_token_f1(prediction, gold) for gold in golds) if prediction else exact[question_id]
        )

    beliefs = dict.fromkeys(answers, 0.0) if no_answer_probabilities is None else no_answer_probabilities
    _require_questions("no_answer_probabilities", beliefs, answers)
    for name, value in (("no_answer_threshold", no_answer_threshold), *beliefs.items()):
        if not isinstance(value, Real) or math.isnan(value):
            raise ValueError(f"the probability or threshold {name!r} is {value!r}; expected a number.")
    silent = {key for key in answers if beliefs[key] > no_answer_threshold}
    chosen = {
        name: {key: float(not answers[key]) if key in silent else score for key, score in scores.items()}
        for name, scores in (("exact", exact), ("f1", f1_scores))
    }
    result: dict[str, float] = {}
    for prefix, keys in (
        ("", list(answers)),
        ("HasAns_", [key for key in answers if answers[key]]),
        ("NoAns_", [key for key in answers if not answers[key]]),
    ):
        if keys:
            for name, scores in chosen.items():
                result[f"{prefix}{name}"] = 100.0 * sum(scores[key] for key in keys) / len(keys)
            result[f"{prefix}total"] = len(keys)
    if no_answer_probabilities is not None:
        for name, scores in (("exact", exact), ("f1", f1_scores)):
            result[f"best_{name}"], result[f"best_{name}_thresh"] = _best_threshold(
                predictions, answers, scores, no_answer_probabilities
            )
    return result


def _check_texts(predictions: Mapping[str, str], answers: Mapping[str, Sequence[str]]) -> None:
    for name, given in (("predictions", predictions), ("answers", answers)):
        if not isinstance(given, Mapping):
            raise ValueError(f"{name} are a {type(given).__name__}; expected a mapping from the questions' ids.")
    if not answers:
        raise ValueError("no question to score: the references are empty.")
    for question_id, texts in answers.items():
        if isinstance(texts, str) or not isinstance(texts, Iterable) or not all(isinstance(t, str) for t in texts):
            raise ValueError(f"the answers of question {question_id!r} are {texts!r}; expected a list of texts.")
        if question_id in predictions and not isinstance(predictions[question_id], str):
            raise ValueError(
                f"the prediction for question {question_id!r} is {predictions[question_id]!r}; expected a text, the "
                "empty one for no answer."
            )


def normalize_answer(text: str) -> str:
    """Lower case without ASCII punctuation, English articles and repeated white space, as both SQuAD scripts do it."""
    if not isinstance(text, str):
        raise ValueError(f"the answer is {text!r}; expected a text.")
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def _token_f1(prediction: str, gold: str) -> float:
    """Return F1 over the words of two normalized answers; 0 if they share none."""
    predicted_words, gold_words = prediction.split(), gold.split()
    shared = (Counter(predicted_words) & Counter(gold_words)).total()
    if not shared:
        return 0.0
    precision, recall = shared / len(predicted_words), shared / len(gold_words)
    return (2 * precision * recall) / (precision + recall)


def _best_threshold(
    predictions: Mapping[str, str],
    answers: Mapping[str, Sequence[str]],
    scores: Mapping[str, float],
    no_answer_probabilities: Mapping[str, float],
) -> tuple[float, float]:
    """Return the highest reachable mean score in percent and the threshold that reaches it."""
    # The threshold rises from "everything is unanswerable": every question below it adds its score, or loses the point
    # for a correct "no answer". Ties keep the order of `no_answer_probabilities`, as in the official script.
    keys = [key for key in no_answer_probabilities if key in answers]
    probabilities = np.array([no_answer_probabilities[key] for key in keys])
    gains = np.array([scores[key] if answers[key] else -float(bool(predictions[key])) for key in keys])
    order = np.argsort(probabilities, kind="stable")
    unanswerable = sum(not texts for texts in answers.values())
    running = np.cumsum(np.concatenate([[unanswerable], gains[order]]))
    best = int(np.argmax(running))
    threshold = probabilities[order[best - 1]] if best else 0.0
    return float(100.0 * running[best] / len(answers)), float(threshold)


def _require_questions(name: str, given: Mapping[str, Any], answers: Mapping[str, Sequence[str]]) -> None:
    missing = [key for key in answers if key not in given]
    if missing:
        raise ValueError(f"{name} lack {len(missing)} of {len(answers)} questions, the first is {missing[0]!r}.")
