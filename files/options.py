"""Options: fields of dataclasses, declared once with all that help, checks, settings files and runs read of them."""

import functools
import logging
import math
import os
from collections.abc import Callable, Container, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import MISSING, Field, field, fields, is_dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from .errors import SettingError, Wording, option_names, worded

logger = logging.getLogger(__name__)


class Range(NamedTuple):
    """The numbers that an option may be."""

    expected: str  # these numbers in words, for messages
    least: float = -math.inf
    most: float = math.inf
    excluded: tuple[float, ...] = ()  # ends that do not belong to it, and gaps between whole numbers

    def holds(self, value: float) -> bool:
        """Whether a number is one of them."""
        return self.least <= value <= self.most and value not in self.excluded


SHARE = Range("a fraction in [0, 1]", 0, 1)
SHARE_ABOVE_0 = Range("a fraction above 0, up to 1", 0, 1, (0,))
SHARE_BELOW_1 = Range("a fraction in [0, 1)", 0, 1, (1,))
AT_LEAST_0 = Range("at least 0", 0, excluded=(math.inf,))
AT_LEAST_1 = Range("at least 1", 1)
ABOVE_0 = Range("a number above 0", 0, excluded=(0, math.inf))
_FINITE = Range("a finite number", excluded=(-math.inf, math.inf))


class Group(Enum):
    """The titles of the help, in its order."""

    USUAL = "Most used"
    INPUT = "Input and output"
    EXAMPLES = "Which examples"
    READING = "Reading files"
    FILTERS = "What is left out"
    STORE = "Token store"
    VOCABULARY = "Vocabulary"
    MODEL = "Model"
    CONVERSION = "Conversion"
    SEQUENCES = "Sequences and batches"
    OBJECTIVE = "Pretraining objective"
    ANSWERS = "Tags and answers"
    PARTS = "Which parts are trained"
    FEATURES = "Features of frozen layers"
    TEACHER = "Learning from the teacher"
    TABLE = "Table"
    PICTURE = "Picture"
    CARD = "What the card says"
    UPLOAD = "Upload"
    MEASUREMENT = "Measurement"
    TRAINING = "Training"
    RECORDS = "Evaluation, checkpoints and logs"
    COMMON = "Every command"
    FURTHER = "Further flags of transformers' TrainingArguments"


_EXPECTED = {bool: "a truth value", float: "a number", int: "a whole number", str: "a text"}  # in words, for messages
_DATA = ("examples", "rows", "text")  # what options read that may be in memory
_FILES = ("text file", "file")  # what is no model, either
_LONGEST_VALUE = 80  # characters; messages name the type of longer ones
_OF_CLASSES = ("group", "decides", "needs")  # attributes of a class, for all of its options


class Option(Field):
    """A field made by `option`."""

    range: Range | None
    group: Group | None
    decides: bool | Literal["if_not_default"] | None
    needs: str | None
    excludes: str | None
    replaces: str | None
    why: str | None
    comes_last: bool | None
    positional: int | None
    required: bool | str | None
    reads: Literal["model", "model folder", "examples", "rows", "text", "text file", "file"] | None
    writes: bool | None

    def __set_name__(self, owner: type, name: str) -> None:
        """Take over what is not given: from the field of a base class, or the class's `group` and `decides`."""
        bases = (*owner.__mro__[1:], *filter(None, [getattr(owner, "like", None)]))
        of_bases = (base.__dict__.get("__dataclass_fields__", {}) for base in bases)
        base = next((options[name] for options in of_bases if name in options), None)
        if base is not None:
            if self.default is MISSING and self.default_factory is MISSING:
                self.default, self.default_factory = base.default, base.default_factory
            if not self.metadata:
                self.metadata = base.metadata
        for attribute in Option.__annotations__:
            if getattr(self, attribute) is None:
                of_class = owner.__dict__.get(attribute) if attribute in _OF_CLASSES else None
                setattr(self, attribute, getattr(base, attribute, of_class))


