"""Ctrl-C and SIGTERM: clean up once, then end at once."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from mybert.files import interruptible

SLOW_TO_END = """
import sys, time
from mybert.files import interruptible
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


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("moment", [("in cleaning up",), ()])
def test_a_second_signal_ends_at_once_with_one_line(first, moment):
    command = [sys.executable, "-c", SLOW_TO_END, *moment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
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
from mybert.files import interruptible

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
def test_a_signal_is_heard_by_who_already_waits(number):
    """Its handler could not run before: the same as one that comes between Python's last look and the call."""
    command = [sys.executable, "-c", WAITS_FOR_INPUT, str(int(number))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
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
