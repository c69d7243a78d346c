"""Inference and training next to transformers and other runtimes, on the same weights and inputs.

python -m mybert.benchmarks.model_speed             all but the workloads on sentences; BERT-base, random weights
python -m mybert.benchmarks.model_speed --workloads sentences query --model_size mini
python -m mybert.benchmarks.model_speed --sst2 glue/SST-2       every workload
"""

import argparse
import logging
import math
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..files.machine import bfloat16_features
from ..files.processes import own_process
from ..files.progress import progress_bar
from ..files.source import read_rows
from ..modeling_mybert import IGNORE_INDEX, linear_kernels, set_linear_kernel
from ..modeling_mybert.configuration_mybert import fields_of_size
from ..modeling_mybert.linear_mybert import gradient_of_states, gradient_of_weight, multiply
from ..pretraining import MODEL_SIZES
from ..runs import MyBertAdamW
from ..studies.timing import evenly, heading, in_turns, memory, row
from .harness import (
    NO_DROPOUT,
    PEER,
    Batch,
    check_agreement,
    count,
    flag,
    matched_models,
    random_batch,
    script,
    speed_table,
    take_turns,
)
from .runtimes import PRODUCTS, RUNTIMES, RuntimeEncoders, matched_encoders, pytorch_encoders

logger = logging.getLogger(__name__)

# Tokens of 32 sentences of SST-2's development set (sentences 577 to 608), 45 % full when padded.
SENTENCES: tuple[int, ...] = (7, 8, 8, 9, 10, 12, 12, 13, 16, 17, 20, 22, 23, 24, 24, 25)
SENTENCES += (26, 27, 27, 27, 27, 27, 28, 29, 29, 30, 32, 33, 37, 38, 39, 53)
SKEWED = (*(min(length, 24) for length in SENTENCES[:-1]), 128)  # short texts and one long text, 18 % full
INFERENCE = {
    "sentences": ("32 sentences of real lengths", SENTENCES),
    "skewed": ("31 short texts and a long one", SKEWED),
    "dense": ("16 sequences of 128 tokens, no padding", (128,) * 16),
    "query": ("one query of 32 tokens", (32,)),
    "windows": ("4 windows of 512 tokens, no padding", (512,) * 4),
}
TRAINING = {"tiny": 32, "mini": 32, "base": 8}  # sequences per batch, by model size
TRAINING_LENGTH = 128
ON_SENTENCES = ("finetuning", "pipeline", "embeddings")  # workloads on SST-2
# Rows, input and output width: a single query, BERT-base's layers, those of 2 x 128, an output layer's labels.
MATRIX_PRODUCTS = ((32, 768, 3072), (2048, 768, 768), (2048, 768, 3072), (4096, 128, 512), (600, 128, 30522))
_PYTORCH = "PyTorch"
WORKLOADS = (*INFERENCE, "kernels", "training", "memory", *ON_SENTENCES)
# Maximum difference of float32 hidden states, scores and vectors; for gradients relative to the norm. Measured: 7e-6.
TOLERANCE = 1e-5


@script(
    flag(
        "--workloads", nargs="+", choices=WORKLOADS, help=f"default: all; {', '.join(ON_SENTENCES)} only with --sst2"
    ),
    flag("--model_size", default="base", choices=MODEL_SIZES, help="of the encoder"),
    flag("--training_sizes", nargs="+", default=list(TRAINING), choices=MODEL_SIZES, help="of the training workloads"),
    flag("--repeats", type=count, default=7, help="timed calls; pipeline, embeddings: at most 3, finetuning: 1"),
    flag("--sst2", type=Path, help=f"folder with SST-2's train.tsv, for {', '.join(ON_SENTENCES)}"),
    flag("--num_sentences", type=count, default=640, help=f"how many for {', '.join(ON_SENTENCES)}"),
    flag("--compiled", action="store_true", help="also compiled models (compiling takes minutes)"),
)
def main(arguments: argparse.Namespace) -> None:
    """Run the workloads, and print a Markdown table after each."""
    workloads = arguments.workloads or [name for name in WORKLOADS if arguments.sst2 or name not in ON_SENTENCES]
    if arguments.sst2 is None and set(ON_SENTENCES) & set(workloads):
        raise ValueError(f"sst2 is not set; {', '.join(ON_SENTENCES)} need the folder of SST-2's files.")
    if arguments.sst2 is not None and not Path(arguments.sst2, "train.tsv").is_file():
        raise ValueError(f"sst2 is {arguments.sst2}; expected a folder with SST-2's train.tsv.")
    print(f"In turns; medians of {arguments.repeats} unless said.", flush=True)
    if inference := [name for name in INFERENCE if name in workloads]:
        _inference(inference, arguments)
    for name, workload in (
        ("kernels", _kernels),
        ("training", _training),
        ("memory", _memory),
        ("finetuning", _finetuning),
        ("pipeline", _pipeline),
        ("embeddings", _embeddings),
    ):
        if name in workloads:
            workload(arguments)


