"""Metrics as plain functions on arrays and lists; no network, no framework.

Predictions come first and references second, as in `evaluate`. Everything is a fraction (0 to 1, correlations -1 to 1)
except the SQuAD scores, which are percentages as in the official scripts.
"""

from __future__ import annotations

import logging
import operator
import re
import string
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

logger = logging.getLogger(__name__)

GLUE_METRICS: dict[str, tuple[str, ...]] = {
    "cola": ("matthews_correlation",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearmanr"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "mnli_matched": ("accuracy",),
    "mnli_mismatched": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "ax": ("matthews_correlation",),
}
"""The metrics of every GLUE task (Wang et al. 2019, table 1; `ax` is the diagnostic set) under their usual keys."""


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """Fraction of examples whose prediction equals the reference.

    Args:
        predictions: Labels, shape `(examples,)`, or multi-label indicators, shape `(examples, labels)`, where a row
            counts only if the whole of it is right.
        references: The same shape.

    Raises:
        ValueError: The shapes differ, there is no example, or logits were given.
    """
    predictions, references = _label_arrays(predictions, references)
    equal = predictions == references
    return float(np.mean(equal if equal.ndim == 1 else equal.all(axis=1)))


def f1(
    predictions: ArrayLike,
    references: ArrayLike,
    average: Literal["binary", "macro", "micro", "weighted"] = "binary",
    pos_label: int | str = 1,
) -> float:
    """F1 score as scikit-learn defines it; 0.0 where it is undefined (no positive predicted or wanted).

    Args:
        predictions: Labels, shape `(examples,)`, or multi-label indicators, shape `(examples, labels)`.
        references: The same shape.
        average: `"binary"` scores `pos_label` alone; `"macro"` is the mean over labels, `"weighted"` the same weighted
            by support, `"micro"` counts over all labels.
        pos_label: The positive label of `"binary"`.

    Raises:
        ValueError: The shapes differ, there is no example, logits were given, `average` is unknown, or `"binary"` met
            more than two labels.
    """
    from sklearn.metrics import f1_score

    if average not in ("binary", "macro", "micro", "weighted"):
        raise ValueError(f"unknown average {average!r}, expected 'binary', 'macro', 'micro' or 'weighted'")
    predictions, references = _label_arrays(predictions, references)
    labels = None
    if average == "binary" and predictions.ndim == 1:
        # Asking for the one label we want keeps data that happens to hold a single class from being an error.
        found = set(np.unique(predictions).tolist()) | set(np.unique(references).tolist())
        if len(found | {pos_label}) > 2:
            raise ValueError(
                f"binary F1 needs two labels, found {sorted(found)} with positive label {pos_label!r}: "
                'choose average="macro", "micro" or "weighted"'
            )
        labels, average = [pos_label], "macro"
    return float(f1_score(references, predictions, labels=labels, average=average, zero_division=0))


def matthews_correlation(predictions: ArrayLike, references: ArrayLike) -> float:
    """Matthews correlation coefficient in [-1, 1] (R_K for more than two classes); 0.0 where it is undefined.

    Args:
        predictions: Labels, shape `(examples,)`.
        references: The same shape.

    Raises:
        ValueError: The shapes differ, there is no example, or logits were given.
    """
    from sklearn.metrics import matthews_corrcoef

    predictions, references = _label_arrays(predictions, references, dimensions=(1,))
    return float(matthews_corrcoef(references, predictions))


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Pearson correlation in [-1, 1]; 0.0 where it is undefined because one side is constant.

    Zero instead of scipy's nan: a nan would win every later comparison of checkpoints and is not valid JSON.

    Args:
        predictions: Numbers, shape `(examples,)`.
        references: The same shape.

    Raises:
        ValueError: The shapes differ, there are fewer than two examples, or a value is not finite.
    """
    from scipy.stats import pearsonr

    predictions, references = _score_arrays(predictions, references)
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    return float(pearsonr(predictions, references).statistic)


def spearman(predictions: ArrayLike, references: ArrayLike) -> float:
    """Spearman rank correlation in [-1, 1]; 0.0 where it is undefined because one side is constant.

    Args:
        predictions: Numbers, shape `(examples,)`.
        references: The same shape.

    Raises:
        ValueError: The shapes differ, there are fewer than two examples, or a value is not finite.
    """
    from scipy.stats import spearmanr

    predictions, references = _score_arrays(predictions, references)
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    return float(spearmanr(predictions, references).statistic)


def pearson_spearman(predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """Both correlations, as STS-B reports them: `{"pearson", "spearmanr"}`."""
    return {"pearson": pearson(predictions, references), "spearmanr": spearman(predictions, references)}


_GLUE_FUNCTIONS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
    "pearson": pearson,
    "spearmanr": spearman,
}


def glue_metrics(task_name: str, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """The official metrics of one GLUE task.

    Args:
        task_name: A key of `GLUE_METRICS`; upper case, hyphens and underscores do not matter (`"SST-2"`, `"sts_b"`).
        predictions: Label numbers (scores for STS-B), shape `(examples,)`.
        references: The same shape.

    Returns:
        The metrics under their usual keys, e.g. `{"accuracy": 0.86, "f1": 0.90}` for MRPC.

    Raises:
        ValueError: The task is unknown, or the arrays do not fit.
    """
    return {key: _GLUE_FUNCTIONS[key](predictions, references) for key in GLUE_METRICS[glue_task_name(task_name)]}


def glue_task_name(task_name: str) -> str:
    """The key of `GLUE_METRICS` for a task written in any of the usual ways (`"STS-B"`, `"MNLI-mm"`).

    Raises:
        ValueError: There is no such task.
    """
    folded = task_name.lower().replace("-", "").replace("_", "")
    names = {key.replace("_", ""): key for key in GLUE_METRICS} | {
        "mnlim": "mnli_matched",
        "mnlimm": "mnli_mismatched",
    }
    if folded not in names:
        raise ValueError(f"unknown GLUE task {task_name!r}, expected one of {', '.join(GLUE_METRICS)}")
    return names[folded]


def perplexity(losses: ArrayLike, token_counts: ArrayLike | None = None) -> float:
    """Perplexity, `exp` of the mean negative log-likelihood of a token; infinite where that overflows.

    Args:
        losses: Negative log-likelihoods in nats, shape `(items,)`: one per token, or the mean of each batch.
        token_counts: Tokens behind each loss, shape `(items,)`; without it every loss counts the same.

    Raises:
        ValueError: The shapes differ or there is no token.
    """
    losses = np.asarray(losses, dtype=np.float64)
    counts = np.ones_like(losses) if token_counts is None else np.asarray(token_counts, dtype=np.float64)
    if losses.shape != counts.shape or losses.ndim != 1:
        raise ValueError(
            f"losses have shape {losses.shape} and token_counts {counts.shape}: expected one number each per item"
        )
    if not counts.sum() > 0:
        raise ValueError("no token to score: losses are empty or token_counts are all zero")
    with np.errstate(over="ignore"):
        return float(np.exp(np.average(losses, weights=counts)))


def squad_answers(dataset: Sequence[Mapping[str, Any]]) -> dict[str, list[str]]:
    """The accepted answer texts of every question of a SQuAD file, an empty list where there is no answer.

    Args:
        dataset: The articles, i.e. the value of `"data"` in the official JSON files of SQuAD 1.1 and 2.0.

    Raises:
        ValueError: Two questions have the same id.
    """
    answers: dict[str, list[str]] = {}
    for article in dataset:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                if question["id"] in answers:
                    raise ValueError(f"two questions have the id {question['id']!r}: expected unique ids")
                answers[question["id"]] = [answer["text"] for answer in question["answers"]]
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
        ValueError: There is no question, or one has no answer (then it is SQuAD 2.0).
    """
    if not answers:
        raise ValueError("no question to score: the references are empty")
    exact = f1_sum = 0.0
    missing = 0
    for question_id, texts in answers.items():
        if not texts:
            raise ValueError(f"question {question_id!r} has no answer: use squad_v2 for unanswerable questions")
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
    """Exact match and token F1 in percent with unanswerable questions, as the official script of SQuAD 2.0 has them.

    Args:
        predictions: Answer text by question id; the empty string says that there is no answer.
        answers: Accepted answer texts by question id, an empty list where there is no answer (see `squad_answers`).
        no_answer_probabilities: Any number by question id that grows with the belief that there is no answer. With it
            the best thresholds are searched; without it each question has 0.
        no_answer_threshold: A prediction whose number lies above counts as "no answer".

    Returns:
        `exact`, `f1`, `total`; `HasAns_*` and `NoAns_*` with the same three for the questions with and without an
        answer (where there are any); `best_exact`, `best_exact_thresh`, `best_f1`, `best_f1_thresh` if probabilities
        are given.

    Raises:
        ValueError: There is no question, or a question has no prediction or no probability (where the official script
            ends in a KeyError).
    """
    if not answers:
        raise ValueError("no question to score: the references are empty")
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


def normalize_answer(text: str) -> str:
    """Lower case without ASCII punctuation, English articles and repeated white space, as both SQuAD scripts do it."""
    text = text.lower().translate(_NO_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", text).split())


_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def _token_f1(prediction: str, gold: str) -> float:
    """F1 over the words of two normalized answers; 0 if they share none."""
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
    """Highest reachable mean score in percent and the threshold that reaches it.

    The threshold rises from "everything is unanswerable": every question it passes adds its score, or loses the point
    that silence had earned. Ties keep the order of `no_answer_probabilities`, as in the official script.
    """
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
        raise ValueError(f"{name} lack {len(missing)} of {len(answers)} questions, the first is {missing[0]!r}")


@dataclass(frozen=True)
class _Scheme:
    """Strict tagging scheme: which prefixes exist, and which pairs of tags start, continue and end an entity.

    A pair is three characters: prefix before, prefix now (`?` is any), and `=` same type, `!` another, `*` either.
    These are the tables of seqeval's schemes, which is what makes the scores equal on broken sequences as well.
    """

    prefixes: str
    start: str
    inside: str
    end: str


_SCHEMES = {
    "IOB1": _Scheme("IOB", "OI* II! BI* IB= BB=", "BI= II=", "II! IO* IB* BO* BI! BB="),
    "IOE1": _Scheme("IOE", "OI* II! EI* EE=", "II= IE=", "II! IO* IE! EI= EE="),
    "IOB2": _Scheme("IOB", "?B*", "BI= II=", "??*"),
    "IOE2": _Scheme("IOE", "OI* OE* EI* EE* II! IE!", "IE= II=", "E?*"),
    "IOBES": _Scheme("IOBES", "?B* ?S*", "BI= BE= II= IE=", "S?* E?*"),
    "BILOU": _Scheme("BILOU", "?B* ?U*", "BI= BL= II= IL=", "U?* L?*"),
}
_SCHEMES["BIOES"] = _SCHEMES["IOBES"]


def entity_spans(tags: Sequence[str], scheme: str | None = None, suffix: bool = False) -> list[tuple[str, int, int]]:
    """Entities of one tagged sentence.

    Args:
        tags: One tag per word, `"O"` or a prefix and a type (`"B-PER"`); a bare prefix has the type `"_"`.
        scheme: None reads IOB1, IOB2 and BIOES leniently as conlleval and seqeval's default mode do: any tag of a new
            type opens an entity, closed or not. Otherwise the name of a scheme, IOB1, IOE1, IOB2, IOE2, IOBES (=
            BIOES) or BILOU, whose broken entities are dropped as in seqeval's strict mode.
        suffix: The prefix letter stands behind (`"PER-B"`).

    Returns:
        `(type, start, end)` in word positions, end exclusive, from left to right.

    Raises:
        ValueError: A tag is not of the scheme, or the scheme is unknown.
    """
    if scheme is not None and scheme not in _SCHEMES:
        raise ValueError(f"unknown tagging scheme {scheme!r}, expected one of {', '.join(_SCHEMES)}")
    allowed = _SCHEMES[scheme].prefixes if scheme else "OBIES"
    parsed = [_parse_tag(tag, allowed, suffix, scheme) for tag in tags]
    return _strict_spans(parsed, _SCHEMES[scheme]) if scheme else _lenient_spans(parsed)


def entity_metrics(
    predictions: Sequence[Sequence[str]],
    references: Sequence[Sequence[str]],
    scheme: str | None = None,
    mode: str | None = None,
    suffix: bool = False,
    zero_division: float | Literal["warn"] = 0.0,
) -> dict[str, Any]:
    """Precision, recall and F1 of whole entities; equal to conlleval (lenient) and to seqeval (both modes).

    Args:
        predictions: Tags of each sentence.
        references: The same shape.
        scheme: Tagging scheme, needed by `mode="strict"` and without influence otherwise (see `entity_spans`).
        mode: None or `"default"` is lenient; `"strict"` drops entities that break `scheme`.
        suffix: The prefix letter stands behind (`"PER-B"`).
        zero_division: Precision without a predicted entity and recall without a true one; `"warn"`, seqeval's default,
            is 0.

    Returns:
        `overall_precision`, `overall_recall`, `overall_f1` over all entities, `overall_accuracy` over tags, and under
        each entity type `{"precision", "recall", "f1", "number"}` with the number of true entities.

    Raises:
        ValueError: Lengths differ, there is no word, a tag is not of the scheme, or `mode` and `scheme` do not fit.
    """
    if mode not in (None, "default", "strict"):
        raise ValueError(f"unknown mode {mode!r}, expected 'default' or 'strict'")
    if mode == "strict" and scheme is None:
        raise ValueError(f"mode='strict' needs a scheme, one of {', '.join(_SCHEMES)}")
    if len(predictions) != len(references):
        raise ValueError(f"found {len(predictions)} predicted and {len(references)} true sentences")
    strict_scheme = scheme if mode == "strict" else None
    undefined = 0.0 if zero_division == "warn" else float(zero_division)

    equal_tags = words = 0
    predicted: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    correct: Counter[str] = Counter()
    for number, (predicted_tags, true_tags) in enumerate(zip(predictions, references, strict=True)):
        if len(predicted_tags) != len(true_tags):
            raise ValueError(f"sentence {number} has {len(predicted_tags)} predicted and {len(true_tags)} true tags")
        equal_tags += sum(map(operator.eq, predicted_tags, true_tags))
        words += len(true_tags)
        predicted_spans = set(entity_spans(predicted_tags, strict_scheme, suffix))
        true_spans = set(entity_spans(true_tags, strict_scheme, suffix))
        predicted.update(span[0] for span in predicted_spans)
        wanted.update(span[0] for span in true_spans)
        correct.update(span[0] for span in predicted_spans & true_spans)
    if not words:
        raise ValueError("no word to score: every sentence is empty")

    result: dict[str, Any] = {}
    for name in sorted(predicted.keys() | wanted.keys()):
        scores = _precision_recall_f1(correct[name], predicted[name], wanted[name], undefined)
        result[name] = {**scores, "number": wanted[name]}
    overall = _precision_recall_f1(correct.total(), predicted.total(), wanted.total(), undefined)
    result.update({f"overall_{key}": value for key, value in overall.items()})
    result["overall_accuracy"] = equal_tags / words
    return result


def _parse_tag(tag: str, allowed: str, suffix: bool, scheme: str | None) -> tuple[str, str]:
    """Prefix letter and type of a tag."""
    if not isinstance(tag, str):
        raise ValueError(f"tag {tag!r} is not text: expected label names such as 'B-PER', not label numbers")
    prefix, kind = (tag[-1:], tag[:-1]) if suffix else (tag[:1], tag[1:])
    if prefix not in tuple(allowed) or (kind and not (kind.endswith("-") if suffix else kind.startswith("-"))):
        example = "PER-B" if suffix else "B-PER"
        raise ValueError(f"tag {tag!r} is not of the form {example!r} with one of the letters {', '.join(allowed)}")
    kind = kind.strip("-") if scheme else kind[:-1] if suffix else kind[1:]
    return prefix, kind or "_"


def _lenient_spans(tags: Sequence[tuple[str, str]]) -> list[tuple[str, int, int]]:
    spans: list[tuple[str, int, int]] = []
    start = 0
    before, kind_before = "O", "_"
    for position, (prefix, kind) in enumerate([*tags, ("O", "_")]):
        changed = kind != kind_before
        if before in "ES" or (before in "BI" and (prefix in "BSO" or changed)):
            spans.append((kind_before, start, position))
        if prefix in "BS" or (prefix in "IE" and (before in "ESO" or changed)):
            start = position
        before, kind_before = prefix, kind
    return spans


def _strict_spans(tags: Sequence[tuple[str, str]], scheme: _Scheme) -> list[tuple[str, int, int]]:
    outside = ("O", "_")
    tags = [*tags, outside]

    def fits(table: str, before: tuple[str, str], now: tuple[str, str]) -> bool:
        same = "=" if before[1] == now[1] else "!"
        return any(
            row[0] in ("?", before[0]) and row[1] in ("?", now[0]) and row[2] in ("*", same) for row in table.split()
        )

    spans: list[tuple[str, int, int]] = []
    position, before = 0, outside
    while position < len(tags):
        end = position + 1
        if fits(scheme.start, before, tags[position]):
            while fits(scheme.inside, tags[end - 1], tags[end]):
                end += 1
            if fits(scheme.end, tags[end - 1], tags[end]):
                spans.append((tags[position][1], position, end))
        before, position = tags[end - 1], end
    return spans


def _precision_recall_f1(correct: int, predicted: int, wanted: int, undefined: float) -> dict[str, float]:
    precision = correct / predicted if predicted else undefined
    recall = correct / wanted if wanted else undefined
    total = precision + recall
    return {"precision": precision, "recall": recall, "f1": 2 * precision * recall / total if total else 0.0}


def _label_arrays(
    predictions: ArrayLike, references: ArrayLike, dimensions: Sequence[int] = (1, 2)
) -> tuple[np.ndarray, np.ndarray]:
    predictions, references = np.asarray(predictions), np.asarray(references)
    if predictions.ndim == references.ndim + 1:
        raise ValueError(
            f"predictions have shape {predictions.shape} and references {references.shape}: "
            "expected labels, so take the argmax of logits first"
        )
    if predictions.shape != references.shape or predictions.ndim not in dimensions:
        raise ValueError(
            f"predictions have shape {predictions.shape} and references {references.shape}: expected the same shape "
            f"with {' or '.join(map(str, dimensions))} dimensions"
        )
    if not len(references):
        raise ValueError("no example to score: predictions and references are empty")
    return predictions, references


def _score_arrays(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    predictions, references = np.asarray(predictions, dtype=np.float64), np.asarray(references, dtype=np.float64)
    if predictions.shape != references.shape or predictions.ndim != 1:
        raise ValueError(
            f"predictions have shape {predictions.shape} and references {references.shape}: expected one number each "
            "per example"
        )
    if len(references) < 2:
        raise ValueError(f"a correlation needs at least two examples, found {len(references)}")
    for name, values in (("predictions", predictions), ("references", references)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} hold {int((~np.isfinite(values)).sum())} values that are not finite numbers")
    return predictions, references
