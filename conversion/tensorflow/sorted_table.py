"""The sorted table that a checkpoint's `.index` file is: LevelDB's table format with TensorFlow's defaults.

Source: `tensorflow/core/lib/io/{format,block,table_builder}.cc` and LevelDB's `doc/table_format.md`.

    block*  metaindex-block  index-block  footer(48)
    block   := entries restarts(uint32[n]) n(uint32)  then  type(1 byte)  masked CRC32C of block and type (uint32)
    entry   := shared(varint32) unshared(varint32) value-length(varint32) key[shared:] value
    footer  := metaindex handle, index handle (offset and size as varint64), zeros up to 40 bytes, magic (8 bytes)

The index block holds one entry per block: a key not less than the block's last one, and the block's handle.
"""

import os
from collections.abc import Iterable, Iterator

from . import snappy
from .bundle_errors import (
    BlockEntryError,
    BlockLayoutError,
    ChecksumError,
    CompressionTypeError,
    FooterPaddingError,
    KeyOrderError,
    TruncatedFileError,
    WrongMagicError,
)
from .wire import masked_crc, read_varint, varint

MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_RESTART_INTERVAL = 16
_BLOCK_SIZE = 1 << 18
# Shared prefixes could blow a small file up. With a restart every 16 keys they expand to 16 times the block at most.
_MOST_EXPANSION = 24


def read_sorted_table(path: str | os.PathLike[str], verify: bool = True) -> list[tuple[bytes, bytes]]:
    """Read keys and values in the order of the keys; raise a `TensorBundleError` for a file broken in any way."""
    name = os.fspath(path)
    with open(path, "rb") as stream:  # noqa: PTH123 - `path` may be a plain string
        data = stream.read()
    if len(data) < _FOOTER:
        raise TruncatedFileError(path=name, found=len(data), what="the footer of an index file", expected=_FOOTER)
    footer = data[-_FOOTER:]
    if footer[-8:] != MAGIC:
        raise WrongMagicError(path=name, found=footer[-8:].hex(), expected=MAGIC.hex())
    metaindex, position = _read_handle(footer[:40], 0)
    index, position = _read_handle(footer[:40], position)
    if any(footer[position:40]):
        raise FooterPaddingError(path=name)

    entries: list[tuple[bytes, bytes]] = []
    position = 0
    for last_key, value in _read_block(name, data, index, verify):
        handle, end = _read_handle(value, 0)
        if end != len(value):
            raise BlockEntryError(path=name, problem="a block handle is followed by other bytes")
        # TensorFlow writes block after block; a gap would be bytes that no checksum covers.
        position = _follow(name, position, handle)
        for key, content in _read_block(name, data, handle, verify):
            if entries and key <= entries[-1][0]:
                raise KeyOrderError(path=name, found=key, previous=entries[-1][0])
            entries.append((key, content))
        if entries and entries[-1][0] > last_key:
            raise KeyOrderError(path=name, found=last_key, previous=entries[-1][0])
    position = _follow(name, position, metaindex)
    position = _follow(name, position, index)
    _follow(name, position, (len(data) - _FOOTER, 0))
    for _ in _read_block(name, data, metaindex, verify):
        pass
    return entries


def write_sorted_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Build the bytes of an uncompressed table; the keys strictly increase."""
    out = bytearray()
    index: list[tuple[bytes, bytes]] = []
    block: list[tuple[bytes, bytes]] = []
    size = 0

    def flush() -> None:
        nonlocal size
        if block:
            index.append((block[-1][0], _append_block(out, block)))
            block.clear()
            size = 0

    previous = None
    for key, value in entries:
        assert previous is None or key > previous, "keys must strictly increase"
        previous = key
        block.append((key, value))
        size += len(key) + len(value)
        if size >= _BLOCK_SIZE:
            flush()
    flush()
    footer = _append_block(out, []) + _append_block(out, index)
    return bytes(out + footer.ljust(_FOOTER - len(MAGIC), b"\0") + MAGIC)


def _read_handle(buffer: bytes, position: int) -> tuple[tuple[int, int], int]:
    offset, position = read_varint(buffer, position)
    size, position = read_varint(buffer, position)
    return (offset, size), position


def _follow(name: str, position: int, handle: tuple[int, int]) -> int:
    offset, size = handle
    if offset != position:
        raise BlockLayoutError(path=name, found=offset, expected=position)
    return offset + size + _TRAILER


def _read_block(name: str, data: bytes, handle: tuple[int, int], verify: bool) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    end = offset + size + _TRAILER
    if end > len(data) - _FOOTER:
        raise TruncatedFileError(path=name, found=len(data), what=f"the block at {offset}", expected=end + _FOOTER)
    block, compression = data[offset : offset + size], data[offset + size]
    stored = int.from_bytes(data[end - 4 : end], "little")
    if verify and (found := masked_crc(data[offset : end - 4])) != stored:
        raise ChecksumError(path=name, what=f"the block at byte {offset}", found=found, expected=stored)
    if compression == 1:
        block = snappy.decompress(block)
    elif compression:
        raise CompressionTypeError(path=name, found=compression)
    return _walk_block(name, block, _MOST_EXPANSION * size)


def _walk_block(name: str, block: bytes, most_key_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (count + 1)
    if len(block) < 4 or count == 0 or end < 0:
        raise BlockEntryError(path=name, problem=f"{count} restart points in {len(block)} bytes")
    restarts = {int.from_bytes(block[at : at + 4], "little") for at in range(end, len(block) - 4, 4)}
    position, key, key_bytes = 0, b"", 0
    while position < end:
        start = position
        shared, position = read_varint(block, position, 32)
        unshared, position = read_varint(block, position, 32)
        length, position = read_varint(block, position, 32)
        if shared > len(key):
            raise BlockEntryError(path=name, problem=f"a key shares {shared} bytes with one of {len(key)}")
        if unshared + length > end - position:
            raise BlockEntryError(path=name, problem=f"an entry at byte {start} runs past the end of its block")
        if start in restarts and shared:
            raise BlockEntryError(path=name, problem=f"the restart at byte {start} shares bytes with the key before")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        key_bytes += len(key)
        if key_bytes > most_key_bytes:
            problem = f"its keys expand to more than {_MOST_EXPANSION} times the stored size"
            raise BlockEntryError(path=name, problem=problem)
        yield key, block[position : position + length]
        position += length


def _append_block(out: bytearray, entries: list[tuple[bytes, bytes]]) -> bytes:
    """Append a block with its trailer to `out` and return its handle."""
    block = bytearray()
    restarts = []
    previous = b""
    for number, (key, value) in enumerate(entries):
        shared = 0
        if number % _RESTART_INTERVAL == 0:
            restarts.append(len(block))
        else:
            shared = len(os.path.commonprefix([previous, key]))  # noqa: RUF071 - keys are bytes, not paths
        block += varint(shared) + varint(len(key) - shared) + varint(len(value)) + key[shared:] + value
        previous = key
    for restart in restarts or [0]:
        block += restart.to_bytes(4, "little")
    block += len(restarts or [0]).to_bytes(4, "little")
    handle = varint(len(out)) + varint(len(block))
    block.append(0)  # not compressed
    out += block + masked_crc(bytes(block)).to_bytes(4, "little")
    return handle
