"""A cache of token ids by string, so that encoding a corpus is mostly look-ups."""

from array import array
from collections.abc import Callable

import numpy as np

# Strings of up to this many bytes are looked up in one vectorized operation.
KEY_BYTES = 16
_KEY = np.dtype(f"V{KEY_BYTES}")
_KEY_MASKS = (
    np.where(np.arange(KEY_BYTES) < np.arange(KEY_BYTES + 1)[:, None], 0xFF, 0).astype(np.uint8).view(_KEY).ravel()
)

_FREE = np.int32(np.iinfo(np.int32).min)


class IdRows:
    """Rows of ids of different lengths, concatenated."""

    def __init__(self, dtype: np.dtype) -> None:
        self._ids, self._starts, self._lengths = array(dtype.char), array("q"), array("q")

    def append(self, ids: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Add rows and return their indices."""
        first = len(self._lengths)
        self._starts.frombytes((len(self._ids) + np.cumsum(lengths) - lengths).tobytes())
        self._lengths.frombytes(lengths.tobytes())
        self._ids.frombytes(ids.tobytes())
        return np.arange(first, len(self._lengths))

    def gather(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the concatenated ids of these rows, and the number of ids of each."""
        starts, lengths = (np.asarray(numbers).take(rows) for numbers in (self._starts, self._lengths))
        return np.asarray(self._ids).take(joined_ranges(starts, lengths)), lengths


class StringCache:
    """Cache which row of ids belongs to a string.

    Short strings are in a hash table with open addressing, in numpy arrays. Their key is the string itself: its bytes,
    padded with zeros, as two 64-bit integers. So different strings are never confused (except for NULs at their end,
    which BERT deletes). Long strings are in a dict.
    """

    def __init__(self, learn: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> None:
        self._learn = learn
        self._long: dict[bytes, int] = {}
        self._make_table(1 << 14)

    def look_up(self, characters: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the rows of n strings, (n,); `characters` has `KEY_BYTES` more UTF-8 bytes after the last string."""
        lengths = ends - starts
        short, long = np.flatnonzero(lengths <= KEY_BYTES), np.flatnonzero(lengths > KEY_BYTES)
        windows = np.ndarray(len(characters) - KEY_BYTES + 1, _KEY, characters, strides=(1,))
        keys = windows[starts[short]]
        keys.view(np.uint64)[:] &= _KEY_MASKS.take(lengths[short]).view(np.uint64)
        long_keys = [characters[starts[index] : ends[index]].tobytes() for index in long.tolist()]

        # Until it has a row, a new string gets a negative number that encodes one of its occurrences.
        places = -1 - np.arange(len(starts), dtype=np.int32)
        slots = self._claim(keys, places[short])
        rows = np.empty(len(starts), np.int32)
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
        self._keys = np.zeros(size, _KEY)
        self._rows = np.full(size, _FREE)
        self._filled = 0

    def _claim(self, keys: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Return the slots of keys, (n,); insert unknown keys with one of their rows."""
        halves = keys.view(np.uint64)
        mixed = halves[::2] * np.uint64(0x9E3779B97F4A7C15) + halves[1::2] * np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= mixed >> np.uint64(29)
        slots = ((mixed * np.uint64(0xBF58476D1CE4E5B9)) >> self._shift).astype(np.int64)
        self._probe(keys, slots)
        left = np.flatnonzero(self._rows.take(slots) == _FREE)
        while len(left):
            self._rows[slots[left]] = rows[left]  # if several share a slot, one wins
            put = left[self._rows[slots[left]] == rows[left]]
            self._keys[slots[put]] = keys[put]
            self._filled += len(put)
            if 2 * self._filled > len(self._rows):
                used = self._rows != _FREE
                known = self._keys[used], self._rows[used]
                self._make_table(4 * len(self._rows))
                self._claim(*known)
                return self._claim(keys, rows)
            slots[left] = self._probe(keys[left], slots[left])
            left = left[self._rows[slots[left]] == _FREE]
        return slots

    def _probe(self, keys: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Advance slots to their key, or else to a free slot."""
        left = np.flatnonzero(self._is_taken(keys, slots))
        while len(left):
            slots[left] = (slots[left] + 1) % len(self._rows)
            left = left[self._is_taken(keys[left], slots[left])]
        return slots

    def _is_taken(self, keys: np.ndarray, slots: np.ndarray) -> np.ndarray:
        """Tell which slots hold another key."""
        differs = keys.view(np.uint64) != self._keys.take(slots).view(np.uint64)  # in each half
        return (differs[::2] | differs[1::2]) & (self._rows.take(slots) != _FREE)


def joined_ranges(starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
    """Return `start, start + 1 ... start + length - 1` for each start, concatenated."""
    ends = np.cumsum(lengths)
    return np.repeat(starts - ends + lengths, lengths) + np.arange(ends[-1] if len(ends) else 0)
