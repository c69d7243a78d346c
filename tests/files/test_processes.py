"""Ctrl-C and SIGTERM: clean up once, then end at once."""

import logging as python_logging
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import Counter, deque
from contextlib import suppress
from functools import partial
from multiprocessing.context import SpawnProcess

import pytest
from transformers.utils import logging

from mybert.files.processes import (
    interruptible,
    interrupts_delayed,
    map_in_processes,
    no_warnings,
    only_errors,
    own_process,
)


@pytest.fixture(autouse=True)
def as_in_a_command(monkeypatch):
    """Processes, which get these words, take this one for that of a command: `import mybert` is short there."""
    monkeypatch.setattr(sys, "argv", ["mybert"])


SLOW_TO_END = """
import sys, time
from mybert.files.processes import interruptible
with interruptible():
    try:
        print("begun", flush=True)
        time.sleep(60)
    except KeyboardInterrupt:
        print("cleaning up", flush=True)
        if len(sys.argv) > 1:
            time.sleep(60)
print("ended", flush=True)
time.sleep(60)
"""


def start(path, code, *arguments):
    """A script in a process that may be imported by its own processes, in a group as a terminal makes one."""
    (path / "mybert").write_text(code)
    command = [sys.executable, path / "mybert", *arguments]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, text=True, start_new_session=True, **pipes)


@pytest.mark.parametrize(("first", "moment"), [(signal.SIGINT, ["in cleaning up"]), (signal.SIGTERM, [])])
def test_a_second_signal_ends_at_once_with_one_line(tmp_path, first, moment):
    with start(tmp_path, SLOW_TO_END, *moment) as process:
        assert process.stdout.readline() == "begun\n"
        process.send_signal(first)
        assert process.stdout.readline() == "cleaning up\n"
        if not moment:
            assert process.stdout.readline() == "ended\n"
        process.send_signal(signal.SIGTERM)
        assert process.communicate(timeout=20)[1] == "mybert: interrupted again, ended at once.\n"
    assert process.returncode == 130


WAITS_FOR_INPUT = """
import os, signal, sys, threading, time
from mybert.files.processes import interruptible

def not_noticed_by_the_main_thread():
    time.sleep(0.2)
    signal.pthread_kill(threading.get_ident(), int(sys.argv[1]))

with interruptible():
    threading.Thread(target=not_noticed_by_the_main_thread).start()
    try:
        os.read(0, 1)
    except KeyboardInterrupt:
        print("cleaned up")
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_by_who_already_waits(tmp_path, number):
    """Its handler could not run before: the same as one that comes between Python's last look and the call."""
    with start(tmp_path, WAITS_FOR_INPUT, str(int(number))) as process:
        try:
            process.wait(timeout=20)
        finally:
            process.kill()
        assert process.stdout.read() == "cleaned up\n"
    assert process.returncode == 0


def test_the_signals_are_given_back():
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGURG)
    before = [signal.getsignal(number) for number in numbers]
    threads = threading.active_count()
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in numbers] == before
    assert signal.set_wakeup_fd(-1) == -1
    while threading.active_count() > threads:  # the thread that repeats signals ends by itself
        time.sleep(0.01)
    error = []
    with interruptible():
        child = os.fork()
        if child == 0:
            os.kill(os.getpid(), signal.SIGTERM)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM

    def in_a_thread():
        try:
            with interruptible():
                pass
        except ValueError as found:
            error.append(found)

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert not error


@pytest.fixture
def handlers():
    """Signal handlers are restored: those of `interruptible` stay after a signal."""
    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in previous.items():
        signal.signal(number, handler)


def test_no_signal_follows_an_interrupted_command(handlers):
    """On a small stack for signals, such as OpenVINO's, a few at once would end the process."""
    threads = threading.active_count()
    with suppress(KeyboardInterrupt), interruptible():
        signal.raise_signal(signal.SIGINT)
    heard = []
    previous = signal.signal(signal.SIGURG, lambda *_: heard.append(True))
    while threading.active_count() > threads:
        time.sleep(0.01)
    signal.signal(signal.SIGURG, previous)
    assert not heard


def move_for_some_time(seconds=0.0, number=signal.SIGTERM):
    with interrupts_delayed(by_moves=True):
        signal.raise_signal(number)
        time.sleep(seconds)


