"""Extractive question answering around the model: contexts to windows, logits to answers.

Pure functions, shared by the pipeline and by fine-tuning. A long context is split into overlapping windows of tokens,
each after the same question. A span's score is its start logit plus its end logit (Devlin et al. 2019, section 4.2),
compared over all windows as in Google's `run_squad.py`; "no answer" is the classification token pointing at itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..files.errors import SettingError, worded
from .batching import check_at_least_one
from .windows import default_stride

if TYPE_CHECKING:
    from tokenizers import Encoding
    from transformers import PreTrainedTokenizerFast


class QuestionError(ValueError):
    """A question with a context that cannot be read; `number` is its index."""

    def __init__(self, number: int, message: str) -> None:
        super().__init__(message)
        self.number = number


@dataclass(frozen=True)
class Window:
    """A question and a part of its context as model input.

    Attributes:
        inputs: Model inputs by name (`input_ids`, `token_type_ids`, `attention_mask`), each of shape `(tokens,)`.
        context_start: Position in the window of its first context token.
        context_length: Number of context tokens in the window.
        first_token: Index of its first context token in the whole context.
        null_position: Position of the classification token, which stands for "no answer".
    """

    inputs: dict[str, np.ndarray]
    context_start: int
    context_length: int
    first_token: int
    null_position: int


@dataclass(frozen=True)
class WindowedQuestion:
    """A question with its context split into windows.

    Attributes:
        context: The text from which answers are taken.
        token_spans: Character range `[start, end)` of every token of the context, shape `(context_tokens, 2)`.
        word_spans: Character range `[start, end)` of the word of every token, shape `(context_tokens, 2)`.
        windows: From left to right; together they cover every token of the context.
    """

    context: str
    token_spans: np.ndarray
    word_spans: np.ndarray
    windows: list[Window]


@dataclass(frozen=True)
class Answer:
    """A span of the context, or "no answer" (`text` empty, `start` and `end` 0).

    Attributes:
        text: Exactly `context[start:end]`.
        start: Index of the first character.
        end: Index after the last character.
        start_logit: Start logit of the first token.
        end_logit: End logit of the last token.
        probability: Product of the softmax of start and end, over the context tokens of all windows and the null
            token.
    """

    text: str
    start: int
    end: int
    start_logit: float
    end_logit: float
    probability: float

    @property
    def score(self) -> float:
        """Start logit plus end logit."""
        return self.start_logit + self.end_logit


def make_windows(
    tokenizer: PreTrainedTokenizerFast,
    questions: Sequence[str],
    contexts: Sequence[str],
    max_seq_len: int = 384,
    doc_stride: int | None = None,
    max_question_len: int = 64,
) -> list[WindowedQuestion]:
    """Tokenize questions with their contexts and split each pair into windows.

    The windows equal those of the tokenizer's own overflow (`truncation="only_second"`, `stride=doc_stride`). They are
    built here because the overlap has to fit each question, whereas the tokenizer uses one overlap for all and panics
    if it is too large, and because words at the edge of a window must stay whole.

    Args:
        tokenizer: A fast tokenizer. With `padding_side="left"` the context comes first, as XLNet expects.
        questions: One question per example.
        contexts: The text to search, one per question.
        max_seq_len: Maximum length of a window in tokens, special tokens included.
        doc_stride: Number of tokens that neighboring windows share (Google's flag of this name is the distance
            between their starts). Default: 128, or half of the context's part of a window if that is fewer.
        max_question_len: Maximum length of a question in tokens; longer ones are truncated.

    Raises:
        ValueError: The tokenizer is not fast, a question or context is empty, or the lengths leave no space
            (`QuestionError`).
    """
    if not tokenizer.is_fast:
        raise ValueError(
            f"{type(tokenizer).__name__} gives no character offsets: question answering needs a fast tokenizer."
        )
    if len(questions) != len(contexts):
        raise ValueError(f"found {len(questions)} questions and {len(contexts)} contexts; expected one context each.")
    check_at_least_one(max_question_len=max_question_len, max_seq_len=max_seq_len)
    if doc_stride is not None and not (isinstance(doc_stride, Integral) and 0 <= doc_stride < max_seq_len):
        raise SettingError.worded(
            "{doc_stride} is {!r:.80}; expected 0 or more and less than max_seq_len ({}).", doc_stride, max_seq_len
        )
    for pair in zip(questions, contexts, strict=True):
        for name, text in zip(("question", "context"), pair, strict=True):
            if not isinstance(text, str) or not text.strip():
                raise ValueError(f"found {text!r:.80} as {name}; expected a text that is not empty.")

    questions = _cut_questions(tokenizer, questions, max_question_len)
    question_first = tokenizer.padding_side == "right"
    batch = tokenizer(
        *((questions, list(contexts)) if question_first else (list(contexts), questions)),
        truncation=False,
        padding=False,
        verbose=False,
    )
    names = [name for name in tokenizer.model_input_names if name in batch]
    return [
        _cut_into_windows(
            {name: np.array(batch[name][number]) for name in names},
            batch[number],
            context,
            number,
            side=1 if question_first else 0,
            null_token=tokenizer.cls_token_id,
            max_seq_len=max_seq_len,
            doc_stride=doc_stride,
        )
        for number, context in enumerate(contexts)
    ]


def best_answers(
    question: WindowedQuestion,
    start_logits: Sequence[np.ndarray],
    end_logits: Sequence[np.ndarray],
    top_k: int = 1,
    max_answer_len: int = 15,
    align_to_words: bool = True,
    max_context: bool = False,
) -> tuple[list[Answer], Answer]:
    """The best answers of a question over all its windows, and "no answer".

    Args:
        question: A result of `make_windows`.
        start_logits: Logits of each window, shape `(tokens,)`.
        end_logits: Logits of each window, shape `(tokens,)`.
        top_k: Maximum number of answers; fewer only if the context has no more distinct spans.
        max_answer_len: Maximum length of an answer in tokens, before it is widened to whole words.
        align_to_words: Whether to widen answers to whole words.
        max_context: Whether to do as Google's `run_squad.py`: an answer may begin only in the window where its first
            token has the most context on both sides, and each text is returned once, wherever it occurs.

    Returns:
        Distinct answers from best to worst by `Answer.score`, and the null answer of the window with the lowest null
        score (Google's `score_null`).

    Raises:
        ValueError: `top_k` or `max_answer_len` is below 1, or a logit is not a finite number.
    """
    check_at_least_one(top_k=top_k, max_answer_len=max_answer_len)
    assert len(question.windows) == len(start_logits) == len(end_logits)

    nulls: list[tuple[float, float]] = []
    starts: list[np.ndarray] = []
    ends: list[np.ndarray] = []
    for window, start, end in zip(question.windows, start_logits, end_logits, strict=True):
        in_context = slice(window.context_start, window.context_start + window.context_length)
        nulls.append((float(start[window.null_position]), float(end[window.null_position])))
        starts.append(np.asarray(start[in_context], dtype=np.float64))
        ends.append(np.asarray(end[in_context], dtype=np.float64))
    null_start, null_end = min(nulls, key=sum)
    log_total = _log_sum_exp([*starts, [null_start]]) + _log_sum_exp([*ends, [null_end]])
    if not np.isfinite(log_total):
        raise ValueError("the model gave logits that are not finite numbers.")

    if max_context:
        may_begin = _have_most_context(question.windows)
        begins = [np.where(here, start, -np.inf) for here, start in zip(may_begin, starts, strict=True)]
    else:
        begins = starts
    scores = [_span_scores(start, end, max_answer_len) for start, end in zip(begins, ends, strict=True)]
    borders = np.cumsum([0, *(matrix.size for matrix in scores)])
    spans = question.word_spans if align_to_words else question.token_spans
    answers: dict[tuple[int, int] | str, Answer] = {}
    for place in _best_first(np.concatenate([matrix.ravel() for matrix in scores]), top_k):
        number = int(np.searchsorted(borders, place, side="right")) - 1
        first, length = divmod(int(place - borders[number]), scores[number].shape[1])
        token = question.windows[number].first_token + first
        begin = int(spans[token, 0])
        text = question.context[begin : spans[token + length, 1]].strip()  # some tokens include white space
        begin = question.context.find(text, begin)
        span = (begin, begin + len(text))
        answer = text if max_context else span
        if not text or answer in answers:  # only a space, or the same answer from another window
            continue
        start_logit, end_logit = float(starts[number][first]), float(ends[number][first + length])
        probability = float(np.exp(start_logit + end_logit - log_total))
        answers[answer] = Answer(text, *span, start_logit, end_logit, probability)
        if len(answers) == top_k:
            break
    null = Answer("", 0, 0, null_start, null_end, float(np.exp(null_start + null_end - log_total)))
    return list(answers.values()), null


def answer_positions(question: WindowedQuestion, start: int, end: int) -> list[tuple[int, int]]:
    """Training targets: positions of an answer's first and last token in every window.

    Args:
        question: A result of `make_windows`.
        start: Index of the first character of the answer in the context.
        end: Index after its last character; `start == end` means that there is no answer.

    Returns:
        Positions in each window, both at the null token if the window does not contain the whole answer.
    """
    touched = np.flatnonzero((question.token_spans[:, 0] < end) & (question.token_spans[:, 1] > start))
    positions = []
    for window in question.windows:
        offset = window.context_start - window.first_token
        stop = window.first_token + window.context_length
        if len(touched) and window.first_token <= touched[0] and touched[-1] < stop:
            positions.append((int(touched[0]) + offset, int(touched[-1]) + offset))
        else:
            positions.append((window.null_position, window.null_position))
    return positions


def _cut_questions(tokenizer: PreTrainedTokenizerFast, questions: Sequence[str], max_tokens: int) -> list[str]:
    """The questions, each truncated to `max_tokens` tokens."""
    batch = tokenizer(list(questions), add_special_tokens=False, truncation=False, padding=False, verbose=False)
    return [
        question[: batch[number].offsets[max_tokens - 1][1]] if len(batch[number].ids) > max_tokens else question
        for number, question in enumerate(questions)
    ]


def _cut_into_windows(
    inputs: dict[str, np.ndarray],
    encoding: Encoding,
    context: str,
    number: int,
    side: int,
    null_token: int | None,
    max_seq_len: int,
    doc_stride: int | None,
) -> WindowedQuestion:
    """Split a tokenized pair; what precedes and follows the context is repeated in every window."""
    in_context = np.array(encoding.sequence_ids) == side
    if not in_context.any():
        message = worded("the context {!r} holds no token that the tokenizer knows", context[:40])
        raise QuestionError(number, message)
    first, last = (int(place) for place in np.flatnonzero(in_context)[[0, -1]])
    tokens, context_tokens = len(in_context), last + 1 - first
    space = max_seq_len - (tokens - context_tokens)
    if space < 1:
        raise QuestionError(
            number,
            worded(
                "{max_seq_len} ({}) leaves no space for the context after a question and special tokens of {} tokens; "
                "expected a larger one, or a smaller {max_question_len}",
                max_seq_len,
                tokens - context_tokens,
            ),
        )
    stride = default_stride(space) if doc_stride is None else doc_stride
    if stride >= space and context_tokens > space:
        raise QuestionError(
            number,
            worded(
                "{doc_stride} ({}) is not less than the space for the context in a window, {} tokens ({max_seq_len} "
                "{} without the question and special tokens)",
                stride,
                space,
                max_seq_len,
            ),
        )

    nulls = np.flatnonzero((np.array(encoding.ids) == null_token) & ~in_context)
    null = int(nulls[0]) if len(nulls) else 0
    windows = []
    for start in range(0, context_tokens, space - stride if context_tokens > space else space):
        length = min(space, context_tokens - start)
        stretch = slice(first + start, first + start + length)
        windows.append(
            Window(
                inputs={
                    name: np.concatenate([values[:first], values[stretch], values[last + 1 :]])
                    for name, values in inputs.items()
                },
                context_start=first,
                context_length=length,
                first_token=start,
                null_position=null if null <= last else null - context_tokens + length,
            )
        )
        if start + length == context_tokens:
            break
    token_spans = np.array(encoding.offsets[first : last + 1])
    return WindowedQuestion(
        context, token_spans, _word_spans(token_spans, encoding.word_ids[first : last + 1]), windows
    )


def _word_spans(token_spans: np.ndarray, word_ids: Sequence[int | None]) -> np.ndarray:
    """Character range of the word of every token; a token that belongs to no word counts as one."""
    ids = np.array([-1 - number if word is None else word for number, word in enumerate(word_ids)])
    opens = np.flatnonzero(np.diff(ids, prepend=ids[0] - 1))
    closes = np.append(opens[1:], len(ids)) - 1
    words = np.stack([token_spans[opens, 0], token_spans[closes, 1]], axis=1)
    return np.repeat(words, closes - opens + 1, axis=0)


def _have_most_context(windows: Sequence[Window]) -> list[np.ndarray]:
    """Masks (context_length,) of the context tokens of each window that have the most context there."""
    tokens = max(window.first_token + window.context_length for window in windows)
    most, owner = np.full(tokens, -np.inf), np.zeros(tokens, dtype=np.int64)
    for number, window in enumerate(windows):
        places = np.arange(window.context_length)
        # The context of a token is the smaller number of tokens on its two sides, plus a hundredth of the window's
        # length (`run_squad.py`, `_check_is_max_context`); ties go to the first window.
        context = np.minimum(places, places[::-1]) + 0.01 * window.context_length
        own = window.first_token + places
        better = own[context > most[own]]
        most[better], owner[better] = context[better - window.first_token], number
    return [
        owner[window.first_token : window.first_token + window.context_length] == number
        for number, window in enumerate(windows)
    ]


def _span_scores(start: np.ndarray, end: np.ndarray, max_answer_len: int) -> np.ndarray:
    """Scores of all spans, shape `(tokens, lengths)`: `[i, n]` is `start[i] + end[i + n]`, -inf past the end."""
    lengths = min(max_answer_len, len(start))
    padded = np.concatenate([end, np.full(lengths - 1, -np.inf)])
    return start[:, None] + sliding_window_view(padded, lengths)


def _best_first(scores: np.ndarray, expected: int) -> Iterator[int]:
    """Indices of the finite scores from best to worst, ties from left to right."""
    # Only as many are sorted as needed: at first several times `expected`, because most neighbors of a good span are
    # words of it, then more and more.
    done, count = 0, 8 * expected
    while done < len(scores):
        if count < len(scores):
            threshold = np.partition(scores, -count)[-count]
            places = np.flatnonzero(scores >= threshold)
        else:
            places = np.arange(len(scores))
        order = places[np.argsort(-scores[places], kind="stable")]
        for place in order[done:]:
            if scores[place] == -np.inf:
                return
            yield int(place)
        done, count = len(order), 8 * count


def _log_sum_exp(parts: Sequence[np.ndarray | list[float]]) -> float:
    with np.errstate(invalid="ignore"):
        return float(np.logaddexp.reduce(np.concatenate(parts)))
