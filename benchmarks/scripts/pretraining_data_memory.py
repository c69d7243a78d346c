"""Memory and latency of pretraining data from a very large corpus.

    python -m mybert.benchmarks.scripts.pretraining_data_memory corpus --vocab vocab.txt [--megabytes 1000]
    python -m mybert.benchmarks.scripts.pretraining_data_memory --tokens 4e9

The first builds a token store from a text file of that size: the given text repeated, with an unseen word in every
tenth line, so that chunks differ and the encoder's cache always grows. Memory is the peak over all processes together
(Pss, sampled every half second; Linux only). The second creates a store whose tokens are a hole in the file, and
requests examples at its beginning, middle and end from a `PretrainingDataset` in a fresh process; memory is the
process's private memory (RssAnon), without mapped pages of the file.
"""

import argparse
import random
import tempfile
import time
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ...pretraining import PretrainingDataset, TokenStore, build_token_store
from ...pretraining.token_store import FORMAT, VERSION
from ...tokenization import MyBertTokenizer
from ..harness import flag, heading, memory, read_lines, row, run_apart, script, text_files, timed


def build(text: Path, vocab: str, store: Path, num_processes: int) -> None:
    build_token_store(text, MyBertTokenizer(vocab), store, num_processes=num_processes, show_progress=False)


def draw(path: Path) -> dict[str, Any]:
    """Open a store and draw examples from it: seconds and memory of each step, for a fresh process."""
    before = memory("RssAnon")
    opening, store = timed(lambda: TokenStore(path))
    dataset = PretrainingDataset(store, cls_token_id=101, sep_token_id=102, max_length=128)
    rows = [("opening", opening, memory("RssAnon") - before)]

    def draw_one(epoch: int, index: int) -> None:
        dataset.set_epoch(epoch)
        assert len(dataset[index]["input_ids"]) <= 128

    for epoch, index in ((0, 0), (0, len(dataset) // 2), (0, len(dataset) - 1), (1, 0)):
        seconds, _ = timed(partial(draw_one, epoch, index))
        rows.append((f"epoch {epoch}, example {index:,}", seconds, memory("RssAnon") - before))
    return {"store": str(store.summary), "pairs": len(dataset), "rows": rows}


def family(process: int) -> list[int]:
    children = [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [process, *children]


def benchmark_building(files: list[str], vocab: str, megabytes: float, folder: Path) -> None:
    """Build a store with one and two processes."""
    lines = read_lines(files)
    generator = random.Random(0)
    text, size, number = folder / "text.txt", 0, 0
    with text.open("w", encoding="utf-8") as out:
        while size < megabytes * 1e6:
            line = lines[number % len(lines)]
            if line and number % 10 == 0:
                line += f" {generator.getrandbits(48):x}"
            size += len(line.encode()) + 1
            out.write(f"{line}\n")
            number += 1
    print(f"Building a store from {size / 1e6:,.0f} MB\n")
    print(heading("processes", "seconds", "peak MiB, all together"))
    for num_processes in (1, 2):
        start, peak = time.perf_counter(), 0.0
        building = get_context("spawn").Process(target=build, args=(text, vocab, folder / "store", num_processes))
        building.start()
        while building.is_alive():
            with suppress(OSError):  # one of them has just ended
                peak = max(peak, sum(memory("Pss", process) for process in family(building.pid or 0)))
            building.join(0.5)
        assert building.exitcode == 0
        print(row(num_processes, f"{time.perf_counter() - start:.1f}", f"{peak:,.0f}"))


def benchmark_drawing(tokens: int, folder: Path) -> None:
    """Open a generated store and draw examples from it."""
    generator = np.random.default_rng(0)
    ends = np.cumsum(generator.integers(5, 46, tokens // 25))
    documents = np.unique(generator.integers(1, len(ends), len(ends) // 30))
    counts = {"documents": len(documents) + 1, "sentences": len(ends), "tokens": int(ends[-1]), "unknown_tokens": 0}
    metadata = {"format": FORMAT, "version": VERSION, "tokenizer": "made up"}
    metadata |= {name: str(count) for name, count in counts.items()}
    path = folder / "large.safetensors"
    arrays = {
        "document_starts": np.concatenate([[0], documents, [len(ends)]]),
        "sentence_starts": np.concatenate([[0], ends]),
        "tokens": np.zeros(0, np.uint16),
    }
    save_file(arrays, path, metadata)
    # The tokens become a hole at the end of the file: their array comes last.
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    place = len(data) - 8 - size
    header = data[8 : 8 + size].decode().rstrip()
    for old, new in (
        (f'"data_offsets":[{place},{place}]', f'"data_offsets":[{place},{place + 2 * counts["tokens"]}]'),
        ('"dtype":"U16","shape":[0]', f'"dtype":"U16","shape":[{counts["tokens"]}]'),
    ):
        assert old in header
        header = header.replace(old, new)
    encoded = header.encode() + b" " * (-len(header.encode()) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded + data[8 + size :])
        file.truncate(file.tell() + 2 * counts["tokens"])
    found = run_apart(draw, path)
    print(f"Drawing from {found['store']}: {found['pairs']:,} pairs an epoch\n")
    print(heading("", "seconds", "own memory, MiB"))
    for what, seconds, mebibytes in found["rows"]:
        print(row(what, f"{seconds:.2f}", f"+{mebibytes:,.0f}"))


@script(
    flag("files", nargs="*"),
    flag("--vocab"),
    flag("--megabytes", type=float, default=1000.0),
    flag("--tokens", type=float, help="tokens of a made-up store"),
)
def main(arguments: argparse.Namespace) -> None:
    if not arguments.tokens and not (arguments.files and arguments.vocab):
        raise ValueError("name --tokens, or files and their --vocab.")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.tokens:
            benchmark_drawing(int(arguments.tokens), Path(folder))
        else:
            benchmark_building(text_files(arguments.files), arguments.vocab, arguments.megabytes, Path(folder))


if __name__ == "__main__":
    main()
