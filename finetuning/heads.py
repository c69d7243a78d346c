"""Models for a task, an encoder with a head: loading them, their parts, and how a regression is trained."""

import copy
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from torch.backends import mkldnn
from torch.utils.hooks import RemovableHandle
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoModelForNextSentencePrediction,
    PreTrainedConfig,
    PreTrainedModel,
)

from ..encoders import ENCODER_TYPES, speed_up
from ..files.checkpoint import (
    PRETRAINING_HEAD,
    SCORE_RECORDS,
    SENTENCE_SETTINGS,
    Checkpoint,
    head_name,
    read_json_object,
    without_foreign_code,
)
from ..files.errors import SettingError, worded
from ..files.loading import load_model, longest_sequence
from ..modeling_mybert import MyBertConfig, MyBertPreTrainedModel
from ..modeling_mybert.bilstm import MyBertBiLstmConfig
from ..modeling_mybert.linear_mybert import has_bfloat16_kernels
from ..pipelines.openvino_model import OpenVinoModel
from .data import Labels, listed
from .network_settings import NetworkChanges

logger = logging.getLogger(__name__)

TARGET_SCALE = "target_scale"
"""Field of a checkpoint's configuration: mean and standard deviation of the numbers it learns."""

# `Trainer` treats all outputs as predictions, so extra outputs that a checkpoint enables are disabled.
_LOGITS_ONLY = {"output_hidden_states": False, "output_attentions": False}
# The outputs that a model with both heads of pretraining has for each of them.
_PRETRAINING_LOGITS = {
    AutoModelForMaskedLM: "prediction_logits",
    AutoModelForNextSentencePrediction: "seq_relationship_logits",
}
_DISCRIMINATORS = ("electra", "funnel")  # whose head of pretraining finds replaced tokens
_LAYERS = ("encoder.layer", "transformer.layer")  # their attribute in BERT-like models and in DistilBERT
_QUERY_KEY_VALUE = (
    ("attention.self.query", "attention.self.key", "attention.self.value"),
    ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
)


def load_with_head(
    name: str,
    before: PreTrainedConfig,  # the configuration in its folder
    auto_class: Any,
    config: PreTrainedConfig,  # see `starting_config`
    changes: NetworkChanges,
    is_random: bool,  # whether no weights are loaded
) -> tuple[PreTrainedModel, list[str]]:
    """Load a model with a head, a new one if it has another; also returns the names of new parameters."""
    if is_random:
        vars(config).pop(TARGET_SCALE, None)
        model = auto_class.from_config(config, trust_remote_code=False)
        return model, [key for key, _ in model.named_parameters()]
    model, loaded = load_model(Checkpoint(name), auto_class, config, advice=worded("[, or pass {from_scratch=True}]"))
    new = {*loaded["missing_keys"], *(key[0] for key in loaded["mismatched_keys"])}
    head = [name for name, _ in model.named_parameters() if not name.startswith(f"{model.base_model_prefix}.")]
    if changes.new_head:
        new |= set(reinitialize(model, [*head_modules(model), *_pooler(model)]))
    elif not new.issuperset(head) and (
        _pools_otherwise(before, changes) or other_head_error(name, before, auto_class, "another task")
    ):
        new |= set(reinitialize(model, head_modules(model)))  # the other head's layers have the same names and sizes
    if has_new_head(model, new):
        vars(model.config).pop(TARGET_SCALE, None)
    fold_target_scale(model)
    for record in SCORE_RECORDS:  # training is on the outputs themselves
        vars(model.config).pop(record, None)
    return model, sorted(new)


def has_new_head(model: PreTrainedModel, new: Iterable[str]) -> bool:
    """Whether new parameters, given by name, are those of the model's head."""
    return any(not name.startswith(f"{model.base_model_prefix}.") for name in new)


