"""Timing alternatives in one process, in turns, with tables; and running code in a fresh process."""

import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from tqdm import tqdm

from ..files import describe_environment
from ..files.machine import describe_waiting


def describe_setting() -> str:
    """Processor or GPU with its features, threads, how they wait, and versions, in one line."""
    environment = describe_environment()
    versions = ", ".join(f"{package} {version}" for package, version in environment["versions"].items())
    threads = f"{torch.get_num_threads()} threads ({describe_waiting()})"
    return f"{environment['hardware']}, {threads}; {versions}."


def timed(function: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    """Return the seconds of a call, including its work on a GPU, and its result."""
    # With `time.process_time` as the clock, other load on the machine matters least.
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = clock()
    result = function()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return clock() - start, result


def take_turns(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Time all runs in turns, so that other load on the machine affects all alike; return the seconds of each call."""
    for run in runs.values():
        # untimed
        run()
    return in_turns({name: partial(seconds, run) for name, run in runs.items()}, repeats)


def in_turns(measures: Mapping[str, Callable[[], float]], repeats: int) -> dict[str, list[float]]:
    """As `take_turns`, for functions that return their own seconds, such as runs in another process."""
    if repeats < 1:
        raise ValueError(f"repeats is {repeats}; expected at least 1.")
    found: dict[str, list[float]] = {name: [] for name in measures}
    for _ in tqdm(range(repeats), leave=False):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def seconds(run: Callable[[], Any]) -> float:
    """Seconds of a call, including its work on a GPU."""
    return timed(run)[0]


def median_seconds(run: Callable[[], Any], repeats: int) -> float:
    """Median seconds of this many consecutive calls."""
    return statistics.median(seconds(run) for _ in range(repeats))


def speed_table(seconds: Mapping[str, Sequence[float]], peer: str, notes: Mapping[str, str] | None = None) -> str:
    """Return a Markdown table of medians; ratios are medians of the ratio to the peer in the same turn."""
    notes = notes or {}
    lines = ["| | seconds (median) | times as fast | |", "|---|---|---|---|"]
    for name, values in seconds.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(seconds[peer], values, strict=True))
        lines.append(f"| {name} | {statistics.median(values):.4f} | {ratio:.2f} | {notes.get(name, '')} |")
    return "\n".join(lines)


def run_apart(code: str, *arguments: object, python: str = sys.executable) -> Any:
    """Run code in a fresh process, with its arguments in `sys.argv[1:]`; return the JSON value that it prints last."""
    command = [python, "-c", code, *map(str, arguments)]
    printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    return json.loads(printed.splitlines()[-1])
