"""Masking for the masked LM (paper, section 3.1, task 1)."""

from dataclasses import dataclass

import numpy as np

IGNORED_LABEL = -100


@dataclass(frozen=True)
class MaskingRates:
    """Which tokens are predicted and what stands in their place.

    Attributes:
        predicted: Share of a sequence's tokens that are predicted; at least one token always is.
        masked: Share of these replaced by [MASK].
        random: Share of these replaced by a random token; the rest stays.

    Raises:
        ValueError: If a share is outside [0, 1], or the last two exceed 1 together.
    """

    predicted: float = 0.15
    masked: float = 0.8
    random: float = 0.1

    def __post_init__(self) -> None:
        """Check the shares."""
        for name, value in vars(self).items():
            if not 0 <= value <= 1:
                raise ValueError(f"The masking rate {name} is {value}; expected a share between 0 and 1.")
        if self.masked + self.random > 1:
            raise ValueError(f"The masking rates masked ({self.masked}) and random ({self.random}) exceed 1 together.")


def mask_tokens(
    input_ids: np.ndarray,
    is_special: np.ndarray,
    mask_token_id: int,
    ordinary_ids: np.ndarray,
    rates: MaskingRates,
    generator: np.random.Generator,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens to predict and replace them.

    As in Google's script, the number of predictions is the rate times the length with special tokens, rounded.

    Args:
        input_ids: Token ids of a sequence, (length,).
        is_special: Whether a token is special and never chosen, (length,).
        mask_token_id: Id of [MASK].
        ordinary_ids: Ids that random replacements are drawn from: all but special and reserved tokens.
        rates: The rates.
        generator: Source of all random choices.

    Returns:
        The masked ids and the labels (the original id at chosen positions, -100 elsewhere), both (length,), int64.
    """
    candidates = np.flatnonzero(~is_special)
    count = min(max(1, round(len(input_ids) * rates.predicted)), len(candidates))
    chosen = generator.permutation(candidates)[:count]
    labels = np.full(len(input_ids), IGNORED_LABEL, dtype=np.int64)
    labels[chosen] = input_ids[chosen]
    masked = input_ids.astype(np.int64)
    draw = generator.random(count)
    masked[chosen[draw < rates.masked]] = mask_token_id
    is_random = (draw >= rates.masked) & (draw < rates.masked + rates.random)
    masked[chosen[is_random]] = generator.choice(ordinary_ids, is_random.sum())
    return masked, labels
