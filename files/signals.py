"""Ctrl-C and SIGTERM: what was begun is cleaned up, and nobody waits for it who asks twice."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

INTERRUPTED = 130  # exit status of a process that was ended by Ctrl-C, as shells have it
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise `KeyboardInterrupt`; a second one ends the process at once, with one line.

    After the first signal that holds until the process has ended, so that no moment of its end is left out. Processes
    that are forked meanwhile end by either signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's
        return
    owner = os.getpid()
    was_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal was_interrupted
        if os.getpid() != owner:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        elif was_interrupted:
            os.write(2, b"mybert: interrupted again, ended at once.\n")
            os._exit(INTERRUPTED)
        else:
            was_interrupted = True
            raise KeyboardInterrupt

    previous = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        yield
    finally:
        if not was_interrupted:
            for number, handler in previous.items():
                signal.signal(number, handler)
