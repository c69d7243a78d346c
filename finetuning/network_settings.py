"""How a network with a head differs from the model it starts from."""

from dataclasses import dataclass
from typing import Literal

from ..files.options import SHARE, Group, option


@dataclass(frozen=True, kw_only=True)
class Network:
    """How a network with a head differs from the model it starts from; by default not at all."""

    group, decides = Group.MODEL, True
    pooling: Literal["cls", "mean"] | None = option(
        None,
        "What a classifier or regression of texts reads: the first token through the pooler, as plain BERTs, or the "
        "mean of all tokens (default: as in the model's configuration or sentence-transformers files; mean for a "
        "linear probe).",
    )
    dropout: float | None = option(
        None,
        "Dropout of hidden states and attention, in [0, 1] (default: the model's own, or 0.1 if new).",
        SHARE,
    )
    new_head: bool = option(False, "Start with a new head even if the model has been fine-tuned.")
    keep_model_type: bool = option(
        False, "Train a bert checkpoint with transformers' own class, not with MyBERT.", excludes="pooling=mean"
    )


@dataclass(frozen=True, kw_only=True)
class NetworkChanges(Network):
    """All differences of a network from the model it starts from."""

    bilstm: bool = False
    from_scratch: bool = False
