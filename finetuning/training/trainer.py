"""`Trainer` that trains and evaluates a model on a task; which checkpoint is best, and the loss with weights."""

import inspect
import logging
import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from accelerate.utils import recursively_apply
from torch import nn
from torch.utils.data import DataLoader
from transformers import PreTrainedModel, TrainerCallback, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput, EvalPrediction

from ...files.errors import how_to_install
from ...modeling_mybert import flat_indices, mean_of
from ...runs import OPTIMIZERS, ResumableTrainer
from ..data import LABEL_ARGUMENTS, WINDOW_WEIGHT, TaskData
from ..heads import output_layer
from ..tasks.calibration import calibrator_of
from ..tasks.losses import ItemLoss, label_counts
from ..tasks.steps import network_outputs
from .finetune_settings import FinetuneSettings
from .parameters import layerwise_groups
from .plan import FinetunePlan
from .preparation import TaskRun, fold_numbers

logger = logging.getLogger(__name__)

_REPEATED = "is_repeated"  # extra key of a batch whose loss does not count
_BOOKKEEPING = ("runtime", "samples_per_second", "steps_per_second", "epoch", "model_preparation_time")


def loss_in(metrics: Mapping[str, Any]) -> float:
    """The loss among the metrics of an evaluation, the first one if there are several; infinite if there is none."""
    return float(next((value for name, value in metrics.items() if name.endswith("loss")), math.inf))


class LossBreaksTies(TrainerCallback):
    """Lets an evaluation be better than the best one if its metric is equal and its loss lower."""

    # `Trainer` would keep the first of them: that of the first epoch if F1 is 0 in all.
    def on_evaluate(
        self, args: Any, state: Any, control: Any, metrics: Mapping[str, float] | None = None, **kwargs: Any
    ) -> None:
        """Lower the best metric so far by a hair, before `Trainer` and early stopping compare with it."""
        name = f"eval_{str(args.metric_for_best_model).removeprefix('eval_')}"
        value = (metrics or {}).get(name)
        if metrics is None or value is None or value != state.best_metric or state.best_global_step is None:
            return  # without checkpoints no step is the best
        best = next(
            entry for entry in state.log_history if entry.get("step") == state.best_global_step and name in entry
        )
        if loss_in(metrics) < loss_in({key: entry for key, entry in best.items() if key in metrics}):
            state.best_metric = math.nextafter(value, -math.inf if args.greater_is_better else math.inf)


def balanced_weights(data: TaskData, classes: int) -> torch.Tensor:
    """A weight for each class: the mean number of labels of a class by the class's own (scikit-learn's "balanced")."""
    counts = label_counts(data, classes)
    weights = np.where(counts > 0, counts.sum() / (np.count_nonzero(counts) * np.where(counts > 0, counts, 1)), 1.0)
    return torch.tensor(weights, dtype=torch.float32)


