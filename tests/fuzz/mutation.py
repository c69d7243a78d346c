"""Mutations of bytes, and of the values of JSON."""

import json
import random
from collections.abc import Callable, Sequence
from typing import Any

_NUMBERS = (b"\xff" * 8, b"\x80" * 10, b"\0" * 4, b"\x7f", b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\xff" * 4)


def mutated(rng: random.Random, content: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    """Change bytes or values, once or a few times; parts may come from other inputs and from words."""
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        of_values = rng.random() < 0.5 and _with_other_value(rng, content, others, words)
        content = of_values or rng.choice(_CHANGES)(rng, content, others, words)
    return content


def _flip(rng: random.Random, content: bytes, *_: Any) -> bytes:
    place = rng.randrange(len(content) + 1)
    return (
        content[:place]
        + bytes(byte ^ 1 << rng.randrange(8) for byte in content[place : place + 1])
        + content[place + 1 :]
    )


def _insert(rng: random.Random, content: bytes, others: Sequence[bytes], words: Sequence[bytes]) -> bytes:
    place = rng.randrange(len(content) + 1)
    part = rng.choice([*words, *_NUMBERS, rng.randbytes(rng.randrange(1, 9))])
    return content[:place] + part + content[place + rng.choice((0, 0, len(part))) :]


def _delete(rng: random.Random, content: bytes, *_: Any) -> bytes:
    place = rng.randrange(len(content) + 1)
    return content[:place] + (b"" if rng.random() < 0.2 else content[place + rng.randrange(1, 20) :])


def _repeat(rng: random.Random, content: bytes, *_: Any) -> bytes:
    place, length = rng.randrange(len(content) + 1), rng.randrange(1, 40)
    return content[:place] + content[place : place + length] * rng.choice((1, 1, 2, 30)) + content[place:]


def _splice(rng: random.Random, content: bytes, others: Sequence[bytes], *_: Any) -> bytes:
    other = rng.choice(others)
    start, place = rng.randrange(len(other) + 1), rng.randrange(len(content) + 1)
    part = other[start : start + rng.randrange(1, 60)]
    return content[:place] + part + content[place + rng.choice((0, len(part))) :]


_CHANGES: tuple[Callable[..., bytes], ...] = (_flip, _insert, _delete, _repeat, _splice)


def _with_other_value(
    rng: random.Random, content: bytes, others: Sequence[bytes], words: Sequence[bytes]
) -> bytes | None:
    """JSON with another value somewhere; None for what is no JSON."""
    value, other = _parsed(content), _parsed(rng.choice(others))
    if not isinstance(value, (dict, list)) or not value:
        return None
    parts = list(_parts(value))
    holder, key = rng.choice(parts)
    kind = rng.randrange(5)
    if kind == 0:
        holder[key] = _parsed(rng.choice([*words, b"0"]))
    elif kind == 1 and isinstance(other, (dict, list)) and other:
        where, name = rng.choice(list(_parts(other)))
        holder[key] = where[name]
    elif kind == 2:
        del holder[key]
    elif kind == 3 and isinstance(holder, dict):
        where, name = rng.choice(parts)
        holder[rng.choice(["", "a", str(name)])] = where[name] if where is not value else None
    else:
        changes: list[Any] = [[holder[key]], {"a": holder[key]}, str(holder[key]), -1, 10**30, 0.5, True, None, ""]
        holder[key] = rng.choice(changes)
    try:
        return json.dumps(value).encode()
    except (ValueError, RecursionError):  # a value within itself
        return None


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _parts(value: Any) -> Any:
    keys = list(value) if isinstance(value, dict) else range(len(value))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from _parts(value[key])
