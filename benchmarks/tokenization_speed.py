"""Speed of vocabulary training and of bulk encoding, against the tokenizers library and transformers.

    python -m mybert.benchmarks.tokenization_speed train ../shared/data/corpus_en
    python -m mybert.benchmarks.tokenization_speed encode ../shared/data/corpus_en --vocab vocab.txt --megabytes 1
    python -m mybert.benchmarks.tokenization_speed processes ../shared/data/corpus_en --vocab vocab.txt
    python -m mybert.benchmarks.tokenization_speed memory ../shared/data/corpus_en

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
from pathlib import Path
from typing import Any

os.environ.setdefault("RAYON_NUM_THREADS", str(os.cpu_count()) if "train" in sys.argv[1:2] else "1")

import numpy as np
import tokenizers
import transformers
from tokenizers import models, normalizers, pre_tokenizers, trainers

from ..files import expand_paths, open_text
from ..tokenization import BulkEncoder, MyBertTokenizer, train_wordpiece
from .script import at_least_1, script
from .timing import describe_setting, timed


def benchmark_training(files: list[str], vocab_size: int, repeats: int) -> None:
    """Train on the same plain file, with all cores; wall-clock seconds."""
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder) / "text.txt"
        with text.open("w", encoding="utf-8") as out:
            for file in files:
                out.writelines(f"{line}\n" for line in open_text(file))
        print(f"{text.stat().st_size / 1e6:.1f} MB of text, {vocab_size} pieces, {os.cpu_count()} cores\n")

        def theirs() -> int:
            tokenizer = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
            tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True, strip_accents=False)
            tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
            special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
            trainer = trainers.WordPieceTrainer(vocab_size=vocab_size, special_tokens=special, show_progress=False)
            tokenizer.train([str(text)], trainer)
            return tokenizer.get_vocab_size()

        def ours(algorithm: str, min_frequency: int) -> Callable[[], int]:
            options: dict[str, Any] = {"algorithm": algorithm, "min_frequency": min_frequency}
            return lambda: len(train_wordpiece(text, vocab_size, layout="compact", show_progress=False, **options))

        runs = {
            "tokenizers WordPieceTrainer": theirs,
            "mybert bpe": ours("bpe", 2),
            "mybert wordpiece, min_frequency 100": ours("wordpiece", 100),
        }
        seconds: dict[str, list[float]] = {name: [] for name in runs}
        sizes: dict[str, int] = {}  # a small text may not give all pieces
        for _ in range(repeats):
            for name, run in runs.items():
                elapsed, size = timed(run)
                sizes[name] = size
                seconds[name].append(elapsed)
        peer = statistics.median(seconds["tokenizers WordPieceTrainer"])
        print("| | pieces | seconds (median) | all | speed-up |\n|---|---|---|---|---|")
        for name, values in seconds.items():
            median = statistics.median(values)
            every = " ".join(f"{value:.1f}" for value in values)
            print(f"| {name} | {sizes[name]} | {median:.1f} | {every} | {peer / median:.2f} |")


def first_lines(files: list[str], megabytes: float) -> list[str]:
    lines: list[str] = []
    left = megabytes * 1e6
    for file in files:
        for line in open_text(file):
            if left <= 0:
                return lines
            lines.append(line)
            left -= len(line.encode())
    return lines


def benchmark_encoding(lines: list[str], vocab: str, repeats: int) -> None:
    """Encode line by line on one core; seconds of CPU time, which other load on the machine affects least."""
    characters = sum(map(len, lines))
    ours = MyBertTokenizer(vocab)
    theirs = transformers.BertTokenizer(vocab)
    warm = BulkEncoder(ours)
    warm.encode(lines)
    expected: list[list[int]] = ours(lines, add_special_tokens=False)["input_ids"]

    def same(result: tuple[np.ndarray, np.ndarray]) -> None:
        ids, offsets = result
        assert np.array_equal(ids, np.concatenate([np.array(row, np.int64) for row in expected]))
        assert np.array_equal(np.diff(offsets), [len(row) for row in expected])

    fast = "tokenizers encode_batch_fast, our pipeline"
    runs: dict[str, Callable[[], Any]] = {
        fast: lambda: ours.backend_tokenizer.encode_batch_fast(lines, add_special_tokens=False),
        "tokenizers encode_batch_fast, BertTokenizer": lambda: theirs.backend_tokenizer.encode_batch_fast(
            lines, add_special_tokens=False
        ),
        "transformers BertTokenizer(...)": lambda: theirs(lines, add_special_tokens=False),
        "mybert BulkEncoder, empty memo": lambda: BulkEncoder(ours).encode(lines),
        "mybert BulkEncoder, text seen before": lambda: warm.encode(lines),
    }
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            elapsed, result = timed(run, time.process_time)
            seconds[name].append(elapsed)
            if "BulkEncoder" in name:
                same(result)
            del result
    peer = statistics.median(seconds[fast])
    print(f"{characters / 1e6:.1f} M characters in {len(lines)} lines; ids equal on every line\n")
    print("| one core | CPU seconds (median) | M characters/s | times encode_batch_fast |\n|---|---|---|---|")
    for name, values in seconds.items():
        median = statistics.median(values)
        print(f"| {name} | {median:.2f} | {characters / 1e6 / median:.1f} | {peer / median:.1f} |")


def benchmark_processes(lines: list[str], vocab: str, repeats: int) -> None:
    """Encode a stream of batches with one and two processes, in turn; wall-clock and CPU seconds."""
    batches = [lines[start : start + 5000] for start in range(0, len(lines), 5000)]
    tokenizer = MyBertTokenizer(vocab)

    def cpu_seconds() -> np.ndarray:
        usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return np.array([usage.ru_utime + usage.ru_stime for usage in usages])

    runs: dict[int, list[list[float]]] = {1: [], 2: []}
    for _ in range(repeats):
        for processes, measured in runs.items():
            before = cpu_seconds()
            with BulkEncoder(tokenizer, num_processes=processes) as encoder:
                elapsed, tokens = timed(lambda: sum(len(ids) for ids, _ in encoder.encode_stream(batches)))
            measured.append([elapsed, *(cpu_seconds() - before)])
    single = runs[1]
    print(f"{sum(map(len, lines)) / 1e6:.1f} M characters, {tokens} tokens, {repeats} runs each, in turn\n")
    print(
        "| processes | wall (median) | wall (best) | speed-up | CPU parent | CPU workers |\n|---|---|---|---|---|---|"
    )
    for processes, measured in runs.items():
        wall, parent, workers = (statistics.median(column) for column in zip(*measured, strict=True))
        speed_up = statistics.median(alone[0] / together[0] for alone, together in zip(single, measured, strict=True))
        best = min(run[0] for run in measured)
        print(f"| {processes} | {wall:.2f} | {best:.2f} | {speed_up:.2f} | {parent:.2f} | {workers:.2f} |")


def measure_memory(files: list[str], vocab_size: int) -> None:
    """Train with one and with two processes, in a separate process; print the largest resident size of any of them."""
    print("| processes | before (MiB) | peak (MiB) | largest worker (MiB) |\n|---|---|---|---|")
    for processes in (1, 2):
        if (child := os.fork()) == 0:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            train_wordpiece(files, vocab_size, num_processes=processes, show_progress=False)
            usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
            sizes = [before, *(usage.ru_maxrss for usage in usages)]
            print(f"| {processes} |", *(f"{size / 1024:.0f} |" for size in sizes), flush=True)
            os._exit(0)
        os.waitpid(child, 0)


@script
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["train", "encode", "processes", "memory"])
    parser.add_argument("files", nargs="+")
    parser.add_argument("--vocab", help="vocabulary file for encode and processes")
    parser.add_argument("--megabytes", type=float, default=float("inf"), help="encode so much of the text")
    parser.add_argument("--vocab_size", type=int, default=30522)
    parser.add_argument("--repeats", type=at_least_1, default=3)
    arguments = parser.parse_args()
    if arguments.what in ("encode", "processes") and arguments.vocab is None:
        parser.error(f"{arguments.what} needs a --vocab")
    files = [file for file in expand_paths(arguments.files) if "heldout" not in file] or arguments.files
    print(f"{describe_setting()}\n")
    if arguments.what == "train":
        benchmark_training(files, arguments.vocab_size, arguments.repeats)
    elif arguments.what == "encode":
        benchmark_encoding(first_lines(files, arguments.megabytes), arguments.vocab, arguments.repeats)
    elif arguments.what == "processes":
        benchmark_processes(first_lines(files, arguments.megabytes), arguments.vocab, arguments.repeats)
    else:
        measure_memory(files, arguments.vocab_size)


if __name__ == "__main__":
    main()
