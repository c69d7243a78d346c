"""From text to a pretrained model."""

from .arguments import PretrainingArguments
from .collator import PretrainingCollator
from .documents import read_documents, split_sentences
from .examples import PretrainingDataset
from .masking import MaskingRates, mask_tokens
from .recipe import pretrain
from .token_store import TokenStore, build_token_store

__all__ = [
    "MaskingRates",
    "PretrainingArguments",
    "PretrainingCollator",
    "PretrainingDataset",
    "TokenStore",
    "build_token_store",
    "mask_tokens",
    "pretrain",
    "read_documents",
    "split_sentences",
]
