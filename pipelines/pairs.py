"""Pipelines of text pairs: next sentence prediction and multiple choice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_MULTIPLE_CHOICE_MAPPING_NAMES,
    MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES,
)

from .batching import BatchedPipeline, check_at_least_one, logits_of

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
        return np.array(self.run_rows(rows, logits_of, batch_size), dtype=np.float64)

    def postprocess(self, logits: np.ndarray) -> list[dict[str, Any]]:
        """Label and probability of every pair."""
        scores, best = (values.tolist() for values in torch.from_numpy(logits).softmax(1).max(1))
        return [{"label": LABELS[label], "score": score} for label, score in zip(best, scores, strict=True)]

    def _pair(self, example: Any) -> tuple[str, str]:
        texts = (example.get("text"), example.get("text_pair")) if isinstance(example, dict) else example
        if not isinstance(texts, (list, tuple)) or len(texts) != 2 or not all(map(_is_text, texts)):
            raise self.unexpected(example)
        return texts[0], texts[1]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and value != ""


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
            if not all(isinstance(text, str) and text for text in texts):
                raise self.unexpected(example)
        pairs = [(example["prompt"], choice) for example in examples for choice in example["choices"]]
        rows = self.pair_rows([prompt for prompt, _ in pairs], [choice for _, choice in pairs])
        return {"examples": examples, "rows": rows}

    def collate(self, rows: Sequence[dict[str, np.ndarray]]) -> dict[str, torch.Tensor]:
        """Pass every row as a question with a single choice: the model scores each choice separately."""
        return {name: values.unsqueeze(1) for name, values in super().collate(rows).items()}

    def _forward(self, model_inputs: dict[str, Any], batch_size: int | None) -> dict[str, Any]:
        logits = self.run_rows(model_inputs["rows"], logits_of, batch_size)
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
