"""Calibration (whether predictions with a probability of 80 % are right 80 % of the time), temperatures, thresholds.

Guo et al. (2017), "On Calibration of Modern Neural Networks", arXiv 1706.04599. A ValueError if there are no examples,
the shapes do not fit, or a probability, score or class is none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from .classification import number_array

_BINS = 15  # as in the paper
_PARTS = 5  # folds for cross-fitting
_LOWEST, _HIGHEST = 0.05, 20.0  # range of the temperature search
# A label's own threshold counts as much as the common one if it has this many examples.
_EXAMPLES = 10
_UNKNOWN = 0.5  # the threshold if no label is true in the data


def calibration_bins(probabilities: ArrayLike, references: ArrayLike, bins: int = _BINS) -> np.ndarray:
    """Accuracy of predictions by bins of their probability (Guo et al., section 2).

    Args:
        probabilities: Probability of each class, shape `(examples, classes)`; the most probable one is the prediction.
        references: The true class of each example, shape `(examples,)`.
        bins: Number of equal bins of [0, 1].

    Returns:
        For each bin the number of examples, their mean probability and their accuracy: shape `(bins, 3)`; zeros for an
        empty bin.
    """
    probabilities, references = _checked(probabilities, references)
    confidence = probabilities.max(1)
    right = probabilities.argmax(1) == references
    places = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)
    counts = np.bincount(places, minlength=bins)
    sums = [np.bincount(places, weights=values, minlength=bins) for values in (confidence, right)]
    return np.stack([counts, *(values / np.maximum(counts, 1) for values in sums)], axis=1)


def expected_calibration_error(probabilities: ArrayLike, references: ArrayLike, bins: int = _BINS) -> float:
    """Mean absolute difference between probability and accuracy over `calibration_bins`, in [0, 1]."""
    found = calibration_bins(probabilities, references, bins)
    return float(np.average(np.abs(found[:, 1] - found[:, 2]), weights=found[:, 0]))


def selective_accuracy(probabilities: ArrayLike, references: ArrayLike, threshold: float) -> dict[str, float]:
    """Coverage and accuracy of a classifier that answers only where it is confident (Geifman and El-Yaniv, 2017).

    Args:
        probabilities: Probability of each class, shape `(examples, classes)`; the most probable one is the prediction.
        references: The true class of each example, shape `(examples,)`.
        threshold: The lowest probability of a prediction that is answered, in [0, 1].

    Returns:
        `coverage`, the fraction of the examples that are answered, and `selective_accuracy`, the accuracy on these,
        which is missing if there are none.
    """
    probabilities, references = _checked(probabilities, references)
    is_answered = probabilities.max(1) >= threshold
    is_right = (probabilities.argmax(1) == references)[is_answered]
    found = {"coverage": float(is_answered.mean())}
    return found | ({"selective_accuracy": float(is_right.mean())} if len(is_right) else {})


def fit_temperature(probabilities: ArrayLike, references: ArrayLike) -> float:
    """The temperature with the lowest cross-entropy (Guo et al., section 4.2).

    As in Platt's method (1999), the target of the true class is 1 - 1/(examples + 2), as if one more example were
    wrong, so that a model without errors on a small data set does not get a temperature of 0.

    Args:
        probabilities: Probability of each class, shape `(examples, classes)`.
        references: The true class of each example, shape `(examples,)`.

    Returns:
        The temperature, between 0.05 and 20: above 1 for an overconfident model.
    """
    from scipy.optimize import minimize_scalar

    probabilities, references = _checked(probabilities, references)
    logits = _logits(probabilities)
    count, classes = logits.shape
    wrong = 1 / (count + 2)
    targets = np.full(logits.shape, wrong / max(classes - 1, 1))
    targets[np.arange(count), references] = 1 - wrong

    def loss(logarithm: float) -> float:
        return -float((targets * _log_softmax(logits * np.exp(-logarithm))).sum(1).mean())

    found = minimize_scalar(loss, bounds=(np.log(_LOWEST), np.log(_HIGHEST)), method="bounded")
    return float(np.exp(found.x))


def with_temperature(probabilities: ArrayLike, temperature: float) -> np.ndarray:
    """Probabilities after dividing the logits by a temperature; the ranking of the classes stays.

    Args:
        probabilities: Probabilities at temperature 1, shape `(examples, classes)`.
        temperature: Above 0; 1 changes nothing.
    """
    if temperature == 1:
        return np.asarray(probabilities, dtype=np.float64)
    return np.exp(_log_softmax(_logits(probabilities) / temperature))


def held_out_temperatures(probabilities: ArrayLike, references: ArrayLike) -> np.ndarray:
    """Scale each of five folds with the temperature fitted on the other four; returns the probabilities.

    This allows an unbiased measurement on the data used for fitting.

    Args:
        probabilities: Probability of each class, shape `(examples, classes)`; at least two examples.
        references: The true class of each example, shape `(examples,)`.
    """
    return _with_held_out_fit(fit_temperature, with_temperature, probabilities, references)


def log_loss(probabilities: ArrayLike, references: ArrayLike) -> float:
    """Mean negative logarithm of the true class's probability, in nats; shapes as in `fit_temperature`."""
    probabilities, references = _checked(probabilities, references)
    return -float(_logits(probabilities)[np.arange(len(references)), references].mean())