def starting_config(
    name: str,
    before: PreTrainedConfig,
    config_fields: dict[str, Any],
    changes: NetworkChanges,
    own_config: PreTrainedConfig | None,
) -> PreTrainedConfig:
    """The initial model's configuration; `before` is that of its folder."""
    # In float32 whatever the checkpoint's dtype: half precision would round small updates to 0.
    fields = config_fields | _LOGITS_ONLY | {"dtype": torch.float32}
    if changes.dropout is not None:
        if not hasattr(before, "hidden_dropout_prob"):
            raise SettingError.worded(
                "{dropout} is {} and {} of type {}, whose configuration has no hidden_dropout_prob; set its "
                "dropout in its config.json.",
                changes.dropout,
                name,
                before.model_type,
            )
        fields |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), changes.dropout)
    if _pools_otherwise(before, changes):
        if not has_pooling(before):
            raise SettingError.worded(
                "{pooling} is {!r} and {} of type {}, whose classifiers have no such choice; expected a bert or "
                "mybert.",
                changes.pooling,
                name,
                before.model_type,
            )
        fields["classifier_pooling"] = changes.pooling
    if changes.bilstm:
        if before.model_type not in ("bert", "mybert", MyBertBiLstmConfig.model_type):
            raise ValueError(f"{name} is of type {before.model_type}; a BiLSTM can only be put on bert and mybert.")
        return without_foreign_code(MyBertBiLstmConfig.from_pretrained(name, **fields))
    if own_config is not None:
        return type(own_config).from_dict({**own_config.to_dict(), **fields})
    return read_config(name, changes.keep_model_type, **fields)


def load_finetuned(
    checkpoint: Checkpoint, auto_class: Any, pipeline: str, load_graph: Callable[..., OpenVinoModel] | None = None
) -> Any:
    """Load a fine-tuned model; a ValueError if it lacks the head of `auto_class` (`pipeline` in the Hub's terms).

    With `load_graph` the model is what this makes of the folder and its configuration.
    """
    name = checkpoint.name
    config = read_config(name) if checkpoint.config.model_type == "bert" else copy.deepcopy(checkpoint.config)
    config.update(_LOGITS_ONLY)
    if error := other_head_error(name, config, auto_class, pipeline):
        raise error
    if load_graph is not None:
        has_both = PRETRAINING_HEAD in heads_of(config)
        assert checkpoint.graph_file is not None
        folder, logits = checkpoint.graph_file.parent, _PRETRAINING_LOGITS[auto_class] if has_both else ""
        return load_graph(folder, config, logits=logits)
    model, _ = load_model(checkpoint, auto_class, config, needs_head=True)
    fold_target_scale(model)
    return model


def for_inference(model: PreTrainedModel, device: str | torch.device, dtype: str) -> PreTrainedModel:
    """A loaded model on its device and in evaluation mode, which computes no padding, with the fastest kernels."""
    model = model.to(device=device, dtype=getattr(torch, dtype)).eval()
    if model.config.model_type in ENCODER_TYPES:
        return speed_up(model)
    if isinstance(model, MyBertPreTrainedModel) and model.device.type == "cpu" and mkldnn.is_available():
        if dtype == "bfloat16" and not has_bfloat16_kernels():
            raise SettingError.worded(
                "{dtype} is bfloat16, and this processor has no instructions for it; expected float32."
            )
        model.prepack_weights()
    return model


def read_config(name: str, keep_model_type: bool = False, **fields: Any) -> PreTrainedConfig:
    """Read a model's configuration; type `bert` becomes a MyBERT, which is faster, unless `keep_model_type`."""
    name = Checkpoint(name).name
    config = AutoConfig.from_pretrained(name, **fields, trust_remote_code=False)
    if config.model_type == "bert" and not keep_model_type:
        config = MyBertConfig.from_pretrained(name, **fields)
    # Code in its folder is never run, and not copied with the model.
    return without_foreign_code(config)


def keeps_head(config: PreTrainedConfig, auto_class: Any, changes: NetworkChanges) -> bool:
    """Whether a model of this configuration keeps its head."""
    is_kept = not (changes.new_head or changes.from_scratch or _pools_otherwise(config, changes))
    return is_kept and head_name(auto_class.__name__) in heads_of(config)


def has_pooling(config: PreTrainedConfig) -> bool:
    """Whether a classifier of this configuration can read the mean of tokens, as MyBERT's and ModernBERT's."""
    return config.model_type == "bert" or hasattr(type(config), "classifier_pooling")


