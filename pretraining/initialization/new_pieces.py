"""New pieces for the initial model's vocabulary, learned from the text; their embeddings come from old ones."""

from dataclasses import dataclass
from typing import Literal

from ...files.options import AT_LEAST_0, AT_LEAST_1, Group, Settings, option


@dataclass
class NewPiecesSettings(Settings):
    """How a vocabulary is extended from a text."""

    group = Group.MODEL
    decides = True
    new_pieces: int = option(
        1000,
        "Pieces to learn from the text, those that save most tokens; they replace [unused] entries, then are "
        "appended. 0: keep the vocabulary.",
        AT_LEAST_0,
    )
    new_piece_frequency: int = option(5, "How often a new piece must occur in the text.", AT_LEAST_1)
    append_pieces: bool = option(True, "Append new pieces to the old ones once all [unused] entries are taken.")
    new_rows: Literal["mean", "random"] = option(
        "mean", "Initial embedding of a new piece: mean of the old pieces it was split into, or random."
    )
