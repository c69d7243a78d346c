"""The tokens that every vocabulary begins with."""

from typing import Literal

PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD_TOKEN, UNK_TOKEN, CLS_TOKEN, SEP_TOKEN, MASK_TOKEN)

Layout = Literal["google", "compact"]
_GOOGLE_UNUSED = 994  # [unused0] ... [unused993], as in the released English vocabularies


def reserved_tokens(layout: Layout) -> list[str]:
    """Return the pieces that come before the learned ones."""
    if layout == "compact":
        return list(SPECIAL_TOKENS)
    # As in the released uncased vocabulary: [PAD] 0, [unused0..98] 1-99, [UNK] 100, [CLS] 101, [SEP] 102, [MASK] 103,
    # [unused99..993] 104-998.
    unused = [f"[unused{i}]" for i in range(_GOOGLE_UNUSED)]
    return [PAD_TOKEN, *unused[:99], *SPECIAL_TOKENS[1:], *unused[99:]]
