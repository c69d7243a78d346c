"""Metrics of labels and scores as plain functions on arrays, and GLUE's set of them.

Predictions come first and references second, as in `evaluate`. Everything is a fraction (0 to 1; correlations -1 to 1)
not a percentage. Invalid input raises an error instead of being scored.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

GLUE_METRICS: dict[str, tuple[str, ...]] = {
    "cola": ("matthews_correlation",),
    "sst2": ("accuracy",),
    "mrpc": ("accuracy", "f1"),
    "stsb": ("pearson", "spearmanr"),
    "qqp": ("accuracy", "f1"),
    "mnli": ("accuracy",),
    "mnli_matched": ("accuracy",),
    "mnli_mismatched": ("accuracy",),
    "qnli": ("accuracy",),
    "rte": ("accuracy",),
    "wnli": ("accuracy",),
    "ax": ("matthews_correlation",),
}
"""The metrics of every GLUE task (Wang et al. 2019, table 1; `ax` is the diagnostic set) under their usual keys."""


def accuracy(predictions: ArrayLike, references: ArrayLike) -> float:
    """Fraction of examples whose prediction equals the reference.

    Args:
        predictions: Labels, shape `(examples,)`, or multi-label indicators, shape `(examples, labels)`, where a row
            counts only if the whole of it is right.
        references: The same shape.

    Raises:
        ValueError: The shapes or kinds differ (text and numbers), there is no example, or the values are not labels.
    """
    predictions, references = _label_arrays(predictions, references)
    equal = predictions == references
    return float(np.mean(equal if equal.ndim == 1 else equal.all(axis=1)))


def f1(
    predictions: ArrayLike,
    references: ArrayLike,
    average: Literal["binary", "macro", "micro", "weighted"] = "binary",
    pos_label: int | str = 1,
) -> float:
    """F1 score as scikit-learn defines it; 0.0 where it is undefined (no positive predicted or true).

    Args:
        predictions: Labels, shape `(examples,)`, or multi-label indicators, shape `(examples, labels)`.
        references: The same shape.
        average: `"binary"` scores `pos_label` alone; `"macro"` is the mean over labels, `"weighted"` the same weighted
            by support, `"micro"` counts over all labels.
        pos_label: The positive label of `"binary"`.

    Raises:
        ValueError: The shapes or kinds differ (text and numbers), there is no example, these are no labels,
            `average` is unknown, or there are more than two labels for `"binary"`.
    """
    from sklearn.metrics import f1_score

    if average not in ("binary", "macro", "micro", "weighted"):
        raise ValueError(f"unknown average {average!r}; expected 'binary', 'macro', 'micro' or 'weighted'.")
    predictions, references = _label_arrays(predictions, references)
    labels = None
    if predictions.ndim == 2 and (average == "binary" or not np.isin([*predictions, *references], (0, 1)).all()):
        raise ValueError(
            f"F1 of rows with {predictions.shape[1]} labels each is for rows of 0 and 1, and with average='macro', "
            f"'micro' or 'weighted'; average is {average!r}."
        )
    if average == "binary":
        if isinstance(pos_label, str) != _is_text(references):
            kind = "text" if _is_text(references) else "numbers"
            raise ValueError(f"pos_label is {pos_label!r}, but the labels are {kind}; expected one of them.")
        # Requesting only this label avoids an error for data with a single class.
        found = set(np.unique(predictions).tolist()) | set(np.unique(references).tolist())
        if len(found | {pos_label}) > 2:
            raise ValueError(
                f"binary F1 needs two labels, found {sorted(found)} with positive label {pos_label!r}: "
                'choose average="macro", "micro" or "weighted".'
            )
        labels, average = [pos_label], "macro"
    elif predictions.ndim == 2 and predictions.shape[1] == 1:  # scikit-learn would treat its two values as two classes
        predictions, references, labels, average = predictions[:, 0], references[:, 0], [1], "macro"
    return float(f1_score(references, predictions, labels=labels, average=average, zero_division=0))


def matthews_correlation(predictions: ArrayLike, references: ArrayLike) -> float:
    """Matthews correlation coefficient in [-1, 1] (R_K for more than two classes); 0.0 where it is undefined.

    Arguments and errors are those of `accuracy`; labels have the shape `(examples,)`.
    """
    from sklearn.metrics import matthews_corrcoef

    predictions, references = _label_arrays(predictions, references, dimensions=(1,))
    return float(matthews_corrcoef(references, predictions))


def pearson(predictions: ArrayLike, references: ArrayLike) -> float:
    """Pearson correlation in [-1, 1]; 0.0 where it is undefined because one side is constant.

    Zero instead of scipy's nan, which would break comparisons of checkpoints and is not valid JSON.

    Args:
        predictions: Numbers, shape `(examples,)`.
        references: The same shape.

    Raises:
        ValueError: The shapes differ, there are fewer than two examples, or a value is not a finite number.
    """
    from scipy.stats import pearsonr

    return _correlation(pearsonr, predictions, references)


def spearman(predictions: ArrayLike, references: ArrayLike) -> float:
    """Spearman rank correlation in [-1, 1]; arguments, errors and 0.0 for a constant side are those of `pearson`."""
    from scipy.stats import spearmanr

    return _correlation(spearmanr, predictions, references)


def _correlation(function: Callable[..., Any], predictions: ArrayLike, references: ArrayLike) -> float:
    predictions, references = _score_arrays(predictions, references)
    if len(references) < 2:
        raise ValueError(f"a correlation needs at least two examples, found {len(references)}.")
    if np.ptp(predictions) == 0 or np.ptp(references) == 0:
        return 0.0
    return float(function(predictions, references).statistic)


def pearson_spearman(predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """Both correlations, as STS-B reports them: `{"pearson", "spearmanr"}`."""
    return {"pearson": pearson(predictions, references), "spearmanr": spearman(predictions, references)}


def errors_of_values(predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """Mean absolute error and root of the mean squared error, in the unit of the data: `{"mae", "rmse"}`."""
    errors = np.subtract(*_score_arrays(predictions, references))
    return {"mae": float(np.abs(errors).mean()), "rmse": float(np.sqrt(np.square(errors).mean()))}


def lower_is_better(metric: str) -> bool:
    """Whether a metric is a loss, a perplexity or an error of numbers (`mae`, `rmse`), and so no fraction.

    Args:
        metric: Its name, which names of data and columns may precede: `"dev_mae"`.
    """
    return metric.endswith("loss") or metric.rpartition("_")[2] in ("mae", "rmse", "perplexity")


def metric_of(name: str, metric: str) -> str:
    """A metric's name after that of its data, if that has one: `"dev_f1"`."""
    return f"{name}_{metric}" if name else metric


