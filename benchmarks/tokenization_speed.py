"""Speed of vocabulary training and of bulk encoding, against the tokenizers library and transformers.

    python -m mybert.benchmarks.tokenization_speed train corpus
    python -m mybert.benchmarks.tokenization_speed encode corpus --vocab vocab.txt --megabytes 1
    python -m mybert.benchmarks.tokenization_speed processes corpus --vocab vocab.txt
    python -m mybert.benchmarks.tokenization_speed memory corpus

Both sides process the same text in the same process, one after the other; `encode` checks that all ids are equal.
"""

import argparse
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

# Read when tokenizers first needs it.
os.environ.setdefault("RAYON_NUM_THREADS", str(os.cpu_count()) if "train" in sys.argv[1:2] else "1")

import numpy as np
import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from ..files.text import open_text
from ..studies.timing import heading, in_turns, ratio, row, timed
from ..tokenization import BulkEncoder, MyBertTokenizer, train_wordpiece
from .harness import (
    REPEATS,
    check_agreement,
    count,
    flag,
    read_lines,
    run_apart,
    script,
    speed_table,
    take_turns,
    text_files,
)


def benchmark_training(files: list[str], vocab_size: int, repeats: int) -> None:
    """Train on the same plain file, with all cores; wall-clock seconds."""

    def train_peer() -> int:
        tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
        tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
        trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
        tokenizer.train([str(text)], trainer)
        return tokenizer.get_vocab_size()

    def train(algorithm: str, min_frequency: int) -> int:
        options: dict[str, Any] = {"algorithm": algorithm, "min_frequency": min_frequency}
        return len(train_wordpiece(text, vocab_size, vocab_layout="compact", show_progress=False, **options))

    peer = "tokenizers WordPieceTrainer"
    runs: dict[str, Callable[[], int]] = {
        peer: train_peer,
        "mybert bpe": partial(train, "bpe", 2),
        "mybert wordpiece, min_frequency 100": partial(train, "wordpiece", 100),
    }
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        with text.open("w", encoding="utf-8") as out:
            for file in files:
                out.writelines(f"{line}\n" for line in open_text(file))
        print(f"{text.stat().st_size / 1e6:.1f} MB of text, {vocab_size} pieces, {os.cpu_count()} cores\n")
        seconds, sizes = take_turns(runs, repeats, untimed=0)
    notes = {  # a small text may not give all pieces
        name: f"{sizes[name]} pieces; all: {' '.join(f'{value:.1f}' for value in values)}"
        for name, values in seconds.items()
    }
    print(speed_table(seconds, peer, notes))


def benchmark_encoding(lines: list[str], vocab: str, repeats: int) -> None:
    """Encode line by line on one core; seconds of CPU time, which other load on the machine affects least."""
    characters = sum(map(len, lines))
    tokenizer = MyBertTokenizer(vocab)
    peer_tokenizer = transformers.BertTokenizer(vocab)
    warm = BulkEncoder(tokenizer)
    warm.encode(lines)
    fast = "tokenizers encode_batch_fast, our pipeline"
    runs: dict[str, Callable[[], Any]] = {
        fast: lambda: tokenizer.backend_tokenizer.encode_batch_fast(lines, add_special_tokens=False),
        "tokenizers encode_batch_fast, BertTokenizer": lambda: peer_tokenizer.backend_tokenizer.encode_batch_fast(
            lines, add_special_tokens=False
        ),
        "transformers BertTokenizer(...)": lambda: peer_tokenizer(lines, add_special_tokens=False),
        "mybert BulkEncoder, empty memo": lambda: BulkEncoder(tokenizer).encode(lines),
        "mybert BulkEncoder, text seen before": lambda: warm.encode(lines),
    }
    seconds, results = take_turns(runs, repeats, time.process_time, untimed=0)
    expected: list[list[int]] = tokenizer(lines, add_special_tokens=False)["input_ids"]
    for name in (name for name in runs if "BulkEncoder" in name):
        ids, offsets = results[name]
        check_agreement(f"ids of {name}", ids, np.concatenate([np.array(row, np.int64) for row in expected]), 0)
        check_agreement(f"lengths of {name}", np.diff(offsets), [len(row) for row in expected], 0)
    print(f"{characters / 1e6:.1f} M characters in {len(lines)} lines; ids equal on every line\n")
    rates = {
        name: f"{characters / 1e6 / statistics.median(each):.1f} M characters/s" for name, each in seconds.items()
    }
    print(speed_table(seconds, fast, rates, "CPU seconds on one core (median)"))


