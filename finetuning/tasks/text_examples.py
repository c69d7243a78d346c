"""Examples and predictions of the classification and regression of texts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class TextExample:
    """A sentence or a pair, and its label: a name, several names, a number, or None if unknown."""

    texts: tuple[str, ...]
    label: str | frozenset[str] | float | None


@dataclass(frozen=True)
class LabelPrediction:
    """A predicted label, of the same type as an example's, and the probability of each class."""

    label: str | frozenset[str] | float
    probabilities: Mapping[str, float] = field(default_factory=dict)


def class_probabilities(
    predictions: Sequence[LabelPrediction], examples: Sequence[TextExample]
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities (examples, classes) and ids of the true classes (examples,)."""
    number = {name: place for place, name in enumerate(predictions[0].probabilities)}
    references = [number[str(example.label)] for example in examples]
    return np.array([list(prediction.probabilities.values()) for prediction in predictions]), np.array(references)


def label_probabilities(
    predictions: Sequence[LabelPrediction], examples: Sequence[TextExample]
) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of several labels (examples, labels), and whether each is true, of the same shape."""
    names = tuple(predictions[0].probabilities)
    holds = [[name in example.label for name in names] for example in examples]  # type: ignore[operator]
    return np.array([list(prediction.probabilities.values()) for prediction in predictions]), np.array(holds)
