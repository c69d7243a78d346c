"""Learning a WordPiece vocabulary from text: the same text gives the same bytes."""

import heapq
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Literal

from .text_files import expand_paths, read_blocks
from .tokenization_mybert import MAX_WORD_LENGTH, MyBertTokenizer, build_normalizer, build_pre_tokenizer
from .vocab import CONTINUATION_PREFIX, Layout, index_pieces, reserved_tokens

logger = logging.getLogger(__name__)

Algorithm = Literal["bpe", "wordpiece"]

# Deleted by BERT's cleaning, but white space to str.split.
_DELETED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


def train_wordpiece(
    files_or_iterator: str | Path | Iterable[str | Path],
    vocab_size: int = 30522,
    *,
    algorithm: Algorithm = "bpe",
    lower_case: bool = True,
    strip_accents: bool = False,
    layout: Layout = "google",
    character_coverage: float = 0.9999,
    min_frequency: int = 2,
    encoding: str = "utf-8",
    num_processes: int | None = None,
    show_progress: bool = True,
) -> MyBertTokenizer:
    """Learn a vocabulary and return its tokenizer (first version)."""
    if algorithm not in ("bpe", "wordpiece"):
        raise ValueError(f"algorithm is {algorithm!r}, expected 'bpe' or 'wordpiece'.")
    reserved = reserved_tokens(layout)
    words = _count_words(_blocks(files_or_iterator, encoding), lower_case, strip_accents)
    if not words:
        raise ValueError("The text holds no word to learn from.")
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    alphabet, covered, total = [], 0, sum(characters.values())
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if covered >= character_coverage * total:
            break
        alphabet.append(character)
        covered += count
    alphabet.sort()
    pieces = [*reserved, *alphabet, *(CONTINUATION_PREFIX + c for c in alphabet)]
    if len(pieces) > vocab_size:
        raise ValueError(
            f"vocab_size is {vocab_size}, but {len(reserved)} reserved tokens and {len(alphabet)} characters, each as "
            f"start and as continuation, need {len(pieces)}: raise vocab_size or lower character_coverage."
        )
    kept = set(alphabet)
    table = {w: n for w, n in words.items() if len(w) <= MAX_WORD_LENGTH and kept.issuperset(w)}
    pieces += _learn(table, vocab_size - len(pieces), algorithm, max(1, min_frequency))
    if len(pieces) < vocab_size:
        logger.warning("The text gives only %d of the %d pieces asked for.", len(pieces), vocab_size)
    return MyBertTokenizer(index_pieces(pieces), do_lower_case=lower_case, strip_accents=strip_accents)


def _blocks(source: str | Path | Iterable[str | Path], encoding: str) -> Iterator[str]:
    if isinstance(source, (str, Path)):
        source = [source]
    if isinstance(source, (list, tuple)) and all(Path(str(p)).exists() or str(p) == "-" for p in source):
        for path in expand_paths(source):
            yield from read_blocks(path, encoding)
    else:
        yield from (str(text) for text in source)


def _count_words(blocks: Iterable[str], lower_case: bool, strip_accents: bool) -> Counter[str]:
    chunks: Counter[str] = Counter()
    for block in blocks:
        chunks.update(_DELETED_SPACES.sub("", block).split())
    normalizer, pre_tokenizer = build_normalizer(lower_case, strip_accents), build_pre_tokenizer(True)
    words: Counter[str] = Counter()
    for chunk, count in chunks.items():
        for word, _ in pre_tokenizer.pre_tokenize_str(normalizer.normalize_str(chunk)):
            words[word] += count
    return words


def _learn(words: dict[str, int], wanted: int, algorithm: Algorithm, min_frequency: int) -> list[str]:
    table = [([w[0], *(CONTINUATION_PREFIX + c for c in w[1:])], n) for w, n in sorted(words.items())]
    known = {symbol for symbols, _ in table for symbol in symbols}
    symbol_counts: Counter[str] = Counter()
    pair_counts: Counter[tuple[str, str]] = Counter()
    where: defaultdict[tuple[str, str], set[int]] = defaultdict(set)
    pairs_of: defaultdict[str, set[tuple[str, str]]] = defaultdict(set)
    for index, (symbols, n) in enumerate(table):
        for symbol in symbols:
            symbol_counts[symbol] += n
        for pair in pairwise(symbols):
            pair_counts[pair] += n
            where[pair].add(index)
            pairs_of[pair[0]].add(pair)
            pairs_of[pair[1]].add(pair)

    def score(pair: tuple[str, str]) -> float:
        n = pair_counts[pair]
        return -n if algorithm == "bpe" else -n / (symbol_counts[pair[0]] * symbol_counts[pair[1]])

    heap = [(score(pair), pair) for pair, n in pair_counts.items() if n >= min_frequency]
    heapq.heapify(heap)
    learned: list[str] = []
    while heap and len(learned) < wanted:
        value, pair = heapq.heappop(heap)
        if pair_counts[pair] < min_frequency or value != score(pair):
            continue
        left, right = pair
        merged = left + right.removeprefix(CONTINUATION_PREFIX)
        if merged not in known:
            known.add(merged)
            learned.append(merged)
        changed = set()
        for index in where.pop(pair):
            symbols, n = table[index]
            for old in pairwise(symbols):
                pair_counts[old] -= n
                changed.add(old)
            position = 0
            while position < len(symbols) - 1:
                if symbols[position] == left and symbols[position + 1] == right:
                    symbols[position : position + 2] = [merged]
                    symbol_counts[left] -= n
                    symbol_counts[right] -= n
                    symbol_counts[merged] += n
                position += 1
            for new in pairwise(symbols):
                pair_counts[new] += n
                where[new].add(index)
                pairs_of[new[0]].add(new)
                pairs_of[new[1]].add(new)
                changed.add(new)
        if algorithm == "wordpiece":
            changed |= pairs_of[left] | pairs_of[right] | pairs_of[merged]
        for other in changed:
            if pair_counts[other] >= min_frequency:
                heapq.heappush(heap, (score(other), other))
    return learned