@pytest.mark.parametrize("seconds", [0.0, 1.5])
def test_interruptible_signal_during_moves_interrupts_a_command_that_goes_on(handlers, seconds):
    with interruptible() as interrupts:
        move_for_some_time(seconds)
        assert interrupts.held == signal.SIGTERM
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            while time.monotonic() - began < 20:
                with interrupts_delayed(by_moves=True):  # other moves do not delay it further
                    time.sleep(0.01)
    assert interrupts.has_ended and not interrupts.held


def test_interruptible_second_signal_after_moves_interrupts_at_once(handlers):
    with interruptible() as interrupts:
        move_for_some_time()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert interrupts.has_ended


def test_interruptible_signal_shortly_after_moves_is_held(handlers):
    with interruptible() as interrupts:
        with interrupts_delayed(by_moves=True):
            pass
        signal.raise_signal(signal.SIGINT)
    assert interrupts.held == signal.SIGINT and not interrupts.has_ended


def test_interrupts_delayed_by_moves_outside_of_a_command_raises_afterwards(handlers):
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        move_for_some_time(number=signal.SIGINT)


def kill_worker(_):
    os.kill(os.getpid(), signal.SIGKILL)


def test_map_in_processes_with_killed_worker_raises_one_sentence():
    expected = r"One of 2 processes has ended unexpectedly; the system may have killed it .* Use fewer"
    with map_in_processes(kill_worker, 2) as mapped, pytest.raises(OSError, match=expected):
        list(mapped(range(2)))


PARENT = """
import os, signal, sys, time
from contextlib import nullcontext
from mybert.files.processes import interruptible, map_in_processes

signal.signal(signal.SIGINT, signal.default_int_handler)  # as in a terminal, wherever the tests run

def work(_):
    os.write(1, b"%d\\n" % os.getpid())  # in one piece, which print is not
    time.sleep(float(sys.argv[1]))

with nullcontext() if sys.argv[2:] else interruptible(), map_in_processes(work, 3) as mapped:
    try:
        list(mapped(range(2 if sys.argv[2:] else 20)))
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\\n")
"""


HOLDER = """
import os, signal, sys, time
from mybert.files.processes import interruptible, own_process

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


def wait_for_end(*numbers):
    deadline = time.monotonic() + 10
    for number in numbers:
        with suppress(ProcessLookupError):
            while time.monotonic() < deadline:
                os.kill(number, 0)
                time.sleep(0.05)
            pytest.fail(f"process {number} lives on")


@pytest.mark.parametrize(("number", "seconds"), [(signal.SIGKILL, "60"), (signal.SIGTERM, "0.2")])
def test_no_worker_outlives_its_parent(tmp_path, number, seconds):
    process = start(tmp_path, PARENT, seconds)
    workers = [int(process.stdout.readline()) for _ in range(2)]
    for worker in workers:
        os.kill(worker, 0)
    process.send_signal(number)
    process.communicate(timeout=20)  # a worker that lived on would hold standard output
    wait_for_end(*workers)


@pytest.mark.parametrize("outside_of_commands", [(), ("yes",)])
def test_ctrl_c_in_a_terminal_is_one_line(tmp_path, outside_of_commands):
    process = start(tmp_path, PARENT, "2", *outside_of_commands)
    process.stdout.readline()
    process.stdout.readline()
    os.killpg(process.pid, signal.SIGINT)  # a terminal sends it to all processes
    assert process.communicate(timeout=20)[1] == "interrupted\n"


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
    process = start(tmp_path, HOLDER)
    worker = int(process.stdout.readline())
    (os.killpg if number == signal.SIGINT else os.kill)(process.pid, number)
    said = process.communicate(timeout=20)[1]
    assert said == ("" if number == signal.SIGKILL else "interrupted\n")
    wait_for_end(worker)


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


def test_silence_ends_with_its_block(caplog):
    verbosity = logging.get_verbosity()
    with pytest.raises(ValueError, match="inside"), warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with only_errors(), no_warnings():
            assert logging.get_verbosity() == logging.ERROR
            warnings.warn("unheard", stacklevel=1)
            python_logging.getLogger("exporter").warning("unheard")
            python_logging.getLogger("exporter").error("heard")
            raise ValueError("inside")
    assert not caught and logging.get_verbosity() == verbosity < logging.ERROR
    python_logging.getLogger("exporter").warning("heard again")
    assert [record.message for record in caplog.records] == ["heard", "heard again"]
