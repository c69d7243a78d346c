"""Examples for model cards: code that is run when the card is made, with what it printed."""

import contextlib
import io

from transformers.utils import logging

from .card import Example


def run_example(title: str, code: str) -> Example:
    """Run a snippet and keep what it printed; transformers' reports on loading weights are kept out.

    Args:
        title: Heading of the example.
        code: Python code, complete with imports; our own, never a stranger's.

    Returns:
        The example for `CardContent.examples`.
    """
    output = io.StringIO()
    verbosity = logging.get_verbosity()
    logging.set_verbosity_error()
    try:
        with contextlib.redirect_stdout(output):
            exec(compile(code, f"<{title}>", "exec"), {"__name__": "__example__"})
    finally:
        logging.set_verbosity(verbosity)
    return Example(title=title, code=code, output=output.getvalue().rstrip("\n"))
