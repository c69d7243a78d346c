"""Processes: signals, workers that end with their parent, threads, and silencing other libraries."""

import logging
import os
import signal
import sys
import threading
import time
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from functools import partial
from itertools import chain, islice
from multiprocessing import connection, get_context, parent_process, resource_tracker
from types import FrameType
from typing import Any, TypeVar

from .errors import worded
from .machine import usable_cores

INTERRUPTED = 130  # exit status after Ctrl-C, as in shells
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_UNTIL_REPEATED = (0.1, 1.0)  # seconds
_TIME_TO_END = 1.0  # seconds from a move of files; less than the sum above


class Interrupts:
    """What becomes of Ctrl-C and SIGTERM during a command.

    Attributes:
        held: The signal that came while files were moved into place, or shortly after, and now waits; 0 if there is
            none. It does not interrupt a command that ends in time: the result is complete.
        held_until: Until then (`time.monotonic`) the command may end: no move tells whether it is the last one.
        has_ended: Whether a signal has ended the command, so that the next one ends the process.
    """

    held: int = 0
    held_until = 0.0
    has_ended = False

    def handle(self, number: int) -> None:
        """Hold the signal, or end the command, or end the process."""
        if self.has_ended:
            os.write(2, b"mybert: interrupted again, ended at once.\n")
            os._exit(INTERRUPTED)
        elif not self.held and time.monotonic() < self.held_until and hasattr(signal, "SIGURG"):
            self.held = number
        else:
            self.held, self.has_ended = 0, True
            raise KeyboardInterrupt

    def repeat_held(self) -> None:
        """End the command if it goes on."""
        if self.held and time.monotonic() >= self.held_until:
            signal.raise_signal(self.held)


_interrupts = Interrupts()  # of the command that runs


@contextmanager
def interruptible() -> Iterator[Interrupts]:
    """Ctrl-C and SIGTERM raise `KeyboardInterrupt`; a second one ends the process at once, with one line."""
    global _interrupts
    _interrupts = interrupts = Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts  # only the main thread can handle signals
        return
    owner = os.getpid()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            # A child process forked meanwhile.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
        else:
            interrupts.handle(number)

    previous = {number: signal.signal(number, interrupt) for number in _SIGNALS}
    try:
        with _heard_while_waiting(interrupts.repeat_held):
            yield interrupts
    finally:
        # After a signal the handler remains, so that the process's whole shutdown is covered.
        if not (interrupts.has_ended or interrupts.held):
            for number, handler in previous.items():
                signal.signal(number, handler)


