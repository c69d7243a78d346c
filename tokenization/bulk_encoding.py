"""Text to ids at corpus speed, identical to `MyBertTokenizer`."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from contextlib import ExitStack
from functools import partial
from itertools import compress, pairwise
from types import TracebackType

import numpy as np
from tokenizers import Tokenizer

from ..files.processes import map_in_processes
from .characters import PUNCTUATION, replace_lone_surrogates
from .string_cache import KEY_BYTES, IdRows, StringCache, joined_ranges
from .tokenization_mybert import MyBertTokenizer
from .vocab import MAX_WORD_LENGTH
from .words import END_OF_CHUNK, WordSplitter

# Texts are processed in slices of about this many characters: enough for numpy, little memory.
_SLICE_CHARACTERS = 1 << 18

# The same for what a process is given at a time.
_BATCH_CHARACTERS = 1 << 20

# Classes of UTF-8 bytes. Chunks with a `_HARD` byte are left to `WordSplitter`.
_SPACE, _PUNCTUATION, _LETTER, _HARD = range(4)
_kinds = np.full(256, _HARD, np.uint8)
_kinds[0x20:0x7F] = _LETTER
for _first, _last in PUNCTUATION:
    if _last < 0x7F:
        _kinds[_first : _last + 1] = _PUNCTUATION
_kinds[[ord(space) for space in " \t\n\r"]] = _SPACE
_KINDS = _kinds.tobytes()

Encoded = tuple[np.ndarray, np.ndarray]


class BulkEncoder:
    """Encodes many texts into one flat array, without adding special tokens.

    BERT's tokens never cross white space, so words, and whole chunks that are not plain ASCII, are encoded once and
    then looked up. On every string the ids are those of `tokenizer(text, add_special_tokens=False)`; special tokens
    in the text are recognized as well.

    Args:
        tokenizer: The tokenizer; later changes to it have no effect.
        num_processes: 1 encodes in this process; more start that many workers, each with its own cache. Use the
            encoder in a `with` block then, or call `close`.
        memo_characters: Size of the cache: the total length of different words and chunks, in characters, at which
            it is emptied. The default takes at most about 200 MB per process.

    Raises:
        TypeError: Not a `MyBertTokenizer`.
        ValueError: An added token holds white space.
    """

    def __init__(self, tokenizer: MyBertTokenizer, num_processes: int = 1, memo_characters: int = 1 << 23) -> None:
        if not isinstance(tokenizer, MyBertTokenizer):
            raise TypeError(
                f"BulkEncoder needs a MyBertTokenizer, found {type(tokenizer).__name__}; "
                "load the folder with MyBertTokenizer.from_pretrained."
            )
        self._encoder = _MemoEncoder(tokenizer, memo_characters)
        self._workers = ExitStack()
        self._map: Callable[[Iterable[Sequence[str]]], Iterator[Encoded]] = partial(map, self._encoder.encode)
        if num_processes > 1:  # otherwise it can be pickled, as processes that are started afresh need it
            self._map = self._workers.enter_context(map_in_processes(self._encoder.encode, num_processes))

    @property
    def dtype(self) -> np.dtype:
        """Dtype of the ids: uint16 if the vocabulary fits, otherwise uint32."""
        return self._encoder.dtype

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode n texts.

        Returns:
            ids, shape (total tokens,), of type `dtype`; and offsets, shape (n + 1,), int64: text i has the ids
            `ids[offsets[i]:offsets[i + 1]]`.
        """
        if isinstance(texts, str):
            raise TypeError("texts is a str; expected a list of them.")
        return _join(self.encode_stream(_slices(texts, _BATCH_CHARACTERS)), self.dtype)

    def encode_stream(self, batches: Iterable[Sequence[str]]) -> Iterator[Encoded]:
        """Yield what `encode` returns for each batch of texts, best of about a million characters, in order.

        With several processes a few batches are in progress at a time.
        """
        return self._map(batches)

    def close(self) -> None:
        """Stop the workers."""
        self._workers.close()

    def __enter__(self) -> "BulkEncoder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def encode_words(texts: Sequence[str], tokenizer: MyBertTokenizer, num_processes: int = 1) -> Encoded:
    """`BulkEncoder.encode` for a single call."""
    with BulkEncoder(tokenizer, num_processes) as encoder:
        return encoder.encode(texts)


