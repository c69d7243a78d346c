"""The layers of a model from the bottom up: learning rates by depth, and fresh top layers.

Both steady fine-tuning on small data (Zhang et al., 2021, "Revisiting Few-sample BERT Fine-tuning").
"""

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from ..runs import parameter_groups
from .task import reinitialize

_LAYERS = ("encoder.layer", "transformer.layer")  # where BERT-like models and DistilBERT keep them


def encoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a model's encoder, the lowest first.

    Raises:
        ValueError: If the model keeps them where we do not know.
    """
    for path in _LAYERS:
        try:
            return list(model.base_model.get_submodule(path).children())
        except AttributeError:
            continue
    raise ValueError(
        f"{type(model).__name__} has no {' or '.join(_LAYERS)}; freezing and learning rates by layer are for models "
        "built like BERT."
    )


def embeddings(model: PreTrainedModel) -> nn.Module:
    """The embeddings of a model's encoder."""
    return model.base_model.get_submodule("embeddings")


def reinitialize_layers(model: PreTrainedModel, count: int) -> None:
    """Give the top layers of the encoder, and the pooler, fresh random weights.

    Args:
        model: The model.
        count: How many layers.

    Raises:
        ValueError: If there are not so many.
    """
    layers = encoder_layers(model)
    if not 0 <= count <= len(layers):
        raise ValueError(f"reinitialize_layers is {count}; expected 0 to {len(layers)}, the layers of the encoder.")
    if count:
        pooler = getattr(model.base_model, "pooler", None)
        reinitialize(model, [*layers[len(layers) - count :], *([pooler] if pooler is not None else [])])


def layerwise_groups(
    model: PreTrainedModel, learning_rate: float, layer_decay: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Parameter groups whose learning rate falls from the head to the embeddings.

    Args:
        model: The model; parameters that need no gradient are left out.
        learning_rate: Of the head and the pooler.
        layer_decay: Factor from each layer to the one below, in (0, 1]; the top layer has it once, the embeddings
            once more than the lowest layer.
        weight_decay: Of all but biases and layer normalisations.

    Returns:
        The groups, one or two a depth, the head's first: its learning rate is the one that is logged. With a factor of
        1 two in all.
    """
    groups = parameter_groups(model, weight_decay)
    if layer_decay == 1:
        return groups
    depth: dict[int, int] = {}
    for below_head, module in enumerate([*reversed(encoder_layers(model)), embeddings(model)], start=1):
        depth |= {id(parameter): below_head for parameter in module.parameters()}
    divided: dict[tuple[int, int], dict[str, Any]] = {}
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            steps = depth.get(id(parameter), 0)
            new = {**group, "params": [], "lr": learning_rate * layer_decay**steps}
            divided.setdefault((steps, number), new)["params"].append(parameter)
    return [divided[place] for place in sorted(divided)]
