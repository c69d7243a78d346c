"""Settings of a run: frozen parts of few options each; flags, settings files and keywords give all options flat.

build(kind, {"max_length": 64, ...}) -> settings        settings.max_length is settings.sequences.max_length
flat(settings) -> {"max_length": 64, ...}               build(kind, flat(settings)) == settings
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple, TypeVar, get_type_hints

from .choices import check_choices, choices_of
from .options import (
    FLAG,
    FURTHER_OF,
    check_options,
    check_ranges,
    default_of,
    holders_of,
    is_other,
    option,
    options_of,
    parts_of,
    typed,
)

K = TypeVar("K")


class Decision(NamedTuple):
    """The value that a plan chose for an option, and why."""

    value: Any
    reason: str


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Settings that consist of parts; an option of a part can be read by its name."""

    consists_of_parts: ClassVar[bool] = True

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in (holders := holders_of(type(self))):
            raise AttributeError(f"{type(self).__name__} has no setting {name!r}.")
        field, declared, _ = holders[name]
        part = getattr(self, field)
        if isinstance(part, Mapping):
            return part.get(name, default_of(declared))
        if type(self).__dataclass_fields__[field].metadata.get(FLAG) is declared:
            return part.name
        return getattr(part, name, default_of(declared))  # of another alternative

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option, as the parts hold them: data in memory has a name, for example."""
        return typed(cls, given)

    def check(self) -> None:
        """Reject (ValueError) values that do not go together, beyond what options declare."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Options that are also a value of their own, as of a corpus: checked when they are made."""

    def __post_init__(self) -> None:
        for name, value in typed(type(self), vars(self)).items():
            object.__setattr__(self, name, value)
        check_options(self)
        self.check()

    def check(self) -> None:
        """Reject (ValueError) values that do not go together, beyond what options declare."""


def further(of: type) -> Any:
    """Declare the field for options of another class, which are handed on as they are."""
    more: dict[str, Any] = {FURTHER_OF: of}
    return option(default_factory=dict, **more)


def build(kind: type[K], given: Mapping[str, Any]) -> K:
    """Make settings from values by option; of a class without parts, by its constructor.

    Raises:
        TypeError: If there is no such option.
        ValueError: If a value is out of range, or values do not go together.
    """
    settings = assemble(kind, given)
    if isinstance(settings, Parts):
        check_options(settings)
        settings.check()
    return settings


def assemble(kind: type[K], given: Mapping[str, Any]) -> K:
    """Make settings from values by option, as `build`, without the check of what goes together."""
    root: Any = kind
    if not issubclass(kind, Parts):
        return root(**typed(kind, given))
    options, holders, hints = options_of(kind), holders_of(kind), get_type_hints(kind)
    if unknown := [name for name in given if name not in options]:
        near = difflib.get_close_matches(unknown[0], options, n=1)
        raise TypeError(f"{unknown[0]!r} is no setting.{f' Did you mean {near[0]}?' if near else ''}")
    given = root.read(dict(given))
    asked = {name: value for name, value in given.items() if is_other(value, options[name])}
    check_ranges(kind, given)
    check_choices(kind, asked)
    choices = choices_of(kind)
    values: dict[str, Any] = {name: value for name, value in given.items() if name not in holders}
    for each in fields(root):
        of_part = {name: value for name, value in given.items() if name in holders and holders[name][0] == each.name}
        if FURTHER_OF in each.metadata:
            values[each.name] = of_part
        elif parts := parts_of(hints[each.name]):
            part = parts[0]
            if (choice := choices.get(each.name)) is not None:
                named = of_part.pop(choice.flag, None) if choice.flag else None
                part = parts[choice.alternatives.index(choice.of([name for name in asked if name in of_part], named))]
            names = part.__dataclass_fields__  # type: ignore[attr-defined]
            values[each.name] = part(**{name: value for name, value in of_part.items() if name in names})
    return root(**values)


def by_keywords(kind: type[K]) -> Callable[..., K]:
    """A function that makes settings of a class from options as keywords, checked as by the command."""

    def make(**options: Any) -> K:
        return build(kind, options)

    make.__name__ = make.__qualname__ = kind.__name__.replace("Settings", "Arguments")
    make.__doc__, make.__module__ = kind.__doc__, kind.__module__
    return make


def flat(settings: Any) -> dict[str, Any]:
    """The value of each option by name."""
    return {name: getattr(settings, name) for name in options_of(type(settings))}
