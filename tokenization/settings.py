"""The settings of `train_wordpiece` and of `mybert vocab`."""

from dataclasses import dataclass, field
from typing import Literal

from ..files.documents import TextSettings
from ..files.errors import SettingError, worded
from ..files.options import AT_LEAST_1, SHARE_ABOVE_0, Group, Range, option
from ..files.settings import Part, Parts, by_keywords

Algorithm = Literal["bpe", "wordpiece"]
PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)

Layout = Literal["google", "compact"]
_GOOGLE_UNUSED = 994  # [unused0] ... [unused993], as in the released English vocabularies
UP_TO_HALF = Range("a fraction from 0 to 0.5", 0, 0.5)
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.txt")


def reserved_tokens(layout: Layout) -> list[str]:
    """Return the pieces that come before the learned ones."""
    if layout == "compact":
        return list(SPECIAL_TOKENS)
    # As in the released uncased vocabulary: [PAD] 0, [unused0..98] 1-99, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103,
    # [unused99..993] 104-998.
    unused = [f"[unused{i}]" for i in range(_GOOGLE_UNUSED)]
    return [PAD_TOKEN, *unused[:99], *SPECIAL_TOKENS[1:], *unused[99:]]


@dataclass(frozen=True, kw_only=True)
class VocabularyBasics(Part):
    """The basic settings of a new vocabulary."""

    group, decides = Group.VOCABULARY, True
    vocab_size: int = option(30522, "Pieces of a new vocabulary, reserved ones included.")
    vocab_layout: Layout = option(
        "google",
        "Where its reserved pieces are; google: [PAD] 0, [unused0..98], [UNK] 100 ... 998, as in the released "
        "uncased vocabulary; compact: the five special tokens, first.",
    )
    do_lower_case: bool = option(True, "Lower-case the text of a new vocabulary.")

    def check(self) -> None:
        """Reject a size that reserved pieces fill."""
        super().check()
        if self.vocab_size <= (reserved := len(reserved_tokens(self.vocab_layout))):
            hint = worded(" or use {vocab_layout='compact'}") if self.vocab_layout == "google" else ""
            raise SettingError.worded(
                "{vocab_size} is {}, but {} reserved tokens come first; raise it{}.", self.vocab_size, reserved, hint
            )


@dataclass(frozen=True, kw_only=True)
class VocabularySettings(Parts):
    """All settings of `train_wordpiece`: the options below and those of `VocabularyBasics` and `TextSettings`."""

    group = Group.VOCABULARY
    reading: TextSettings = field(default_factory=TextSettings)
    basics: VocabularyBasics = field(default_factory=VocabularyBasics)
    algorithm: Algorithm = option(
        "bpe", "bpe merges the most frequent pair, wordpiece the one with the highest likelihood ratio."
    )
    strip_accents: bool = option(False, "Strip accents (Google does when lower-casing; takes Korean apart into jamo).")
    character_coverage: float = option(
        0.9999, "Fraction of the text's characters to keep in the alphabet, above 0 up to 1.", SHARE_ABOVE_0
    )
    min_frequency: int = option(2, "Pairs that occur less often are not merged.", AT_LEAST_1)
    validation_split: float = option(
        0.0, "Fraction of the lines held out for the report, 0 to 0.5, chosen by their hash.", UP_TO_HALF
    )
    num_processes: int | None = option(
        None, "Processes that count words (default: one per core).", AT_LEAST_1, group=Group.READING
    )


@dataclass(frozen=True, kw_only=True)
class VocabSettings(VocabularySettings):
    """What a user says to `mybert vocab`."""

    group = Group.INPUT
    text: list[str] = option(
        help="Text to learn from: files (plain, CSV, TSV, JSON lines, Parquet; compressed too), folders, patterns, - "
        "(standard input) or data sets of the Hub (hf:owner/name:configuration:split).",
        positional=1,
        reads="text file",
    )
    output_dir: str = option(help=f"Folder for {', '.join(TOKENIZER_FILES)}.", comes_last=True, writes=True)
    # The command prints a report, which should be measured on text that was not used for learning.
    validation_split: float = option(0.005)
    report: str | None = option(None, "JSON file for the report.", writes=True)
    overwrite: bool = option(False, "Replace the tokenizer in output_dir, and the report.", comes_last=True)
    quiet: bool = option(False, "Show neither progress nor summary.", group=Group.COMMON)


VocabArguments = by_keywords(VocabSettings)
