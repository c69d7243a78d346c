"""A linear probe: logistic or ridge regression on the vectors that a model's head reads, written into the head."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel

from ..network.heads import output_layer
from ..tasks.task import WINDOW_WEIGHT, network_outputs
from .finetuning_arguments import FinetuningArguments
from .preparation import TaskRun, fold_numbers

logger = logging.getLogger(__name__)

_FOLDS = 5  # at most
# Scikit-learn's C: the inverse strength of the regularization. Of equally good ones the first is taken.
_STRENGTHS = (1.0, 0.1, 10.0, 0.01, 100.0, 1e-3)
_LEAST = 1e-15  # probability, for the logarithm


def fit_linear_probe(model: PreTrainedModel, run: TaskRun, arguments: FinetuningArguments) -> None:
    """Fit the output layer to the training data by scikit-learn, with all else frozen: an ordinary classifier.

    The strength of the regularization is that with the lowest loss in cross-validation, where equal texts are in one
    fold. Vectors are centered and scaled, which is folded into the layer.
    """
    data, layer = run.train, output_layer(model)
    assert layer is not None
    hook = layer.register_forward_hook(lambda module, inputs, outputs: inputs[0])  # what it reads: (n, D)
    try:
        found: Any = network_outputs(run.task, data, model.eval(), run.tokenizer, shared=True, progress=True)
    finally:
        hook.remove()
    vectors = np.stack(found).astype(np.float64)
    mean, deviation = vectors.mean(0), vectors.std() or 1.0  # one deviation for all features keeps directions
    vectors = (vectors - mean) / deviation
    owners = range(len(vectors)) if data.layout is None else data.layout  # of windows: their text
    count = min(_FOLDS, len({run.task.group_of(example) for example in data.examples}))
    folds = np.array(fold_numbers(run.task, data.examples, count, arguments.sampling_seed))[owners]
    weights = np.asarray(data.inputs.get(WINDOW_WEIGHT, np.ones(len(vectors))))
    targets = np.asarray(data.inputs["labels"])
    slopes = np.zeros(layer.weight.shape)
    offsets = layer.bias.detach().double().numpy(force=True)  # of labels that all texts have, or none
    make = _estimators(run.task.objective == "value", arguments.class_weights)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the number of steps
        if run.task.objective == "labels":
            for number, column in enumerate(targets.T):
                if 0 < column.sum() < len(column):
                    fitted = _best(make, vectors, column, weights, folds)
                    slopes[number], offsets[number] = fitted.coef_[0], fitted.intercept_[0]
        else:
            fitted = _best(make, vectors, targets, weights, folds)
            found, at = np.atleast_2d(fitted.coef_), np.atleast_1d(fitted.intercept_)
            rows = getattr(fitted, "classes_", np.arange(1))
            if len(rows) == 2:  # one logit, of the second class against the first
                found, at = (np.concatenate([-half, half]) / 2 for half in (found, at))
            offsets[:] = at.min() - np.log(len(targets))  # of classes without an example
            slopes[rows], offsets[rows] = found, at
    slopes /= deviation
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(slopes))
        layer.bias.copy_(torch.from_numpy(offsets - slopes @ mean))


def _estimators(is_of_values: bool, class_weight: str | None) -> Callable[[float], Any]:
    """Makes a regression of a strength."""
    try:
        from sklearn.linear_model import LogisticRegression, Ridge
    except ImportError as error:
        raise ImportError(f"A linear probe needs scikit-learn: pip install mybert[train] ({error}).") from error
    if is_of_values:
        return lambda strength: Ridge(alpha=1 / strength)
    logistic = partial(LogisticRegression, max_iter=1000, class_weight=class_weight)
    return lambda strength: logistic(C=strength)


def _best(
    make: Callable[[float], Any], vectors: np.ndarray, targets: np.ndarray, weights: np.ndarray, folds: np.ndarray
) -> Any:
    """The regression on all vectors, of the strength with the lowest loss on vectors that it was not fitted to."""

    def held_out_loss(strength: float) -> float:
        losses = [0.0]
        for fold in range(folds.max() + 1):
            is_out = folds == fold
            if len(np.unique(targets[~is_out])) > 1:
                fitted = make(strength).fit(vectors[~is_out], targets[~is_out], weights[~is_out])
                losses.append(_loss(fitted, vectors[is_out], targets[is_out]))
        return sum(losses)

    losses = {strength: held_out_loss(strength) for strength in _STRENGTHS}
    chosen = min(losses, key=losses.__getitem__)
    logger.info("Linear probe on %d vectors: C = %g, by cross-validation.", len(vectors), chosen)
    return make(chosen).fit(vectors, targets, weights)


def _loss(fitted: Any, vectors: np.ndarray, targets: np.ndarray) -> float:
    """The sum of the log losses, or of the squared errors of numbers."""
    if not hasattr(fitted, "classes_"):
        return float(np.square(fitted.predict(vectors) - targets).sum())
    is_target = targets[:, None] == fitted.classes_  # a class without an example has probability 0
    return float(-np.log(np.maximum((fitted.predict_proba(vectors) * is_target).sum(1), _LEAST)).sum())
