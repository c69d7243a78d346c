"""The cost of training on many ranks: storage reads, data-loader work, and checkpoints.

    python -m mybert.benchmarks.many_ranks store.safetensors --tokenizer my-tokenizer
    python -m mybert.benchmarks.many_ranks store.safetensors --tokenizer my-tokenizer --ranks 8

A rank's batches are those that accelerate assigns to it from `PretrainingDataset`, in the first group of an epoch.
Bytes are those read from storage for the process (Linux, /proc/self/io), after dropping the file from the page cache;
pages already cached, or read ahead for another process, are not counted. The checkpoint is that of
`PretrainingTrainer` after one step.
"""

import argparse
import os
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import torch
from accelerate.data_loader import BatchSamplerShard
from torch.utils.data import BatchSampler
from transformers import TrainerCallback, TrainingArguments

from ..modeling_mybert import MyBertConfig, MyBertForPreTraining
from ..modeling_mybert.configuration_mybert import fields_of_size
from ..pretraining import MODEL_SIZES, PretrainingCollator, PretrainingDataset, PretrainingTrainer, TokenStore
from ..pretraining.token_store import store_files
from ..runs.trainer import seal_checkpoint
from ..studies.timing import heading, memory, row, timed
from ..tokenization import MyBertTokenizer
from .harness import count, flag, script


def bytes_read() -> int:
    """Bytes read from storage for this process so far."""
    return psutil.Process().io_counters().read_bytes


def forget(path: Path) -> None:
    """Drop a store's pages from the page cache, unless they are mapped."""
    for file in store_files(path):
        with file.open("rb") as data:
            os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_share(path: Path, tokenizer: MyBertTokenizer, ranks: int, batch_size: int) -> str:
    """Make the first rank's batches of the first group, for this many ranks; returns a row of the table."""
    forget(path)
    begun, before = bytes_read(), memory("RssAnon")
    opening, dataset = timed(
        lambda: PretrainingDataset(
            TokenStore(path), cls_token_id=tokenizer.cls_token_id, sep_token_id=tokenizer.sep_token_id
        )
    )
    opened = bytes_read()
    planning, _ = timed(lambda: dataset[0])
    planned = bytes_read()
    group = int(dataset._layout(0).ends[0])
    collator = PretrainingCollator(tokenizer)
    whole = BatchSampler(range(len(dataset)), batch_size, drop_last=True)
    batches = iter(BatchSamplerShard(whole, ranks, 0))
    sampling, indices = timed(lambda: list(islice(batches, group // (ranks * batch_size))))
    start, tokens = time.process_time(), 0
    for batch in indices:
        tokens += int(collator([dataset[index] for index in batch])["attention_mask"].sum())
    seconds, read = time.process_time() - start, bytes_read() - planned
    return row(
        ranks,
        f"{opening:.2f} s, {(opened - begun) / 1e6:.1f} MB",
        f"{planning:.2f} s, {(planned - opened) / 1e6:.1f} MB",
        f"{sampling / max(1, len(indices)) * 1e3:.2f} ms",
        f"{tokens:,}",
        f"{read / max(1, tokens):.1f}",
        f"{tokens / max(seconds, 1e-9) / 1e6:.2f} M",
        f"{memory('RssAnon') - before:,.0f}",
    )


class SaveTime(TrainerCallback):
    """Seconds between the end of a step and the end of saving."""

    seconds = 0.0
    _begin = 0.0

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._begin = time.perf_counter()

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.seconds = time.perf_counter() - self._begin


def save_once(model_size: str, folder: str) -> str:
    """Train a model for a step and save a checkpoint; what that took."""
    config = MyBertConfig(**fields_of_size(model_size))
    row = {"input_ids": torch.arange(8), "attention_mask": torch.ones(8, dtype=torch.long), "labels": torch.arange(8)}
    save_time = SaveTime()
    arguments = TrainingArguments(folder, max_steps=1, save_steps=1, logging_strategy="no", disable_tqdm=True)
    rows = [row | {"next_sentence_label": torch.tensor(0)}] * arguments.per_device_train_batch_size
    trainer = PretrainingTrainer(
        model=MyBertForPreTraining(config), args=arguments, train_dataset=rows, callbacks=[save_time]
    )
    trainer.train()
    checkpoint = Path(folder) / "checkpoint-1"
    size = sum(file.stat().st_size for file in checkpoint.rglob("*") if file.is_file())
    sealing, _ = timed(lambda: seal_checkpoint(checkpoint))
    return (
        f"A checkpoint of {model_size}: {size / 1e9:.2f} GB, {save_time.seconds:.1f} s to write "
        f"({size / 1e6 / max(save_time.seconds, 1e-9):,.0f} MB/s), {sealing * 1e3:.1f} ms of it to seal."
    )


@script(
    flag("store", type=Path),
    flag("--tokenizer", required=True),
    flag("--ranks", type=count, nargs="+", default=[1, 8, 256]),
    flag("--batch_size", type=count, default=32, help="sequences of a rank and micro-batch"),
    flag("--model_size", choices=MODEL_SIZES, default="base", help="of the checkpoint"),
)
def main(arguments: argparse.Namespace) -> None:
    tokenizer = MyBertTokenizer.from_pretrained(arguments.tokenizer)
    print(f"{arguments.store}: {TokenStore(arguments.store, tokenizer).summary}\n")
    costs = "opening", "planning a group", "sampler, a batch", "tokens of the share", "bytes read a token"
    print(heading("ranks", *costs, "tokens a CPU second", "own memory, MiB"))
    for ranks in arguments.ranks:
        print(read_share(arguments.store, tokenizer, ranks, arguments.batch_size), flush=True)
    with tempfile.TemporaryDirectory() as folder:
        print(f"\n{save_once(arguments.model_size, folder)}")


if __name__ == "__main__":
    main()
