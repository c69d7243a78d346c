"""Filters that drop lines and documents not worth training on, before a corpus is tokenized.

Everything is decided in one pass, in the order of the text, so the result depends neither on processes nor on shards.
What must be known of earlier documents, to find their duplicates, is kept in a temporary file.
"""

import hashlib
import logging
import re
import sqlite3
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np

from ..files.errors import abbreviated
from ..tokenization import BulkEncoder
from .scripts import canonical_names, count_scripts
from .settings import REASONS, FilterSettings

logger = logging.getLogger(__name__)

_SAMPLE_CHARACTERS = 1 << 20  # at the beginning of the corpus, to determine its scripts
_LEAST_SHARE = 0.05  # fraction of these letters that makes a script one of the corpus
_EXAMPLES = 3  # for each reason
_CORE = re.compile(r"[^\W_](?:.*[^\W_])?")  # a word without the punctuation around it

_Check = Callable[[int, list[str]], str | None]  # number and lines of a document -> why it is dropped, or None


@dataclass
class TextCounts:
    """Numbers of documents, lines and characters (line breaks not counted)."""

    documents: int = 0
    lines: int = 0
    characters: int = 0

    def add(self, lines: list[str], whole: bool) -> None:
        """Count lines, and one document if they are a whole document."""
        self.documents += whole
        self.lines += len(lines)
        self.characters += sum(map(len, lines))


@dataclass
class FilterReport:
    """What a corpus, or a shard of it, contains and what filters remove from it.

    Attributes:
        read: Everything that was read.
        dropped: What is removed, by reason, for each reason that was checked.
        each_alone: Whether every reason was judged as if it were the only one, so that their amounts may overlap.
        examples: Examples of it, by reason: the number of the document (from 1) and the beginning of the text.
        scripts: Number of letters of each script, if counted.
        token_shares: Number of documents by tokens per character, in hundredths, if counted.
    """

    read: TextCounts = field(default_factory=TextCounts)
    each_alone: bool = False
    dropped: dict[str, TextCounts] = field(default_factory=dict)
    examples: dict[str, list[str]] = field(default_factory=dict)
    scripts: Counter[str] = field(default_factory=Counter)
    token_shares: Counter[int] = field(default_factory=Counter)
    _kept: TextCounts = field(default_factory=TextCounts)

    def add(self, document: list[str], kept: list[str]) -> None:
        """Count a document, and what is kept of it."""
        self.read.add(document, whole=bool(document))
        self._kept.add(kept, whole=bool(kept))

    def kept(self) -> TextCounts:
        """What no reason removes."""
        return self._kept

    def counts(self) -> dict[str, dict[str, int]]:
        """What was read, and what is removed for each reason, as JSON values."""
        return {name: dict(vars(amount)) for name, amount in {"read": self.read, **self.dropped}.items()}

    def __str__(self) -> str:
        """Return a table of the amounts, and the measurements."""
        amounts = {"read": self.read, **self.dropped, "kept by all" if self.each_alone else "kept": self._kept}
        rows = [["", *vars(self.read)]]
        rows += [[name, *(f"{value:,}" for value in vars(amount).values())] for name, amount in amounts.items()]
        lines = [f"{name:<16}" + "".join(f"{figure:>15}" for figure in figures) for name, *figures in rows]
        if letters := self.scripts.total():
            shares = [f"{script} {count / letters:.1%}" for script, count in self.scripts.most_common(5)]
            lines.append(f"Letters: {', '.join(shares)}.")
        if self.token_shares:
            half, most, nearly_all = (self._token_share(share) for share in (0.5, 0.9, 0.99))
            lines.append(
                f"Tokens per character: up to {half:.2f} in half of the documents, {most:.2f} in 90 %, "
                f"{nearly_all:.2f} in 99 %."
            )
        return "\n".join(lines)

    def shown_examples(self) -> str:
        """The examples, one per line."""
        shown = [(reason, self.examples[reason]) for reason in self.dropped if reason in self.examples]
        return "\n".join(line for reason, texts in shown for line in (f"{reason}:", *(f"  {text}" for text in texts)))

    def _token_share(self, share: float) -> float:
        """Return the number of tokens per character that this fraction of the documents does not exceed."""
        hundredths = sorted(self.token_shares)
        documents = np.cumsum([self.token_shares[each] for each in hundredths])
        return hundredths[np.searchsorted(documents, share * documents[-1])] / 100