def _pools_otherwise(config: PreTrainedConfig, changes: NetworkChanges) -> bool:
    return changes.pooling not in (None, getattr(config, "classifier_pooling", "cls"))


def check_max_length(max_length: int, name: str, config: PreTrainedConfig) -> None:
    longest = longest_sequence(config)
    if longest is not None and max_length > longest:
        raise SettingError.worded("{max_length} is {}; {} reads at most {} tokens.", max_length, name, longest)


def heads_of(config: PreTrainedConfig) -> set[str]:
    """The heads of a checkpoint, see `head_name`; a pretraining checkpoint has those of both objectives."""
    heads = set(map(head_name, config.architectures or []))
    has_both = PRETRAINING_HEAD in heads and config.model_type not in _DISCRIMINATORS
    return heads | ({"MaskedLM", "NextSentencePrediction"} if has_both else set())


def other_head_error(name: str, config: PreTrainedConfig, auto_class: Any, pipeline: str) -> ValueError | None:
    """The error for a model with another head than that of `auto_class` (`pipeline` in the Hub's terms), if it has."""
    own, heads = head_name(auto_class.__name__), heads_of(config)
    if not own or own in heads or heads <= {""}:
        return None
    return ValueError(
        f"{name} has no head for this task (it is a {(config.architectures or [])[0]}); expected a model that was "
        f"fine-tuned for {pipeline}."
    )


def check_head(name: str, config: PreTrainedConfig, labels: Labels) -> None:
    """Reject a head that was fine-tuned for other classes, instead of silently replacing it."""
    known = Labels.from_config(config)
    if len(known.names) != len(labels.names):
        raise SettingError.worded(
            "{} was fine-tuned with {} labels ({}); the data has {} ({}): pass {new_head=True} to give it a new head.",
            name,
            len(known.names),
            listed(known.names),
            len(labels.names),
            listed(labels.names),
        )
    if set(known.names) != set(labels.names):
        logger.warning(
            "%s was fine-tuned with the labels %s; its head is further trained for %s.",
            name,
            listed(known.names),
            listed(labels.names),
        )


def recorded_activation(checkpoint: Checkpoint) -> str:
    """The class of torch.nn that sentence-transformers applies to a cross-encoder's output.

    Without a record, a score of no stated problem is a probability, as in sentence-transformers and in pipelines.
    """
    file = checkpoint.local_folder([SENTENCE_SETTINGS]) / SENTENCE_SETTINGS
    newest = read_json_object(file) if file.is_file() else {}
    if (prompt := newest.get("default_prompt_name")) and (newest.get("prompts") or {}).get(prompt):
        raise ValueError(
            f"{file} has the default prompt {str(prompt)[:80]!r} for texts, which no score has here; expected none: "
            "remove default_prompt_name, and put the prompt before the texts that need it."
        )
    newer, oldest = (getattr(checkpoint.config, name, None) for name in SCORE_RECORDS)
    records = [newest, newer] if isinstance(newer, dict) else [newest]  # since version 6, and since 4
    usual = "torch.nn.Identity" if checkpoint.config.problem_type else "torch.nn.Sigmoid"
    paths = [*(record.get("activation_fn") for record in records), oldest, usual]
    path = str(next(filter(None, paths)))
    name = path.rpartition(".")[2]
    known = getattr(nn, name, None)
    if not path.startswith("torch.nn.") or not isinstance(known, type) or not issubclass(known, nn.Module):
        raise ValueError(
            f"{checkpoint.name} records {path[:80]!r} as the activation of its scores; expected a class of torch.nn, "
            "such as torch.nn.Sigmoid (code in a model's folder is never run)."
        )
    return name


# The parts of a model: embeddings, layers and head; and reinitializing them.


def encoder_layers(model: PreTrainedModel) -> list[nn.Module]:
    """The layers of a model's encoder, the lowest first; a ValueError if its structure is unknown."""
    return list(model.base_model.get_submodule(_place_of_layers(model)).children())


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


