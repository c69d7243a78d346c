"""Learning pieces by merging adjacent pieces, over a table of counted words.

Both algorithms start from single characters and repeatedly merge one pair of adjacent pieces everywhere. They differ
in the score that selects the pair: the highest count(ab) for `bpe`, the highest count(ab) / (count(a) * count(b)) in
float64 for `wordpiece`, where count() is how often a pair or piece occurs in the words as they are currently split.
Ties go to the pair with the older left piece, then the older right piece, in the order alphabet, alphabet with `##`,
learned pieces. In a run (`##a ##a ##a`) pairs are merged from the left.

Nothing is recounted: a merge updates the counts and scores of the pairs that it affects. All data is in flat numpy
arrays, so a merge takes a few dozen array operations, whatever its size.

Sources: Sennrich et al. 2016, https://arxiv.org/abs/1508.07909 (bpe). Schuster and Nakajima 2012, "Japanese and Korean
voice search", and Wu et al. 2016, https://arxiv.org/abs/1609.08144, section 4.1 (wordpiece).
"""

from collections.abc import Iterator, Mapping

import numpy as np

from .settings import Algorithm
from .vocab import CONTINUATION_PREFIX

# A pair of pieces is one integer: (left id << _SHIFT) | right id. Integers are ordered like the pairs.
_SHIFT = 32
_RIGHT = (1 << _SHIFT) - 1

_OUT = -1.0  # score of a pair that is too rare
_FAN = 64  # number of scores under one entry of the next level


def learn_pieces(
    words: Mapping[str, int], alphabet: list[str], algorithm: Algorithm, min_frequency: int
) -> Iterator[str]:
    """Yield new pieces, best first, until no pair occurs `min_frequency` times; `alphabet` is sorted and complete."""
    table = _PairTable(words, alphabet, by_likelihood=algorithm == "wordpiece", min_frequency=max(1, min_frequency))
    while (slots := table.scores.best()) is not None:
        piece = table.merge(slots)
        # A merge may produce a piece that is already there: in a word `##a`, the one of `a` within a word.
        if piece is not None:
            yield piece


