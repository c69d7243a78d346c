"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from .bulk_encoding import BulkEncoder, encode_words
from .commands import VocabArguments, train_vocabulary
from .cutting import CutTexts, encode_and_cut
from .extension import Extension, count_corpus_words, extend_vocabulary, spell
from .tokenization_mybert import MyBertTokenizer, train_wordpiece
from .unknown_tokens import unknown_warning
from .vocab import load_vocab, save_vocab
from .vocabulary_report import VocabularyReport
from .vocabulary_settings import VocabularyBasics, VocabularySettings

__all__ = [
    "BulkEncoder",
    "CutTexts",
    "Extension",
    "MyBertTokenizer",
    "VocabArguments",
    "VocabularyBasics",
    "VocabularyReport",
    "VocabularySettings",
    "count_corpus_words",
    "encode_and_cut",
    "encode_words",
    "extend_vocabulary",
    "load_vocab",
    "save_vocab",
    "spell",
    "train_vocabulary",
    "train_wordpiece",
    "unknown_warning",
]
