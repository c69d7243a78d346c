"""Learning rates by depth, for steady fine-tuning on small data (Zhang et al., 2021).

"Revisiting Few-sample BERT Fine-tuning", section 3.
"""

from typing import Any

from transformers import PreTrainedModel

from ...runs import parameter_groups
from ..network.encoder_parts import embeddings, encoder_layers


def layerwise_groups(
    model: PreTrainedModel, learning_rate: float, layer_decay: float, weight_decay: float
) -> list[dict[str, Any]]:
    """Parameter groups whose learning rate decreases from the head to the embeddings.

    Args:
        model: The model; frozen parameters are left out.
        learning_rate: Learning rate of the head and the pooler.
        layer_decay: Factor from each layer to the one below, in (0, 1]; applied once to the top layer, and to the
            embeddings once more than to the lowest layer.
        weight_decay: Weight decay of all but biases and layer normalisations.

    Returns:
        The groups, one or two for each depth, those of the head first, because the first learning rate is logged. With
        a factor of 1, two in total.
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
