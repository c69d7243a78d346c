"""Perplexity of a language model from its losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .arrays import number_array


def perplexity(losses: ArrayLike, token_counts: ArrayLike | None = None) -> float:
    """Perplexity, `exp` of the mean negative log-likelihood of a token; infinite where that overflows.

    Args:
        losses: Negative log-likelihoods in nats, shape `(items,)`: one per token, or the mean of each batch.
        token_counts: Tokens behind each loss, shape `(items,)`; without it every loss counts the same.

    Raises:
        ValueError: The shapes differ, there is no token, or a value is no number (a count: no finite one from 0).
    """
    losses = number_array("losses", losses)
    counts = np.ones_like(losses) if token_counts is None else number_array("token_counts", token_counts)
    if losses.shape != counts.shape or losses.ndim != 1:
        raise ValueError(
            f"losses have shape {losses.shape} and token_counts {counts.shape}: expected one number each per item"
        )
    if np.isnan(losses).any() or np.isneginf(losses).any() or not (np.isfinite(counts) & (counts >= 0)).all():
        raise ValueError("losses or token_counts hold values that are not numbers, or negative counts")
    if not counts.sum() > 0:
        raise ValueError("no token to score: losses are empty or token_counts are all zero")
    with np.errstate(over="ignore"):
        return float(np.exp(np.average(losses, weights=counts)))
