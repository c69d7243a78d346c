"""Worker processes that end with the process that started them."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import connection, parent_process
from typing import Any


@contextmanager
def worker_processes(
    count: int, initializer: Callable[..., None] | None = None, initargs: tuple[Any, ...] = ()
) -> Iterator[ProcessPoolExecutor]:
    """A pool of processes, none of which outlives this one, however it ends (SIGKILL included).

    Args:
        count: Number of processes, at least 1.
        initializer: Called in each process at its start.
        initargs: Its arguments.

    Yields:
        The pool. What was not begun when the block ends with an error is given up.
    """
    pool = ProcessPoolExecutor(count, initializer=_start_worker, initargs=(initializer, initargs))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def _start_worker(initializer: Callable[..., None] | None, initargs: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends it to all; the parent ends its workers itself
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if initializer is not None:
        initializer(*initargs)


def _end_with_parent() -> None:
    """A pool's workers would wait for work for ever when their parent is killed."""
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)
