"""Learning the pieces of a vocabulary from text: the same text gives the same pieces."""

import errno
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

from tokenizers import Tokenizer

from ..files.documents import Cleaning, Corpus, DocumentSettings, TextSettings
from ..files.errors import SettingError, worded
from ..files.options import settings_of
from ..files.progress import progress_bar
from ..files.source import InMemoryData, is_frame
from .pair_merging import learn_pieces
from .settings import UNK_TOKEN, VocabularySettings, reserved_tokens
from .vocab import (
    CONTINUATION_PREFIX,
    MAX_WORD_LENGTH,
    build_model,
    index_pieces,
)
from .words import WordSplitter, count_words

logger = logging.getLogger(__name__)

_LONGEST_PIECES = 20
_WORDS_AT_A_TIME = 10_000

# Text that one process counts at a time, in characters; smaller texts are counted in the main process.
BLOCK_CHARACTERS = 8 << 20

Texts = Iterable[str | Sequence[str]]  # texts, or lists of texts
FilesOrTexts = str | Path | Collection[str | Path] | Texts


def read_source(source: FilesOrTexts | None, texts: Texts | None, settings: TextSettings) -> Iterator[str]:
    """Read the text given to `train_wordpiece`; names in a list are files, other iterables hold texts."""
    if (source is None) == (texts is None):
        found = "Neither files nor" if texts is None else "Both files and"
        raise TypeError(f"{found} texts are given; use either files or texts.")
    if isinstance(texts, (str, Path)):
        raise SettingError.worded("{texts} is a single {}; expected an iterable of texts.", type(texts).__name__)
    if is_frame(given := texts if source is None else source):
        return read_files(InMemoryData(type(given).__name__, given), settings)
    names = [source] if isinstance(source, (str, Path)) else source
    if not isinstance(names, (list, tuple, set, frozenset)):
        return read_texts(cast(Texts, texts if source is None else source), settings.clean)
    for number, name in enumerate(names):
        if not isinstance(name, (str, Path)):
            raise ValueError(
                f"Item {number} of the files is a {type(name).__name__}; expected a path; pass texts as texts=[...]."
            )
    try:
        return read_files(names, settings)
    except OSError as error:
        if not isinstance(error, FileNotFoundError) and error.errno != errno.ENAMETOOLONG:
            raise
        raise FileNotFoundError(f"{str(error)[:400]} Texts are passed as texts=[...].") from error


def read_files(files: Any, settings: TextSettings) -> Iterator[str]:
    """Read what `Corpus` accepts, a block of whole lines at a time."""
    if not isinstance(files, (str, Path, InMemoryData)):
        files = list(files)
        if not files:
            raise ValueError("No file is given; expected at least one.")
    return read_texts(Corpus(files, DocumentSettings(**settings_of(TextSettings, settings))).lines())


def read_texts(texts: Texts, clean: Sequence[str] = ()) -> Iterator[str]:
    """Join texts, or lists of texts, of one or more whole lines each, cleaned if asked, into blocks of whole lines."""
    cleaning = Cleaning(clean)
    lines: list[str] = []
    size = 0
    for number, item in enumerate(texts):
        for text in [item] if isinstance(item, str) else item if isinstance(item, (list, tuple)) else [None]:
            if not isinstance(text, str):
                found = type(item if text is None else text).__name__
                raise ValueError(f"Item {number} of the texts is a {found}; expected str or list of str.")
            lines.append(cleaning.text(text) if clean else text)
            size += len(text)
        if size >= BLOCK_CHARACTERS:
            yield "\n".join(lines)
            lines, size = [], 0
    if lines:
        yield "\n".join(lines)


