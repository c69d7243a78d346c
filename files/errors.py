"""Error messages for users, in one sentence; Python calls an option by its name, the shell by its flag."""

import errno
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

from safetensors import SafetensorError

LONGEST_SENTENCE = 500  # characters; the middle of a longer message is cut out
_NO_MEMORY = re.compile("out of memory|can't allocate memory|not enough memory", re.IGNORECASE)  # torch's words
_PEER_ENDED = re.compile("Connection (closed|reset) by peer|remote process exited")  # gloo's words, and NCCL's

_OF_TRAIN = {"sklearn": "scikit-learn", "scipy": "scipy"}  # imported where a metric needs them


def how_to_install(extra: str) -> str:
    """The step that installs the packages of an extra, for messages; true of a package that is not on an index."""
    return f"run pip install '.[{extra}]' in the clone of mybert"


class _Name(NamedTuple):
    option: str
    value: str  # as in Python, for `option=value`

    def shown(self, flags: Collection[str]) -> str:
        if self.option in flags:
            return f"--{self.option} {self.value.removeprefix('True').strip(chr(39))}".rstrip()
        return f"{self.option}={self.value}" if self.value else self.option


_EXPECTED = r"(;[^;]*?[eE]xpected )"  # where a suggestion goes into a message


class Wording(str):
    """A message that names options, see `worded`; as a text it is that for Python.

    Attributes:
        value: The first value in it: usually that of the option.
        unknown: Words in it for which `known` ones may be suggested, if they are `alike` enough (0 to 1).
    """

    parts: Sequence[Any]  # texts, names of options, and lists of both: advice
    value: Any = None
    unknown: Sequence[str] = ()
    known: Sequence[str] = ()
    alike = 0.6

    def __new__(cls, parts: Sequence[Any], attributes: Mapping[str, Any] | None = None) -> "Wording":
        self = super().__new__(cls, "".join(_texts(parts, None)))
        vars(self).update({**(attributes or {}), "parts": parts})
        return self

    def renamed(self, names: Mapping[str, str]) -> "Wording":
        """The message with other names for some options."""
        parts = (
            each._replace(option=names.get(each.option, each.option)) if isinstance(each, _Name) else each
            for each in self.parts
        )
        return Wording([*parts], vars(self))

    def for_flags(self, flags: Collection[str], suggestion: str = "") -> str:
        """The message of a command with these flags, with a suggestion before what it expects or at its end."""
        texts = [*_texts(self.parts, flags), suggestion]
        hinges = [index for index, text in enumerate(texts) if re.fullmatch(_EXPECTED, text)]
        if suggestion and hinges:
            texts[hinges[0]] = f".{texts.pop()} Expected "
        return "".join(texts)


def _texts(parts: Sequence[Any], flags: Collection[str] | None) -> Iterator[str]:
    for part in parts:
        if isinstance(part, _Name):
            yield part.shown(flags or ())
        elif isinstance(part, str):
            yield part
        elif flags is None or all(each.option in flags for each in part if isinstance(each, _Name)):
            yield from _texts(part, flags)


def worded(template: str, *values: Any, **suggested: Any) -> Wording:
    """Word a message that names options.

    For example worded("{} exists; name another file[ or pass {overwrite=True}].", path).

    Args:
        template: The message. `{name}` is an option, `{name=1}` an option and a value, `{name=}` an option and the
            next one of the values, `{}` the next one of the values, `{:option}` one that is the name of an option.
            Advice in square brackets is left out for commands without its options.
        values: Anything; the options of a `Wording` stay options.
        suggested: `known`, `unknown`, `alike`: see `Wording`.
    """
    groups: list[list[Any]] = [[]]
    following = iter(values)
    attributes: dict[str, Any] = {}
    for literal, field, spec, conversion in Formatter().parse(template):
        for text in filter(None, re.split(rf"([][])|{_EXPECTED}", literal)):
            if text == "[":
                groups.append([])
            elif text == "]":
                groups[-2].append(groups.pop())
            else:
                groups[-1].append(text)
        option, sign, of_option = (field or "").partition("=")
        value = next(following) if field == "" or (sign and not of_option) else None
        if option:
            groups[-1].append(_Name(option, of_option or (repr(value) if sign else "")))
        elif isinstance(value, Wording):
            groups[-1] += value.parts
            attributes = vars(value) | attributes
        elif spec == "option":
            groups[-1].append(_Name(str(value), ""))
        elif field is not None:
            groups[-1].append(format(repr(value) if conversion == "r" else value, spec or ""))
            attributes.setdefault("value", value)
    assert len(groups) == 1 and next(following, groups) is groups, template
    return Wording(groups[0], attributes | suggested)


