"""Text to ids at corpus speed, identical to `MyBertTokenizer`."""

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from itertools import chain
from types import TracebackType

import numpy as np
from tokenizers import Tokenizer

from .tokenization_mybert import MAX_WORD_LENGTH, MyBertTokenizer, replace_lone_surrogates
from .word_splitting import END_OF_CHUNK, WordSplitter

# Texts are worked through in slices of about so many characters: enough for numpy, little for memory.
_SLICE_CHARACTERS = 1 << 20

# White space outside ASCII, as str.split sees it, less U+0085, which BERT deletes.
_OTHER_SPACES = re.compile("[\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]")
_IS_SPACE = np.isin(np.arange(256), [ord(space) for space in " \t\n\r"])

# Chunks of up to so many bytes are looked up all at once.
_KEY_BYTES = 16
_KEY_MASKS = (
    np.where(np.arange(_KEY_BYTES) < np.arange(_KEY_BYTES + 1)[:, None], 0xFF, 0).astype(np.uint8).view(np.uint64)
)

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


class _Memo(dict[str, int]):
    """Numbers strings from 0 in the order in which they are first asked for."""

    def __init__(self) -> None:
        self.new: list[str] = []

    def __missing__(self, key: str) -> int:
        row = self[key] = len(self)
        self.new.append(key)
        return row

    def rows(self, keys: Iterable[str], count: int) -> np.ndarray:
        """Return the numbers of so many strings."""
        return np.fromiter(map(self.__getitem__, keys), np.int64, count)

    def take_new(self) -> list[str]:
        """Return the strings numbered since the last call."""
        new, self.new = self.new, []
        return new


class _Rows:
    """Rows of ids of different lengths, one behind the other.

    Attributes:
        lengths: Ids per row.
    """

    def __init__(self, dtype: np.dtype) -> None:
        self._ids = np.zeros(0, dtype)
        self._starts = np.zeros(0, np.int64)
        self.lengths = np.zeros(0, np.int64)

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> None:
        self._starts = np.concatenate((self._starts, len(self._ids) + np.cumsum(lengths) - lengths))
        self._ids = np.concatenate((self._ids, ids.astype(self._ids.dtype)))
        self.lengths = np.concatenate((self.lengths, lengths))

    def gather(self, rows: np.ndarray) -> np.ndarray:
        """Return the ids of these rows, joined."""
        lengths = self.lengths[rows]
        shifts = self._starts[rows] - (np.cumsum(lengths) - lengths)
        return self._ids[np.repeat(shifts, lengths) + np.arange(lengths.sum())]


class _KeyTable:
    """Looks up the rows of many short chunks at once: a hash table with open addressing in numpy arrays.

    A key is the chunk itself: its UTF-8 bytes, filled up with zeros, as two 64-bit integers. So chunks are never taken
    for one another (but for NULs at their end, which BERT deletes).
    """

    def __init__(self) -> None:
        self._make(1 << 16)

    def _make(self, size: int) -> None:
        self._shift = np.uint64(64 - size.bit_length() + 1)
        self._keys = np.zeros((size, 2), np.uint64)
        self._rows = np.full(size, -1)
        self._filled = 0

    def _slots(self, keys: np.ndarray) -> np.ndarray:
        mixed = keys[:, 0] * np.uint64(0x9E3779B97F4A7C15) + keys[:, 1] * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= mixed >> np.uint64(29)
        return ((mixed * np.uint64(0xBF58476D1CE4E5B9)) >> self._shift).astype(np.int64)

    def find(self, keys: np.ndarray) -> np.ndarray:
        """Return the rows of keys, shape (n, 2); -1 for unknown ones."""
        slots = self._slots(keys)
        rows = self._rows[slots]
        open_ = np.flatnonzero((rows >= 0) & (self._keys[slots] != keys).any(axis=1))
        while len(open_):
            slots[open_] = (slots[open_] + 1) % len(self._rows)
            rows[open_] = self._rows[slots[open_]]
            open_ = open_[(rows[open_] >= 0) & (self._keys[slots[open_]] != keys[open_]).any(axis=1)]
        return rows

    def insert(self, keys: np.ndarray, rows: np.ndarray) -> None:
        """Add different keys that are not there yet."""
        self._filled += len(rows)
        if 2 * self._filled > len(self._rows):
            used = self._rows >= 0
            keys, rows = np.concatenate((self._keys[used], keys)), np.concatenate((self._rows[used], rows))
            self._make(1 << (4 * len(rows)).bit_length())
            self._filled = len(rows)
        slots = self._slots(keys)
        left = np.arange(len(rows))
        while len(left):
            free = left[self._rows[slots[left]] < 0]
            self._rows[slots[free]] = rows[free]  # of several keys for one slot the last one stays
            self._keys[slots[free]] = keys[free]
            left = left[self._rows[slots[left]] != rows[left]]
            slots[left] = (slots[left] + 1) % len(self._rows)


