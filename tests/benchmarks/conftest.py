import importlib
import sys

import pytest


@pytest.fixture
def run(monkeypatch, capsys):
    """Run a script's `main` with flags; what it prints."""

    def run_script(name, *flags):
        module = importlib.import_module(f"mybert.benchmarks.scripts.{name}")
        monkeypatch.setattr(sys, "argv", [name, *map(str, flags)])
        module.main()
        return capsys.readouterr().out

    return run_script