def option_names(*options: str, joint: str = " and ") -> Wording:
    """The names of several options, as a value of `worded`."""
    return worded(joint.join(["{:option}"] * len(options)), *options)


class SettingError(ValueError):
    """An error about options: SettingError("dropout", 3, "a fraction in [0, 1)"), or `SettingError.worded`.

    Args:
        option: The option; or a `Wording` of the whole message.
        value: Its value, or one that is in a list.
        expected: What it may be, in words (default: `known`).
        known: The words that it may be, or the list may have.
        verb: "has" for a list.
    """

    def __init__(
        self, option: str, value: Any = None, expected: str = "", *, known: Iterable[Any] = (), verb: str = "is"
    ) -> None:
        if not isinstance(option, Wording):
            known = [*map(str, known)]
            assert expected or known, option
            expected = expected or f"{'one' if verb == 'is' else 'some'} of {', '.join(known)}"
            template, unknown = f"{{:option}} {verb} {{!r}}; expected {{}}.", [value] if isinstance(value, str) else []
            option = worded(template, option, value, expected, known=known, unknown=unknown)
        super().__init__(option)

    @classmethod
    def worded(cls, template: str, *values: Any, **suggested: Any) -> "SettingError":
        """An error with a message as of `worded`."""
        return cls(worded(template, *values, **suggested))

    @property
    def options(self) -> tuple[str, ...]:
        """The options that the message names."""
        return tuple(part.option for part in self.args[0].parts if isinstance(part, _Name))

    @property
    def option(self) -> str:
        """The first of them."""
        return next(iter(self.options), "")

    @property
    def value(self) -> Any:
        """The first value in the message: usually that of the option."""
        return self.args[0].value


def message_of(error: Exception) -> str:
    """The message of an error; a `Wording`, if it names options."""
    return error.args[0] if error.args and isinstance(error.args[0], Wording) else str(error)


def user_message(error: Exception, text: str | None = None) -> str:
    """The message for a user error or a lack of resources; "" for any other error. Its text may be given."""
    text = " ".join((str(error) if text is None else text).split())
    if isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and _NO_MEMORY.search(text)):
        text = f"not enough memory ({text or 'an allocation failed'})."
    elif isinstance(error, RuntimeError) and _PEER_ENDED.search(text):
        text = "another process of this run has ended; its message says why."
    elif isinstance(error, RecursionError):
        text = "the input is nested too deeply."
    elif isinstance(error, SafetensorError):
        text = f"the weights are not a complete safetensors file: {text}."
    elif isinstance(error, OSError) and error.strerror:
        cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror
        text = f"{error.filename}: {cause}." if error.filename else f"{cause}."
        if error.errno == errno.ENOENT and error.filename:
            text = f"There is no file or folder {error.filename}."
        elif error.errno == errno.EISDIR and error.filename:
            text = f"{error.filename} is a folder; expected a file."
    elif isinstance(error, ImportError) and (package := _OF_TRAIN.get(str(error.name).partition(".")[0])):
        text = f"This needs the package {package}: {how_to_install('train')} ({text})."
    elif not isinstance(error, ValueError | OSError | ImportError):
        return ""
    half = (LONGEST_SENTENCE - 5) // 2
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:half]} ... {text[-half:]}"


def named_error(part: str, name: str, error: BaseException) -> BaseException:
    """The ValueError or OSError that names the model whose part a library cannot load, with any exception."""
    named = isinstance(error, (ValueError, OSError)) and name in str(error)
    if named or isinstance(error, ImportError):  # the latter of a package that the part needs
        return error
    cause = " ".join(f"{type(error).__name__}: {error}".split())[:250]
    kind = OSError if isinstance(error, OSError) else ValueError
    return kind(f"The {part} in {name} cannot be loaded ({cause}).")


def abbreviated(text: str, most: int = 80) -> str:
    """The beginning of a text, if it has more than `most` characters."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def first_line(error: Exception) -> str:
    """The first line of an error's message, without the full stop."""
    return (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")


# A scheme has at least two letters (one letter is a drive); `Path` reduces its slashes to one.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/+")


def refuse_address(
    path: str | os.PathLike[str], expected: str = "a file or folder: copy or mount what an object store has"
) -> None:
    """Reject `s3://bucket/name` and the like, unless a file has that name, where a file or folder is expected."""
    if _SCHEME.match(name := os.fspath(path)) and not Path(path).exists():
        address = _SCHEME.sub(r"\1://", name)
        raise FileNotFoundError(f"{address} is an address; expected {expected}.")
