"""Learning the pieces of a vocabulary from text: the same text gives the same pieces."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

from tqdm.auto import tqdm

from .pair_merging import learn_pieces
from .vocab import CONTINUATION_PREFIX, MAX_WORD_LENGTH, reserved_tokens
from .vocabulary_report import VocabularyReport, report_on
from .vocabulary_settings import VocabularySettings
from .word_counting import count_words
from .word_splitting import WordSplitter

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class LearnedVocabulary:
    """The pieces in the order of their ids, and the report on learning them."""

    pieces: list[str]
    report: VocabularyReport


def learn_vocabulary(
    blocks: Iterator[str], settings: VocabularySettings, show_progress: bool = True
) -> LearnedVocabulary:
    """Learn a vocabulary from text in blocks of whole lines; `train_wordpiece` describes the algorithm."""
    start = time.perf_counter()
    splitter = WordSplitter(settings.lower_case, settings.strip_accents)
    counts = count_words(blocks, splitter, settings.held_out_fraction, settings.num_processes, show_progress)
    if not counts.words:
        raise ValueError(f"The text ({counts.characters} characters) holds no word to learn from.")
    counted = time.perf_counter()

    characters = count_characters(counts.words)
    alphabet = choose_alphabet(characters, settings.character_coverage)
    pieces = _pieces_before_learning(alphabet, settings)
    pieces += _learn(counts.words, alphabet, settings, settings.vocab_size - len(pieces), show_progress)
    learned = time.perf_counter()

    seconds = (counted - start, learned - counted)
    return LearnedVocabulary(pieces, report_on(pieces, alphabet, characters, counts, settings, seconds))


def count_characters(words: Counter[str]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    return characters


def choose_alphabet(characters: Counter[str], coverage: float) -> list[str]:
    """Return the most frequent characters that make up this fraction of the text, sorted by code point."""
    alphabet: list[str] = []
    missing = coverage * characters.total()
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if missing <= 0:
            break
        alphabet.append(character)
        missing -= count
    return sorted(alphabet)


def _pieces_before_learning(alphabet: list[str], settings: VocabularySettings) -> list[str]:
    reserved = reserved_tokens(settings.layout)
    pieces = [*reserved, *alphabet, *(CONTINUATION_PREFIX + character for character in alphabet)]
    if len(pieces) > settings.vocab_size:
        raise ValueError(
            f"vocab_size is {settings.vocab_size}, but {len(reserved)} reserved tokens and {len(alphabet)} "
            f"characters, with and without {CONTINUATION_PREFIX}, need {len(pieces)}; raise vocab_size, lower "
            f"character_coverage ({settings.character_coverage}) or use layout='compact'."
        )
    return pieces


def _learn(
    words: Counter[str], alphabet: list[str], settings: VocabularySettings, wanted: int, show_progress: bool
) -> list[str]:
    """Learn a number of pieces from the words that the alphabet can spell and that BERT would split."""
    kept = set(alphabet)
    usable = {w: n for w, n in words.items() if len(w) <= MAX_WORD_LENGTH and kept.issuperset(w)}
    found = learn_pieces(usable, alphabet, settings.algorithm, settings.min_frequency) if usable else iter(())
    pieces = list(
        tqdm(islice(found, wanted), "Learning pieces", wanted, unit="piece", disable=not show_progress, delay=2)
    )
    if len(pieces) < wanted:
        logger.warning(
            "The text gives a vocabulary of %d pieces instead of the %d asked for: no pair of pieces occurs %d times "
            "any more.",
            settings.vocab_size - wanted + len(pieces),
            settings.vocab_size,
            settings.min_frequency,
        )
    return pieces
