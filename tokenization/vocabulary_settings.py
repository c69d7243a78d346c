"""Settings of a vocabulary and of its learning, each defined once for functions and commands."""

from dataclasses import dataclass, field

from ..files.corpus import TextSettings
from .pair_merging import Algorithm
from .vocab import Layout, reserved_tokens


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
    character_coverage: float = field(
        default=0.9999, metadata={"help": "Share of the text's characters to keep in the alphabet, above 0 up to 1."}
    )
    min_frequency: int = field(default=2, metadata={"help": "Pairs that occur less often are not merged."})
    held_out_fraction: float = field(
        default=0.0,
        metadata={"help": "Share of the lines to put aside for the report, 0 to 0.5; their content says which."},
    )
    num_processes: int | None = field(
        default=None, metadata={"help": "Processes that count words; by default one per core."}
    )

    def __post_init__(self) -> None:
        if self.algorithm not in ("bpe", "wordpiece"):
            raise ValueError(f"algorithm is {self.algorithm!r}, expected 'bpe' or 'wordpiece'.")
        if self.vocab_size <= (reserved := len(reserved_tokens(self.layout))):
            hint = " or use layout='compact'" if self.layout == "google" else ""
            raise ValueError(
                f"vocab_size is {self.vocab_size}, but {reserved} reserved tokens come first; raise it{hint}."
            )
        if not 0 < self.character_coverage <= 1:
            raise ValueError(f"character_coverage is {self.character_coverage}, expected a share above 0 and up to 1.")
        if self.min_frequency < 1:
            raise ValueError(f"min_frequency is {self.min_frequency}, expected at least 1.")
        if not 0 <= self.held_out_fraction <= 0.5:
            raise ValueError(f"held_out_fraction is {self.held_out_fraction}, expected a share from 0 to 0.5.")
        if self.num_processes is not None and self.num_processes < 1:
            raise ValueError(f"num_processes is {self.num_processes}, expected at least 1.")
