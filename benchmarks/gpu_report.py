"""All GPU measurements in one Markdown file: training, optimizer, inference, prediction, vocabulary layer, recipe.

    make gpu                                            the tests that need a GPU, then this
    python -m mybert.benchmarks.gpu_report --output gpu_report.md

A quarter of an hour, each part with its limit, the rest for the recipe itself:

    timeout 150 python -m mybert.benchmarks.gpu_report --sections training --sizes large --fills 1 --output large.md
    timeout 60 python -m mybert.benchmarks.gpu_report --sections optimizer --output optimizer.md
    timeout 90 python -m mybert.benchmarks.gpu_report --sections products --sizes base --output products.md
    timeout 120 python -m mybert.benchmarks.gpu_report --sections prediction --sizes base --output prediction.md
    mybert pretrain --config gpu_1_hour --text corpus/ --output_dir my-bert --max_hours 0.1

MLPerf Training's BERT-large reads 970 sequences of up to 512 tokens a second on an H100, in FP8. Every row is written
as soon as it is measured, so an interrupted run keeps its rows. Every timing includes a check that both sides compute
the same; if they do not, the section ends there, and the exit status is 1.
"""

import argparse
import importlib.util
import shlex
import statistics
import sys
import tempfile
import time
import traceback
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
import yaml
from accelerate.utils import send_to_device
from torch import nn

from ..files.checkpoint import read_json_object
from ..modeling_mybert import IGNORE_INDEX, linear_mybert
from ..modeling_mybert.losses_mybert import linear_cross_entropy
from ..pretraining import MODEL_SIZES, build_token_store, pretrain
from ..runs import MuonWithAdamW, MyBertAdamW, matrix_groups, optimizers, parameter_groups
from ..runs.model_sizes import fields_of_size
from ..studies.timing import describe_setting, heading, row
from ..tokenization import MyBertTokenizer
from .harness import (
    NO_DROPOUT,
    PEER,
    Batch,
    check_agreement,
    count,
    flag,
    matched_models,
    median_seconds,
    pretraining_settings,
    random_batch,
    script,
    take_turns,
)
from .model_speed import SENTENCES
from .packed_prediction import prediction_section
from .runtimes import encoder_of, matched_encoders

TITLES = {
    "training": "Training: MLM + NSP steps in bfloat16, AdamW",
    "optimizer": "Steps of optimizers",
    "products": "Training step with one product for query, key and value",
    "vocabulary": "Vocabulary layer and loss, forward and backward",
    "inference": "Inference in bfloat16",
    "prediction": "Classes of sentences in bfloat16, compiled",
    "recipe": "The recipe gpu_1_hour, shortened",
}
VOCABULARY = 30592  # a multiple of 64 above 30,522: the same for all sides
MASKED = 0.15
WARM_UP = 3  # untimed calls before the timed ones
# Relative, for the first loss and its gradient's norm in bfloat16; the same of the vocabulary layer; and the mean
# difference of hidden states of size 1: bfloat16 has a precision of 0.004, and every layer rounds.
TRAINING_TOLERANCE, VOCABULARY_TOLERANCE, STATES_TOLERANCE = 0.01, 0.02, 0.02
RECIPE = Path(__file__).resolve().parents[1] / "pretraining" / "recipes" / "gpu_1_hour.yaml"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
STORE_TOKENS, SENTENCE, DOCUMENT = 4_000_000, 20, 10  # tokens; tokens of a sentence; sentences of a document
Section = Iterator[str]  # the lines of a section of the report, each as soon as it is measured


Settings = argparse.Namespace  # the flags of `main`, and the device


def network(settings: Settings, size: str) -> dict[str, Any]:
    """Return fields of a configuration, without dropout."""
    return {"vocab_size": settings.vocabulary, **fields_of_size(size), **NO_DROPOUT}


def autocast(settings: Settings) -> torch.autocast:
    return torch.autocast(settings.device, dtype=torch.bfloat16)


