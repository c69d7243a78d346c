"""How a text is cut into words for a tagger: as the words of its training data were.

The rules are learned from these words and recorded in the model's `config.json`. They name what stays together; all
other marks are words by themselves. An ideograph always is, as in BERT's own rule.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import chain, pairwise
from typing import NamedTuple

_LETTER, _DIGIT, _EXTENDS = "a", "0", "extends"  # kinds of characters; a mark is its own kind
_KINDS = (_LETTER, _DIGIT)  # of words
_CONTEXTS = ("before", "after", "pairs")  # the fields of `WordCut` on marks
_IDEOGRAPHS, _SPACE = "CJK", "SPACE"  # in `WordCut.single`, with the names of scripts, and DIGIT
_JOINER = "\u200d"  # in emoji of several characters
_ADDRESS = "://"  # in `WordCut.whole`: web addresses stay whole
_WEB = re.compile(r"(?:https?://|www\.)\S*[^\s.,;:!?'\"()\[\]{}<>…]", re.IGNORECASE)
_CHUNK = re.compile("[^\\s\u200b]+")  # a zero-width space separates words of Khmer and Thai
_NO_EVIDENCE = re.compile(rf"{_WEB.pattern}|&\w+;", re.IGNORECASE)  # of how marks stand: addresses, and HTML's marks
_CLITIC = re.compile(r"(?:n't|'[a-z]{1,3})$")
_SENTENCE_END = ".!?"
_ALIKE = str.maketrans("’ʼ＇‑", "'''-")  # variants, for which the rules of ' and - hold
_MAX_WHOLE = 256  # words that the rules would cut; recorded are the most frequent ones
_MIN_CHARACTERS = 10  # different characters as words before a script counts as tagged by character
_MOSTLY_SINGLE = 0.02  # fraction of longer words up to which it does
# Weight of a mark between two words against one inside a word: the text may have had spaces around it.
_SPACED = 0.1
_NO_SPACES = ("THAI", "LAO", "KHMER", "MYANMAR", "HIRAGANA")  # scripts without spaces between words


class _Atom(NamedTuple):
    """Letters and digits that are never cut, or a mark."""

    start: int
    end: int
    first: str  # kind of its first character
    last: str

    @property
    def is_mark(self) -> bool:
        return self.first not in _KINDS


_NOTHING = _Atom(0, 0, "", "")


@dataclass(frozen=True)
class WordCut:
    """Rules that cut a text into words; marks stand between kinds of characters: `a` letters, `0` digits.

    Attributes:
        before: Contexts in which a mark stays with what precedes it: `a-a`, `0.0`, `0%`.
        after: Contexts in which a mark stays with what follows it: `a-a`, `@a`, `$0`.
        pairs: Neighboring marks that stay together: `..`, `:)`.
        clitics: Endings that are words: `'s`, `n't`.
        whole: Words that the other rules would cut: `Inc.`; `://` for web addresses.
        single: Scripts of which each character is a word: `HANGUL`; `DIGIT`; `SPACE` if spaces are words.
        segmented: Scripts without spaces whose words have several characters, so no rule finds them in a text.
    """

    before: frozenset[str]
    after: frozenset[str]
    pairs: frozenset[str]
    clitics: frozenset[str]
    whole: frozenset[str]
    single: frozenset[str]
    segmented: frozenset[str]

    @classmethod
    def from_record(cls, record: Mapping[str, str] | None) -> WordCut:
        """The rules of a record, see `record`; None for those of English treebanks."""
        if record is None:
            return USUAL_CUT
        return cls(**{item.name: frozenset(record.get(item.name, "").split()) for item in fields(cls)})

    @property
    def record(self) -> dict[str, str]:
        """The rules for `config.json`: by attribute, separated by spaces."""
        return {item.name: " ".join(sorted(getattr(self, item.name))) for item in fields(self)}

    @classmethod
    def learn(cls, sentences: Sequence[Sequence[str]]) -> WordCut:
        """The rules by which texts were cut into the words of sentences; without evidence those of `USUAL_CUT`."""
        return _Learner(sentences).rules()

    def spans(self, text: str) -> list[tuple[int, int]]:
        """The words of a text: first character, and the one after its last, of each."""
        found: list[tuple[int, int]] = []
        end = 0
        for match in _CHUNK.finditer(text):
            start = match.start()
            if start > end > 0 and _SPACE in self.single:
                found.append((end, start))
            found += [(start + first, start + last) for first, last in self._cut(match.group())]
            end = match.end()
        return found

    def uncut_scripts(self, text: str) -> set[str]:
        """The scripts of a text whose words are not separated, although they have several characters."""
        if text.isascii():
            return set()
        scripts = (_character(sign)[1] for sign in text if _character(sign)[0] != _EXTENDS)
        return {script for script, following in pairwise(scripts) if script == following} & self.segmented

    @cached_property
    def _cuts(self) -> dict[str, list[tuple[int, int]]]:
        """The words of chunks without white space, each cut once."""
        return {}

    def _cut(self, chunk: str) -> list[tuple[int, int]]:
        found = self._cuts.get(chunk)
        if found is None:
            is_one_word = chunk in self.whole or (chunk.isascii() and chunk.isalnum() and not self.single)
            found = self._cuts[chunk] = [(0, len(chunk))] if is_one_word else list(self._parts(chunk))
        return found

    def _parts(self, chunk: str) -> Iterator[tuple[int, int]]:
        """The words of a chunk; web addresses are taken out first."""
        start = 0
        for match in _WEB.finditer(chunk) if _ADDRESS in self.whole else ():
            yield from self._words(chunk, start, match.start())
            yield match.span()
            start = match.end()
        yield from self._words(chunk, start, len(chunk))

    def _words(self, chunk: str, start: int, end: int) -> Iterator[tuple[int, int]]:
        if start == end:
            return
        text = chunk[start:end].translate(_ALIKE)
        atoms = _atoms(text, self.single)
        borders = {0, len(text)} | {right.start for index, right in self._joints(atoms) if index}
        for match in self._clitic_pattern.finditer(text) if self.clitics else ():
            borders.difference_update(range(match.start() + 1, match.end()))
            borders.update(match.span())
        for first, last in self._whole_spans(chunk[start:end], [atom.start for atom in atoms], borders):
            borders.difference_update(range(first + 1, last))
        yield from ((start + first, start + last) for first, last in pairwise(sorted(borders)))

    def _joints(self, atoms: Sequence[_Atom]) -> Iterator[tuple[int, _Atom]]:
        """The atoms that begin a word, with their index."""
        for index, atom in enumerate(atoms):
            if not (index and self._is_joined(atoms, index)):
                yield index, atom

    def _is_joined(self, atoms: Sequence[_Atom], index: int) -> bool:
        """Whether an atom stays with the one before it."""
        name, key = _context(atoms, index)
        return name in _CONTEXTS and key in getattr(self, name)

    @cached_property
    def _clitic_pattern(self) -> re.Pattern[str]:
        longest_first = sorted(self.clitics, key=len, reverse=True)
        return re.compile(rf"(?:{'|'.join(map(re.escape, longest_first))})(?!\w)", re.IGNORECASE)

    @cached_property
    def _longest_whole(self) -> int:
        return max(map(len, self.whole), default=0)

    def _whole_spans(self, text: str, starts: Sequence[int], borders: set[int]) -> Iterator[tuple[int, int]]:
        """Parts of a text that are whole words, between borders; the longest first."""
        ends = sorted(borders)
        done = 0
        for start in starts:
            if start in borders and start >= done:
                near = slice(bisect_right(ends, start), bisect_right(ends, start + self._longest_whole))
                for end in reversed(ends[near]):
                    if text[start:end] in self.whole:
                        yield start, end
                        done = end
                        break


def _context(atoms: Sequence[_Atom], index: int) -> tuple[str, str]:
    """The field of `WordCut` that decides whether an atom stays with the one before it, and the context there."""
    left, right = atoms[index - 1], atoms[index]
    if left.is_mark and right.is_mark:
        return "pairs", left.last + right.first
    if right.is_mark:
        following = _kind(atoms, index + 1).first
        is_initials = right.first == "." and left.end - left.start == 1 and index > 1 and atoms[index - 2].first == "."
        return "before", ("." if is_initials and not following else "") + left.last + right.first + following
    if left.is_mark:
        return "after", _kind(atoms, index - 2).last + left.first + right.first
    return "", ""


def _kind(atoms: Sequence[_Atom], index: int) -> _Atom:
    """The neighbor of a mark if it is letters or digits; without kinds if it is another mark, or there is none."""
    is_word = 0 <= index < len(atoms) and not atoms[index].is_mark
    return atoms[index] if is_word else _NOTHING


def _is_capital(sentence: Sequence[str], index: int) -> bool:
    return index < len(sentence) and sentence[index][:1].isupper()


def _atoms(text: str, single: frozenset[str] = frozenset()) -> list[_Atom]:
    """Divide a chunk: runs of letters and digits (characters of `single` scripts alone), and single marks."""
    found: list[_Atom] = []
    script = before = ""
    for place, sign in enumerate(text):
        kind, own = _character(sign)
        # Combining marks, what a joiner joins, and the second half of a flag belong to the character before.
        is_flag = kind == "flag" and found and found[-1].last == "flag" and found[-1].end - found[-1].start == 1
        if found and (kind == _EXTENDS or before == _JOINER or is_flag):
            found[-1] = found[-1]._replace(end=place + 1)
        else:
            kind = _LETTER if kind == _EXTENDS else kind
            is_run = kind in (_LETTER, _DIGIT) and bool(found) and not found[-1].is_mark
            if is_run and not ({script, own} & single or _IDEOGRAPHS in (script, own)):
                found[-1] = found[-1]._replace(end=place + 1, last=kind)
            else:
                found.append(_Atom(place, place + 1, kind, kind))
            script = own
        before = sign
    return found


@cache
def _character(sign: str) -> tuple[str, str]:
    """The kind of a character and its script, by the first word of its Unicode name; marks have no script."""
    category, point = unicodedata.category(sign), ord(sign)
    # Vowels and final consonants of decomposed Hangul, and skin colors of emoji.
    is_part = 0x1160 <= point <= 0x11FF or 0xD7B0 <= point <= 0xD7FF or 0x1F3FB <= point <= 0x1F3FF
    if category[0] == "M" or category == "Cf" or is_part:
        return _EXTENDS, ""
    if category[0] == "N":
        return _DIGIT, "DIGIT"
    if category[0] == "L" or sign == "_":
        return _LETTER, re.split("[ -]", unicodedata.name(sign, ""), maxsplit=1)[0]
    return "flag" if 0x1F1E6 <= point <= 0x1F1FF else sign, ""


def _usual() -> WordCut:
    """The words of English treebanks, and of CoNLL-2003."""
    inner = {f"{left}{mark}{right}" for left in _KINDS for right in _KINDS for mark in "-.'&@"}
    inner |= {f"0{mark}0" for mark in ",:/"}
    return WordCut(
        before=frozenset(inner | {".a."}),
        after=frozenset(inner | {"@a", "@0", "#a", "#0"}),
        pairs=frozenset({"..", "--"}),
        clitics=frozenset({"n't", "'s", "'re", "'ve", "'ll", "'m", "'d"}),
        whole=frozenset({_ADDRESS}),
        single=frozenset(),
        segmented=frozenset(_NO_SPACES),
    )


USUAL_CUT = _usual()


class _Learner:
    """Counts how marks stand in the words of sentences."""

    def __init__(self, sentences: Sequence[Sequence[str]]) -> None:
        self.sentences = sentences
        self.words = Counter(chain.from_iterable(sentences))
        self.plain = {word: word.translate(_ALIKE) for word in self.words}

    def rules(self) -> WordCut:
        """The rules, in the order in which each needs those before."""
        single, segmented = self._scripts()
        clitics = self._clitics()
        joined, cut = self._joints(single, clitics)
        sets = {
            name: frozenset(
                key
                for key in {*joined[name], *cut[name], *getattr(USUAL_CUT, name)}
                # Without evidence as usual.
                if joined[name][key] > cut[name][key]
                or (key in getattr(USUAL_CUT, name) and not joined[name][key] + cut[name][key])
            )
            for name in _CONTEXTS
        }
        addresses = sum(count for word, count in self.words.items() if _WEB.fullmatch(word))
        cut_addresses = sum(self.words[word] for word in ("http", "https", "Http", "Https"))
        whole = frozenset({_ADDRESS} if addresses >= cut_addresses else ())
        rules = WordCut(**sets, clitics=clitics, whole=whole, single=single, segmented=segmented)
        return WordCut(**sets, clitics=clitics, whole=whole | self._whole(rules), single=single, segmented=segmented)

    def _scripts(self) -> tuple[frozenset[str], frozenset[str]]:
        """The scripts that are tagged by character, and those whose longer words no rule finds."""
        alone: dict[str, set[str]] = defaultdict(set)
        counts: dict[bool, Counter[str]] = {False: Counter(), True: Counter()}  # by whether words are longer
        for word, count in self.words.items():
            scripts = [script for kind, script in map(_character, word) if kind != _EXTENDS]
            doubled = {first for first, second in pairwise(scripts) if first == second}
            for script in {*scripts} - {""}:
                counts[script in doubled][script] += count
                if len(scripts) == 1:
                    alone[script].add(word)
        single = {
            script
            for script, characters in alone.items()
            if len(characters) >= (_MIN_CHARACTERS if script != "DIGIT" else 3)
            and counts[True][script] <= _MOSTLY_SINGLE * counts[False][script]
        }
        blank = sum(count for word, count in self.words.items() if not word.strip())
        single |= {_SPACE} if blank > _MOSTLY_SINGLE * self.words.total() else set()
        has_long = counts[True][_IDEOGRAPHS] > counts[False][_IDEOGRAPHS]
        segmented = {*_NO_SPACES, *([_IDEOGRAPHS] if has_long else [])} - single
        return frozenset(single), frozenset(segmented)

    def _clitics(self) -> frozenset[str]:
        """Endings with an apostrophe that are more often a word than the end of one."""
        alone, joined = Counter[str](), Counter[str]()
        has_evidence = False
        for word, count in self.words.items():
            if "'" in self.plain[word]:
                has_evidence = True
                if match := _CLITIC.search(self.plain[word].lower()):
                    (alone if match.start() == 0 else joined)[match.group()] += count
        if not has_evidence:
            return USUAL_CUT.clitics
        # After an opening quote there is a word that occurs without it, too.
        lower = Counter[str]()
        for word, count in self.words.items():
            lower[word.lower()] += count
        quoted = Counter({f"'{word}": count for word, count in lower.items()})
        return frozenset(end for end, count in alone.items() if count > joined[end] + quoted[end])

    def _joints(
        self, single: frozenset[str], clitics: frozenset[str]
    ) -> tuple[dict[str, Counter[str]], dict[str, defaultdict[str, float]]]:
        """How often marks stay with their neighbors, and how often not, by the field of `WordCut` and context."""
        joined: dict[str, Counter[str]] = {name: Counter() for name in _CONTEXTS}
        cut: dict[str, defaultdict[str, float]] = {name: defaultdict(float) for name in _CONTEXTS}
        atoms = {
            word: _atoms(plain, single)
            for word, plain in self.plain.items()
            if word.strip() and plain.lower() not in clitics and not _NO_EVIDENCE.fullmatch(word)
        }
        for word, parts in atoms.items():
            for index in range(1, len(parts)):
                name, key = _context(parts, index)
                if name:  # else both are of a script that is tagged by character
                    joined[name][key] += self.words[word]
        for sentence in self.sentences:
            for index in range(1, len(sentence)):
                left, right = atoms.get(sentence[index - 1]), atoms.get(sentence[index])
                if not (left and right and (left[-1].is_mark or right[0].is_mark)):
                    continue
                mark, owner = (right[0], right) if right[0].is_mark else (left[-1], left)
                contexts = {_context([*left, *right], len(left))}
                if len(owner) == 1:  # whether the text has a space on its other side is unknown
                    is_end = mark.first in _SENTENCE_END and _is_capital(sentence, index + (owner is right))
                    before = atoms.get(sentence[index - 2], []) if owner is left and index > 1 and not is_end else []
                    after = atoms.get(sentence[index + 1], []) if owner is right and index + 1 < len(sentence) else []
                    neighbors = [*before, *left, *right, *([] if is_end else after)]
                    contexts.add(_context(neighbors, len(before) + len(left)))
                for name, key in contexts:
                    is_inner = key[0] in _KINDS and key[-1] in _KINDS
                    # Some marks between words have spaces around them in the text; an elided vowel's never has.
                    may_be_spaced = is_inner and (len(owner) == 1 or mark.first != "'")
                    cut[name][key] += _SPACED if may_be_spaced else 1
        return joined, cut

    def _whole(self, rules: WordCut) -> frozenset[str]:
        """The most frequent words that the rules would cut, and that occur more often whole than cut."""
        parts: dict[tuple[str, ...], str] = {}
        for word, count in self.words.items():
            if count > 2 and not word.isalnum() and _CHUNK.fullmatch(word):
                spans = rules.spans(word)
                if len(spans) > 1:
                    parts[tuple(word[slice(*span)] for span in spans)] = word
        lengths: dict[str, set[int]] = defaultdict(set)  # by first part
        for words in parts:
            lengths[words[0]].add(len(words))
        apart: Counter[str] = Counter()
        for sentence in self.sentences:
            for index, word in enumerate(sentence):
                for length in lengths.get(word, ()):
                    if (found := parts.get(tuple(sentence[index : index + length]))) is not None:
                        apart[found] += 1
        kept = [word for word in parts.values() if self.words[word] > apart[word]]
        return frozenset(sorted(kept, key=lambda word: (-self.words[word], word))[:_MAX_WHOLE])
