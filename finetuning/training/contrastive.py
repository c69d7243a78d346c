"""Contrastive training, for few labels: texts with equal labels get similar vectors, to which a head is then fitted.

Tunstall et al. (2022), "Efficient Few-Shot Learning Without Prompts", train on pairs, and compute both texts of each.
A step here computes each of its texts once, and learns from all pairs of them.
"""

import logging
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch.nn.functional import normalize
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, TrainOutput

from ...modeling_mybert import mean_of
from ...modeling_mybert.losses_mybert import full_precision
from ..data import TaskData
from ..heads import output_layer
from ..tasks.losses import ItemLoss
from .plan import FinetunePlan, pair_training
from .preparation import TaskRun
from .trainer import TaskLoss, TaskTrainer, task_loss

logger = logging.getLogger(__name__)

_NEAR = 0.9  # fraction of the highest similarity of labels, from which a text is a partner


class PairLoss(TaskLoss):
    """Squared difference between the cosine of two vectors and the similarity of their labels, over pairs of a batch.

    Similar and dissimilar pairs count equally. The vectors are outputs of a model whose head is its own input.
    """

    def __init__(self, items: ItemLoss, spread: torch.Tensor) -> None:
        super().__init__(items)
        self.spread = spread

    def __call__(
        self, outputs: Any, batch: Mapping[str, torch.Tensor], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """The mean over pairs, times the texts of the batch, divided by those of the optimizer step."""
        is_labeled = self._is_labeled(batch)
        vectors, labels = normalize(full_precision(outputs["logits"])[is_labeled], dim=-1), batch["labels"][is_labeled]
        similarity = self.items.similarity(labels, labels, self.spread.to(labels.device)).to(vectors)
        errors = (vectors @ vectors.T - similarity).square()
        is_pair = 1 - torch.eye(len(labels), device=labels.device, dtype=vectors.dtype)
        near, far = similarity * is_pair, (1 - similarity) * is_pair
        mean = (mean_of((errors * near).sum(), near.sum()) + mean_of((errors * far).sum(), far.sum())) / 2
        return mean if num_items_in_batch is None else mean * self.count(batch) / num_items_in_batch

    def count(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """The number of labeled texts."""
        return self._is_labeled(batch).sum().float()

    def _is_labeled(self, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return self.items.labeled(batch).reshape(len(batch["labels"]), -1).any(-1)


def label_spread(labels: torch.Tensor) -> torch.Tensor:
    """The difference between largest and smallest label, by column; NaN is no label."""
    numbers = labels.float()
    return numbers.nan_to_num(-torch.inf).amax(0) - numbers.nan_to_num(torch.inf).amin(0)


def paired(data: TaskData, loss: ItemLoss, batches: int, batch: int, seed: int) -> tuple[TaskData, torch.Tensor]:
    """Training data in the order of its steps, half of each batch with a partner, and the spread of the labels.

    A partner is a text with an equal label, or one of the most similar; a text that has none is its own.
    """
    labels = torch.as_tensor(np.asarray(data.inputs["labels"]))
    spread = label_spread(labels)
    generator = np.random.default_rng(seed)
    anchors = batches * batch // 2
    epochs = [generator.permutation(len(labels)) for _ in range(math.ceil(anchors / len(labels)))]
    order: list[int] = []
    for anchor in np.concatenate(epochs)[:anchors].tolist():
        similarity = loss.similarity(labels[anchor : anchor + 1], labels, spread)[0]
        similarity[anchor] = 0
        highest = similarity.max()
        near = torch.nonzero(similarity >= _NEAR * highest).flatten() if highest > 0 else torch.tensor([anchor])
        order += [anchor, int(near[generator.integers(len(near))])]
    inputs = {name: [values[index] for index in order] for name, values in data.inputs.items()}
    return replace(data, inputs=inputs, layout=None), spread


class ContrastiveTrainer(TaskTrainer):
    """A trainer that learns from pairs of texts, and evaluates as all trainers of tasks."""

    def __init__(self, run: TaskRun, plan: FinetunePlan, args: TrainingArguments, **kwargs: Any) -> None:
        texts = len(run.train)
        training = pair_training(plan.settings, args, texts)
        args.max_steps, batch, args.learning_rate = (decision.value for decision in training)
        args.per_device_train_batch_size, args.train_sampling_strategy = batch, "sequential"
        args.eval_strategy = IntervalStrategy.NO  # the head is fitted only at the end
        batches = args.gradient_accumulation_steps * args.world_size
        train, spread = paired(run.train, run.task.loss, args.max_steps * batches, batch, args.seed)
        counts = args.max_steps, batches * batch, batches * batch * (batch - 1) // 2, texts, texts * (texts - 1) // 2
        line = "Contrastive training: %s steps of %s texts, %s pairs each; %s texts have %s pairs."
        logger.info(line, *(f"{count:,}" for count in counts))
        kwargs |= {"train_dataset": train, "compute_loss_func": PairLoss(run.task.loss, spread)}
        super().__init__(run, plan, args, **kwargs)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """`Trainer.train`, in which the head returns the vectors that it reads."""
        layer = output_layer(self.model)
        assert layer is not None
        hook = layer.register_forward_hook(lambda module, inputs, outputs: inputs[0])
        try:
            return super().train(*args, **kwargs)
        finally:
            hook.remove()
            self.compute_loss_func = task_loss(self.run, self.plan)
