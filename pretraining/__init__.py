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

_FILES = {
    ".files.text": {"split_sentences"},
    "adaptation": {"AdaptArguments", "adapt"},
    "build_store": {"StoreShards", "build_token_store", "inspect_corpus", "read_documents"},
    "commands": {"DataArguments", "prepare_data"},
    "dataset": {"PretrainingDataset"},
    "examples.example_settings": {"ExampleSettings", "MaskingRates"},
    "filtering": {"CorpusFilter", "FilterReport"},
    "masking": {"PretrainingCollator", "mask_tokens"},
    "run": {"pretrain"},
    "store.store_settings": {"FilterSettings", "StoreSettings"},
    "token_store": {"StoreSummary", "TokenStore"},
    "trainer": {"PretrainingTrainer"},
    "training.pretraining_arguments": {"MODEL_SIZES", "PretrainingArguments"},
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
    for file, names in _FILES.items():
        if name in names:
            return getattr(importlib.import_module(f".{file}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