def _section(title: str, table: str) -> None:
    print(f"\n## {title}\n\n{table}", flush=True)


def _inference(names: list[str], arguments: argparse.Namespace) -> None:
    """A section for each workload; the runtimes' processes keep their models loaded throughout."""
    runtimes = {_PYTORCH: partial(pytorch_encoders, compiled=arguments.compiled), **RUNTIMES}
    settings, threads = fields_of_size(arguments.model_size), torch.get_num_threads()
    encoders: dict[str, tuple[Callable[..., Any], list[str]]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for runtime, make in progress_bar(runtimes.items(), "preparing", leave=False):
            process = own_process(runtime, RuntimeEncoders, make, settings, threads, folder)
            try:
                ask = stack.enter_context(process)
            except ImportError as error:
                logger.warning("Without %s: %s.", runtime, error)
            else:
                encoders[runtime] = ask, ask("names")
        for name in names:
            _inference_section(name, encoders, arguments)


def _inference_section(
    workload: str, encoders: Mapping[str, tuple[Callable[..., Any], list[str]]], arguments: argparse.Namespace
) -> None:
    what, lengths = INFERENCE[workload]
    is_token = random_batch(lengths)["attention_mask"].bool().numpy()
    fill = float(is_token.mean())
    sides: dict[str, Callable[[str], Any]] = {}
    for is_sorted in (False, True)[: 1 + (fill < 1)]:  # sorted: the best case of those that compute padding
        for ask, names in encoders.values():
            for name in (name for name in names if not is_sorted or not name.startswith(("mybert", PRODUCTS))):
                sides[f"{name}, sorted" if is_sorted else name] = _side(ask, name, lengths, is_sorted)
    sides[PRODUCTS] = sides.pop(PRODUCTS)  # the last row
    notes = differences({name: side("states") for name, side in sides.items()}, is_token)
    seconds = in_turns({name: partial(side, "seconds") for name, side in sides.items()}, arguments.repeats)
    title = f"{workload}: {what} ({fill:.0%} full), {arguments.model_size}"
    _section(title, speed_table(seconds, PEER, notes))


def _side(ask: Callable[..., Any], *batch: Any) -> Callable[[str], Any]:
    return lambda method: ask(method, *batch)


def differences(states: Mapping[str, np.ndarray | None], is_token: np.ndarray) -> dict[str, str]:
    """Return the maximum difference of each side's states `(B, T, D)` at tokens `(B, T)` from the peer's, as text."""
    expected, notes = states[PEER], {}
    assert expected is not None, "the peer is an encoder"
    for name, found in states.items():
        if found is not None:  # a side without hidden states
            tolerance = math.inf if "int8" in name or "bfloat16" in name else TOLERANCE
            difference = check_agreement(f"{name}'s states", found[is_token], expected[is_token], tolerance)
            notes[name] = f"largest difference {difference:.0e}"
    return notes


def _kernels(arguments: argparse.Namespace) -> None:
    """Both kernels of float32 products, forward and backward, and the choice of "auto"."""
    if not torch.backends.mkldnn.is_available():
        logger.warning("Without kernels: this build of PyTorch has no oneDNN.")
        return
    chosen = linear_kernels()
    lines = [heading("rows, width -> width", "product", "gradient of the states", "gradient of the weight")]
    for rows, width, outputs in MATRIX_PRODUCTS:
        states, gradient = torch.randn(rows, width), torch.randn(rows, outputs)
        weight, bias = torch.randn(outputs, width), torch.randn(outputs)
        products: tuple[Callable[[], torch.Tensor], ...] = (
            partial(multiply, states, weight, bias),
            partial(gradient_of_states, gradient, weight),
            partial(gradient_of_weight, gradient, states),
        )
        cells = [_compare_kernels(product, arguments.repeats) for product in products]
        lines.append(row(f"{rows}, {width} -> {outputs}", *cells))
    takes = [
        f"{what}: {'oneDNN' if by_onednn else 'MKL'}"
        for what, by_onednn in zip(("product", "gradient of the states", "of the weight"), chosen[:3], strict=True)
    ]
    lines.append(f"\nTaken here: {', '.join(takes)}; oneDNN from {chosen.smallest:,} multiplications on.")
    _section("kernels: float32 products by MKL -> oneDNN (times as fast)", "\n".join(lines))


def _compare_kernels(product: Callable[[], torch.Tensor], repeats: int) -> str:
    """Milliseconds of both kernels, whose results must agree."""

    @torch.no_grad()
    def by(kernel: str) -> torch.Tensor:
        set_linear_kernel(kernel)
        try:
            return product()
        finally:
            set_linear_kernel("auto")

    seconds, results = take_turns({kernel: partial(by, kernel) for kernel in ("mkl", "onednn")}, repeats)
    check_agreement("the kernels' products", results["onednn"], results["mkl"], TOLERANCE, relative=True)
    mkl, onednn = (1e3 * statistics.median(values) for values in seconds.values())
    return f"{mkl:.2f} -> {onednn:.2f} ms ({mkl / onednn:.2f})"


def training_batch(size: int, half_full: bool) -> Batch:
    lengths = (TRAINING_LENGTH,) * size
    if half_full:  # evenly spaced from an eighth to seven eighths of the length, and one of full length
        steps = torch.linspace(TRAINING_LENGTH / 8, TRAINING_LENGTH * 7 / 8, size).int().tolist()
        lengths = (*steps[:-1], TRAINING_LENGTH)
    batch = random_batch(lengths)
    generator = torch.Generator().manual_seed(1)
    is_masked = (torch.rand(batch["input_ids"].shape, generator=generator) < 0.15) & batch["attention_mask"].bool()
    return {
        **batch,
        "labels": batch["input_ids"].where(is_masked, IGNORE_INDEX),
        "next_sentence_label": torch.randint(0, 2, (size,), generator=generator),
    }


def training_step(
    model: torch.nn.Module, optimizer: torch.optim.Optimizer, batch: Batch, in_bfloat16: bool = False
) -> float:
    """One step: loss, gradient, update; with `in_bfloat16` as in `Trainer` with `bf16`."""
    with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
        loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return float(loss.detach())


def _assert_same_gradient(size: str, batch: Batch) -> None:
    gradients = []
    for model in matched_models("ForPreTraining", size, **NO_DROPOUT).values():
        model.train()(**batch).loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    check_agreement("the gradients", gradients[1], gradients[0], TOLERANCE, relative=True)


def _training(arguments: argparse.Namespace) -> None:
    for size in arguments.training_sizes:
        rows = TRAINING.get(size, 8)
        for half_full in (False, True):
            batch = training_batch(rows, half_full)
            _assert_same_gradient(size, batch)
            steps: dict[str, Callable[[], Any]] = {}
            for in_bfloat16 in (False, True)[: 1 + bool(bfloat16_features())]:
                for name, model in matched_models("ForPreTraining", size).items():
                    model.train()
                    optimizer = MyBertAdamW(model.parameters(), lr=1e-4)
                    side = f"{name} bfloat16" if in_bfloat16 else name
                    steps[side] = partial(training_step, model, optimizer, batch, in_bfloat16)
            seconds, _ = take_turns(steps, arguments.repeats)
            tokens = int(batch["attention_mask"].sum())
            notes = {name: f"{tokens / statistics.median(values):,.0f} tokens/s" for name, values in seconds.items()}
            fill = tokens / batch["input_ids"].numel()
            title = f"training: MLM + NSP step, {rows} x {TRAINING_LENGTH} ({fill:.0%} full), {size}, dropout 0.1"
            _section(title, speed_table(seconds, PEER, notes))


class TrainingStep:
    """A side's first training step, for a separate process."""

    def __init__(self, name: str, size: str, batch_size: int) -> None:
        self._model = matched_models("ForPreTraining", size)[name].train()
        # Without optimizer moments, which are the same on both sides.
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.0)
        self._batch = training_batch(batch_size, half_full=False)

    def memory(self) -> float:
        """Return the increase of the process's peak memory, in bytes."""
        before = memory("VmRSS")
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
        training_step(self._model, self._optimizer, self._batch)
        return (memory("VmHWM") - before) * 2**20


