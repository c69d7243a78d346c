"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from .bulk_encoding import BulkEncoder, encode_words
from .text_files import expand_paths, open_text
from .tokenization_mybert import MyBertTokenizer
from .vocab import load_vocab, save_vocab
from .vocab_command import VocabArguments, train_vocabulary
from .vocabulary_report import VocabularyReport
from .word_counting import usable_cores
from .wordpiece_trainer import train_wordpiece

__all__ = [
    "BulkEncoder",
    "MyBertTokenizer",
    "VocabArguments",
    "VocabularyReport",
    "encode_words",
    "expand_paths",
    "load_vocab",
    "open_text",
    "save_vocab",
    "train_vocabulary",
    "train_wordpiece",
    "usable_cores",
]
