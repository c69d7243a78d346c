"""Console output of commands: plain lines above progress bars, error messages, and suggestions for misspelt words."""

import difflib
import logging
import os
import re
import shutil
import sys
import textwrap
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TextIO

_PACKAGE = __package__.partition(".")[0]
_KEYWORD = re.compile(r"(?<![\w.-])(?P<name>[a-z][a-z_0-9]*)=(?P<value>True|'[^']*'|\"[^\"]*\")")
_CHOICE = re.compile(r"(?:is|has|no row) '(?P<word>[^']+)'; expected (?:(?:one|some) of )?(?P<known>[\w+ ,'-]+)\.$")
_COLUMN = re.compile(
    r"has no (?:column )?(?P<missing>'.+?')(?: in row \d+)?(?:; its columns are |, only )"
    r"(?P<known>'.+?')(?:[.;]|, [.])"
)
# Warnings of torch and transformers about calls that users do not make.
_OF_NO_USE = ("'pin_memory' argument is set as true", "`is_gradient_checkpointing` is deprecated")


@contextmanager
def calm_libraries() -> Iterator[None]:
    """Suppress output of other libraries that users cannot act on: loading bars, notes to developers."""
    from tqdm import tqdm
    from transformers.utils import logging as hf_logging

    hub = logging.getLogger("huggingface_hub")  # which logs every retry without a network
    level = hub.level
    shown, begin = hf_logging.is_progress_bar_enabled(), tqdm.__init__

    def begin_unseen(bar: tqdm, *args: Any, **kwargs: Any) -> None:
        begin(bar, *args, **kwargs | {"disable": True})

    hf_logging.disable_progress_bar()
    hub.setLevel(logging.ERROR)
    if not logging.getLogger(_PACKAGE).isEnabledFor(logging.INFO):  # `--quiet`: no bars at all
        tqdm.__init__ = begin_unseen
    try:
        with warnings.catch_warnings():
            for message in _OF_NO_USE:
                warnings.filterwarnings("ignore", message=message)
            yield
    finally:
        tqdm.__init__ = begin
        hub.setLevel(level)
        if shown:
            hf_logging.enable_progress_bar()


class _LinesOfTheTerminal(logging.Formatter):
    """Wraps long lines, indented, in a terminal; files and pipes get whole lines."""

    def format(self, record: logging.LogRecord) -> str:
        return _fitted(super().format(record), sys.stdout)


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


def print_mistake(sentence: str) -> None:
    print(_fitted(sentence, sys.stderr), file=sys.stderr)


def set_up_output(quiet: bool) -> None:
    """Show the library's log as plain lines above progress bars."""
    from tqdm import tqdm

    class Lines(logging.StreamHandler):
        """Redraw the visible bars below a line; tqdm would also draw bars that are still delayed."""

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

    handler = Lines(sys.stdout)
    handler.setFormatter(_LinesOfTheTerminal("%(message)s"))
    logger = logging.getLogger(_PACKAGE)
    logger.handlers = [handler]
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


def sentence_for_command(sentence: str, arguments_class: Any) -> str:
    """Adapt an error message to a command: flags instead of keywords, and a suggestion for misspelt words."""
    flags = getattr(arguments_class, "__dataclass_fields__", {})

    def as_flag(found: re.Match[str]) -> str:
        name, value = found["name"], found["value"].strip("'\"")
        return f"--{name}{'' if value == 'True' else f' {value}'}" if name in flags else found[0]

    sentence = _KEYWORD.sub(as_flag, sentence)
    if flags and "overwrite" not in flags:
        sentence = sentence.replace(" or pass --overwrite", "")
    if choice := _CHOICE.search(sentence):
        sentence += did_you_mean(choice["word"], re.split(", | or ", choice["known"].replace("'", "")))
    if columns := _COLUMN.search(sentence):
        missing, known = (re.findall("'(.+?)'", columns[name]) for name in ("missing", "known"))
        sentence += "".join(did_you_mean(name, known, alike=0.75) for name in missing)
    return sentence


def did_you_mean(word: str, known: Iterable[str], alike: float = 0.6) -> str:
    """Return a question that names the nearest known word, with a space before it; "" if none is near."""
    spellings = {_plain(name): name for name in known}
    near = difflib.get_close_matches(_plain(word), spellings, n=1, cutoff=alike)
    return f" Did you mean {spellings[near[0]]}?" if near else ""


def _plain(word: str) -> str:
    return word.strip("-").replace("-", "_").lower()
