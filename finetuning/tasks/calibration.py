"""What is fitted to predictions for validation data: temperatures, thresholds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

from typing_extensions import Self

T = TypeVar("T")  # a task


@dataclass(frozen=True)
class Calibrator:
    """Nothing to fit. The fields of a calibrator are fields of its task."""

    def fit(self, predictions: Sequence[Any], examples: Sequence[Any]) -> Self:
        """The calibrator, fitted to predictions for validation data."""
        return self

    def apply(self, predictions: Sequence[Any], examples: Sequence[Any]) -> Sequence[Any]:
        """Predictions for validation data, each decided by a fit to the others.

        Unlike those of a calibrator fitted to all of them, their metrics are not optimistic.
        """
        return predictions

    def measure(self, predictions: Sequence[Any], examples: Sequence[Any], held_out: bool = False) -> dict[str, float]:
        """The `expected_calibration_error` of predictions, and metrics of a `confidence_threshold`, if there is one.

        It is empty without probabilities of one class. With `held_out`, each part of the predictions is first fitted
        to the others.
        """
        return {}


def calibrator_of(task: Any) -> Calibrator:
    """The calibrator of a task, with the task's settings."""
    return task.calibrator(**{each.name: getattr(task, each.name) for each in fields(task.calibrator)})


def calibrated(task: T, predictions: Sequence[Any], examples: Sequence[Any]) -> T:
    """A task with settings fitted to predictions for validation data; itself if nothing is fitted."""
    before = calibrator_of(task)
    fitted = before.fit(predictions, examples)
    return task if fitted is before else replace(task, **vars(fitted))  # type: ignore[type-var]


def fitted_as(task: T, other: Any) -> T:
    """A task with the settings that were fitted to the predictions of another."""
    return replace(task, **{name: getattr(other, name) for name in other.fitted_fields})  # type: ignore[type-var]


def with_mean_fit(task: T, fits: Sequence[Any]) -> T:
    """A task with the mean of the settings fitted for several, such as those of folds."""
    means: dict[str, Any] = {}
    for name, mean in task.fitted_fields.items():  # type: ignore[attr-defined]
        values = [getattr(fit, name) for fit in fits]
        if all(isinstance(value, Mapping) for value in values):
            keys = dict.fromkeys(key for value in values for key in value)
            means[name] = {key: mean(value[key] for value in values if key in value) for key in keys}
        elif None not in values:
            means[name] = mean(values)
    return replace(task, **means)  # type: ignore[type-var]
