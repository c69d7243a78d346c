"""Which parts of a model are trained, and from when on.

- A frozen part is never trained: the whole encoder, or its embeddings and lowest layers.
- Head first: the encoder joins after a while, so that it is not led astray by a random head.
- Gradual unfreezing (Howard and Ruder, 2018): the layers join one after the other, the top one first.
"""

from typing import Any

from transformers import PreTrainedModel, TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from ..network.encoder_parts import embeddings, encoder_layers


def freeze_layers(model: PreTrainedModel, count: int | None) -> None:
    """Freeze the embeddings and the lowest layers for good.

    Args:
        model: The model. Its pooler is trained with the head.
        count: How many layers; None for all of them, -1 for nothing, not even the embeddings.

    Raises:
        ValueError: If there are fewer.
    """
    if count == -1:
        return
    layers = encoder_layers(model)
    count = len(layers) if count is None else count
    if not 0 <= count <= len(layers):
        raise ValueError(f"freeze_layers is {count}; expected 0 to {len(layers)}, the layers of the encoder.")
    for module in (embeddings(model), *layers[:count]):
        module.requires_grad_(False)


class Unfreezing(TrainerCallback):
    """Unfreezes parts of the encoder during training; what was frozen for good before stays frozen.

    Args:
        model: The model.
        head_first: Epochs in which only head and pooler are trained.
        gradual: Epochs after which each next layer joins, the top one first and the embeddings last; 0 for all at once
            after `head_first`. Without `head_first` the head is alone for the first of these.
    """

    def __init__(self, model: PreTrainedModel, head_first: float = 0.0, gradual: float = 0.0) -> None:
        parts = [*reversed(encoder_layers(model)), embeddings(model)]
        start = head_first or gradual
        self._stages = [
            (start + gradual * number, [parameter for parameter in part.parameters() if parameter.requires_grad])
            for number, part in enumerate(parts)
        ]

    def apply(self, epoch: float) -> None:
        """Unfreeze what is trained at a time, and freeze the rest.

        Args:
            epoch: Epochs since the beginning.
        """
        for start, parameters in self._stages:
            for parameter in parameters:
                # A step of rounding: the epoch is a quotient of step counts.
                parameter.requires_grad_(epoch >= start - 1e-6)

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Freeze; the optimizer has been made and knows all that will be trained."""
        self.apply(state.epoch or 0.0)

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Unfreeze what is due."""
        self.apply(state.epoch or 0.0)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Leave the model as it was before."""
        self.apply(float("inf"))
