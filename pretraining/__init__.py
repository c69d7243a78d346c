"""From text to a pretrained model.

The names load on first use: tokenizing a corpus needs neither torch nor the trainer, which saves memory.
"""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from ..files.text import split_sentences
    from ..modeling_mybert.model_sizes import MODEL_SIZES
    from .adapt_settings import AdaptSettings
    from .adaptation import AdaptArguments, adapt
    from .build_store import StoreShards, build_token_store, inspect_corpus, read_documents
    from .commands import prepare_data
    from .dataset import PretrainingDataset
    from .filtering import CorpusFilter, FilterReport
    from .masking import PretrainingCollator, mask_tokens
    from .plan import PretrainingArguments, PretrainPlan, plan_pretraining
    from .pretrain_settings import PretrainSettings
    from .run import pretrain
    from .settings import DataArguments, DataSettings, ExampleSettings, FilterSettings, MaskingRates, StoreSettings
    from .token_store import StoreSummary, TokenStore
    from .trainer import PretrainingTrainer

__all__ = [
    "MODEL_SIZES",
    "AdaptArguments",
    "AdaptSettings",
    "CorpusFilter",
    "DataArguments",
    "DataSettings",
    "ExampleSettings",
    "FilterReport",
    "FilterSettings",
    "MaskingRates",
    "PretrainPlan",
    "PretrainSettings",
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
    "plan_pretraining",
    "prepare_data",
    "pretrain",
    "read_documents",
    "split_sentences",
]


__getattr__, __dir__ = lazy_names(__name__)
