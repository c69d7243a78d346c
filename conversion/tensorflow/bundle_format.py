r"""TensorFlow's checkpoint files (the V2 "tensor bundle") to and from numpy, without TensorFlow.

A checkpoint `PREFIX` is an index, `PREFIX.index`, and data files `PREFIX.data-00000-of-0000N`. The index is a sorted
table (see `sorted_table`) from names to protocol buffers:

    ""          BundleHeaderProto: 1 num_shards, 2 endianness (0 little, 1 big), 3 version
    name        BundleEntryProto:  1 dtype, 2 shape, 3 shard_id, 4 offset, 5 size, 6 crc32c (masked, fixed32), 7 slices
    "\0..."     one slice of a partitioned variable; the key is an ordered code of name and extents

A tensor is its elements in row-major order in the byte order of the header. A tensor of strings is the lengths as
varints, a masked CRC32C of the lengths, then the bytes of the strings. A partitioned variable has no bytes of its own:
its entry has the whole shape and the extents of its slices, each of which is an entry under a key of its own.

Sources: `tensorflow/core/util/tensor_bundle/{tensor_bundle.cc,naming.cc}`,
`tensorflow/core/protobuf/tensor_bundle.proto`, `tensorflow/core/framework/{types,tensor_shape,tensor_slice}.proto`,
`tensorflow/core/lib/strings/ordered_code.cc`, `tensorflow/core/util/saved_tensor_slice_util.cc`.
"""

from dataclasses import dataclass, field
from typing import Literal

import google_crc32c
import numpy as np

from .bundle_errors import EntryError, HeaderError
from .wire import as_bytes, as_integer, read_message

# DataType of TensorFlow's types.proto: number -> name. bfloat16 is read as float32, which holds it exactly.
TYPE_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz", 29: "int4",
    30: "uint4", 31: "int2", 32: "uint2",
}  # fmt: skip
TYPE_NUMBERS = {name: number for number, name in TYPE_NAMES.items()}
NUMPY_TYPES = frozenset({
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128",
})  # fmt: skip
BUNDLE_VERSION = 1
_MOST_DIMENSIONS = 32  # numpy's limit before 2.0

ByteOrder = Literal["little", "big"]
Extents = tuple[tuple[int, int], ...]  # start and length per dimension; length -1 is the whole dimension


@dataclass(frozen=True)
class TensorInfo:
    """The index entry of a tensor.

    Args:
        dtype: Name of TensorFlow's type: a numpy name, or `bfloat16`, `string`, `resource`, `variant`, ...
        shape: The shape; of the whole, for a partitioned variable.
        shard: Number of the data file.
        offset: First byte in that file.
        size: Number of bytes in that file; 0 for a partitioned variable.
        crc: Masked CRC32C of those bytes.
        slices: Extents of the slices of a partitioned variable, empty for any other tensor.
    """

    dtype: str
    shape: tuple[int, ...]
    shard: int = 0
    offset: int = 0
    size: int = 0
    crc: int = 0
    slices: tuple[Extents, ...] = field(default=(), repr=False)


