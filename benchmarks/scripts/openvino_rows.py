"""Rows of a folder that `mybert convert openvino` wrote: CPU time by how texts share rows, and memory.

python -m mybert.benchmarks.scripts.openvino_rows --model my-encoder-openvino --threads 1
"""

import argparse
import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch

from ...files.checkpoint import OPENVINO_FILE, Checkpoint
from ...pipelines.openvino_model import OpenVinoModel, openvino_core
from ..harness import count, flag, memory, script

_LENGTH = 20  # tokens of a text
_STAGES = (1, 100, 1_000)  # requests after which memory is printed, and the last one


@script(
    flag("--model", required=True, help="A folder that `mybert convert openvino` wrote."),
    flag("--repeats", type=count, default=9, help="Timed runs of each side, in turns."),
    flag("--requests", type=count, default=10_000, help="Requests of random lengths, after which memory is read."),
    flag("--longest", type=count, default=128, help="Longest of these requests, in tokens."),
)
def main(arguments: argparse.Namespace) -> None:
    """Print CPU time of all threads together, which other processes change less than the time of a clock."""
    checkpoint = Checkpoint(arguments.model)
    (loading,) = _cpu_seconds({"": partial(_load, checkpoint)}, 1).values()
    print(f"Loading and compiling: {loading:.2f} s\n")
    hints = {"INFERENCE_PRECISION_HINT": "f32", "INFERENCE_NUM_THREADS": torch.get_num_threads()}
    request = openvino_core().compile_model(checkpoint.path / OPENVINO_FILE, "CPU", hints)
    graph = request.create_infer_request()
    layouts = {
        "18 texts in rows of their own": (18, 1),
        "18 texts, three to a row": (6, 3),
        "18 texts in one row": (1, 18),
        **{f"{count} texts in rows of their own": (count, 1) for count in (6, 12, 25, 51)},
    }
    sides = {name: partial(graph.infer, _rows(*layout)) for name, layout in layouts.items()}
    for name, seconds in _cpu_seconds(sides, arguments.repeats).items():
        print(f"- {name}: {1e3 * seconds:.1f} ms, {1e6 * seconds / _LENGTH / np.prod(layouts[name]):.0f} us a token")
    model = _load(checkpoint)
    print(f"\nMemory: {memory('VmRSS'):.0f} MiB before the first request")
    generator = np.random.default_rng(0)
    for number in range(1, arguments.requests + 1):
        model(input_ids=torch.ones(1, int(generator.integers(1, arguments.longest + 1)), dtype=torch.long))
        if number in (*_STAGES, arguments.requests):
            print(f"- after {number:,}: {memory('VmRSS'):.0f} MiB", flush=True)


def _load(checkpoint: Checkpoint) -> OpenVinoModel:
    return OpenVinoModel(checkpoint.path, checkpoint.config)


def _rows(rows: int, texts: int) -> dict[str, np.ndarray]:
    """Rows of so many texts of `_LENGTH` tokens each."""
    numbers = np.tile(np.repeat(np.arange(1, texts + 1), _LENGTH), (rows, 1))
    return {"input_ids": np.ones_like(numbers), "attention_mask": numbers, "token_type_ids": np.zeros_like(numbers)}


def _cpu_seconds(sides: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """The median CPU time of each side, in turns."""

    def measured(run: Callable[[], Any]) -> float:
        before = time.process_time()
        run()
        return time.process_time() - before

    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(repeats):
        for name, run in sides.items():
            found[name].append(measured(run))
    return {name: statistics.median(values) for name, values in found.items()}


if __name__ == "__main__":
    main()