class _MemoEncoder:
    """Encodes in one process."""

    def __init__(self, tokenizer: MyBertTokenizer, memo_characters: int) -> None:
        backend = tokenizer.backend_tokenizer
        added = [token for _, token in sorted(backend.get_added_tokens_decoder().items())]
        for token in added:
            if re.search(r"\s", token.content):
                raise ValueError(f"The added token {token.content!r} holds white space; BulkEncoder cannot cut there.")
        # A copy without the last call's truncation, padding and `split_special_tokens`; much faster than via JSON.
        self._backend = Tokenizer(backend.model)
        self._backend.normalizer, self._backend.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
        self._backend.add_tokens(added)
        self._backend.encode_special_tokens = tokenizer.split_special_tokens
        assert self._backend.get_added_tokens_decoder() == backend.get_added_tokens_decoder()
        self._splitter = WordSplitter(
            tokenizer.do_lower_case, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars
        )
        # Chunks with an added token are left to the backend; all chunks, if tokens match after normalization.
        anywhere = any(token.normalized for token in added)
        self._added = re.compile("|".join(r"\S+" if anywhere else re.escape(token.content) for token in added))
        self._lower_case = tokenizer.do_lower_case
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        self._memo_characters = memo_characters
        self._forget()

    def _forget(self) -> None:
        self._ids = IdRows(self.dtype)
        self._words, self._chunks = StringCache(self._learn_words), StringCache(self._learn_chunks)
        self._remembered = 0

    def encode(self, texts: Sequence[str]) -> Encoded:
        try:
            return _join(map(self._encode_slice, _slices(texts, _SLICE_CHARACTERS)), self.dtype)
        except BaseException:  # an interruption may have left the cache inconsistent
            self._forget()
            raise

    def _encode_slice(self, texts: Sequence[str]) -> Encoded:
        text = "\n".join(texts)
        data = b"".join((b"\n", text.encode("utf-8", "surrogatepass"), b"\n" * KEY_BYTES))
        characters = np.frombuffer(data, np.uint8)
        text_starts = 1 + _offsets(_lengths(texts) + 1)
        added = 1 + np.fromiter((match.start() for match in self._added.finditer(text)), np.int64)
        if not text.isascii():  # from characters to bytes
            continuations = np.flatnonzero(characters & 0xC0 == 0x80)
            owners = continuations - np.arange(1, len(continuations) + 1)
            text_starts += np.searchsorted(owners, text_starts)
            added += np.searchsorted(owners, added)

        kinds = np.frombuffer(bytearray(data).translate(_KINDS), np.uint8)
        chunk_starts, chunk_ends = _find_hard_chunks(kinds, added)
        kinds[joined_ranges(chunk_starts, chunk_ends - chunk_starts)] = _LETTER
        starts, ends = _find_words(kinds)
        is_word = np.ones(len(starts), bool)
        is_word[np.searchsorted(starts, chunk_starts)] = False
        rows = np.empty(len(starts), np.int64)
        lowered = np.frombuffer(data.lower(), np.uint8) if self._lower_case else characters
        rows[is_word] = self._words.look_up(lowered, starts[is_word], ends[is_word])
        rows[~is_word] = self._chunks.look_up(characters, chunk_starts, chunk_ends)

        ids, lengths = self._ids.gather(rows)
        if self._remembered > self._memo_characters:
            self._forget()
        return ids, _offsets(lengths)[np.searchsorted(starts, text_starts)]

    def _learn_words(self, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Append the ids of BERT's words and return their rows."""
        words = _cut_out(characters, starts, ends)
        self._remembered += sum(map(len, words))
        model = self._backend.model
        whole = (None if len(word) > MAX_WORD_LENGTH else model.token_to_id(word) for word in words)
        return self._append(
            [token.id for token in model.tokenize(word)] if id_ is None else [id_]
            for word, id_ in zip(words, whole, strict=True)
        )

    def _learn_chunks(self, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Append the ids of arbitrary chunks and return their rows."""
        chunks = _cut_out(characters, starts, ends)
        self._remembered += sum(map(len, chunks))
        has_added = np.array([self._added.search(chunk) is not None for chunk in chunks])
        rows = np.empty(len(chunks), np.int64)
        rows[has_added] = self._append(
            self._backend.encode(replace_lone_surrogates(chunk), add_special_tokens=False).ids
            for chunk in compress(chunks, has_added)
        )
        words = " ".join(self._splitter.split(list(compress(chunks, ~has_added))))
        word_characters = np.frombuffer(b"".join((b" ", words.encode(), b" " * KEY_BYTES)), np.uint8)
        word_starts, word_ends = _find_words(np.where(word_characters == ord(" "), _SPACE, _LETTER))
        is_end = word_characters[word_starts] == ord(END_OF_CHUNK)
        word_rows = self._words.look_up(word_characters, word_starts[~is_end], word_ends[~is_end])
        ids, lengths = self._ids.gather(word_rows)
        chunk_ends = _offsets(lengths)[np.cumsum(~is_end)[is_end]]
        rows[~has_added] = self._ids.append(ids, np.diff(chunk_ends, prepend=0))
        return rows

    def _append(self, found: Iterable[list[int]]) -> np.ndarray:
        ids: list[int] = []
        lengths: list[int] = []
        for row in found:  # one at a time: so many lists at once would keep the garbage collector busy
            ids += row
            lengths.append(len(row))
        return self._ids.append(np.array(ids, self.dtype), np.array(lengths, np.int64))


def _find_hard_chunks(kinds: np.ndarray, added: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return start and end of the chunks with a hard byte, or with an added token (given by its start)."""
    is_hard = kinds == _HARD
    hard = np.concatenate((np.flatnonzero(is_hard[1:] & ~is_hard[:-1]) + 1, added))
    if not len(hard):
        return hard, hard
    spaces = np.flatnonzero(kinds == _SPACE)
    is_end = np.zeros(len(spaces), bool)
    is_end[np.searchsorted(spaces, hard)] = True
    ends = np.flatnonzero(is_end)
    return spaces[ends - 1] + 1, spaces[ends]


def _find_words(kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where words start and end, given the kind of each byte (the first and last one: `_SPACE`)."""
    is_inner = kinds == _LETTER
    is_joined = is_inner[:-1] & is_inner[1:]
    is_space = kinds == _SPACE
    return np.flatnonzero(~is_space[1:] & ~is_joined) + 1, np.flatnonzero(~is_space[:-1] & ~is_joined) + 1


def _cut_out(characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> list[str]:
    """Return the strings with these starts and ends; they contain no line breaks."""
    lengths = ends - starts + 1
    cut = characters[joined_ranges(starts, lengths)]
    cut[np.cumsum(lengths) - 1] = ord("\n")
    return cut.tobytes().decode("utf-8", "surrogatepass").split("\n")[:-1]


def _lengths(items: Sequence[Sized]) -> np.ndarray:
    return np.fromiter(map(len, items), np.int64, len(items))


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _slices(texts: Sequence[str], characters: int) -> Iterator[Sequence[str]]:
    """Split a list of texts into slices of about this many characters."""
    last_in_slice = np.diff(np.cumsum(_lengths(texts)) // characters, append=-1) != 0
    ends = np.flatnonzero(last_in_slice) + 1
    return (texts[start:end] for start, end in pairwise((0, *ends.tolist())))


def _join(parts: Iterable[Encoded], dtype: np.dtype) -> Encoded:
    ids, offsets = [np.zeros(0, dtype)], [np.zeros(0, np.int64)]
    for part_ids, part_offsets in parts:
        ids.append(part_ids)
        offsets.append(np.diff(part_offsets))
    return np.concatenate(ids), _offsets(np.concatenate(offsets))
