"""Workers end with the process that started them, however that ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from mybert.files import worker_processes

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
