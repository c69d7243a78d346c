"""The sorted table that a checkpoint's `.index` file is: LevelDB's table format with TensorFlow's defaults.

Source: `tensorflow/core/lib/io/{format,block,table_builder}.cc` and LevelDB's `doc/table_format.md`.

    block*  metaindex-block  index-block  footer(48)
    block   := entries restarts(uint32[n]) n(uint32)  then  type(1 byte)  masked CRC32C of block and type (uint32)
    entry   := shared(varint32) unshared(varint32) value-length(varint32) key[shared:] value
    footer  := metaindex handle, index handle (offset and size as varint64), zeros up to 40 bytes, magic (8 bytes)

The index block holds one entry per block: a key not less than the block's last one, and the block's handle.
TensorFlow may compress blocks with snappy (https://github.com/google/snappy, format_description.txt). They are small
and rarely compressed, so plain Python is fast enough and saves a dependency.
"""

import os
from collections.abc import Iterable, Iterator

from .wire import MalformedError, masked_crc, read_varint, varint, wrong_checksum

MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_RESTART_INTERVAL = 16
_BLOCK_SIZE = 1 << 18
# Shared prefixes could blow a small file up. With a restart every 16 keys they expand to 16 times the block at most.
_MOST_EXPANSION = 24
_LONGEST_EXPANSION = 22  # the best element is a copy of three bytes that gives 64


def read_sorted_table(data: bytes, verify: bool = True) -> list[tuple[bytes, bytes]]:
    """Read keys and values in the order of the keys; raise a `MalformedError` for a table broken in any way."""
    if len(data) < _FOOTER:
        raise MalformedError(f"the file has {len(data)} bytes, but the footer of an index file needs {_FOOTER}")
    footer = data[-_FOOTER:]
    if footer[-8:] != MAGIC:
        expected = f"the magic number {MAGIC.hex()} of a TensorFlow index file"
        raise MalformedError(f"the file ends in {footer[-8:].hex()}, not in {expected}")
    metaindex, position = _read_handle(footer[:40], 0)
    index, position = _read_handle(footer[:40], position)
    if any(footer[position:40]):
        raise MalformedError("the padding of the footer is not zero")

    entries: list[tuple[bytes, bytes]] = []
    position = 0
    for last_key, value in _read_block(data, index, verify):
        handle, end = _read_handle(value, 0)
        if end != len(value):
            raise _malformed("a block handle is followed by other bytes")
        # TensorFlow writes block after block; a gap would be bytes that no checksum covers.
        position = _follow(position, handle)
        for key, content in _read_block(data, handle, verify):
            if entries and key <= entries[-1][0]:
                raise MalformedError(f"key {key!r} follows {entries[-1][0]!r}; keys must increase")
            entries.append((key, content))
        if entries and entries[-1][0] > last_key:
            raise MalformedError(f"key {last_key!r} follows {entries[-1][0]!r}; keys must increase")
    position = _follow(position, metaindex)
    position = _follow(position, index)
    _follow(position, (len(data) - _FOOTER, 0))
    for _ in _read_block(data, metaindex, verify):
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


def _follow(position: int, handle: tuple[int, int]) -> int:
    offset, size = handle
    if offset != position:
        raise MalformedError(
            f"a block starts at byte {offset}, expected byte {position}; the blocks must fill the file"
        )
    return offset + size + _TRAILER


def _read_block(data: bytes, handle: tuple[int, int], verify: bool) -> Iterator[tuple[bytes, bytes]]:
    offset, size = handle
    end = offset + size + _TRAILER
    if end > len(data) - _FOOTER:
        raise MalformedError(f"the file has {len(data)} bytes, but the block at {offset} needs {end + _FOOTER}")
    block, compression = data[offset : offset + size], data[offset + size]
    stored = int.from_bytes(data[end - 4 : end], "little")
    if verify and (found := masked_crc(data[offset : end - 4])) != stored:
        raise wrong_checksum(f"the block at byte {offset}", found, stored)
    if compression == 1:
        block = expand_snappy(block)
    elif compression:
        raise MalformedError(f"a block has compression type {compression}; expected 0 (none) or 1 (snappy)")
    return _walk_block(block, _MOST_EXPANSION * size)


def _walk_block(block: bytes, most_key_bytes: int) -> Iterator[tuple[bytes, bytes]]:
    count = int.from_bytes(block[-4:], "little")
    end = len(block) - 4 * (count + 1)
    if len(block) < 4 or count == 0 or end < 0:
        raise _malformed(f"{count} restart points in {len(block)} bytes")
    restarts = {int.from_bytes(block[at : at + 4], "little") for at in range(end, len(block) - 4, 4)}
    position, key, key_bytes = 0, b"", 0
    while position < end:
        start = position
        shared, position = read_varint(block, position, 32)
        unshared, position = read_varint(block, position, 32)
        length, position = read_varint(block, position, 32)
        if shared > len(key):
            raise _malformed(f"a key shares {shared} bytes with one of {len(key)}")
        if unshared + length > end - position:
            raise _malformed(f"an entry at byte {start} runs past the end of its block")
        if start in restarts and shared:
            raise _malformed(f"the restart at byte {start} shares bytes with the key before")
        key = key[:shared] + block[position : position + unshared]
        position += unshared
        key_bytes += len(key)
        if key_bytes > most_key_bytes:
            raise _malformed(f"its keys expand to more than {_MOST_EXPANSION} times the stored size")
        yield key, block[position : position + length]
        position += length


def _malformed(problem: str) -> MalformedError:
    return MalformedError(f"a block of the index file is malformed: {problem}")


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


def expand_snappy(block: bytes) -> bytes:
    """Expand one raw block: its expanded length as a varint, then literals and back references."""
    expected, position = read_varint(block, 0, 32)
    if expected > _LONGEST_EXPANSION * len(block):
        raise MalformedError(f"snappy block: {len(block)} bytes cannot expand to {expected}")
    out = bytearray()
    while position < len(block):
        tag = block[position]
        position += 1
        kind, length = tag & 3, tag >> 2
        if kind == 0:
            extra = max(0, length - 59)  # 60..63: the length follows in 1..4 bytes
            if extra:
                length = int.from_bytes(_take(block, position, extra), "little")
                position += extra
            literal = _take(block, position, length + 1)
            position += len(literal)
            _check_room(out, len(literal), expected)
            out += literal
            continue
        if kind == 1:
            length, high = (length & 7) + 4, length >> 3
            offset = high << 8 | _take(block, position, 1)[0]
            position += 1
        else:
            width = 2 if kind == 2 else 4
            length += 1
            offset = int.from_bytes(_take(block, position, width), "little")
            position += width
        if not 0 < offset <= len(out):
            raise MalformedError(f"snappy block: a copy reaches back {offset} bytes, {len(out)} are there")
        _check_room(out, length, expected)
        start = len(out) - offset
        pattern = out[start : start + length]
        out += (pattern * (length // len(pattern) + 1))[:length]  # a copy may overlap its own result
    if len(out) != expected:
        raise MalformedError(f"snappy block: expands to {len(out)} bytes, {expected} were announced")
    return bytes(out)


def _take(block: bytes, position: int, length: int) -> bytes:
    if length > len(block) - position:
        raise MalformedError(f"snappy block: an element needs {length} bytes, {len(block) - position} are left")
    return block[position : position + length]


def _check_room(out: bytearray, length: int, expected: int) -> None:
    if length > expected - len(out):
        raise MalformedError(f"snappy block: expands to more than the announced {expected} bytes")
