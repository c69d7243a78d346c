"""Learning rates of fine-tuning: a default for the model's size, and factors by depth and for the word embeddings.

Factors by depth are for steady fine-tuning on small data (Zhang et al., 2021, "Revisiting Few-sample BERT
Fine-tuning", section 3).
"""

from typing import Any

from transformers import AutoConfig, PreTrainedModel

from ...runs import parameter_groups
from ..network.encoder_parts import embeddings, encoder_layers

_HIDDEN_SIZE = 768  # of BERT base, for which the paper gives learning rates


def rate_for_size(rate: float, model: str) -> tuple[float, str]:
    """The learning rate, to three digits, for another size than BERT base, whose rate is given, and the reason."""
    config = AutoConfig.from_pretrained(model, trust_remote_code=False)
    hidden_size = getattr(config, "hidden_size", _HIDDEN_SIZE)
    # With 5e-5 this is 3e-4 at a hidden size of 128 and 1e-4 at 384; the best rates of Google's miniatures (Turc et
    # al., 2019) are 3e-5 to 3e-4.
    return float(f"{rate * _HIDDEN_SIZE / hidden_size:.3g}"), f"{rate:g} x {_HIDDEN_SIZE} / hidden size {hidden_size}"


def layerwise_groups(
    model: PreTrainedModel,
    learning_rate: float,  # of the head and the pooler
    layer_decay: float,  # from each layer to the one below, in (0, 1]; applied to the top layer, too
    weight_decay: float,  # of all but biases and layer normalizations
    embedding_factor: float = 1.0,  # on the rate of the word embeddings, above 0
) -> list[dict[str, Any]]:
    """Parameter groups whose learning rate decreases from the head to the embeddings."""
    groups = parameter_groups(model, weight_decay)
    if layer_decay == embedding_factor == 1:
        return groups
    factors: dict[int, float] = {}
    for below_head, module in enumerate([*reversed(encoder_layers(model)), embeddings(model)], start=1):
        factors |= {id(parameter): layer_decay**below_head for parameter in module.parameters()}
    factors[id(model.base_model.get_input_embeddings().weight)] *= embedding_factor
    divided: dict[tuple[bool, float, int], dict[str, Any]] = {}
    for number, group in enumerate(groups):
        for parameter in group["params"]:
            factor = factors.get(id(parameter), 1.0)
            new = {**group, "params": [], "lr": learning_rate * factor}
            divided.setdefault((factor != 1, -factor, number), new)["params"].append(parameter)
    # Those of the head first, because the first rate is logged.
    return [divided[place] for place in sorted(divided)]
