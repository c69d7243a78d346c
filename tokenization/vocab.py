"""Vocabulary files: one piece per line, the line number (from 0) is the id."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from tokenizers.models import WordPiece

from ..files.output import written_beside
from .characters import build_normalizer
from .settings import UNK_TOKEN

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

CONTINUATION_PREFIX = "##"
# Longer words become [UNK] (Google's WordpieceTokenizer; transformers' BertTokenizer stops at 100).
MAX_WORD_LENGTH = 200


def load_vocab(path: str | Path) -> dict[str, int]:
    r"""Read a `vocab.txt` in UTF-8: piece -> id, in file order.

    Tolerated, as in Google's own reader: `\r\n` line ends, spaces and tabs around a piece, and blank lines at the end;
    also a UTF-8 byte-order mark.

    Raises:
        ValueError: The file is not UTF-8 or is empty, or has a blank line between pieces or a duplicate piece.
    """
    data = Path(path).read_bytes()
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{path} is not a UTF-8 vocabulary: bad byte at offset {error.start} ({error.reason})."
        ) from error
    pieces = [line.strip(" \t\r") for line in text.removeprefix("\ufeff").rstrip(" \t\r\n").split("\n")]
    return index_pieces(pieces, source=str(path))


def index_pieces(pieces: Iterable[str], source: str = "The vocabulary") -> dict[str, int]:
    """Number the pieces of a vocabulary from 0; error messages give line numbers from 1."""
    vocab: dict[str, int] = {}
    for index, piece in enumerate(pieces):
        if not piece:
            raise ValueError(f"{source}: line {index + 1} is blank; line numbers are ids, so no line may be empty.")
        if piece in vocab:
            raise ValueError(f"{source}: {piece!r} is on line {vocab[piece] + 1} and again on line {index + 1}.")
        vocab[piece] = index
    if not vocab:
        raise ValueError(f"{source} is empty; expected one piece per line.")
    return vocab


def save_vocab(vocab: dict[str, int], path: str | Path) -> None:
    r"""Write a vocabulary file: UTF-8, one piece per line in the order of the ids, from 0, `\n` line ends."""
    pieces = sorted(vocab, key=vocab.__getitem__)
    assert [vocab[p] for p in pieces] == list(range(len(pieces))), "ids must be contiguous"
    with written_beside(path) as temporary:
        temporary.write_bytes("".join(f"{piece}\n" for piece in pieces).encode())


def save_wordpiece_vocab(tokenizer: "PreTrainedTokenizerBase", folder: Path) -> None:
    """Write `vocab.txt` for Google's tools, which transformers' tokenizers do not write, if it can have the pieces."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or not isinstance(backend.model, WordPiece):
        return
    vocab = backend.get_vocab(with_added_tokens=False)
    if sorted(vocab.values()) == list(range(len(vocab))):
        save_vocab(vocab, folder / "vocab.txt")


def build_model(vocab: dict[str, int], unk_token: str = UNK_TOKEN) -> WordPiece:
    """Build the WordPiece model, which splits words into pieces as Google's `WordpieceTokenizer` does."""
    return WordPiece(
        vocab,
        unk_token=unk_token,
        max_input_chars_per_word=MAX_WORD_LENGTH,
        continuing_subword_prefix=CONTINUATION_PREFIX,
    )


def looks_cased(vocab: Iterable[str]) -> bool | None:
    """Tell whether a vocabulary was learned from text that was not lower-cased; None if no piece has such letters."""
    pieces = [piece for piece in _learned(vocab) if piece.lower() != piece.upper()]
    # An uncased vocabulary has almost no piece that lower-casing would change. A cased one has thousands; in a script
    # without case, at least a large fraction of its few pieces with cased letters.
    return sum(piece != piece.lower() for piece in pieces) * 100 > len(pieces) if pieces else None


def looks_accented(vocab: Iterable[str]) -> bool:
    """Tell whether a vocabulary was learned from text with accents, or with Hangul syllables."""
    strip = build_normalizer(do_lower_case=False, strip_accents=True).normalize_str
    # A vocabulary learned like Google's uncased ones has almost no piece that stripping accents would change.
    pieces = _learned(vocab)
    return sum(piece != strip(piece) for piece in pieces) * 100 > len(pieces)


def _learned(vocab: Iterable[str]) -> list[str]:
    return [piece for piece in vocab if not (piece.startswith("[") and piece.endswith("]"))]


_MANY = 0.1  # fraction of [UNK] above which there is a warning; of text in the right language it is below 0.01


def unknown_warning(unknown: int, tokens: int, advice: str) -> str:
    """A warning about text of which more than a tenth becomes [UNK], with advice; "" if less does."""
    share = unknown / max(tokens, 1)
    if share <= _MANY:
        return ""
    return (
        f"{100 * share:.0f} % of the tokens are [UNK], from which nothing can be learned: the vocabulary lacks "
        f"characters of this text. Is it of another language? {advice}"
    )
