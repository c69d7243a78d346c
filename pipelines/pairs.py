"""Pipelines of text pairs: question answering, next sentence prediction and multiple choice."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES,
    MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES,
    MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES,
)

from .batching import BatchedPipeline, check_at_least_one, logits_of, longest_input, run_sorted
from .spans import WindowedQuestion, best_answers, make_windows

LABELS = ("is_next", "not_next")
"""Names of the two classes in the order of BERT's head (Devlin et al. 2019, section 3.1; 0 is "IsNext")."""


class NextSentencePredictionPipeline(BatchedPipeline):
    """Next sentence prediction with any `AutoModelForNextSentencePrediction`.

    Example:
        >>> import mybert
        >>> from transformers import pipeline
        >>> follows = pipeline("next-sentence-prediction", model="path/to/model")
        >>> follows("The man went to the store.", "He bought a gallon of milk.")
        {"label": "is_next", "score": 0.99}
    """

    supported_models = MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES
    expected_example = "two texts, or a dict with the keys text and text_pair"
    default_input_names = "text,text_pair"

    def __call__(
        self,
        inputs: Any = None,
        text_pair: str | None = None,
        batch_size: int | None = None,
        *,
        text: str | None = None,
        **parameters: Any,
    ) -> Any:
        """Predict for pairs of texts whether the second follows the first.

        Args:
            inputs: A pair: a dict with `text` and `text_pair`, a tuple or list of two texts, or the first text; a list
                or another iterable of pairs.
            text_pair: The second text, if `inputs` (or `text`) is the first one.
            batch_size: Number of pairs in a batch; by default chosen for the device.
            text: The first text, as a keyword argument.
            **parameters: `num_workers`, ignored.

        Returns:
            `{"label", "score"}` for one pair, the label `"is_next"` or `"not_next"` and its probability; a list for a
            list; a generator for an iterable that is no list.

        Raises:
            ValueError: The input is not a pair of texts.
        """
        if text is not None or text_pair is not None:
            inputs = {"text": inputs if text is None else text, "text_pair": text_pair}
        return self.run_examples(inputs, batch_size, **parameters)

    def is_example(self, inputs: Any) -> bool:
        """Whether the input is one pair."""
        return isinstance(inputs, (dict, str)) or (
            isinstance(inputs, (list, tuple)) and len(inputs) > 0 and all(isinstance(text, str) for text in inputs)
        )

    def _sanitize_parameters(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        return {}, {}, {}

    def preprocess(self, examples: Sequence[Any]) -> list[dict[str, np.ndarray]]:
        """Tokenize the pairs, truncated to the model's maximum length."""
        pairs = [self._pair(example) for example in examples]
        return self.pair_rows([first for first, _ in pairs], [second for _, second in pairs])

    def _forward(self, rows: list[dict[str, np.ndarray]], batch_size: int | None) -> np.ndarray:
        logits = run_sorted(self.model, rows, self.collate, logits_of, batch_size)
        return np.array(logits, dtype=np.float64)

    def postprocess(self, logits: np.ndarray) -> list[dict[str, Any]]:
        """Label and probability of every pair."""
        scores, best = (values.tolist() for values in torch.from_numpy(logits).softmax(1).max(1))
        return [{"label": LABELS[label], "score": score} for label, score in zip(best, scores, strict=True)]

    def _pair(self, example: Any) -> tuple[str, str]:
        texts = (example.get("text"), example.get("text_pair")) if isinstance(example, dict) else example
        if not isinstance(texts, (list, tuple)) or len(texts) != 2 or not all(map(_is_text, texts)):
            raise self.unexpected(example)
        return texts[0], texts[1]


class MultipleChoicePipeline(BatchedPipeline):
    """Multiple choice with any `AutoModelForMultipleChoice`.

    Example:
        >>> import mybert
        >>> from transformers import pipeline
        >>> choose = pipeline("multiple-choice", model="path/to/model")
        >>> choose(prompt="She opened the umbrella because", choices=["it rained.", "it was an apple."])
        {"label": 0, "answer": "it rained.", "score": 0.97}
    """

    supported_models = MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES
    expected_example = "a dict with prompt, a text, and choices, a list of texts"
    default_input_names = "prompt,choices"

    def __call__(
        self,
        inputs: Any = None,
        choices: Sequence[str] | None = None,
        batch_size: int | None = None,
        *,
        prompt: str | None = None,
        **parameters: Any,
    ) -> Any:
        """Choose the best text for each prompt.

        Args:
            inputs: A dict with `prompt` and `choices`, or the prompt; or a list or other iterable of such dicts.
            choices: The texts to choose from, if `inputs` (or `prompt`) is the prompt.
            batch_size: Number of choices in a batch; by default chosen for the device.
            prompt: The prompt, as a keyword argument.
            **parameters: `top_k` (1): number of choices to return; above 1, a list of them is returned. `num_workers`
                is ignored.

        Returns:
            `{"label", "answer", "score"}` for one prompt: index (from 0), text and probability of the best choice; a
            list for a list; a generator for an iterable that is no list.

        Raises:
            ValueError: The input is not a prompt with choices, or `top_k` is below 1.
        """
        if prompt is not None or choices is not None:
            inputs = {"prompt": inputs if prompt is None else prompt, "choices": choices}
        return self.run_examples(inputs, batch_size, **parameters)

    def is_example(self, inputs: Any) -> bool:
        """Whether the input is one prompt with its choices."""
        return isinstance(inputs, (dict, str))

    def _sanitize_parameters(self, top_k: int | None = None) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if top_k is not None:
            check_at_least_one(top_k=top_k)
        return {}, {}, {} if top_k is None else {"top_k": top_k}

    def preprocess(self, examples: Sequence[Any]) -> dict[str, Any]:
        """Tokenize every prompt with each of its choices."""
        for example in examples:
            prompt, choices = (
                (example.get("prompt"), example.get("choices")) if isinstance(example, dict) else (None, None)
            )
            texts = [prompt, *choices] if isinstance(choices, (list, tuple)) and choices else [None]
            if not all(map(_is_text, texts)):
                raise self.unexpected(example)
        pairs = [(example["prompt"], choice) for example in examples for choice in example["choices"]]
        rows = self.pair_rows([prompt for prompt, _ in pairs], [choice for _, choice in pairs])
        return {"examples": examples, "rows": rows}

    def collate(self, rows: Sequence[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
        """Pass every row as a question with a single choice: the model scores each choice separately."""
        return {name: values.unsqueeze(1) for name, values in super().collate(rows).items()}

    def _forward(self, model_inputs: dict[str, Any], batch_size: int | None) -> dict[str, Any]:
        logits = run_sorted(self.model, model_inputs["rows"], self.collate, logits_of, batch_size)
        return {"examples": model_inputs["examples"], "logits": np.array(logits, dtype=np.float64)[:, 0]}

    def postprocess(self, model_outputs: dict[str, Any], top_k: int = 1) -> list[Any]:
        """Softmax over the choices of each prompt."""
        results: list[Any] = []
        counts = [len(example["choices"]) for example in model_outputs["examples"]]
        parts = np.split(model_outputs["logits"], np.cumsum(counts)[:-1])
        for example, logits in zip(model_outputs["examples"], parts, strict=True):
            scores = torch.from_numpy(logits).softmax(0).numpy()
            found = [
                {"label": int(label), "answer": example["choices"][label], "score": float(scores[label])}
                for label in np.argsort(-scores, kind="stable")[:top_k]
            ]
            results.append(found[0] if top_k == 1 else found)
        return results


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


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
            **parameters: `top_k` (1): number of answers; above 1, a list of them is returned. `topk`, an old spelling
                that transformers 4 accepted, means the same, with a `FutureWarning`.
                `doc_stride` (128 or less): number of tokens that neighboring windows of a long context share.
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
                raise ValueError("found a question or context twice: pass each of them once.")
            inputs: Any = {"question": question, "context": context}
        elif len(args) == 1:
            inputs = args[0]
        elif len(args) == 2 and all(isinstance(text, str) for text in args):
            inputs = {"question": args[0], "context": args[1]}
        elif args:
            inputs = list(args)
        else:
            raise ValueError("nothing to answer: pass question and context, or dicts with these two keys.")
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
        topk: int | None = None,
    ) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        if topk is not None and top_k is None:
            warnings.warn("topk is an old spelling of top_k; use top_k instead.", FutureWarning, stacklevel=4)
            top_k = topk
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
        limit = longest_input(self.model, self.tokenizer)
        if max_seq_len is None:
            max_seq_len = min(384, limit)
        check_at_least_one(max_seq_len=max_seq_len)
        if max_seq_len > limit:
            raise ValueError(f"max_seq_len is {max_seq_len}, but the model takes at most {limit} tokens.")
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
        remaining = iter(run_sorted(self.model, rows, self.collate, _starts_and_ends, batch_size))
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


def _starts_and_ends(outputs: Any, *_: Any) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    return zip(*(values.float().cpu().numpy() for values in (outputs.start_logits, outputs.end_logits)), strict=True)


def _given(parameters: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _one_per_question(inputs: dict[str, Any]) -> list[dict[str, Any]]:
    """One dict per question from a dict of lists; a single text next to a list is repeated."""
    columns: dict[str, Sequence[str]] = {}
    for key in ("question", "context"):
        if not isinstance(inputs.get(key), Sequence):
            raise ValueError(
                f"{key} is {' '.join(str(inputs.get(key)).split())[:60]}; expected a text or a list of texts."
            )
        columns[key] = inputs[key]
    count = max(len(column) for column in columns.values() if not isinstance(column, str))
    for key, column in columns.items():
        if isinstance(column, str):
            columns[key] = [column] * count
        elif len(column) != count:
            raise ValueError(
                f"found {len(inputs['question'])} questions and {len(inputs['context'])} contexts; expected one each."
            )
    return [{"question": question, "context": context} for question, context in zip(*columns.values(), strict=True)]
