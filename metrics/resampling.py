"""Comparing two systems on the same rows: intervals of any metric by the paired bootstrap, and McNemar's test.

A resample is given by how often it holds each row, so metrics of many resamples are products of matrices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

WeightedMetrics = Callable[[np.ndarray], dict[str, np.ndarray]]
"""From how often each row counts, shape `(resamples, rows)`, to metrics by name, each of shape `(resamples,)`."""

_NUMBERS_AT_ONCE = 1 << 21  # of a matrix of weights
_CONSTANT = 1e-20  # variance, as a fraction of the mean square, below which all values are the same


def paired_bootstrap(
    first: WeightedMetrics,
    second: WeightedMetrics,
    rows: int,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
) -> dict[str, dict[str, Any]]:
    """Percentile intervals of two systems' metrics and of their differences, from the same resamples of the rows.

    Efron and Tibshirani (1993), "An Introduction to the Bootstrap", chapter 13; Koehn (2004), "Statistical
    Significance Tests for Machine Translation Evaluation". The intervals hold for other rows of the same kind, not for
    other seeds of a training.

    Args:
        first, second: The metrics of each system; names that only one of them has are left out.
        rows: Number of rows.
        resamples: Number of resamples.
        confidence: Fraction of the resamples within an interval.
        seed: Of the resamples.

    Returns:
        For each metric `a`, `b` and `difference` (second minus first), each with `value`, `low` and `high`, and `p`,
        two-sided: twice the fraction of resamples in which the difference is 0 or has the other sign, at most 1; the
        data itself counts as one such resample, so it is never 0. A resample without the metric, such as the F1 of a
        class that it lacks, has no difference.
    """
    generator = np.random.default_rng(seed)
    every_row = np.ones((1, rows))
    values = [metrics(every_row) for metrics in (first, second)]
    names = [name for name in values[0] if name in values[1]]
    drawn: list[list[list[np.ndarray]]] = []  # by chunk, system and name
    step = max(1, _NUMBERS_AT_ONCE // rows)
    for start in range(0, resamples, step):
        count = min(step, resamples - start)
        places = generator.integers(rows, size=(count, rows)) + rows * np.arange(count)[:, None]
        weights = np.bincount(places.ravel(), minlength=count * rows).reshape(count, rows).astype(np.float64)
        of_chunk = [metrics(weights) for metrics in (first, second)]
        drawn.append([[found[name] for name in names] for found in of_chunk])
    edges = np.array([1 - confidence, 1 + confidence]) / 2

    def interval(value: float, samples: np.ndarray) -> dict[str, float]:
        low, high = np.nanquantile(samples, edges)
        return {"value": float(value), "low": float(low), "high": float(high)}

    result: dict[str, dict[str, Any]] = {}
    for number, name in enumerate(names):
        a, b = (np.concatenate([chunk[side][number] for chunk in drawn]) for side in (0, 1))
        value_a, value_b = (found[name][0] for found in values)
        against = min((~(b - a > 0)).sum(), (~(b - a < 0)).sum())  # nan, too
        result[name] = {
            "a": interval(value_a, a),
            "b": interval(value_b, b),
            "difference": interval(value_b - value_a, b - a),
            "p": min(1.0, 2 * float(against + 1) / (resamples + 1)),
        }
    return result


def mcnemar(first_right: ArrayLike, second_right: ArrayLike) -> dict[str, Any]:
    """McNemar's exact test: whether one of two systems is right more often where only one of them is.

    Args:
        first_right, second_right: Whether each system is right, shape `(rows,)`.

    Returns:
        `only_a` and `only_b`, the number of rows in which only that system is right, and `p`, two-sided.
    """
    from scipy.stats import binomtest

    a, b = np.asarray(first_right, dtype=bool), np.asarray(second_right, dtype=bool)
    only_a, only_b = int((a & ~b).sum()), int((b & ~a).sum())
    p = float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0
    return {"only_a": only_a, "only_b": only_b, "p": p}


def weighted_mean(values: ArrayLike, weights: np.ndarray) -> np.ndarray:
    """Mean of a value of each row, shape `(rows,)`, over the rows that are not nan; nan if a resample has none."""
    values = np.asarray(values, dtype=np.float64)
    there = ~np.isnan(values)
    return _ratio(weights @ np.where(there, values, 0.0), weights @ there.astype(np.float64))


def count_metrics(counts: np.ndarray, weights: np.ndarray) -> dict[str, np.ndarray]:
    """Metrics of classes or entities from counts of each row.

    Args:
        counts: Correct, predicted and true items of each class, shape `(3, rows, classes)`.
        weights: How often each row counts, shape `(resamples, rows)`.

    Returns:
        `precision`, `recall` and `micro_f1` over all classes, `macro_f1` over those that occur, `accuracy` and
        `matthews_correlation` of items with one class each, all 0 where they are undefined; and `f1` of each class,
        shape `(resamples, classes)`, nan for one that a resample lacks.
    """
    by_class = weights @ counts.astype(np.float64)
    (correct, predicted, true), (hits, guesses, wanted) = by_class, by_class.sum(-1)
    f1 = _ratio(2 * correct, predicted + true)
    present = np.maximum((predicted + true > 0).sum(-1), 1)
    covariance = hits * wanted - (predicted * true).sum(-1)
    # Not below 0, as they would be for items with several classes, of which this correlation says nothing.
    variances = [np.maximum(wanted**2 - (side**2).sum(-1), 0) for side in (predicted, true)]
    return {
        "accuracy": _defined(hits, wanted),
        "precision": _defined(hits, guesses),
        "recall": _defined(hits, wanted),
        "micro_f1": _defined(2 * hits, guesses + wanted),
        "macro_f1": np.nansum(f1, -1) / present,
        "matthews_correlation": _defined(covariance, np.sqrt(np.prod(variances, axis=0))),
        "f1": f1,
    }


def weighted_pearson(predictions: np.ndarray, references: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Pearson correlation, 0 if a side is constant, nan without rows; values `(rows,)` or `(resamples, rows)`."""
    total, deviations, constant = weights.sum(-1, keepdims=True), [], False
    for side in (predictions, references):
        mean = _ratio((weights * side).sum(-1, keepdims=True), total)
        deviations.append(side - mean)
        variance = (weights * deviations[-1] ** 2).sum(-1)
        constant |= variance <= _CONSTANT * (weights * side**2).sum(-1)
    x, y = deviations
    scale = np.sqrt((weights * x**2).sum(-1) * (weights * y**2).sum(-1))
    found = _defined((weights * x * y).sum(-1), np.where(constant, 0.0, scale))
    return np.where(total[..., 0] > 0, found, np.nan)


def weighted_spearman(predictions: np.ndarray, references: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Spearman rank correlation, 0 if a side is constant; values of each row, shape `(rows,)`."""
    return weighted_pearson(_ranks(predictions, weights), _ranks(references, weights), weights)


def _ranks(values: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The rank of each row in each resample, the mean rank for equal values."""
    order = np.argsort(values, kind="stable")
    _, starts, place = np.unique(values, return_index=True, return_inverse=True)
    starts = np.searchsorted(values[order], values[starts])
    equal = np.add.reduceat(weights[:, order], starts, axis=1)
    return (np.cumsum(equal, axis=1) - equal + (equal + 1) / 2)[:, place]


def _ratio(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.full(np.shape(part), np.nan), where=whole > 0)


def _defined(part: np.ndarray, whole: np.ndarray) -> np.ndarray:
    return np.divide(part, whole, out=np.zeros(np.shape(part)), where=whole > 0)
