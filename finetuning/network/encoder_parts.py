"""The parts of a model for fine-tuning: embeddings, layers and head; and re-initialising them."""

import copy
from collections.abc import Sequence

from torch import nn
from transformers import PreTrainedModel

_LAYERS = ("encoder.layer", "transformer.layer")  # their attribute in BERT-like models and in DistilBERT
_QUERY_KEY_VALUE = (
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
)


def encoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a model's encoder, the lowest first; a ValueError if its structure is unknown."""
    return list(model.base_model.get_submodule(_place_of_layers(model)).children())


def set_encoder_layers(model: PreTrainedModel, layers: Sequence[nn.Module]) -> None:
    parent, _, name = _place_of_layers(model).rpartition(".")
    model.base_model.get_submodule(parent).add_module(name, nn.ModuleList(layers))
    model.config.num_hidden_layers = len(layers)


def _place_of_layers(model: PreTrainedModel) -> str:
    for path in _LAYERS:
        try:
            model.base_model.get_submodule(path)
        except AttributeError:
            continue
        return path
    raise ValueError(f"{type(model).__name__} has no {' or '.join(_LAYERS)}; this needs a model built like BERT.")


def attention_projections(layer: nn.Module) -> list[nn.Module]:
    """The query, key and value projections of a layer."""
    for names in _QUERY_KEY_VALUE:
        try:
            return [layer.get_submodule(name) for name in names]
        except AttributeError:
            continue
    raise ValueError(
        f"{type(layer).__name__} has no {' or '.join(names[0] for names in _QUERY_KEY_VALUE)}; relations need "
        "models built like BERT."
    )


def embeddings(model: PreTrainedModel) -> nn.Module:
    return model.base_model.get_submodule("embeddings")


def head_modules(model: PreTrainedModel) -> list[nn.Module]:
    """The modules on top of a model's encoder."""
    return [module for name, module in model.named_children() if name != model.base_model_prefix]


def output_layer(model: PreTrainedModel) -> nn.Linear | None:
    """The last linear layer of a model's head, within an adapter the one that is trained; None if there is none."""
    layers = [part for module in head_modules(model) for part in module.modules() if isinstance(part, nn.Linear)]
    return layers[-1] if layers else None


def head_layers(model: PreTrainedModel) -> list[str]:
    """Names of the modules with weights on top of a model's layers, including the pooler."""
    parts = [part for module in [*head_modules(model), *_pooler(model)] for part in module.modules()]
    own = {id(part) for part in parts if next(part.parameters(recurse=False), None) is not None}
    return [name for name, module in model.named_modules() if id(module) in own]


def reset_head(model: PreTrainedModel) -> list[str]:
    """Reinitialize the head of a model, the pooler included; returns the names of the parameters."""
    return reinitialize(model, [*head_modules(model), *_pooler(model)])


def reinitialize_layers(model: PreTrainedModel, count: int) -> None:
    """Give the top layers, and the pooler, fresh random weights (Zhang et al., 2021); 0 layers change nothing."""
    if not count:
        return
    layers = encoder_layers(model)
    if not 0 <= count <= len(layers):
        raise ValueError(f"reinitialize_layers is {count}; expected 0 to {len(layers)}, the layers of the encoder.")
    reinitialize(model, [*layers[len(layers) - count :], *_pooler(model)])


def reinitialize(model: PreTrainedModel, modules: Sequence[nn.Module]) -> list[str]:
    """Give modules fresh random weights, as the model's class initializes them; returns the parameters' names."""
    for module in modules:
        drawn = copy.deepcopy(module)  # without the marks of from_pretrained, which protect loaded weights
        module.load_state_dict(drawn.apply(model._init_weights).state_dict())
    fresh = {id(parameter) for module in modules for parameter in module.parameters()}
    return [name for name, parameter in model.named_parameters() if id(parameter) in fresh]


def _pooler(model: PreTrainedModel) -> list[nn.Module]:
    pooler = getattr(model.base_model, "pooler", None)
    return [] if pooler is None else [pooler]