def benchmark_processes(lines: list[str], vocab: str, repeats: int) -> None:
    """Encode a stream of batches with one and two processes, in turn; wall-clock and CPU seconds."""
    batches = [lines[start : start + 5000] for start in range(0, len(lines), 5000)]
    tokenizer = MyBertTokenizer(vocab)

    def measure(processes: int) -> list[float]:
        """Seconds on the wall, CPU seconds of this process and of its workers, tokens."""
        before = resource_usage("ru_utime") + resource_usage("ru_stime")
        with BulkEncoder(tokenizer, num_processes=processes) as encoder:
            elapsed, tokens = timed(lambda: sum(len(ids) for ids, _ in encoder.encode_stream(batches)))
        return [elapsed, *(resource_usage("ru_utime") + resource_usage("ru_stime") - before), tokens]

    found = in_turns({str(processes): partial(measure, processes) for processes in (1, 2)}, repeats)
    tokens = int(found["1"][0][-1])
    print(f"{sum(map(len, lines)) / 1e6:.1f} M characters, {tokens} tokens, {repeats} runs each, in turn\n")
    print(heading("processes", "wall (median)", "wall (best)", "speed-up", "CPU parent", "CPU workers"))
    alone = [run[0] for run in found["1"]]
    for processes, measured in found.items():
        wall, parent, workers, _ = (statistics.median(column) for column in zip(*measured, strict=True))
        walls = [run[0] for run in measured]
        figures = wall, min(walls), ratio(alone, walls), parent, workers
        print(row(processes, *(f"{figure:.2f}" for figure in figures)))


def resource_usage(name: str) -> np.ndarray:
    """A field of `getrusage`, of this process and of its ended children."""
    return np.array(
        [getattr(resource.getrusage(who), name) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    )


def train_and_measure(files: list[str], vocab_size: int, processes: int) -> list[float]:
    """Train; MiB before, at the peak, and of the largest worker. For a fresh process."""
    before, _ = resource_usage("ru_maxrss")
    train_wordpiece(files, vocab_size, num_processes=processes, show_progress=False)
    return [size / 1024 for size in (before, *resource_usage("ru_maxrss"))]


def measure_memory(files: list[str], vocab_size: int) -> None:
    """Train with one and with two processes; print the largest resident size of any of them."""
    print(heading("processes", "before (MiB)", "peak (MiB)", "largest worker (MiB)"))
    for processes in (1, 2):
        sizes = run_apart(train_and_measure, files, vocab_size, processes)
        print(row(processes, *(f"{size:.0f}" for size in sizes)), flush=True)


@script(
    flag("what", choices=["train", "encode", "processes", "memory"]),
    flag("files", nargs="+"),
    flag("--vocab", help="vocabulary file for encode and processes"),
    flag("--megabytes", type=float, default=float("inf"), help="encode so much of the text"),
    flag("--vocab_size", type=count, default=30522),
    REPEATS,
)
def main(arguments: argparse.Namespace) -> None:
    what, files = arguments.what, text_files(arguments.files)
    if what in ("encode", "processes") and arguments.vocab is None:
        raise ValueError(f"{what} needs a --vocab.")
    if what == "train":
        benchmark_training(files, arguments.vocab_size, arguments.repeats)
    elif what == "memory":
        measure_memory(files, arguments.vocab_size)
    else:
        benchmark = benchmark_encoding if what == "encode" else benchmark_processes
        benchmark(read_lines(files, arguments.megabytes), arguments.vocab, arguments.repeats)


if __name__ == "__main__":
    main()
