"""Worker processes that end with the process that started them."""

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, suppress
from multiprocessing import connection, get_context, parent_process
from typing import Any

from .signals import interrupts_held_back

_PATIENCE = 5.0  # seconds to wait for a process to exit


@contextmanager
def worker_processes(
    count: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, none of which outlives this process, even if it is killed (SIGKILL)."""
    pool = ProcessPoolExecutor(count, initializer=_start_worker, initargs=(initializer, initargs))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)  # after an error, tasks that have not started


def _start_worker(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


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
                f"The process of {what} has ended unexpectedly (exit status {process.exitcode}); the system may "
                "have killed it for lack of memory."
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
