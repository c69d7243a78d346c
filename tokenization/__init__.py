"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from .bulk_encoding import BulkEncoder
from .text_files import expand_paths, open_text
from .tokenization_mybert import MyBertTokenizer
from .vocab import load_vocab, save_vocab
from .wordpiece_trainer import train_wordpiece

__all__ = [
    "BulkEncoder",
    "MyBertTokenizer",
    "expand_paths",
    "load_vocab",
    "open_text",
    "save_vocab",
    "train_wordpiece",
]
