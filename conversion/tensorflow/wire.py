"""The byte-level forms that TensorFlow's checkpoint files are made of: varints, protocol buffers, masked CRC32C.

Sources: the protocol buffer encoding guide (https://protobuf.dev/programming-guides/encoding) and TensorFlow's
`tensorflow/core/lib/hash/crc32c.h`. Every reader checks its bounds and raises a `MalformedError`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import google_crc32c


class MalformedError(ValueError):
    """Malformed bytes; raised where the file's name is unknown, which `naming` adds."""


@contextmanager
def naming(path: object) -> Iterator[None]:
    """Put the file's name in front of errors about its bytes."""
    try:
        yield
    except MalformedError as error:
        raise ValueError(f"{path}: {error}") from None


VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5  # wire types of protocol buffers; 3 and 4 (groups) are obsolete


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


def read_message(buffer: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of a protocol buffer message's fields: bytes, or an unsigned integer for other types."""
    position = 0
    while position < len(buffer):
        tag, position = read_varint(buffer, position, 32)
        number, wire_type = tag >> 3, tag & 7
        if number == 0:
            raise MalformedError("protocol buffer message: field number 0")
        if wire_type == VARINT:
            value, position = read_varint(buffer, position)
            yield number, value
            continue
        if wire_type == BYTES:
            length, position = read_varint(buffer, position)
        elif wire_type in (FIXED32, FIXED64):
            length = 4 if wire_type == FIXED32 else 8
        else:
            raise MalformedError(f"protocol buffer message: field {number} has the unknown wire type {wire_type}")
        if length > len(buffer) - position:
            raise MalformedError(
                f"protocol buffer message: field {number} needs {length} bytes, {len(buffer) - position} are left"
            )
        content = buffer[position : position + length]
        position += length
        yield number, content if wire_type == BYTES else int.from_bytes(content, "little")


def as_integer(value: int | bytes, what: str) -> int:
    """Return a field as a signed 64-bit integer (negative values are stored in two's complement)."""
    if isinstance(value, bytes):
        raise MalformedError(f"protocol buffer message: {what} holds bytes where a number is expected")
    return value - (1 << 64) if value >> 63 else value


def as_bytes(value: int | bytes, what: str) -> bytes:
    """Return a field as bytes: a text, or a message within the message."""
    if not isinstance(value, bytes):
        raise MalformedError(f"protocol buffer message: {what} holds a number where bytes are expected")
    return value


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
