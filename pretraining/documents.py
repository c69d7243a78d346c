"""Text to documents: lists of sentences in the order of the text."""

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..tokenization import expand_paths, open_text

# A full stop after these is rarely the end of a sentence. Single letters are treated alike ("J. Smith", "e.g.").
_ABBREVIATIONS = frozenset(
    "al approx cf dr etc fig figs inc jr ltd mr mrs ms no nos prof resp sr st viz vol vs".split()
)
_CANDIDATE = re.compile(
    r"""(?P<end>[.!?…]+["'”’»)\]]*)\s+(?=["'“‘«(\[]*[^\W_])"""  # terminators, a space, the beginning of a word
    r"""|(?P<wide>[。！？｡]+[」』”’）]*)\s*"""  # full-width terminators need no space
)


def split_sentences(text: str) -> list[str]:
    """Split running text at sentence ends, by rules that need no language.

    A sentence ends at `. ! ? …` with closing quotes or brackets, before white space and a word that does not begin
    with a lower-case letter, and at a full-width terminator. A full stop does not end one after a single letter or a
    common abbreviation.

    Args:
        text: One or more sentences; line breaks count as spaces.

    Returns:
        The sentences without surrounding white space; none is empty.
    """
    text = " ".join(text.split())
    sentences, start = [], 0
    for match in _CANDIDATE.finditer(text):
        if match["end"]:
            following = text[match.end() :].lstrip("\"'“‘«([")[:1]
            words = re.findall(r"[^\W\d_]+", text[max(start, match.start() - 20) : match.start()])
            last_word = words[-1].lower() if words and text[match.start() - 1].isalpha() else ""
            is_abbreviation = match["end"] == "." and (len(last_word) == 1 or last_word in _ABBREVIATIONS)
            if following.islower() or is_abbreviation:
                continue
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def read_documents(
    paths: str | Path | Iterable[str | Path], *, split: bool = False, encoding: str = "utf-8"
) -> Iterator[list[str]]:
    """Read documents from text files: one sentence a line, a blank line between documents (google-research/bert).

    Args:
        paths: Files, folders or patterns; plain or compressed text; "-" is standard input.
        split: Whether lines hold running text, to be split by `split_sentences`.
        encoding: Encoding of the files.

    Yields:
        Documents, each a list of at least one sentence without surrounding white space. The end of a file ends its
        last document.

    Raises:
        OSError: A file is missing or cannot be read.
        ValueError: A file is not text in this encoding; the message names file and byte offset.
    """
    for path in expand_paths(paths):
        document: list[str] = []
        for line in open_text(path, encoding):
            line = line.strip()
            if line:
                document.extend(split_sentences(line) if split else [line])
            elif document:
                yield document
                document = []
        if document:
            yield document