def reinitialize_layers(model: PreTrainedModel, count: int) -> None:
    """Give the top layers, and the pooler, fresh random weights (Zhang et al., 2021); 0 layers change nothing."""
    if not count:
        return
    layers = encoder_layers(model)
    if not 0 <= count <= len(layers):
        raise SettingError("reinitialize_layers", count, f"0 to {len(layers)}, the layers of the encoder")
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


# Regression in the unit of its data: the output layer learns standardized numbers, whatever their mean and scale. In
# training a hook turns the layer's outputs into the data's unit, so that losses and metrics are in that unit. At the
# end mean and deviation are folded into the layer, which leaves a plain model. Checkpoints in between have the layer
# as it is trained; their configuration says so, and the loaders above fold it.


_Scale = float | torch.Tensor  # of one number, or of several (K,)


class _InUnit(torch.autograd.Function):
    """Standardized outputs in the data's unit, with the gradients of the loss of standardized numbers."""

    # Clipping, Adam's epsilon and the balance with other losses then do not depend on the unit.
    @staticmethod
    def forward(ctx: Any, outputs: torch.Tensor, mean: _Scale, deviation: _Scale) -> torch.Tensor:
        ctx.deviation = deviation
        return outputs * deviation + mean

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        # Of the loss divided by the variance, which is that of standardized numbers.
        return gradients[0] / ctx.deviation, None, None


def learn_standardized(model: PreTrainedModel, targets: ArrayLike, has_new_head: bool) -> RemovableHandle | None:
    """Let the output layer learn standardized numbers; remove the returned hook before `fold_target_scale`.

    `targets` are the numbers (n,), or (n, K) of several, each with a scale of its own; NaN where missing.
    """
    layer = output_layer(model)
    if layer is None or layer.bias is None:
        return None
    numbers = np.asarray(targets, dtype=np.float64)
    columns = numbers.reshape(len(numbers), -1).T
    means, deviations = zip(*(_mean_and_deviation(column[~np.isnan(column)]) for column in columns), strict=True)
    scale = [list(means), list(deviations)] if len(columns) > 1 else [means[0], deviations[0]]
    scales = lru_cache(maxsize=1)(partial(_scales, scale))  # copied to a device once
    mean, deviation = scales(layer.weight.device)
    if not has_new_head:  # it has the data's unit, and its outputs stay the same
        with torch.no_grad():
            layer.weight.div_(_of_rows(deviation))
            layer.bias.sub_(mean).div_(deviation)
    setattr(model.config, TARGET_SCALE, scale)

    def in_unit(module: nn.Module, inputs: Any, outputs: torch.Tensor) -> torch.Tensor:
        return _InUnit.apply(outputs.float(), *scales(outputs.device))

    return layer.register_forward_hook(in_unit)


def fold_target_scale(model: PreTrainedModel) -> None:
    """Put mean and deviation of the targets into the output layer, if it has learned standardized numbers."""
    scale = getattr(model.config, TARGET_SCALE, None)
    if scale is None or (layer := output_layer(model)) is None:
        return
    mean, deviation = _scales(scale, layer.weight.device)
    with torch.no_grad():
        layer.weight.mul_(_of_rows(deviation))
        layer.bias.mul_(deviation).add_(mean)
    delattr(model.config, TARGET_SCALE)


def _mean_and_deviation(numbers: np.ndarray) -> tuple[float, float]:
    """Equal numbers have no deviation; neither has a rounding error one that could be learned."""
    if not len(numbers):
        return 0.0, 1.0
    mean, deviation = float(numbers.mean()), float(numbers.std())
    return mean, 1.0 if deviation <= 1e-6 * abs(mean) else deviation


def _scales(scale: Sequence[Any], device: torch.device) -> tuple[_Scale, _Scale]:
    """Mean and deviation in a model's configuration: numbers, or of several outputs tensors (K,)."""
    mean, deviation = (torch.tensor(each, device=device) if isinstance(each, list) else each for each in scale)
    return mean, deviation


def _of_rows(deviation: _Scale) -> _Scale:
    """For the rows of a weight."""
    return deviation[:, None] if isinstance(deviation, torch.Tensor) else deviation