def option(
    default: Any = MISSING,
    help: str | None = None,
    range: Range | None = None,
    *,
    group: Group | None = None,
    decides: bool | Literal["if_not_default"] | None = None,
    needs: str | None = None,
    excludes: str | None = None,
    replaces: str | None = None,
    why: str | None = None,
    comes_last: bool | None = None,
    positional: int | None = None,
    required: bool | str | None = None,
    reads: Literal["model", "model folder", "examples", "rows", "text", "text file", "file"] | None = None,
    writes: bool | None = None,
    **more: Any,
) -> Any:
    """Declare an option, a field of a dataclass.

    What is not given is that of the field with this name in a base class, or in the class that the attribute `like`
    names; if there is none, `group`, `decides` and `needs` are the class's attributes of these names.
    Rules name other options: `name` means that it is given, `name=value` that it has this value; several are separated
    by spaces.

    Args:
        default: Its default; without one it is required. A list is copied.
        help: One sentence for the help.
        range: The numbers that it may be. Words that it may be are its type, a `Literal`, or `choices` among `more`.
        group: Where the help shows it.
        decides: Whether a run's result depends on it, so that only a run with the same value is resumed;
            "if_not_default": records of runs leave out the default.
        needs: Options without which it has no effect.
        excludes: Options that contradict it: both is an error; a flag replaces the other one of a settings file.
        replaces: Options that a flag replaces in a settings file, and the other way round.
        why: Ends messages on what contradicts it, such as "where the whole encoder is frozen".
        comes_last: Whether the help shows it at the end of its group.
        positional: Its place among the values that may be given before all flags, without their names.
        required: Whether it has to be given although it has a default, as fields after others must have; names of
            options: unless one of these is given.
        reads: What the command reads there, which can be looked at before it starts: a model or tokenizer, a model
            that must be a folder, labeled examples, other rows or text of a corpus, which may be in memory, or files
            with text, or another file or folder.
        writes: Whether it names a file or folder to write; then `~` is the home folder, which shells leave to programs
            in `--output_dir=~/x`.
        **more: Arguments of `add_argument`, or of `dataclasses.field`.
    """
    of_field: dict[Any, Any] = {
        name: more.pop(name) for name in ("default_factory", "init", "kw_only") if name in more
    }
    if isinstance(default, list):
        of_field["default_factory"] = lambda: list(default)
    elif "default_factory" not in of_field:
        of_field["default"] = default
    made = field(**of_field, metadata=({} if help is None else {"help": help}) | more)
    self = Option.__new__(Option)
    for attribute in Field.__slots__:
        setattr(self, attribute, getattr(made, attribute))
    self.range, self.group, self.decides, self.why = range, group, decides, why
    self.needs, self.excludes, self.replaces = needs, excludes, replaces
    self.comes_last, self.positional, self.required = comes_last, positional, required
    self.reads, self.writes = reads, writes
    return self


FURTHER_OF = "further_of"
"""Key of the metadata of a field that holds options of another class, as they are."""


FLAG = "flag"
"""Key of the metadata of a field that holds one of several parts: the option whose value is the part's name."""


def parts_of(hint: Any) -> tuple[type, ...]:
    """The class of a part of settings, or of each alternative, from the type of its field; none of an option."""
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    return tuple(member for member in members if isinstance(member, type) and is_dataclass(member))


@functools.cache
def _holders_of(kind: Any) -> dict[str, tuple[str, Field, Any]]:
    """For each option of a part of settings, the name of the field with the part, the option and its type."""
    holders: dict[str, tuple[str, Field, Any]] = {}
    if not getattr(kind, "consists_of_parts", False):
        return holders
    hints = get_type_hints(kind)
    options = {each.name: each for each in fields(kind)}
    for name, each in options.items():
        if (source := each.metadata.get(FURTHER_OF)) is not None:
            types = get_type_hints(source)
            holders |= {other.name: (name, other, types[other.name]) for other in fields(source) if other.init}
    for name, each in options.items():
        for part in reversed(parts := parts_of(hints[name])):  # of alternatives with an option, the first declares it
            types = get_type_hints(part)
            holders |= {other.name: (name, other, types[other.name]) for other in fields(part)}
        if (flag := each.metadata.get(FLAG)) is not None:
            names = tuple(dict.fromkeys(part.name for part in parts))  # type: ignore[attr-defined]
            holders[flag.name] = name, flag, Literal[names]
    return {name: holder for name, holder in holders.items() if name not in options}


def _options(kind: type) -> dict[str, tuple[Field, Any]]:
    """The options of a class of settings and of its parts, by name, with their types."""
    holders, hints = holders_of(kind), get_type_hints(kind)
    parts = {part for part, _, _ in holders.values()}
    found = {name: (option, hint) for name, (_, option, hint) in holders.items()}
    return found | {each.name: (each, hints[each.name]) for each in fields(kind) if each.name not in parts}


@functools.cache
def _options_of(kind: Any) -> dict[str, Field]:
    """The options of a class of settings and of its parts, by name."""
    return {name: option for name, (option, _) in _options(kind).items()}


@functools.cache
def _types_of(kind: Any) -> dict[str, Any]:
    """The types of the options of a class of settings and of its parts, by name."""
    return {name: hint for name, (_, hint) in _options(kind).items()}


