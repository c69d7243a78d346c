"""Examples for pretraining: which tokens become segments A and B, and which share a row, drawn again each epoch.

Sources: paper, section 3.1, task 2; google-research/bert, `create_pretraining_data.py`; for sentence order, Lan et al.
(2020, ALBERT), section 3.1; for single segments, Liu et al. (2019, RoBERTa), section 4.2, "DOC-SENTENCES".
"""

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset

from ..files.errors import SettingError
from ..modeling_mybert import IGNORE_INDEX
from .settings import MINIMAL_TOKENS, OBJECTIVES, ExampleSettings, Objective
from .token_store import TokenStore

# An epoch goes through groups of blocks from anywhere in the corpus; only the current group is planned.
BLOCK_TOKENS = 1 << 20
BLOCKS_PER_GROUP = 32
_SAMPLED_GROUPS = 8  # planned in advance, to estimate the number of examples of an epoch
_GROUPS_KEPT = 2
_UNIT = 1 << 20  # fractions of examples are counted in whole units, so that sums do not depend on the order


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
    if OBJECTIVES[objective].segments == 1:
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
    with_space: list[np.ndarray] = [np.empty(0, np.int64)] * (row_length + 1)  # rows, by the number of free tokens
    rows = 0

    def fill(sequences: np.ndarray, length: int, space: int) -> np.ndarray:
        """Put as many sequences of one length as fit into rows with so much space; return the rest."""
        fit = space // length
        used, with_space[space] = np.split(with_space[space], [-(-len(sequences) // fit)])
        placed = min(len(sequences), fit * len(used))
        row_of[sequences[:placed]] = np.repeat(used, fit)[:placed]
        left = space - length * np.bincount(np.arange(placed) // fit, minlength=len(used))
        for free in np.unique(left):
            with_space[free] = np.concatenate([with_space[free], used[left == free]])
        return sequences[placed:]

    ends = np.flatnonzero(np.diff(lengths[order], append=0))
    for sequences in np.split(order, ends[:-1] + 1) if len(order) else []:
        length = int(lengths[sequences[0]])
        for space in range(length, row_length + 1):
            if len(sequences) and len(with_space[space]):
                sequences = fill(sequences, length, space)
        if len(sequences):
            new = -(-len(sequences) // (row_length // length))
            with_space[row_length] = np.arange(rows, rows + new)
            rows += new
            fill(sequences, length, row_length)
    by_row = np.argsort(row_of, kind="stable")
    # sequences of the first row, then of the second, ..., (n,); offset of each row among them, (rows + 1,)
    return by_row, np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))])


class PretrainingDataset(Dataset):
    """Examples of a token store, as a map from (seed, epoch, index) to an example.

    An example is [CLS] A [SEP] B [SEP], or [CLS] A [SEP] if the objective has no pairs; see `plan_examples`. With
    `pack` it is a row of several such sequences; attention stays within each sequence.

    `set_epoch` draws new examples in a new order; `Trainer` calls it. The corpus is split into blocks of about a
    million tokens. An epoch takes them in random order, a group of 32 at a time, and shuffles the examples of each
    group, so a corpus of up to 32 million tokens is shuffled as a whole. Random next sentences come from the same
    group. Only the group of the requested example is planned, so memory and the time to reach any point of an epoch do
    not grow with the corpus.

    Every epoch has the same number of examples: that of epoch 0 or, for a corpus of more than 8 groups, an estimate
    from 8 of them. If a group draws more, its shortest examples are dropped; if it draws fewer, some are repeated
    (about 1 % of the examples on ordinary text; more if the corpus is a few whole books).

    Args:
        store: The corpus.
        cls_token_id, sep_token_id: Ids of [CLS] and [SEP].
        documents: Documents of the store to use, ascending; None for all.
        seed: Seed of all random choices.
        settings: Those of `ExampleSettings`: `objective` ("mlm+nsp" for pairs with next sentence prediction, the
            paper's; "mlm+sop" for pairs in the right or the wrong order, ALBERT's; "mlm" and "ltr", left-to-right, for
            single segments), `max_length` (tokens of a sequence, special ones included), `short_probability` (fraction
            of documents divided into examples of a random shorter length, Google's 0.1), `static_masking` (every epoch
            uses the examples of epoch 0, masks included, in another order), `pack` (an example is a row of several
            sequences) and `row_length` (of such a row; a multiple of `max_length` fills best).

    Raises:
        ValueError: If there are fewer than two documents for next sentence prediction (random sentences come from
            another document) or none at all, `max_length` leaves no space for text, or a setting is invalid.
        TypeError: If a setting does not exist.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        cls_token_id: int,
        sep_token_id: int,
        documents: np.ndarray | None = None,
        seed: int = 0,
        **settings: Any,
    ) -> None:
        self.settings = ExampleSettings(**settings)
        if documents is None:
            documents = np.arange(len(store.document_starts) - 1)
        if not len(documents):
            raise ValueError(f"{store.path} holds no documents to train on.")
        if len(documents) < OBJECTIVES[self.settings.objective].documents:
            raise SettingError.worded(
                "{} holds one document to train on; next sentence prediction draws random sentences from another "
                "document: put a blank line between documents, or use {objective='mlm'}.",
                store.path,
            )
        self.has_pairs = self.settings.has_pairs
        self.store = store
        self.documents = documents
        self.seed = seed
        self.max_tokens = self.settings.max_length - self.settings.special_tokens
        self.row_length = self.settings.row_length or max(512, self.settings.max_length)
        self._cls = np.array([cls_token_id])
        self._sep = np.array([sep_token_id])
        # In shared memory, so that a DataLoader's persistent workers see a new epoch.
        self._epoch = torch.zeros((), dtype=torch.int64).share_memory_()
        self._current: _Layout | None = None
        self._groups: OrderedDict[tuple[int, int], _Group] = OrderedDict()
        self._blocks, self._block_tokens = _blocks(store, documents)
        self._shares = np.zeros(len(self._blocks) - 1, np.int64)
        self._shares = self._expected_shares()
        self._current = None
        self._length = int(self._layout(0).ends[-1])
        if not self._length:
            raise ValueError(f"{store.path} is too small: its documents yield no example.")

    @property
    def epoch(self) -> int:
        """The epoch, counted from 0."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, counted from 0."""
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example before masking; an IndexError if there is none.

        It has `input_ids` and `token_type_ids` (int64 arrays; at most `max_length`, or `row_length` with `pack`);
        `example` (epoch, index), which seeds the masks; with pairs `next_sentence_label` (0 if B follows A; 1 if it is
        random, or if they are swapped). With `pack` also `sequence_lengths` (n,), `row_length`, and
        `next_sentence_label` is (n,).
        """
        if not 0 <= index < self._length:
            raise IndexError(f"There is no example {index}; an epoch has {self._length}.")
        layout = self._layout(self.epoch)
        place = int(np.searchsorted(layout.ends, index, side="right"))
        group = self._group(layout, int(layout.order[place]))
        slot = group.slots[index - (layout.ends[place - 1] if place else 0)]
        row = group.rows[slot % len(group.rows)]
        number = group.number + slot if self.settings.static_masking else index
        generator = example_generator(self.seed, layout.plan_epoch, number)
        chosen = group.sequences[group.row_starts[row] : group.row_starts[row + 1]]
        sequences = [self._sequence(group.plan, sequence, generator) for sequence in chosen]
        lengths = [(len(a) + 2, len(b) + 1 if self.has_pairs else 0) for a, b in sequences]
        parts = [
            part
            for a, b in sequences
            for part in ((self._cls, a, self._sep, b, self._sep) if self.has_pairs else (self._cls, a, self._sep))
        ]
        example: dict[str, Any] = {
            "input_ids": np.concatenate(parts),
            "token_type_ids": np.repeat([0, 1] * len(lengths), [length for pair in lengths for length in pair]),
            "example": (layout.plan_epoch, int(number)),
        }
        if self.has_pairs:
            labels = group.plan.next_sentence_label[chosen]
            example["next_sentence_label"] = labels if self.settings.pack else int(labels[0])
        if self.settings.pack:
            example |= {"sequence_lengths": np.array(lengths).sum(axis=1), "row_length": self.row_length}
        return example

    def _sequence(self, plan: ExamplePlan, row: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Return the token ids of segments A and B of a sequence, truncated to fit."""
        a = slice(int(plan.a_start[row]), int(plan.a_end[row]))
        b = slice(int(plan.b_start[row]), int(plan.b_end[row]))
        a, b = truncate_pair(a, b, self.max_tokens, generator)
        return self.store.tokens[a], self.store.tokens[b]

    def _layout(self, epoch: int) -> "_Layout":
        if self._current is None or self._current.epoch != epoch:
            plan_epoch = 0 if self.settings.static_masking else epoch
            count = len(self._shares)
            blocks = _generator(self.seed, plan_epoch, 0).permutation(count)
            groups = [np.sort(part) for part in np.array_split(blocks, max(1, count // BLOCKS_PER_GROUP))]
            shares = np.cumsum([self._shares[group].sum() for group in groups])
            sizes = np.diff((shares + _UNIT // 2) // _UNIT, prepend=0)
            order = np.arange(len(groups))
            if self.settings.static_masking:
                order = _generator(self.seed, epoch, 0, 1).permutation(len(groups))
            self._current = _Layout(epoch, plan_epoch, groups, sizes, order, np.cumsum(sizes[order]))
        return self._current

    def _group(self, layout: "_Layout", group: int) -> "_Group":
        key = (layout.epoch, group)
        if key not in self._groups:
            generator = _generator(self.seed, layout.plan_epoch, 1 + group)
            plan, sequences, row_starts = self._plan(layout.groups[group], generator)
            slots = np.arange(layout.sizes[group])
            if self.settings.static_masking:
                slots = _generator(self.seed, layout.epoch, 1 + group, 1).permutation(slots)
            rows = generator.permutation(len(row_starts) - 1)
            if len(rows) > layout.sizes[group]:
                tokens = np.add.reduceat(self._lengths(plan)[sequences], row_starts[:-1])
                longest = np.argsort(-tokens[rows], kind="stable")[: layout.sizes[group]]
                rows = rows[np.sort(longest)]
            number = int(layout.sizes[:group].sum())
            self._groups[key] = _Group(plan, sequences, row_starts, rows, slots, number)
            while len(self._groups) > _GROUPS_KEPT:
                self._groups.popitem(last=False)
        return self._groups[key]

    def _plan(self, blocks: np.ndarray, generator: np.random.Generator) -> tuple[ExamplePlan, np.ndarray, np.ndarray]:
        """Plan the examples of blocks; return the plan, the sequences of all rows, and the start of each row."""
        documents = np.concatenate([self.documents[self._blocks[b] : self._blocks[b + 1]] for b in blocks])
        settings = self.settings
        plan = plan_examples(
            self.store, documents, settings.objective, self.max_tokens, settings.short_probability, generator
        )
        if self.settings.pack:
            return plan, *pack_rows(self._lengths(plan), self.row_length, generator)
        return plan, np.arange(len(plan)), np.arange(len(plan) + 1)

    def _lengths(self, plan: ExamplePlan) -> np.ndarray:
        """Return the length of each sequence, with special tokens."""
        tokens = plan.a_end - plan.a_start + plan.b_end - plan.b_start
        return np.minimum(tokens, self.max_tokens) + self.settings.max_length - self.max_tokens

    def _expected_shares(self) -> np.ndarray:
        """Return the expected number of examples of each block, in units of 1 / `_UNIT`."""
        examples = np.zeros(len(self._shares))
        sample = self._layout(0).groups[:_SAMPLED_GROUPS]
        for number, group in enumerate(sample):
            plan, _, row_starts = self._plan(group, _generator(self.seed, 0, 1 + number))
            block_of = np.repeat(group, np.diff(self._blocks)[group])
            weights = self._lengths(plan) if self.settings.pack else np.ones(len(plan))
            found = np.bincount(block_of[plan.document], weights, minlength=len(examples))
            examples[group] = (found * (len(row_starts) - 1) / max(weights.sum(), 1))[group]
        # other blocks are assumed to have as many examples per token and per document as these
        known = np.concatenate(sample)
        features = np.stack([self._block_tokens, np.diff(self._blocks)], axis=1).astype(float)
        per_feature = np.linalg.lstsq(features[known], examples[known], rcond=None)[0]
        expected = np.maximum(features @ per_feature, 0)
        expected[known] = examples[known]
        return np.rint(expected * _UNIT).astype(np.int64)


class _Layout(NamedTuple):
    """The order of an epoch."""

    epoch: int
    plan_epoch: int  # whose examples are used
    groups: list[np.ndarray]  # the blocks of each
    sizes: np.ndarray  # number of examples of each group
    order: np.ndarray  # the groups in the order of the epoch
    ends: np.ndarray  # cumulative number of examples at the end of each group, in this order


class _Group(NamedTuple):
    plan: ExamplePlan
    sequences: np.ndarray  # indices of the sequences of all rows, row by row
    row_starts: np.ndarray  # offset of each row in `sequences`, and the end
    rows: np.ndarray  # the rows that are used, in random order
    slots: np.ndarray  # for each index in the group, which of `rows` it is, modulo their number
    number: int  # of its first example in a static epoch


def _blocks(store: TokenStore, documents: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Divide documents into blocks of about `BLOCK_TOKENS` tokens."""
    count = len(documents)

    def tokens_before(number: np.ndarray) -> np.ndarray:
        last = np.minimum(number, count - 1)
        return store.sentence_starts[store.document_starts[documents[last] + (number == count)]]

    begin, end = tokens_before(np.array([0, count]))
    share = count / (documents[-1] - documents[0] + 1)
    wanted = np.linspace(begin, end, max(1, int((end - begin) * share) // BLOCK_TOKENS) + 1)[1:-1]
    low, high = np.zeros(len(wanted), np.int64), np.full(len(wanted), count)
    for _ in range(count.bit_length()):  # binary search: a corpus has too many documents to look at all of them
        middle = (low + high) // 2
        is_before = tokens_before(middle) < wanted
        low, high = np.where(is_before, np.minimum(middle + 1, high), low), np.where(is_before, high, middle)
    blocks = np.unique(np.concatenate([[0], low, [count]]))
    # The first document of each block, and the end, (blocks + 1,); and the number of tokens of each block, including
    # those of unused documents in between, (blocks,).
    return blocks, np.diff(tokens_before(blocks))


def _generator(*key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def example_generator(seed: int, epoch: int, index: int, purpose: int = 0) -> np.random.Generator:
    """Return the random generator of one example, the same on every rank and worker."""
    # streams of different purposes (0 truncation, 1 masking) are independent
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, epoch, index]))
