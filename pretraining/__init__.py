"""From text to a pretrained model.

The names load on first use: tokenizing a corpus needs neither torch nor the trainer, which saves memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..files.text import split_sentences
    from .adaptation import AdaptArguments, adapt
    from .build_store import StoreShards, build_token_store, inspect_corpus, read_documents
    from .commands import DataArguments, prepare_data
    from .dataset import PretrainingDataset
    from .examples.example_settings import ExampleSettings, MaskingRates
    from .filtering import CorpusFilter, FilterReport
    from .masking import PretrainingCollator, mask_tokens
    from .run import pretrain
    from .store.store_settings import FilterSettings, StoreSettings
    from .token_store import StoreSummary, TokenStore
    from .trainer import PretrainingTrainer
    from .training.pretraining_arguments import MODEL_SIZES, PretrainingArguments

_MODULES = {
    "MODEL_SIZES": "training.pretraining_arguments",
    "AdaptArguments": "adaptation",
    "CorpusFilter": "filtering",
    "DataArguments": "commands",
    "ExampleSettings": "examples.example_settings",
    "FilterReport": "filtering",
    "FilterSettings": "store.store_settings",
    "MaskingRates": "examples.example_settings",
    "PretrainingArguments": "training.pretraining_arguments",
    "PretrainingCollator": "masking",
    "PretrainingDataset": "dataset",
    "PretrainingTrainer": "trainer",
    "StoreSettings": "store.store_settings",
    "StoreShards": "build_store",
    "StoreSummary": "token_store",
    "TokenStore": "token_store",
    "adapt": "adaptation",
    "build_token_store": "build_store",
    "inspect_corpus": "build_store",
    "mask_tokens": "masking",
    "prepare_data": "commands",
    "pretrain": "run",
    "read_documents": "build_store",
    "split_sentences": ".files.text",
}

__all__ = [
    "MODEL_SIZES",
    "AdaptArguments",
    "CorpusFilter",
    "DataArguments",
    "ExampleSettings",
    "FilterReport",
    "FilterSettings",
    "MaskingRates",
    "PretrainingArguments",
    "PretrainingCollator",
    "PretrainingDataset",
    "PretrainingTrainer",
    "StoreSettings",
    "StoreShards",
    "StoreSummary",
    "TokenStore",
    "adapt",
    "build_token_store",
    "inspect_corpus",
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
