"""Splitting running text into sentences, by rules for any language."""

import re

# A full stop after these is rarely the end of a sentence. Single letters are treated alike ("J. Smith", "e.g.").
_ABBREVIATIONS = frozenset(
    "al approx cf dr etc fig figs inc jr ltd mr mrs ms no nos prof resp sr st viz vol vs".split()
)
_FULL_WIDTH = "。！？｡"  # no space is needed after these
_TERMINATOR = re.compile(
    rf"""([.!?…{_FULL_WIDTH}]+["'”’»)\]」』）]*)"""  # terminators, closing quotes and brackets
    r"""(\s*)(?=["'“‘«(\[]*([^\W_])?)"""  # a space, the first letter or digit of what follows
)
_LAST_WORD = re.compile(r"[^\W\d_]+$")
_SENTENCE_END = re.compile(rf"""[.!?:;…{_FULL_WIDTH}]["'”’»)\]」』）]*$""")


def split_sentences(text: str) -> list[str]:
    """Split running text at sentence ends, by language-independent rules.

    A sentence ends at `. ! ? …` with closing quotes or brackets, before white space and a word that does not start
    with a lower-case letter, and at a full-width terminator. A full stop does not end one after a single letter or a
    common abbreviation.

    Args:
        text: One or more sentences; line breaks count as spaces.

    Returns:
        The sentences without surrounding white space; none is empty.
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for match in _TERMINATOR.finditer(text):
        end, space, following = match.groups()
        if not any(mark in end for mark in _FULL_WIDTH):
            if not space or not following or following.islower():
                continue
            if end == "." and (word := _LAST_WORD.search(text[max(start, match.start() - 20) : match.start()])):
                last_word = word[0].lower()
                if len(last_word) == 1 or last_word in _ABBREVIATIONS:
                    continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def ends_sentence(line: str) -> bool:
    """Whether a line ends as a sentence or clause does: with a terminator, colon or semicolon, and closing quotes."""
    return _SENTENCE_END.search(line) is not None
