r"""TensorFlow's checkpoint files (the V2 "tensor bundle") to and from numpy, without TensorFlow.

A checkpoint `PREFIX` is an index, `PREFIX.index`, and data files `PREFIX.data-00000-of-0000N`. The index is a sorted
table (see `wire`) from names to protocol buffers:

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

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Literal

import google_crc32c
import numpy as np

from ...files.output import files_written_beside, readable_disk_errors
from .wire import (
    FIXED32,
    MAGIC,
    MalformedError,
    Message,
    mask_crc,
    masked_crc,
    naming,
    read_sorted_table,
    read_varint,
    varint,
    write_sorted_table,
    wrong_checksum,
)
from .wire import field as encode

# DataType of TensorFlow's types.proto: number -> name. bfloat16 is read as float32, which holds it exactly.
_TYPE_NAMES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string", 8: "complex64", 9: "int64",
    10: "bool", 11: "qint8", 12: "quint8", 13: "qint32", 14: "bfloat16", 15: "qint16", 16: "quint16", 17: "uint16",
    18: "complex128", 19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64", 24: "float8_e5m2",
    25: "float8_e4m3fn", 26: "float8_e4m3fnuz", 27: "float8_e4m3b11fnuz", 28: "float8_e5m2fnuz", 29: "int4",
    30: "uint4", 31: "int2", 32: "uint2",
}  # fmt: skip
_TYPE_NUMBERS = {name: number for number, name in _TYPE_NAMES.items()}
_NUMPY_TYPES = frozenset({
    "float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool",
    "complex64", "complex128",
})  # fmt: skip
_VERSION = 1
_MAX_DIMENSIONS = 32  # numpy's limit before 2.0
_CHUNK = 1 << 24

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
    shard: int
    offset: int
    size: int
    crc: int
    slices: tuple[Extents, ...] = field(repr=False)


class TensorBundle(Mapping[str, np.ndarray]):
    """A checkpoint as a lazy mapping from names to arrays; made by `read_tensor_bundle`.

    Names, types and shapes come from the index alone (`bundle.info`); `bundle[name]` maps that tensor's bytes into
    memory and nothing else. Arrays are read-only; strings come as an object array of `bytes`.
    """

    def __init__(self, prefix: Path, verify: bool) -> None:
        self.prefix = prefix
        self.info: dict[str, TensorInfo] = {}
        self._verify = verify
        self._index = Path(f"{prefix}.index")
        if not self._index.is_file():
            refuse_old_format(prefix)
            raise FileNotFoundError(f"{self._index}: no such file; a checkpoint PREFIX has a file PREFIX.index")
        with naming(self._index):
            self._read_index(read_sorted_table(self._index.read_bytes(), verify))

    def __getitem__(self, name: str) -> np.ndarray:
        """Read one tensor; a ValueError if numpy has no such type, or the bytes are damaged."""
        info = self.info[name]
        return self._assemble(name, info) if info.slices else self._read(name, info)

    def __iter__(self) -> Iterator[str]:
        return iter(self.info)

    def __len__(self) -> int:
        return len(self.info)

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Check the CRC32C of tensors of whatever type, by default all, without keeping any; ValueError if damaged."""
        for name in self.info if names is None else names:
            info = self.info[name]
            for part in [self._slices[slice_key(name, extents)] for extents in info.slices] or [info]:
                if part.dtype == "string":
                    self._read(name, part)
                elif part.size:
                    self._bytes(name, part)

    # --- the index --------------------------------------------------------------------------------------------------

    def _read_index(self, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries or entries[0][0]:
            raise MalformedError("bundle header: the first key of the index is not the empty one of the header")
        self._shards, self._order = _read_header(entries[0][1])
        self._sizes = [self._shard_size(shard) for shard in range(self._shards)]
        self._slices: dict[bytes, TensorInfo] = {}
        for key, value in entries[1:]:
            name = key.decode(errors="replace")
            info = read_entry(name, value)
            self._check_entry(name, info)
            if key[:1] == b"\0":
                self._slices[key] = info
            elif name.encode() == key:
                self.info[name] = info
            else:
                raise MalformedError(f"key {key!r} is not a tensor name: it is not UTF-8")
        self._check_overlap()
        self._check_slices()

    def _shard_path(self, shard: int) -> Path:
        return Path(f"{self.prefix}.data-{shard:05d}-of-{self._shards:05d}")

    def _shard_size(self, shard: int) -> int:
        path = self._shard_path(shard)
        if not path.is_file():
            raise FileNotFoundError(f"{path}: no such file; the index names {self._shards} data files")
        return path.stat().st_size

    def _check_entry(self, name: str, info: TensorInfo) -> None:
        def wrong(problem: str) -> MalformedError:
            return MalformedError(f"tensor {name!r}: {problem}")

        elements = math.prod(info.shape)
        itemsize = _itemsize(info.dtype)
        if max(1, math.prod(filter(None, info.shape))) * itemsize >= 1 << 63:
            raise wrong(f"shape {info.shape} overflows")
        if info.slices:
            if info.size:
                raise wrong(f"is partitioned, but has {info.size} bytes of its own")
            return
        if not 0 <= info.shard < self._shards:
            raise wrong(f"is in data file {info.shard}, but there are {self._shards}")
        if info.offset < 0 or info.size < 0:
            raise wrong(f"offset {info.offset} or size {info.size} is negative")
        if (end := info.offset + info.size) > (found := self._sizes[info.shard]):
            path = self._shard_path(info.shard)
            raise ValueError(f"{path}: the file has {found} bytes, but tensor {name!r} needs {end}")
        if itemsize and info.size != elements * itemsize:
            raise wrong(
                f"{info.dtype} of shape {info.shape} needs {elements * itemsize} bytes, {info.size} are stored"
            )
        if info.dtype == "string" and elements > info.size:
            raise wrong(f"{elements} strings cannot fit in {info.size} bytes")

    def _check_overlap(self) -> None:
        stored = [
            (i.shard, i.offset, i.size, name) for name, i in [*self.info.items(), *self._slices.items()] if i.size
        ]
        stored.sort(key=lambda place: place[:2])
        for before, after in pairwise(stored):
            if before[0] == after[0] and before[1] + before[2] > after[1]:
                raise MalformedError(f"tensors {before[3]!r} and {after[3]!r} share bytes of the data file")

    def _check_slices(self) -> None:
        claimed: set[bytes] = set()
        for name, info in self.info.items():

            def wrong(problem: str, name: str = name) -> MalformedError:
                return MalformedError(f"partitioned tensor {name!r}: {problem}")

            volume = 0
            for extents in info.slices:
                key = slice_key(name, extents)
                part = self._slices.get(key)
                shape = _slice_shape(info.shape, extents)
                if part is None or part.slices:
                    raise wrong(f"slice {extents} has no entry")
                if key in claimed:
                    raise wrong(f"slice {extents} is named twice")
                if shape is None or shape != part.shape or part.dtype != info.dtype:
                    whole, found = f"{info.dtype} {info.shape}", f"{part.dtype} {part.shape}"
                    raise wrong(f"slice {extents} of {whole} is stored as {found}")
                claimed.add(key)
                volume += math.prod(shape)
            if info.slices and volume != math.prod(info.shape):
                raise wrong(f"the slices hold {volume} elements, shape {info.shape} has {math.prod(info.shape)}")
        for key in self._slices.keys() - claimed:
            raise MalformedError(f"key {key!r} is not a tensor name: it is a slice that no tensor claims")

    # --- the data ---------------------------------------------------------------------------------------------------

    def _bytes(self, name: str, info: TensorInfo) -> np.ndarray:
        """Map a tensor's bytes into memory and check them; the mapping ends with the array."""
        path = self._shard_path(info.shard)
        raw = np.memmap(path, np.uint8, "r", info.offset, (info.size,)).view(np.ndarray)
        if self._verify and info.dtype != "string" and (found := masked_crc(raw)) != info.crc:
            raise ValueError(f"{path}: {wrong_checksum(f'tensor {name!r}', found, info.crc)}")
        return raw

    def _read(self, name: str, info: TensorInfo) -> np.ndarray:
        if info.dtype == "string":
            with naming(self._shard_path(info.shard)):
                return self._read_strings(name, info)
        if not _itemsize(info.dtype):
            problem = f"tensor {name!r} is of TensorFlow type {info.dtype}, which numpy cannot hold"
            raise ValueError(f"{self._index}: {problem}")
        if not info.size:
            return np.empty(info.shape, "float32" if info.dtype == "bfloat16" else info.dtype)
        raw = self._bytes(name, info)
        if info.dtype == "bool":
            array = raw != 0
        elif info.dtype == "bfloat16":
            array = (raw.view(np.dtype(np.uint16).newbyteorder(self._order)).astype(np.uint32) << 16).view(np.float32)
        else:
            array = raw.view(np.dtype(info.dtype).newbyteorder(self._order))
            array = array.astype(info.dtype, copy=not array.flags.aligned)  # a copy for foreign byte order as well
        array = array.reshape(info.shape)
        array.flags.writeable = False
        return array

    def _read_strings(self, name: str, info: TensorInfo) -> np.ndarray:
        raw = self._bytes(name, info).tobytes() if info.size else b""
        lengths, position = [], 0
        for _ in range(math.prod(info.shape)):
            length, position = read_varint(raw, position)
            lengths.append(length)
        if position + 4 + sum(lengths) != len(raw) and info.size:
            needed = f"lengths and strings need {position + 4 + sum(lengths)} bytes"
            raise MalformedError(f"string tensor {name!r}: {needed}, {len(raw)} are stored")
        crc = _crc_of_lengths(lengths, self._order)
        stored = raw[position : position + 4]
        if self._verify and info.size:
            if mask_crc(crc) != int.from_bytes(stored, self._order):
                raise MalformedError(f"string tensor {name!r}: the checksum of the lengths is wrong")
            found = mask_crc(google_crc32c.extend(google_crc32c.extend(crc, stored), raw[position + 4 :]))
            if found != info.crc:
                raise wrong_checksum(f"tensor {name!r}", found, info.crc)
        array = np.empty(len(lengths), object)
        position += 4
        for number, length in enumerate(lengths):
            array[number] = raw[position : position + length]
            position += length
        return array.reshape(info.shape)

    def _assemble(self, name: str, info: TensorInfo) -> np.ndarray:
        parts = {extents: self._read(name, self._slices[slice_key(name, extents)]) for extents in info.slices}
        whole = np.empty(info.shape, next(iter(parts.values())).dtype)
        filled = np.zeros(info.shape, bool)
        for extents, part in parts.items():
            place = tuple(slice(start, None if length < 0 else start + length) for start, length in extents)
            if filled[place].any():
                problem = f"partitioned tensor {name!r}: slice {extents} overlaps another one"
                raise ValueError(f"{self._index}: {problem}")
            whole[place] = part
            filled[place] = True
        whole.flags.writeable = False
        return whole


def read_tensor_bundle(prefix: str | os.PathLike[str], verify: bool = True) -> TensorBundle:
    """Open a TensorFlow V2 checkpoint. Only the index is read here; `.meta` is not needed.

    Args:
        prefix: The checkpoint's prefix, as TensorFlow names it; its `.index`, `.meta` or data file will do as well.
        verify: Whether CRC32C is checked, of the index now and of every tensor when it is read.

    Returns:
        A lazy mapping from names to read-only arrays. `bundle.info[name]` has type and shape without reading the data.

    Raises:
        FileNotFoundError: If a file is missing.
        ValueError: If the files are broken.
    """
    path = Path(prefix)
    name = path.name
    if path.suffix in (".index", ".meta"):
        path = path.with_suffix("")
    elif ".data-" in name:
        path = path.with_name(name[: name.rindex(".data-")])
    return TensorBundle(path, verify)


def refuse_old_format(path: Path) -> None:
    """Reject a TensorFlow V1 checkpoint, which is one file that ends like an index file."""
    if not path.is_file() or path.stat().st_size <= len(MAGIC):
        return
    with path.open("rb") as stream:
        stream.seek(-len(MAGIC), os.SEEK_END)
        if stream.read() == MAGIC:
            raise ValueError(
                f"{path}: this is a TensorFlow V1 checkpoint (one file, no .index); only the V2 format is read. "
                "Write it again with tf.compat.v1.train.Saver(write_version=2)."
            )


# --- the entries of the index ---------------------------------------------------------------------------------------


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


def _itemsize(dtype: str) -> int:
    if dtype == "bfloat16":
        return 2
    return np.dtype(dtype).itemsize if dtype in _NUMPY_TYPES else 0


def _crc_of_lengths(lengths: list[int], order: ByteOrder) -> int:
    # TensorFlow sums lengths as uint32, and as uint64 only where they need it.
    return google_crc32c.extend(0, b"".join(n.to_bytes(4 if n < 1 << 32 else 8, order) for n in lengths))


def _read_header(value: bytes) -> tuple[int, ByteOrder]:
    """Read BundleHeaderProto: the number of shards, and the byte order."""
    header = Message(value)
    shards, endianness = header.integer(1), header.integer(2)
    if shards < 1:
        raise MalformedError(f"bundle header: num_shards is {shards}; expected at least 1")
    if endianness not in (0, 1):
        raise MalformedError(f"bundle header: endianness is {endianness}; expected 0 (little) or 1 (big)")
    if (minimum := Message(header.last_bytes(3)).integer(2)) > _VERSION:
        raise MalformedError(f"bundle header: needs a reader of version {minimum}, this one has {_VERSION}")
    return shards, "big" if endianness else "little"


def read_entry(name: str, value: bytes) -> TensorInfo:
    """Read BundleEntryProto."""
    entry = Message(value)
    shape = _read_shape(name, Message(entry.last_bytes(2)))
    if (dtype := _TYPE_NAMES.get(entry.integer(1))) is None:
        raise MalformedError(f"tensor {name!r}: type number {entry.integer(1)} is unknown")
    shard, offset, size, crc = map(entry.integer, (3, 4, 5, 6))
    # TensorSliceProto: 1 extent (1 start, 2 length; no length is the whole dimension)
    slices = tuple(
        tuple((extent.integer(1), extent.integer(2, -1)) for extent in part.messages(1)) for part in entry.messages(7)
    )
    return TensorInfo(dtype, shape, shard, offset, size, crc, slices)


def _read_shape(name: str, message: Message) -> tuple[int, ...]:
    """Read TensorShapeProto: 2 dim (1 size), 3 unknown_rank."""
    shape = tuple(dimension.integer(1) for dimension in message.messages(2))
    if message.integer(3):
        raise MalformedError(f"tensor {name!r}: its rank is unknown")
    if len(shape) > _MAX_DIMENSIONS:
        raise MalformedError(f"tensor {name!r}: has {len(shape)} dimensions, at most {_MAX_DIMENSIONS} are supported")
    if any(size < 0 for size in shape):
        raise MalformedError(f"tensor {name!r}: shape {shape} has a negative dimension")
    return shape


def _slice_shape(whole: tuple[int, ...], extents: Extents) -> tuple[int, ...] | None:
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


# --- writing ---------------------------------------------------------------------------------------------------------


def write_tensor_bundle(prefix: str | os.PathLike[str], tensors: Mapping[str, Any]) -> None:
    """Write a V2 checkpoint that TensorFlow reads, with one data file and the `checkpoint` state file next to it.

    The tensors are fetched one after the other, so a lazy mapping never has to be in memory as a whole. The files
    appear together when all are written.

    Args:
        prefix: Where to write; missing folders are made.
        tensors: Arrays by name: numpy's number types, `ml_dtypes.bfloat16`, or object arrays of `bytes`.

    Raises:
        ValueError: If a name is empty or starts with a zero byte, a type has no counterpart in TensorFlow, or the
            state file could not hold the prefix.
    """
    prefix = Path(prefix)
    files = bundle_files(prefix)
    entries = [(b"", encode(1, 1) + encode(3, encode(1, _VERSION)))]
    with files_written_beside(prefix.parent) as folder, readable_disk_errors(files[2]):
        index, state, data = (folder / file.name for file in files)
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
        if dtype not in _NUMPY_TYPES and dtype != "bfloat16":
            raise ValueError(f"{name!r} is an array of {dtype}; TensorFlow checkpoints have no such type.")
        raw = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
        crc = 0
        for start in range(0, len(raw), _CHUNK):
            chunk = raw[start : start + _CHUNK].tobytes()
            stream.write(chunk)
            crc = google_crc32c.extend(crc, chunk)
    shape = b"".join(varint(2 << 3 | 2) + varint(len(size)) + size for size in (encode(1, n) for n in array.shape))
    return (
        encode(1, _TYPE_NUMBERS[dtype])
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
    crc = _crc_of_lengths(lengths, "little")
    parts = [mask_crc(crc).to_bytes(4, "little"), *strings]
    stream.write(b"".join(map(varint, lengths)))
    for part in parts:
        stream.write(part)
        crc = google_crc32c.extend(crc, part)
    return crc


GRAPH_KEY = "_CHECKPOINTABLE_OBJECT_GRAPH"
SUFFIX = "/.ATTRIBUTES/VARIABLE_VALUE"


class ObjectGraph:
    """The objects of a TF2 checkpoint: numbered nodes with named children; node 0 is the root.

    A TF2 checkpoint names a variable by one of the paths that lead to it, `a/b/.ATTRIBUTES/VARIABLE_VALUE`; a variable
    that two objects share is stored under one of its paths only, and a SavedModel calls it `variables/7`. All other
    paths are in the string tensor `_CHECKPOINTABLE_OBJECT_GRAPH`, a TrackableObjectGraph:

        graph   := 1 node*
        node    := 1 child*  2 attribute*
        child   := 1 node_id  2 local_name
        attribute := 1 name ("VARIABLE_VALUE")  3 checkpoint_key

    Source: `tensorflow/core/protobuf/trackable_object_graph.proto`.
    """

    def __init__(self, bundle: TensorBundle) -> None:
        self._path = bundle.prefix
        self.children: list[dict[str, int]] = [{}]
        self.keys: dict[int, str] = {}
        if bundle.info.get(GRAPH_KEY) is None:
            self._read_keys(bundle)
        else:
            content: Any = bundle[GRAPH_KEY]
            with naming(bundle.prefix):
                if content.dtype != object or content.shape:
                    raise MalformedError(f"object graph: {GRAPH_KEY} is not one string")
                self._read_graph(content[()])

    def find(self, node: int, path: str) -> int | None:
        """Follow a path from a node; None where it ends."""
        found: int | None = node
        for name in path.split("/"):
            if found is None:
                return None
            found = self.children[found].get(name)
        return found

    def variable(self, node: int, path: str) -> str | None:
        """Return the checkpoint key of the variable at the end of a path."""
        found = self.find(node, path)
        return None if found is None else self.keys.get(found)

    def _read_graph(self, graph: bytes) -> None:
        nodes = Message(graph).messages(1)
        self.children = [{} for _ in nodes] or self.children
        for node, message in enumerate(nodes):
            for found in message.messages(1):
                child = found.integer(1)
                if not 0 <= child < len(nodes):
                    raise MalformedError(f"object graph: node {node} has the child {child} of {len(nodes)} nodes")
                self.children[node][_text(found, 2)] = child
            for attribute in message.messages(2):
                if _text(attribute, 1) == "VARIABLE_VALUE" and 3 in attribute:
                    self.keys[node] = _text(attribute, 3)

    def _read_keys(self, bundle: TensorBundle) -> None:
        for key in bundle.info:
            if not key.endswith(SUFFIX):
                continue
            node = 0
            for name in key.removesuffix(SUFFIX).split("/"):
                name = name.replace(".S", "/").split("/")[-1]  # a slash within a name is written .S
                if name not in self.children[node]:
                    self.children[node][name] = len(self.children)
                    self.children.append({})
                node = self.children[node][name]
            self.keys[node] = key


def _text(message: Message, number: int) -> str:
    name = message.last_bytes(number)
    try:
        return name.decode()
    except UnicodeDecodeError:
        raise MalformedError(f"object graph: the name {name!r} is not UTF-8") from None
