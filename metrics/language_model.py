"""Perplexity of a language model from its losses."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from .arrays import number_array


def perplexity(losses: ArrayLike, token_counts: ArrayLike | None = None) -> float:
    """Perplexity, `exp` of the mean negative log-likelihood per token; infinite if that overflows.

    Args:
        losses: Negative log-likelihoods in nats, shape `(items,)`: one per token, or the mean of each batch.
        token_counts: Number of tokens of each loss, shape `(items,)`; by default all losses have equal weight.

    Raises:
        ValueError: The shapes differ, there are no tokens, a loss is not a number, or a count is not a finite number
            of at least 0.
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
