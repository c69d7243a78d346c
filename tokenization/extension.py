"""New pieces for an old vocabulary: what saves most tokens of a text, given the pieces that are there."""

import copy
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

from tokenizers import Tokenizer

from .text_source import read_texts
from .tokenization_mybert import MyBertTokenizer
from .vocab import CONTINUATION_PREFIX, MAX_WORD_LENGTH, UNK_TOKEN, build_model
from .vocabulary_report import count_pieces
from .word_counting import count_words
from .word_splitting import WordSplitter

_UNUSED = re.compile(r"\[unused\d+\]")
_LOOK_AHEAD = 3  # characters behind a piece by which words are found


@dataclass(frozen=True)
class Extension:
    """A tokenizer with new pieces.

    Attributes:
        tokenizer: The tokenizer; the old pieces keep their ids.
        spellings: New piece -> the old pieces that stood for it, none for a character that was unknown.
        in_place: How many took the places of `[unused...]` entries; the others follow the old pieces.
        tokens_per_word: Of the text it was learnt from, before and after.
    """

    tokenizer: MyBertTokenizer
    spellings: dict[str, list[str]]
    in_place: int
    tokens_per_word: tuple[float, float]


def extend_vocabulary(
    tokenizer: MyBertTokenizer, words: Counter[str], number: int, min_frequency: int = 5, append: bool = True
) -> Extension:
    """Learn pieces from the words of a text, and put them into a tokenizer's vocabulary.

    First come characters that the vocabulary cannot spell, the most frequent first; then, again and again, the run of
    neighbouring pieces whose place one piece could take with the greatest saving of tokens over the whole text (of
    equal ones the first by code points). Before a piece is taken, all words that it would change are cut again by
    BERT's rule, longest piece first, so that it saves what it is taken for. The same words give the same pieces in
    the same order.

    Args:
        tokenizer: The tokenizer; it stays as it is.
        words: BERT's words of the text -> how often they occur (`count_words`).
        number: How many pieces are wanted, at least 1; there are fewer where the text gives no more.
        min_frequency: Least occurrences of a new piece, at least 1.
        append: Whether new pieces may follow the old ones once `[unused...]` entries are taken, which changes the size
            of a model's embeddings.

    Raises:
        ValueError: If a value is out of its range, there are no words, or no entry is free and none may be appended.
    """
    if number < 1 or min_frequency < 1:
        raise ValueError(f"number is {number} and min_frequency {min_frequency}; expected at least 1.")
    if not words:
        raise ValueError("The text holds no word to learn from.")
    old = tokenizer.get_vocab()
    fixed = {token.content for token in tokenizer.added_tokens_decoder.values()}
    free = [piece for piece in sorted(old, key=old.__getitem__) if _UNUSED.fullmatch(piece) and piece not in fixed]
    if not append:
        number = min(number, len(free))
    if not number:
        raise ValueError("The vocabulary has no free [unused...] entry; allow new pieces to be appended.")
    learner = _Learner(old, words, min_frequency)
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
    tokens = tuple(count_pieces(pieces_and_ids, words)[1] for pieces_and_ids in (old, vocab))
    return Extension(extended, spellings, min(len(renamed), len(pieces)), (tokens[0], tokens[1]))


def count_corpus_words(
    documents: Iterable[list[str]],
    tokenizer: MyBertTokenizer,
    num_processes: int | None = None,
    show_progress: bool = True,
) -> Counter[str]:
    """Count the words of documents, split as a tokenizer does.

    Args:
        documents: Each a list of sentences.
        tokenizer: Says what a word is.
        num_processes: By default one per core.
        show_progress: Whether to show a bar.
    """
    splitter = WordSplitter(tokenizer.do_lower_case, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars)
    return count_words(read_texts(documents), splitter, 0.0, num_processes, show_progress).words


def spell(piece: str, vocab: Mapping[str, int]) -> list[str] | None:
    """Cut a word, or what a piece stands for, as BERT does: longest piece first.

    Args:
        piece: A word without white space, or a piece with `##`.
        vocab: The pieces.

    Returns:
        The pieces; None if there are none for it.
    """
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
    """Words as the vocabulary cuts them, and how many tokens each run of pieces costs.

    What a run saves, by counts, is exact for words that are cut as before around it; a word that the new piece cuts
    differently is only known when it is cut. So runs wait in a heap with their counts, and the first one is computed
    exactly before it is taken.
    """

    def __init__(self, vocab: Mapping[str, int], words: Counter[str], min_frequency: int) -> None:
        self._vocab = dict(vocab)
        self._min_frequency = min_frequency
        self._texts = sorted(word for word in words if len(word) <= MAX_WORD_LENGTH)
        self._counts = [words[word] for word in self._texts]
        self._cut: list[list[str] | None] = []
        self._runs: Counter[str] = Counter()  # run, joined to a piece -> tokens that it would save
        self._places: defaultdict[tuple[str, str], set[int]] = defaultdict(set)  # piece, what follows -> words

    def pieces(self) -> Iterator[str]:
        """New pieces, the most saving first."""
        for piece in self._characters():
            self._vocab[piece] = len(self._vocab)
            yield piece
        self._cut_all()
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
        """Characters that are missing, as pieces, the most frequent first."""
        missing: Counter[str] = Counter()
        for text, count in zip(self._texts, self._counts, strict=True):
            for place, character in enumerate(text):
                if (piece := (CONTINUATION_PREFIX if place else "") + character) not in self._vocab:
                    missing[piece] += count
        found = [piece for piece, count in missing.items() if count >= self._min_frequency]
        return sorted(found, key=lambda piece: (-missing[piece], piece))

    def _cut_all(self) -> None:
        model, names = Tokenizer(build_model(self._vocab)), {index: piece for piece, index in self._vocab.items()}
        unknown = self._vocab[UNK_TOKEN]
        for number, encoding in enumerate(model.encode_batch_fast(self._texts, add_special_tokens=False)):
            self._cut.append(None if unknown in encoding.ids else [names[index] for index in encoding.ids])
            self._add(number, 1)

    def _add(self, number: int, sign: int) -> list[str]:
        """Count a word's runs and places, or take them back; returns the runs."""
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
        """What a new piece saves, how often it is used, and the words that it changes, as they are then cut."""
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
        """Cut words differently; returns the runs that are new in them."""
        new: dict[str, None] = {}
        for number, parts in changed:
            before = set(self._add(number, -1))
            self._cut[number] = parts
            new |= dict.fromkeys(run for run in self._add(number, 1) if run not in before)
        return list(new)
