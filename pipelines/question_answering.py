"""`pipeline("question-answering")`, which transformers 5 has dropped, with its old arguments and results."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from transformers.models.auto.modeling_auto import MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES

from .batching import BatchedPipeline, check_at_least_one
from .spans import WindowedQuestion, best_answers, make_windows


class QuestionAnsweringPipeline(BatchedPipeline):
    """Extractive question answering with any `AutoModelForQuestionAnswering` and a fast tokenizer.

    Example:
        >>> import mybert
        >>> from transformers import pipeline
        >>> answerer = pipeline("question-answering", model="path/to/model")
        >>> answerer(question="Where do I live?", context="My name is Wolfgang and I live in Berlin.")
        {"score": 0.98, "start": 34, "end": 40, "answer": "Berlin"}

    Differences from the pipeline of transformers 4: a list gives a list, even with one question in it; `top_k` above 1
    gives a list, even of one answer; `max_question_len` has an effect; scores are normalized over all windows of a
    context together, so they are comparable; a span of the context is one answer with its best score, however many
    windows or token pairs give it, so `top_k` distinct answers are returned if there are as many.
    """

    supported_models = MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES
    expected_example = "a dict with the keys question and context"
    default_input_names = "question,context"

    def __call__(
        self, *args: Any, question: Any = None, context: Any = None, batch_size: int | None = None, **parameters: Any
    ) -> Any:
        """Answer questions from contexts.

        Args:
            *args: A dict with `question` and `context`, several of them, a list or other iterable of them, or a
                question and a context.
            question: A question or a list of questions.
            context: A context or a list of contexts; a single context is used for all questions, and a single question
                for all contexts.
            batch_size: Number of windows in a batch; by default chosen for the device.
            **parameters: `top_k` (1): number of answers; above 1, a list of them is returned.
                `doc_stride` (128 or less): number of tokens that neighbouring windows of a long context share.
                `max_answer_len` (15): maximum length of an answer in tokens.
                `max_seq_len` (384 or the model's length): maximum length of a window in tokens, question included.
                `max_question_len` (64): maximum length of a question in tokens; longer ones are truncated.
                `handle_impossible_answer` (False): whether the empty answer is a candidate.
                `align_to_words` (True): whether to widen answers to whole words.
                `padding` and `num_workers` are ignored: windows are padded to the longest of their batch.

        Returns:
            `{"score", "start", "end", "answer"}` for one question and a list for several; a generator for an iterable
            that is not a list. `score` is a probability; `answer` is exactly `context[start:end]`, or empty, with
            start and end 0, if the question is judged impossible.

        Raises:
            ValueError: A question or context is missing or empty, or a parameter is out of range.
        """
        if question is not None or context is not None:
            if len(args) == 1 and question is None:
                (question,) = args
            elif args:
                raise ValueError("found a question or context twice: pass each of them once")
            inputs: Any = {"question": question, "context": context}
        elif len(args) == 1:
            inputs = args[0]
        elif len(args) == 2 and all(isinstance(text, str) for text in args):
            inputs = {"question": args[0], "context": args[1]}
        elif args:
            inputs = list(args)
        else:
            raise ValueError("nothing to answer: pass question and context, or dicts with these two keys")
        if isinstance(inputs, dict) and not self.is_example(inputs):
            inputs = _one_per_question(inputs)
        return self.run_examples(inputs, batch_size, **parameters)

    def is_example(self, inputs: Any) -> bool:
        """Whether the input is one question with one context."""
        return isinstance(inputs, dict) and all(
            isinstance(inputs.get(key), str | None) for key in ("question", "context")
        )

    def _sanitize_parameters(
        self,
        top_k: int | None = None,
        doc_stride: int | None = None,
        max_answer_len: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int | None = None,
        handle_impossible_answer: bool | None = None,
        align_to_words: bool | None = None,
        padding: Any = None,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        check_at_least_one(**_given({"top_k": top_k, "max_answer_len": max_answer_len}))
        for_preprocess = {"doc_stride": doc_stride, "max_seq_len": max_seq_len, "max_question_len": max_question_len}
        for_postprocess = {
            "top_k": top_k,
            "max_answer_len": max_answer_len,
            "handle_impossible_answer": handle_impossible_answer,
            "align_to_words": align_to_words,
        }
        return _given(for_preprocess), {}, _given(for_postprocess)

    def preprocess(
        self,
        examples: Sequence[dict[str, str]],
        doc_stride: int | None = None,
        max_seq_len: int | None = None,
        max_question_len: int = 64,
    ) -> list[WindowedQuestion]:
        """Split every example into windows that fit the model."""
        if max_seq_len is None:
            max_seq_len = min(384, self.max_length)
        check_at_least_one(max_seq_len=max_seq_len)
        if max_seq_len > self.max_length:
            raise ValueError(f"max_seq_len is {max_seq_len}, but the model takes at most {self.max_length} tokens")
        for example in examples:
            if not isinstance(example, dict) or not {"question", "context"} <= example.keys():
                raise self.unexpected(example)
        return make_windows(
            self.tokenizer,
            [example["question"] for example in examples],
            [example["context"] for example in examples],
            max_seq_len,
            doc_stride,
            max_question_len,
        )

    def _forward(self, questions: list[WindowedQuestion], batch_size: int | None) -> list[Any]:
        rows = [window.inputs for question in questions for window in question.windows]
        logits = self.run_rows(rows, _starts_and_ends, batch_size)
        remaining = iter(logits)
        return [(question, *zip(*islice(remaining, len(question.windows)), strict=True)) for question in questions]

    def postprocess(
        self,
        outputs: list[tuple[WindowedQuestion, Sequence[np.ndarray], Sequence[np.ndarray]]],
        top_k: int = 1,
        max_answer_len: int = 15,
        handle_impossible_answer: bool = False,
        align_to_words: bool = True,
    ) -> list[Any]:
        """Turn logits into answers."""
        results: list[Any] = []
        for question, starts, ends in outputs:
            answers, null = best_answers(question, starts, ends, top_k, max_answer_len, align_to_words)
            if handle_impossible_answer or not answers:
                answers = sorted([*answers, null], key=lambda answer: -answer.score)[:top_k]
            found = [
                {"score": answer.probability, "start": answer.start, "end": answer.end, "answer": answer.text}
                for answer in answers
            ]
            results.append(found[0] if top_k == 1 else found)
        return results


def _starts_and_ends(outputs: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(*(values.float().cpu().numpy() for values in (outputs.start_logits, outputs.end_logits)), strict=True)


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _one_per_question(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict per question from a dict of lists; a single text next to a list is repeated."""
    columns: dict[str, Sequence[str]] = {}
    for key in ("question", "context"):
        if not isinstance(inputs.get(key), Sequence):
            raise ValueError(f"{key} is {inputs.get(key)!r}: expected a text or a list of texts")
        columns[key] = inputs[key]
    count = max(len(column) for column in columns.values() if not isinstance(column, str))
    for key, column in columns.items():
        if isinstance(column, str):
            columns[key] = [column] * count
        elif len(column) != count:
            raise ValueError(
                f"found {len(inputs['question'])} questions and {len(inputs['context'])} contexts: expected one each"
            )
    return [{"question": question, "context": context} for question, context in zip(*columns.values(), strict=True)]
