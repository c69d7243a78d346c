"""Learning a WordPiece vocabulary from text: the same text gives the same bytes."""

import logging
import time
from collections import Counter
from collections.abc import Iterator
from itertools import islice

from tqdm.auto import tqdm

from .pair_merging import Algorithm, learn_pieces
from .tokenization_mybert import MAX_WORD_LENGTH, MyBertTokenizer
from .vocab import CONTINUATION_PREFIX, UNK_TOKEN, Layout, index_pieces, reserved_tokens
from .vocabulary_report import VocabularyReport
from .word_counting import TextSource, count_words
from .word_splitting import WordSplitter

logger = logging.getLogger(__name__)

_LONGEST_PIECES = 20
_WORDS_AT_A_TIME = 10_000


def train_wordpiece(
    files_or_iterator: TextSource,
    vocab_size: int = 30522,
    *,
    algorithm: Algorithm = "bpe",
    lower_case: bool = True,
    strip_accents: bool = False,
    layout: Layout = "google",
    character_coverage: float = 0.9999,
    min_frequency: int = 2,
    held_out_fraction: float = 0.0,
    encoding: str = "utf-8",
    num_processes: int | None = None,
    show_progress: bool = True,
) -> MyBertTokenizer:
    """Learn a WordPiece vocabulary and return its tokenizer.

    The text is split into words as `MyBertTokenizer` does; the words are cut into characters, the first as it is, the
    others with ``##``; then neighbouring pieces are merged, one pair after the other, until the size is reached:

    * ``algorithm="bpe"``: always the most frequent pair, the highest count(ab). What ``WordPieceTrainer`` of the
      ``tokenizers`` library does.
    * ``algorithm="wordpiece"``: always the pair with the highest count(ab) / (count(a) count(b)) among those that
      occur ``min_frequency`` times. It favours rare pieces: give a ``min_frequency`` in the hundreds.

    Equal scores are decided by age: the pair whose left piece came earlier into the vocabulary, then the one whose
    right piece did (`learn_pieces` has every detail). So the same text gives the same ``vocab.txt``, byte for byte,
    whatever the order of files or lines, the number of processes, the hash seed or the machine.

    The order of the vocabulary: reserved tokens, kept characters by code point, the same with ``##``, learned pieces
    as they were found. The characters kept are the most frequent ones that together make up ``character_coverage`` of
    the text (of equally frequent ones the lower code point first). Words with another character become [UNK] and are
    not learned from; nor are words of more than 200 characters, which BERT never splits.

    Args:
        files_or_iterator: A path or several (files, plain or .gz, .xz, .bz2, .zst; folders; patterns; ``"-"`` for
            standard input), or an iterable of texts or lists of texts, such as `mybert.pretraining.read_documents`
            gives from JSON lines and Parquet. A list of ``str`` is taken for paths if one of them exists or all look
            like file names.
        vocab_size: Size of the vocabulary, reserved tokens included.
        algorithm: ``"bpe"`` or ``"wordpiece"``; docs/tokenization.md compares them.
        lower_case: Whether to lower-case.
        strip_accents: Whether to strip accents. Google does when lower-casing; here the default is not to, because it
            takes Korean apart into jamo and drops what tells words apart in other languages.
        layout: ``"google"`` or ``"compact"``: see `vocab.reserved_tokens`.
        character_coverage: Share of the text's characters to keep in the alphabet, above 0 up to 1.
        min_frequency: Pairs that occur less often are not merged.
        held_out_fraction: Share of the lines (0 to 0.5) to put aside for the report; chosen by content, so it does not
            depend on their order.
        encoding: Of the files.
        num_processes: For reading; by default the number of usable cores.
        show_progress: Whether to show progress bars.

    Returns:
        The tokenizer; its attribute ``training_report`` is a `VocabularyReport`. If the text cannot give the size, the
        vocabulary is smaller, and a warning says so.

    Raises:
        ValueError: An argument is out of range, the text holds no word, a file is JSON or Parquet by its name or not
            text in this encoding, or the reserved tokens and the alphabet do not fit into ``vocab_size``.
        OSError: A file cannot be read.
    """
    if algorithm not in ("bpe", "wordpiece"):
        raise ValueError(f"algorithm is {algorithm!r}, expected 'bpe' or 'wordpiece'.")
    if not 0 < character_coverage <= 1:
        raise ValueError(f"character_coverage is {character_coverage}, expected a share above 0 and up to 1.")
    if not 0 <= held_out_fraction <= 0.5:
        raise ValueError(f"held_out_fraction is {held_out_fraction}, expected a share from 0 to 0.5.")
    if min_frequency < 1:
        raise ValueError(f"min_frequency is {min_frequency}, expected at least 1.")
    if num_processes is not None and num_processes < 1:
        raise ValueError(f"num_processes is {num_processes}, expected at least 1.")
    reserved = reserved_tokens(layout)

    start = time.perf_counter()
    counts = count_words(
        files_or_iterator,
        WordSplitter(lower_case, strip_accents),
        held_out_fraction=held_out_fraction,
        encoding=encoding,
        num_processes=num_processes,
        show_progress=show_progress,
    )
    if not counts.words:
        raise ValueError(f"The text ({counts.characters} characters) holds no word to learn from.")
    counted = time.perf_counter()

    characters = _count_characters(counts.words)
    alphabet = choose_alphabet(characters, character_coverage)
    pieces = [*reserved, *alphabet, *(CONTINUATION_PREFIX + character for character in alphabet)]
    if len(pieces) > vocab_size:
        raise ValueError(
            f"vocab_size is {vocab_size}, but {len(reserved)} reserved tokens and {len(alphabet)} characters, with "
            f"and without {CONTINUATION_PREFIX}, need {len(pieces)}; raise vocab_size, lower character_coverage "
            f"({character_coverage}) or use layout='compact'."
        )
    kept = set(alphabet)
    usable = {w: n for w, n in counts.words.items() if len(w) <= MAX_WORD_LENGTH and kept.issuperset(w)}
    learned: Iterator[str] = learn_pieces(usable, alphabet, algorithm, min_frequency) if usable else iter(())
    wanted = vocab_size - len(pieces)
    pieces += tqdm(
        islice(learned, wanted), "Learning pieces", total=wanted, unit="piece", disable=not show_progress, delay=2
    )
    if len(pieces) < vocab_size:
        logger.warning(
            "The text gives a vocabulary of %d pieces instead of the %d asked for: no pair of pieces occurs %d times "
            "any more.",
            len(pieces),
            vocab_size,
            min_frequency,
        )
    done = time.perf_counter()

    tokenizer = MyBertTokenizer(index_pieces(pieces), do_lower_case=lower_case, strip_accents=strip_accents)
    measured = counts.held_out or counts.words
    unk_rate, tokens_per_word = measure(tokenizer, measured)
    tokenizer.training_report = VocabularyReport(
        requested_size=vocab_size,
        size=len(pieces),
        reserved=len(reserved),
        alphabet=len(alphabet),
        learned=len(pieces) - len(reserved) - 2 * len(alphabet),
        algorithm=algorithm,
        layout=layout,
        lower_case=lower_case,
        strip_accents=strip_accents,
        min_frequency=min_frequency,
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
    return tokenizer


def choose_alphabet(characters: Counter[str], coverage: float) -> list[str]:
    """Return the most frequent characters that make up this share of the text, sorted by code point.

    Args:
        characters: Character -> how often it occurs.
        coverage: Above 0 up to 1.
    """
    alphabet: list[str] = []
    missing = coverage * characters.total()
    for character, count in sorted(characters.items(), key=lambda item: (-item[1], item[0])):
        if missing <= 0:
            break
        alphabet.append(character)
        missing -= count
    return sorted(alphabet)


def measure(tokenizer: MyBertTokenizer, words: Counter[str]) -> tuple[float, float]:
    """Return the share of words that become [UNK], and the tokens per word.

    Args:
        tokenizer: The tokenizer to judge.
        words: Normalized words -> how often they occur; at least one.
    """
    unknown = tokens = 0
    unk_id = tokenizer.convert_tokens_to_ids(UNK_TOKEN)
    items = iter(words.items())
    while batch := list(islice(items, _WORDS_AT_A_TIME)):
        encodings = tokenizer.backend_tokenizer.encode_batch_fast(
            [word for word, _ in batch], add_special_tokens=False
        )
        for encoding, (_, count) in zip(encodings, batch, strict=True):
            tokens += count * len(encoding.ids)
            unknown += count * (unk_id in encoding.ids)
    return unknown / words.total(), tokens / words.total()


def _count_characters(words: Counter[str]) -> Counter[str]:
    characters: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            characters[character] += count
    return characters
