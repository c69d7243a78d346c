"""Sentence pairs for pretraining, drawn afresh each epoch.

Sources: paper, section 3.1, task 2; google-research/bert, `create_pretraining_data.py`.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from .token_store import TokenStore

MINIMAL_TOKENS = 2  # of both segments together, as in Google's script


@dataclass(frozen=True)
class PairPlan:
    """The sentence pairs of an epoch; each array has one entry for a pair.

    Segment A is the sentences from `a_start` up to `a_end`, segment B those from `b_start` up to `b_end` (numbers of
    sentences in the store); `is_random` says that B was drawn from another document.
    """

    a_start: np.ndarray
    a_end: np.ndarray
    b_start: np.ndarray
    b_end: np.ndarray
    is_random: np.ndarray

    def __len__(self) -> int:
        return len(self.a_start)


def plan_pairs(
    store: TokenStore,
    documents: np.ndarray,
    max_tokens: int,
    short_probability: float,
    generator: np.random.Generator,
) -> PairPlan:
    """Walk through all documents side by side and cut them into pairs.

    In each document consecutive sentences are gathered up to a target length: `max_tokens`, or, with probability
    `short_probability`, a random shorter one for the whole document. The chunk is cut at a random sentence into A and
    B. With probability 1/2, and always if the chunk is one sentence, B is drawn from another document instead, and the
    sentences that would have been B are used again.

    Args:
        store: The corpus.
        documents: Documents to use, (n,) with n >= 2.
        max_tokens: Most tokens of A and B together.
        short_probability: Share of documents with a shorter target, in [0, 1].
        generator: Source of all random choices.

    Returns:
        The pairs in an order of no meaning.
    """
    starts = store.sentence_starts
    first, last = store.document_starts[documents], store.document_starts[documents + 1]

    def end_of(begin: np.ndarray, target: np.ndarray, limit: np.ndarray) -> np.ndarray:
        """First sentence after `begin` and `target` tokens or more, at most `limit`."""
        return np.clip(np.searchsorted(starts, starts[begin] + target, side="left"), begin + 1, limit)

    is_short = generator.random(len(documents)) < short_probability
    short_targets = generator.integers(MINIMAL_TOKENS, max_tokens, len(documents), endpoint=True)
    targets = np.where(is_short, short_targets, max_tokens)
    rows: list[tuple[np.ndarray, ...]] = []
    active = np.arange(len(documents))
    position = first.copy()
    while len(active):
        n = len(active)
        begin, limit = position[active], last[active]
        target = targets[active]
        end = end_of(begin, target, limit)
        length = end - begin
        a_end = begin + generator.integers(1, np.maximum(length - 1, 1), endpoint=True)
        is_random = (length == 1) | (generator.random(n) < 0.5)
        # Any document but this one: skipping over it keeps the draw uniform.
        other = generator.integers(0, len(documents) - 1, n)
        other += other >= active
        random_start = generator.integers(first[other], last[other])
        random_end = end_of(random_start, target - (starts[a_end] - starts[begin]), last[other])
        b_start = np.where(is_random, random_start, a_end)
        b_end = np.where(is_random, random_end, end)
        rows.append((begin, a_end, b_start, b_end, is_random))
        position[active] = np.where(is_random, a_end, end)
        active = active[position[active] < limit]
    return PairPlan(*(np.concatenate(column) for column in zip(*rows, strict=True)))


class PretrainingDataset(Dataset):
    """Sentence pairs [CLS] A [SEP] B [SEP] of a token store, as a map from (seed, epoch, index) to an example.

    `set_epoch` draws new pairs in a new order; `Trainer` calls it. Every epoch has the number of pairs that epoch 0
    draws: where another epoch draws more, some are left out at random, and where it draws fewer, some come twice (both
    well under 1 % on ordinary text).

    Args:
        store: The corpus.
        cls_token_id, sep_token_id: Ids of [CLS] and [SEP].
        max_length: Most tokens of a sequence, special tokens included.
        documents: Documents of the store to use; None for all.
        seed: Seed of all choices.
        short_probability: Share of documents cut into pairs of a random shorter length, in [0, 1] (Google: 0.1).

    Raises:
        ValueError: If there are fewer than two documents (next sentence prediction needs another one to draw from), or
            `max_length` leaves no room for two segments.
    """

    def __init__(
        self,
        store: TokenStore,
        *,
        cls_token_id: int,
        sep_token_id: int,
        max_length: int = 128,
        documents: np.ndarray | None = None,
        seed: int = 0,
        short_probability: float = 0.1,
    ) -> None:
        if documents is None:
            documents = np.arange(len(store.document_starts) - 1)
        if len(documents) < 2:
            raise ValueError(
                f"{store.path} holds {len(documents)} document(s) to train on; next sentence prediction draws random "
                "sentences from another document and needs at least 2: put a blank line between documents."
            )
        if max_length < 3 + MINIMAL_TOKENS:
            raise ValueError(f"max_length is {max_length}; [CLS] A [SEP] B [SEP] needs at least {3 + MINIMAL_TOKENS}.")
        self.store = store
        self.documents = documents
        self.max_tokens = max_length - 3
        self.seed = seed
        self.short_probability = short_probability
        self._cls = np.array([cls_token_id])
        self._sep = np.array([sep_token_id])
        self.set_epoch(0)
        self._length = len(self._plan)

    def set_epoch(self, epoch: int) -> None:
        """Draw the pairs of an epoch, counted from 0."""
        generator = np.random.Generator(np.random.Philox(np.random.SeedSequence([self.seed, epoch])))
        self.epoch = epoch
        self._plan = plan_pairs(self.store, self.documents, self.max_tokens, self.short_probability, generator)
        self._order = generator.permutation(len(self._plan))

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> dict[str, Any]:
        """An example before masking.

        Returns:
            `input_ids` and `token_type_ids` (int64 arrays, at most max_length), `next_sentence_label` (0 if B follows
            A, 1 if it is random) and `example` (epoch, index), which the masks are drawn from.
        """
        row = self._order[index % len(self._order)]
        plan, starts = self._plan, self.store.sentence_starts
        a = slice(starts[plan.a_start[row]], starts[plan.a_end[row]])
        b = slice(starts[plan.b_start[row]], starts[plan.b_end[row]])
        generator = example_generator(self.seed, self.epoch, index)
        a, b = truncate_pair(a, b, self.max_tokens, generator)
        tokens_a, tokens_b = self.store.tokens[a], self.store.tokens[b]
        return {
            "input_ids": np.concatenate([self._cls, tokens_a, self._sep, tokens_b, self._sep]),
            "token_type_ids": np.repeat([0, 1], [len(tokens_a) + 2, len(tokens_b) + 1]),
            "next_sentence_label": int(plan.is_random[row]),
            "example": (self.epoch, index),
        }


def example_generator(seed: int, epoch: int, index: int, purpose: int = 0) -> np.random.Generator:
    """Random generator of one example: whoever computes it, on any rank or worker, draws the same.

    Args:
        seed: Seed of the run.
        epoch: Epoch, counted from 0.
        index: Number of the example in the epoch.
        purpose: Streams of different purposes (0 truncation, 1 masking) are independent.
    """
    return np.random.Generator(np.random.Philox(key=[seed, purpose], counter=[0, 0, epoch, index]))


def truncate_pair(a: slice, b: slice, max_tokens: int, generator: np.random.Generator) -> tuple[slice, slice]:
    """Shorten two token ranges to `max_tokens` together, one token at a time from the longer one, front or back.

    Args:
        a, b: Ranges of tokens.
        max_tokens: Most tokens of both.
        generator: Decides for each token whether it goes from the front or the back.

    Returns:
        The shortened ranges.
    """
    length_a, length_b = a.stop - a.start, b.stop - b.start
    excess = length_a + length_b - max_tokens
    if excess <= 0:
        return a, b
    # The longer one alone until both are equal, then in turn, B first (Google: A only while it is longer).
    alone = min(excess, abs(length_a - length_b))
    in_turn = excess - alone
    cut_a = (alone if length_a > length_b else 0) + in_turn // 2
    front_a, front_b = generator.binomial([cut_a, excess - cut_a], 0.5)
    return (
        slice(a.start + front_a, a.stop - (cut_a - front_a)),
        slice(b.start + front_b, b.stop - (excess - cut_a - front_b)),
    )
