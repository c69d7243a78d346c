"""New pieces for an existing vocabulary: those that save most tokens of a text."""

import copy
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tokenizers import Tokenizer

from .learning import Texts, count_pieces, read_texts
from .tokenization_mybert import MyBertTokenizer
from .vocab import CONTINUATION_PREFIX, MAX_WORD_LENGTH, build_model
from .words import WordSplitter, count_words

_UNUSED = re.compile(r"\[unused\d+\]")
_LOOK_AHEAD = 3  # characters after a piece that index the words


@dataclass(frozen=True)
class Extension:
    """A tokenizer with new pieces.

    Attributes:
        tokenizer: The tokenizer; the old pieces keep their ids.
        spellings: New piece -> the old pieces that it replaces, none for an unknown character.
        in_place: How many replaced `[unused...]` entries; the others are appended.
        tokens_per_word: Tokens per word of the training text, before and after.
    """

    tokenizer: MyBertTokenizer
    spellings: dict[str, list[str]]
    in_place: int
    tokens_per_word: tuple[float, float]


def extend_vocabulary(
    tokenizer: MyBertTokenizer, words: Counter[str], number: int, min_frequency: int = 5, append: bool = True
) -> Extension:
    """Learn pieces from the words of a text, and add them to a tokenizer's vocabulary.

    Unknown characters are added first, the most frequent first. Then, repeatedly, the sequence of adjacent pieces that
    saves most tokens of the whole text when one piece replaces it (ties by code points). Before a piece is added, all
    words that it would change are split again by BERT's rule, longest piece first, so the saving is exact. Sequences
    are tried in the order of their counts, so one that saves more than its counts say may come later. The same words
    give the same pieces in the same order.

    Args:
        tokenizer: The tokenizer; it is not changed.
        words: Counts of BERT's words in the text (`count_words`).
        number: Number of new pieces, at least 1; fewer if the text has no more.
        min_frequency: Minimum count of a new piece, at least 1.
        append: Whether new pieces may be appended once `[unused...]` entries are used up, which changes the size
            of a model's embeddings.

    Raises:
        ValueError: If a value is out of range, there are no words, or no entry is free and none may be appended.
    """
    if number < 1 or min_frequency < 1:
        raise ValueError(f"number is {number} and min_frequency {min_frequency}; expected at least 1.")
    if not words:
        raise ValueError("The text holds no word to learn from.")
    old = tokenizer.get_vocab()
    free, number = entries_for(tokenizer, number, append)
    unknown = str(tokenizer.unk_token)
    learner = _Learner(old, words, min_frequency, unknown)
    pieces = [piece for piece, _ in zip(learner.pieces(), range(number), strict=False)]
    spellings = {piece: spell(piece, old) or [] for piece in pieces}
    renamed = dict(zip(free, pieces, strict=False))
    vocab = {renamed.get(piece, piece): index for piece, index in old.items()}
    for piece in pieces[len(renamed) :]:
        vocab[piece] = len(vocab)
    extended = copy.deepcopy(tokenizer)
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    content["model"]["vocab"] = dict(sorted(vocab.items(), key=lambda item: item[1]))
    extended._tokenizer = Tokenizer.from_str(json.dumps(content))
    tokens = tuple(count_pieces(pieces_and_ids, words, unknown)[1] for pieces_and_ids in (old, vocab))
    return Extension(extended, spellings, min(len(renamed), len(pieces)), (tokens[0], tokens[1]))


def entries_for(tokenizer: MyBertTokenizer, number: int, append: bool) -> tuple[list[str], int]:
    """The free `[unused...]` entries by id, and how many of a number of new pieces can be added; at least 1."""
    vocab = tokenizer.get_vocab()
    fixed = {token.content for token in tokenizer.added_tokens_decoder.values()}
    free = [piece for piece in sorted(vocab, key=vocab.__getitem__) if _UNUSED.fullmatch(piece) and piece not in fixed]
    if not append:
        number = min(number, len(free))
    if not number:
        raise ValueError("The vocabulary has no free [unused...] entry; allow new pieces to be appended.")
    return free, number


def count_corpus_words(
    documents: Texts,
    tokenizer: MyBertTokenizer,
    num_processes: int | None = None,
    show_progress: bool = True,
) -> Counter[str]:
    """Count words of documents (texts or lists of sentences), split as a tokenizer does, by default on all cores."""
    splitter = WordSplitter(tokenizer.do_lower_case, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars)
    return count_words(read_texts(documents), splitter, 0.0, num_processes, show_progress).words


def spell(piece: str, vocab: Mapping[str, int]) -> list[str] | None:
    """Split a word, or a piece with `##`, as BERT does: longest piece first; None if it cannot be spelled."""
    is_continuation = piece.startswith(CONTINUATION_PREFIX) and len(piece) > len(CONTINUATION_PREFIX)
    text = piece[len(CONTINUATION_PREFIX) :] if is_continuation else piece
    parts: list[str] = []
    begin = 0
    while begin < len(text):
        prefix = CONTINUATION_PREFIX if begin or is_continuation else ""
        for end in range(len(text), begin, -1):
            if (part := prefix + text[begin:end]) in vocab:
                break
        else:
            return None
        parts.append(part)
        begin = end
    return parts