class CorpusFilter:
    """Drops text that is not worth training on, and counts it.

    The checks, in this order: lines in which more than `symbol_share` of the characters are not letters, ignoring
    spaces and the punctuation around words; documents with less than half of their letters in the scripts of the
    corpus; documents with more tokens per character than `tokens_per_character` (Geiping and Goldstein, 2022, section
    4.4); documents with exactly the lines of an earlier one. Text dropped for one reason is not checked for others,
    and duplicates are only searched among documents kept so far, unless each reason is judged alone.

    Memory holds one document at a time (for the scripts of the corpus its first million characters), and up to 64 MiB
    of the index of earlier documents; the rest of that is in a temporary file.

    Args:
        reasons: Reasons to drop text, some of `REASONS`.
        settings: Thresholds of the checks.
        encoder: Tokenizes texts; without it `many_tokens` is not checked.
        shard: Index and number of shards: every document is checked, those of the shard are counted.
        each_alone: Whether to judge each reason as if it were the only one.

    Attributes:
        report: The findings so far.
    """

    def __init__(
        self,
        reasons: Sequence[str],
        settings: FilterSettings,
        encoder: BulkEncoder | None = None,
        shard: tuple[int, int] = (0, 1),
        each_alone: bool = False,
    ) -> None:
        self._settings = settings
        self._encoder = encoder
        self._shard = shard
        self._scripts = frozenset(canonical_names(settings.scripts))
        checked = [reason for reason in REASONS if reason in reasons and (reason != "many_tokens" or encoder)]
        self.report = FilterReport(dropped={reason: TextCounts() for reason in checked}, each_alone=each_alone)

    def lines(self, lines: Iterable[str]) -> Iterator[str]:
        """Yield the lines to keep, with "" after each document, even a dropped one; can be called only once."""
        documents = documents_of_lines(lines)
        if "other_scripts" in self.report.dropped and not self._scripts:
            documents = self._with_scripts_known(documents)
        with closing(_Earlier()) as earlier:
            all_checks: dict[str, _Check] = {
                "other_scripts": self._other_scripts,
                "many_tokens": self._many_tokens,
                "duplicates": earlier.exact_copy,
            }
            checks = {reason: all_checks[reason] for reason in self.report.dropped if reason in all_checks}
            for index, document in enumerate(documents):
                kept = self._kept(index, document, checks)
                if self._counts(index):
                    self.report.add(document, kept)
                yield from kept
                yield ""

    def _kept(self, index: int, document: list[str], checks: dict[str, _Check]) -> list[str]:
        kept = document
        if "symbol_lines" in self.report.dropped:
            symbols = [line for line in document if _is_symbols(line, self._settings.symbol_share)]
            if symbols:
                kept = [line for line in document if not _is_symbols(line, self._settings.symbol_share)]
                self._drop("symbol_lines", index, symbols, not kept, "")
        judged = document if self.report.each_alone else kept
        for reason, check in checks.items() if judged else ():
            if (detail := check(index, judged)) is not None:
                self._drop(reason, index, judged, True, detail)
                kept = []
                if not self.report.each_alone:
                    break
        return kept

    def _counts(self, number: int) -> bool:
        """Tell whether a document belongs to the shard."""
        return number % self._shard[1] == self._shard[0]

    def _drop(self, reason: str, number: int, lines: list[str], whole: bool, found: str) -> None:
        if not self._counts(number):
            return
        self.report.dropped[reason].add(lines, whole)
        examples = self.report.examples.setdefault(reason, [])
        if len(examples) < _EXAMPLES:
            examples.append(f"document {number + 1:,}{found and f' ({found})'}: {abbreviated(' '.join(lines))}")

    def _with_scripts_known(self, documents: Iterator[list[str]]) -> Iterator[list[str]]:
        """Yield the documents, after counting the scripts of the first ones."""
        sample: list[list[str]] = []
        letters: Counter[str] = Counter()
        characters = 0
        for document in documents:
            sample.append(document)
            text = "".join(document)
            letters += count_scripts(text)
            characters += len(text)
            if characters >= _SAMPLE_CHARACTERS:
                break
        self._scripts = frozenset(name for name, count in letters.items() if count >= _LEAST_SHARE * letters.total())
        if letters:
            names = " ".join(sorted(self._scripts))
            logger.info("The text is %s, judging by its beginning (mybert data --scripts sets others).", names)
        yield from chain(sample, documents)

    def _other_scripts(self, number: int, document: list[str]) -> str | None:
        letters = count_scripts("".join(document))
        if self._counts(number):
            self.report.scripts += letters
        own = sum(count for name, count in letters.items() if name in self._scripts)
        if own >= letters.total() / 2:
            return None
        return letters.most_common(1)[0][0]

    def _many_tokens(self, number: int, document: list[str]) -> str | None:
        assert self._encoder is not None
        tokens, _ = self._encoder.encode(document)
        share = len(tokens) / (sum(map(len, document)) + len(document) - 1)
        self.report.token_shares[round(100 * share)] += self._counts(number)
        return f"{share:.3f} tokens per character" if share > self._settings.tokens_per_character else None


