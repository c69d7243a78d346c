"""Speed, memory and latency of pretraining data, from text to batches.

    python -m mybert.benchmarks.pretraining_data speed corpus --vocab vocab.txt [--google PYTHON]
    python -m mybert.benchmarks.pretraining_data building corpus --vocab vocab.txt [--megabytes 1000]
    python -m mybert.benchmarks.pretraining_data drawing --tokens 4e9

- `speed`: all on one core, in seconds of CPU time, which other load on the machine affects least, against the
  tokenizers library and Google's script. tokenizers only turns lines in memory into ids; everything else starts from
  files. With --google, the Python of an environment in which `pip install tensorflow-cpu six` and
  `pip install --no-deps bert-tensorflow==1.0.4` have been run, Google's `create_pretraining_data.py` works on the
  first megabytes of the same text, as released; its imports are not counted.
- `building`: a token store from a text file of that size, the given text repeated, with an unseen word in every tenth
  line, so that chunks differ and the encoder's cache always grows. Memory is the peak over all processes together
  (Pss, sampled every half second).
- `drawing`: a store whose tokens are a hole in the file; examples at its beginning, middle and end are requested from
  a `PretrainingDataset` in a fresh process. Memory is the process's private memory (RssAnon), without mapped pages of
  the file.

Memory is read from /proc, so on Linux only.
"""

import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # read when tokenizers first needs it

import numpy as np
import psutil  # type: ignore[import-untyped]
import torch

from ..pretraining import PretrainingCollator, PretrainingDataset, TokenStore, build_token_store
from ..pretraining.token_store import FORMAT, VERSION
from ..studies.timing import heading, memory, row, timed
from ..tokenization import MyBertTokenizer
from .harness import REPEATS, check_agreement, flag, read_lines, run_apart, script, take_turns, text_files

GOOGLE = """
import json, os, re, sys, time
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
from bert import create_pretraining_data as google
text, vocab, output, dupe_factor = sys.argv[1:]
google.FLAGS(["", "--input_file", text, "--vocab_file", vocab, "--output_file", output, "--dupe_factor", dupe_factor])
written = []
write = google.write_instance_to_example_files
google.write_instance_to_example_files = lambda instances, *rest: (written.extend(instances), write(instances, *rest))
start = time.process_time()
google.main(None)
seconds = time.process_time() - start
peak = int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
print(json.dumps({"seconds": seconds, "instances": len(written), "peak": peak}))
"""


def build_ours(files: Sequence[str], vocab: str, store: Path) -> float:
    """Build a store and return the process's peak memory in MiB; for a fresh process."""
    build_token_store(files, MyBertTokenizer(vocab), store, show_progress=False)
    return memory("VmHWM")


def draw_epoch(store: TokenStore, tokenizer: MyBertTokenizer, pack: bool) -> tuple[int, int]:
    """Draw and mask an epoch in batches of 32; return the number of tokens, and of positions with padding."""
    dataset = PretrainingDataset(
        store, cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id, max_length=128, pack=pack
    )
    collator = PretrainingCollator(tokenizer)
    tokens = positions = 0
    for start in range(0, len(dataset), 32):
        batch = collator([dataset[index] for index in range(start, min(start + 32, len(dataset)))])
        tokens += int((batch["input_ids"] != tokenizer.pad_token_id).sum())
        positions += batch["input_ids"].numel()
    return tokens, positions


