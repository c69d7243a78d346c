"""Suggestions for misspelt words."""

import difflib
from collections.abc import Iterable


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return a question that names the nearest known word, with a space before it; "" if none is near."""
    spellings = {_plain(name): name for name in known}
    near = difflib.get_close_matches(_plain(word), spellings, n=1)
    return f" Did you mean {spellings[near[0]]}?" if near else ""


def _plain(word: str) -> str:
    return word.strip("-").replace("-", "_").lower()
