"""Settings of a vocabulary and of its learning, each defined once for functions and commands."""

from dataclasses import dataclass

from ..files.documents import TextSettings
from ..files.options import AT_LEAST_1, SHARE_ABOVE_0, Group, Range, check_options, option
from .pair_merging import Algorithm
from .vocab import Layout, reserved_tokens

UP_TO_HALF = Range("a share from 0 to 0.5", lambda value: 0 <= value <= 0.5)


@dataclass(kw_only=True)
class VocabularyBasics:
    """The basic settings of a new vocabulary."""

    group = Group.VOCABULARY
    decides = True
    vocab_size: int = option(30522, "Pieces of a new vocabulary, reserved ones included.", idle_with="model")
    layout: Layout = option(
        "google",
        "Where its reserved pieces are; google: [PAD] 0, [unused0..98], [UNK] 100 ... 998, as in the released "
        "uncased vocabulary; compact: the five special tokens, first.",
        idle_with="model",
    )
    lower_case: bool = option(True, "Lower-case the text of a new vocabulary.", idle_with="model")


@dataclass(kw_only=True)
class VocabularySettings(VocabularyBasics, TextSettings):
    """All settings of `train_wordpiece`: the fields below and those of `VocabularyBasics` and `TextSettings`.

    Raises:
        ValueError: A setting is out of range.
    """

    group = Group.VOCABULARY
    algorithm: Algorithm = option(
        "bpe", "bpe merges the most frequent pair, wordpiece the one with the highest likelihood ratio."
    )
    strip_accents: bool = option(False, "Strip accents (Google does when lower-casing; takes Korean apart into jamo).")
    character_coverage: float = option(
        0.9999, "Share of the text's characters to keep in the alphabet, above 0 up to 1.", SHARE_ABOVE_0
    )
    min_frequency: int = option(2, "Pairs that occur less often are not merged.", AT_LEAST_1)
    held_out_fraction: float = option(
        0.0, "Share of the lines to put aside for the report, 0 to 0.5; their content says which.", UP_TO_HALF
    )
    num_processes: int | None = option(
        None, "Processes that count words; by default one per core.", AT_LEAST_1, group=Group.READING
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.vocab_size <= (reserved := len(reserved_tokens(self.layout))):
            hint = " or use layout='compact'" if self.layout == "google" else ""
            raise ValueError(
                f"vocab_size is {self.vocab_size}, but {reserved} reserved tokens come first; raise it{hint}."
            )
