"""Tagged sentences as model input: the pieces of their words, and windows of long sentences."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizerBase

from ...pipelines import own_tokens, window_starts
from ...pipelines.windows import default_stride


@dataclass(frozen=True)
class TaggedSentence:
    words: tuple[str, ...]
    tags: tuple[str, ...] | None  # a tag for each word; None if unknown
    document: Hashable = 0  # differs between neighboring documents
    text: str | None = None  # the text that contains the words, if there was one
    spans: tuple[tuple[int, int], ...] = ()  # of each word in the text: first character, and the one after its last


@dataclass(frozen=True)
class TagWindow:
    """The pieces of a sequence, by their index among the pieces of all sentences; ends are exclusive."""

    start: int
    end: int
    own_start: int  # first piece that is tagged; the others are context
    own_end: int


def add_sequence(inputs: dict[str, list[Any]], tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> None:
    """Add pieces with special tokens to the model inputs of the previous sequences."""
    for name, values in (
        ("input_ids", [tokenizer.cls_token_id, *ids, tokenizer.sep_token_id]),
        ("attention_mask", [1] * (len(ids) + 2)),
        ("token_type_ids", [0] * (len(ids) + 2)),
    ):
        if name in inputs:
            inputs[name].append(values)


def tag_windows(start: int, end: int, first: int, last: int, room: int, stride: int | None = None) -> list[TagWindow]:
    """Windows of `room` pieces for the sentence from `start` to `end`, with context from `first` to `last`."""
    if end - start <= room:
        # As much context as fits.
        spare = room - (end - start)
        before, after = start - first, last - end
        left = min(before, max(spare // 2, spare - after))
        return [TagWindow(start - left, end + min(after, spare - left), start, end)]
    # Half of the stride as context around the sentence; each piece is tagged in the window with most context for it.
    margin = (default_stride(room) if stride is None else stride) // 2
    first, last = max(first, start - margin), min(last, end + margin)
    starts = window_starts(last - first, room, stride)
    return [
        TagWindow(first + begin, first + begin + room, max(start, first + own), min(end, first + own_end))
        for begin, (own, own_end) in zip(starts, own_tokens(starts, room, last - first), strict=True)
    ]


class WordPieces:
    """All pieces, concatenated: ids, sentence, word in it, and whether they are the word's first, each (n,)."""

    def __init__(self, examples: Sequence[TaggedSentence], tokenizer: PreTrainedTokenizerBase) -> None:
        space = " " if _reads_spaces(tokenizer) else ""
        encodings = tokenizer(
            [[f"{space if place else ''}{word}" for place, word in enumerate(example.words)] for example in examples],
            is_split_into_words=True,
            add_special_tokens=False,
            truncation=False,
            verbose=False,
        )
        ids: list[int] = []
        sentences: list[int] = []
        words: list[int] = []
        self._starts = [0]
        for number, example in enumerate(examples):
            pieces: list[list[int]] = [[] for _ in example.words]
            for token, word in zip(encodings["input_ids"][number], encodings.word_ids(number), strict=True):
                pieces[word].append(token)
            for word, tokens in enumerate(pieces):
                tokens = tokens or [tokenizer.unk_token_id]  # a word of characters that the tokenizer drops
                ids += tokens
                words += [word] * len(tokens)
                sentences += [number] * len(tokens)
            self._starts.append(len(ids))
        self.ids, self.sentences, self.words = np.array(ids), np.array(sentences), np.array(words)
        same = (np.diff(self.words, prepend=-1) == 0) & (np.diff(self.sentences, prepend=-1) == 0)
        self.is_first = ~same
        changes = [before.document != after.document for before, after in pairwise(examples)]
        self._documents = np.cumsum([False, *changes])  # whatever their ids in a table

    def sentence(self, number: int) -> tuple[int, int]:
        """Index range of a sentence's pieces, end exclusive."""
        return self._starts[number], self._starts[number + 1]

    def document(self, number: int) -> tuple[int, int]:
        """Index range of the pieces of a sentence's document, end exclusive."""
        first = np.searchsorted(self._documents, self._documents[number], side="left")
        last = np.searchsorted(self._documents, self._documents[number], side="right")
        return self._starts[first], self._starts[last]


def _reads_spaces(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether a word has other pieces behind a space, as in byte-level vocabularies (RoBERTa)."""
    text, words = (
        tokenizer(a_twice, is_split_into_words=is_split, add_special_tokens=False)["input_ids"]
        for a_twice, is_split in (("a a", False), (["a", "a"], True))
    )
    return text != words
