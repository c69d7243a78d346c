"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from .bulk_encoding import BulkEncoder, encode_words
from .commands import VocabArguments, train_vocabulary
from .extension import Extension, count_corpus_words, extend_vocabulary, spell
from .learning import VocabularyBasics, VocabularyReport, VocabularySettings
from .tokenization_mybert import MyBertTokenizer, train_wordpiece
from .truncation import TruncatedTexts, encode_and_truncate
from .vocab import load_vocab, save_vocab, unknown_warning

__all__ = [
    "BulkEncoder",
    "Extension",
    "MyBertTokenizer",
    "TruncatedTexts",
    "VocabArguments",
    "VocabularyBasics",
    "VocabularyReport",
    "VocabularySettings",
    "count_corpus_words",
    "encode_and_truncate",
    "encode_words",
    "extend_vocabulary",
    "load_vocab",
    "save_vocab",
    "spell",
    "train_vocabulary",
    "train_wordpiece",
    "unknown_warning",
]
