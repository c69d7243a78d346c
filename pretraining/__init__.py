"""From text to a pretrained model.

The names load on first use: tokenizing a corpus needs neither torch nor the trainer, and the memory is better spent.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .collator import PretrainingCollator
    from .data_command import DataArguments, prepare_data
    from .documents import read_documents, split_sentences
    from .examples import PretrainingDataset
    from .masking import MaskingRates, mask_tokens
    from .recipe import PretrainingArguments, pretrain
    from .token_store import StoreSummary, TokenStore, build_token_store
    from .trainer import PretrainingTrainer

_MODULES = {
    "DataArguments": "data_command",
    "MaskingRates": "masking",
    "PretrainingArguments": "recipe",
    "PretrainingCollator": "collator",
    "PretrainingDataset": "examples",
    "PretrainingTrainer": "trainer",
    "StoreSummary": "token_store",
    "TokenStore": "token_store",
    "build_token_store": "token_store",
    "mask_tokens": "masking",
    "prepare_data": "data_command",
    "pretrain": "recipe",
    "read_documents": "documents",
    "split_sentences": "documents",
}

__all__ = [
    "DataArguments",
    "MaskingRates",
    "PretrainingArguments",
    "PretrainingCollator",
    "PretrainingDataset",
    "PretrainingTrainer",
    "StoreSummary",
    "TokenStore",
    "build_token_store",
    "mask_tokens",
    "prepare_data",
    "pretrain",
    "read_documents",
    "split_sentences",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
