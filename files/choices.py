"""Alternatives: parts of settings of which a user chooses one, by its name or by its options.

An option belongs to the alternatives that declare it. That one rule stands in for rules between options.
"""

import functools
from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, NamedTuple, get_type_hints

from .errors import SettingError, Wording, worded
from .options import FLAG, contradicting, is_other, option, options_of, parts_of, said


class Alternative(NamedTuple):
    """One of several parts; `lacks` are options of other parts that have no effect with it."""

    name: str  # the value of the option that chooses; "" where none does
    options: tuple[str, ...]
    lacks: tuple[str, ...] = ()
    why: str = ""  # ends messages, such as "where the whole encoder is frozen"
    asks: str = ""  # the option without which the others have no effect


class Choice(NamedTuple):
    """The alternatives, the usual one first."""

    flag: str | None  # the option that names one
    alternatives: tuple[Alternative, ...]

    def options(self) -> set[str]:
        """The options of all alternatives."""
        return {name for each in self.alternatives for name in each.options}

    def of(self, given: Collection[str], name: str | None = None) -> Alternative:
        """The alternative with most of the given options, of those with the given or else the usual one's name."""
        usual = self.alternatives[0]
        names = dict.fromkeys(each.name for each in self.alternatives)
        name = usual.name if name is None else name
        if name not in names:
            raise SettingError(str(self.flag), name, known=names)

        def fit(each: Alternative) -> tuple[int, bool]:
            own = [option for option in given if option in each.options]
            return len(own), not set(own) <= set(usual.options)

        return max((each for each in self.alternatives if each.name == name), key=fit)  # the first of equal ones


def choice(usual: type, name: str = "", default: str = "", help: str = "", **more: Any) -> Any:
    """Declare a field that holds one of several parts, with an option, if a name is given, for the part's name."""
    flag: Any = None
    if name:
        flag = option(default, help, **more)
        flag.name = name
    metadata: dict[str, Any] = {FLAG: flag}
    return option(default_factory=usual, **metadata)


@functools.cache
def _choices_of(kind: Any) -> dict[str, Choice]:
    hints = get_type_hints(kind)
    choices = {}
    for each in fields(kind):
        if FLAG in each.metadata:
            flag, parts = each.metadata[FLAG], parts_of(hints[each.name])
            alternatives = (
                Alternative(
                    getattr(part, "name", ""),
                    tuple(item.name for item in fields(part)),
                    getattr(part, "lacks", ()),
                    getattr(part, "why", ""),
                    getattr(part, "asks", ""),
                )
                for part in parts
            )
            choices[each.name] = Choice(None if flag is None else flag.name, tuple(alternatives))
    return choices


choices_of: Callable[[Any], dict[str, Choice]] = _choices_of


def check_choices(kind: Any, given: Mapping[str, Any]) -> None:
    """Reject (ValueError) a given option that does not belong to the alternative that others choose."""
    for choice in choices_of(kind).values():
        own = [name for name in given if name in choice.options()]
        chosen = choice.of(own, given.get(choice.flag or ""))
        if own and chosen.asks and chosen.asks not in given:
            name = next(name for name in own if name in chosen.options)
            raise SettingError(_without(said(name, given[name]), said(chosen.asks, True, "")))
        for name in given:
            if (name in own and name not in chosen.options) or name in chosen.lacks:
                raise SettingError(_misplaced(choice, chosen, name, given))


def _without(is_set: Wording, missing: Wording) -> Wording:
    return worded("{} without {}, so it has no effect; give both or neither.", is_set, missing)


def _misplaced(choice: Choice, chosen: Alternative, name: str, given: Mapping[str, Any]) -> Wording:
    """The message for an option that the chosen alternative does not have."""
    owners = {each.name for each in choice.alternatives if name in each.options}
    usual, is_set = choice.alternatives[0].name, said(name, given[name])
    if choice.flag and owners and chosen.name not in owners and usual not in owners:
        return _without(is_set, said(choice.flag, min(owners), ""))
    asked = choice.flag if choice.flag and chosen.name != usual else None
    asked = asked or next(each for each in chosen.options if each in given)
    why = f", {chosen.why}" if chosen.why else ""
    return worded("{} with {}{}; leave it out.", is_set, said(asked, given.get(asked, chosen.name), ""), why)


def superseded(kind: Any, given: Mapping[str, Any], earlier: Mapping[str, Any]) -> set[str]:
    """The options of earlier values (of a settings file) that given ones replace, also by another alternative."""
    gone = contradicting(kind, given)
    options = options_of(kind)
    asked = [name for name, value in given.items() if name in options and is_other(value, options[name])]
    for choice in choices_of(kind).values():
        own = [name for name in asked if name in choice.options()]
        if not own and choice.flag not in given:
            continue
        before = choice.of([name for name in earlier if name in choice.options()], earlier.get(choice.flag or ""))
        chosen = choice.of(own, given.get(choice.flag or ""))
        if choice.flag not in given and all(name in before.options for name in own):
            chosen = before
        gone |= (choice.options() - {*chosen.options}) | {*chosen.lacks}
        if choice.flag and chosen.name != before.name:
            gone.add(choice.flag)
    return gone - given.keys()
