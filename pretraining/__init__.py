"""From text to a pretrained model.

The names load on first use: tokenizing a corpus needs neither torch nor the trainer, which saves memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..files.text import split_sentences
    from .adaptation import AdaptArguments, adapt
    from .commands import DataArguments, prepare_data
    from .examples.collator import PretrainingCollator
    from .examples.dataset import PretrainingDataset
    from .examples.example_settings import ExampleSettings, MaskingRates
    from .examples.masking import mask_tokens
    from .store.documents import read_documents
    from .store.filter_report import FilterReport
    from .store.filtering import CorpusFilter
    from .store.store_builder import build_token_store, inspect_corpus
    from .store.store_format import StoreSummary, TokenStore
    from .store.store_settings import FilterSettings, StoreSettings
    from .store.store_shards import StoreShards
    from .training.pretraining_arguments import MODEL_SIZES, PretrainingArguments
    from .training.pretraining_run import pretrain
    from .training.trainer import PretrainingTrainer

_MODULES = {
    "MODEL_SIZES": "training.pretraining_arguments",
    "AdaptArguments": "adaptation",
    "CorpusFilter": "store.filtering",
    "DataArguments": "commands",
    "ExampleSettings": "examples.example_settings",
    "FilterReport": "store.filter_report",
    "FilterSettings": "store.store_settings",
    "MaskingRates": "examples.example_settings",
    "PretrainingArguments": "training.pretraining_arguments",
    "PretrainingCollator": "examples.collator",
    "PretrainingDataset": "examples.dataset",
    "PretrainingTrainer": "training.trainer",
    "StoreSettings": "store.store_settings",
    "StoreShards": "store.store_shards",
    "StoreSummary": "store.store_format",
    "TokenStore": "store.store_format",
    "adapt": "adaptation",
    "build_token_store": "store.store_builder",
    "inspect_corpus": "store.store_builder",
    "mask_tokens": "examples.masking",
    "prepare_data": "commands",
    "pretrain": "training.pretraining_run",
    "read_documents": "store.documents",
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