def best_f1_threshold(scores: ArrayLike, references: ArrayLike) -> float:
    """The threshold with the best F1; scores above it count as positive.

    It is the middle between two neighboring scores; ties go to the one nearest to 1/2. At least one label is true.
    """
    scores, references = _checked(scores, references, of_classes=False)
    order = np.argsort(-scores, kind="stable")
    ranked = scores[order]
    right = np.cumsum(references[order])
    f1 = 2 * right / (np.arange(1, len(ranked) + 1) + references.sum())
    below = np.append(ranked[1:], 0.0)
    f1[ranked == below] = -1.0  # no threshold separates equal scores
    middles = (ranked + below) / 2
    best = np.flatnonzero(f1 == f1.max())
    return float(middles[best[np.argmin(np.abs(middles[best] - 0.5))]])


def fit_thresholds(scores: ArrayLike, references: ArrayLike) -> np.ndarray:
    """The threshold of each label, `(labels,)`, from scores and whether each label is true, `(examples, labels)`.

    A label with n examples has the mean of the threshold with its best F1, with the weight n, and of the one with the
    best F1 over all labels, with the weight 10: on few examples the best F1 is often that of predicting a label
    everywhere. If no label is true, all thresholds are 1/2.
    """
    scores, references = _checked(scores, references, of_classes=False)
    counts = references.sum(0)
    if not counts.any():
        return np.full(len(counts), _UNKNOWN)
    common = best_f1_threshold(scores.ravel(), references.ravel())
    own = [
        best_f1_threshold(column, holds) if holds.any() else common
        for column, holds in zip(scores.T, references.T, strict=True)
    ]
    return (counts * own + _EXAMPLES * common) / (counts + _EXAMPLES)


def held_out_labels(scores: ArrayLike, references: ArrayLike) -> np.ndarray:
    """Whether each label is predicted, in each of five folds with the thresholds fitted on the other four."""
    return _with_held_out_fit(fit_thresholds, np.greater, scores, references).astype(bool)


def _with_held_out_fit(
    fit: Callable[[np.ndarray, np.ndarray], Any],
    apply: Callable[[np.ndarray, Any], np.ndarray],
    probabilities: ArrayLike,
    references: ArrayLike,
) -> np.ndarray:
    """Apply to each of five folds of the examples (the first axis) what was fitted on the other four."""
    probabilities, references = _checked(probabilities, references, of_classes=np.ndim(references) == 1)
    part = np.arange(len(references)) % min(_PARTS, len(references))
    found = np.empty_like(probabilities)
    for number in range(part.max() + 1):
        own = part == number
        found[own] = apply(probabilities[own], fit(probabilities[~own], references[~own]))
    return found


def _checked(scores: ArrayLike, references: ArrayLike, of_classes: bool = True) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of classes and each example's class, or scores of labels and whether each is true, as arrays."""
    scores, found = number_array("probabilities", scores), number_array("references", references)
    fits = scores.ndim == 2 and len(scores) == found.size if of_classes else scores.shape == found.shape
    if not fits or (of_classes and not scores.size):
        expected = "(examples, classes) and (examples,)" if of_classes else "the same shape"
        raise ValueError(f"probabilities have shape {scores.shape} and references {found.shape}; expected {expected}.")
    classes = range(scores.shape[1] if of_classes else 2)
    if not (are_fractions := (scores >= 0) & (scores <= 1)).all():
        raise ValueError(f"probabilities hold {scores[~are_fractions][0]}; expected numbers in [0, 1].")
    if not (are_known := np.isin(found, classes)).all():
        raise ValueError(f"references hold {found[~are_known][0]:g}; expected 0 to {classes[-1]}.")
    return scores, found.astype(int if of_classes else bool)


def _logits(probabilities: ArrayLike) -> np.ndarray:
    return np.log(np.maximum(np.asarray(probabilities, dtype=np.float64), np.finfo(np.float64).tiny))


def _log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
