"""Times of several ways to do the same work, in turns, and tables of them."""

import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..files.machine import describe_environment, describe_waiting
from ..files.progress import progress_bar

REST = 0.1  # seconds; ONNX Runtime's threads wait actively for 0.05, PyTorch's for 0.01


def describe_setting() -> str:
    """Processor or GPU with its features, threads, how they wait, and versions, in one line."""
    environment = describe_environment(torch.cuda.is_available())
    versions = ", ".join(f"{package} {version}" for package, version in environment["versions"].items())
    threads = f"{torch.get_num_threads()} threads ({describe_waiting()})"
    return f"{environment['hardware']}, {threads}; {versions}."


def evenly(rows: Sequence[Any], number: int) -> Sequence[Any]:
    """At most so many rows, from all parts of the data."""
    count = min(number, len(rows))
    return [rows[place * len(rows) // count] for place in range(count)]


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


def in_turns(measures: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[Any]]:
    """Call functions that measure something in turns, so that other load affects all alike; their results, by name."""
    found: dict[str, list[Any]] = {name: [] for name in measures}
    for _ in progress_bar(range(repeats), leave=False):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def ratio(peer: Sequence[float], own: Sequence[float]) -> float:
    """Times as fast as the peer: the median over the turns."""
    return statistics.median(slow / fast for slow, fast in zip(peer, own, strict=True))


def memory(kind: str, process: str | int = "self") -> float:
    """MiB of a process in Linux: VmRSS, its peak VmHWM, its own RssAnon, or Pss, with a part of what it shares."""
    file = "smaps_rollup" if kind == "Pss" else "status"
    found = re.search(rf"^{kind}:\s+(\d+) kB", Path(f"/proc/{process}/{file}").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def heading(*names: str) -> str:
    """The first two lines of a Markdown table."""
    return f"{row(*names)}\n|{'---|' * len(names)}"
