"""Freed memory stays with the process for a while, and is given back then."""

import resource
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from mybert.files import freed_memory_kept
from mybert.files.memory import _glibc

MEGABYTES_64 = 64 * 2**20
PAGES = MEGABYTES_64 // resource.getpagesize()

pytestmark = pytest.mark.skipif(sys.platform != "linux" or _glibc() is None, reason="only glibc has mallopt")


@pytest.fixture(autouse=True)
def _no_settings_of_the_user(monkeypatch):
    for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_MAX_", "MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)


def faults_of_ten_blocks() -> float:
    """Page faults of a block of 64 MB, on average of ten that are freed again; the first is not counted."""
    np.ones(MEGABYTES_64, dtype=np.uint8)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        np.ones(MEGABYTES_64, dtype=np.uint8)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10


def resident_pages() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1])


def test_blocks_are_used_again_until_the_end():
    before = faults_of_ten_blocks()
    assert before > 0.9 * PAGES or before > 10  # huge pages are few
    with freed_memory_kept():
        assert faults_of_ten_blocks() < 0.1 * before
        with freed_memory_kept():
            pass
        assert faults_of_ten_blocks() < 0.1 * before, "the inner one has ended the outer one"
        held = resident_pages()
    assert held - resident_pages() > 0.9 * PAGES
    assert faults_of_ten_blocks() > 0.5 * before


def test_an_error_ends_it():
    with pytest.raises(ZeroDivisionError), freed_memory_kept():
        faults_of_ten_blocks()
        held = resident_pages()
        raise ZeroDivisionError
    assert held - resident_pages() > 0.9 * PAGES


def test_threads_may_allocate_large_blocks():
    found = []
    with freed_memory_kept():
        thread = threading.Thread(target=lambda: found.append(np.ones(2 * MEGABYTES_64, dtype=np.uint8).sum()))
        thread.start()
        thread.join()
    assert found == [2 * MEGABYTES_64]


@pytest.mark.parametrize(
    "name, value", [("MALLOC_TRIM_THRESHOLD_", "1"), ("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0")]
)
def test_settings_of_the_user_stay(monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    before = faults_of_ten_blocks()
    with freed_memory_kept():
        assert faults_of_ten_blocks() > 0.5 * before
