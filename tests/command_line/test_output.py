"""Standard output that is closed, full, or read only to its second line."""

import os
import subprocess
import sys

import pytest

# A command that says three lines, reads one, and writes a file; transformers' parser takes a second to load.
SCRIPT = """
import logging, sys, types
from dataclasses import dataclass, field
from pathlib import Path
from mybert import cli
from mybert.files.settings import Parts

@dataclass(frozen=True, kw_only=True)
class SaySettings(Parts):
    name: str = field(default="x", metadata={"help": "A name."})

def say(arguments: SaySettings):
    logging.getLogger("mybert").info("first line %s", arguments.name)
    input()
    for _ in range(3):
        logging.getLogger("mybert").info("another line")
    Path("made").write_text("made")

sys.modules["said"] = module = types.ModuleType("said")
module.say, module.SaySettings = say, SaySettings
cli.COMMANDS["say"] = cli.Command("say it", "said", "SaySettings", "say")
sys.exit(cli.main())
"""


def test_the_first_lines_of_the_usage(start_python):
    process = start_python(
        "-c", "import sys; sys.argv = ['mybert']; from mybert.cli import main; input(); sys.exit(main(['-h']))"
    )
    process.stdout.close()  # before it writes, as `head -0` does
    assert process.communicate("\n")[1] == ""
    assert process.returncode == 141


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")  # noqa: PTH110
def test_a_full_disk_is_said(start_python):
    with open("/dev/full", "w") as full:  # noqa: PTH123
        process = start_python("-m", "mybert", "-h", stdout=full)
        assert process.communicate()[1] == "mybert: standard output cannot be written: the disk is full.\n"
    assert process.returncode == 2


def test_a_closed_output_is_no_mistake():
    shell = f"{sys.executable} -m mybert -h >&-"
    run = subprocess.run(["sh", "-c", shell], capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")


@pytest.mark.slow
def test_a_command_ends_its_work_when_nobody_reads(tmp_path, start_python):
    process = start_python("-c", SCRIPT, "say", "--name", "\udcff", cwd=tmp_path)
    assert process.stdout.readline() == "first line \\udcff\n"
    process.stdout.close()
    assert process.communicate("\n")[1] == ""
    assert process.returncode == 0
    assert (tmp_path / "made").exists()
