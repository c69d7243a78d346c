"""Freezing and unfreezing parts of a model during fine-tuning.

- A frozen part is never trained: the whole encoder, or its embeddings and lowest layers.
- Head first: the encoder is trained only after a while, so that a random head does not disturb it.
- Gradual unfreezing (Howard and Ruder, 2018): the layers are unfrozen one by one, the top one first.
"""

import logging
import math
from typing import Any

from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..network.encoder_parts import embeddings, encoder_layers

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-6  # for rounding: the epoch is a quotient of step counts


def freeze_layers(model: PreTrainedModel, count: int | None) -> None:
    """Freeze embeddings and lowest layers permanently: a count, None for all layers, -1 for nothing."""
    if count == -1:
        return
    layers = encoder_layers(model)
    count = len(layers) if count is None else count
    if not 0 <= count <= len(layers):
        raise ValueError(f"freeze_layers is {count}; expected 0 to {len(layers)}, the layers of the encoder.")
    for module in (embeddings(model), *layers[:count]):
        module.requires_grad_(False)


class Unfreezing(TrainerCallback):
    """Unfreezes parts of the encoder during training; parts that were frozen before stay frozen."""

    # Only head and pooler are trained for the epochs `head_first`; then all, or one layer more after each interval of
    # `gradual` epochs, the top one first and the embeddings last. Without `head_first` only the head is trained for
    # the first such interval.
    def __init__(self, model: PreTrainedModel, head_first: float = 0.0, gradual: float = 0.0) -> None:
        parts = [*reversed(encoder_layers(model)), embeddings(model)]
        start = head_first or gradual
        self._stages = [
            (start + gradual * number, [parameter for parameter in part.parameters() if parameter.requires_grad])
            for number, part in enumerate(parts)
        ]

    def apply(self, epoch: float) -> None:
        """Unfreeze the parts to train at this time, in epochs, and freeze the rest."""
        for start, parameters in self._stages:
            for parameter in parameters:
                parameter.requires_grad_(epoch >= start - _TOLERANCE)

    def on_train_begin(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        train_dataloader: Any = None,
        **kwargs: Any,
    ) -> None:
        """Freeze parts; the optimizer already has all parameters that will be trained."""
        self.apply(state.epoch or 0.0)
        self._warn_of_untrained(state.max_steps / math.ceil(len(train_dataloader) / args.gradient_accumulation_steps))

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Unfreeze the parts that are due."""
        self.apply(state.epoch or 0.0)

    def _warn_of_untrained(self, epochs: float) -> None:
        """Warn if training ends, after so many epochs, before a part is unfrozen."""
        starts = [start for start, parameters in self._stages if parameters]
        if late := sum(start >= epochs - _TOLERANCE for start in starts):
            what = "the encoder is" if late == len(starts) else f"{late} of the encoder's {len(starts)} parts are"
            logger.warning(
                "Training ends at epoch %.3g, before %s unfrozen and trained; lower --train_head_first or "
                "--gradual_unfreezing, or train longer.",
                *(epochs, what),
            )

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Restore which parameters are trainable."""
        self.apply(float("inf"))
