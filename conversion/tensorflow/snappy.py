"""Expand snappy blocks, which TensorFlow may use in index files.

Source: https://github.com/google/snappy, format_description.txt.
Index blocks are small and rarely compressed, so plain Python is fast enough and saves a dependency.
"""

from .bundle_errors import SnappyError
from .wire import read_varint

_LONGEST_EXPANSION = 22  # the best element is a copy of three bytes that gives 64


def decompress(block: bytes) -> bytes:
    """Expand one raw block: its expanded length as a varint, then literals and back references."""
    expected, position = read_varint(block, 0, 32)
    if expected > _LONGEST_EXPANSION * len(block):
        raise SnappyError(problem=f"{len(block)} bytes cannot expand to {expected}")
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
            raise SnappyError(problem=f"a copy reaches back {offset} bytes, {len(out)} are there")
        _check_room(out, length, expected)
        start = len(out) - offset
        pattern = out[start : start + length]
        out += (pattern * (length // len(pattern) + 1))[:length]  # a copy may overlap its own result
    if len(out) != expected:
        raise SnappyError(problem=f"expands to {len(out)} bytes, {expected} were announced")
    return bytes(out)


def _take(block: bytes, position: int, length: int) -> bytes:
    if length > len(block) - position:
        raise SnappyError(problem=f"an element needs {length} bytes, {len(block) - position} are left")
    return block[position : position + length]


def _check_room(out: bytearray, length: int, expected: int) -> None:
    if length > expected - len(out):
        raise SnappyError(problem=f"expands to more than the announced {expected} bytes")
