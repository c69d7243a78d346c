"""Keeping freed memory in the process: steps that allocate the same again then need no new pages from the kernel."""

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

# Options of glibc's mallopt(3), from <malloc.h>.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _MMAP_MAX = -1, -3, -4
# What glibc's own adaptive limits arrive at where large blocks come and go; setting any option ends the adapting.
_LARGEST_MMAP_THRESHOLD, _DEFAULT_MMAP_MAX = 32 * 2**20, 65536

_lock = threading.Lock()
_depth = 0


@contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Let the allocator keep what is freed, and give it back to the system at the end.

    A training step on a CPU frees hundreds of megabytes, and the next one allocates them again. glibc returns them to
    the kernel in between, which then clears every page anew: up to a fifth of a small model's time. Without glibc
    nothing happens, nor where the environment has settings for its allocator (`MALLOC_TRIM_THRESHOLD_`, ...): those
    are the user's. It may be nested, and entered in several threads.
    """
    global _depth
    libc = _glibc()
    if libc is None or _is_set_by_user():
        yield
        return
    with _lock:
        _depth += 1
        if _depth == 1:
            libc.mallopt(_TRIM_THRESHOLD, -1)  # never shrink the heap
            libc.mallopt(_MMAP_MAX, 0)  # and take large blocks from it, too
    try:
        yield
    finally:
        with _lock:
            _depth -= 1
            if _depth == 0:
                libc.mallopt(_MMAP_MAX, _DEFAULT_MMAP_MAX)
                libc.mallopt(_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
                libc.mallopt(_TRIM_THRESHOLD, 2 * _LARGEST_MMAP_THRESHOLD)
                libc.malloc_trim(0)


@cache
def _glibc() -> ctypes.CDLL | None:
    if sys.platform != "linux":
        return None
    libc = ctypes.CDLL(None)
    return libc if hasattr(libc, "gnu_get_libc_version") else None


def _is_set_by_user() -> bool:
    return any(name.startswith("MALLOC_") for name in os.environ) or "glibc.malloc" in os.environ.get(
        "GLIBC_TUNABLES", ""
    )
