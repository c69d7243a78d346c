"""Text into examples: which tokens become segment A and segment B, and which examples share a row.

Sources: paper, section 3.1, task 2; google-research/bert, `create_pretraining_data.py`; for sentence order, Lan et al.
(2020, ALBERT), section 3.1; for single segments, Liu et al. (2019, RoBERTa), section 4.2, "DOC-SENTENCES".
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..modeling_mybert import IGNORE_INDEX
from .settings import MINIMAL_TOKENS, Objective
from .token_store import TokenStore


@dataclass(frozen=True)
class ExamplePlan:
    """Planned examples; each array has one entry per example. Pairs may still be too long."""

    document: np.ndarray  # of A: index among the planned documents
    # A and B are ranges of the store's tokens; B is empty for single segments
    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    next_sentence_label: np.ndarray  # -100 if there is none

    def __len__(self) -> int:
        return len(self.a_start)


class _Text(NamedTuple):
    """Documents as if their tokens were concatenated."""

    starts: np.ndarray  # offset of each sentence, and the end, (sentences + 1,)
    first: np.ndarray  # index of the first sentence of each document, and the end, (documents + 1,)
    shift: np.ndarray  # (documents,): from an offset within a document's tokens to the offset in the store


def plan_examples(
    store: TokenStore,
    documents: np.ndarray,
    objective: Objective,
    max_tokens: int,
    short_probability: float,
    generator: np.random.Generator,
) -> ExamplePlan:
    """Divide all documents in parallel into examples, in no particular order.

    In each document consecutive sentences are collected up to a target length: `max_tokens` (of A and B together), or,
    with probability `short_probability`, a random shorter one for the whole document.

    - "mlm+nsp": the chunk is split at a random sentence into A and B. With probability 1/2, and always if the chunk is
      one sentence, B comes from another document instead, and the sentences that would have been B are used again.
    - "mlm+sop": the same split (one sentence is split at a random token, one token is left out); with probability 1/2
      the segments are swapped, label 1.
    - "mlm", "ltr": one segment of as many whole sentences as fit; a longer sentence is split.
    """
    text = _gather(store, documents)
    is_short = generator.random(len(documents)) < short_probability
    short_targets = generator.integers(MINIMAL_TOKENS, max_tokens, len(documents), endpoint=True)
    targets = np.where(is_short, short_targets, max_tokens)
    if objective in ("mlm", "ltr"):
        return _plan_single(text, targets)
    return _plan_pairs(text, targets, objective == "mlm+sop", generator)


def _gather(store: TokenStore, documents: np.ndarray) -> _Text:
    begin, end = store.document_starts[documents], store.document_starts[documents + 1]
    counts = end - begin
    first = np.concatenate([[0], np.cumsum(counts)])
    sentences = np.repeat(begin - first[:-1], counts) + np.arange(first[-1])
    places = store.sentence_starts[sentences]
    starts = np.concatenate([[0], np.cumsum(store.sentence_starts[sentences + 1] - places)])
    return _Text(starts, first, places[first[:-1]] - starts[first[:-1]])


def _plan_single(text: _Text, targets: np.ndarray) -> ExamplePlan:
    starts = text.starts
    position, limit = starts[text.first[:-1]], starts[text.first[1:]]
    rows: list[tuple[np.ndarray, ...]] = []
    active = np.arange(len(targets))
    while len(active):
        begin = position[active]
        most = np.minimum(begin + targets[active], limit[active])
        end = starts[np.searchsorted(starts, most, side="right") - 1]
        end = np.where(end > begin, end, most)
        rows.append((active, begin, end))
        position[active] = end
        active = active[end < limit[active]]
    document, begin, end = (np.concatenate(column) for column in zip(*rows, strict=True))
    a_end = end + text.shift[document]
    return ExamplePlan(
        document, begin + text.shift[document], a_end, a_end, a_end, np.full(len(document), IGNORE_INDEX)
    )


def _plan_pairs(text: _Text, targets: np.ndarray, is_order: bool, generator: np.random.Generator) -> ExamplePlan:
    starts = text.starts

    def end_of(begin: np.ndarray, target: np.ndarray, limit: np.ndarray) -> np.ndarray:
        """Return the first sentence at least `target` tokens after `begin`, at most `limit`."""
        return np.clip(np.searchsorted(starts, starts[begin] + target, side="left"), begin + 1, limit)

    rows: list[tuple[np.ndarray, ...]] = []
    active = np.arange(len(targets))
    position, last = text.first[:-1].copy(), text.first[1:]
    while len(active):
        n = len(active)
        begin, limit = position[active], last[active]
        target = targets[active]
        end = end_of(begin, target, limit)
        length = end - begin
        cut = begin + generator.integers(1, np.maximum(length - 1, 1), endpoint=True)
        a_start, a_end, b_start, b_end = starts[begin], starts[cut], starts[cut], starts[end]
        shift = text.shift[active]
        if is_order:
            tokens = b_end - a_start
            middle = a_start + generator.integers(1, np.maximum(tokens - 1, 1), endpoint=True)
            a_end = b_start = np.where(length == 1, middle, a_end)
            label = generator.random(n) < 0.5
            a_start, b_start = np.where(label, (b_start, a_start), (a_start, b_start))
            a_end, b_end = np.where(label, (b_end, a_end), (a_end, b_end))
            is_example = tokens > 1
            b_shift = shift
            position[active] = end
        else:
            label = (length == 1) | (generator.random(n) < 0.5)
            # Any document but this one: skipping over it keeps the draw uniform.
            other = generator.integers(0, len(targets) - 1, n)
            other += other >= active
            random_start = generator.integers(text.first[other], last[other])
            random_end = end_of(random_start, target - (a_end - a_start), last[other])
            b_start = np.where(label, starts[random_start], b_start)
            b_end = np.where(label, starts[random_end], b_end)
            b_shift = np.where(label, text.shift[other], shift)
            is_example = np.full(n, True)
            position[active] = np.where(label, cut, end)
        row = (active, a_start + shift, a_end + shift, b_start + b_shift, b_end + b_shift, label.astype(np.int64))
        rows.append(tuple(column[is_example] for column in row))
        active = active[position[active] < limit]
    return ExamplePlan(*(np.concatenate(column) for column in zip(*rows, strict=True)))


def truncate_pair(a: slice, b: slice, max_tokens: int, generator: np.random.Generator) -> tuple[slice, slice]:
    """Shorten two token ranges to `max_tokens` together, one token at a time from the longer one, front or back."""
    length_a, length_b = a.stop - a.start, b.stop - b.start
    excess = length_a + length_b - max_tokens
    if excess <= 0:
        return a, b
    # Shorten the longer one until both are equal, then alternate, B first (Google: A only while it is longer).
    alone = min(excess, abs(length_a - length_b))
    in_turn = excess - alone
    cut_a = (alone if length_a > length_b else 0) + in_turn // 2
    front_a, front_b = generator.binomial([cut_a, excess - cut_a], 0.5)
    return (
        slice(a.start + front_a, a.stop - (cut_a - front_a)),
        slice(b.start + front_b, b.stop - (excess - cut_a - front_b)),
    )


def pack_rows(lengths: np.ndarray, row_length: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pack sequences into rows, longest first, each into the fullest row with enough space (best-fit decreasing)."""
    # shuffled, so that a row does not hold neighboring sequences
    order = generator.permutation(len(lengths))
    order = order[np.argsort(-lengths[order], kind="stable")]
    row_of = np.empty(len(lengths), np.int64)
    with_room: list[np.ndarray] = [np.empty(0, np.int64)] * (row_length + 1)  # rows, by the number of free tokens
    rows = 0

    def fill(sequences: np.ndarray, length: int, room: int) -> np.ndarray:
        """Put as many sequences of one length as fit into rows with so much space; return the rest."""
        fit = room // length
        used, with_room[room] = np.split(with_room[room], [-(-len(sequences) // fit)])
        placed = min(len(sequences), fit * len(used))
        row_of[sequences[:placed]] = np.repeat(used, fit)[:placed]
        left = room - length * np.bincount(np.arange(placed) // fit, minlength=len(used))
        for free in np.unique(left):
            with_room[free] = np.concatenate([with_room[free], used[left == free]])
        return sequences[placed:]

    ends = np.flatnonzero(np.diff(lengths[order], append=0))
    for sequences in np.split(order, ends[:-1] + 1) if len(order) else []:
        length = int(lengths[sequences[0]])
        for room in range(length, row_length + 1):
            if len(sequences) and len(with_room[room]):
                sequences = fill(sequences, length, room)
        if len(sequences):
            new = -(-len(sequences) // (row_length // length))
            with_room[row_length] = np.arange(rows, rows + new)
            rows += new
            fill(sequences, length, row_length)
    by_row = np.argsort(row_of, kind="stable")
    # sequences of the first row, then of the second, ..., (n,); offset of each row among them, (rows + 1,)
    return by_row, np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))])
