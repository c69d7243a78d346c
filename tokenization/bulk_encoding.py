"""Text to ids at corpus speed, identical to `MyBertTokenizer`."""

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from types import TracebackType

import numpy as np
from tokenizers import Tokenizer, pre_tokenizers

from .tokenization_mybert import MyBertTokenizer, replace_lone_surrogates
from .unicode_classes import PUNCTUATION
from .word_splitting import END_OF_CHUNK, WordSplitter

# Texts are worked through in slices of about so many characters: enough for numpy, little for memory.
_SLICE_CHARACTERS = 1 << 18

# What a byte of UTF-8 is to BERT. Chunks with a hard one are left to `WordSplitter`.
_SPACE, _PUNCTUATION, _LETTER, _HARD = range(4)
_KINDS = np.full(256, _HARD, np.uint8)
_KINDS[0x20:0x7F] = _LETTER
for _first, _last in PUNCTUATION:
    if _last < 0x7F:
        _KINDS[_first : _last + 1] = _PUNCTUATION
_KINDS[[ord(space) for space in " \t\n\r"]] = _SPACE

# Strings of up to so many bytes are looked up all at once.
_KEY_BYTES = 16
_KEY_MASKS = (
    np.where(np.arange(_KEY_BYTES) < np.arange(_KEY_BYTES + 1)[:, None], 0xFF, 0).astype(np.uint8).view(np.uint64)
)

_FREE = np.int64(np.iinfo(np.int64).min)

Encoded = tuple[np.ndarray, np.ndarray]


class BulkEncoder:
    """Encodes many texts into one flat array, without adding special tokens.

    BERT's tokens never cross white space, so what stands between two spaces is encoded once and then looked up. On
    every string the ids are those of ``tokenizer(text, add_special_tokens=False)``; special tokens that stand in the
    text are recognised as there.

    Args:
        tokenizer: Whose ids to give; later changes to it have no effect.
        num_processes: 1 works in this process; more start that many workers, each with a memo of its own. Use the
            encoder in a ``with`` block then, or call `close`.
        memo_characters: How much to remember: the total length of different chunks, in characters, before the memo
            is emptied. The default takes about 200 MB per process at most.

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
        self._pool: ProcessPoolExecutor | None = None
        self._num_processes = num_processes
        if num_processes > 1:
            self._pool = ProcessPoolExecutor(num_processes, initializer=_start_worker, initargs=(self._encoder,))

    @property
    def dtype(self) -> np.dtype:
        """The ids' type: uint16 where the vocabulary fits, else uint32."""
        return self._encoder.dtype

    def encode(self, texts: Sequence[str]) -> Encoded:
        """Encode texts.

        Args:
            texts: n texts.

        Returns:
            ids, shape (total tokens,), of type `dtype`; and offsets, shape (n + 1,), int64: text i has the ids
            ``ids[offsets[i]:offsets[i + 1]]``.
        """
        parts = list(self.encode_stream(_slices(texts)))
        ids = np.concatenate([part for part, _ in parts]) if parts else np.zeros(0, self.dtype)
        lengths = [np.diff(offsets) for _, offsets in parts]
        return ids, _offsets(np.concatenate(lengths) if lengths else np.zeros(0, np.int64))

    def encode_stream(self, batches: Iterable[Sequence[str]]) -> Iterator[Encoded]:
        """Encode batch after batch, in order; with several processes a few batches are in work at a time.

        Args:
            batches: Lists of texts; best about a million characters each.

        Yields:
            What `encode` returns, for each batch.
        """
        if self._pool is None:
            yield from map(self._encoder.encode, batches)
            return
        pending: deque[Future[Encoded]] = deque()
        for batch in batches:
            pending.append(self._pool.submit(_encode_in_worker, list(batch)))
            if len(pending) > 2 * self._num_processes:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()

    def close(self) -> None:
        """Stop the workers."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)

    def __enter__(self) -> "BulkEncoder":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class _GrowingArray:
    """A one-dimensional array that is extended again and again."""

    def __init__(self, dtype: np.dtype) -> None:
        self._buffer = np.empty(1 << 12, dtype)
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @property
    def values(self) -> np.ndarray:
        return self._buffer[: self._size]

    def extend(self, values: np.ndarray) -> None:
        size = self._size + len(values)
        if size > len(self._buffer):
            self._buffer = np.concatenate((self.values, np.empty(2 * size - self._size, self._buffer.dtype)))
        self._buffer[self._size : size] = values
        self._size = size


class _Rows:
    """Rows of ids of different lengths, one behind the other."""

    def __init__(self, dtype: np.dtype) -> None:
        self._ids = _GrowingArray(dtype)
        self._starts = _GrowingArray(np.dtype(np.int64))
        self._lengths = _GrowingArray(np.dtype(np.int64))

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Add rows and return their numbers."""
        first = len(self._lengths)
        self._starts.extend(len(self._ids) + np.cumsum(lengths) - lengths)
        self._lengths.extend(lengths)
        self._ids.extend(ids)
        return np.arange(first, len(self._lengths))

    def gather(self, rows: np.ndarray) -> Encoded:
        """Return the ids of these rows, joined, and how many ids each has."""
        lengths = self._lengths.values.take(rows)
        return self._ids.values.take(_ranges(self._starts.values.take(rows), lengths)), lengths


