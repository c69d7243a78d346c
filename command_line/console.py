"""Console output of commands: plain lines above progress bars, error messages, suggestions, the closing message."""

import difflib
import json
import logging
import os
import re
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import fields
from pathlib import Path
from shlex import quote
from string import Formatter
from typing import Any, TextIO

from ..files.errors import Wording, message_of, user_message
from ..files.options import Group, default_of, options_of
from .command_table import Closing

_PACKAGE = __package__.partition(".")[0]
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
# Warnings of torch and transformers about calls that users do not make.
_OF_NO_USE = ("'pin_memory' argument is set as true", "`is_gradient_checkpointing` is deprecated")


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Suppress output of other libraries that users cannot act on: loading bars, notes to developers."""
    from transformers.utils import logging as hf_logging

    from ..files.progress import without_bars

    hub = logging.getLogger("huggingface_hub")  # which logs every retry without a network
    level = hub.level
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    is_quiet = not logging.getLogger(_PACKAGE).isEnabledFor(logging.INFO)
    try:
        with warnings.catch_warnings(), without_bars() if is_quiet else nullcontext():
            for message in _OF_NO_USE:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        hub.setLevel(level)
        if shown:
            hf_logging.enable_progress_bar()


@contextmanager
def without_warnings() -> Iterator[None]:
    """Log errors of this package only."""
    logger = logging.getLogger(_PACKAGE)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def _fitted(text: str, stream: TextIO) -> str:
    """Return text for a stream; for a terminal, long lines are wrapped."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(line if len(line) <= width else _broken(line, width) for line in text.split("\n"))


