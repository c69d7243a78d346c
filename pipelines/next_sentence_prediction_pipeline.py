"""`pipeline("next-sentence-prediction")`: predict whether the second text follows the first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_NEXT_SENTENCE_PREDICTION_MAPPING_NAMES

from .batched_pipeline import BatchedPipeline

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
        logits = np.empty((len(rows), len(LABELS)))
        for places, inputs in self.batches(rows, batch_size):
            logits[places] = self.model(**inputs).logits.float().cpu().numpy()
        return logits

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
