"""Arrays to a checkpoint that TensorFlow reads; the files are described in `bundle_format`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np

from ...files import written_beside
from .bundle_format import BUNDLE_VERSION, NUMPY_TYPES, TYPE_NUMBERS, crc_of_lengths
from .sorted_table import write_sorted_table
from .wire import FIXED32, mask_crc, varint
from .wire import field as encode

_CHUNK = 1 << 24


def write_tensor_bundle(prefix: str | os.PathLike[str], tensors: Mapping[str, Any]) -> None:
    """Write a V2 checkpoint that TensorFlow reads, with one data file and the `checkpoint` state file beside it.

    The tensors are fetched one after the other, so a lazy mapping never has to be in memory as a whole. The files are
    written under temporary names first, and the index is put in place last.

    Args:
        prefix: Where to write; missing folders are made.
        tensors: Arrays by name: numpy's number types, `ml_dtypes.bfloat16`, or object arrays of `bytes`.

    Raises:
        ValueError: If a name is empty or starts with a zero byte, a type has no counterpart in TensorFlow, or the
            state file could not hold the prefix.
    """
    prefix = Path(prefix)
    files = bundle_files(prefix)
    entries = [(b"", encode(1, 1) + encode(3, encode(1, BUNDLE_VERSION)))]
    with (  # moved into place from the last to the first
        written_beside(files[0]) as index,
        written_beside(files[1]) as state,
        written_beside(files[2]) as data,
    ):
        with data.open("wb") as stream:
            for key, name in sorted((name.encode(), name) for name in tensors):
                if not key or key[:1] == b"\0":
                    raise ValueError(f"{name!r} is not a tensor name: it must not be empty or start with a zero byte.")
                entries.append((key, _write_tensor(stream, name, np.asarray(tensors[name]))))
        named = f'model_checkpoint_path: "{prefix.name}"\nall_model_checkpoint_paths: "{prefix.name}"\n'
        state.write_text(named, encoding="utf-8")
        index.write_bytes(write_sorted_table(entries))


def bundle_files(prefix: Path) -> tuple[Path, Path, Path]:
    """Return the paths of index, state file and data; the state file cannot quote all characters of a prefix."""
    if any(character in prefix.name for character in '"\\\n\0'):
        raise ValueError(
            f"{str(prefix)!r} cannot be the prefix of a checkpoint: it has a quote, backslash or line break."
        )
    return Path(f"{prefix}.index"), prefix.with_name("checkpoint"), Path(f"{prefix}.data-00000-of-00001")


def _write_tensor(stream: BinaryIO, name: str, array: np.ndarray) -> bytes:
    """Append a tensor to the data file and return its BundleEntryProto."""
    offset = stream.tell()
    if array.dtype == object:
        dtype, crc = "string", _write_strings(stream, name, array)
    else:
        dtype = array.dtype.name
        if dtype not in NUMPY_TYPES and dtype != "bfloat16":
            raise ValueError(f"{name!r} is an array of {dtype}; TensorFlow checkpoints have no such type.")
        raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
        crc = 0
        for start in range(0, len(raw), _CHUNK):
            chunk = raw[start : start + _CHUNK].tobytes()
            stream.write(chunk)
            crc = google_crc32c.extend(crc, chunk)
    shape = b"".join(varint(2 << 3 | 2) + varint(len(size)) + size for size in (encode(1, n) for n in array.shape))
    return (
        encode(1, TYPE_NUMBERS[dtype])
        + encode(2, shape)
        + encode(4, offset)
        + encode(5, stream.tell() - offset)
        + varint(6 << 3 | FIXED32)
        + mask_crc(crc).to_bytes(4, "little")
    )


def _write_strings(stream: BinaryIO, name: str, array: np.ndarray) -> int:
    strings = array.reshape(-1).tolist()
    if not all(isinstance(string, bytes) for string in strings):
        raise ValueError(f"{name!r} is an array of objects; only `bytes` can be written as strings.")
    lengths = [len(string) for string in strings]
    crc = crc_of_lengths(lengths, "little")
    parts = [mask_crc(crc).to_bytes(4, "little"), *strings]
    stream.write(b"".join(map(varint, lengths)))
    for part in parts:
        stream.write(part)
        crc = google_crc32c.extend(crc, part)
    return crc