@dataclass
class VocabularyReport:
    """What vocabulary training found; `MyBertTokenizer.training_report` after `train_wordpiece`.

    Attributes:
        requested_size: Number of pieces requested.
        size: Number of pieces in the vocabulary; smaller only if no pair of pieces was left to merge.
        reserved: Number of special and unused tokens among them.
        alphabet: Number of characters kept; each is two pieces.
        learned: Number of pieces longer than a character.
        algorithm, vocab_layout, do_lower_case, strip_accents, min_frequency: As in `train_wordpiece`.
        characters: Length of the text, in characters.
        words: Number of words trained on.
        distinct_words: Number of distinct words among them.
        character_coverage: Fraction of the characters of all words that the alphabet covers, 0 to 1.
        dropped_characters: Number of distinct characters that it does not cover.
        measured_on: `"held-out text"`, or `"training text"` if nothing was held out.
        measured_words: Number of words in that text.
        unk_rate: Fraction of these words that become [UNK], 0 to 1.
        tokens_per_word: Mean number of tokens per word in that text.
        longest_pieces: The longest pieces, longest first.
        counting_seconds: Time to read the text and count words.
        learning_seconds: Time to learn pieces.
    """

    requested_size: int
    size: int
    reserved: int
    alphabet: int
    learned: int
    algorithm: str
    vocab_layout: str
    do_lower_case: bool
    strip_accents: bool
    min_frequency: int
    characters: int
    words: int
    distinct_words: int
    character_coverage: float
    dropped_characters: int
    measured_on: str
    measured_words: int
    unk_rate: float
    tokens_per_word: float
    longest_pieces: list[str]
    counting_seconds: float
    learning_seconds: float

    def summary(self) -> str:
        """Return the report as a few lines of text."""
        return (
            f"Vocabulary: {self.size} pieces ({self.reserved} reserved, {self.alphabet} characters with and without "
            f"##, {self.learned} learned), algorithm {self.algorithm}, "
            f"{self.counting_seconds + self.learning_seconds:.1f} s\n"
            f"Text: {self.words} words, {self.distinct_words} different ones; the alphabet covers "
            f"{self.character_coverage:.4%} of the characters\n"
            f"On {self.measured_on} ({self.measured_words} words): {self.tokens_per_word:.3f} tokens per word, "
            f"{self.unk_rate:.3%} [UNK]\n"
            f"Longest pieces: {' '.join(self.longest_pieces)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data for JSON."""
        return asdict(self)


def learn_vocabulary(
    blocks: Iterator[str], settings: VocabularySettings, show_progress: bool
) -> tuple[list[str], VocabularyReport]:
    """Learn pieces, in the order of their ids, from text in blocks of whole lines; see `train_wordpiece`."""
    start = time.perf_counter()
    splitter = WordSplitter(settings.do_lower_case, settings.strip_accents)
    counts = count_words(blocks, splitter, settings.validation_split, settings.num_processes, show_progress)
    if not counts.words:
        raise ValueError(f"The text ({counts.characters} characters) holds no word to learn from.")
    counted = time.perf_counter()

    characters = Counter[str]()
    for word, count in counts.words.items():
        for character in word:
            characters[character] += count
    alphabet = choose_alphabet(characters, settings.character_coverage)
    reserved = reserved_tokens(settings.vocab_layout)
    pieces = [*reserved, *alphabet, *(CONTINUATION_PREFIX + character for character in alphabet)]
    if len(pieces) > settings.vocab_size:
        hint = worded(" or use {vocab_layout='compact'}") if settings.vocab_layout == "google" else ""
        raise SettingError.worded(
            "{vocab_size} is {}, but {} reserved tokens and {} characters, with and without {}, need {}; "
            "raise it{}, or leave rare characters out by the option character_coverage of mybert vocab.",
            settings.vocab_size,
            len(reserved),
            len(alphabet),
            CONTINUATION_PREFIX,
            len(pieces),
            hint,
        )
    learned = _learn(counts.words, alphabet, settings, settings.vocab_size - len(pieces), show_progress)
    pieces += learned
    done = time.perf_counter()

    measured = counts.held_out or counts.words
    unk_rate, tokens_per_word = count_pieces(index_pieces(pieces), measured)
    return pieces, VocabularyReport(
        requested_size=settings.vocab_size,
        size=len(pieces),
        reserved=len(reserved),
        alphabet=len(alphabet),
        learned=len(learned),
        algorithm=settings.algorithm,
        vocab_layout=settings.vocab_layout,
        do_lower_case=settings.do_lower_case,
        strip_accents=settings.strip_accents,
        min_frequency=settings.min_frequency,
        characters=counts.characters,
        words=counts.words.total(),
        distinct_words=len(counts.words),
        character_coverage=sum(characters[character] for character in alphabet) / characters.total(),
        dropped_characters=len(characters) - len(alphabet),
        measured_on="held-out text" if counts.held_out else "training text",
        measured_words=measured.total(),
        unk_rate=unk_rate,
        tokens_per_word=tokens_per_word,
        longest_pieces=sorted(pieces[len(reserved) :], key=lambda piece: (-len(piece), piece))[:_LONGEST_PIECES],
        counting_seconds=round(counted - start, 3),
        learning_seconds=round(done - counted, 3),
    )


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


def _learn(
    words: Counter[str], alphabet: list[str], settings: VocabularySettings, wanted: int, show_progress: bool
) -> list[str]:
    """Learn a number of pieces from the words that the alphabet can spell and that BERT would split."""
    kept = set(alphabet)
    usable = {w: n for w, n in words.items() if len(w) <= MAX_WORD_LENGTH and kept.issuperset(w)}
    found = learn_pieces(usable, alphabet, settings.algorithm, settings.min_frequency) if usable else iter(())
    pieces = list(
        progress_bar(
            islice(found, wanted), "Learning pieces", wanted, unit="piece", disable=not show_progress, delay=2
        )
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


def count_pieces(vocab: dict[str, int], words: Counter[str], unk_token: str = UNK_TOKEN) -> tuple[float, float]:
    """Return the fraction of words (at least one) that become [UNK], and the tokens per word."""
    unknown = tokens = 0
    model = Tokenizer(build_model(vocab, unk_token))
    items = iter(words.items())
    while batch := list(islice(items, _WORDS_AT_A_TIME)):
        encodings = model.encode_batch_fast([word for word, _ in batch], add_special_tokens=False)
        for encoding, (_, count) in zip(encodings, batch, strict=True):
            tokens += count * len(encoding.ids)
            unknown += count * (vocab[unk_token] in encoding.ids)
    return unknown / words.total(), tokens / words.total()
