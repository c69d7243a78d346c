"""The byte-level forms of TensorFlow's checkpoint files: varints, protocol buffers, checksums and the index's table.

Sources: the protocol buffer encoding guide (https://protobuf.dev/programming-guides/encoding), TensorFlow's
`tensorflow/core/lib/hash/crc32c.h` and `tensorflow/core/lib/io/{format,block,table_builder}.cc`, and LevelDB's
`doc/table_format.md`. Every reader checks its bounds and raises a `MalformedError`.

An `.index` file is a sorted table, LevelDB's table format with TensorFlow's defaults:

    block*  metaindex-block  index-block  footer(48)
    block   := entries restarts(uint32[n]) n(uint32)  then  type(1 byte)  masked CRC32C of block and type (uint32)
    entry   := shared(varint32) unshared(varint32) value-length(varint32) key[shared:] value
    footer  := metaindex handle, index handle (offset and size as varint64), zeros up to 40 bytes, magic (8 bytes)

The index block holds one entry per block: a key not less than the block's last one, and the block's handle.
Its blocks could be compressed, but TensorFlow writes those of checkpoints as they are (`TableBuilderOptions` of
`tensor_bundle.cc`, since version 1.2; BERT needs 1.11).
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers; 3 and 4 (groups) are obsolete
MAGIC = 0xDB4775248B80FB57.to_bytes(8, "little")
_FOOTER = 48
_TRAILER = 5
_RESTART_INTERVAL = 16
_BLOCK_SIZE = 1 << 18
# Shared prefixes could blow a small file up. With a restart every 16 keys they expand to 16 times the block at most.
_MAX_EXPANSION = 24


class MalformedError(ValueError):
    """Malformed bytes; raised where the file's name is unknown, which `naming` adds."""


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Put the file's name in front of errors about its bytes."""
    try:
        yield
    except MalformedError as error:
        raise ValueError(f"{path}: {error}") from None


def read_varint(buffer: bytes, position: int, bits: int = 64) -> tuple[int, int]:
    """Return a little-endian base-128 integer in [0, 2**bits) (`bits` is 32 or 64) and the position after it."""
    value = shift = 0
    start = position
    while shift < bits:
        if position >= len(buffer):
            raise MalformedError(f"a variable-length integer at byte {start} runs past the end of its message")
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> bits:
                break
            return value, position
        shift += 7
    raise MalformedError(f"a variable-length integer at byte {start} has more than {bits} bits")


def varint(value: int) -> bytes:
    """Write an unsigned integer in base 128, little-endian."""
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class Message:
    """A protocol buffer message: its fields, each with all values of its number."""

    def __init__(self, buffer: bytes) -> None:
        self._fields: dict[int, list[int | bytes]] = {}
        position = 0
        while position < len(buffer):
            tag, position = read_varint(buffer, position, 32)
            number, wire_type = tag >> 3, tag & 7
            value: int | bytes
            if number == 0:
                raise MalformedError("protocol buffer message: field number 0")
            if wire_type == VARINT:
                value, position = read_varint(buffer, position)
            else:
                if wire_type == BYTES:
                    length, position = read_varint(buffer, position)
                elif wire_type in (FIXED32, FIXED64):
                    length = 4 if wire_type == FIXED32 else 8
                else:
                    problem = f"field {number} has the unknown wire type {wire_type}"
                    raise MalformedError(f"protocol buffer message: {problem}")
                if length > len(buffer) - position:
                    problem = f"field {number} needs {length} bytes, {len(buffer) - position} are left"
                    raise MalformedError(f"protocol buffer message: {problem}")
                value = buffer[position : position + length]
                position += length
                if wire_type != BYTES:
                    value = int.from_bytes(value, "little")
            self._fields.setdefault(number, []).append(value)

    def __contains__(self, number: int) -> bool:
        return number in self._fields

    def integer(self, number: int, default: int = 0) -> int:
        """Return a field as a signed 64-bit integer (negative values are stored in two's complement)."""
        value = self._fields.get(number, [default])[-1]
        if isinstance(value, bytes):
            raise MalformedError(f"protocol buffer message: field {number} holds bytes where a number is expected")
        return value - (1 << 64) if value >> 63 == 1 else value

    def all_bytes(self, number: int) -> list[bytes]:
        """Return all values of a field of bytes: texts, or messages within the message."""
        values = [value for value in self._fields.get(number, []) if isinstance(value, bytes)]
        if len(values) != len(self._fields.get(number, [])):
            raise MalformedError(f"protocol buffer message: field {number} holds a number where bytes are expected")
        return values

    def last_bytes(self, number: int) -> bytes:
        return (self.all_bytes(number) or [b""])[-1]

    def messages(self, number: int) -> list["Message"]:
        return [Message(content) for content in self.all_bytes(number)]


def field(number: int, value: int | bytes) -> bytes:
    """Write one field: bytes as they are, a non-negative integer as a varint; zero is left out, as proto3 does."""
    if isinstance(value, bytes):
        return varint(number << 3 | BYTES) + varint(len(value)) + value
    return varint(number << 3 | VARINT) + varint(value) if value else b""


def mask_crc(crc: int) -> int:
    """Rotate and shift a CRC32C as LevelDB and TensorFlow store it, so that a CRC of CRCs stays meaningful."""
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def masked_crc(content: Any) -> int:
    return mask_crc(google_crc32c.extend(0, content))


def wrong_checksum(what: str, found: int, stored: int) -> MalformedError:
    return MalformedError(f"{what} has checksum {found:#010x}, but {stored:#010x} is stored; the file is damaged")


# --- the sorted table ------------------------------------------------------------------------------------------------


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
    list(_read_block(data, metaindex, verify))  # which checks it
    return entries


def write_sorted_table(entries: Iterable[tuple[bytes, bytes]]) -> bytes:
    """Build the bytes of an uncompressed table; the keys strictly increase."""
    blocks: list[list[tuple[bytes, bytes]]] = [[]]
    size = 0
    for key, value in entries:
        assert not blocks[-1] or key > blocks[-1][-1][0], "keys must strictly increase"
        if size >= _BLOCK_SIZE:
            blocks.append([])
            size = 0
        blocks[-1].append((key, value))
        size += len(key) + len(value)
    out = bytearray()
    index = [(block[-1][0], _append_block(out, block)) for block in blocks if block]
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
            f"a block starts at byte {offset}; expected byte {position}; the blocks must fill the file"
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
    if compression:
        raise MalformedError(f"a block has compression type {compression}; expected 0, as TensorFlow compresses none")
    count = int.from_bytes(block[-4:], "little")
    end = size - 4 * (count + 1)
    if size < 4 or count == 0 or end < 0:
        raise _malformed(f"{count} restart points in {size} bytes")
    restarts = {int.from_bytes(block[at : at + 4], "little") for at in range(end, size - 4, 4)}
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
        if key_bytes > _MAX_EXPANSION * size:
            raise _malformed(f"its keys expand to more than {_MAX_EXPANSION} times the stored size")
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
