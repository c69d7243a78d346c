"""Which parameters are trained, at which rates, and how a new head begins; adapters of PEFT.

- A frozen part is never trained: the whole encoder, or its embeddings and lowest layers.
- Head first: the encoder is trained only after a while, so that a random head does not disturb it.
- Gradual unfreezing (Howard and Ruder, 2018): the layers are unfrozen one by one, the top one first.
- Factors on the learning rate by depth are for steady fine-tuning on small data (Zhang et al., 2021, "Revisiting
  Few-sample BERT Fine-tuning", section 3).
- Adapters: few weights are trained next to frozen ones, and merged into them after training.
"""

from __future__ import annotations

import logging
import math
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import PreTrainedModel, TrainerCallback

from ...files.checkpoint import Checkpoint
from ...files.errors import SettingError, how_to_install
from ...files.output import folder_written_beside
from ...files.yaml_files import read_yaml
from ...modeling_mybert import MyBertPreTrainedModel
from ...runs import parameter_groups
from ..data import TaskData
from ..heads import embeddings, encoder_layers, head_layers, output_layer
from ..tasks.task import Task

if TYPE_CHECKING:
    from peft import PeftConfig

logger = logging.getLogger(__name__)

_TOLERANCE = 1e-6  # for rounding: the epoch is a quotient of step counts
_HIDDEN_SIZE = 768  # of BERT base, for which the paper gives learning rates
ADAPTER_FOLDER = "adapter"  # in the run's folder
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "README.md")
# Kinds of adapters that can be merged into a model's weights; others change its computation.
_MERGED = ("LORA", "LOHA", "LOKR", "IA3", "OFT", "BOFT", "HRA", "VERA", "FOURIERFT", "LN_TUNING")
_LORA = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}  # on query and value (Hu et al., 2021)


def freeze_layers(model: PreTrainedModel, count: int | None) -> None:
    """Freeze embeddings and lowest layers permanently: a count, None for all layers, -1 for nothing."""
    if count == -1:
        return
    layers = encoder_layers(model)
    count = len(layers) if count is None else count
    if not 0 <= count <= len(layers):
        raise SettingError("freeze_layers", count, f"0 to {len(layers)}, the layers of the encoder")
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

    def on_train_begin(self, args: Any, state: Any, control: Any, train_dataloader: Any = None, **kwargs: Any) -> None:
        """Freeze parts; the optimizer already has all parameters that will be trained."""
        self.apply(state.epoch or 0.0)
        epochs = state.max_steps / math.ceil(len(train_dataloader) / args.gradient_accumulation_steps)
        starts = [start for start, parameters in self._stages if parameters]
        if late := sum(start >= epochs - _TOLERANCE for start in starts):
            what = "the encoder is" if late == len(starts) else f"{late} of the encoder's {len(starts)} parts are"
            logger.warning(
                "Training ends at epoch %.3g, before %s unfrozen and trained; lower --train_head_first or "
                "--gradual_unfreezing, or train longer.",
                *(epochs, what),
            )

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Unfreeze the parts that are due."""
        self.apply(state.epoch or 0.0)

    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        """Restore which parameters are trainable."""
        self.apply(float("inf"))


def hidden_size_of(model: str) -> int:
    """The hidden size in a model's configuration; that of BERT base if it has none."""
    return getattr(Checkpoint(model).config, "hidden_size", _HIDDEN_SIZE)


def rate_for_size(rate: float, model: str) -> tuple[float, str]:
    """The learning rate, to three digits, for another size than BERT base, whose rate is given, and the reason."""
    hidden_size = hidden_size_of(model)
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


def set_head_bias(model: PreTrainedModel, task: Task, data: TaskData) -> None:
    """Begin with a bias of the output layer by how frequent classes and labels are."""
    layer = output_layer(model)
    if layer is None or layer.bias is None or "labels" not in data.inputs or not task.has_classes:
        return
    bias = task.loss.head_bias(data, layer.out_features)
    if bias is not None:
        with torch.no_grad():
            layer.bias.copy_(torch.from_numpy(bias))


def read_adapter_config(path: str | None) -> PeftConfig:
    """Read a PEFT configuration (JSON or YAML, LoRA by default); without one, LoRA of rank 8 on query and value."""
    try:
        import peft
        from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
    except ImportError as error:
        raise ImportError(f"Adapters need the package peft: {how_to_install('peft')} ({error}).") from error
    settings: Any = dict(_LORA)
    if path is not None:
        settings = read_yaml(path)
        if not isinstance(settings, dict):
            raise ValueError(f"{path} holds {str(settings)[:60]!r}; expected the fields of a PEFT configuration.")
    kind = str(settings.get("peft_type", "LORA")).upper()
    if kind not in _MERGED:
        raise ValueError(f"{path} has the peft_type {kind}; expected one that can be merged: {', '.join(_MERGED)}.")
    config_class = PEFT_TYPE_TO_CONFIG_MAPPING[peft.PeftType(kind)]
    known = {field.name for field in fields(config_class)}
    if unknown := sorted(set(settings) - known):
        raise ValueError(
            f"{path} has {', '.join(map(repr, unknown[:5]))}, which {config_class.__name__} does not have."
        )
    # PEFT's classes for tasks are not needed: the head is named here.
    settings |= {"peft_type": kind, "task_type": None, "inference_mode": False}
    try:
        return config_class(**settings)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path}: {' '.join(str(error).split())[:300]}") from error


def add_adapter(model: PreTrainedModel, config: PeftConfig) -> Any:
    """Freeze a model and add an adapter: a `peft.PeftModel`, whose pooler and head are trained as well."""
    import peft

    settings: Any = config
    if settings.target_modules is None and isinstance(model, MyBertPreTrainedModel):
        # PEFT chooses layers by model type; those of `bert` have our names.
        tuner = peft.PEFT_TYPE_TO_TUNER_MAPPING[settings.peft_type]
        settings.target_modules = getattr(tuner, "target_module_mapping", {}).get("bert")
    if not settings.modules_to_save:
        # The configuration's own replace pooler and head.
        settings.modules_to_save = head_layers(model)
    if isinstance(settings.target_modules, str) and settings.target_modules == "all-linear":
        settings.exclude_modules = settings.exclude_modules or settings.modules_to_save
    try:
        adapted = peft.get_peft_model(model, config)
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"The adapter does not fit {type(model).__name__}: {str(error)[:300]}") from error
    learned, total = adapted.get_nb_trainable_parameters()
    logger.info(
        "%s: %s of %s parameters are trained (%.2g %%).",
        config.peft_type.value,
        f"{learned:,}",
        f"{total:,}",
        100 * learned / total,
    )
    return adapted


def merge_adapter(adapted: Any, folder: Path | None) -> PreTrainedModel:
    """Merge an adapter into the model's weights, and save it in a folder, if given, in PEFT's format."""
    if folder is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder_written_beside(folder, _ADAPTER_FILES, overwrite=True) as made:
            adapted.save_pretrained(made)
    return adapted.merge_and_unload()
