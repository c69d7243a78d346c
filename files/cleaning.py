"""HTML and mojibake in text: recognized, and replaced by the text that was meant."""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from html.entities import html5
from itertools import chain

from .errors import how_to_install, worded

# Elements that interrupt a line of text, table cells, and elements within a line. Because they are listed, "a < b" and
# "<unk>" stay as they are.
_BLOCKS = """
address article aside blockquote body br button canvas caption center dd details dialog dir div dl dt fieldset
figcaption figure footer form h1 h2 h3 h4 h5 h6 head header hr html iframe legend li link main map menu meta
nav noscript object ol optgroup option p param pre section select source summary table tbody tfoot thead title
tr ul video
"""
_CELLS = "td th"
_INLINE = """
a abbr acronym area audio b base bdi bdo big cite code col colgroup data del dfn em embed font i img input ins
kbd label mark meter nobr output picture progress q rp rt ruby s samp slot small span strike strong sub sup
time track tt u var wbr
"""
_HIDDEN = re.compile(r"<!--|<(script|style|template)\b[^<>]*>", re.IGNORECASE)
_DECLARATION = r"<(?:!doctype\b|\?xml\b|!\[CDATA\[)[^<>]*>"
_ENTITY = r"&(?:#\d{1,7}|#x[\da-f]{1,6}|[a-z][a-z\d]{1,31});"
_MAX_ESCAPES = 3  # "&amp;amp;#8217;" was escaped three times


def _character(entity: re.Match[str]) -> str:
    """The character of an entity; `html.unescape` alone takes "&not" out of "&nothing;"."""
    return html.unescape(entity[0]) if entity[0][1] == "#" or entity[0][1:] in html5 else entity[0]


def _tags(names: str) -> str:
    return rf"</?(?:{'|'.join(names.split())})(?:\s[^<>]*)?/?>"


_REPLACEMENTS: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = tuple(
    (re.compile(pattern, re.DOTALL | re.IGNORECASE), replacement)
    for pattern, replacement in (
        (_DECLARATION, ""),
        (_tags(_BLOCKS), "\n"),
        (_tags(_CELLS), " "),
        (_tags(_INLINE), ""),
        (_ENTITY, _character),
    )
)


def _hidden_parts(text: str) -> Iterator[tuple[re.Match[str], int]]:
    """The beginning of each part that is not displayed, and its end; linear, unlike a pattern for all of it."""
    position, unclosed = 0, set[str]()
    while begin := _HIDDEN.search(text, position):
        position, name = begin.end(), (begin[1] or "").lower()
        closing = re.compile(rf"</{name}\s*>" if name else "-->", re.IGNORECASE)
        if name not in unclosed and (end := closing.search(text, position)):
            position = end.end()
            yield begin, position
        else:
            unclosed.add(name)


def _without_hidden_parts(text: str) -> str:
    parts, start = [], 0
    for begin, end in _hidden_parts(text):
        parts.append(text[start : begin.start()])
        start = end
    return " ".join([*parts, text[start:]])


# UTF-8 that was read as Windows-1252: continuation bytes are these characters. A letter such as "ß" or "É" may stand
# before a quotation mark, so one sequence counts only with Latin letters ("Ã©") and with punctuation ("â€™").
_CONTINUATION = "[\x80-\xbfŒœŠšŸŽžƒˆ˜–—‘’‚“”„†‡•…‰‹›€™]"
_MOJIBAKE = re.compile(
    rf"[ÂÃ][\xa0-\xbf]|â€{_CONTINUATION}|(?:[à-ï]{_CONTINUATION}{{2}}){{2}}|(?:[Ä-ß]{_CONTINUATION}){{2}}"
)


def find_html(text: str) -> re.Match[str] | None:
    """The first tag of an HTML element, comment or entity."""
    if "<" not in text and "&" not in text:
        return None
    matches = (match for pattern, _ in _REPLACEMENTS for match in pattern.finditer(text))
    hidden = (begin for begin, _ in _hidden_parts(text))
    return next(
        (match for match in chain(hidden, matches) if match[0][0] == "<" or _character(match) != match[0]), None
    )


def without_html(text: str) -> str:
    """Replace tags by line breaks, spaces or nothing, as their elements are displayed, and entities by characters."""
    for _ in range(_MAX_ESCAPES):
        if find_html(text) is None:
            break
        text = _without_hidden_parts(text)
        for pattern, replacement in _REPLACEMENTS:
            text = pattern.sub(replacement, text)
    return text


def find_mojibake(text: str) -> re.Match[str] | None:
    """The first characters that are UTF-8 read as Windows-1252, by far the most frequent mistake."""
    return None if text.isascii() else _MOJIBAKE.search(text)


def without_mojibake(text: str) -> str:
    """Decode again what was decoded by another encoding than its own ("Ã©" for "é"), with ftfy."""
    from ftfy import fix_encoding

    return fix_encoding(text)


# In the order in which text is cleaned: mojibake may be written with entities.
CLEANERS: dict[str, tuple[Callable[[str], re.Match[str] | None], Callable[[str], str]]] = {
    "html": (find_html, without_html),
    "mojibake": (find_mojibake, without_mojibake),
}


def require_cleaners(names: Sequence[str]) -> None:
    """Raise `ImportError` if a cleaner's library is not installed."""
    if "mojibake" in names:
        try:
            import ftfy  # noqa: F401
        except ImportError as error:
            install = how_to_install("corpus")
            raise ImportError(worded("{clean} mojibake needs the package ftfy: {} ({}).", install, error)) from error
