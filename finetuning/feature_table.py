"""The features of a token by name: which hidden states, and how they are combined (paper, section 5.3)."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Features:
    """The hidden states of a token's features, and how to combine them."""

    first: int  # counted from the embeddings (0), or from the end if negative
    last: int | None  # exclusive; None for the end
    combination: Literal["concat", "sum", "weighted"] = "concat"

    def states(self, num_layers: int) -> list[int]:
        """Indices of the hidden states in a model with this many layers."""
        is_embeddings = self.first == 0
        chosen = range(num_layers + 1)[self.first : self.last]
        return [number for number in chosen if number or is_embeddings or num_layers < 2]


FEATURES = {
    "embeddings": Features(0, 1),
    "second_to_last": Features(-2, -1),
    "last": Features(-1, None),
    "weighted_last_four": Features(-4, None, "weighted"),
    "concat_last_four": Features(-4, None),
    "weighted_all": Features(1, None, "weighted"),
    "sum_last_four": Features(-4, None, "sum"),
    "sum_all": Features(1, None, "sum"),
}
"""Features by name; "all" are all layers without the embeddings."""

TABLE_7 = ("embeddings", "second_to_last", "last", "weighted_last_four", "concat_last_four", "weighted_all")
"""The feature-based rows of the paper's table 7, in its order."""
