"""Commands whose calls fail one by one: a sample, all calls of some commands, and a careless command that is found."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from scenarios import SCENARIOS
from sweep import preloading_environment

from mybert.command_line import COMMANDS

SWEEP = Path(__file__).with_name("sweep.py")

pytestmark = pytest.mark.skipif(
    not sys.platform.startswith("linux") or not shutil.which("cc"), reason="calls are failed on Linux, by a C library"
)


def test_scenarios_are_of_every_command_that_writes():
    commands = [scenario.command for scenario in SCENARIOS]
    missing = {name for name in COMMANDS if not any(each.startswith(f"{name} ") for each in commands)}
    assert missing == {"bench", "completion"}  # bench takes minutes, and writes one table


def check_sweep(run_python, names, failures, *words):
    """The sweep fails calls of each command with each failure, and its exit status says that nothing is wrong."""
    path = str(Path(__file__).parents[3])
    done = run_python(SWEEP, *names, "--failures", *failures, *words, timeout=600, PYTHONPATH=path)
    rows = [line.split("|") for line in done.stdout.splitlines() if line.startswith(" | ")]
    assert {row[1].strip() for row in rows} == set(names)
    for row in rows:
        counts = {name: int(count) for count, name in (part.split() for part in row[3].split(","))}
        assert counts.keys() == set(failures) and min(counts.values()) >= 2


def test_sweep_of_a_sample_of_calls_finds_no_violation(run_python):
    check_sweep(run_python, ["data_append", "predict_csv"], ["error", "full", "kill"], "--most", "2")


@pytest.mark.slow
def test_sweep_of_all_calls_of_a_command_finds_no_violation(run_python):
    check_sweep(run_python, ["predict_csv"], ["full", "kill"])


# Commands that write several files, a folder in place of another, a store that grows, and a run.
@pytest.mark.slow
@pytest.mark.parametrize("name", ["evaluate", "to_bert", "data_append_export", "finetune"])
def test_sweep_of_calls_of_a_command_finds_no_violation(run_python, name):
    check_sweep(run_python, [name], ["error", "full", "denied", "kill", "interrupt", "terminate"], "--most", "3")


@pytest.mark.slow
@pytest.mark.parametrize("failure", ["unreadable", "memory"])
def test_sweep_of_calls_that_read_or_allocate_finds_no_violation(run_python, failure):
    check_sweep(run_python, ["vocab", "to_google"], [failure], "--most", "5")


CARELESS = """
import os, sys
from pathlib import Path
sys.path.insert(0, {folder!r})
import sweep

class Careless(sweep.Laboratory):
    def _be_command(self, command, place, streams):
        for stream in streams:
            stream.write_text("")
        try:
            with open(place / "result.txt", "w") as file:  # in place of the old one
                for part in command.split():
                    file.write(part)
                    file.flush()
        except OSError:
            os._exit(2 if "honest" in command else 0)
        os._exit(0)

laboratory = Careless(Path({scratch!r}))
for flag in ("honest", "silent"):
    found = sweep.Sweep(laboratory, sweep.Scenario("careless", f"a new {{flag}}", ["old"]))
    found.fail("error", 10)
    found.fail("kill", 10)
"""


def test_sweep_of_a_careless_command_finds_what_is_wrong(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(CARELESS.format(folder=str(SWEEP.parent), scratch=str(tmp_path)))
    done = subprocess.run(
        [sys.executable, script], env=preloading_environment(tmp_path), capture_output=True, text=True, check=True
    )
    assert "error at call 3 (write careless/result.txt): neither the old result nor the new one" in done.stdout
    assert "succeeded with another result, ['result.txt']" in done.stdout
    assert "ended with status" not in done.stdout