def measured(call: Callable[[], Any], settings: Settings) -> tuple[float, float]:
    """Return the median seconds of a call, and its peak memory in GB, NaN on a CPU."""
    if settings.device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    return median_seconds(call, settings.steps, WARM_UP), gpu_memory(settings)


def gpu_memory(settings: Settings) -> float:
    return torch.cuda.max_memory_allocated() / 1e9 if settings.device == "cuda" else float("nan")


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a large matrix product."""
    edge = 8192 if device == "cuda" else 512
    one, other = torch.randn(2, edge, edge, device=device).to(dtype)
    return 2 * edge**3 / median_seconds(lambda: one @ other, 12)


# Training: both sides get the same sequences and weights. transformers, compiled, gets one sequence per row, padded to
# one length (full batches without a mask, for its fastest attention). mybert gets rows of that length with several
# sequences and their boundaries (`cu_seq_lens_q`), without padding. Shapes are constant. Tokens are real tokens.


def draw_lengths(rows: int, length: int, per_row: int, generator: torch.Generator) -> list[int]:
    """Random lengths of sequences that fill rows of a length, this many in each row."""
    lengths: list[int] = []
    for _ in range(rows):
        ends = torch.randperm(length - 1, generator=generator)[: per_row - 1].sort().values + 1
        lengths += torch.tensor([0, *ends, length]).diff().tolist()
    return lengths


def make_batches(lengths: list[int], length: int, vocabulary: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Batches of the same sequences, padded and in full rows."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(min(1000, vocabulary // 2), vocabulary, (sum(lengths),), generator=generator)
    labels = ids.where(torch.rand(ids.shape, generator=generator) < MASKED, IGNORE_INDEX)
    next_sentence = torch.randint(0, 2, (len(lengths),), generator=generator)
    is_token = torch.arange(length) < torch.tensor(lengths)[:, None]

    def pad(tensor: torch.Tensor, value: int) -> torch.Tensor:
        return torch.full(is_token.shape, value).masked_scatter(is_token, tensor)

    padded = {"input_ids": pad(ids, 0), "labels": pad(labels, IGNORE_INDEX), "next_sentence_label": next_sentence}
    if not is_token.all():
        padded["attention_mask"] = is_token.long()
    cu_seqlens = torch.tensor([0, *lengths]).cumsum(0).int()
    rows = {
        "input_ids": ids.view(-1, length),
        "position_ids": torch.cat([torch.arange(each) for each in lengths]).view(-1, length),
        "labels": labels.view(-1, length),
        "next_sentence_label": next_sentence,
        "prediction_indices": (labels != IGNORE_INDEX).nonzero().squeeze(1),
        "cu_seq_lens_q": cu_seqlens,
        "cu_seq_lens_k": cu_seqlens,
        "max_length_q": length,
        "max_length_k": length,
    }
    return padded, rows


def needed_work(size: str, lengths: torch.Tensor, masked: int, vocabulary: int) -> float:
    """Return the floating-point operations of a step: three times the forward products (Kaplan et al., 2020)."""
    layers, width, _ = MODEL_SIZES[size]
    tokens = float(lengths.sum())
    # only labels run through the output layer
    products = layers * 12 * width * width * tokens + masked * (width * width + width * vocabulary)
    attention = layers * 2 * width * float((lengths.double() ** 2).sum())
    return 3 * 2 * (products + attention)


def compiled_bert(model: Any, backend: str) -> Callable[..., torch.Tensor]:
    """The loss of transformers, as its model computes it, but compiled; inside the model it would not be."""
    for part in (*model.bert.encoder.layer, model.cls.predictions):
        part.compile(backend=backend, dynamic=False)

    @torch.compile(backend=backend, dynamic=False)
    def both_losses(
        words: torch.Tensor, pairs: torch.Tensor, labels: torch.Tensor, next_sentence_label: torch.Tensor
    ) -> torch.Tensor:
        of_words = F.cross_entropy(words.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE_INDEX)
        return of_words + F.cross_entropy(pairs.float(), next_sentence_label)

    def loss(labels: torch.Tensor, next_sentence_label: torch.Tensor, **batch: torch.Tensor) -> torch.Tensor:
        outputs = model(**batch)
        return both_losses(outputs.prediction_logits, outputs.seq_relationship_logits, labels, next_sentence_label)

    return loss


def compiled_my_bert(model: Any, backend: str) -> Callable[..., torch.Tensor]:
    """The loss of mybert, compiled in parts like the other side; `mybert pretrain --torch_compile` compiles all."""
    for layer in model.bert.encoder.layer:
        layer.compile(backend=backend, dynamic=False)  # one graph for all layers saves minutes
    head = model.cls.predictions
    head.with_loss = torch.compile(head.with_loss, backend=backend, dynamic=False)
    return lambda **batch: model(**batch).loss


SIDES = {"transformers, compiled": compiled_bert, "mybert, packed and compiled": compiled_my_bert}


class TrainingSide:
    """One side in training, with learning rate 0, so that the weights stay the same."""

    def __init__(self, side: str, model: nn.Module, settings: Settings) -> None:
        self._model, self._settings = model.train().to(settings.device), settings
        self._loss = SIDES[side](model, settings.backend)
        self._optimizer = torch.optim.AdamW(model.parameters(), lr=0.0, fused=True)

    def loss_and_gradient(self, batch: dict[str, Any]) -> tuple[float, float]:
        """The loss and the norm of its gradient."""
        self._optimizer.zero_grad()  # an earlier batch may have run out of memory halfway
        loss = self._forward_and_backward(batch)
        gradients = [p.grad for p in self._model.parameters() if p.grad is not None]
        found = float(loss), float(torch.nn.utils.get_total_norm(gradients))
        self._optimizer.zero_grad()
        return found

    def step(self, batch: dict[str, Any]) -> None:
        self._forward_and_backward(batch)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _forward_and_backward(self, batch: dict[str, Any]) -> torch.Tensor:
        with autocast(self._settings):
            loss = self._loss(**batch)
        loss.backward()
        return loss.detach()


def training_section(settings: Settings, rate: float) -> Section:
    """Yield a row for every size, side, length and fill; different losses or gradients are an error."""
    speed = "tokens/s", "sequences/s", "fraction of the matrix rate"
    yield heading("size", "length", "full", "", *speed, "peak memory, GB", "times as fast")
    for size in settings.sizes:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):  # otherwise it would continue uncompiled
            yield from _training_rows(size, settings, rate)


def _training_rows(size: str, settings: Settings, rate: float) -> Section:
    losses: dict[tuple[int, float], tuple[float, float]] = {}
    speeds: dict[tuple[int, float], float] = {}
    models = matched_models("ForPreTraining", network(settings, size)).values()
    for place, (name, model) in enumerate(zip(SIDES, models, strict=True)):
        torch.compiler.reset()
        training = TrainingSide(name, model, settings)
        for length, fill in product(settings.lengths, settings.fills):
            generator = torch.Generator().manual_seed(0)
            lengths = draw_lengths(settings.tokens // length, length, round(1 / fill), generator)
            batches = make_batches(lengths, length, settings.vocabulary)
            batch = send_to_device(batches[place], settings.device)
            labels = int((batch["labels"] != IGNORE_INDEX).sum())
            work, tokens = needed_work(size, torch.tensor(lengths), labels, settings.vocabulary), sum(lengths)
            cells = (size, length, f"{tokens / batches[0]['input_ids'].numel():.0%}", name)
            try:
                found = training.loss_and_gradient(batch)
                seconds, peak = measured(partial(training.step, batch), settings)
            except torch.OutOfMemoryError:
                yield row(*cells, "out of memory", "", "", "", "")
                continue
            expected = losses.setdefault((length, fill), found)
            for what, values, others in zip(("the losses", "the gradients' norms"), found, expected, strict=True):
                check_agreement(what, values, others, TRAINING_TOLERANCE, relative=True)
            speed = tokens / seconds
            if place == 0:
                speeds[length, fill] = speed
            times = f"{speed / speeds[length, fill]:.2f}" if (length, fill) in speeds else ""
            speed_cells = f"{speed:,.0f}", f"{len(lengths) / seconds:,.0f}"
            yield row(*cells, *speed_cells, f"{work / seconds / rate:.0%}", f"{peak:.1f}", times)
        model.to("meta")  # free its memory for the next model


# Muon with its matrices one by one and stacked, and Adam.


def optimizer_section(settings: Settings) -> Section:
    """Yield a row for every size and optimizer; different updates of Muon are an error."""
    yield heading("size", "optimizer", "milliseconds", "times as fast")
    muon = partial(_muon, fused=settings.device == "cuda")
    sides: dict[str, tuple[Any, Any]] = {
        "Muon, one by one": (muon, _one_by_one),
        "Muon": (muon, optimizers._stacks),
        "AdamW": (_adam, list),
    }
    for size in settings.sizes:
        seconds: dict[str, float] = {}
        moved: list[torch.Tensor] = []
        for name, (make, stacks) in sides.items():
            model = matched_models("ForPreTraining", network(settings, size))["mybert"].to(settings.device)
            generator = torch.Generator(settings.device).manual_seed(0)
            for each in model.parameters():
                each.grad = torch.randn(each.shape, generator=generator, device=settings.device)
            matrix = model.bert.encoder.layer[0].intermediate.dense.weight
            start, optimizer = matrix.detach().clone(), make(model)
            with mock.patch.object(optimizers, "_stacks", stacks):
                optimizer.step()
                moved.append((matrix.detach() - start).float().cpu())
                seconds[name], _ = measured(optimizer.step, settings)
            if make is muon:
                check_agreement("the updates", moved[-1], moved[0], VOCABULARY_TOLERANCE, relative=True)
            ratio = next(iter(seconds.values())) / seconds[name]
            yield row(size, name, f"{1000 * seconds[name]:.2f}", f"{ratio:.2f}")


def _muon(model: nn.Module, fused: bool) -> torch.optim.Optimizer:
    return MuonWithAdamW(*matrix_groups(model, parameter_groups(model)), fused=fused)


def _adam(model: nn.Module) -> torch.optim.Optimizer:
    return MyBertAdamW(parameter_groups(model))


def _one_by_one(matrices: list[Any]) -> list[list[Any]]:
    return [[matrix] for matrix in matrices]


def products_section(settings: Settings) -> Section:
    """Yield a row for steps with three products and with one; different losses or gradients are an error."""
    yield heading("size", "length", "query, key and value", "milliseconds", "times as fast")
    for size, length in product(settings.sizes, settings.lengths):
        lengths = [length] * (settings.tokens // length)
        batch = send_to_device(make_batches(lengths, length, settings.vocabulary)[1], settings.device)
        sides: list[tuple[float, tuple[float, float]]] = []
        for name, is_joined in (("three products", False), ("one product", settings.device == "cuda")):
            torch.compiler.reset()
            model = matched_models("ForPreTraining", network(settings, size))["mybert"]
            with mock.patch.object(linear_mybert, "_is_joined", lambda states, is_joined=is_joined: is_joined):
                training = TrainingSide("mybert, packed and compiled", model, settings)
                values = training.loss_and_gradient(batch)
                sides.append((measured(partial(training.step, batch), settings)[0], values))
            check_agreement("the losses", values, sides[0][1], TRAINING_TOLERANCE, relative=True)
            yield row(size, length, name, f"{1000 * sides[-1][0]:.2f}", f"{sides[0][0] / sides[-1][0]:.2f}")
            model.to("meta")


# The masked-LM output layer with its loss, forward and backward, in bfloat16: plain, and by kernels without logits,
# `torch.nn.functional.linear_cross_entropy` (torch 2.13) and Liger's, which compute it in chunks of rows. Neither
# returns logits, which accuracy needs, and torch's does not work in graphs of torch.compile.
Way = Callable[[nn.Linear, torch.Tensor, torch.Tensor], torch.Tensor]


def plain(layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As `MyBertForPreTraining` computes it, logits included."""
    return linear_cross_entropy(layer, states, labels)[1]