# Named types for mypy, which takes no class for hashable.
holders_of: Callable[[Any], dict[str, tuple[str, Field, Any]]] = _holders_of
options_of: Callable[[Any], dict[str, Field]] = _options_of
types_of: Callable[[Any], dict[str, Any]] = _types_of


class _Kind(NamedTuple):
    """What the type of an option allows."""

    types: frozenset[Any]  # without None
    item: Any = None  # the type of an item, if lists are allowed
    words: tuple[Any, ...] = ()  # others are errors of `check_ranges`


@functools.cache
def _kind_of(hint: Any) -> _Kind:
    members = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    lists = [get_args(member)[0] for member in members if get_origin(member) is list]
    return _Kind(
        frozenset(members) - {NoneType},
        lists[0] if lists else None,
        tuple(word for member in members if get_origin(member) is Literal for word in get_args(member)),
    )


def typed(kind: type, values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by option as its type says; those of Python or of a YAML library mean the same as words of flags.

    None is left out where it is no value, as in a settings file. Data in memory stays what it is.
    """
    options, hints, nullable = options_of(kind), types_of(kind), may_be_none(kind)
    found = {}
    for name, value in values.items():
        default = default_of(options[name]) if name in options else value
        if value is None and name not in nullable and default not in (None, MISSING):
            continue
        is_plain = value is None or default is value or (isinstance(value, str) and value == default)
        found[name] = value if is_plain else _typed(options[name], hints[name], value)
    return found


def _typed(option: Any, hint: Any, value: Any) -> Any:
    """A value as a type says: a number of NumPy or torch as one of Python, a text as a flag's is read."""
    types, item, words = _kind_of(hint)
    is_data = getattr(option, "reads", None) in _DATA
    if item is not None and not (isinstance(value, str) and str in types):
        if is_data:
            return [value] if isinstance(value, str) else value
        value = value.tolist() if hasattr(value, "tolist") else value
        several = isinstance(value, (Sequence, Set)) and not isinstance(value, (str, bytes))
        return [_typed(option, item, one) for one in (value if several else [value])]
    if is_data:
        return value
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        value = value.item()
    if isinstance(value, (str, os.PathLike)) and str in types:
        path = os.fspath(value)
        return os.path.expanduser(path) if getattr(option, "writes", None) else path  # noqa: PTH111 - takes `~$NAME`, too
    if type(value) in types or (type(value) is int and float in types) or (isinstance(value, str) and value in words):
        return value
    if not words and not types <= {*_EXPECTED}:
        return value
    is_bool = isinstance(value, bool)
    if isinstance(value, str) or (isinstance(value, (int, float)) and not is_bool and not words):
        with suppress(ValueError):
            return value_of_text(hint, str(value))
    # Objects for a text, and words for a truth value, are of transformers' options, whose table has not every type.
    is_object = str in types and not isinstance(option, Option) and not (is_bool and hint is str)
    if words or is_object or type(value) is type(default_of(option)):
        return value
    raise _type_error(option, value, next(_EXPECTED[each] for each in _EXPECTED if each in types))


def _type_error(option: Any, value: Any, expected: str) -> SettingError:
    """The error for a value of another type; of an object with a long text, such as a model, the type is named."""
    if getattr(option, "reads", None) or getattr(option, "writes", None):
        expected = "a path or name"
    text = repr(value)
    if len(text) <= _LONGEST_VALUE and "\n" not in text:
        return SettingError(option.name, value, expected)
    template = "{:option} is of type {}; expected {}: {}."
    return SettingError.worded(template, option.name, type(value).__name__, expected, _purpose(option))


def check_options(settings: Any) -> None:
    """Check settings: what is required, numbers and words by range and type, options that contradict each other.

    A file that is named twice is a warning.
    """
    kind = type(settings)
    options = options_of(kind)
    values = {name: getattr(settings, name) for name in options}
    if missing := missing_options(kind, values):
        raise SettingError(not_set(missing))
    check_ranges(kind, values)
    options_of_file: dict[str, list[str]] = {}
    for name, each in options.items():
        if getattr(each, "reads", None) in (*_DATA, *_FILES):  # of data in memory, nothing is compared
            value = values[name]
            for item in value if isinstance(value, (list, tuple)) else [value]:
                if isinstance(item, (str, Path)) and str(item) not in ("", "-"):
                    options_of_file.setdefault(os.path.realpath(item), []).append(name)
    for each in options.values():
        for rule, other, wanted in _broken_rules(settings, each) if is_given(settings, each) else ():
            raise SettingError(_contradiction(settings, each, rule, other, wanted))
    for file, names in options_of_file.items() if logger.isEnabledFor(logging.WARNING) else ():
        if len(names) > 1:
            _warn_of_repeated_file(file, " and ".join(dict.fromkeys(names)))


def check_ranges(kind: Any, values: Mapping[str, Any]) -> None:
    """Check values by option: numbers by their ranges, words by their types or choices."""
    kinds, options = types_of(kind), options_of(kind)
    for name, value in values.items():
        each = options[name]
        parts = (kinds[name], *get_args(kinds[name]))
        is_list = isinstance(value, list) and "list[" in str(kinds[name])
        for number in value if is_list else [value]:
            limits = getattr(each, "range", None) or (_FINITE if isinstance(number, float) else None)
            if limits:
                check_number(name, number, limits)
        # Words of a list are those of its items; those of transformers' options may be choices of a text.
        items = [item for part in parts for item in (get_args(part) if get_origin(part) is list else (part,))]
        words = [word for item in items if get_origin(item) is Literal for word in get_args(item)]
        words = [*dict.fromkeys(words)] or [*each.metadata.get("choices", ())]
        if words and not all(one in (*words, each.default) for one in (value if is_list else [value])):
            raise SettingError(name, value, "" if len(words) > 1 else str(words[0]), known=words)


@functools.cache  # once: a class and its bases each check an object, and a study many objects
def _warn_of_repeated_file(file: str, names: str) -> None:
    logger.warning("%s is given more than once, as %s.", file, names)


def missing_options(kind: type, given: Mapping[str, Any]) -> dict[Field, list[str]]:
    """The options of a dataclass that have to be given and are not, each with others that would do instead."""
    options = options_of(kind)
    missing = {}
    for each in options.values():
        required = getattr(each, "required", None)
        others = [name for name in str(required).split() if name in options and options[name].init]
        is_missing = bool(required) and all(_is_empty(given.get(name)) for name in (each.name, *others))
        if each.init and (is_missing or (default_of(each) is MISSING and each.name not in given)):
            missing[each] = others

    def place(option: Field) -> tuple[bool, float]:
        return bool(getattr(option, "comes_last", False)), getattr(option, "positional", None) or math.inf

    return {each: missing[each] for each in sorted(missing, key=place)}


def _purpose(option: Field) -> str:
    """The first sentence of an option's help."""
    return str(option.metadata.get("help", option.name)).partition(". ")[0].rstrip(".")


def _is_empty(value: Any) -> bool:
    return value is None or (isinstance(value, (str, list, dict, bool)) and not value)


def not_set(missing: Mapping[Field, Sequence[str]], example: str = "") -> Wording:
    """The message for `missing_options`; several get an example."""
    names = [
        worded("{:option} (or {})", each.name, option_names(*others, joint=" or "))
        if others
        else worded("{:option}", each.name)
        for each, others in missing.items()
    ]
    if len(names) == 1:
        (each, others) = next(iter(missing.items()))
        instead = worded(" Or give {}.", option_names(*others, joint=" or ")) if others else ""
        return worded(
            "{:option} is not set; expected: {}.{}",
            each.name,
            _purpose(each),
            instead,
        )
    template = f"{', '.join(['{}'] * (len(names) - 1))} and {{}} are not set{{}}."
    return worded(template, *names, example and f" (as in: {example})")


def _broken_rules(settings: Any, option: Any) -> Iterator[tuple[str, Option, str | None]]:
    """The rules that an option breaks if it is given, with the other option and the value in question."""
    for rule in ("excludes", "needs"):
        for other, wanted in _others(option, rule, type(settings)):
            holds = is_given(settings, other) if wanted is None else getattr(settings, other.name) == wanted
            if holds != (rule == "needs"):
                yield rule, other, wanted


def check_number(name: str, value: float | None, limits: Range) -> None:
    if value is not None and not limits.holds(value):
        raise SettingError(name, value, limits.expected)


def _others(option: Field, rule: str, kind: type) -> list[tuple[Option, str | None]]:
    """The options in a rule of an option that a class has, with the value that it wants, if any."""
    options: Any = options_of(kind)
    parts = [word.partition("=") for word in (getattr(option, rule, None) or "").split()]
    return [(options[name], value or None) for name, _, value in parts if name in options]


def _contradiction(settings: Any, option: Any, rule: str, other: Option, wanted: str | None) -> Wording:
    """The message for an option that is given in spite of a rule."""
    first, second = sorted((option, other), key=lambda each: bool(each.why) and rule == "excludes")
    values = {each.name: getattr(settings, each.name) for each in (first, second)}
    is_set = said(first.name, values[first.name])
    if rule == "needs":
        missing = said(other.name, True if wanted is None else wanted, "")
        if other.reads:
            return worded("{} without {}; expected: {}", is_set, missing, other.metadata["help"])
        return worded("{} without {}, so it has no effect; give both or neither.", is_set, missing)
    why = f", {second.why}" if second.why and not first.why else ""
    names = option_names(first.name, second.name, joint=" or ")
    return worded("{} and {}{}; use either {}.", is_set, said(second.name, values[second.name]), why, names)


def said(name: str, value: Any, verb: str = "is") -> Wording:
    """An option with its value, for messages: "pack is set", or "pack" without the verb."""
    words = "" if value is True and not verb else "set" if value is True else "{!r}"
    return worded(" ".join(filter(None, ["{:option}", verb, words])), name, *[value][value is True :])


def is_given(settings: Any, option: Field) -> bool:
    """Whether an option has another value than its default."""
    return is_other(getattr(settings, option.name), option)


def is_other(value: Any, option: Field) -> bool:
    """Whether a value is not an option's default; nothing else than None, False or an empty list is none."""
    default = default_of(option)
    is_number = isinstance(value, (int, float)) and value is not False  # 0 is a layer
    return value != default and bool(is_number or value or default)


def default_of(option: Field) -> Any:
    return option.default if option.default_factory is MISSING else option.default_factory()


def contradicting(kind: type, given: Mapping[str, Any]) -> set[str]:
    """The options that given ones replace in a settings file; one turned off (None, False, -1): what needs it."""
    on = {name: value for name, value in given.items() if value not in (None, False, -1)}
    gone: set[str] = set()
    for each in options_of(kind).values():
        contrary = [*_others(each, "excludes", kind), *_others(each, "replaces", kind)]
        if each.name in on:
            gone |= {other.name for other, _ in contrary}
        if any(other.name in on and wanted in (None, on[other.name]) for other, wanted in contrary):
            gone.add(each.name)
    for each in options_of(kind).values():
        for other, wanted in _others(each, "needs", kind):
            is_met = other.name not in given or (other.name in on if wanted is None else given[other.name] == wanted)
            if other.name in gone or not is_met:
                gone.add(each.name)
    return gone - given.keys()


def deciding(settings: Any, chosen: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The options that decide a run's result, with the values that a plan has chosen for some of them.

    Some options are left out if they have their default.
    """
    found = {}
    for name, each in options_of(type(settings)).items():
        decides = getattr(each, "decides", None)
        value = chosen[name] if chosen and name in chosen else getattr(settings, name)
        if value != default_of(each) if decides == "if_not_default" else decides:
            found[name] = value
    return found


def options_on_card(settings: Any, groups: Container[Group], said: Container[str]) -> dict[str, Any]:
    """The options of some groups that decide the result, but for defaults and what is `said` in other words."""
    options = options_of(type(settings))
    return {
        name.replace("_", " "): value
        for name, value in deciding(settings).items()
        if getattr(options[name], "group", None) in groups
        and name not in said
        and value not in (None, default_of(options[name]))
    }


def settings_of(kind: type, source: Any) -> dict[str, Any]:
    """The fields of a class of settings, by name, from an object that has them, too."""
    return {each.name: getattr(source, each.name) for each in fields(kind)}


@functools.cache
def may_be_none(kind: Any) -> frozenset[str]:
    """The fields of a dataclass that may be None: by their types, or by their defaults."""
    kinds = types_of(kind)
    return frozenset(
        name
        for name, option in options_of(kind).items()
        if option.default is None or NoneType in get_args(kinds[name])
    )


TRUTH = {"yes": True, "true": True, "t": True, "y": True, "1": True} | dict.fromkeys(
    ("no", "false", "f", "n", "0"), False
)
"""The values of switches, in the words of transformers' parser."""


def value_of_text(kind: Any, text: str) -> Any:
    """The value of a type that a text means, as on the command line; a ValueError if it means none."""
    parts = [part for part in (get_args(kind) if not isinstance(kind, type) else (kind,)) if part is not NoneType]
    words = {str(word): word for part in (kind, *parts) if get_origin(part) is Literal for word in get_args(part)}
    if (bool in parts or True in words.values()) and text.lower() in TRUTH:
        return TRUTH[text.lower()]
    if words:
        if text not in words:
            raise ValueError(f"expected one of {', '.join(words)}")
        return words[text]
    if str in parts or not {int, float, bool} & set(parts):
        return text
    for number in (int, float):
        if number in parts:
            with suppress(ValueError):
                return number(text)
    raise ValueError(f"expected {next(_EXPECTED[part] for part in _EXPECTED if part in parts)}")
