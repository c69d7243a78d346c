"""Timing several ways of doing one thing in one process, in turns, and the tables of it."""

import platform
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from tqdm import tqdm


def take_turns(runs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, list[float]]:
    """Time every run, one after the other, again and again: what disturbs the machine then disturbs all alike.

    Args:
        runs: What to call, by name; each is called once before, untimed.
        repeats: Timed calls of each.

    Returns:
        Seconds of each call, by name.
    """
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for run in runs.values():
        run()
    for _ in tqdm(range(repeats), leave=False):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            seconds[name].append(time.perf_counter() - start)
    return seconds


def speed_table(seconds: Mapping[str, Sequence[float]], peer: str, notes: Mapping[str, str] | None = None) -> str:
    """A Markdown table of medians; ratios are medians of the ratio to the peer in the same turn.

    Args:
        seconds: What `take_turns` gave.
        peer: The run that the others are compared to.
        notes: A remark for a run, by name.
    """
    notes = notes or {}
    lines = ["| | seconds (median) | times as fast | |", "|---|---|---|---|"]
    for name, values in seconds.items():
        ratio = statistics.median(theirs / ours for theirs, ours in zip(seconds[peer], values, strict=True))
        lines.append(f"| {name} | {statistics.median(values):.4f} | {ratio:.2f} | {notes.get(name, '')} |")
    return "\n".join(lines)


def describe_machine() -> str:
    """Processor or GPU, threads and versions, in one line."""
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text(encoding="utf-8").splitlines() if cpus.exists() else []
    names = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
    hardware = names[0] if names else platform.processor() or platform.machine()
    if torch.cuda.is_available():
        hardware = f"{torch.cuda.get_device_name()}, {hardware}"
    return (
        f"{hardware}, {torch.get_num_threads()} threads; Python {platform.python_version()}, "
        f"torch {torch.__version__}, transformers {transformers.__version__}."
    )
