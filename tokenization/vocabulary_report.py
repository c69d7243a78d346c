"""What vocabulary training found."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class VocabularyReport:
    """What vocabulary training found; ``MyBertTokenizer.training_report`` after `train_wordpiece`.

    Attributes:
        requested_size: Pieces asked for.
        size: Pieces in the vocabulary; smaller only if no pair of pieces was left to merge.
        reserved: Special and unused tokens among them.
        alphabet: Characters kept; each is two pieces.
        learned: Pieces longer than a character.
        algorithm: As in `train_wordpiece`, like the following four.
        layout: See above.
        lower_case: See above.
        strip_accents: See above.
        min_frequency: See above.
        characters: Length of the text, in characters.
        words: Words trained on.
        distinct_words: Different ones among them.
        character_coverage: Share of the characters of all words that the alphabet holds, 0 to 1.
        dropped_characters: Different characters that it does not hold.
        measured_on: ``"held-out text"``, or ``"training text"`` if nothing was held out.
        measured_words: Words in it.
        unk_rate: Share of these words that become [UNK], 0 to 1.
        tokens_per_word: Tokens per word there.
        longest_pieces: Longest first.
        counting_seconds: Time for reading and counting words.
        learning_seconds: Time for learning pieces.
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
        """Return a few lines to read."""
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
