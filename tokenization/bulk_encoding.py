"""Text to ids at corpus speed."""

import re
from collections.abc import Sequence

import numpy as np

from .tokenization_mybert import MyBertTokenizer

# Deleted by BERT's cleaning, but white space to str.split.
_DELETED_SPACES = re.compile("[\x0b\x0c\x1c-\x1f\x85]")


class BulkEncoder:
    """Encode many texts into one flat array (first version).

    Args:
        tokenizer: Whose ids to give; special tokens in the text are recognised, none are added.
    """

    def __init__(self, tokenizer: MyBertTokenizer) -> None:
        self._tokenizer = tokenizer._tokenizer

    def encode(self, texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
        """Return the ids of all texts.

        Args:
            texts: n texts.

        Returns:
            ids, shape (total tokens,), uint16 where the vocabulary fits, else uint32; and offsets, shape (n + 1,),
            int64: text i has the ids ``ids[offsets[i]:offsets[i + 1]]``.
        """
        encodings = self._tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([len(row) for row in rows], out=offsets[1:])
        dtype = np.uint16 if self._tokenizer.get_vocab_size() <= 1 << 16 else np.uint32
        ids = np.fromiter((i for row in rows for i in row), dtype, count=int(offsets[-1]))
        return ids, offsets
