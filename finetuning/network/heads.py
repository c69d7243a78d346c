"""The model that a task starts from or is measured with: an encoder with the task's head, loaded from a folder."""

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel

from ...files import check_model_folder, only_errors, refuse_quantized_weights, without_foreign_code
from ...files.hub_names import check_available, check_path
from ...modeling_mybert import MyBertConfig
from ..data.labels import Labels, listed
from .bilstm import MyBertBiLstmConfig
from .encoder_parts import head_modules, reinitialize, reset_head

logger = logging.getLogger(__name__)

# Parts of a trunk that a checkpoint may well lack.
_OPTIONAL = ("pooler.", "bilstm.", "position_ids")
PRETRAINING_HEAD = "PreTraining"
_SAFELY = {"trust_remote_code": False, "use_safetensors": True}
# What `Trainer` keeps of the outputs are predictions, whatever else a checkpoint was set to give.
_LOGITS_ONLY = {"output_hidden_states": False, "output_attentions": False}
# Model types whose first position is the padding token's id + 1, as in fairseq.
_POSITIONS_BEHIND_PADDING = (
    *("roberta", "xlm-roberta", "xlm-roberta-xl", "roberta-prelayernorm", "camembert", "data2vec-text", "ibert"),
    *("longformer", "mpnet", "xmod", "esm"),
)


@dataclass(frozen=True)
class Beginning:
    """How a model begins.

    Attributes:
        new_head: Whether to make a fresh head even where there is a fitting one.
        from_scratch: Whether to make a model of the same configuration with random weights.
        bilstm: Whether to put a BiLSTM between encoder and head.
        keep_model_type: See `read_config`.
        config: Of a model with random weights in place of the folder's.
        dropout: Of hidden states and attention in place of the configuration's, in [0, 1].
    """

    new_head: bool = False
    from_scratch: bool = False
    bilstm: bool = False
    keep_model_type: bool = False
    config: PreTrainedConfig | None = None
    dropout: float | None = None


def load_with_head(
    name: str, auto_class: Any, config_fields: dict[str, Any], beginning: Beginning
) -> tuple[PreTrainedModel, list[str]]:
    """Load a model with a head, a fresh one if it has another.

    Args:
        name: Folder or Hub name.
        auto_class: transformers' Auto class of the head.
        config_fields: What the model's configuration is to say of the task.
        beginning: How it begins.

    Returns:
        The model, in fp32 whatever the checkpoint has (half precision rounds small steps away), and the names of the
        randomly initialised parameters.

    Raises:
        ValueError: If the model's head is one for other classes, weights of its encoder are missing or of other shapes
            than its configuration says, or no BiLSTM can be put on it, or its type has no dropout by these names.
        OSError: If there is no such model.
    """
    before = AutoConfig.from_pretrained(name, trust_remote_code=False)
    config = _starting_config(name, before, config_fields, beginning)
    if beginning.from_scratch or beginning.config is not None:
        model = auto_class.from_config(config, trust_remote_code=False)
        return model, [key for key, _ in model.named_parameters()]
    names = config_fields.get("id2label", {})
    if names and keeps_head(before, auto_class, beginning):
        _check_head(name, before, Labels(tuple(names.values())))
    with only_errors():
        model, loaded = auto_class.from_pretrained(
            name, config=config, output_loading_info=True, ignore_mismatched_sizes=True, **_SAFELY
        )
    check_encoder(name, model, loaded)
    new = {*loaded["missing_keys"], *(key[0] for key in loaded["mismatched_keys"])}
    if beginning.new_head:
        new |= set(reset_head(model))
    elif _has_other_head(before, auto_class) and not new.issuperset(_head_parameters(model)):
        new |= set(reinitialize(model, head_modules(model)))  # the other's layers have the same names and sizes
    return model, sorted(new)