# What other metrics begin with: those of test data, of constant answers and of other calibrations.
_TAKEN = ("test", "eval", "majority", "mean_value", "uncalibrated", "held_out", "of")


def metric_of_class(name: str, metric: str) -> str:
    """The name of a metric of one class or column: `"person_f1"`; after `of_` if it would look like another's.

    Example:
        The F1 of the class `test` is `"of_test_f1"`: `"test_f1"` is that of all classes of the test data.
    """
    return metric_of(f"of_{name}" if f"{name}_".startswith(tuple(f"{taken}_" for taken in _TAKEN)) else name, metric)


_GLUE_FUNCTIONS = {
    "accuracy": accuracy,
    "f1": f1,
    "matthews_correlation": matthews_correlation,
    "pearson": pearson,
    "spearmanr": spearman,
}


def glue_metrics(task_name: str, predictions: ArrayLike, references: ArrayLike) -> dict[str, float]:
    """The official metrics of one GLUE task.

    Args:
        task_name: A key of `GLUE_METRICS`; upper case, hyphens and underscores do not matter (`"SST-2"`, `"sts_b"`).
        predictions: Label numbers (scores for STS-B), shape `(examples,)`.
        references: The same shape.

    Returns:
        The metrics under their usual keys, e.g. `{"accuracy": 0.86, "f1": 0.90}` for MRPC.

    Raises:
        ValueError: The task is unknown, or the arrays are invalid for it.
    """
    return {key: _GLUE_FUNCTIONS[key](predictions, references) for key in GLUE_METRICS[glue_task_name(task_name)]}


