"""The settings of examples and of their masks, each stated once: name, type, default and help.

Commands inherit these classes; library functions take their fields by name (see `settings_of`).
"""

from dataclasses import dataclass
from typing import Literal

from ...files.options import AT_LEAST_1, SHARE, SHARE_ABOVE_0, Group, check_options, option

Objective = Literal["mlm+nsp", "mlm", "ltr", "mlm+sop"]
MaskingUnit = Literal["token", "word", "span"]
SPECIAL_TOKENS = {"mlm+nsp": 3, "mlm+sop": 3, "mlm": 2, "ltr": 2}  # in an example: [CLS], and [SEP] after each segment
MINIMAL_TOKENS = 2  # for all segments together, as in Google's script


@dataclass
class ExampleSettings:
    """What an example is: see `PretrainingDataset`.

    Raises:
        ValueError: If a setting is invalid, or two settings contradict each other.
    """

    group = Group.SEQUENCES
    decides = True
    objective: Objective = option(
        "mlm+nsp",
        "Training objective: mlm+nsp (the paper: hidden words, and whether B follows A), mlm (hidden words), "
        "mlm+sop (hidden words, and the order of A and B), ltr (the next word, from the words before it).",
        group=Group.OBJECTIVE,
    )
    max_length: int = option(128, "Longest sequence in tokens, special tokens included.", decides=False)
    short_probability: float = option(0.1, "Share of documents cut into shorter sequences, in [0, 1].", SHARE)
    static_masking: bool = option(
        False, "Reuse the examples and masks of the first epoch in all others.", group=Group.OBJECTIVE
    )
    pack: bool = option(False, "Pack sequences into rows of equal length, without attention across them.")
    row_length: int | None = option(None, "Tokens of a packed row (default 512, or max_length if that is longer).")

    def __post_init__(self) -> None:
        check_options(self)
        special = SPECIAL_TOKENS[self.objective]
        if self.max_length < special + MINIMAL_TOKENS:
            layout = "[CLS] A [SEP] B [SEP]" if special == 3 else "[CLS] A [SEP]"
            raise ValueError(f"max_length is {self.max_length}; {layout} needs at least {special + MINIMAL_TOKENS}.")
        if self.pack and self.row_length is not None and self.row_length < self.max_length:
            raise ValueError(
                f"row_length is {self.row_length}, less than max_length {self.max_length}; a row has to hold a "
                "whole sequence."
            )


@dataclass
class MaskingRates:
    """Which tokens are predicted, and what replaces them.

    At least one token of a sequence is predicted. Units: "token": single tokens. "word": a word's first piece with all
    following `##` pieces, as in Google's whole word masking; each token draws its own replacement. "span": several
    consecutive words, their number geometrically distributed (SpanBERT); the tokens of a span are all masked, all
    random or all kept. Words that would exceed the number of predictions are skipped, so with "word" and "span" a
    sequence may have fewer predictions, and a very short one none. With the objective "ltr" nothing is replaced, and
    `ltr_probability` of the tokens are predicted.

    Raises:
        ValueError: If a share is outside [0, 1], the two replacement shares add up to more than 1, or a setting is
            invalid.
    """

    group = Group.OBJECTIVE
    decides = True
    mlm_probability: float = option(0.15, "Share of tokens to predict, in [0, 1].", SHARE)
    mask_replace_prob: float = option(0.8, "Share of the tokens to predict that [MASK] replaces, in [0, 1].", SHARE)
    random_replace_prob: float = option(
        0.1, "Share of them that a random token replaces; the rest stays as it is.", SHARE
    )
    masking_unit: MaskingUnit = option(
        "token", "Mask single tokens, whole words, or several consecutive words (SpanBERT)."
    )
    max_predictions: int | None = option(
        None,
        "Maximum number of tokens to predict in a sequence (Google: max_predictions_per_seq); default: no limit.",
        AT_LEAST_1,
    )
    ltr_probability: float = option(
        1.0, "Share of tokens to predict from those before them (ltr), above 0 up to 1.", SHARE_ABOVE_0
    )

    def __post_init__(self) -> None:
        check_options(self)
        if self.mask_replace_prob + self.random_replace_prob > 1:
            raise ValueError(
                f"mask_replace_prob ({self.mask_replace_prob}) and random_replace_prob ({self.random_replace_prob}) "
                "add up to more than 1."
            )