def _starting_config(
    name: str, before: PreTrainedConfig, config_fields: dict[str, Any], beginning: Beginning
) -> PreTrainedConfig:
    """The configuration of the model to start from; `before` is the one that its folder has."""
    fields = config_fields | _LOGITS_ONLY | {"dtype": torch.float32}
    if beginning.dropout is not None:
        if not hasattr(before, "hidden_dropout_prob"):
            raise ValueError(
                f"dropout is {beginning.dropout} and {name} of type {before.model_type}, whose configuration has no "
                "hidden_dropout_prob; set its dropout in its config.json."
            )
        fields |= dict.fromkeys(("hidden_dropout_prob", "attention_probs_dropout_prob"), beginning.dropout)
    if beginning.bilstm:
        if before.model_type not in ("bert", "mybert", MyBertBiLstmConfig.model_type):
            raise ValueError(f"{name} is of type {before.model_type}; a BiLSTM can only be put on bert and mybert.")
        return without_foreign_code(MyBertBiLstmConfig.from_pretrained(name, **fields))
    if beginning.config is not None:
        return type(beginning.config).from_dict({**beginning.config.to_dict(), **fields})
    return read_config(name, beginning.keep_model_type, **fields)


def check_encoder(name: str, model: PreTrainedModel, loaded: Mapping[str, Any]) -> None:
    """Refuse a model whose encoder did not come from its folder.

    Args:
        name: Folder or Hub name.
        model: The model, with a head or without.
        loaded: What transformers says of loading.

    Raises:
        ValueError: If weights are missing or have other shapes than the configuration says.
    """
    prefix = "" if model.base_model is model else f"{model.base_model_prefix}."
    _check_shapes(name, [mismatch for mismatch in loaded["mismatched_keys"] if mismatch[0].startswith(prefix)])
    missing = sorted(
        key for key in loaded["missing_keys"] if key.startswith(prefix) and not any(part in key for part in _OPTIONAL)
    )
    if missing:
        raise ValueError(
            f"The weights in {name} lack {len(missing)} of the encoder's, such as {missing[0]}; expected all that a "
            f"{type(model).__name__} has, or pass --from_scratch True."
        )


def _check_shapes(name: str, mismatches: Iterable[tuple[str, Any, Any]]) -> None:
    for key, found, expected in sorted(mismatches):
        raise ValueError(
            f"{key} in {name} has shape {tuple(found)}; expected {tuple(expected)}, given the sizes in its "
            "config.json."
        )


def load_finetuned(name: str, auto_class: Any, pipeline: str) -> PreTrainedModel:
    """Load a fine-tuned model.

    Args:
        name: Folder or Hub name.
        auto_class: transformers' Auto class of the head.
        pipeline: What the model is for, in the Hub's words.

    Raises:
        ValueError: If the model has no such head.
        OSError: If there is no such model.
    """
    config = read_config(name, **_LOGITS_ONLY)
    if _has_other_head(config, auto_class):
        raise ValueError(
            f"{name} has no head for this task (it is a {config.architectures[0]}); expected a model that was "
            f"fine-tuned for {pipeline}."
        )
    with only_errors():
        model, loaded = auto_class.from_pretrained(
            name, config=config, output_loading_info=True, ignore_mismatched_sizes=True, **_SAFELY
        )
    _check_shapes(name, loaded["mismatched_keys"])
    check_encoder(name, model, loaded)
    head = sorted(key for key in loaded["missing_keys"] if not key.startswith(f"{model.base_model_prefix}."))
    if head:
        raise ValueError(
            f"{name} has no head for this task (it lacks {', '.join(head)}); expected a model that was fine-tuned "
            f"as {type(model).__name__}."
        )
    return model


def check_model(name: str | Path, from_scratch: bool = False, ask_hub: bool = True) -> None:
    """Check a model folder before anything is loaded; "name" and "owner/name" may be on the Hub.

    Args:
        name: Folder or Hub name.
        from_scratch: Whether only its configuration and tokenizer are used; there need not be weights.
        ask_hub: Whether the Hub is asked for what is no folder.

    Raises:
        FileNotFoundError: If there is no such folder, or it lacks configuration or weights.
        OSError: If the Hub has no such model, or is not reached.
        ValueError: If a file is broken, or configuration and weights disagree, see `check_model_folder`.
    """
    path = Path(name)
    (check_available if ask_hub else check_path)(path)
    if path.is_dir() and (not from_scratch or any(path.glob("*.safetensors"))):
        check_model_folder(path)


