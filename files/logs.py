"""Silencing other libraries for the time of a `with` block."""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def only_errors() -> Iterator[None]:
    """Silence transformers' warnings and reports; the caller logs those that matter."""
    # Imported here: other users of this package do not need transformers.
    from transformers.utils import logging as hf_logging

    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    try:
        yield
    finally:
        hf_logging.set_verbosity(verbosity)


def leave_standard_output() -> None:
    """Log to standard error from now on: standard output is for results that programs read."""
    for handler in logging.getLogger(__package__.partition(".")[0]).handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)


@contextmanager
def no_warnings() -> Iterator[None]:
    """Silence all warnings, Python's and logged ones: exporters issue many that users cannot act on."""
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(disabled)
