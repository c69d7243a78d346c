"""Names of the sizes of new models."""

import re

from ..files.errors import SettingError
from ..modeling_mybert.model_sizes import MODEL_SIZES

SIZE_NAMES = f"{', '.join(MODEL_SIZES)}, or layers x hidden size, such as 2x256"
_LAYERS_AND_WIDTH = re.compile(r"([0-9]+)x([0-9]+)")


def is_size(name: str) -> bool:
    """Whether a name is a key of `MODEL_SIZES` or has the form of layers x width, such as "2x256"."""
    return name in MODEL_SIZES or _LAYERS_AND_WIDTH.fullmatch(name) is not None


def fields_of_size(size: str, option: str = "model_size") -> dict[str, int]:
    """Fields of a configuration for a size, as `is_size` knows them, of an option.

    Heads are 64 wide, and feed-forward layers four times as wide as the model, as in all of `MODEL_SIZES`.
    """
    if size in MODEL_SIZES:
        layers, width, heads = MODEL_SIZES[size]
    elif match := _LAYERS_AND_WIDTH.fullmatch(size):
        layers, width = map(int, match.groups())
        heads, rest = divmod(width, 64)
        if not layers or not heads or rest:
            raise SettingError(option, size, "at least 1 layer, and a width that is a multiple of 64")
    else:
        raise SettingError(option, size, f"one of {SIZE_NAMES}", known=MODEL_SIZES)
    return {
        "num_hidden_layers": layers,
        "hidden_size": width,
        "num_attention_heads": heads,
        "intermediate_size": 4 * width,
    }
