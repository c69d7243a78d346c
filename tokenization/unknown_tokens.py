"""A vocabulary that does not fit a text."""

_MANY = 0.1  # share of [UNK] above which there is a warning; of text in the right language it is below 0.01


def unknown_warning(unknown: int, tokens: int, advice: str) -> str:
    """A warning about text of which more than a tenth becomes [UNK]; "" if there is nothing to warn about.

    Args:
        unknown: Number of [UNK] tokens.
        tokens: Number of all tokens.
        advice: What to do about it, a sentence.
    """
    share = unknown / max(tokens, 1)
    if share <= _MANY:
        return ""
    return (
        f"{100 * share:.0f} % of the tokens are [UNK], from which nothing can be learned: the vocabulary lacks "
        f"characters of this text. Is it of another language? {advice}"
    )