class _Learner:
    """Words as the vocabulary splits them, and how many tokens each sequence of pieces costs."""

    def __init__(self, vocab: Mapping[str, int], words: Counter[str], min_frequency: int, unknown: str) -> None:
        self._vocab, self._unknown = dict(vocab), unknown
        self._min_frequency = min_frequency
        self._texts = sorted(word for word in words if len(word) <= MAX_WORD_LENGTH)
        self._counts = [words[word] for word in self._texts]
        self._cut: list[list[str] | None] = []
        self._runs: Counter[str] = Counter()  # sequence, joined to a piece -> tokens that it would save
        # (piece, characters after it) -> words
        self._places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)

    def pieces(self) -> Iterator[str]:
        """Yield new pieces, those with the largest saving first."""
        for piece in self._characters():
            self._vocab[piece] = len(self._vocab)
            yield piece
        self._cut_all()
        # The saving of a sequence, by counts, is exact for words that are otherwise split as before; for words that
        # the new piece splits differently, it is known only after splitting them. So sequences wait in a heap by their
        # counts, and the first one is computed exactly before it is added.
        heap = [(-saved, run) for run, saved in self._runs.items() if saved >= self._min_frequency]
        heapify(heap)
        while heap:
            _, run = heappop(heap)
            if run in self._vocab:
                continue
            saved, frequency, changed = self._effect_of(run)
            if frequency < self._min_frequency or saved <= 0:
                continue
            if heap and (-saved, run) > heap[0]:
                heappush(heap, (-saved, run))
                continue
            self._vocab[run] = len(self._vocab)
            yield run
            for other in self._recut(changed):
                heappush(heap, (-self._runs[other], other))

    def _characters(self) -> list[str]:
        """Return the characters missing from the vocabulary, as pieces, the most frequent first."""
        missing: Counter[str] = Counter()
        for text, count in zip(self._texts, self._counts, strict=True):
            for place, character in enumerate(text):
                if (piece := (CONTINUATION_PREFIX if place else "") + character) not in self._vocab:
                    missing[piece] += count
        found = [piece for piece, count in missing.items() if count >= self._min_frequency]
        return sorted(found, key=lambda piece: (-missing[piece], piece))

    def _cut_all(self) -> None:
        model = Tokenizer(build_model(self._vocab, self._unknown))
        names = {index: piece for piece, index in self._vocab.items()}
        unknown = self._vocab[self._unknown]
        for number, encoding in enumerate(model.encode_batch_fast(self._texts, add_special_tokens=False)):
            self._cut.append(None if unknown in encoding.ids else [names[index] for index in encoding.ids])
            self._add(number, 1)

    def _add(self, number: int, sign: int) -> list[str]:
        """Add (or subtract) a word's sequences and places; return the sequences."""
        parts = self._cut[number]
        if parts is None or len(parts) < 2:
            return []
        runs = []
        text, begin = self._texts[number], 0
        for first, part in enumerate(parts):
            end = begin + len(part) - (len(CONTINUATION_PREFIX) if first else 0)
            for length in range(1, _LOOK_AHEAD + 1):
                key = (part, text[end : end + length])
                (self._places[key].add if sign > 0 else self._places[key].discard)(number)
            reach = end
            for saved, other in enumerate(parts[first + 1 :], start=1):
                reach += len(other) - len(CONTINUATION_PREFIX)
                run = (CONTINUATION_PREFIX if first else "") + text[begin:reach]
                self._runs[run] += sign * saved * self._counts[number]
                runs.append(run)
            begin = end
        return runs

    def _effect_of(self, run: str) -> tuple[int, int, list[tuple[int, list[str]]]]:
        """Return the tokens that a new piece saves, its count, and the words that it changes with their new split."""
        head = (spell(run, self._vocab) or [""])[0]
        key = (head, run[len(head) :][:_LOOK_AHEAD])
        self._vocab[run] = -1
        saved = frequency = 0
        changed = []
        for number in sorted(self._places[key]):
            before, after = self._cut[number], spell(self._texts[number], self._vocab)
            assert before is not None
            assert after is not None
            if run in after:
                saved += (len(before) - len(after)) * self._counts[number]
                frequency += after.count(run) * self._counts[number]
                changed.append((number, after))
        del self._vocab[run]
        return saved, frequency, changed

    def _recut(self, changed: list[tuple[int, list[str]]]) -> list[str]:
        """Store the new splits of words; return the sequences that are new in them."""
        new: dict[str, None] = {}
        for number, parts in changed:
            before = set(self._add(number, -1))
            self._cut[number] = parts
            new |= dict.fromkeys(run for run in self._add(number, 1) if run not in before)
        return list(new)
