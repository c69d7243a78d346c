"""Words of held-out text that a masked language model fills in: drawn before training, shown as often right as all."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..files.processes import only_errors
from ..modeling_mybert import MyBertForMaskedLM
from ..pipelines.batching import longest_input, pad_rows, run_sorted
from ..tokenization import MyBertTokenizer
from ..tokenization.characters import build_pre_tokenizer, replace_lone_surrogates

SHOWN = 8  # words
# Characters of a word; of a longer one, as in scripts without spaces, a part is masked, so that context is left.
_MAX_CHARACTERS, _PART = 20, 4


class MaskedWord(NamedTuple):
    """A passage and the word of it that is masked."""

    before: str
    word: str
    after: str


@dataclass(frozen=True)
class Guess:
    """The most probable word in place of a masked one."""

    before: str
    word: str
    after: str
    guess: str
    probability: float  # in [0, 1]
    is_right: bool


def draw_words(passages: Sequence[str], generator: np.random.Generator) -> list[MaskedWord]:
    """Draw a word of each passage that has one, in random order; BERT's rules say what a word is."""
    splitter = build_pre_tokenizer(tokenize_chinese_chars=True)
    words = []
    for index in generator.permutation(len(passages)):
        text = replace_lone_surrogates(passages[index])
        spans = [
            (first, min(first + step, end))
            for word, (start, end) in splitter.pre_tokenize_str(text)
            for step in [_PART if len(word) > _MAX_CHARACTERS else len(word)]
            for first in range(start, end, step)
            if any(map(str.isalpha, text[first : min(first + step, end)]))  # accents alone are no token
        ]
        if spans:
            start, end = spans[generator.integers(len(spans))]
            words.append(MaskedWord(text[:start], text[start:end], text[end:]))
    return words


class _Row(NamedTuple):
    masked: MaskedWord
    ids: np.ndarray  # of the model's input, with masks
    place: slice  # of the masks
    tokens: list[int]  # in their place


def guess_words(model_dir: str | Path, words: Sequence[MaskedWord]) -> list[Guess]:
    """Let a model guess words, all tokens of which are masked; a guess is right if all of its tokens are."""
    with only_errors():  # the head for next sentences is not used
        model = MyBertForMaskedLM.from_pretrained(model_dir)
    tokenizer = MyBertTokenizer.from_pretrained(model_dir)
    space = longest_input(model, tokenizer) - 2
    rows = [_row(word, tokenizer, space) for word in words]

    def collate(batch: list[_Row]) -> dict[str, Any]:
        return pad_rows(tokenizer, [{"input_ids": row.ids, "attention_mask": np.ones_like(row.ids)} for row in batch])

    def keep(outputs: Any, _: Mapping[str, Any], batch: list[_Row]) -> Iterator[Guess]:
        best = outputs.logits.float().softmax(-1).max(-1)
        for number, row in enumerate(batch):
            tokens = best.indices[number, row.place].tolist()
            is_right = tokens == row.tokens and tokenizer.unk_token_id not in tokens
            probability = float(best.values[number, row.place].prod())
            yield Guess(*row.masked, tokenizer.decode(tokens).removeprefix("##"), probability, is_right)

    return run_sorted(model.eval(), rows, collate, keep, lengths=[len(row.ids) for row in rows])


def _row(drawn: MaskedWord, tokenizer: MyBertTokenizer, space: int) -> _Row:
    """The model's input: the passage, or `space` tokens of it around the word, between [CLS] and [SEP]."""
    text, start = "".join(drawn), len(drawn.before)
    encoding = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    ids, offsets = encoding["input_ids"], encoding["offset_mapping"]
    masked = [place for place, (first, end) in enumerate(offsets) if first < start + len(drawn.word) and end > start]
    place, after = masked[0], masked[-1] + 1
    first, end = offsets[place][0], offsets[after - 1][1]  # further than what was drawn, if that is a part of a token
    input_ids = [*ids[:place], *[tokenizer.mask_token_id] * (after - place), *ids[after:]]
    begin = max(min(place - (space - (after - place)) // 2, len(ids) - space), 0)
    window = [tokenizer.cls_token_id, *input_ids[begin : begin + space], tokenizer.sep_token_id]
    word = MaskedWord(text[:first], text[first:end], text[end:])
    return _Row(word, np.array(window), slice(1 + place - begin, 1 + after - begin), ids[place:after])


def in_proportion(guesses: Sequence[Guess]) -> list[Guess]:
    """The first right and the first wrong guesses, in their order, with the same fraction of right ones as in all."""
    limit = min(SHOWN, len(guesses))
    right = round(limit * sum(guess.is_right for guess in guesses) / max(len(guesses), 1))
    left = {True: right, False: limit - right}
    shown = []
    for guess in guesses:
        if left[guess.is_right]:
            left[guess.is_right] -= 1
            shown.append(guess)
    return shown