class _MemoEncoder:
    """Encodes in one process."""

    def __init__(self, tokenizer: MyBertTokenizer, memo_characters: int) -> None:
        # A copy without the truncation and padding of the last call.
        self._backend = Tokenizer.from_str(tokenizer.backend_tokenizer.to_str())
        self._backend.no_truncation()
        self._backend.no_padding()
        self._backend.encode_special_tokens = tokenizer.backend_tokenizer.encode_special_tokens
        self._splitter = WordSplitter(
            tokenizer.do_lower_case, tokenizer.strip_accents, tokenizer.tokenize_chinese_chars
        )
        added = self._backend.get_added_tokens_decoder().values()
        for token in added:
            if re.search(r"\s", token.content):
                raise ValueError(f"The added token {token.content!r} holds white space; BulkEncoder cannot cut there.")
        # Chunks with an added token are left to the backend. What is matched after normalization may be anywhere.
        anywhere = any(token.normalized for token in added)
        self._special = re.compile("" if anywhere else "|".join(re.escape(token.content) for token in added))
        self._vocab = self._backend.get_vocab(with_added_tokens=False)
        self.dtype = np.dtype(np.uint16 if self._backend.get_vocab_size() <= 1 << 16 else np.uint32)
        self._memo_characters = memo_characters
        self._forget()

    def _forget(self) -> None:
        self._short_chunks = _KeyTable()
        self._chunks, self._chunk_ids = _Memo(), _Rows(self.dtype)
        self._words, self._word_ids = _Memo(), _Rows(self.dtype)
        self._remembered = 0

    def encode(self, texts: Sequence[str]) -> Encoded:
        """As `BulkEncoder.encode`."""
        lines = [
            (text if text.isascii() else _OTHER_SPACES.sub(" ", text)).encode("utf-8", "surrogatepass")
            for text in texts
        ]
        data = b"".join((b"\n", b"\n".join(lines), b"\n" * _KEY_BYTES))
        characters = np.frombuffer(data, np.uint8)
        is_space = _IS_SPACE[characters]
        starts = np.flatnonzero(is_space[:-1] & ~is_space[1:]) + 1
        ends = np.flatnonzero(~is_space[:-1] & is_space[1:]) + 1
        lengths = ends - starts

        keys = np.lib.stride_tricks.sliding_window_view(characters, _KEY_BYTES)[starts].view(np.uint64)
        keys &= _KEY_MASKS[np.minimum(lengths, _KEY_BYTES)]
        rows = self._short_chunks.find(keys)
        rows[lengths > _KEY_BYTES] = -1
        unknown = np.flatnonzero(rows < 0)
        if len(unknown):
            known = len(self._chunks)
            places = zip(starts[unknown].tolist(), ends[unknown].tolist(), strict=True)
            rows[unknown] = self._chunks.rows(
                (data[start:end].decode("utf-8", "surrogatepass") for start, end in places), len(unknown)
            )
            if new := self._chunks.take_new():
                self._learn_chunks(new)
            _, first = np.unique(rows[unknown], return_index=True)
            first = unknown[first]
            first = first[(lengths[first] <= _KEY_BYTES) & (rows[first] >= known)]
            self._short_chunks.insert(keys[first], rows[first])

        line_starts = 1 + _offsets(np.fromiter(map(len, lines), np.int64, len(lines)) + 1)
        ids = self._chunk_ids.gather(rows)
        offsets = _offsets(self._chunk_ids.lengths[rows])[np.searchsorted(starts, line_starts)]
        if self._remembered > self._memo_characters:
            self._forget()
        return ids, offsets

    def _learn_chunks(self, chunks: list[str]) -> None:
        """Append the ids of new chunks to their table."""
        self._remembered += sum(map(len, chunks))
        special: list[int] = []
        if self._special.search("\n".join(chunks)):
            special = [index for index, chunk in enumerate(chunks) if self._special.search(chunk)]
        plain = list(chunks)
        for index in special:
            plain[index] = ""
        words = self._splitter.split(plain)
        rows = self._words.rows(words, len(words))
        self._learn_words(self._words.take_new())
        ends = _offsets(self._word_ids.lengths[rows])[1:][rows == self._words[END_OF_CHUNK]]
        ids, lengths = self._word_ids.gather(rows), np.diff(ends, prepend=0)
        for index in reversed(special):
            found = self._backend.encode(replace_lone_surrogates(chunks[index]), add_special_tokens=False).ids
            ids = np.insert(ids, ends[index], found)
            lengths[index] = len(found)
        self._chunk_ids.append(ids, lengths)

    def _learn_words(self, words: list[str]) -> None:
        """Append the ids of new words to their table."""
        found: list[list[int]] = []
        for word in words:
            if word in self._vocab and len(word) <= MAX_WORD_LENGTH:  # no need to search for its pieces
                found.append([self._vocab[word]])
            elif word == END_OF_CHUNK:
                found.append([])
            else:
                found.append([token.id for token in self._backend.model.tokenize(word)])
        lengths = np.fromiter(map(len, found), np.int64, len(found))
        self._word_ids.append(np.fromiter(chain.from_iterable(found), np.int64, int(lengths.sum())), lengths)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _slices(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    """Cut a list of texts into slices of about `_SLICE_CHARACTERS`; the first ones are smaller.

    What is new in a slice is looked up the slow way each time it occurs, and at the start everything is new.
    """
    limit = _SLICE_CHARACTERS // 32
    start = size = 0
    for index, text in enumerate(texts):
        size += len(text)
        if size >= limit:
            yield texts[start : index + 1]
            start, size = index + 1, 0
            limit = min(2 * limit, _SLICE_CHARACTERS)
    if start < len(texts):
        yield texts[start:]


_worker: _MemoEncoder


def _start_worker(encoder: _MemoEncoder) -> None:
    global _worker
    _worker = encoder


def _encode_in_worker(texts: list[str]) -> Encoded:
    return _worker.encode(texts)