def check_start(name: str, from_scratch: bool = False) -> None:
    """Check a model that training is to start from: `check_model`, and that its weights can be trained.

    Raises:
        FileNotFoundError, OSError: See `check_model`.
        ValueError: See `check_model`, or if its weights are quantized.
    """
    check_model(name, from_scratch)
    refuse_quantized_weights(PreTrainedConfig.get_config_dict(name)[0], name)


def read_config(name: str, keep_model_type: bool = False, **fields: Any) -> PreTrainedConfig:
    """Read a model's configuration; a checkpoint of type `bert` becomes one of MyBERT, which is faster.

    What it says about code in its own folder is left out: that is never run, and no copy of the model has it.

    Args:
        name: Folder or Hub name.
        keep_model_type: Whether `bert` stays with transformers' own class.
        **fields: Fields to set.

    Raises:
        ValueError: If it asks for what MyBERT does not compute.
        OSError: If there is no such model.
    """
    config = AutoConfig.from_pretrained(name, **fields, trust_remote_code=False)
    if config.model_type == "bert" and not keep_model_type:
        config = MyBertConfig.from_pretrained(name, **fields)
    return without_foreign_code(config)


def keeps_head(config: PreTrainedConfig, auto_class: Any, beginning: Beginning) -> bool:
    """Whether a model of this configuration begins with the head that it has."""
    return not beginning.new_head and not beginning.from_scratch and head_name(auto_class) in heads_of(config)


def check_max_length(max_length: int, name: str, config: PreTrainedConfig) -> None:
    """Check that a model can read sequences of a length.

    Raises:
        ValueError: If it cannot.
    """
    longest = longest_sequence(config)
    if longest is not None and max_length > longest:
        raise ValueError(f"max_length is {max_length}; {name} reads at most {longest} tokens.")


def longest_sequence(config: PreTrainedConfig) -> int | None:
    """Tokens that a model reads at most; None if it has no limit."""
    longest = getattr(config, "max_position_embeddings", None)
    if longest is not None and config.model_type in _POSITIONS_BEHIND_PADDING:
        return longest - config.pad_token_id - 1
    return longest


def head_name(auto_class: Any) -> str:
    """The kind of head of an Auto class: what follows "For" in its name."""
    return auto_class.__name__.partition("For")[2]


def heads_of(config: PreTrainedConfig) -> set[str]:
    """The heads that a checkpoint has, by what follows "For" in its classes' names; "" for none.

    One of pretraining has those of both its objectives.
    """
    heads = {name.partition("For")[2] for name in config.architectures or []}
    return heads | ({"MaskedLM", "NextSentencePrediction"} if PRETRAINING_HEAD in heads else set())


def _head_parameters(model: PreTrainedModel) -> list[str]:
    return [name for name, _ in model.named_parameters() if not name.startswith(f"{model.base_model_prefix}.")]


def _has_other_head(config: PreTrainedConfig, auto_class: Any) -> bool:
    own = head_name(auto_class)
    return bool(own) and own not in heads_of(config) and not heads_of(config) <= {""}


def _check_head(name: str, config: PreTrainedConfig, labels: Labels) -> None:
    """Refuse to throw away a head that was fine-tuned for other classes."""
    known = Labels.from_config(config)
    if len(known.names) != len(labels.names):
        raise ValueError(
            f"{name} was fine-tuned with {len(known.names)} labels ({listed(known.names)}); the data has "
            f"{len(labels.names)} ({listed(labels.names)}): pass --new_head True to give it a new head."
        )
    if set(known.names) != set(labels.names):
        logger.warning(
            "%s was fine-tuned with the labels %s; its head is further trained for %s.",
            name,
            listed(known.names),
            listed(labels.names),
        )