def slice_key(name: str, extents: Extents) -> bytes:
    """Build the index key of a slice: an ordered code of 0, the name, the rank, and start and length per dimension."""
    text = name.encode().replace(b"\xff", b"\xff\x00").replace(b"\x00", b"\x00\xff")
    numbers = b"".join(_ordered_signed(number) for extent in extents for number in extent)
    rank = len(extents).to_bytes((len(extents).bit_length() + 7) // 8, "big")
    return b"\0" + text + b"\x00\x01" + bytes([len(rank)]) + rank + numbers


def _ordered_signed(value: int) -> bytes:
    # As many leading ones (zeros for a negative number) as there are bytes, then big-endian two's complement.
    length = (value if value >= 0 else ~value).bit_length() // 7 + 1
    header = ((1 << length) - 1) << (8 * length - length)
    return ((value & ((1 << 8 * length) - 1)) ^ header).to_bytes(length, "big")


def itemsize_of(dtype: str) -> int:
    if dtype == "bfloat16":
        return 2
    return np.dtype(dtype).itemsize if dtype in NUMPY_TYPES else 0


def crc_of_lengths(lengths: list[int], order: ByteOrder) -> int:
    # TensorFlow sums lengths as uint32, and as uint64 only where they need it.
    return google_crc32c.extend(0, b"".join(n.to_bytes(4 if n < 1 << 32 else 8, order) for n in lengths))


def read_header(path: str, value: bytes) -> tuple[int, ByteOrder]:
    """Read BundleHeaderProto: the number of shards, and the byte order."""
    shards = endianness = minimum = 0
    for number, content in read_message(value):
        if number == 1:
            shards = as_integer(content, "num_shards")
        elif number == 2:
            endianness = as_integer(content, "endianness")
        elif number == 3:
            for part, version in read_message(as_bytes(content, "version")):
                if part == 2:
                    minimum = as_integer(version, "min_consumer")
    if shards < 1:
        raise HeaderError(path=path, problem=f"num_shards is {shards}, expected at least 1")
    if endianness not in (0, 1):
        raise HeaderError(path=path, problem=f"endianness is {endianness}, expected 0 (little) or 1 (big)")
    if minimum > BUNDLE_VERSION:
        raise HeaderError(path=path, problem=f"needs a reader of version {minimum}, this one has {BUNDLE_VERSION}")
    return shards, "big" if endianness else "little"


def read_entry(path: str, key: bytes, value: bytes) -> TensorInfo:
    """Read BundleEntryProto."""
    name = key.decode(errors="replace")
    shape: tuple[int, ...] = ()
    numbers = dict.fromkeys((1, 3, 4, 5, 6), 0)
    slices = []
    for number, content in read_message(value):
        if number in numbers:
            numbers[number] = as_integer(content, "an entry")
        elif number == 2:
            shape = _read_shape(path, name, as_bytes(content, "a shape"))
        elif number == 7:
            slices.append(_read_extents(as_bytes(content, "a slice")))
    if numbers[1] not in TYPE_NAMES:
        raise EntryError(path=path, name=name, problem=f"type number {numbers[1]} is unknown")
    _, shard, offset, size, crc = numbers.values()
    return TensorInfo(TYPE_NAMES[numbers[1]], shape, shard, offset, size, crc, tuple(slices))


def _read_shape(path: str, name: str, value: bytes) -> tuple[int, ...]:
    """Read TensorShapeProto: 2 dim (1 size), 3 unknown_rank."""
    shape = []
    for number, content in read_message(value):
        if number == 3 and content:
            raise EntryError(path=path, name=name, problem="its rank is unknown")
        if number == 2:
            sizes = [as_integer(size, "a dimension") for part, size in read_message(as_bytes(content, "a dimension"))
                     if part == 1]  # fmt: skip
            shape.append(sizes[-1] if sizes else 0)
    if len(shape) > _MOST_DIMENSIONS:
        raise EntryError(path=path, name=name, problem=f"has {len(shape)} dimensions, at most 32 are supported")
    if any(size < 0 for size in shape):
        raise EntryError(path=path, name=name, problem=f"shape {tuple(shape)} has a negative dimension")
    return tuple(shape)


def _read_extents(value: bytes) -> Extents:
    """Read TensorSliceProto: 1 extent (1 start, 2 length; no length is the whole dimension)."""
    extents = []
    for number, content in read_message(value):
        if number == 1:
            parts = {1: 0, 2: -1}
            parts |= {n: as_integer(v, "an extent") for n, v in read_message(as_bytes(content, "an extent"))}
            extents.append((parts[1], parts[2]))
    return tuple(extents)


def slice_shape(whole: tuple[int, ...], extents: Extents) -> tuple[int, ...] | None:
    """Return the shape of a slice, or None if it is not within the whole."""
    if len(extents) != len(whole):
        return None
    shape = []
    for size, (start, length) in zip(whole, extents, strict=True):
        if length == -1 and start == 0:
            length = size
        if start < 0 or length < 0 or start + length > size:
            return None
        shape.append(length)
    return tuple(shape)