class _PairTable:
    """All words, split into pieces, with the counts of pieces and pairs."""

    def __init__(self, words: Mapping[str, int], alphabet: list[str], by_likelihood: bool, min_frequency: int) -> None:
        self._by_likelihood = by_likelihood
        self._min_frequency = min_frequency
        self._pieces = [*alphabet, *(CONTINUATION_PREFIX + character for character in alphabet)]
        self._ids = {piece: index for index, piece in enumerate(self._pieces)}

        # Per position: the piece that begins there (-1: none), where its neighbors begin (-1: end of the word), and
        # how often the word occurs.
        lengths = np.fromiter(map(len, words), np.int64, len(words))
        ends = np.cumsum(lengths)
        starts = ends - lengths
        code_points = np.frombuffer("".join(words).encode("utf-32-le"), np.uint32)
        characters = np.array([ord(character) for character in alphabet], np.uint32)
        self._piece = np.searchsorted(characters, code_points) + len(alphabet)
        self._piece[starts] -= len(alphabet)
        self._next = np.arange(1, len(code_points) + 1)
        self._next[ends - 1] = -1
        self._previous = np.arange(-1, len(code_points) - 1)
        self._previous[starts] = -1
        self._weight = np.repeat(np.fromiter(words.values(), np.int64, len(words)), lengths)
        self._is_site = np.zeros(len(code_points), bool)

        # Per piece.
        self._piece_count = np.zeros(len(self._pieces), np.int64)
        np.add.at(self._piece_count, self._piece, self._weight)
        self._slots_of_piece: list[list[int]] = [[] for _ in self._pieces]  # of the frequent pairs, possibly twice

        # Per slot.
        self._slot_of_pair: dict[int, int] = {}
        self._positions: list[list[np.ndarray]] = []  # of left pieces; some may be out of date
        self._pair = np.zeros(0, np.int64)
        self._count = np.zeros(0, np.int64)
        self.scores = _Tournament()

        lefts = np.flatnonzero(self._next >= 0)
        self._score(self._add(lefts, self._weight[lefts]))

    def merge(self, slots: np.ndarray) -> str | None:
        """Merge the oldest of some pairs everywhere; return the new piece, or None if the vocabulary has it."""
        slot = int(slots[np.argmin(self._pair[slots])])
        left, right = int(self._pair[slot]) >> _SHIFT, int(self._pair[slot]) & _RIGHT
        name = self._pieces[left] + self._pieces[right].removeprefix(CONTINUATION_PREFIX)
        merged = self._ids.setdefault(name, len(self._pieces))
        is_new = merged == len(self._pieces)
        if is_new:
            self._pieces.append(name)
            self._slots_of_piece.append([])
            self._piece_count = _grown(self._piece_count, len(self._pieces))

        piece, following, previous = self._piece, self._next, self._previous
        sites = self._sites(slot, left, right)
        partners = following[sites]
        before, after, weights = previous[sites], following[partners], self._weight[sites]

        # Pairs that vanish: to the left of every site, and to the right unless the next site begins there.
        has_before, has_after = before >= 0, after >= 0
        self._is_site[sites] = True
        has_after[has_after] = ~self._is_site[after[has_after]]
        self._is_site[sites] = False
        around = np.concatenate((weights[has_before], weights[has_after]))
        gone = self._subtract(
            np.concatenate(
                ((piece[before[has_before]] << _SHIFT) | left, (right << _SHIFT) | piece[after[has_after]])
            ),
            around,
        )
        self._count[slot] = 0
        self._positions[slot] = []

        piece[sites] = merged
        piece[partners] = -1
        following[sites] = after
        linked = after >= 0
        previous[after[linked]] = sites[linked]
        total = weights.sum()
        self._piece_count[left] -= total
        self._piece_count[right] -= total
        self._piece_count[merged] += total

        added = self._add(np.concatenate((previous[sites[has_before]], sites[has_after])), around)
        changed = [slot, *gone, *added]
        if self._by_likelihood:
            for piece_id in {left, right, merged}:
                changed += self._frequent_pairs_of(piece_id)
        self._score(changed)
        return name if is_new else None

    def _sites(self, slot: int, left: int, right: int) -> np.ndarray:
        """Return the positions of the left pieces of the pairs to merge."""
        sites = np.concatenate(self._positions[slot])
        partners = self._next[sites]
        sites = sites[(self._piece[sites] == left) & (partners >= 0) & (self._piece[partners] == right)]
        if left != right:
            return sites
        # Of the overlapping sites of a run take the first, third, ...
        sites.sort()
        index = np.arange(len(sites))
        begins_run = np.ones(len(sites), bool)
        begins_run[1:] = self._next[sites[:-1]] != sites[1:]
        return sites[(index - np.maximum.accumulate(np.where(begins_run, index, 0))) % 2 == 0]

    def _subtract(self, pairs: np.ndarray, weights: np.ndarray) -> list[int]:
        """Lower the counts of pairs; return their slots."""
        order = np.argsort(pairs)
        keys, _, sums = _group(pairs[order], weights[order])
        slots = [self._slot_of_pair[key] for key in keys]
        self._count[slots] -= sums
        return slots

    def _add(self, lefts: np.ndarray, weights: np.ndarray) -> list[int]:
        """Count the pairs that start at these positions; return their slots."""
        pairs = (self._piece[lefts] << _SHIFT) | self._piece[self._next[lefts]]
        order = np.argsort(pairs)
        keys, cuts, sums = _group(pairs[order], weights[order])
        lefts = lefts[order]
        slots = []
        start = 0
        for key, end in zip(keys, [*cuts[1:].tolist(), len(lefts)], strict=False):
            slot = self._slot_of_pair.setdefault(key, len(self._positions))
            if slot == len(self._positions):
                self._positions.append([])
            self._positions[slot].append(lefts[start:end])
            slots.append(slot)
            start = end
        self._count = _grown(self._count, len(self._positions))
        self._pair = _grown(self._pair, len(self._positions))
        self._pair[slots] = keys
        before = self._count[slots]
        self._count[slots] = before + sums
        if self._by_likelihood:
            rose = (before < self._min_frequency) & (before + sums >= self._min_frequency)
            for key, slot in zip(np.array(keys)[rose].tolist(), np.array(slots)[rose].tolist(), strict=True):
                self._slots_of_piece[key >> _SHIFT].append(slot)
                self._slots_of_piece[key & _RIGHT].append(slot)
        return slots

    def _frequent_pairs_of(self, piece: int) -> list[int]:
        """Return the slots of the pairs with this piece that may be frequent enough for a score."""
        slots = np.array(self._slots_of_piece[piece], np.int64)
        frequent = slots[self._count[slots] >= self._min_frequency].tolist()
        self._slots_of_piece[piece] = frequent
        return frequent

    def _score(self, slots: list[int]) -> None:
        which = np.array(slots, np.int64)
        counts = self._count[which]
        scores = counts.astype(np.float64)
        if self._by_likelihood:
            pairs = self._pair[which]
            with np.errstate(divide="ignore", invalid="ignore"):
                scores /= self._piece_count[pairs >> _SHIFT].astype(np.float64) * self._piece_count[pairs & _RIGHT]
        scores[counts < self._min_frequency] = _OUT
        self.scores.update(which, scores)


class _Tournament:
    """A tree of maxima over values by slot: every entry is the maximum of `_FAN` entries below."""

    def __init__(self) -> None:
        self._levels = [np.full(_FAN**level, _OUT) for level in (3, 2, 1)]

    def update(self, slots: np.ndarray, values: np.ndarray) -> None:
        highest = int(slots.max(initial=-1))
        while highest >= len(self._levels[0]):
            self._levels = [np.concatenate((level, np.full(len(level), _OUT))) for level in self._levels]
        self._levels[0][slots] = values
        for lower, upper in zip(self._levels, self._levels[1:], strict=False):
            slots = np.unique(slots // _FAN)
            upper[slots] = lower.reshape(-1, _FAN)[slots].max(axis=1)

    def best(self) -> np.ndarray | None:
        """Return the slots with the greatest value, or None if all pairs are too rare."""
        greatest = self._levels[-1].max()
        if greatest == _OUT:
            return None
        slots = np.flatnonzero(self._levels[-1] == greatest)
        for level in self._levels[-2::-1]:
            rows, columns = np.nonzero(level.reshape(-1, _FAN)[slots] == greatest)
            slots = slots[rows] * _FAN + columns
        return slots


def _grown(array: np.ndarray, size: int) -> np.ndarray:
    """Return the array, padded with zeros to a size (amortized)."""
    if size <= len(array):
        return array
    return np.concatenate((array, np.zeros(max(size - len(array), len(array)), array.dtype)))


def _group(keys: np.ndarray, weights: np.ndarray) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Return the distinct values of sorted keys, where each begins, and the sums of their weights."""
    if not len(keys):
        return [], keys, weights
    cuts = np.flatnonzero(np.concatenate(([True], keys[1:] != keys[:-1])))
    return keys[cuts].tolist(), cuts, np.add.reduceat(weights, cuts)
