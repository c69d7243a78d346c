import importlib
import sys
from contextlib import contextmanager

import pytest
import torch

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
def in_this_process(monkeypatch):
    """Run separate processes' work in this process; returns the names of what would have started."""
    threads, started = torch.get_num_threads(), []

    @contextmanager
    def here(what, make, *arguments):
        held = make(*arguments)
        started.append(what)
        yield lambda method, *arguments: getattr(held, method)(*arguments)

    monkeypatch.setattr(model_speed, "own_process", here)
    yield started
    torch.set_num_threads(threads)
