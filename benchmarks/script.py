"""Shared parts of the benchmark scripts: error messages, settings of pretraining."""

import inspect
import sys
from argparse import ArgumentTypeError
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import yaml

from ..files import INTERRUPTED, interruptible, user_message


def script(main: Callable[[], None]) -> Callable[[], None]:
    """Let a script end like commands: a user error is one sentence on standard error and exit status 2."""

    @wraps(main)
    def run() -> None:
        name = Path(inspect.getfile(inspect.unwrap(main))).stem
        try:
            with interruptible():
                main()
        except KeyboardInterrupt:
            print(f"{name}: interrupted.", file=sys.stderr)
            sys.exit(INTERRUPTED)
        except Exception as error:
            if not (sentence := user_message(error)):
                raise
            print(f"{name}: {sentence}", file=sys.stderr)
            sys.exit(2)

    return run


def at_least_1(text: str) -> int:
    """Return the number of a flag that counts something."""
    if (number := int(text)) < 1:
        raise ArgumentTypeError(f"{number}; expected at least 1")
    return number


def pretraining_settings(text: str | bytes, source: str | Path) -> dict[str, Any]:
    """Read settings of `mybert pretrain` from YAML; `source` is its name in error messages."""
    from ..pretraining import PretrainingArguments  # imports torch; some scripts measure memory

    try:
        found = yaml.safe_load(text)
    except yaml.YAMLError:
        found = None
    known = {field.name for field in fields(PretrainingArguments)}
    if not isinstance(found, dict) or not found.keys() <= known:
        raise ValueError(f"{source} is not a recipe; expected YAML with settings of `mybert pretrain`.")
    return found
