"""Ctrl-C and SIGTERM: the first one cleans up, a second one ends the process at once."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from types import FrameType

INTERRUPTED = 130  # exit status after Ctrl-C, as in shells
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_UNTIL_REPEATED = (0.1, 1.0)  # seconds


@contextmanager
def interruptible() -> Iterator[None]:
    """Ctrl-C and SIGTERM raise `KeyboardInterrupt`; a second one ends the process at once, with one line."""
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread can handle signals
        return
    owner = os.getpid()
    was_interrupted = False

    def interrupt(number: int, frame: FrameType | None) -> None:
        nonlocal was_interrupted
        if os.getpid() != owner:
            # A child process forked meanwhile.
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
        with _heard_while_waiting():
            yield
    finally:
        # After a signal the handler remains, so that the process's whole shutdown is covered.
        if not was_interrupted:
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of the block; processes started in it ignore Ctrl-C."""
    came: list[int] = []
    heard_here = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in heard_here}
    can_be_masked = hasattr(signal, "pthread_sigmask")  # not on Windows
    if can_be_masked:
        resource_tracker.ensure_running()  # multiprocessing's tracker, whose start would lift the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if can_be_masked:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _heard_while_waiting() -> Iterator[None]:
    """Interrupts the system call that the main thread waits in when one of `_SIGNALS` has arrived."""
    # Python runs handlers between its own instructions. A signal that arrives after the last of them but before the
    # call, such as `read` of a terminal, would be handled only when the call returns, if ever. Another signal, SIGURG,
    # which no other code handles, follows a moment later: the call returns at once, and Python runs both handlers.
    if not hasattr(signal, "SIGURG"):  # Windows has neither it nor system calls that signals interrupt
        yield
        return
    main_thread = threading.get_ident()
    wakeup, told = os.pipe()
    os.set_blocking(told, False)

    def repeat() -> None:
        while number := os.read(wakeup, 1)[0]:
            if number in _SIGNALS:
                for seconds in _UNTIL_REPEATED:
                    time.sleep(seconds)
                    signal.pthread_kill(main_thread, signal.SIGURG)
        os.close(wakeup)

    handler = signal.signal(signal.SIGURG, lambda number, frame: None)
    previous = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=repeat, name="mybert-signals", daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(previous)
        signal.signal(signal.SIGURG, handler)
        os.write(told, b"\0")
        os.close(told)
