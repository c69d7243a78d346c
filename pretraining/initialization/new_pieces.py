"""New pieces for the initial model's vocabulary, learned from the text; their embeddings come from old ones."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from ...files.settings import AT_LEAST_0, AT_LEAST_1, check_settings


@dataclass
class NewPiecesSettings:
    """How a vocabulary is extended from a text."""

    new_pieces: Annotated[int, AT_LEAST_0] = field(
        default=1000,
        metadata={
            "help": "Pieces to learn from the text, those that save most tokens; they replace [unused] entries, "
            "then are appended. 0: keep the vocabulary."
        },
    )
    new_piece_frequency: Annotated[int, AT_LEAST_1] = field(
        default=5, metadata={"help": "How often a new piece must occur in the text."}
    )
    append_pieces: bool = field(
        default=True, metadata={"help": "Append new pieces to the old ones once all [unused] entries are taken."}
    )
    new_rows: Literal["mean", "random"] = field(
        default="mean",
        metadata={"help": "Initial embedding of a new piece: mean of the old pieces it was split into, or random."},
    )

    def __post_init__(self) -> None:
        check_settings(self)
