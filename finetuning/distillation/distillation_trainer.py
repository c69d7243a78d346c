"""`Trainer` of a student."""

from typing import Any

import torch
from transformers.trainer_utils import TrainOutput

from ..data.labels import LABEL_ARGUMENTS
from ..tasks.task import WINDOW_WEIGHT
from ..training.finetuning_arguments import FinetuningArguments
from ..training.preparation import TaskRun
from ..training.trainer import TaskTrainer
from .distillation_loss import DistillationLoss, Lesson
from .layer_losses import LayerLosses
from .soft_targets import SOFT_TARGETS, collate_soft_targets


class DistillationTrainer(TaskTrainer):
    """`TaskTrainer` whose training data has soft targets."""

    def __init__(
        self,
        run: TaskRun,
        args: FinetuningArguments,
        loss: DistillationLoss,
        layers: LayerLosses | None = None,  # attached to the model during training
        **kwargs: Any,
    ) -> None:
        args.remove_unused_columns = False  # soft targets are for the loss, not for the model
        self.loss = loss
        self.layers = layers
        if layers is not None:
            layers.attach(kwargs["model"], args.seed)
        super().__init__(run, args, compute_loss_func=loss, **kwargs)
        if layers is not None:
            layers.autocast = self.accelerator.autocast  # its hook runs after the student's own
        self.data_collator = collate_soft_targets(self.data_collator)

    def with_all_for_the_loss(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """The model inputs of a batch, with a `Lesson` as `labels`."""
        lesson = _lesson(inputs)
        wants_states = self.layers is not None and lesson.targets is not None
        return {**lesson.inputs, "labels": lesson} | ({"output_hidden_states": True} if wants_states else {})

    def count_own(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """The numbers by which the losses of a step are divided, see `DistillationLoss.count`."""
        total = torch.stack([self.loss.count(_lesson(batch)) for batch in batches]).sum(0).to(device)
        if not self.args.average_tokens_across_devices or self.args.world_size == 1:
            return total
        return self.accelerator.gather(total[None]).sum(0)

    def train(self, *args: Any, **kwargs: Any) -> TrainOutput:
        """`Trainer.train`; then remove the parts that the student has only for training."""
        output = super().train(*args, **kwargs)
        if self.layers is not None:
            self.layers.detach()
        return output


def _lesson(batch: dict[str, Any]) -> Lesson:
    beside = {SOFT_TARGETS, WINDOW_WEIGHT, *LABEL_ARGUMENTS}
    return Lesson(
        {name: value for name, value in batch.items() if name not in beside},
        {name: batch[name] for name in LABEL_ARGUMENTS if batch.get(name) is not None},
        batch.get(SOFT_TARGETS),
        batch.get(WINDOW_WEIGHT),
    )
