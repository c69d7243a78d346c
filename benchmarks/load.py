"""Many calls, many rows and many threads: equal results, and memory that stays where it is.

    python -m mybert.benchmarks.load calls my-classifier texts.txt --size 10000
    python -m mybert.benchmarks.load rows my-classifier texts.txt --size 1000000
    python -m mybert.benchmarks.load threads my-classifier texts.txt --size 100000

- `calls`: `predict` in one process, a text at a time, from the model folder each time. The labels must be those of one
  call with all texts; memory is the resident set after a tenth of the calls and after all of them.
- `rows`: the command `predict` on a table of so many rows, without a stop, and killed (SIGKILL) in the middle and
  repeated; the outputs must be equal byte for byte. Memory is the peak of the command's process (VmHWM).
- `threads`: one pipeline of transformers in eight threads, a text at a time; the labels must be those of one thread.

Texts are repeated as often as it takes, and numbered. Memory is read from /proc, so on Linux only.
"""

import argparse
import csv
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from transformers import pipeline

from ..finetuning import predict
from ..studies.timing import heading, memory, row, timed
from .harness import count, flag, read_lines, script, text_files

THREADS = 8


def measure_calls(model: str, texts: list[str], calls: int, folder: Path) -> None:
    """Predict a text at a time."""
    expected = [answer["label"] for answer in predict(model, texts)]
    sizes, start = [], time.perf_counter()
    for call, (text, label) in enumerate(islice(cycle(zip(texts, expected, strict=True)), calls), 1):
        assert predict(model, [text])[0]["label"] == label, text
        if call in (calls // 10, calls):
            sizes.append(memory("VmRSS"))
    seconds = time.perf_counter() - start
    print(heading("calls", "calls a second", "MiB after a tenth", "MiB at the end"))
    print(row(f"{calls:,}", f"{calls / seconds:.1f}", *(f"{size:,.0f}" for size in sizes)))


def write_table(path: Path, texts: list[str], rows: int) -> None:
    """A table of numbered texts."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "text"])
        writer.writerows((index, f"{text} {index}") for index, text in enumerate(islice(cycle(texts), rows)))


def run_predict(model: str, table: Path, output: Path, limit: float = float("inf")) -> tuple[float, float]:
    """Run the command, or kill it after some seconds: seconds, and peak memory in MiB."""
    command = [sys.executable, "-m", "mybert", "predict", model, table, "--output", output, "--quiet"]
    start, peak = time.perf_counter(), 0.0
    with subprocess.Popen([str(word) for word in command]) as process:
        while process.poll() is None:
            with suppress(OSError):  # it has just ended
                peak = max(peak, memory("VmHWM", process.pid))
            if time.perf_counter() - start > limit:
                process.send_signal(signal.SIGKILL)
            time.sleep(0.2)
    if process.returncode not in (0, -signal.SIGKILL):
        raise ValueError(f"mybert predict has ended with {process.returncode}.")
    return time.perf_counter() - start, peak


def measure_rows(model: str, texts: list[str], rows: int, folder: Path) -> None:
    """Predict a table, and again with a kill in the middle."""
    print(heading("rows", "seconds", "rows a second", "peak MiB"))
    for size in (rows // 10, rows):
        table, whole = folder / f"{size}.csv", folder / f"{size}_whole.csv"
        write_table(table, texts, size)
        seconds, peak = run_predict(model, table, whole)
        print(row(f"{size:,}", f"{seconds:.1f}", f"{size / seconds:,.0f}", f"{peak:,.0f}"), flush=True)
    resumed = folder / "resumed.csv"
    run_predict(model, table, resumed, seconds / 2)
    assert not resumed.exists(), "the kill came too late"
    rest, _ = run_predict(model, table, resumed)
    assert resumed.read_bytes() == whole.read_bytes(), "the outputs differ"
    print(f"\nKilled after {seconds / 2:.1f} seconds and repeated: {rest:.1f} seconds more, equal byte for byte.")


def measure_threads(model: str, texts: list[str], calls: int, folder: Path) -> None:
    """Call one pipeline in several threads."""
    classify: Any = pipeline("text-classification", model=model)
    expected = [answer["label"] for answer in map(classify, texts) for answer in answer]
    before = memory("VmRSS")

    def is_equal(text: str, label: str) -> bool:
        return bool(classify(text)[0]["label"] == label)

    pairs = islice(cycle(zip(texts, expected, strict=True)), calls)
    with ThreadPoolExecutor(THREADS) as pool:
        seconds, equal = timed(lambda: sum(pool.map(is_equal, *zip(*pairs, strict=True))))
    assert equal == calls, f"{calls - equal} labels differ"
    print(heading("texts", "threads", "texts a second", "MiB before", "MiB at the end"))
    print(row(f"{calls:,}", THREADS, f"{calls / seconds:,.0f}", f"{before:,.0f}", f"{memory('VmRSS'):,.0f}"))


MEASURES = {"calls": measure_calls, "rows": measure_rows, "threads": measure_threads}


@script(
    flag("what", choices=MEASURES),
    flag("model", help="folder of a classifier"),
    flag("texts", nargs="+", help="text files, a text in each line"),
    flag("--size", type=count, required=True, help="calls, rows or texts"),
)
def main(arguments: argparse.Namespace) -> None:
    """Measure one of the three."""
    texts = [line for line in read_lines(text_files(arguments.texts)) if line][:1000]
    with tempfile.TemporaryDirectory() as folder:
        MEASURES[arguments.what](arguments.model, texts, arguments.size, Path(folder))


if __name__ == "__main__":
    main()
