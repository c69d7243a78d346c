"""Memory and latency of pretraining data from a very large corpus.

    python -m mybert.benchmarks.pretraining_data_memory ../shared/data/corpus_en --vocab vocab.txt [--megabytes 1000]
    python -m mybert.benchmarks.pretraining_data_memory --tokens 4e9

The first builds a token store from a text file of that size: the given text repeated, with an unseen word in every
tenth line, so that chunks differ and the encoder's cache always grows. Memory is the peak over all processes together
(Pss, sampled every half second; Linux only). The second creates a store whose tokens are a hole in the file, and
requests examples at its beginning, middle and end from a `PretrainingDataset` in a fresh process; memory is the
process's private memory (RssAnon), without mapped pages of the file.
"""

import argparse
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

from ..files import expand_paths, open_text
from ..pretraining.token_store import FORMAT, VERSION
from .script import script
from .timing import run_apart

BUILD = """
import sys
from mybert.tokenization import MyBertTokenizer
from mybert.pretraining import build_token_store
text, vocab, path, num_processes = sys.argv[1:]
build_token_store(text, MyBertTokenizer(vocab), path, num_processes=int(num_processes), show_progress=False)
"""
DRAW = """
import json, re, sys, time
from mybert.pretraining import PretrainingDataset, TokenStore
import torch
own = lambda: int(re.search(r"RssAnon:\\s+(\\d+)", open("/proc/self/status").read())[1]) / 1024
before, start = own(), time.perf_counter()
store = TokenStore(sys.argv[1])
dataset = PretrainingDataset(store, cls_token_id=101, sep_token_id=102, max_length=128)
rows = [("opening", time.perf_counter() - start, own() - before)]
for epoch, index in ((0, 0), (0, len(dataset) // 2), (0, len(dataset) - 1), (1, 0)):
    start = time.perf_counter()
    dataset.set_epoch(epoch)
    assert len(dataset[index]["input_ids"]) <= 128
    rows.append((f"epoch {epoch}, example {index:,}", time.perf_counter() - start, own() - before))
print(json.dumps({"store": str(store.summary), "pairs": len(dataset), "rows": rows}))
"""


def memory_of(process: int) -> float:
    """Return the memory of a process in MiB, including its share of shared memory."""
    found = re.search(r"^Pss:\s+(\d+) kB", Path(f"/proc/{process}/smaps_rollup").read_text(), re.MULTILINE)
    return int(found[1]) / 1024 if found else 0.0


def family(process: int) -> list[int]:
    children = [
        int(child)
        for task in Path(f"/proc/{process}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]
    return [process, *children]


def benchmark_building(files: list[str], vocab: str, megabytes: float, folder: Path) -> None:
    """Build a store with one and two processes."""
    lines = [line for file in files for line in open_text(file)]
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
    print("| processes | seconds | peak MiB, all together |\n|---|---|---|")
    for num_processes in (1, 2):
        start, peak = time.perf_counter(), 0.0
        command = [sys.executable, "-c", BUILD, str(text), vocab, str(folder / "store"), str(num_processes)]
        building = subprocess.Popen(command)
        while building.poll() is None:
            with suppress(OSError):  # one of them has just ended
                peak = max(peak, sum(map(memory_of, family(building.pid))))
            time.sleep(0.5)
        assert building.returncode == 0
        print(f"| {num_processes} | {time.perf_counter() - start:.1f} | {peak:,.0f} |")


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
    found = run_apart(DRAW, path)
    print(f"Drawing from {found['store']}: {found['pairs']:,} pairs an epoch\n")
    print("| | seconds | own memory, MiB |\n|---|---|---|")
    for what, seconds, mebibytes in found["rows"]:
        print(f"| {what} | {seconds:.2f} | +{mebibytes:,.0f} |")


@script
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*")
    parser.add_argument("--vocab")
    parser.add_argument("--megabytes", type=float, default=1000.0)
    parser.add_argument("--tokens", type=float, help="tokens of a made-up store")
    arguments = parser.parse_args()
    if not arguments.tokens and not (arguments.files and arguments.vocab):
        parser.error("name --tokens, or files and their --vocab")
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    with tempfile.TemporaryDirectory() as folder:
        if arguments.tokens:
            benchmark_drawing(int(arguments.tokens), Path(folder))
        else:
            files = [file for file in expand_paths(arguments.files) if "heldout" not in file]
            benchmark_building(files, arguments.vocab, arguments.megabytes, Path(folder))


if __name__ == "__main__":
    main()
