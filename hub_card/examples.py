"""Examples for model cards: code that is run when the card is made, with what it printed."""

import contextlib
import io

from .card import Example


def run_example(title: str, code: str) -> Example:
    """Run a snippet and keep what it printed.

    Args:
        title: Heading of the example.
        code: Python code, complete with imports; our own, never a stranger's.

    Returns:
        The example for `CardContent.examples`.
    """
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, f"<{title}>", "exec"), {"__name__": "__example__"})
    return Example(title=title, code=code, output=output.getvalue().rstrip("\n"))
