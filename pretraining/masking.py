"""From examples to a batch: draw masks (paper, section 3.1, task 1), and pad sequences or pack them into rows."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..modeling_mybert import IGNORE_INDEX, flat_indices
from ..tokenization import MyBertTokenizer
from .dataset import example_generator
from .settings import OBJECTIVES, MaskingRates, Objective

# Span lengths in words: geometric with p = 0.2, cut off at 10 (SpanBERT, Joshi et al. 2020, section 3.1).
_SPAN_LENGTHS = np.arange(1, 11)
_SPAN_SHARES = 0.8**_SPAN_LENGTHS / np.sum(0.8**_SPAN_LENGTHS)


def mask_tokens(
    input_ids: np.ndarray,
    is_special: np.ndarray,
    mask_token_id: int,
    ordinary_ids: np.ndarray,
    rates: MaskingRates,
    generator: np.random.Generator,
    is_continuation: np.ndarray | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Choose tokens to predict and replace them.

    As in Google's script, the number of predictions is the rate times the length, special tokens included, rounded.

    Args:
        input_ids: Token ids of a sequence, (length,).
        is_special: Whether a token is special and never chosen, (length,).
        mask_token_id: Id of [MASK].
        ordinary_ids: Ids to draw random replacements from: all but special and reserved tokens.
        rates: The rates.
        generator: Source of all random choices.
        is_continuation: Whether a token continues the word before it (`##`), (length,); needed for words and spans.

    Returns:
        The masked ids and the labels (the original id at chosen positions, -100 elsewhere), both (length,), int64.
    """
    candidates = np.flatnonzero(~is_special)
    count = min(max(1, round(len(input_ids) * rates.mlm_probability)), len(candidates))
    if rates.max_predictions is not None:
        count = min(count, rates.max_predictions)
    if rates.masking_unit == "token":
        chosen = generator.permutation(candidates)[:count]
        draw = generator.random(count)
    else:
        assert is_continuation is not None
        # Words do not span special tokens.
        is_start = ~is_continuation[candidates] | (np.diff(candidates, prepend=-2) > 1)
        words = np.append(np.flatnonzero(is_start), len(candidates))
        spans = _choose_spans(candidates, words, count, generator, rates.masking_unit == "span")
        chosen = np.concatenate([*spans, candidates[:0]])
        if rates.masking_unit == "span":
            draw = np.repeat(generator.random(len(spans)), [len(span) for span in spans])
        else:
            draw = generator.random(len(chosen))
    labels = np.full(len(input_ids), IGNORE_INDEX, dtype=np.int64)
    labels[chosen] = input_ids[chosen]
    masked = input_ids.astype(np.int64)
    masked[chosen[draw < rates.mask_replace_prob]] = mask_token_id
    replaced = chosen[(draw >= rates.mask_replace_prob) & (draw < rates.mask_replace_prob + rates.random_replace_prob)]
    masked[replaced] = ordinary_ids[generator.integers(0, len(ordinary_ids), len(replaced))]
    return masked, labels