def glue_task_name(task_name: str) -> str:
    """The key of `GLUE_METRICS` for a task written in any of the usual ways (`"STS-B"`, `"MNLI-mm"`)."""
    folded = str(task_name).lower().replace("-", "").replace("_", "")
    names = {key.replace("_", ""): key for key in GLUE_METRICS} | {
        "mnlim": "mnli_matched",
        "mnlimm": "mnli_mismatched",
    }
    if folded not in names:
        raise ValueError(f"unknown GLUE task {task_name!r}; expected one of {', '.join(GLUE_METRICS)}.")
    return names[folded]


# --- checked arrays --------------------------------------------------------------------------------------------------


def _label_arrays(
    predictions: ArrayLike, references: ArrayLike, dimensions: Sequence[int] = (1, 2)
) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true labels (integers, booleans or text) as arrays of one shape and kind."""
    labels = _array("predictions", predictions), _array("references", references)
    predicted, true = labels
    if predicted.ndim == true.ndim + 1:
        raise ValueError(
            f"predictions have shape {predicted.shape} and references {true.shape}: "
            "expected labels, so take the argmax of logits first."
        )
    if predicted.shape != true.shape or predicted.ndim not in dimensions:
        raise ValueError(
            f"predictions have shape {predicted.shape} and references {true.shape}; expected the same shape "
            f"with {' or '.join(map(str, dimensions))} dimensions."
        )
    if not len(true):
        raise ValueError("no example to score: predictions and references are empty.")
    for name, values in zip(("predictions", "references"), labels, strict=True):
        if values.dtype.kind == "f" and not (values == np.floor(values)).all():  # false for nan as well
            found = values[values != np.floor(values)][0]
            raise ValueError(f"{name} hold {found}; expected labels, which are whole numbers or text.")
    if _is_text(predicted) != _is_text(true):
        kinds = ["text" if _is_text(values) else "numbers" for values in labels]
        raise ValueError(f"predictions are {kinds[0]} and references {kinds[1]}; expected labels of one kind.")
    return labels


def _score_arrays(predictions: ArrayLike, references: ArrayLike) -> tuple[np.ndarray, np.ndarray]:
    """Return predicted and true numbers as arrays of shape `(examples,)`, at least one example."""
    predicted, true = number_array("predictions", predictions), number_array("references", references)
    if predicted.shape != true.shape or predicted.ndim != 1:
        raise ValueError(
            f"predictions have shape {predicted.shape} and references {true.shape}; expected one number each "
            "per example."
        )
    if not len(true):
        raise ValueError("there is no example; expected at least one.")
    for name, values in (("predictions", predicted), ("references", true)):
        if not np.isfinite(values).all():
            raise ValueError(f"{name} hold {int((~np.isfinite(values)).sum())} values that are not finite numbers.")
    return predicted, true


def number_array(name: str, values: ArrayLike) -> np.ndarray:
    """Convert numbers to double precision; `name` is the array's name in error messages."""
    array = _array(name, values)
    if _is_text(array):
        raise ValueError(f"{name} are text; expected numbers.")
    return array.astype(np.float64)


def _is_text(values: np.ndarray) -> bool:
    return values.dtype.kind == "U"


def _array(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
        if array.dtype.kind == "O" or (array.dtype.kind in "US" and not isinstance(values, np.ndarray)):
            # numpy converts numbers next to text into text.
            items = np.asarray(values, dtype=object).ravel().tolist()
            is_all_text = all(isinstance(item, str) for item in items)
            if not is_all_text and any(isinstance(item, (str, bytes)) or item is None for item in items):
                raise ValueError("values of several kinds, or none.")
            array = array.astype(np.str_ if is_all_text else np.float64)
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError(f"{name} are not labels or numbers in rows of equal length ({error}).") from error
    if array.dtype.kind not in "biufU":
        raise ValueError(f"{name} are of type {array.dtype}; expected numbers or text.")
    return array
