"""From examples to a batch: masks drawn, sequences padded."""

import re
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ..tokenization import MyBertTokenizer
from .examples import example_generator
from .masking import IGNORED_LABEL, MaskingRates, mask_tokens


class PretrainingCollator:
    """Mask and pad the examples of a `PretrainingDataset`.

    The masks of an example depend on (seed, epoch, index) alone, not on its batch, rank or worker.

    Args:
        tokenizer: Gives the ids of special tokens and of padding.
        rates: Masking rates.
        seed: Seed of the masks.
        pad_to_multiple_of: Round lengths up to a multiple of this.
    """

    def __init__(
        self,
        tokenizer: MyBertTokenizer,
        *,
        rates: MaskingRates | None = None,
        seed: int = 0,
        pad_to_multiple_of: int = 1,
    ) -> None:
        special_ids = np.array(sorted(tokenizer.all_special_ids))
        self._special_ids = special_ids
        # Google's layout has up to 1,000 reserved entries; in the place of a word they would give themselves away.
        reserved = [index for piece, index in tokenizer.get_vocab().items() if re.fullmatch(r"\[unused\d+\]", piece)]
        self._ordinary_ids = np.setdiff1d(np.arange(len(tokenizer)), [*special_ids, *reserved])
        self._mask_token_id = tokenizer.mask_token_id
        self._pad_token_id = tokenizer.pad_token_id
        self.rates = rates or MaskingRates()
        self.seed = seed
        self.pad_to_multiple_of = pad_to_multiple_of

    def __call__(self, examples: Sequence[dict[str, Any]]) -> dict[str, torch.Tensor]:
        """Make a batch.

        Returns:
            `input_ids`, `token_type_ids`, `attention_mask` and `labels` (B, L), `next_sentence_label` (B,), all int64.

        Raises:
            ValueError: If the examples do not come from a `PretrainingDataset`, or a `Trainer` took parts away.
        """
        if "example" not in examples[0]:
            raise ValueError(
                "The examples have no 'example' (epoch, index) to draw masks from; expected those of "
                "PretrainingDataset (Trainer takes it away unless TrainingArguments has remove_unused_columns=False)."
            )
        longest = max(len(example["input_ids"]) for example in examples)
        length = -(-longest // self.pad_to_multiple_of) * self.pad_to_multiple_of
        shape = (len(examples), length)
        batch = {
            "input_ids": np.full(shape, self._pad_token_id, dtype=np.int64),
            "token_type_ids": np.zeros(shape, dtype=np.int64),
            "attention_mask": np.zeros(shape, dtype=np.int64),
            "labels": np.full(shape, IGNORED_LABEL, dtype=np.int64),
        }
        for row, example in enumerate(examples):
            input_ids = example["input_ids"]
            epoch, index = example["example"]
            masked, labels = mask_tokens(
                input_ids,
                np.isin(input_ids, self._special_ids),
                self._mask_token_id,
                self._ordinary_ids,
                self.rates,
                example_generator(self.seed, epoch, index, purpose=1),
            )
            tokens = slice(len(input_ids))
            batch["input_ids"][row, tokens] = masked
            batch["token_type_ids"][row, tokens] = example["token_type_ids"]
            batch["attention_mask"][row, tokens] = 1
            batch["labels"][row, tokens] = labels
        batch["next_sentence_label"] = np.array([example["next_sentence_label"] for example in examples])
        return {name: torch.from_numpy(array) for name, array in batch.items()}
