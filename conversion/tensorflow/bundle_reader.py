"""TensorFlow's checkpoint files as a lazy mapping from names to numpy arrays; the files are in `bundle_format`."""

import math
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path

import google_crc32c
import numpy as np

from .bundle_errors import (
    ChecksumError,
    EncodingError,
    EntryError,
    HeaderError,
    MissingFileError,
    OldFormatError,
    OverlapError,
    SliceError,
    StringTensorError,
    TensorNameError,
    TruncatedFileError,
    UnreadableTypeError,
)
from .bundle_format import TensorInfo, crc_of_lengths, itemsize_of, read_entry, read_header, slice_key, slice_shape
from .sorted_table import MAGIC, read_sorted_table
from .wire import mask_crc, masked_crc, read_varint


class TensorBundle(Mapping[str, np.ndarray]):
    """A checkpoint as a lazy mapping from names to arrays; made by `read_tensor_bundle`.

    Names, types and shapes come from the index alone (`bundle.info`); `bundle[name]` maps that tensor's bytes into
    memory and nothing else. Arrays are read-only; strings come as an object array of `bytes`.
    """

    def __init__(self, prefix: Path, verify: bool) -> None:
        self.prefix = prefix
        self.info: dict[str, TensorInfo] = {}
        self._path = os.fspath(prefix)
        self._verify = verify
        index = Path(f"{prefix}.index")
        if not index.is_file():
            if _is_old_format(prefix):
                raise OldFormatError(path=prefix)
            raise MissingFileError(path=index, expected="a checkpoint PREFIX has a file PREFIX.index")
        try:
            self._read_index(read_sorted_table(index, verify))
        except EncodingError as error:
            raise error.located(index) from None

    def __getitem__(self, name: str) -> np.ndarray:
        """Read one tensor.

        Raises:
            KeyError: If there is no tensor of that name.
            UnreadableTypeError: If numpy has no such type.
            ChecksumError: If the bytes are damaged.
        """
        info = self.info[name]
        if info.slices:
            return self._assemble(name, info)
        return self._read(name, info)

    def __iter__(self) -> Iterator[str]:
        return iter(self.info)

    def __len__(self) -> int:
        return len(self.info)

    def verify(self, names: Iterable[str] | None = None) -> None:
        """Check the CRC32C of tensors of whatever type, without keeping any.

        Args:
            names: The tensors; by default all of them.

        Raises:
            ChecksumError: If a tensor is damaged.
        """
        for name in self.info if names is None else names:
            info = self.info[name]
            for part in [self._slices[slice_key(name, extents)] for extents in info.slices] or [info]:
                if part.dtype == "string":
                    self._read_strings(name, part)
                elif part.size:
                    self._check(name, part, self._map(part))

    # --- the index --------------------------------------------------------------------------------------------------

    def _read_index(self, entries: list[tuple[bytes, bytes]]) -> None:
        if not entries or entries[0][0]:
            raise HeaderError(path=self._path, problem="the first key of the index is not the empty one of the header")
        shards, self._order = read_header(self._path, entries[0][1])
        self._sizes = [self._shard_size(shard, shards) for shard in range(shards)]
        self._shards = shards
        self._slices: dict[bytes, TensorInfo] = {}
        for key, value in entries[1:]:
            info = read_entry(self._path, key, value)
            self._check_entry(key, info)
            if key[:1] == b"\0":
                self._slices[key] = info
            else:
                try:
                    self.info[key.decode()] = info
                except UnicodeDecodeError:
                    raise TensorNameError(path=self._path, found=key, problem="it is not UTF-8") from None
        self._check_overlap()
        self._check_slices()

    def _shard_path(self, shard: int, shards: int) -> Path:
        return Path(f"{self.prefix}.data-{shard:05d}-of-{shards:05d}")

    def _shard_size(self, shard: int, shards: int) -> int:
        path = self._shard_path(shard, shards)
        if not path.is_file():
            raise MissingFileError(path=path, expected=f"the index names {shards} data files")
        return path.stat().st_size

    def _check_entry(self, key: bytes, info: TensorInfo) -> None:
        def wrong(problem: str) -> EntryError:
            return EntryError(path=self._path, name=key.decode(errors="replace"), problem=problem)

        elements = math.prod(info.shape)
        itemsize = itemsize_of(info.dtype)
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
        if info.offset + info.size > self._sizes[info.shard]:
            raise TruncatedFileError(
                path=self._shard_path(info.shard, self._shards),
                found=self._sizes[info.shard],
                what=f"tensor {key.decode(errors='replace')!r}",
                expected=info.offset + info.size,
            )
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
                raise OverlapError(path=self._path, first=before[3], second=after[3])

    def _check_slices(self) -> None:
        claimed: set[bytes] = set()
        for name, info in self.info.items():
            if not info.slices:
                continue
            volume = 0
            for extents in info.slices:
                key = slice_key(name, extents)
                part = self._slices.get(key)
                shape = slice_shape(info.shape, extents)
                if part is None or part.slices:
                    raise SliceError(path=self._path, name=name, problem=f"slice {extents} has no entry")
                if key in claimed:
                    raise SliceError(path=self._path, name=name, problem=f"slice {extents} is named twice")
                if shape is None or shape != part.shape or part.dtype != info.dtype:
                    raise SliceError(
                        path=self._path,
                        name=name,
                        problem=f"slice {extents} of {info.dtype} {info.shape} is stored as {part.dtype} {part.shape}",
                    )
                claimed.add(key)
                volume += math.prod(shape)
            if volume != math.prod(info.shape):
                problem = f"the slices hold {volume} elements, shape {info.shape} has {math.prod(info.shape)}"
                raise SliceError(path=self._path, name=name, problem=problem)
        for key in self._slices.keys() - claimed:
            raise TensorNameError(path=self._path, found=key, problem="it is a slice that no tensor claims")

    # --- the data ---------------------------------------------------------------------------------------------------

    def _map(self, info: TensorInfo) -> np.ndarray:
        """Map a tensor's bytes into memory; the mapping ends with the array."""
        path = self._shard_path(info.shard, self._shards)
        return np.memmap(path, np.uint8, "r", info.offset, (info.size,)).view(np.ndarray)

    def _check(self, name: str, info: TensorInfo, raw: np.ndarray) -> None:
        if self._verify and (found := masked_crc(raw)) != info.crc:
            raise ChecksumError(path=self._path, what=f"tensor {name!r}", found=found, expected=info.crc)

    def _read(self, name: str, info: TensorInfo) -> np.ndarray:
        if info.dtype == "string":
            return self._read_strings(name, info)
        if not itemsize_of(info.dtype):
            raise UnreadableTypeError(path=self._path, name=name, dtype=info.dtype)
        if not info.size:
            return np.empty(info.shape, "float32" if info.dtype == "bfloat16" else info.dtype)
        raw = self._map(info)
        self._check(name, info, raw)
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
        def wrong(problem: str) -> StringTensorError:
            return StringTensorError(path=self._path, name=name, problem=problem)

        raw = self._map(info).tobytes() if info.size else b""
        lengths, position = [], 0
        try:
            for _ in range(math.prod(info.shape)):
                length, position = read_varint(raw, position)
                lengths.append(length)
        except EncodingError as error:
            raise error.located(self._path) from None
        if position + 4 + sum(lengths) != len(raw) and info.size:
            raise wrong(f"lengths and strings need {position + 4 + sum(lengths)} bytes, {len(raw)} are stored")
        order = self._order
        crc = crc_of_lengths(lengths, order)
        stored = raw[position : position + 4]
        if self._verify and info.size:
            if mask_crc(crc) != int.from_bytes(stored, order):
                raise wrong("the checksum of the lengths is wrong")
            found = mask_crc(google_crc32c.extend(google_crc32c.extend(crc, stored), raw[position + 4 :]))
            if found != info.crc:
                raise ChecksumError(path=self._path, what=f"tensor {name!r}", found=found, expected=info.crc)
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
                raise SliceError(path=self._path, name=name, problem=f"slice {extents} overlaps another one")
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
        TensorBundleError: A `ValueError`; a class per way in which the files can be broken.
    """
    path = Path(prefix)
    name = path.name
    if path.suffix in (".index", ".meta"):
        path = path.with_suffix("")
    elif ".data-" in name:
        path = path.with_name(name[: name.rindex(".data-")])
    return TensorBundle(path, verify)


def _is_old_format(path: Path) -> bool:
    if not path.is_file() or path.stat().st_size < len(MAGIC):
        return False
    with path.open("rb") as stream:
        stream.seek(-len(MAGIC), os.SEEK_END)
        return stream.read() == MAGIC
