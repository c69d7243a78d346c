"""Decision thresholds for binary labels."""

import numpy as np
from numpy.typing import ArrayLike

from .calibration import with_held_out_fit

# A label's own threshold counts as much as the common one if it has this many examples.
_EXAMPLES = 10
_UNKNOWN = 0.5  # if no label is true in the data


def best_f1_threshold(scores: ArrayLike, references: ArrayLike) -> float:
    """The threshold with the best F1; scores above it count as positive.

    Args:
        scores: Probabilities, shape `(examples,)`.
        references: Whether the label is true, same shape; at least one is.

    Returns:
        The middle between two neighbouring scores; ties go to the one nearest to 1/2.
    """
    scores, references = np.asarray(scores, dtype=np.float64), np.asarray(references, dtype=bool)
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
    """A threshold for each of several labels: that of its best F1, shrunk towards a common one if it is rare.

    A label with n examples has the mean of its own threshold, with the weight n, and of the threshold with the best F1
    over all labels, with the weight 10. On few examples the best F1 is often that of predicting a label everywhere.

    Args:
        scores: Probabilities, shape `(examples, labels)`.
        references: Whether each label is true, same shape.

    Returns:
        The thresholds, shape `(labels,)`; 1/2 if no label is true.
    """
    scores, references = np.asarray(scores, dtype=np.float64), np.asarray(references, dtype=bool)
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
    """Whether each label is predicted, in each of five folds with the thresholds fitted on the other four.

    Args:
        scores: Probabilities, shape `(examples, labels)`.
        references: Whether each label is true, same shape.

    Returns:
        Booleans, shape `(examples, labels)`.
    """
    return with_held_out_fit(fit_thresholds, np.greater, scores, references).astype(bool)
