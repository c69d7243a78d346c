"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from .bulk_encoding import BulkEncoder, encode_words
from .commands import VocabArguments, train_vocabulary
from .cutting import CutTexts, encode_and_cut
from .tokenization_mybert import MyBertTokenizer, train_wordpiece
from .vocab import load_vocab, save_vocab
from .vocabulary_report import VocabularyReport
from .vocabulary_settings import VocabularyBasics, VocabularySettings

__all__ = [
    "BulkEncoder",
    "CutTexts",
    "MyBertTokenizer",
    "VocabArguments",
    "VocabularyBasics",
    "VocabularyReport",
    "VocabularySettings",
    "encode_and_cut",
    "encode_words",
    "load_vocab",
    "save_vocab",
    "train_vocabulary",
    "train_wordpiece",
]
