"""The scripts of letters, by Unicode's names: Latin, Cyrillic, Hangul, Han, ..."""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache

from ..files.errors import SettingError

_PLANES = 0x20000  # number of code points; scripts other than Han are in the first two planes


@cache
def _script_of(character: str) -> str | None:
    plain = unicodedata.normalize("NFKC", character)[:1]  # full-width, superscript ... forms count as the letter
    if not plain.isalpha():
        return None
    first = unicodedata.name(plain, "").replace("-", " ").partition(" ")[0]
    return "Han" if first == "CJK" else first.capitalize() or None


def count_scripts(text: str) -> Counter[str]:
    """Count the letters of each script in a text."""
    letters: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if (script := _script_of(character)) is not None:
            letters[script] += count
    return letters


@cache
def script_names() -> frozenset[str]:
    return frozenset(filter(None, map(_script_of, map(chr, range(_PLANES)))))


def canonical_names(scripts: Iterable[str]) -> list[str]:
    """Names of scripts in any case as Unicode writes them, each once, sorted; an unknown one is an error."""
    known = {name.casefold(): name for name in script_names()} if scripts else {}
    if unknown := [name for name in scripts if name.casefold() not in known]:
        raise SettingError.worded(
            "{scripts} has {!r}; expected names such as Latin, Cyrillic, Hangul or Han.", unknown[0]
        )
    return sorted({known[name.casefold()] for name in scripts})
