"""The scripts of letters (Latin, Cyrillic, Hangul, Han, ...), from the names that Unicode gives to characters."""

import unicodedata
from collections import Counter
from functools import cache

_PLANES = 0x20000  # number of code points; scripts other than Han are in the first two planes


def _script_of(character: str) -> str | None:
    plain = unicodedata.normalize("NFKC", character)[:1]  # full-width, superscript ... forms count as the letter
    if not plain.isalpha():
        return None
    first = unicodedata.name(plain, "").replace("-", " ").partition(" ")[0]
    return "Han" if first == "CJK" else first.capitalize() or None


_known_script = cache(_script_of)


def count_scripts(text: str) -> Counter[str]:
    """Count the letters of each script in a text."""
    found: Counter[str] = Counter()
    for character, count in Counter(text).items():
        if (script := _known_script(character)) is not None:
            found[script] += count
    return found


@cache
def script_names() -> frozenset[str]:
    return frozenset(filter(None, map(_script_of, map(chr, range(_PLANES)))))