class TaskLoss:
    """The loss of a batch against its labels, weighted by sequence if the batch has `WINDOW_WEIGHT`."""

    def __init__(self, items: ItemLoss) -> None:
        self.items = items

    def __call__(
        self, outputs: Any, batch: Mapping[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The sum over items, divided by the `count` of the optimizer step, or, if that is None, of the batch."""
        each = self.items.of_labels(self.items.logits(outputs), batch)
        total = weighted_sum(each, self.items.labeled(batch), batch.get(WINDOW_WEIGHT))
        return mean_of(total, self.count(batch) if num_items_in_batch is None else num_items_in_batch)

    def count(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The number of items that count, weighted by their sequences."""
        there = self.counted(batch)
        return weighted_sum(torch.ones(there.shape, device=there.device), there, batch.get(WINDOW_WEIGHT))

    def counted(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Which items count: those with a label."""
        return self.items.labeled(batch)


def weighted_sum(each: torch.Tensor, there: torch.Tensor, shares: torch.Tensor | None) -> torch.Tensor:
    """The sum over the marked items, weighted by their sequences."""
    each = each.masked_fill(~there, 0.0)
    if shares is not None:
        each = each * shares.reshape(-1, *[1] * (each.ndim - 1))
    return each.sum()


def _has_windows(run: TaskRun) -> bool:
    """Whether any labeled data of a run has sequence weights."""
    return any(WINDOW_WEIGHT in data.inputs for data in (run.train, *run.validation.values(), *run.test.values()))


def task_loss(run: TaskRun, plan: FinetunePlan) -> TaskLoss | None:
    """The loss that replaces the model's own: with weights of classes or windows, or with labels that have holes."""
    items: Any = run.task.loss
    if plan.settings.label_smoothing_factor:
        items = replace(items, label_smoothing=plan.settings.label_smoothing_factor)
    if not plan.settings.class_weights:
        return TaskLoss(items) if items.is_never_the_models_own or _has_windows(run) else None
    assert run.labels is not None
    weights = balanced_weights(run.train, len(run.labels.names))
    rounded = ", ".join(
        f"{name} {weight:.3g}" for name, weight in zip(run.labels.names, weights.tolist(), strict=True)
    )
    logger.info("Weights of the classes: %s.", rounded if len(rounded) < 200 else f"{rounded[:197]}...")
    return TaskLoss(replace(items, class_weights=weights))


def _with_token_indices(collate: Callable[[list[Any]], dict[str, Any]], rows: list[Any]) -> dict[str, Any]:
    """Add to a batch the indices of its tokens, computed on the CPU."""
    batch = collate(rows)
    if (mask := batch.get("attention_mask")) is not None:
        batch["token_indices"] = flat_indices(mask)
    return batch


def _row_count(batch: Mapping[str, Any]) -> int:
    values = (value for name, value in batch.items() if name != "token_indices")
    return next(len(value) for value in values if isinstance(value, torch.Tensor))


def _first_rows(batch: dict[str, Any], count: int) -> dict[str, Any]:
    return {name: value[:count] if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


class TaskTrainer(ResumableTrainer):
    """`Trainer` with the task's metrics and learning rates by layer."""

    of_the_loss: tuple[str, ...] = (*LABEL_ARGUMENTS, WINDOW_WEIGHT)  # its inputs, unless it is the model's own

    def __init__(self, run: TaskRun, plan: FinetunePlan, args: TrainingArguments, **kwargs: Any) -> None:
        validation = dict(run.validation)
        if _has_windows(run):
            args.remove_unused_columns = False  # the weights are inputs of the loss, not of the model
        super().__init__(
            args=args,
            eval_dataset=validation.get("", validation) or None,
            processing_class=run.tokenizer,
            compute_metrics=lambda prediction: {},  # without one, Trainer does not keep the logits
            optimization=plan.settings.optimization,
            **{"train_dataset": run.train, "compute_loss_func": task_loss(run, plan), **kwargs},
        )
        self.run, self.plan = run, plan
        network = self.model.get_base_model() if plan.settings.has_adapter else self.model
        self.data_collator = run.task.collator(run.tokenizer, network)
        is_mybert = getattr(getattr(network, "config", None), "model_type", None) == "mybert"
        # Several GPUs in one process would split the indices; a compiled model also computes padding.
        if is_mybert and args.n_gpu <= 1 and not args.torch_compile:
            self.data_collator = partial(_with_token_indices, self.data_collator)
        # `Trainer` checks for **kwargs, which many models ignore: their accumulated gradients would not be divided.
        self.model_accepts_loss_kwargs = "num_items_in_batch" in inspect.signature(network.forward).parameters

    def get_batch_samples(self, epoch_iterator: Iterator[dict[str, Any]], *args: Any) -> Any:
        """`Trainer.get_batch_samples`, without the examples that accelerate repeats to fill the last batches."""
        # A process that has no other example in its last batch keeps one, whose loss does not count.
        return super().get_batch_samples(map(self._own_rows, epoch_iterator), *args)

    def _own_rows(self, batch: dict[str, Any]) -> dict[str, Any]:
        """A batch without repeated examples, but for one, marked as `_REPEATED`, if it has no other."""
        size = _row_count(batch)
        own = self.count_own_rows(size) if self.args.world_size > 1 else size
        if own == size:
            return batch
        batch = {name: value for name, value in batch.items() if name != "token_indices"}
        return _first_rows(batch, max(1, own)) | ({_REPEATED: True} if own < 1 else {})

    def prediction_step(self, model: nn.Module, inputs: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """`Trainer.prediction_step`, whose loss is the mean over all processes, without repeated examples."""
        if self.args.world_size == 1:
            return super().prediction_step(model, inputs, *args, **kwargs)
        batch = self._own_rows(inputs)
        is_repeated = batch.pop(_REPEATED, False)
        loss, *outputs = super().prediction_step(model, batch, *args, **kwargs)
        if loss is not None:
            count = self._count_here(batch).to(loss) * (not is_repeated)
            total = (loss * count).where(count > 0, 0)  # the loss of no label may be NaN
            total, count = self.accelerator.reduce(torch.stack([total, count]), reduction="sum")
            loss = total / count
        if batch is not inputs:  # all processes gather equally many rows, and `Trainer` drops what is too much
            rows = torch.arange(_row_count(inputs), device=self.args.device).clamp(max=_row_count(batch) - 1)
            outputs = recursively_apply(lambda values: values[rows], outputs)
        return loss, *outputs

    def count_items(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """The `count` of the loss, or the number of labels, without repeated examples; an answer counts once."""
        batches = [_first_rows(batch, 0) if _REPEATED in batch else batch for batch in batches]
        if self.compute_loss_func is None:
            name = "start_positions" if "start_positions" in batches[0] else "labels"
            return self.count_labels(batches, device, name)
        loss: Any = self.compute_loss_func
        total = torch.stack([loss.count(batch) for batch in batches]).sum(0).to(device)
        return self.accelerator.gather(total[None]).sum(0) if self.args.average_tokens_across_devices else total

    def _count_here(self, batch: dict[str, Any]) -> torch.Tensor:
        """The number of items over which the loss of a batch in this process is a mean."""
        if self.compute_loss_func is None:
            return self.run.task.loss.labeled(batch).sum()
        loss: Any = self.compute_loss_func
        return loss.count(batch).flatten()[0]

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """`Trainer.compute_loss`, whose `labels` may be all inputs of the loss, see `with_all_for_the_loss`."""
        counts = not inputs.pop(_REPEATED, False)
        if not model.training:  # `Trainer` counts labels only, and those of all processes
            alone = self.args.world_size == 1
            num_items_in_batch = self.count_items([inputs], self.args.device) if alone else None
        is_outside = self.compute_loss_func is not None or (self.label_smoother is not None and "labels" in inputs)
        loss, outputs = super().compute_loss(
            model, self.with_all_for_the_loss(inputs), return_outputs=True, num_items_in_batch=num_items_in_batch
        )
        if is_outside and num_items_in_batch is not None and self.args.average_tokens_across_devices:
            # `Trainer` multiplies by the number of GPUs of the process, as if each had computed the loss of its rows.
            loss = loss / max(1, self.args.n_gpu)
        loss = loss if counts else 0 * loss
        return (loss, outputs) if return_outputs else loss

    def with_all_for_the_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The model inputs of a batch, with all inputs of a loss that is not the model's own, by name, as `labels`."""
        if self.compute_loss_func is None:
            return inputs
        batch = {name: inputs[name] for name in self.of_the_loss if inputs.get(name) is not None}
        return {name: value for name, value in inputs.items() if name not in self.of_the_loss} | {"labels": batch}

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        """The optimizer of the arguments, by default AdamW with bias correction, with parameter groups by layer."""
        args: Any = self.args
        factors = self.plan.settings.layer_decay, args.weight_decay, self.plan.value("embedding_learning_rate")

        def groups(rate: float) -> list[dict[str, Any]]:
            return layerwise_groups(self.model, rate, *factors)

        if self.optimizer is None and args.optim in OPTIMIZERS:
            self.optimizer = self.own_optimizer(args.optim, self.model, groups)
        elif self.optimizer is None:
            optimizer_class, options = self.get_optimizer_cls_and_kwargs(args, self.model)
            self.optimizer = optimizer_class(groups(args.learning_rate), **options)
        return super().create_optimizer(model)

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """`Trainer`'s, with the task's metrics for this data."""
        data: Any = dataloader.dataset
        is_validation = kwargs.get("metric_key_prefix", "eval").startswith("eval")

        def score(output: EvalPrediction) -> dict[str, float]:
            task = self.run.task
            predictions: Any = task.predict(output.predictions, data, self.run.labels)
            if is_validation:
                predictions = calibrator_of(task).apply(predictions, data.examples)
            return task.measures(predictions, data.examples).scores()

        self.compute_metrics = score
        return super().evaluation_loop(dataloader, *args, **kwargs)

    def evaluate_all(self, split: str, data: Mapping[str, TaskData]) -> tuple[dict[str, float], dict[str, Any]]:
        """Metrics, without those of speed, and outputs by name of every data set, unless training ended with that."""
        metrics: dict[str, float] = {}
        outputs: dict[str, Any] = {}
        for name, examples in data.items():
            prefix = f"{split}_{name}" if name else split
            output = self.evaluation_in_training(prefix) or self.predict(examples, metric_key_prefix=prefix)
            outputs[name] = output.predictions
            measured = {key: float(value) for key, value in (output.metrics or {}).items()}
            metrics |= {key: measured[key] for key in measured if key.removeprefix(f"{prefix}_") not in _BOOKKEEPING}
        if metrics:
            self.log(dict(metrics))
        return metrics, outputs


_FOLDS = 5  # at most
# Scikit-learn's C: the inverse strength of the regularization. Of equally good ones the first is taken.
_STRENGTHS = (1.0, 0.1, 10.0, 0.01, 100.0, 1e-3)
_LEAST = 1e-15  # probability, for the logarithm


def fit_linear_probe(model: PreTrainedModel, run: TaskRun, settings: FinetuneSettings) -> None:
    """Fit the output layer to the training data by scikit-learn, with all else frozen: an ordinary classifier.

    The strength of the regularization is that with the lowest loss in cross-validation, where equal texts are in one
    fold. Vectors are centered and scaled, which is folded into the layer.
    """
    data, layer, loss = run.train, output_layer(model), run.task.loss
    assert layer is not None
    make = _estimators(loss.is_regression, settings.class_weights)
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
    folds = np.zeros(len(data.examples), dtype=int)
    if count > 1:
        folds[:] = fold_numbers(run.task, data.examples, count, settings.sampling_seed)
    folds = folds[owners]
    weights = np.asarray(data.inputs.get(WINDOW_WEIGHT, np.ones(len(vectors))))
    targets = np.asarray(data.inputs["labels"])
    slopes = np.zeros(layer.weight.shape)
    offsets = layer.bias.numpy(force=True).astype(np.float64)  # of labels that all texts have, or none
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the number of steps
        if loss.has_independent_outputs:
            for number, column in enumerate(targets.reshape(len(targets), -1).T):
                there = ~np.isnan(column)
                if there.any() and (loss.is_regression or len(np.unique(column[there])) > 1):
                    fitted = _best(make, vectors[there], column[there], weights[there], folds[there])
                    slopes[number], offsets[number] = fitted.coef_.ravel(), np.ravel(fitted.intercept_)[0]
        else:
            found, at, rows = np.zeros((1, vectors.shape[1])), np.zeros(1), np.unique(targets)  # of a single class
            if len(rows) > 1:
                fitted = _best(make, vectors, targets, weights, folds)
                found, at, rows = fitted.coef_, fitted.intercept_, fitted.classes_
            if len(rows) == 2:  # one logit, of the second class against the first
                found, at = (np.concatenate([-half, half]) / 2 for half in (found, at))
            offsets[:] = at.min() - np.log1p(len(targets))  # of classes without an example
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
        raise ImportError(f"A linear probe needs scikit-learn: {how_to_install('train')} ({error}).") from error
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
        for fold in np.unique(folds):
            is_out = folds == fold
            if len(np.unique(targets[~is_out])) > 1:
                fitted = make(strength).fit(vectors[~is_out], targets[~is_out], weights[~is_out])
                losses.append(_probe_loss(fitted, vectors[is_out], targets[is_out]))
        return sum(losses)

    losses = {strength: held_out_loss(strength) for strength in _STRENGTHS}
    chosen = min(losses, key=losses.__getitem__)
    logger.info("Linear probe on %d vectors: C = %g, by cross-validation.", len(vectors), chosen)
    return make(chosen).fit(vectors, targets, weights)


def _probe_loss(fitted: Any, vectors: np.ndarray, targets: np.ndarray) -> float:
    """The sum of the log losses, or of the squared errors of numbers."""
    if not hasattr(fitted, "classes_"):
        return float(np.square(fitted.predict(vectors) - targets).sum())
    is_target = targets[:, None] == fitted.classes_  # a class without an example has probability 0
    return float(-np.log(np.maximum((fitted.predict_proba(vectors) * is_target).sum(1), _LEAST)).sum())
