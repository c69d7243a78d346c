"""Workers end with the process that started them, however that ends."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter, deque
from functools import partial
from multiprocessing.context import SpawnProcess

import pytest

from mybert.files import own_process, worker_processes

PARENT = """
import os, signal, sys, time
from contextlib import nullcontext
from mybert.files import interruptible, worker_processes

signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, wherever the tests run

def work(_):
    os.write(1, b"%d\\n" % os.getpid())  # in one piece, which print is not
    time.sleep(float(sys.argv[1]))

with nullcontext() if sys.argv[2:] else interruptible(), worker_processes(2) as pool:
    try:
        list(pool.map(work, range(2 if sys.argv[2:] else 20)))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\\n")
"""


HOLDER = """
import os, signal, sys, time
from mybert.files import interruptible, own_process

signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, wherever the tests run

class Sleeper:
    def sleep(self):
        os.write(1, b"%d\\n" % os.getpid())
        time.sleep(60)

if __name__ == "__main__":
    try:
        with interruptible(), own_process("sleep", Sleeper) as ask:
            ask("sleep")
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\\n")
"""


def is_running(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    return True


def start(*arguments):
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, [int(process.stdout.readline()) for _ in range(2)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_no_worker_outlives_its_parent(number):
    process, workers = start("60" if number == signal.SIGKILL else "0.2")
    assert all(map(is_running, workers))
    process.send_signal(number)
    process.communicate(timeout=20)  # a worker that lived on would hold standard output
    deadline = time.monotonic() + 10
    while any(map(is_running, workers)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("outside_of_commands", [(), ("yes",)])
def test_ctrl_c_in_a_terminal_is_one_line(outside_of_commands):
    process, _ = start("2", *outside_of_commands)
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes
    assert process.communicate(timeout=20)[1] == "interrupted\n"


def doubled(number):
    return 2 * number


def test_what_was_not_begun_is_given_up_on_an_error():
    with pytest.raises(ValueError, match="enough"), worker_processes(1) as pool:
        futures = [pool.submit(time.sleep, 0.1) for _ in range(100)]
        assert pool.submit(doubled, 2) is not None
        raise ValueError("enough")
    assert sum(future.cancelled() for future in futures) > 90


def test_a_process_of_its_own_keeps_its_object():
    with own_process("counting", Counter, "abca") as count, own_process("a queue", deque) as queue:
        count("update", "aa")
        queue("append", 3)
        assert count("most_common", 1) == [("a", 4)]
        assert queue("pop") == 3


def test_an_error_there_is_one_here():
    with pytest.raises(TypeError, match="not iterable") as raised, own_process("a queue", deque, 3):
        raise AssertionError("it was made")
    assert "in the process of a queue:\nTraceback" in str(raised.value.__cause__)
    with own_process("locks", partial, threading.Lock) as make_lock:
        with pytest.raises(TypeError, match="cannot pickle"):
            make_lock("__call__")
        with pytest.raises(TypeError, match="argument"):  # and goes on
            make_lock("__call__", 1, 2, 3)


def test_an_error_of_the_block_stays_what_it_is():
    with pytest.raises(BrokenPipeError, match="nobody reads"), own_process("a queue", deque):
        raise BrokenPipeError("nobody reads")


@pytest.mark.parametrize(("function", "status"), [(os._exit, 9), (signal.raise_signal, -9)])
def test_a_process_that_ends_by_itself_is_said(function, status):
    sentence = rf"^The process of signals has ended unexpectedly \(exit status {status}\)"
    with pytest.raises(OSError, match=sentence), own_process("signals", partial, function) as call:
        call("__call__", 9)
    with pytest.raises(OSError, match=sentence), own_process("signals", function, 9):
        raise AssertionError("it was made")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_a_process_of_its_own_ends_with_its_parent(number, tmp_path):
    """At once, in the middle of a call, and without a word."""
    (tmp_path / "holder.py").write_text(HOLDER)
    process = subprocess.Popen(
        [sys.executable, tmp_path / "holder.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    worker = int(process.stdout.readline())
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    said = process.communicate(timeout=20)[1]
    assert said == ("" if number == signal.SIGKILL else "interrupted\n")
    deadline = time.monotonic() + 10
    while is_running(worker):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_ctrl_c_while_a_process_starts(monkeypatch):
    """It is heard when the process has started, here alone."""
    start = SpawnProcess.start

    def interrupted_start(process):
        os.kill(os.getpid(), signal.SIGINT)
        start(process)
        started.append(process)

    started, handler = [], signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(SpawnProcess, "start", interrupted_start)
    try:
        with pytest.raises(KeyboardInterrupt), own_process("a queue", deque):
            raise AssertionError("nobody heard it")
    finally:
        signal.signal(signal.SIGINT, handler)
    assert [process.is_alive() for process in started] == [False]
