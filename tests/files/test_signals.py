"""Ctrl-C and SIGTERM: clean up once, then end at once."""

import os
import signal
import subprocess
import sys
import threading

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


def test_the_signals_are_given_back():
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with interruptible():
        assert signal.getsignal(signal.SIGTERM) not in before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
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
