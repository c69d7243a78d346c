"""Speed and memory of turning text into pretraining data, against Google's script and the tokenizers library.

    python -m mybert.benchmarks.scripts.pretraining_data_speed corpus --vocab vocab.txt [--google PYTHON]

All on one core, in seconds of CPU time, which other load on the machine affects least. tokenizers only turns lines in
memory into ids; everything else starts from files. With --google, the Python of an environment in which
`pip install tensorflow-cpu six` and `pip install --no-deps bert-tensorflow==1.0.4` have been run, Google's
`create_pretraining_data.py` works on the first megabytes of the same text, as released; its imports are not counted.
Memory is the peak resident set (VmHWM, so Linux only) of a fresh process.
"""

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", "1")  # read when tokenizers first needs it

import numpy as np
import torch

from ...pretraining import PretrainingCollator, PretrainingDataset, TokenStore, build_token_store
from ...tokenization import MyBertTokenizer
from ..harness import (
    REPEATS,
    flag,
    heading,
    in_turns,
    memory,
    read_lines,
    row,
    run_apart,
    script,
    text_files,
    timed,
)

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


def build_store(files: Sequence[str], vocab: str, path: Path) -> float:
    """Build a store and return the process's peak memory in MiB; for a fresh process."""
    build_token_store(files, MyBertTokenizer(vocab), path, show_progress=False)
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


def google_rows(arguments: argparse.Namespace, lines: list[str], folder: str) -> list[tuple[str, float, float, str]]:
    """Rows for Google's script on the first megabytes of the text, in whole documents: name, MB, seconds, remark."""
    text, written = Path(folder) / "part.txt", 0
    with text.open("w", encoding="utf-8") as part:
        for line in lines:
            written += part.write(f"{line}\n")
            if written >= arguments.google_megabytes * 1e6 and not line:
                break
    megabytes = text.stat().st_size / 1e6
    rows = []
    for dupe_factor in (10, 1):
        output = f"{folder}/records"
        command = [arguments.google, "-c", GOOGLE, text, arguments.vocab, output, str(dupe_factor)]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        found = json.loads(printed.splitlines()[-1])
        note = f"{found['instances']:,} instances, peak {found['peak'] / 1024:,.0f} MiB"
        name = f"Google's script, {megabytes:.1f} MB of it, dupe_factor {dupe_factor}"
        rows.append((name, megabytes, found["seconds"], note))
    return rows


@script(
    flag("files", nargs="+"),
    flag("--vocab", required=True),
    flag("--google", help="Python in which Google's script runs"),
    flag("--google_megabytes", type=float, default=2.0),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    torch.set_num_threads(arguments.threads or 1)
    files = text_files(arguments.files)
    lines = read_lines(files)
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    tokenizer = MyBertTokenizer(arguments.vocab)
    print(f"{megabytes:.1f} MB of text\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.safetensors"
        rows = google_rows(arguments, lines, folder) if arguments.google else []
        results: dict[str, Any] = {}

        def measure(name: str, run: Callable[[], Any]) -> float:
            elapsed, results[name] = timed(run, time.process_time)
            return elapsed

        theirs, ours = "tokenizers encode_batch_fast, lines in memory", "mybert, files to token store"
        encode = partial(tokenizer.backend_tokenizer.encode_batch_fast, lines, add_special_tokens=False)
        build = partial(build_token_store, files, tokenizer, path, show_progress=False)
        runs = {theirs: partial(measure, theirs, encode), ours: partial(measure, ours, build)}
        times = in_turns(runs, arguments.repeats)
        store, summary = TokenStore(path, tokenizer), results[ours]
        ids = np.fromiter((index for encoding in results[theirs] for index in encoding.ids), np.int64, summary.tokens)
        assert np.array_equal(store.tokens, ids)
        del ids
        results.clear()
        for pack in (False, True):
            elapsed, (tokens, positions) = timed(partial(draw_epoch, store, tokenizer, pack), time.process_time)
            kind = "packed in rows of 512" if pack else "padded"
            note = f"{tokens / elapsed / 1e6:.2f} M tokens/s, {tokens / positions:.1%} full"
            rows.append((f"mybert, an epoch of masked pairs, {kind}", megabytes, elapsed, note))
        rows += [(name, megabytes, statistics.median(values), "") for name, values in times.items()]
        peak = run_apart(build_store, files, arguments.vocab, path)
    print(heading("one core", "CPU seconds", "MB/s", ""))
    for name, size, elapsed, note in rows:
        print(row(name, f"{elapsed:.2f}", f"{size / elapsed:.2f}", note))
    print(f"\nThe store: {summary}. Its tokens are those of tokenizers.")
    print(f"Peak memory of the process that built it: {peak:,.0f} MiB.")


if __name__ == "__main__":
    main()