def google_rows(arguments: argparse.Namespace, lines: list[str], folder: Path) -> list[tuple[str, float, float, str]]:
    """Rows for Google's script on the first megabytes of the text, in whole documents: name, MB, seconds, remark."""
    text, written = folder / "part.txt", 0
    with text.open("w", encoding="utf-8") as part:
        for line in lines:
            written += part.write(f"{line}\n")
            if written >= arguments.google_megabytes * 1e6 and not line:
                break
    megabytes = text.stat().st_size / 1e6
    rows = []
    for dupe_factor in (10, 1):
        command = [arguments.google, "-c", GOOGLE, text, arguments.vocab, folder / "records", str(dupe_factor)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(printed.splitlines()[-1])
        note = f"{found['instances']:,} instances, peak {found['peak'] / 1024:,.0f} MiB"
        name = f"Google's script, {megabytes:.1f} MB of it, dupe_factor {dupe_factor}"
        rows.append((name, megabytes, found["seconds"], note))
    return rows


def measure_speed(arguments: argparse.Namespace, files: list[str], folder: Path) -> None:
    """Turn text into ids and a store, and draw an epoch from the store."""
    torch.set_num_threads(arguments.threads or 1)
    lines = read_lines(files)
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    tokenizer = MyBertTokenizer(arguments.vocab)
    print(f"{megabytes:.1f} MB of text\n")
    path = folder / "store.safetensors"
    rows = google_rows(arguments, lines, folder) if arguments.google else []
    peer, own = "tokenizers encode_batch_fast, lines in memory", "mybert, files to token store"
    runs: dict[str, Any] = {
        peer: partial(tokenizer.backend_tokenizer.encode_batch_fast, lines, add_special_tokens=False),
        own: partial(build_token_store, files, tokenizer, path, show_progress=False),
    }
    times, results = take_turns(runs, arguments.repeats, time.process_time, untimed=0)
    store, summary = TokenStore(path, tokenizer), results[own]
    ids = np.fromiter((index for encoding in results[peer] for index in encoding.ids), np.int64, summary.tokens)
    check_agreement("tokens", np.asarray(store.tokens[:], np.int64), ids, 0)
    del ids
    results.clear()
    for pack in (False, True):
        elapsed, (tokens, positions) = timed(partial(draw_epoch, store, tokenizer, pack), time.process_time)
        kind = "packed in rows of 512" if pack else "padded"
        note = f"{tokens / elapsed / 1e6:.2f} M tokens/s, {tokens / positions:.1%} full"
        rows.append((f"mybert, an epoch of masked pairs, {kind}", megabytes, elapsed, note))
    rows += [(name, megabytes, statistics.median(values), "") for name, values in times.items()]
    peak = run_apart(build_ours, files, arguments.vocab, path)
    print(heading("one core", "CPU seconds", "MB/s", ""))
    for name, size, elapsed, note in rows:
        print(row(name, f"{elapsed:.2f}", f"{size / elapsed:.2f}", note))
    print(f"\nThe store: {summary}. Its tokens are those of tokenizers.")
    print(f"Peak memory of the process that built it: {peak:,.0f} MiB.")


def measure_building(arguments: argparse.Namespace, files: list[str], folder: Path) -> None:
    """Run `mybert data` with one and two processes."""
    lines = read_lines(files)
    generator = random.Random(0)
    text, size, number = folder / "text.txt", 0, 0
    with text.open("w", encoding="utf-8") as out:
        while size < arguments.megabytes * 1e6:
            line = lines[number % len(lines)]
            if line and number % 10 == 0:
                line += f" {generator.getrandbits(48):x}"
            size += len(line.encode()) + 1
            out.write(f"{line}\n")
            number += 1
    print(f"Building a store from {size / 1e6:,.0f} MB\n")
    print(heading("processes", "seconds", "peak MiB, all together"))
    for processes in (1, 2):
        start, peak = time.perf_counter(), 0.0
        words = [
            str(text),
            "--tokenizer",
            arguments.vocab,
            "--output",
            str(folder / "store"),
            "--overwrite",
            "--quiet",
        ]
        with psutil.Popen([sys.executable, "-m", "mybert", "data", *words, "--num_processes", str(processes)]) as data:
            while data.poll() is None:
                with suppress(OSError, psutil.Error):  # one of them has just ended
                    peak = max(peak, sum(memory("Pss", each.pid) for each in (data, *data.children())))
                time.sleep(0.5)
        assert data.returncode == 0
        print(row(processes, f"{time.perf_counter() - start:.1f}", f"{peak:,.0f}"))


def make_store(path: Path, tokens: int) -> None:
    """Write a token store of about this many tokens, which are a hole at the end of the file."""
    generator = np.random.default_rng(0)
    ends = np.cumsum(generator.integers(5, 46, tokens // 25))
    documents = np.unique(generator.integers(1, len(ends), len(ends) // 30))
    counts = {"documents": len(documents) + 1, "sentences": len(ends), "tokens": int(ends[-1]), "unknown_tokens": 0}
    metadata = {"format": FORMAT, "version": VERSION, "tokenizer": "made up"}
    header: dict[str, Any] = {"__metadata__": metadata | {name: str(count) for name, count in counts.items()}}
    starts = {
        "document_starts": np.concatenate([[0], documents, [len(ends)]]),
        "sentence_starts": np.concatenate([[0], ends]),
    }
    place = 0
    for name, code, count in (
        *((name, "I64", len(each)) for name, each in starts.items()),
        ("tokens", "U16", ends[-1]),
    ):
        end = place + int(count) * (8 if code == "I64" else 2)
        header[name] = {"dtype": code, "shape": [int(count)], "data_offsets": [place, end]}
        place = end
    encoded = json.dumps(header).encode()
    encoded += b" " * (-len(encoded) % 8)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for each in starts.values():
            file.write(each.tobytes())
        file.truncate(8 + len(encoded) + place)


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


def measure_drawing(arguments: argparse.Namespace, files: list[str], folder: Path) -> None:
    """Draw examples from a generated store."""
    path = folder / "large.safetensors"
    make_store(path, int(arguments.tokens))
    found = run_apart(draw, path)
    print(f"Drawing from {found['store']}: {found['pairs']:,} pairs an epoch\n")
    print(heading("", "seconds", "own memory, MiB"))
    for what, seconds, mebibytes in found["rows"]:
        print(row(what, f"{seconds:.2f}", f"+{mebibytes:,.0f}"))


MEASURES = {"speed": measure_speed, "building": measure_building, "drawing": measure_drawing}


@script(
    flag("what", choices=MEASURES),
    flag("files", nargs="*"),
    flag("--vocab", help="vocabulary file for speed and building"),
    flag("--google", help="Python in which Google's script runs"),
    flag("--google_megabytes", type=float, default=2.0),
    flag("--megabytes", type=float, default=1000.0, help="text of building"),
    flag("--tokens", type=float, default=4e9, help="tokens of drawing's generated store"),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    if arguments.what != "drawing" and not (arguments.files and arguments.vocab):
        raise ValueError(f"{arguments.what} needs files and their --vocab.")
    for name, least in (("google_megabytes", 0.001), ("megabytes", 0.001), ("tokens", 1000)):
        if not least <= getattr(arguments, name) < math.inf:
            raise ValueError(f"{name} is {getattr(arguments, name):g}; expected at least {least:g}.")
    with tempfile.TemporaryDirectory() as folder:
        MEASURES[arguments.what](arguments, text_files(arguments.files), Path(folder))


if __name__ == "__main__":
    main()
