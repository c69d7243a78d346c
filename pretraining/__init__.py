"""From text to a pretrained model.

The names load on first use: tokenizing a corpus needs neither torch nor the trainer, which saves memory.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..files.sentences import split_sentences
    from .adaptation import AdaptArguments, adapt
    from .collator import PretrainingCollator
    from .commands import DataArguments, prepare_data
    from .data_settings import ExampleSettings, FilterSettings, MaskingRates, StoreSettings
    from .dataset import PretrainingDataset
    from .documents import read_documents
    from .filter_report import FilterReport
    from .filtering import CorpusFilter
    from .masking import mask_tokens
    from .pretraining_arguments import MODEL_SIZES, PretrainingArguments
    from .pretraining_run import pretrain
    from .store_builder import build_token_store, inspect_corpus
    from .store_format import StoreSummary, TokenStore
    from .store_shards import StoreShards
    from .trainer import PretrainingTrainer

_MODULES = {
    "MODEL_SIZES": "pretraining_arguments",
    "AdaptArguments": "adaptation",
    "CorpusFilter": "filtering",
    "DataArguments": "commands",
    "ExampleSettings": "data_settings",
    "FilterReport": "filter_report",
    "FilterSettings": "data_settings",
    "MaskingRates": "data_settings",
    "PretrainingArguments": "pretraining_arguments",
    "PretrainingCollator": "collator",
    "PretrainingDataset": "dataset",
    "PretrainingTrainer": "trainer",
    "StoreSettings": "data_settings",
    "StoreShards": "store_shards",
    "StoreSummary": "store_format",
    "TokenStore": "store_format",
    "adapt": "adaptation",
    "build_token_store": "store_builder",
    "inspect_corpus": "store_builder",
    "mask_tokens": "masking",
    "prepare_data": "commands",
    "pretrain": "pretraining_run",
    "read_documents": "documents",
    "split_sentences": ".files.sentences",
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