def _choose_spans(
    candidates: np.ndarray, words: np.ndarray, count: int, generator: np.random.Generator, are_longer: bool
) -> list[np.ndarray]:
    """Choose words, or spans of consecutive words, with at most `count` tokens; return the positions of each.

    Single tokens make up for what is lacking if that is more than a quarter of them and than one, as in text without
    spaces, whose words are whole sentences.
    """
    may_lack = max(1, count // 4)
    # word i is `candidates[words[i]:words[i + 1]]`
    number = len(words) - 1
    order = generator.permutation(number).tolist()
    wanted = generator.choice(_SPAN_LENGTHS, number, p=_SPAN_SHARES).tolist() if are_longer else [1] * number
    starts = words.tolist()
    goes_on = (np.diff(candidates, prepend=-2) == 1).tolist()  # not preceded by a special token
    is_free = [True] * number
    spans: list[np.ndarray] = []
    for first, length in zip(order, wanted, strict=True):
        word = first
        while word < min(first + length, number):
            size = starts[word + 1] - starts[word]
            if not is_free[word] or size > count or (word > first and not goes_on[starts[word]]):
                break
            is_free[word] = False
            count -= size
            word += 1
        if word > first:
            spans.append(candidates[starts[first] : starts[word]])
        if not count:
            break
    if count <= may_lack:
        return spans
    rest = candidates[np.repeat(is_free, np.diff(words))]
    return spans + [rest[[i]] for i in generator.permutation(len(rest))[:count]]


class PretrainingCollator:
    """Mask and pad the examples of a `PretrainingDataset`.

    The masks of an example depend on (seed, epoch, index) alone, not on its batch, rank or worker; those of a static
    data set stay the same in every epoch.

    For "ltr" nothing is masked: the label of a token is the next token; the label of the last token is -100, and so
    are the labels that `rates.ltr_probability` leaves out. The model does not shift labels, and needs
    `is_decoder=True` so that it cannot see the token to predict.

    Args:
        tokenizer: The tokenizer; its special tokens and padding id are used.
        rates: Masking rates.
        seed: Seed of the masks.
        objective: The objective of the data set.
        fixed_length: Length to which rows are padded, for a compiled model that needs constant shapes; at least that
            of the longest example. None: the longest example of each batch.
    """

    def __init__(
        self,
        tokenizer: MyBertTokenizer,
        *,
        rates: MaskingRates | None = None,
        seed: int = 0,
        objective: Objective = "mlm+nsp",
        fixed_length: int | None = None,
    ) -> None:
        vocabulary = tokenizer.get_vocab()
        size = max(vocabulary.values()) + 1
        self._is_special = np.isin(np.arange(size), tokenizer.all_special_ids)
        continuations = [index for piece, index in vocabulary.items() if piece.startswith("##")]
        self._is_continuation = np.isin(np.arange(size), continuations)
        # Google's layout has up to 1,000 reserved entries; as random replacements they would be easy to spot.
        reserved = [index for piece, index in vocabulary.items() if re.fullmatch(r"\[unused\d+\]", piece)]
        self._ordinary_ids = np.setdiff1d(np.flatnonzero(~self._is_special), reserved)
        self._mask_token_id = tokenizer.mask_token_id
        self._pad_token_id = tokenizer.pad_token_id
        self.rates = rates or MaskingRates()
        self.seed = seed
        self.objective: Objective = objective
        self.fixed_length = fixed_length

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Make a batch.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask` and `labels` (B, L) and, with pairs, `next_sentence_label`
            (B,), all int64.

            With packed rows: `input_ids`, `token_type_ids`, `position_ids` (from 0 in each sequence) and `labels`
            (R, L), int64, where L is the data set's row length; with pairs `next_sentence_label` (N,); and limits of
            the N sequences as from transformers' `DataCollatorWithFlattening`. The rest of a row is sequences of
            padding, none longer than the longest other, with labels -100.

            Also indices that the model would otherwise read from the batch, synchronizing with an accelerator:
            `prediction_indices`, the indices of the labels in the flattened batch (P,), and for padded rows
            `token_indices`, those of the tokens (S,), int64. With a fixed length there are no `token_indices`, since a
            compiled model also runs on padding, and `max_length_q` of packed rows is the row length.
        """
        if "example" not in examples[0]:
            raise ValueError(
                "The examples have no 'example' (epoch, index) to draw masks from; expected those of "
                "PretrainingDataset (Trainer removes it unless TrainingArguments has remove_unused_columns=False)."
            )
        is_packed = "row_length" in examples[0]
        lengths = np.array([len(example["input_ids"]) for example in examples])
        shape = (len(examples), examples[0]["row_length"] if is_packed else self.fixed_length or int(lengths.max()))
        if lengths.max() > shape[1]:
            raise ValueError(f"An example has {lengths.max()} tokens; expected at most {shape[1]}, the fixed length.")
        batch = {
            "input_ids": np.full(shape, self._pad_token_id, dtype=np.int64),
            "token_type_ids": np.zeros(shape, dtype=np.int64),
            "labels": np.full(shape, IGNORE_INDEX, dtype=np.int64),
        }
        for row, example in enumerate(examples):
            tokens = slice(lengths[row])
            batch["input_ids"][row, tokens], batch["labels"][row, tokens] = self._learn(example)
            batch["token_type_ids"][row, tokens] = example["token_type_ids"]
        numbers: dict[str, int] = {}
        if is_packed:
            longest = _add_limits(batch, examples)
            if self.fixed_length is not None:
                longest = shape[1]
            numbers = dict.fromkeys(("max_length_q", "max_length_k"), longest)
        else:
            batch["attention_mask"] = (np.arange(shape[1]) < lengths[:, None]).astype(np.int64)
            if "next_sentence_label" in examples[0]:
                batch["next_sentence_label"] = np.array([example["next_sentence_label"] for example in examples])
        tensors = {name: torch.from_numpy(array) for name, array in batch.items()}
        tensors["prediction_indices"] = flat_indices(tensors["labels"] != IGNORE_INDEX)
        if not is_packed and self.fixed_length is None:
            tensors["token_indices"] = flat_indices(tensors["attention_mask"])
        return tensors | numbers

    def _learn(self, example: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
        """Return input ids and labels of an example, sequence by sequence."""
        input_ids = example["input_ids"]
        ends = np.cumsum(example.get("sequence_lengths", [len(input_ids)]))
        epoch, index = example["example"]
        generator = example_generator(self.seed, epoch, index, purpose=1)
        if OBJECTIVES[self.objective].is_causal:
            labels = np.append(input_ids[1:], IGNORE_INDEX)
            labels[ends - 1] = IGNORE_INDEX
            if self.rates.ltr_probability < 1:
                labels[generator.random(len(labels)) >= self.rates.ltr_probability] = IGNORE_INDEX
            return input_ids, labels
        masked = [
            mask_tokens(
                sequence,
                self._is_special[sequence],
                self._mask_token_id,
                self._ordinary_ids,
                self.rates,
                generator,
                self._is_continuation[sequence],
            )
            for sequence in np.split(input_ids, ends[:-1])
        ]
        ids, labels = zip(*masked, strict=True)
        return np.concatenate(ids), np.concatenate(labels)


def _add_limits(batch: dict[str, np.ndarray], examples: Sequence[dict[str, Any]]) -> int:
    """Add the boundaries of the sequences of packed rows, in place; return the length of the longest one."""
    shape = batch["input_ids"].shape
    longest = max(int(example["sequence_lengths"].max()) for example in examples)
    rests = [shape[1] - len(example["input_ids"]) for example in examples]
    # The rest of a row becomes sequences of padding, at most as long as the longest real sequence, since a model may
    # have no positions for longer ones.
    padding = [[min(longest, rest - begin) for begin in range(0, rest, longest)] for rest in rests]
    sizes = np.concatenate(
        [[*example["sequence_lengths"], *rest] for example, rest in zip(examples, padding, strict=True)]
    ).astype(np.int64)
    ends = np.cumsum(sizes)
    batch["position_ids"] = (np.arange(ends[-1]) - np.repeat(ends - sizes, sizes)).reshape(shape)
    batch["cu_seq_lens_q"] = batch["cu_seq_lens_k"] = np.append(0, ends).astype(np.int32)
    if "next_sentence_label" in examples[0]:
        batch["next_sentence_label"] = np.concatenate(
            [
                np.append(example["next_sentence_label"], [IGNORE_INDEX] * len(rest))
                for example, rest in zip(examples, padding, strict=True)
            ]
        ).astype(np.int64)
    return int(sizes.max())