def _memory(arguments: argparse.Namespace) -> None:
    if not Path("/proc/self/clear_refs").exists():
        logger.warning("Without memory: this system does not tell a process's peak.")
        return
    lines = [heading("", "transformers SDPA, MB", "mybert, MB", "share")]
    for size in arguments.training_sizes:
        rows, peaks = TRAINING.get(size, 8), []
        for name in (PEER, "mybert"):
            with own_process(f"{name}'s step", TrainingStep, name, size, rows) as ask:
                peaks.append(ask("memory") / 1e6)
        cells = *(f"{peak:,.0f}" for peak in peaks), f"{peaks[1] / peaks[0]:.2f}"
        lines.append(row(f"{size}, {rows} x {TRAINING_LENGTH}", *cells))
    _section("memory: what one MLM + NSP step adds to the peak, gradients included", "\n".join(lines))


def _sst2(arguments: argparse.Namespace) -> tuple[list[tuple[str, int]], Any]:
    """Sentences with labels and a tokenizer whose vocabulary is trained on them."""
    from ..tokenization import train_wordpiece

    assert arguments.sst2 is not None, "checked with the arguments"
    rows = [(row["sentence"], int(row["label"])) for row in read_rows(Path(arguments.sst2) / "train.tsv")]
    tokenizer = train_wordpiece((sentence for sentence, _ in rows), 8000, vocab_layout="compact", show_progress=False)
    return list(evenly(rows, arguments.num_sentences)), tokenizer


