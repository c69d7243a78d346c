"""Adapters of PEFT: few weights are trained next to frozen ones, and merged into them after training."""

from __future__ import annotations

import logging
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from transformers import PreTrainedModel

from ...files import folder_written_beside
from ...modeling_mybert import MyBertPreTrainedModel
from ..network.encoder_parts import head_layers

if TYPE_CHECKING:
    from peft import PeftConfig

logger = logging.getLogger(__name__)

ADAPTER_FOLDER = "adapter"  # in the run's folder
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors", "README.md")
# Kinds of adapters that can be merged into a model's weights; others change its computation.
_MERGED = ("LORA", "LOHA", "LOKR", "IA3", "OFT", "BOFT", "HRA", "VERA", "FOURIERFT", "LN_TUNING")
_LORA = {"peft_type": "LORA", "r": 8, "lora_alpha": 16}  # on query and value (Hu et al., 2021)


def read_adapter_config(path: str | None) -> PeftConfig:
    """Read a PEFT configuration (JSON or YAML, LoRA by default); without one, LoRA of rank 8 on query and value."""
    try:
        import peft
        from peft.mapping import PEFT_TYPE_TO_CONFIG_MAPPING
    except ImportError as error:
        raise ImportError(f"Adapters need the package peft: pip install mybert[peft] ({error}).") from error
    settings: Any = dict(_LORA)
    if path is not None:
        try:
            settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is neither JSON nor YAML ({' '.join(str(error).split())[:150]}).") from error
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
    learnt, total = adapted.get_nb_trainable_parameters()
    logger.info(
        "%s: %s of %s parameters are trained (%.2g %%).",
        config.peft_type.value,
        f"{learnt:,}",
        f"{total:,}",
        100 * learnt / total,
    )
    return adapted


def merge_adapter(adapted: Any, folder: Path | None) -> PreTrainedModel:
    """Merge an adapter into the model's weights, and save it in a folder, if given, in PEFT's format."""
    if folder is not None:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder_written_beside(folder, _ADAPTER_FILES, overwrite=True) as made:
            adapted.save_pretrained(made)
    return adapted.merge_and_unload()
