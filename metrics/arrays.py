"""Labels and numbers as checked arrays: invalid input raises an error instead of being scored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike


def label_arrays(
    predictions: ArrayLike, references: ArrayLike, dimensions: Sequence[int] = (1, 2)
) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true labels (integers, booleans or text) as arrays of one shape and kind."""
    labels = _array("predictions", predictions), _array("references", references)
    predicted, true = labels
    if predicted.ndim == true.ndim + 1:
        raise ValueError(
            f"predictions have shape {predicted.shape} and references {true.shape}: "
            "expected labels, so take the argmax of logits first"
        )
    if predicted.shape != true.shape or predicted.ndim not in dimensions:
        raise ValueError(
            f"predictions have shape {predicted.shape} and references {true.shape}: expected the same shape "
            f"with {' or '.join(map(str, dimensions))} dimensions"
        )
    if not len(true):
        raise ValueError("no example to score: predictions and references are empty")
    for name, values in zip(("predictions", "references"), labels, strict=True):
        if values.dtype.kind == "f" and not (values == np.floor(values)).all():  # false for nan as well
            found = values[values != np.floor(values)][0]
            raise ValueError(f"{name} hold {found}: expected labels, which are whole numbers or text")
    if is_text(predicted) != is_text(true):
        kinds = ["text" if is_text(values) else "numbers" for values in labels]
        raise ValueError(f"predictions are {kinds[0]} and references {kinds[1]}: expected labels of one kind")
    return labels


def score_arrays(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true numbers as arrays of shape `(examples,)`, at least two examples."""
    predicted, true = number_array("predictions", predictions), number_array("references", references)
    if predicted.shape != true.shape or predicted.ndim != 1:
        raise ValueError(
            f"predictions have shape {predicted.shape} and references {true.shape}: expected one number each "
            "per example"
        )
    if len(true) < 2:
        raise ValueError(f"a correlation needs at least two examples, found {len(true)}")
    for name, values in (("predictions", predicted), ("references", true)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} hold {int((~np.isfinite(values)).sum())} values that are not finite numbers")
    return predicted, true


def number_array(name: str, values: ArrayLike) -> np.ndarray:
    """Convert numbers to double precision; `name` is the array's name in error messages."""
    array = _array(name, values)
    if is_text(array):
        raise ValueError(f"{name} are text: expected numbers")
    return array.astype(np.float64)


def is_text(values: np.ndarray) -> bool:
    return values.dtype.kind == "U"


def _array(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" or (array.dtype.kind in "US" and not isinstance(values, np.ndarray)):
            # numpy converts numbers next to text into text.
            items = np.asarray(values, dtype=object).ravel().tolist()
            is_all_text = all(isinstance(item, str) for item in items)
            if not is_all_text and any(isinstance(item, (str, bytes)) or item is None for item in items):
                raise ValueError("values of several kinds, or none")
            array = array.astype(np.str_ if is_all_text else np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} are not labels or numbers in rows of equal length ({error})") from error
    if array.dtype.kind not in "biufU":
        raise ValueError(f"{name} are of type {array.dtype}: expected numbers or text")
    return array
