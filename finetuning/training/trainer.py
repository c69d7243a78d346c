"""`Trainer` that trains and evaluates a model on a task; which checkpoint is best, and weighted losses."""

import inspect
import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy
from torch.utils.data import DataLoader
from transformers import TrainerCallback
from transformers.trainer_utils import EvalLoopOutput, EvalPrediction

from ...modeling_mybert import IGNORE_INDEX, flat_indices, mean_of
from ...runs import MyBertAdamW, ResumableTrainer
from ..data import LABEL_ARGUMENTS
from ..tasks.task import WINDOW_WEIGHT, Objective, TaskData
from .finetuning_arguments import FinetuningArguments
from .parameters import layerwise_groups
from .preparation import TaskRun
from .samples import label_counts

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


def weighted_loss(
    weights: torch.Tensor | None, label_smoothing: float = 0.0, objective: Objective = "classes"
) -> Callable[..., torch.Tensor]:
    """A loss function for `Trainer` with class weights (C,) or sequence weights, for any objective but "span"."""

    # logits (..., C); a batch has `labels` (...) and, as `WINDOW_WEIGHT`, sequence weights (N,), unless all are 1. The
    # weighted sum is divided by the weighted number of labels of the optimizer step, or, if that is None, by the sum
    # of the labels' weights.
    def loss(
        outputs: Any, batch: Mapping[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        logits, labels, shares = outputs["logits"].float(), batch["labels"], batch.get(WINDOW_WEIGHT)
        if objective == "value":
            each = (logits.squeeze(-1) - labels.float()).square()
            counted = torch.ones_like(each)
        elif objective == "labels":
            each = binary_cross_entropy_with_logits(logits, labels.float(), reduction="none")
            counted = torch.ones_like(each)
        else:
            labels, by_class = labels.reshape(-1), torch.ones(logits.shape[-1]) if weights is None else weights
            by_class = by_class.to(logits.device)
            each = cross_entropy(
                logits.flatten(0, -2), labels, by_class, reduction="none", label_smoothing=label_smoothing
            )
            counted = by_class[labels.clamp(min=0)] * (labels != IGNORE_INDEX)
        if shares is not None:
            shares = shares.reshape(-1, *[1] * (each.ndim - 1))
            each, counted = each * shares, counted * shares
        return mean_of(each.sum(), counted.sum() if num_items_in_batch is None else num_items_in_batch)

    return loss


def _has_windows(run: TaskRun) -> bool:
    """Whether any labelled data of a run has sequence weights."""
    return any(WINDOW_WEIGHT in data.inputs for data in (run.train, *run.validation.values(), *run.test.values()))


def _loss(run: TaskRun, args: FinetuningArguments) -> Callable[..., torch.Tensor] | None:
    """The loss that replaces the model's own if classes have weights or texts are read in windows."""
    if not args.class_weights:
        return weighted_loss(None, args.label_smoothing_factor, run.task.objective) if _has_windows(run) else None
    assert run.labels is not None
    weights = balanced_weights(run.train, len(run.labels.names))
    rounded = ", ".join(
        f"{name} {weight:.3g}" for name, weight in zip(run.labels.names, weights.tolist(), strict=True)
    )
    logger.info("Weights of the classes: %s.", rounded if len(rounded) < 200 else f"{rounded[:197]}...")
    return weighted_loss(weights, args.label_smoothing_factor, run.task.objective)


def _with_token_indices(collate: Callable[[list[Any]], dict[str, Any]], rows: list[Any]) -> dict[str, Any]:
    """Add to a batch the indices of its tokens, computed on the CPU, unless rows are padded on the left."""
    batch = collate(rows)
    mask = batch.get("attention_mask")
    if mask is not None and mask[..., 0].all():
        batch["token_indices"] = flat_indices(mask)
    return batch


def _first_rows(batch: dict[str, Any], count: int) -> dict[str, Any]:
    return {name: value[:count] if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


class TaskTrainer(ResumableTrainer):
    """`Trainer` with the task's metrics and learning rates by layer."""

    args: FinetuningArguments
    of_the_loss: tuple[str, ...] = (*LABEL_ARGUMENTS, WINDOW_WEIGHT)  # its inputs, unless it is the model's own

    def __init__(self, run: TaskRun, args: FinetuningArguments, **kwargs: Any) -> None:
        args.choose_learning_rate()
        validation = dict(run.validation)
        if _has_windows(run):
            args.remove_unused_columns = False  # the weights are inputs of the loss, not of the model
        super().__init__(
            args=args,
            train_dataset=run.train,
            eval_dataset=validation.get("", validation) or None,
            processing_class=run.tokenizer,
            compute_metrics=lambda prediction: {},  # without one, Trainer does not keep the logits
            **{"compute_loss_func": _loss(run, args), **kwargs},
        )
        self.run = run
        network = self.model.get_base_model() if args.has_adapter else self.model
        self.data_collator = run.task.collator(run.tokenizer, network)
        is_ours = getattr(getattr(network, "config", None), "model_type", None) == "mybert"
        # Several GPUs in one process would split the indices; a compiled model also computes padding.
        if is_ours and args.n_gpu <= 1 and not args.torch_compile:
            self.data_collator = partial(_with_token_indices, self.data_collator)
        # `Trainer` checks for **kwargs, which many models ignore: their accumulated gradients would not be divided.
        self.model_accepts_loss_kwargs = "num_items_in_batch" in inspect.signature(network.forward).parameters

    def get_batch_samples(self, epoch_iterator: Iterator[dict[str, Any]], *args: Any) -> Any:
        """`Trainer.get_batch_samples`, without the examples that accelerate repeats to fill the last batches."""
        # A process that has no other example in its last batch keeps one, whose loss does not count.
        return super().get_batch_samples(map(self._without_repeated, epoch_iterator), *args)

    def _without_repeated(self, batch: dict[str, Any]) -> dict[str, Any]:
        state = self.accelerator.gradient_state
        if self.args.world_size == 1 or not (state.end_of_dataloader and state.remainder > 0):
            return batch
        batch = {name: value for name, value in batch.items() if name != "token_indices"}
        size = next(len(value) for value in batch.values() if isinstance(value, torch.Tensor))
        own = state.remainder - self.args.process_index * size  # real examples come first
        return _first_rows(batch, max(1, own)) | ({_REPEATED: True} if own < 1 else {})

    def count_items(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """`count_own` of the batches, without repeated examples."""
        return self.count_own([_first_rows(batch, 0) if _REPEATED in batch else batch for batch in batches], device)

    def count_own(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """The number of labels, weighted by their sequences; an answer counts once, by its start."""
        if batches and WINDOW_WEIGHT in batches[0]:
            counts = [batch[WINDOW_WEIGHT].sum() * batch["labels"][:1].numel() for batch in batches]
            total = torch.stack(counts).sum().to(device)
            return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total
        return self.count_labels(batches, device, "start_positions" if "start_positions" in batches[0] else "labels")

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> Any:
        """`Trainer.compute_loss`, whose `labels` may be all inputs of the loss, see `with_all_for_the_loss`."""
        counts = not inputs.pop(_REPEATED, False)
        if not model.training:  # `Trainer` counts labels only
            num_items_in_batch = self.count_items([inputs], self.args.device)
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
        if self.optimizer is None:
            args: Any = self.args
            rates = (args.learning_rate, args.layer_decay, args.weight_decay, args.embedding_learning_rate)
            groups = layerwise_groups(self.model, *rates)
            optimizer_class, options = self.get_optimizer_cls_and_kwargs(args, self.model)
            if not args.correct_bias:
                optimizer_class, options = MyBertAdamW, options | {"correct_bias": False}
            self.optimizer = optimizer_class(groups, **options)
        return super().create_optimizer(model)

    def evaluation_loop(self, dataloader: DataLoader, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """`Trainer`'s, with the task's metrics for this data."""
        data: Any = dataloader.dataset
        is_validation = kwargs.get("metric_key_prefix", "eval").startswith("eval")

        def score(output: EvalPrediction) -> dict[str, float]:
            predictions: Any = self.run.task.predict(output.predictions, data, self.run.labels)
            if is_validation:
                predictions = self.run.task.cross_fitted(predictions, data.examples)
            return self.run.task.score(predictions, data.examples)

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
