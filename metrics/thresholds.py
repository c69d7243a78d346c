"""Decision thresholds for binary labels."""

import numpy as np
from numpy.typing import ArrayLike


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
