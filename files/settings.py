"""Settings: fields of dataclasses, whose types say what they may be, a number by a `Range`, a word by `Literal`."""

import math
from collections.abc import Callable, Iterable
from dataclasses import fields
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints


class Range(NamedTuple):
    """Which numbers a setting may be: `Annotated[float, SHARE]`, or `Annotated[int | None, AT_LEAST_1]`."""

    expected: str  # these numbers in words, for messages
    holds: Callable[[float], bool]  # whether a number is one of them


SHARE = Range("a share in [0, 1]", lambda value: 0 <= value <= 1)
SHARE_ABOVE_0 = Range("a share above 0, up to 1", lambda value: 0 < value <= 1)
SHARE_BELOW_1 = Range("a share in [0, 1)", lambda value: 0 <= value < 1)
AT_LEAST_0 = Range("at least 0", lambda value: 0 <= value < math.inf)
AT_LEAST_1 = Range("at least 1", lambda value: value >= 1)
ABOVE_0 = Range("a number above 0", lambda value: 0 < value < math.inf)


def check_number(name: str, value: float | None, limits: Range) -> None:
    if value is not None and not limits.holds(value):
        raise ValueError(f"{name} is {value!r}; expected {limits.expected}.")


def check_settings(settings: Any) -> None:
    """Check the fields of a dataclass, inherited ones too, whose types say which numbers or words they may be."""
    kinds = get_type_hints(type(settings), include_extras=True)
    for option in fields(settings):
        kind, value = kinds[option.name], getattr(settings, option.name)
        for limits in getattr(kind, "__metadata__", ()):
            if isinstance(limits, Range):
                check_number(option.name, value, limits)
        words = [word for each in (kind, *get_args(kind)) if get_origin(each) is Literal for word in get_args(each)]
        if words and value not in (*words, option.default):
            expected = f"{'one of ' if len(words) > 1 else ''}{', '.join(map(str, words))}"
            raise ValueError(f"{option.name} is {value!r}; expected {expected}.")


def refuse_given(arguments: Any, names: Iterable[str], why: str) -> None:
    """Reject settings that are given but have no effect; `why` continues "<name> is <value>"."""
    for name in names:
        if (value := getattr(arguments, name)) != arguments.__dataclass_fields__[name].default:
            raise ValueError(f"{name} is {value!r} {why}; leave it out.")


def settings_of(kind: type, source: Any) -> dict[str, Any]:
    """The fields of a class of settings, by name, from an object whose class inherits it."""
    return {each.name: getattr(source, each.name) for each in fields(kind)}


def may_be_none(kind: type) -> frozenset[str]:
    """The fields of a dataclass that may be None: by their types, or by their defaults."""
    kinds = get_type_hints(kind)
    return frozenset(
        option.name for option in fields(kind) if option.default is None or NoneType in get_args(kinds[option.name])
    )