def documents_of_lines(lines: Iterable[str]) -> Iterator[list[str]]:
    """Group lines, with "" after each document, into documents, including empty ones."""
    document: list[str] = []
    for line in lines:
        if line:
            document.append(line)
        else:
            yield document
            document = []
    if document:
        yield document


def _is_symbols(line: str, most: float) -> bool:
    """Tell whether more than the fraction `most` of a line is neither letters nor combining marks on letters."""
    chunks = line.split()
    if _share_of_symbols("".join(chunks)) <= most:
        return False
    # white space does not count, and neither does the punctuation around words: `"No."` is a word
    return _share_of_symbols("".join(core[0] if (core := _CORE.search(chunk)) else chunk for chunk in chunks)) > most


def _share_of_symbols(text: str) -> float:
    letters = sum(map(str.isalpha, text))
    if not text.isascii():
        letters += sum(unicodedata.category(character).startswith("M") for character in text)
    return 1 - letters / max(len(text), 1)


class _Earlier:
    """Digests of earlier documents, to find copies of them."""

    def __init__(self) -> None:
        # In memory up to 64 MiB (the cache), beyond that in an unnamed temporary file.
        self._database = sqlite3.connect("", isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = OFF",
            "PRAGMA synchronous = OFF",
            "PRAGMA cache_size = -65536",  # KiB
            "CREATE TABLE firsts (digest BLOB PRIMARY KEY, number INTEGER) WITHOUT ROWID",
            "BEGIN",
        ):
            self._database.execute(statement)

    def close(self) -> None:
        self._database.close()

    def exact_copy(self, number: int, document: list[str]) -> str | None:
        """Return a message naming the earlier document with the same lines; if there is none, add this one."""
        digest = hashlib.blake2b("\n".join(document).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        for (first,) in self._run("SELECT number FROM firsts WHERE digest = ?", digest):
            return f"as document {first + 1:,}"
        self._run("INSERT INTO firsts VALUES (?, ?)", digest, number)
        return None

    def _run(self, statement: str, *values: Any) -> list[Any]:
        try:
            return self._database.execute(statement, values).fetchall()
        except sqlite3.Error as error:
            raise OSError(
                f"The index of earlier documents could not be kept in a temporary file ({error}); set SQLITE_TMPDIR "
                "to a folder with more space."
            ) from error
