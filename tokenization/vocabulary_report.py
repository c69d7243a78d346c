"""What vocabulary training found."""

from collections import Counter
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any

from tokenizers import Tokenizer

from .vocab import UNK_TOKEN, build_model, index_pieces, reserved_tokens
from .vocabulary_settings import VocabularySettings
from .word_counting import WordCounts

_LONGEST_PIECES = 20
_WORDS_AT_A_TIME = 10_000


@dataclass
class VocabularyReport:
    """What vocabulary training found; `MyBertTokenizer.training_report` after `train_wordpiece`.

    Attributes:
        requested_size: Number of pieces requested.
        size: Number of pieces in the vocabulary; smaller only if no pair of pieces was left to merge.
        reserved: Number of special and unused tokens among them.
        alphabet: Number of characters kept; each is two pieces.
        learned: Number of pieces longer than a character.
        algorithm: As in `train_wordpiece`, like the following four.
        layout: See above.
        lower_case: See above.
        strip_accents: See above.
        min_frequency: See above.
        characters: Length of the text, in characters.
        words: Number of words trained on.
        distinct_words: Number of distinct words among them.
        character_coverage: Share of the characters of all words that the alphabet covers, 0 to 1.
        dropped_characters: Number of distinct characters that it does not cover.
        measured_on: `"held-out text"`, or `"training text"` if nothing was held out.
        measured_words: Number of words in that text.
        unk_rate: Share of these words that become [UNK], 0 to 1.
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
    layout: str
    lower_case: bool
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


def report_on(
    pieces: list[str],
    alphabet: list[str],
    characters: Counter[str],
    counts: WordCounts,
    settings: VocabularySettings,
    seconds: tuple[float, float],  # to count words and to learn pieces
) -> VocabularyReport:
    reserved = len(reserved_tokens(settings.layout))
    measured = counts.held_out or counts.words
    unk_rate, tokens_per_word = count_pieces(index_pieces(pieces), measured)
    return VocabularyReport(
        requested_size=settings.vocab_size,
        size=len(pieces),
        reserved=reserved,
        alphabet=len(alphabet),
        learned=len(pieces) - reserved - 2 * len(alphabet),
        algorithm=settings.algorithm,
        layout=settings.layout,
        lower_case=settings.lower_case,
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
        longest_pieces=sorted(pieces[reserved:], key=lambda piece: (-len(piece), piece))[:_LONGEST_PIECES],
        counting_seconds=round(seconds[0], 3),
        learning_seconds=round(seconds[1], 3),
    )


def count_pieces(vocab: dict[str, int], words: Counter[str]) -> tuple[float, float]:
    """Return the fraction of words (at least one) that become [UNK], and the tokens per word."""
    unknown = tokens = 0
    model = Tokenizer(build_model(vocab))
    items = iter(words.items())
    while batch := list(islice(items, _WORDS_AT_A_TIME)):
        encodings = model.encode_batch_fast([word for word, _ in batch], add_special_tokens=False)
        for encoding, (_, count) in zip(encodings, batch, strict=True):
            tokens += count * len(encoding.ids)
            unknown += count * (vocab[UNK_TOKEN] in encoding.ids)
    return unknown / words.total(), tokens / words.total()
