"""Speed and memory of turning text into pretraining data, against Google's script and the tokenizers library.

    python -m mybert.benchmarks.pretraining_data_speed ../shared/data/corpus_en --vocab vocab.txt [--google PYTHON]

All on one core, in seconds of CPU time, which other load on the machine affects least. tokenizers only turns lines in
memory into ids; everything else starts from files. With --google, the Python of an environment in which
`pip install tensorflow-cpu six` and `pip install --no-deps bert-tensorflow==1.0.4` have been run, Google's
`create_pretraining_data.py` works on the first megabytes of the same text, as released; its imports are not counted.
Memory is the peak resident set (VmHWM, so Linux only) of a fresh process.
"""

import argparse
import os
import statistics
import tempfile
import time
from functools import partial
from pathlib import Path

os.environ.setdefault("RAYON_NUM_THREADS", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from ..files import expand_paths, open_text
from ..pretraining import PretrainingCollator, PretrainingDataset, TokenStore, build_token_store
from ..tokenization import MyBertTokenizer
from .script import at_least_1, script
from .timing import describe_setting, run_apart, timed

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
MEMORY = """
import re, sys
from mybert.tokenization import MyBertTokenizer
from mybert.pretraining import build_token_store
*files, vocab, path = sys.argv[1:]
build_token_store(files, MyBertTokenizer(vocab), path, show_progress=False)
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
"""


def draw_epoch(store: TokenStore, tokenizer: MyBertTokenizer, pack: bool) -> tuple[int, int]:
    """Draw and mask an epoch in batches of 32; return the number of tokens, and of positions with padding."""
    dataset = PretrainingDataset(
        store, cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id, max_length=128, pack=pack
    )
    collator = PretrainingCollator(tokenizer)
    tokens = room = 0
    for start in range(0, len(dataset), 32):
        batch = collator([dataset[index] for index in range(start, min(start + 32, len(dataset)))])
        tokens += int((batch["input_ids"] != tokenizer.pad_token_id).sum())
        room += batch["input_ids"].numel()
    return tokens, room


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
        found = run_apart(GOOGLE, text, arguments.vocab, output, dupe_factor, python=arguments.google)
        note = f"{found['instances']:,} instances, peak {found['peak'] / 1024:,.0f} MiB"
        name = f"Google's script, {megabytes:.1f} MB of it, dupe_factor {dupe_factor}"
        rows.append((name, megabytes, found["seconds"], note))
    return rows


@script
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+")
    parser.add_argument("--vocab", required=True)
    parser.add_argument("--google", help="Python in which Google's script runs")
    parser.add_argument("--google_megabytes", type=float, default=2.0)
    parser.add_argument("--repeats", type=at_least_1, default=3)
    arguments = parser.parse_args()
    files = [file for file in expand_paths(arguments.files) if "heldout" not in file]
    lines = [line for file in files for line in open_text(file)]
    megabytes = sum(len(line.encode()) + 1 for line in lines) / 1e6
    tokenizer = MyBertTokenizer(arguments.vocab)
    encode = partial(tokenizer.backend_tokenizer.encode_batch_fast, lines, add_special_tokens=False)
    print(f"{describe_setting()} {megabytes:.1f} MB of text\n")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.safetensors"
        rows = google_rows(arguments, lines, folder) if arguments.google else []
        build = partial(build_token_store, files, tokenizer, path, show_progress=False)
        theirs, ours = [], []
        for _ in range(arguments.repeats):
            elapsed, expected = timed(encode, time.process_time)
            theirs.append(elapsed)
            elapsed, summary = timed(build, time.process_time)
            ours.append(elapsed)
        store = TokenStore(path, tokenizer)
        ids = np.fromiter((index for encoding in expected for index in encoding.ids), np.int64, summary.tokens)
        assert np.array_equal(store.tokens, ids)
        del expected, ids
        for pack in (False, True):
            elapsed, (tokens, room) = timed(partial(draw_epoch, store, tokenizer, pack), time.process_time)
            kind = "packed in rows of 512" if pack else "padded"
            note = f"{tokens / elapsed / 1e6:.2f} M tokens/s, {tokens / room:.1%} full"
            rows.append((f"mybert, an epoch of masked pairs, {kind}", megabytes, elapsed, note))
        rows.append(("tokenizers encode_batch_fast, lines in memory", megabytes, statistics.median(theirs), ""))
        rows.append(("mybert, files to token store", megabytes, statistics.median(ours), ""))
        peak = run_apart(MEMORY, *files, arguments.vocab, path)
    print("| one core | CPU seconds | MB/s | |\n|---|---|---|---|")
    for name, size, elapsed, note in rows:
        print(f"| {name} | {elapsed:.2f} | {size / elapsed:.2f} | {note} |")
    print(f"\nThe store: {summary}. Its tokens are those of tokenizers.")
    print(f"Peak memory of the process that built it: {peak / 1024:,.0f} MiB.")


if __name__ == "__main__":
    main()