def _finetuning(arguments: argparse.Namespace) -> None:
    """An epoch of `Trainer` on both sides; without dropout, so that both must reach the same weights."""
    from transformers import DataCollatorWithPadding, Trainer, TrainingArguments, set_seed

    rows, tokenizer = _sst2(arguments)
    examples = [{**tokenizer(sentence), "labels": label} for sentence, label in rows]
    models = matched_models("ForSequenceClassification", arguments.model_size, vocab_size=len(tokenizer), **NO_DROPOUT)
    runs = {}

    def train(trainer: Trainer) -> Any:
        set_seed(42)  # the order of the examples
        return trainer.train()

    with tempfile.TemporaryDirectory() as folder:
        settings = TrainingArguments(
            folder,
            num_train_epochs=1,
            per_device_train_batch_size=32,
            learning_rate=2e-5,
            logging_steps=1000,
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=not torch.cuda.is_available(),
            dataloader_pin_memory=torch.cuda.is_available(),
        )
        for name, model in models.items():
            collate = DataCollatorWithPadding(tokenizer)
            trainer = Trainer(model, settings, train_dataset=examples, data_collator=collate)
            runs[name] = partial(train, trainer)
        seconds, results = take_turns(runs, 1, untimed=0)
    losses = {name: result.training_loss for name, result in results.items()}
    check_agreement("the losses", losses["mybert"], losses[PEER], 1e-3)
    notes = {name: f"mean loss {loss:.4f}" for name, loss in losses.items()}
    title = f"finetuning: an epoch of Trainer, once, {len(rows)} sentences of SST-2, batch 32, {arguments.model_size}"
    _section(title, speed_table(seconds, PEER, notes))


def _pipeline(arguments: argparse.Namespace) -> None:
    from transformers import pipeline

    rows, tokenizer = _sst2(arguments)
    sentences = [sentence for sentence, _ in rows]
    models = matched_models("ForSequenceClassification", arguments.model_size, vocab_size=len(tokenizer))
    runs = {}
    for name, model in models.items():
        classify = pipeline("text-classification", model=model, tokenizer=tokenizer)
        runs[name] = partial(classify, sentences, batch_size=32)
    title = f"pipeline: text-classification of {len(sentences)} sentences of SST-2, batch 32, {arguments.model_size}"
    _few_turns(title, runs, lambda answers: [answer["score"] for answer in answers], arguments)


def _embeddings(arguments: argparse.Namespace) -> None:
    """sentence-transformers with both models inside, and its usual mean of the token states."""
    try:
        from sentence_transformers import SentenceTransformer
        from sentence_transformers.models import Pooling, Transformer
    except ImportError as error:
        logger.warning("Without embeddings: %s.", error)
        return
    rows, tokenizer = _sst2(arguments)
    sentences = [sentence for sentence, _ in rows]
    runs = {}
    for name, model in matched_encoders(fields_of_size(arguments.model_size)).items():
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
            transformer = Transformer(folder)
        pooling = Pooling(model.config.hidden_size)
        runs[name] = partial(SentenceTransformer(modules=[transformer, pooling]).encode, sentences, batch_size=32)
    title = f"embeddings: sentence-transformers, {len(sentences)} sentences of SST-2 by length, batch 32, "
    _few_turns(title + arguments.model_size, runs, np.asarray, arguments)


def _few_turns(
    title: str, runs: Mapping[str, Callable[[], Any]], values: Callable[[Any], Any], arguments: argparse.Namespace
) -> None:
    """A section for long runs; the values in their results must agree."""
    repeats = min(arguments.repeats, 3)
    seconds, results = take_turns(runs, repeats)
    check_agreement("the results", values(results["mybert"]), values(results[PEER]), TOLERANCE)
    _section(f"{title}, medians of {repeats}", speed_table(seconds, PEER))


if __name__ == "__main__":
    main()
