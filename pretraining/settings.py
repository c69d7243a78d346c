"""The settings of token stores, examples, masks and new pieces, each stated once: name, type, default and help.

Commands inherit these classes; library functions take their fields by name (see `settings_of`).
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple

from ..files.documents import DocumentSettings
from ..files.options import AT_LEAST_0, AT_LEAST_1, SHARE, SHARE_ABOVE_0, Group, Settings, option
from .filtering import REASONS, FilterSettings

Objective = Literal["mlm+nsp", "mlm", "ltr", "mlm+sop"]
MaskingUnit = Literal["token", "word", "span"]


class _Objective(NamedTuple):
    segments: int  # of an example: [CLS] A [SEP], or [CLS] A [SEP] B [SEP]
    predicted: str  # with the names in the log
    described: str  # on the card
    label: str = ""  # name of a pair's label in exported examples


OBJECTIVES: dict[Objective, _Objective] = {
    "mlm+nsp": _Objective(
        2, "masked words (mlm) and next sentences (nsp)", "masked LM and next sentence prediction", "is_random_next"
    ),
    "mlm": _Objective(1, "masked words (mlm)", "masked LM"),
    "ltr": _Objective(1, "the next word (mlm)", "left-to-right LM (causal attention)"),
    "mlm+sop": _Objective(
        2,
        "masked words (mlm) and the order of two segments (nsp)",
        "masked LM and sentence order prediction",
        "is_swapped",
    ),
}
MINIMAL_TOKENS = 2  # for all segments together, as in Google's script
ShardBy = Literal["documents", "files"]
_SETTINGS = {  # of a reason
    "symbol_lines": "symbol_share",
    "other_scripts": "scripts",
    "many_tokens": "tokens_per_character",
}
_OF_ALL_TEXT = ("other_scripts", "duplicates")  # the decision depends on other documents


@dataclass
class CorpusSettings(DocumentSettings):
    group = Group.READING
    num_processes: int | None = option(None, "Processes that work on the text (default: one per core).", AT_LEAST_1)
    filter: list[str] = option(
        [],
        f"What to leave out of the text, some of {', '.join(REASONS)}: see `mybert data --dry_run`.",
        decides="if_not_default",
        needs="text",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [reason for reason in self.filter if reason not in REASONS]:
            raise ValueError(f"filter has {unknown[0]!r}; expected some of {', '.join(REASONS)}.")


@dataclass
class StoreSettings(FilterSettings, CorpusSettings):
    """How a token store is built from a corpus: see `build_token_store`.

    Raises:
        ValueError: If `shard_index` is out of range; see also `CorpusSettings` and `FilterSettings`.
    """

    group = Group.STORE
    shard_index: int = option(0, "Shard to build here, from 0.")
    num_shards: int = option(1, "Number of shards that the text is divided among.", AT_LEAST_1)
    shard_by: ShardBy = option(
        "documents",
        "How text is divided among shards: documents, each takes every num_shards-th and reads all text; or files, "
        "each reads only its own, equally many.",
    )
    append: bool = option(False, "Append the text to what the store already holds.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.shard_index < self.num_shards:
            raise ValueError(
                f"shard_index is {self.shard_index}; expected 0 to {self.num_shards - 1} (num_shards - 1)."
            )
        asks = [
            reason
            for reason in self.filter
            if reason in _OF_ALL_TEXT and not (reason == "other_scripts" and self.scripts)
        ]
        if self.shard_by == "files" and asks:
            raise ValueError(
                f"shard_by is files and filter has {asks[0]}, for which each shard has to read all text; expected "
                "shard_by documents" + (", or scripts." if asks[0] == "other_scripts" else ".")
            )

    def check_reasons(self) -> None:
        """Reject settings of filters that are not used.

        Raises:
            ValueError: If there are any.
        """
        usual = FilterSettings()
        for reason, name in _SETTINGS.items():
            if reason not in self.filter and (value := getattr(self, name)) != getattr(usual, name):
                raise ValueError(
                    f"{name} is {value} and filter lacks {reason}, so it has no effect; give both or neither."
                )


@dataclass
class ExampleSettings(Settings):
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
    row_length: int | None = option(None, "Tokens of a packed row (default: 512, or max_length if that is longer).")

    def __post_init__(self) -> None:
        super().__post_init__()
        least = self.special_tokens + MINIMAL_TOKENS
        if self.max_length < least:
            layout = "[CLS] A [SEP] B [SEP]" if self.has_pairs else "[CLS] A [SEP]"
            raise ValueError(f"max_length is {self.max_length}; {layout} needs at least {least}.")
        if self.pack and self.row_length is not None and self.row_length < self.max_length:
            raise ValueError(
                f"row_length is {self.row_length}, less than max_length {self.max_length}; a row has to hold a "
                "whole sequence."
            )

    @property
    def has_pairs(self) -> bool:
        """Whether an example has two segments."""
        return OBJECTIVES[self.objective].segments == 2

    @property
    def special_tokens(self) -> int:
        """Number of special tokens in an example."""
        return 1 + OBJECTIVES[self.objective].segments


@dataclass
class MaskingRates(Settings):
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

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise ValueError(
                f"mask_replace_prob ({self.mask_replace_prob}) and random_replace_prob ({self.random_replace_prob}) "
                "add up to more than 1."
            )


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
    new_piece_init: Literal["mean", "random"] = option(
        "mean", "Initial embedding of a new piece: mean of the old pieces it was split into, or random."
    )
