"""How OpenMP's threads should wait: seconds a call by setting, on an idle machine and next to busy processes.

    python -m mybert.benchmarks.waiting_threads
    python -m mybert.benchmarks.waiting_threads --busy 1 --sizes tiny --repeats 9

libgomp reads these variables when it is loaded, so that every setting has a process of its own; they take turns. The
workloads are one query of 32 tokens, a full batch, and a training step (MLM + NSP) on that batch.
"""

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any
from unittest import mock

import torch

from ..files.machine import WAITING_VARIABLES, usable_cores
from ..files.processes import own_process
from ..runs import MyBertAdamW
from ..studies.timing import in_turns, timed
from .harness import count, flag, matched_models, random_batch, script, speed_table
from .model_speed import TRAINING, TRAINING_LENGTH, training_batch, training_step

DEFAULT = "active, the default"
SETTINGS: dict[str, dict[str, str]] = {
    DEFAULT: {},
    "passive": {"OMP_WAIT_POLICY": "PASSIVE"},
    **{f"{count:,} spins": {"GOMP_SPINCOUNT": str(count)} for count in (1_000, 10_000, 100_000)},
}
WORKLOADS = ("query", "batch", "training")


class Workloads:
    """The workloads of one model size, for a process of its own."""

    def __init__(self, size: str, threads: int) -> None:
        torch.set_num_threads(threads)
        self.model: Any = matched_models("ForPreTraining", size)["mybert"]
        self.optimizer = MyBertAdamW(self.model.parameters(), lr=1e-4)
        rows = TRAINING.get(size, 8)
        self.inputs = {"query": random_batch((32,)), "batch": random_batch((TRAINING_LENGTH,) * rows)}
        self.inputs["training"] = training_batch(rows, half_full=False)

    def seconds(self, workload: str) -> float:
        """Seconds of a call, after another one."""
        self.model.train(workload == "training")
        with torch.set_grad_enabled(workload == "training"):
            self._call(workload)
            return timed(partial(self._call, workload))[0]

    def _call(self, workload: str) -> None:
        if workload == "training":
            training_step(self.model, self.optimizer, self.inputs[workload])
        else:
            self.model.bert(**self.inputs[workload])


@contextmanager
def busy_processes(number: int) -> Iterator[None]:
    """Other processes, each of which keeps one core busy."""
    processes = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def compare_settings(size: str, threads: int, busy: list[int], repeats: int) -> None:
    """Print a table for each workload and number of busy processes."""
    plain = {name: value for name, value in os.environ.items() if name not in WAITING_VARIABLES}
    with ExitStack() as stack:
        sides = {}
        for name, setting in SETTINGS.items():
            with mock.patch.dict(os.environ, plain | setting, clear=True):
                sides[name] = stack.enter_context(own_process(name, Workloads, size, threads))
        for number in busy:
            with busy_processes(number):
                for workload in WORKLOADS:
                    turns = {name: partial(side, "seconds", workload) for name, side in sides.items()}
                    print(f"\n## {size} {workload}, {number} busy processes\n")
                    print(speed_table(in_turns(turns, repeats), DEFAULT), flush=True)


@script(
    flag("--sizes", nargs="+", default=list(TRAINING), help="sizes of the model"),
    flag("--busy", nargs="+", type=int, default=[0, 1, 2], help="numbers of busy processes"),
    flag("--repeats", type=count, default=5, help="timed calls of each; the medians are reported"),
)
def main(arguments: argparse.Namespace) -> None:
    """Print the tables."""
    threads = arguments.threads or usable_cores()
    print(f"Calls on {threads} threads.")
    for size in arguments.sizes:
        compare_settings(size, threads, arguments.busy, arguments.repeats)


if __name__ == "__main__":
    main()
