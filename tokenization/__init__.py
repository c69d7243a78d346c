"""Vocabulary training, the Google-exact tokenizer and corpus-speed encoding."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .bulk_encoding import BulkEncoder, encode_words
    from .commands import train_vocabulary
    from .extension import Extension, count_corpus_words, entries_for, extend_vocabulary, spell
    from .learning import VocabularyReport
    from .settings import VocabArguments, VocabSettings, VocabularyBasics, VocabularySettings
    from .tokenization_mybert import MyBertTokenizer, train_wordpiece
    from .truncation import TruncatedTexts, encode_and_truncate
    from .vocab import load_vocab, save_vocab, save_wordpiece_vocab, unknown_warning

__all__ = [
    "BulkEncoder",
    "Extension",
    "MyBertTokenizer",
    "TruncatedTexts",
    "VocabArguments",
    "VocabSettings",
    "VocabularyBasics",
    "VocabularyReport",
    "VocabularySettings",
    "count_corpus_words",
    "encode_and_truncate",
    "encode_words",
    "entries_for",
    "extend_vocabulary",
    "load_vocab",
    "save_vocab",
    "save_wordpiece_vocab",
    "spell",
    "train_vocabulary",
    "train_wordpiece",
    "unknown_warning",
]

__getattr__, __dir__ = lazy_names(__name__)
