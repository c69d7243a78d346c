"""The settings of token stores, examples, masks and new pieces, each stated once: name, type, default and help.

They are parts of the settings of commands; library functions take their options by name.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from ..files.documents import DocumentSettings
from ..files.errors import SettingError, worded
from ..files.options import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    SHARE_ABOVE_0,
    SHARE_BELOW_1,
    Group,
    is_given,
    option,
    options_of,
    said,
)
from ..files.settings import Part, Parts, by_keywords
from .scripts import canonical_names

Objective = Literal["mlm+nsp", "mlm", "ltr", "mlm+sop"]
MaskingUnit = Literal["token", "word", "span"]


class _Objective(NamedTuple):
    segments: int  # of an example: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
    predicted: str  # with the names in the log
    described: str  # on the card
    label: str = ""  # name of a pair's label in exported examples
    documents: int = 1  # that an example needs
    is_causal: bool = False  # whether each token is predicted from those before it, and nothing is masked


OBJECTIVES: dict[Objective, _Objective] = {
    "mlm+nsp": _Objective(
        2,
        "masked words (mlm) and next sentences (nsp)",
        "masked LM and next sentence prediction",
        "is_random_next",
        documents=2,
    ),
    "mlm": _Objective(1, "masked words (mlm)", "masked LM"),
    "ltr": _Objective(1, "the next word (mlm)", "left-to-right LM (causal attention)", is_causal=True),
    "mlm+sop": _Objective(
        2,
        "masked words (mlm) and the order of two segments (nsp)",
        "masked LM and sentence order prediction",
        "is_swapped",
    ),
}
REASONS = ("symbol_lines", "other_scripts", "many_tokens", "duplicates")
"""Reasons to drop text, in the order in which they are checked."""

MINIMAL_TOKENS = 2  # for all segments together, as in Google's script
ShardBy = Literal["documents", "files"]
_SETTINGS = {  # of a reason
    "symbol_lines": "symbol_share",
    "other_scripts": "scripts",
    "many_tokens": "tokens_per_character",
}
_OF_ALL_TEXT = ("other_scripts", "duplicates")  # the decision depends on other documents


@dataclass(frozen=True, kw_only=True)
class CorpusSettings(DocumentSettings):
    """How a corpus is read, in several processes, and what is left out of it."""

    group = Group.READING
    num_processes: int | None = option(None, "Processes that work on the text (default: one per core).", AT_LEAST_1)
    filter: list[str] = option(
        [],
        f"What to leave out of the text, some of {', '.join(REASONS)}: see `mybert data --dry_run`.",
        decides="if_not_default",
    )

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        if unknown := [reason for reason in self.filter if reason not in REASONS]:
            raise SettingError("filter", unknown[0], known=REASONS, verb="has")


@dataclass(frozen=True, kw_only=True)
class FilterSettings(Part):
    """Which parts of a corpus are dropped: see `CorpusFilter`.

    Raises:
        ValueError: If a script is unknown, or a setting is out of range.
    """

    group = Group.FILTERS
    symbol_share: float = option(
        0.6, "symbol_lines: largest fraction of a line that may not be letters.", SHARE_BELOW_1
    )
    scripts: list[str] = option(
        [], "Scripts of the corpus, such as Latin Hangul, for other_scripts (default: those of its beginning)."
    )
    tokens_per_character: float = option(0.25, "many_tokens: most tokens per character of a document.", ABOVE_0)

    def check(self) -> None:
        """Reject unknown scripts."""
        super().check()
        if self.scripts:
            canonical_names(self.scripts)


@dataclass(frozen=True, kw_only=True)
class StoreSettings(Parts):
    """How a token store is built from a corpus: see `build_token_store`."""

    group = Group.STORE
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    filters: FilterSettings = field(default_factory=FilterSettings)
    shard_index: int = option(0, "Shard to build here, from 0.")
    num_shards: int = option(1, "Number of shards that the text is divided among.", AT_LEAST_1)
    shard_by: ShardBy = option(
        "documents",
        "How text is divided among shards: documents, each takes every num_shards-th and reads all text; or files, "
        "each reads only its own, equally many.",
    )
    append: bool = option(False, "Append the text to what the store already holds.")

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        if not 0 <= self.shard_index < self.num_shards:
            raise SettingError.worded(
                "{shard_index} is {}; expected 0 to {} ({num_shards} - 1).", self.shard_index, self.num_shards - 1
            )
        asks = [
            reason
            for reason in self.filter
            if reason in _OF_ALL_TEXT and not (reason == "other_scripts" and self.scripts)
        ]
        if self.shard_by == "files" and asks:
            raise SettingError.worded(
                "{shard_by} is files and {filter} has {}, for which each shard has to read all text; expected "
                "{shard_by} documents" + (", or {scripts}." if asks[0] == "other_scripts" else "."),
                asks[0],
            )

    def check_reasons(self) -> None:
        """Reject settings of filters that are not used.

        Raises:
            ValueError: If there are any.
        """
        usual = FilterSettings()
        for reason, name in _SETTINGS.items():
            if reason not in self.filter and (value := getattr(self, name)) != getattr(usual, name):
                raise SettingError.worded(
                    "{:option} is {} and {filter} lacks {}, so it has no effect; give both or neither.",
                    name,
                    value,
                    reason,
                )


@dataclass(frozen=True, kw_only=True)
class ExampleSettings(Part):
    """What an example is: see `PretrainingDataset`.

    Raises:
        ValueError: If a setting is invalid, or two settings contradict each other.
    """

    group = Group.SEQUENCES
    decides = True
    objective: Objective = option(
        "mlm+nsp",
        "Training objective: mlm+nsp (the paper: masked tokens, and whether B follows A), mlm (masked tokens), "
        "mlm+sop (masked tokens, and the order of A and B), ltr (each token from those before it).",
        group=Group.OBJECTIVE,
    )
    max_length: int = option(128, "Longest sequence in tokens, special tokens included.", decides=False)
    short_probability: float = option(0.1, "Fraction of documents divided into shorter sequences, in [0, 1].", SHARE)
    static_masking: bool = option(
        False, "Reuse the examples and masks of the first epoch in all others.", group=Group.OBJECTIVE
    )
    pack: bool = option(False, "Pack sequences into rows of equal length, without attention across them.")
    row_length: int | None = option(
        None, "Tokens of a packed row (default: 512, or max_length if that is longer).", needs="pack"
    )

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        least = self.special_tokens + MINIMAL_TOKENS
        if self.max_length < least:
            layout = "[CLS] A [SEP] B [SEP]" if self.has_pairs else "[CLS] A [SEP]"
            raise SettingError.worded("{max_length} is {}; {} needs at least {}.", self.max_length, layout, least)
        if self.row_length is not None and self.row_length < self.max_length:
            raise SettingError.worded(
                "{row_length} is {}, less than {max_length} {}; a row has to hold a whole sequence.",
                self.row_length,
                self.max_length,
            )

    @property
    def has_pairs(self) -> bool:
        """Whether an example has two segments."""
        return OBJECTIVES[self.objective].segments == 2

    @property
    def special_tokens(self) -> int:
        """Number of special tokens in an example."""
        return 1 + OBJECTIVES[self.objective].segments


@dataclass(frozen=True, kw_only=True)
class MaskingRates(Part):
    """Which tokens are predicted, and what replaces them.

    At least one token of a sequence is predicted. Units: "token": single tokens. "word": a word's first piece with all
    following `##` pieces, as in Google's whole word masking; each token draws its own replacement. "span": several
    consecutive words, their number geometrically distributed (SpanBERT); the tokens of a span are all masked, all
    random or all kept. Words that would exceed the number of predictions are skipped, so with "word" and "span" a
    sequence may have fewer predictions, and a very short one none. With the objective "ltr" nothing is replaced, and
    `ltr_probability` of the tokens are predicted.

    Raises:
        ValueError: If a fraction is outside [0, 1], the two replacement fractions add up to more than 1, or a setting
            is invalid.
    """

    group = Group.OBJECTIVE
    decides = True
    mlm_probability: float = option(0.15, "Fraction of tokens to predict, in [0, 1].", SHARE)
    mask_replace_prob: float = option(0.8, "Fraction of the tokens to predict that [MASK] replaces, in [0, 1].", SHARE)
    random_replace_prob: float = option(0.1, "Fraction of them that a random token replaces; the rest is kept.", SHARE)
    masking_unit: MaskingUnit = option(
        "token", "Mask single tokens, whole words, or several consecutive words (SpanBERT)."
    )
    max_predictions: int | None = option(
        None,
        "Maximum number of tokens to predict in a sequence, Google's max_predictions_per_seq (default: no limit).",
        AT_LEAST_1,
    )
    ltr_probability: float = option(
        1.0, "Fraction of tokens to predict from those before them (ltr), above 0 up to 1.", SHARE_ABOVE_0
    )

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise SettingError.worded(
                "{mask_replace_prob} ({}) and {random_replace_prob} ({}) add up to more than 1.",
                self.mask_replace_prob,
                self.random_replace_prob,
            )


@dataclass(frozen=True, kw_only=True)
class NewPiecesSettings(Part):
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
    new_piece_init: Literal["mean", "random"] = option(
        "mean", "Initial embedding of a new piece: mean of the old pieces it was split into, or random."
    )


@dataclass(frozen=True, kw_only=True)
class DataSettings(StoreSettings):
    """What a user says to `mybert data`: the options below, those of the store and those of examples."""

    group = Group.INPUT
    masking: MaskingRates = field(default_factory=MaskingRates)
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    output: str = option(
        "",
        "Token store to write: a file or, with several shards, a folder. Not needed with --dry_run.",
        comes_last=True,
        required="dry_run",
        writes=True,
    )
    tokenizer: str = option(
        "",
        "Folder or vocab.txt of the tokenizer. With --dry_run it may be left out.",
        required="dry_run",
        reads="model",
    )
    text: list[str] = option(
        [],
        "Text files (plain, CSV, TSV, JSON lines, Parquet; compressed too), folders, patterns, - (standard input) "
        "or data sets of the Hub (hf:owner/name:configuration:split). Without text, an existing store is shown.",
        positional=1,
        reads="text file",
    )
    dry_run: bool = option(
        False, "Write nothing; show what --filter leaves out, or could leave out, with examples.", group=Group.FILTERS
    )
    overwrite: bool = option(
        False,
        "Replace an existing store or existing exported examples.",
        comes_last=True,
        excludes="append",
        why="and a store is either added to or replaced",
    )
    export: str | None = option(
        None, "JSON-lines file for 100 examples as a model sees them, to look at.", writes=True
    )
    seed: int = option(42, "Seed of pairs and masks.", group=Group.TRAINING)
    quiet: bool = option(False, "Show neither progress nor summary.", group=Group.COMMON)

    def check(self) -> None:
        """Reject values that do not go together."""
        super().check()
        if self.dry_run and (self.export or not self.text):
            problem = worded("{export} is set" if self.export else "{text} is not")
            raise SettingError.worded("{dry_run} is set and {}; a dry run reads text and writes nothing.", problem)
        if not self.text:
            self._reject_what_text_needs()

    def _reject_what_text_needs(self) -> None:
        of_text = [each for name, each in options_of(StoreSettings).items() if name != "num_processes"]
        if not self.export:
            of_text.append(options_of(DataSettings)["overwrite"])
        for each in of_text:
            if is_given(self, each):
                raise SettingError.worded(
                    "{} and {text} is not; without text the existing store is only shown: give the text, or leave "
                    "{:option} out.",
                    said(each.name, getattr(self, each.name)),
                    each.name,
                )


DataArguments = by_keywords(DataSettings)