class _Memo:
    """Remembers which row of ids belongs to a string.

    Short strings are in a hash table with open addressing, in numpy arrays. Their key is the string itself: its bytes,
    filled up with zeros, as two 64-bit integers. So strings are never taken for one another (but for NULs at their
    end, which BERT deletes). Long strings are in a dict.

    Args:
        learn: Called with an array of bytes, and where new strings start and end in it; returns their rows.
    """

    def __init__(self, learn: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> None:
        self._learn = learn
        self._long: dict[bytes, int] = {}
        self._make_table(1 << 16)

    def look_up(self, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the rows of strings; new ones are learnt.

        Args:
            characters: UTF-8, shape (c,), with at least `_KEY_BYTES` bytes behind the last string.
            starts: Where in it the n strings start, shape (n,).
            ends: Where they end, shape (n,).
        """
        lengths = ends - starts
        short, long = np.flatnonzero(lengths <= _KEY_BYTES), np.flatnonzero(lengths > _KEY_BYTES)
        windows = np.ndarray(len(characters) - _KEY_BYTES + 1, f"V{_KEY_BYTES}", characters, strides=(1,))
        keys = windows[starts[short]].view(np.uint64).reshape(-1, 2)
        keys &= _KEY_MASKS.take(lengths[short], axis=0)
        long_keys = [characters[starts[index] : ends[index]].tobytes() for index in long.tolist()]

        # Instead of a row, a new string gets a negative number that says where one of its occurrences is.
        places = -1 - np.arange(len(starts))
        slots = self._claim(keys, places[short])
        rows = np.empty(len(starts), np.int64)
        rows[short] = self._rows.take(slots)
        rows[long] = [self._long.setdefault(*item) for item in zip(long_keys, places[long].tolist(), strict=True)]
        new = np.flatnonzero(rows == places)
        if len(new):
            places[new] = self._learn(characters, starts[new], ends[new])
            rows = np.where(rows < 0, places.take(-1 - rows, mode="clip"), rows)
            self._rows[slots] = rows[short]
            self._long.update(zip(long_keys, rows[long].tolist(), strict=True))
        return rows

    def _make_table(self, size: int) -> None:
        self._shift = np.uint64(64 - size.bit_length() + 1)
        self._keys = np.zeros((size, 2), np.uint64)
        self._rows = np.full(size, _FREE)
        self._filled = 0

    def _claim(self, keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the slots of keys, shape (n, 2); unknown ones are put in, with one of their (different) rows."""
        mixed = keys[:, 0] * np.uint64(0x9E3779B97F4A7C15) + keys[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= mixed >> np.uint64(29)
        slots = ((mixed * np.uint64(0xBF58476D1CE4E5B9)) >> self._shift).astype(np.int64)
        self._probe(keys, slots)
        left = np.flatnonzero(self._rows.take(slots) == _FREE)
        if 2 * (self._filled + len(left)) > len(self._rows):
            used = self._rows != _FREE
            known = self._keys[used], self._rows[used]
            self._make_table(1 << (4 * (len(known[0]) + len(left))).bit_length())
            self._claim(*known)
            return self._claim(keys, rows)
        while len(left):
            self._rows[slots[left]] = rows[left]  # of several for one slot, one stays
            first = left[self._rows[slots[left]] == rows[left]]
            self._keys[slots[first]] = keys[first]
            self._filled += len(first)
            slots[left] = self._probe(keys[left], slots[left])
            left = left[self._rows[slots[left]] == _FREE]
        return slots

    def _probe(self, keys: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Move slots on to where their key is, or else to a free one."""

        def is_taken(keys: np.ndarray, slots: np.ndarray) -> np.ndarray:
            found = self._keys.take(slots, axis=0)
            return ((found[:, 0] != keys[:, 0]) | (found[:, 1] != keys[:, 1])) & (self._rows.take(slots) != _FREE)

        left = np.flatnonzero(is_taken(keys, slots))
        while len(left):
            slots[left] = (slots[left] + 1) % len(self._rows)
            left = left[is_taken(keys[left], slots[left])]
        return slots


class _MemoEncoder:
    """Encodes in one process."""

    def __init__(self, tokenizer: MyBertTokenizer, memo_characters: int) -> None:
        backend = tokenizer.backend_tokenizer
        added = [token for _, token in sorted(backend.get_added_tokens_decoder().items())]
        for token in added:
            if re.search(r"\s", token.content):
                raise ValueError(f"The added token {token.content!r} holds white space; BulkEncoder cannot cut there.")
        # A copy without the truncation and padding of the last call; much faster than through JSON.
        self._backend = Tokenizer(backend.model)
        self._backend.normalizer, self._backend.pre_tokenizer = backend.normalizer, backend.pre_tokenizer
        self._backend.add_tokens(added)
        self._backend.encode_special_tokens = backend.encode_special_tokens
        assert self._backend.get_added_tokens_decoder() == backend.get_added_tokens_decoder()
        self._pieces = Tokenizer(backend.model)
        self._pieces.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        self._splitter = WordSplitter(
            tokenizer.do_lower_case, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars
        )
        # Chunks with an added token are left to the backend. What is matched after normalization may be anywhere.
        anywhere = any(token.normalized for token in added)
        self._added = re.compile(b"|".join(rb"\S" if anywhere else re.escape(token.content.encode()) for token in added))
        self._lower_case = tokenizer.do_lower_case
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        self._memo_characters = memo_characters
        self._forget()

    def _forget(self) -> None:
        self._ids = _Rows(self.dtype)
        self._words, self._chunks = _Memo(self._learn_words), _Memo(self._learn_chunks)
        self._remembered = 0

    def encode(self, texts: Sequence[str]) -> Encoded:
        """As `BulkEncoder.encode`."""
        parts = list(map(self._encode_slice, _slices(texts)))
        return (
            np.concatenate([np.zeros(0, self.dtype), *(ids for ids, _ in parts)]),
            _offsets(np.concatenate([np.zeros(0, np.int64), *(lengths for _, lengths in parts)])),
        )

    def _encode_slice(self, texts: Sequence[str]) -> Encoded:
        """Return the ids and how many each text has."""
        text = "\n".join(texts)
        data = b"".join((b"\n", text.encode("utf-8", "surrogatepass"), b"\n" * _KEY_BYTES))
        characters = np.frombuffer(data, np.uint8)
        text_starts = 1 + _offsets(np.fromiter(map(len, texts), np.int64, len(texts)) + 1)
        if not text.isascii():  # from characters to bytes
            text_starts = np.flatnonzero(characters & 0xC0 != 0x80).take(text_starts)

        kinds = _KINDS.take(characters)
        chunk_starts, chunk_ends = self._hard_chunks(data, kinds)
        kinds[_ranges(chunk_starts, chunk_ends - chunk_starts)] = _LETTER
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
        return ids, np.diff(_offsets(lengths)[np.searchsorted(starts, text_starts)])

    def _hard_chunks(self, data: bytes, kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Find where chunks start and end that hold more than printable ASCII, or an added token."""
        hard = np.flatnonzero(kinds == _HARD)
        added = np.fromiter((match.start() for match in self._added.finditer(data)), np.int64)
        if not len(hard) and not len(added):
            return hard, hard
        is_space = kinds == _SPACE
        starts = np.flatnonzero(is_space[:-1] & ~is_space[1:]) + 1
        ends = np.flatnonzero(~is_space[:-1] & is_space[1:]) + 1
        chunks = np.unique(np.searchsorted(starts, np.concatenate((hard, added)), "right") - 1)
        return starts[chunks], ends[chunks]

    def _learn_words(self, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Append the ids of words as BERT splits and lower-cases them; return their rows."""
        words = _cut_out(characters, starts, ends, " ")
        encoding = self._pieces.encode(words, add_special_tokens=False)
        self._remembered += len(words)
        lengths = np.bincount(np.array(encoding.word_ids, np.int64), minlength=len(starts))
        return self._ids.append(np.array(encoding.ids, self.dtype), lengths)

    def _learn_chunks(self, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Append the ids of chunks of any characters; return their rows."""
        text = _cut_out(characters, starts, ends, "\n")
        chunks = text.split("\n")[:-1]
        self._remembered += len(text)
        added: list[int] = []
        if self._added.search(text.encode("utf-8", "surrogatepass")):
            added = [i for i, chunk in enumerate(chunks) if self._added.search(chunk.encode("utf-8", "surrogatepass"))]
        plain = list(chunks)
        for index in added:
            plain[index] = ""
        words = b" ".join((b"", " ".join(self._splitter.split(plain)).encode(), b" " * _KEY_BYTES))
        word_characters = np.frombuffer(words, np.uint8)
        word_starts, word_ends = _find_words(np.where(word_characters == ord(" "), _SPACE, _LETTER))
        is_end = word_characters[word_starts] == ord(END_OF_CHUNK)
        rows = self._words.look_up(word_characters, word_starts[~is_end], word_ends[~is_end])
        ids, row_lengths = self._ids.gather(rows)
        ends_ = _offsets(row_lengths)[np.cumsum(~is_end)[is_end]]
        lengths = np.diff(ends_, prepend=0)
        for index in reversed(added):
            found = self._backend.encode(replace_lone_surrogates(chunks[index]), add_special_tokens=False).ids
            ids = np.insert(ids, ends_[index], found)
            lengths[index] = len(found)
        return self._ids.append(ids, lengths)


def _find_words(kinds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return where words start and end, given the kind of each byte (the first and last one: `_SPACE`)."""
    is_inner = kinds == _LETTER
    is_joined = is_inner[:-1] & is_inner[1:]
    is_space = kinds == _SPACE
    return np.flatnonzero(~is_space[1:] & ~is_joined) + 1, np.flatnonzero(~is_space[:-1] & ~is_joined) + 1


def _cut_out(characters: np.ndarray, starts: np.ndarray, ends: np.ndarray, end: str) -> str:
    """Return the strings that start and end at these places, joined, with another end behind each."""
    lengths = ends - starts + 1
    cut = characters[_ranges(starts, lengths)]
    cut[np.cumsum(lengths) - 1] = ord(end)
    return cut.tobytes().decode("utf-8", "surrogatepass")


def _ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return ``start, start + 1 ... start + length - 1`` for each start, joined."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of texts into slices of about `_SLICE_CHARACTERS`."""
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= _SLICE_CHARACTERS:
            yield texts[start : index + 1]
            start, size = index + 1, 0
    if start < len(texts):
        yield texts[start:]


_worker: _MemoEncoder


def _start_worker(encoder: _MemoEncoder) -> None:
    global _worker
    _worker = encoder


def _encode_in_worker(texts: list[str]) -> Encoded:
    return _worker.encode(texts)