@contextmanager
def interrupts_delayed(by_moves: bool = False) -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of the block; after moves, a command that ends soon is not interrupted."""
    came: list[int] = []
    heard_here = _SIGNALS if threading.current_thread() is threading.main_thread() else ()
    previous = {number: signal.signal(number, lambda number, frame: came.append(number)) for number in heard_here}
    try:
        yield
        if by_moves and not _interrupts.held:
            _interrupts.held_until = time.monotonic() + _TIME_TO_END
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler or signal.SIG_DFL)
        if came:
            signal.raise_signal(came[0])


@contextmanager
def interrupts_held_back() -> Iterator[None]:
    """Delay Ctrl-C and SIGTERM to the end of the block; processes started in it ignore Ctrl-C."""
    with interrupts_delayed():
        if not hasattr(signal, "pthread_sigmask"):  # on Windows
            yield
            return
        resource_tracker.ensure_running()  # multiprocessing's tracker, whose start would lift the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)


@contextmanager
def _heard_while_waiting(then: Callable[[], None]) -> Iterator[None]:
    """Interrupts the system call that the main thread waits in when one of `_SIGNALS` has arrived; calls `then`."""
    # Python runs handlers between its own instructions. A signal that arrives after the last of them but before the
    # call, such as `read` of a terminal, would be handled only when the call returns, if ever. Another signal, SIGURG,
    # which no other code handles, follows a moment later: the call returns at once, and Python runs both handlers.
    if not hasattr(signal, "SIGURG"):  # Windows has neither it nor system calls that signals interrupt
        yield
        return
    main_thread = threading.get_ident()
    wakeup, told = os.pipe()
    os.set_blocking(told, False)
    is_over = threading.Event()  # no signal reaches what runs afterwards

    def repeat() -> None:
        while number := os.read(wakeup, 1)[0]:
            if number in _SIGNALS:
                for seconds in _UNTIL_REPEATED:
                    if not is_over.wait(seconds):
                        signal.pthread_kill(main_thread, signal.SIGURG)
        os.close(wakeup)

    handler = signal.signal(signal.SIGURG, lambda number, frame: then())
    previous = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    threading.Thread(target=repeat, name="mybert-signals", daemon=True).start()
    try:
        yield
    finally:
        is_over.set()
        signal.set_wakeup_fd(previous)
        signal.signal(signal.SIGURG, handler)
        os.write(told, b"\0")
        os.close(told)


_PATIENCE = 5.0  # seconds to wait for a process to exit
_LACK_OF_MEMORY = "the system may have killed it for lack of memory"


Item = TypeVar("Item")
Result = TypeVar("Result")
_mapped: Callable[[Any], Any]  # in a worker of `map_in_processes`


@contextmanager
def map_in_processes(
    function: Callable[[Item], Result], processes: int
) -> Iterator[Callable[[Iterable[Item]], Iterator[Result]]]:
    """A `map` of a function, in this process or in several, which get the function once; it keeps the order.

    None of the processes outlives this one, even if it is killed (SIGKILL).
    """
    if processes == 1:
        yield partial(map, function)
        return
    with ProcessPoolExecutor(processes, initializer=_start_worker, initargs=(function,)) as pool:

        def in_order(items: Iterable[Item]) -> Iterator[Result]:
            running: deque[Future[Result]] = deque()
            try:
                for item in items:
                    with interrupts_held_back():  # it may start a process
                        running.append(pool.submit(_call_mapped, item))
                    if len(running) > 2 * processes:
                        yield running.popleft().result()
                while running:
                    yield running.popleft().result()
            except BrokenProcessPool:
                raise OSError(
                    worded(
                        "One of {} processes has ended unexpectedly; {}. Use fewer {num_processes}.",
                        processes,
                        _LACK_OF_MEMORY,
                    )
                ) from None

        yield in_order


def fitting_processes(items: Iterator[Item], wanted: int | None) -> tuple[int, Iterator[Item]]:
    """The processes for items, one if there is a single item, by default one per core; and the items."""
    ahead = list(islice(items, 2))
    return 1 if len(ahead) < 2 else wanted or usable_cores(), chain(ahead, items)


def _start_worker(function: Callable[[Any], Any]) -> None:
    global _mapped
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _mapped = function


def _call_mapped(item: Any) -> Any:
    return _mapped(item)


@contextmanager
def own_process(what: str, make: Callable[..., Any], *arguments: Any) -> Iterator[Callable[..., Any]]:
    """Start a process that makes an object; yields a function that calls its methods by name, one at a time."""
    # The process starts empty: only what the object needs is loaded there, and it has its own threads. It ends with
    # the block, during a call if necessary, and with this process in any case. Arguments and results are pickled;
    # `make` can be imported by name.
    context = get_context("spawn")
    pipe, its_end = context.Pipe()
    process = context.Process(target=_serve, args=(its_end, make, arguments))

    def answer(*request: Any) -> Any:
        try:
            if request:
                pipe.send(request)
            is_result, value, where = pipe.recv()
        except (EOFError, BrokenPipeError, ConnectionResetError):
            process.join()
            raise OSError(
                f"The process of {what} has ended unexpectedly (exit status {process.exitcode}); {_LACK_OF_MEMORY}."
            ) from None
        if not is_result:
            raise value from RuntimeError(f"in the process of {what}:\n{where}")
        return value

    try:
        with interrupts_held_back():
            process.start()
        its_end.close()
        answer()  # raises an error if the object could not be created
        yield lambda method, *arguments: answer(method, arguments)
    finally:
        if process.pid is not None:
            process.terminate()
            process.join(_PATIENCE)
            process.kill()
            process.join()
        pipe.close()


def _serve(pipe: connection.Connection, call: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Make the object by a first call; then call its methods."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(number))  # so that libraries can clean up
    threading.Thread(target=_end_with_parent, daemon=True).start()
    held = None
    with suppress(EOFError, BrokenPipeError):  # until no more calls come
        while True:
            try:
                result = call(*arguments)
                if held is None:
                    held, result = result, None
                pipe.send((True, result, ""))
            except Exception as error:
                pipe.send((False, error, traceback.format_exc()))
            method, arguments = pipe.recv()
            call = getattr(held, method)


def _end_with_parent() -> None:
    """End this process with its parent: otherwise workers of a killed parent would wait forever."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


@contextmanager
def torch_threads(number: int | None) -> Iterator[None]:
    """Let PyTorch compute a block with a number of threads (None: with its own), and then restore its own."""
    if number is None:
        yield
        return
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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
