"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from .bulk_encoding import BulkEncoder, encode_words
from .cutting import CutTexts, encode_and_cut
from .tokenization_mybert import MyBertTokenizer
from .vocab import load_vocab, save_vocab
from .vocab_command import VocabArguments, train_vocabulary
from .vocabulary_report import VocabularyReport
from .wordpiece_trainer import train_wordpiece

__all__ = [
    "BulkEncoder",
    "CutTexts",
    "MyBertTokenizer",
    "VocabArguments",
    "VocabularyReport",
    "encode_and_cut",
    "encode_words",
    "load_vocab",
    "save_vocab",
    "train_vocabulary",
    "train_wordpiece",
]