def torch_in_chunks(layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """PyTorch's kernel, in chunks of rows that it chooses; products are in the dtype of its arguments."""
    return F.linear_cross_entropy(
        *(states.bfloat16(), layer.weight.bfloat16(), labels),
        linear_bias=layer.bias.bfloat16(),
        ignore_index=IGNORE_INDEX,
        options=nn.LinearCrossEntropyOptions(),
    ).float()


def liger(layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss  # type: ignore[import-not-found]

    loss = LigerFusedLinearCrossEntropyLoss(ignore_index=IGNORE_INDEX)
    return loss(layer.weight.bfloat16(), states.bfloat16(), labels, layer.bias.bfloat16()).float()


def ways(settings: Settings) -> dict[str, Way]:
    found: dict[str, Way] = {"mybert": plain, "mybert, compiled": torch.compile(plain, backend=settings.backend)}
    if hasattr(nn, "LinearCrossEntropyOptions"):
        found["torch, in chunks"] = torch_in_chunks
    if settings.device == "cuda" and importlib.util.find_spec("liger_kernel") is not None:
        found["Liger"] = liger
    return found


def vocabulary_section(settings: Settings) -> Section:
    """Yield a row for every width and implementation; different losses or gradients are an error."""
    yield heading("width", "labels", "", "milliseconds", "peak memory, GB")
    labeled = round(MASKED * settings.tokens)
    for size in settings.sizes:
        width = MODEL_SIZES[size][1]
        torch.manual_seed(0)
        torch.compiler.reset()
        layer = nn.Linear(width, settings.vocabulary, device=settings.device)
        states = torch.randn(labeled, width, device=settings.device, requires_grad=True)
        labels = torch.randint(0, settings.vocabulary, (labeled,), device=settings.device)
        expected: list[float] = []
        for name, way in ways(settings).items():
            step = partial(_loss_and_gradients, way, layer, states, labels, settings)
            found = [float(tensor.norm()) for tensor in step()]
            expected = expected or found
            for value, other in zip(found, expected, strict=True):
                check_agreement(f"norms with {name}", value, other, VOCABULARY_TOLERANCE, relative=True)
            seconds, peak = measured(step, settings)
            yield row(width, f"{labeled:,}", name, f"{1000 * seconds:.2f}", f"{peak:.2f}")


def _loss_and_gradients(
    way: Way, layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor, settings: Settings
) -> list[torch.Tensor]:
    with autocast(settings):
        loss = way(layer, states, labels)
    return [loss.detach(), *torch.autograd.grad(loss, (states, layer.weight, layer.bias))]


# Inference in bfloat16: mybert and transformers with SDPA, and with flash attention if installed.


def inference_section(settings: Settings) -> Section:
    """Yield a row for every size, batch (sentences, full rows) and side; different hidden states are an error."""
    yield heading("size", "batch", "full", "", "milliseconds", "real tokens/s", "times as fast")
    longest = max(settings.lengths)
    copies = max(1, settings.tokens // (len(SENTENCES) * max(SENTENCES)))
    batches = {
        "sentences": random_batch(SENTENCES * copies, settings.vocabulary),
        f"rows of {longest}": random_batch((longest,) * max(1, settings.tokens // longest), settings.vocabulary),
    }
    for size in settings.sizes:
        sizes = network(settings, size) | {"max_position_embeddings": max(512, longest)}
        models = {name: model.to(settings.device, torch.bfloat16) for name, model in matched_encoders(sizes).items()}
        sides = {name: encoder_of(model) for name, model in models.items()}
        for what, batch in batches.items():
            tensors = send_to_device(batch, settings.device)
            is_token = batch["attention_mask"].bool()
            tokens, full = int(is_token.sum()), float(is_token.float().mean())
            if full == 1:
                del tensors["attention_mask"]
            states = [encode(tensors).float().cpu()[is_token] for encode in sides.values()]
            check_agreement("the states", (states[1] - states[0]).abs().mean(), 0, STATES_TOLERANCE)
            runs: dict[str, Callable[[], Any]] = {name: partial(encode, tensors) for name, encode in sides.items()}
            seconds, _ = take_turns(runs, settings.steps)
            seconds |= _with_flash_attention(models[PEER], tensors, settings)
            peer = statistics.median(seconds[PEER])
            for name, values in seconds.items():
                median = statistics.median(values)
                cells = f"{1000 * median:.2f}", f"{tokens / median:,.0f}", f"{peer / median:.2f}"
                yield row(size, what, f"{full:.0%}", name, *cells)


def _with_flash_attention(model: Any, batch: Batch, settings: Settings) -> dict[str, list[float]]:
    """Seconds of transformers with flash attention 2; empty if neither `flash_attn` nor `kernels` provides it."""
    try:
        model.set_attn_implementation("flash_attention_2")
    except (ImportError, ValueError, OSError):  # not installed, not for this device, or no network
        return {}
    try:
        return take_turns({"transformers, flash attention 2": partial(encoder_of(model), batch)}, settings.steps)[0]
    finally:
        model.set_attn_implementation("sdpa")


# Some steps of the recipe `gpu_1_hour`, with its own data pipeline, on generated text.


def made_up_documents(tokens: int, words: int) -> Iterator[list[str]]:
    """Documents with about this many tokens from this many words, distributed by Zipf's law."""
    generator = torch.Generator().manual_seed(0)
    size = SENTENCE * DOCUMENT
    documents = max(4, tokens // size)
    drawn = torch.multinomial(1 / torch.arange(1, words + 1), documents * size, replacement=True, generator=generator)
    for document in drawn.view(documents, DOCUMENT, SENTENCE):
        yield [" ".join(f"w{word}" for word in sentence) for sentence in document.tolist()]


def recipe_section(settings: Settings, rate: float, changes: Mapping[str, Any]) -> Section:
    """Yield a row for the recipe's training with `changes`; `rate` is the device's in operations per second."""
    yield heading(
        *(
            "steps",
            "sequences a step",
            "tokens/s",
            "fraction of the matrix rate",
            "peak memory, GB",
            "first loss",
            "last",
        )
    )
    recipe = yaml.safe_load(RECIPE.read_text(encoding="utf-8"))
    steps = settings.recipe_steps
    recipe |= {"max_hours": None, "max_steps": steps, "logging_steps": max(1, steps // 6)}
    recipe |= {"eval_strategy": "no", "eval_steps": None, "save_strategy": "no", "disable_tqdm": True}
    recipe |= {"batch_ramp": 0.0, "validation_split": 0.0}  # each part of the ramp would be compiled again
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        words = [f"w{number}" for number in range(settings.vocabulary - len(SPECIAL))]
        tokenizer = MyBertTokenizer(vocab=[*SPECIAL, *words])
        tokenizer.save_pretrained(folder / "tokenizer")
        documents = made_up_documents(min(STORE_TOKENS, 100 * settings.tokens), len(words))
        build_token_store(documents, tokenizer, folder / "store.safetensors", show_progress=False)
        recipe |= {"token_store": str(folder / "store.safetensors"), "tokenizer": str(folder / "tokenizer")}
        recipe |= {"output_dir": str(folder / "run"), **changes}
        if settings.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        torch.compiler.reset()
        pretrain(**recipe)
        state = read_json_object(folder / "run" / "trainer_state.json")
    logs = [entry for entry in state["log_history"] if "tokens_per_second" in entry]
    # The first steps include compilation.
    speed = statistics.median(entry["tokens_per_second"] for entry in logs[len(logs) // 2 :])
    length = recipe["max_length"]
    work = needed_work(recipe["model_size"], torch.tensor([length]), round(MASKED * length), settings.vocabulary)
    sequences = recipe["per_device_train_batch_size"] * recipe["gradient_accumulation_steps"]
    sequences *= recipe["row_length"] // length
    losses = (f"{logs[place]['mlm_loss']:.2f}" for place in (0, -1))
    shares = f"{speed * work / length / rate:.0%}", f"{gpu_memory(settings):.1f}"
    yield row(state["global_step"], f"{sequences:,}", f"{speed:,.0f}", *shares, *losses)


# The report.


def tests_section(path: Path) -> tuple[str, bool]:
    """The lines for pytest's JUnit file, and whether no test failed."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    skipped = sum(case.find("skipped") is not None for case in cases)
    lines = [f"{len(cases) - len(bad) - skipped} passed, {len(bad)} failed, {skipped} skipped."]
    lines += [f"- failed: `{case.get('classname')}::{case.get('name')}`" for case in bad]
    return "\n".join(lines), not bad


@script(
    flag("--output", type=Path, default=Path("gpu_report.md")),
    flag("--tests", type=Path, help="pytest's JUnit file, to be told of in the report"),
    flag("--sections", nargs="+", default=list(TITLES), choices=TITLES),
    flag("--sizes", nargs="+", default=["base", "large"], choices=MODEL_SIZES),
    flag("--lengths", nargs="+", type=count, default=[128, 512], help="maximum lengths of sequences"),
    flag("--fills", nargs="+", type=float, default=[0.5, 1.0], help="mean length over the longest: 1, 0.5, 0.25, ..."),
    flag("--tokens", type=count, default=32768, help="real tokens of a batch, a multiple of the lengths"),
    flag("--sentences", type=count, default=20_000, help="sentences of the section prediction"),
    flag("--steps", type=count, default=10, help="timed calls, after three others; the medians are reported"),
    flag("--recipe_steps", type=count, default=60, help="of the recipe's training"),
    flag("--backend", default="inductor", help="of torch.compile"),
    flag("--vocabulary", type=count, default=VOCABULARY, help="words"),
    flag("--recipe_changes", default="{}", help="YAML: settings in place of the recipe's"),
)
def main(arguments: argparse.Namespace) -> None:
    """Measure and write line by line; exit status 1 if results disagree or a section fails."""
    arguments.device = "cuda" if torch.cuda.is_available() else "cpu"
    if arguments.device == "cpu" and "base" in arguments.sizes:
        raise ValueError("there is no CUDA device; name small --sizes and --tokens to try the report on a CPU.")
    changes = pretraining_settings(arguments.recipe_changes, f"--recipe_changes {arguments.recipe_changes!r}")
    torch.set_float32_matmul_precision("high")
    tests, is_good = tests_section(arguments.tests) if arguments.tests else ("", True)
    begin = time.perf_counter()
    rate = matrix_rate(arguments.device, torch.bfloat16)
    sections: dict[str, Callable[[], Section]] = {
        "training": lambda: training_section(arguments, rate),
        "optimizer": lambda: optimizer_section(arguments),
        "products": lambda: products_section(arguments),
        "vocabulary": lambda: vocabulary_section(arguments),
        "inference": lambda: inference_section(arguments),
        "prediction": lambda: prediction_section(arguments, partial(network, arguments)),
        "recipe": lambda: recipe_section(arguments, rate, changes),
    }
    with arguments.output.open("w", encoding="utf-8") as report:

        def add(lines: str) -> None:
            for place in (sys.stdout, report):
                print(lines, file=place, flush=True)

        add(f"# Report of a GPU\n\n{describe_setting()}")
        add(f"\nA large bfloat16 matrix product runs at {rate / 1e12:.4g} TFLOP/s. `{shlex.join(sys.argv)}`")
        if tests:
            add(f"\n## Tests\n\n{tests}")
        for name in arguments.sections:
            add(f"\n## {TITLES[name]}\n")
            try:
                for line in sections[name]():
                    add(line)
            except Exception as error:  # go on with the other sections
                traceback.print_exc()
                add(f"\nNot finished: {type(error).__name__}: {error}")
                is_good = False
            add(f"\n({time.perf_counter() - begin:.0f} seconds since the beginning.)")
    if not is_good:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
