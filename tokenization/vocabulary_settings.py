"""Settings of a vocabulary and of its learning, each defined once for functions and commands."""

from dataclasses import dataclass, field
from typing import Annotated

from ..files.documents import TextSettings
from ..files.settings import AT_LEAST_1, SHARE_ABOVE_0, Range, check_settings
from .pair_merging import Algorithm
from .vocab import Layout, reserved_tokens

UP_TO_HALF = Range("a share from 0 to 0.5", lambda value: 0 <= value <= 0.5)


@dataclass(kw_only=True)
class VocabularyBasics:
    """The basic settings of a new vocabulary."""

    vocab_size: int = field(default=30522, metadata={"help": "Pieces of a new vocabulary, reserved ones included."})
    layout: Layout = field(
        default="google",
        metadata={
            "help": "Where its reserved pieces are; google: [PAD] 0, [unused0..98], [UNK] 100 ... 998, as in the "
            "released uncased vocabulary; compact: the five special tokens, first."
        },
    )
    lower_case: bool = field(default=True, metadata={"help": "Lower-case the text of a new vocabulary."})


@dataclass(kw_only=True)
class VocabularySettings(VocabularyBasics, TextSettings):
    """All settings of `train_wordpiece`: the fields below and those of `VocabularyBasics` and `TextSettings`.

    Raises:
        ValueError: A setting is out of range.
    """

    algorithm: Algorithm = field(
        default="bpe",
        metadata={"help": "bpe merges the most frequent pair, wordpiece the one with the highest likelihood ratio."},
    )
    strip_accents: bool = field(
        default=False,
        metadata={"help": "Strip accents (Google does when lower-casing; takes Korean apart into jamo)."},
    )
    character_coverage: Annotated[float, SHARE_ABOVE_0] = field(
        default=0.9999, metadata={"help": "Share of the text's characters to keep in the alphabet, above 0 up to 1."}
    )
    min_frequency: Annotated[int, AT_LEAST_1] = field(
        default=2, metadata={"help": "Pairs that occur less often are not merged."}
    )
    held_out_fraction: Annotated[float, UP_TO_HALF] = field(
        default=0.0,
        metadata={"help": "Share of the lines to put aside for the report, 0 to 0.5; their content says which."},
    )
    num_processes: Annotated[int | None, AT_LEAST_1] = field(
        default=None, metadata={"help": "Processes that count words; by default one per core."}
    )

    def __post_init__(self) -> None:
        check_settings(self)
        if self.vocab_size <= (reserved := len(reserved_tokens(self.layout))):
            hint = " or use layout='compact'" if self.layout == "google" else ""
            raise ValueError(
                f"vocab_size is {self.vocab_size}, but {reserved} reserved tokens come first; raise it{hint}."
            )