def _broken(line: str, width: int) -> str:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.fill(
        line.lstrip(),
        width,
        initial_indent=indent,
        subsequent_indent=f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def print_error(sentence: str) -> None:
    """Print a sentence with its final period, which messages lack that other messages contain."""
    print(_fitted(sentence if sentence[-1:] in ".?!" else f"{sentence}.", sys.stderr), file=sys.stderr)


def set_up_output(quiet: bool) -> None:
    """Show the library's log as plain lines above progress bars."""
    from tqdm import tqdm

    class Lines(logging.StreamHandler):
        """Redraw the visible bars below a line; tqdm would also draw bars that are still delayed."""

        def format(self, record: logging.LogRecord) -> str:
            return _fitted(super().format(record), sys.stdout)

        def emit(self, record: logging.LogRecord) -> None:
            unseen = [
                bar
                for bar in list(getattr(tqdm, "_instances", ()))
                if not bar.disable and hasattr(bar, "start_t") and time.time() < bar.start_t + bar.delay
            ]
            for bar in unseen:
                bar.disable = True
            try:
                with tqdm.external_write_mode(self.stream):
                    super().emit(record)
            finally:
                for bar in unseen:
                    bar.disable = False

        def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  # logging's name
            """Discard output after a line that could not be printed, and go on: the command's result matters more."""
            if not isinstance(sys.exc_info()[1], OSError):
                raise  # re-raise the error being handled
            drop_output()

    logger = logging.getLogger(_PACKAGE)
    logger.handlers = [Lines(sys.stdout)]
    logger.propagate = False
    logger.setLevel(logging.WARNING if quiet else logging.INFO)


def make_output_safe() -> None:
    """Make output work even if it was closed, and show characters that it cannot encode."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
    with suppress(AttributeError):  # another kind of stream, as in notebooks
        sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def drop_output() -> None:
    with suppress(OSError):  # a stream without a file, as in tests
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def sentence_for_command(error: Exception, arguments_class: Any) -> str:
    """The message for a user error in the words of a command, see `user_message`; it may suggest words."""
    if not isinstance(wording := message_of(error), Wording):
        return user_message(error)
    flags = {each.name for each in fields(arguments_class) if each.init} if arguments_class else set()
    suggestions = [did_you_mean(word, wording.known, wording.alike) for word in wording.unknown]
    return user_message(error, wording.for_flags(flags, "".join(suggestions)))


def did_you_mean(word: str, known: Iterable[str], alike: float = 0.6, aliases: Mapping[str, str] | None = None) -> str:
    """Return a question that names the nearest known word, with a space before it; "" if none is near.

    A word among `aliases` means one of the words there, separated by spaces: the first that is known, or none.
    """
    spellings = {_plain(name): name for name in known}
    if (meant := (aliases or {}).get(_plain(word))) is not None:
        near = [name for name in meant.split() if name in spellings]
    else:
        near = difflib.get_close_matches(_plain(word), spellings, n=1, cutoff=alike)
    return f" Did you mean {spellings[near[0]]}?" if near else ""


def _plain(word: str) -> str:
    return word.strip("-").replace("-", "_").lower()


def shell_lines(call: str, width: int = 78) -> str:
    """Format a command in several lines that can be copied into a shell."""
    kept = _QUOTED.sub(lambda quoted: quoted[0].replace(" ", "\0"), call)  # quoted words are not wrapped
    kept = re.sub(" +", " ", kept)  # where a group has no flags
    lines = textwrap.wrap(
        kept, width, initial_indent="  ", subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return " \\\n".join(lines).replace("\0", " ")


# Files of a run's folder, other than the model, and their descriptions.
_PARTS = {
    "training_curves.png": "curves",
    "metrics.json": "metrics",
    "predictions*": "predictions",
    "nbest_predictions*": "answers",
    "class_report*.txt": "by class",
    "confusion_matrix*.png": "confusion",
    "errors*.tsv": "errors",
    "README.md": "card",
}
_COLUMNS = 80


class _Template(Formatter):
    """Fills in templates.

    Besides Python's, its format specs are `given` (the value must be there, and is not shown), `with FILE` (it must be
    in that folder), `count` and, for metrics, how many to show, or one of which to show each row's value.
    """

    def __init__(self, arguments: Any, result: Any) -> None:
        self.arguments, self.result, self.in_shell = arguments, result, False
        self.best = str(getattr(arguments, "metric", None))

    def fill(self, template: str, in_shell: bool = False) -> str:
        self.in_shell = in_shell
        for alternative in template.replace("BEST", self.best).split(" | "):
            parts = []
            for part in alternative.split("; "):
                with suppress(AttributeError, LookupError, OSError, ValueError):
                    parts.append(self.format(part))
            if parts:
                return ", ".join(parts)
        return ""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        first, *rest = field_name.replace("[", ".").replace("]", "").split(".")
        if first in Group.__members__:
            return self._given_flags(Group[first]), first
        value = self.result if first == "result" else getattr(self.arguments, first)
        for name in rest:
            if isinstance(value, Sequence):
                value = value[int(name)]
            else:
                value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        if value is None:
            raise LookupError(field_name)
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "given":
            return ""
        if format_spec == "count":
            return str(len(value))
        if isinstance(value, Mapping):
            return self._metrics(value, format_spec)
        if isinstance(value, list):
            return " ".join(self.format_field(each, "") for each in value)
        if isinstance(value, int | float):
            return format(value, format_spec or ("," if isinstance(value, int) else ".4g"))
        if self.in_shell and str(value) == "-":
            raise LookupError("standard input has been read")
        if format_spec and not Path(value, format_spec.removeprefix("with ")).exists():
            raise LookupError(format_spec)
        return quote(str(value)) if self.in_shell else str(value)

    def _metrics(self, found: Mapping[str, Any], spec: str) -> str:
        if spec.isdigit():
            rows = dict(list(found.items())[: int(spec)])
        else:
            rows = {name: row[spec] for name, row in found.items() if isinstance(row, Mapping) and spec in row}
        if not rows:
            raise LookupError(spec)
        return ", ".join(f"{name} {self.format_field(value, '')}" for name, value in rows.items())

    def _given_flags(self, group: Group) -> list[str]:
        words: list[str] = []
        for option in options_of(type(self.arguments)).values():
            if getattr(option, "group", None) is group:
                value = getattr(self.arguments, option.name)
                if isinstance(value, bool) and value != default_of(option):
                    words.append(f"--{option.name}" if value else f"--no_{option.name}")
                elif value != default_of(option):
                    words += [f"--{option.name}", *map(str, value if isinstance(value, list) else [value])]
        return words


def show_report(report: Any) -> None:
    """Print the report of a dry run as JSON if its log is not shown (`--quiet`)."""
    if isinstance(report, Mapping) and not logging.getLogger(_PACKAGE).isEnabledFor(logging.INFO):
        print(json.dumps(report, ensure_ascii=False, indent=2))


def say_closing(closing: Closing, arguments: Any, result: Any) -> None:
    """Show a command's closing message; nothing, if it wrote nothing that a template names."""
    # Where its output is, its main figures, and what to run next, filled in from the templates of its `Closing`. A
    # name in braces is a field of the arguments, `result`, or a `Group` (its given flags); keys and attributes may
    # follow. BEST is the metric that decides which model is best. " | " separates alternatives, the first of which
    # that can be filled in is taken; "; " separates the parts of one, which are left out if they lack a value.
    template = _Template(arguments, result)
    made, figures = template.fill(closing.made), template.fill(closing.figures)
    if closing.made and made in ("", "-"):
        return
    lines = []
    if made:
        lines.append(f"\nDone: {made}" + (f" ({figures})" if figures else ""))
        if len(lines[0]) > _COLUMNS and figures:
            lines = [f"\nDone: {made}", f"  {figures}"]
        for pattern, what in _PARTS.items() if Path(made).is_dir() else ():
            lines += [f"  {what:<12} {path}" for path in sorted(Path(made).glob(pattern))[:1]]
    if call := template.fill(closing.next_call, in_shell=True):
        lines.append(f"{'' if lines else chr(10)}Next:\n{shell_lines(f'mybert {call}', _COLUMNS - 2)}")
        lines += [f"  ({note})"] if (note := template.fill(closing.note)) else []
    if lines:
        logging.getLogger(_PACKAGE).info("%s", "\n".join(lines))
