"""Console output of commands: plain lines above progress bars, error messages, suggestions."""

import difflib
import json
import logging
import os
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, TextIO

from ..files.errors import Wording, message_of, user_message
from ..files.options import options_of

_PACKAGE = __package__.partition(".")[0]
# Warnings of torch and transformers about calls that users do not make.
_OF_NO_USE = ("'pin_memory' argument is set as true", "`is_gradient_checkpointing` is deprecated")


@contextmanager
def silence_libraries() -> Iterator[None]:
    """Suppress output of other libraries that users cannot act on: loading bars, notes to developers."""
    from ..files.progress import without_bars, without_loading_bars

    hub = logging.getLogger("huggingface_hub")  # which logs every retry without a network
    level = hub.level
    hub.setLevel(logging.ERROR)
    is_quiet = not logging.getLogger(_PACKAGE).isEnabledFor(logging.INFO)
    try:
        with warnings.catch_warnings(), without_loading_bars(), without_bars() if is_quiet else nullcontext():
            for message in _OF_NO_USE:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        hub.setLevel(level)


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


def sentence_for_command(error: Exception, kind: Any) -> str:
    """The message for a user error in the words of a command, see `user_message`; it may suggest words."""
    if not isinstance(wording := message_of(error), Wording):
        return user_message(error)
    flags = {name for name, option in options_of(kind).items() if option.init} if kind else set()
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


def show_report(report: Any) -> None:
    """Print the report of a dry run as JSON if its log is not shown (`--quiet`)."""
    if isinstance(report, Mapping) and not logging.getLogger(_PACKAGE).isEnabledFor(logging.INFO):
        print(json.dumps(report, ensure_ascii=False, indent=2))
