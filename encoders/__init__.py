"""transformers' own encoders (BERT, RoBERTa, ModernBERT, ...) without padding and with faster kernels, in place."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .in_place import ENCODER_TYPES, restore, speed_up

__all__ = ["ENCODER_TYPES", "restore", "speed_up"]


__getattr__, __dir__ = lazy_names(__name__)
