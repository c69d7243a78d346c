import importlib
import sys

import pytest

from mybert.benchmarks import model_speed


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a script's `main` with flags; what it prints."""

    def run_script(name, *flags):
        module = importlib.import_module(f"mybert.benchmarks.{name}")
        monkeypatch.setattr(sys, "argv", [name, *map(str, flags)])
        module.main()
        return capsys.readouterr().out

    return run_script


@pytest.fixture
def in_this_process(run_processes_here):
    """Run separate processes' work in this process; returns the names of what would have started."""
    return run_processes_here(model_speed)
