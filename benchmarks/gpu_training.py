"""MLM + NSP training: packed rows, compared with compiled transformers on padded rows, both in bf16.

Both sides train on the same sequences, with the same weights. transformers gets one sequence per row, padded to one
length (full batches without a mask, for its fastest attention). mybert gets rows of that length with several sequences
and their boundaries (`cu_seq_lens_q`), without padding. Shapes are constant on both sides. Tokens are real tokens.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from accelerate.utils import send_to_device

from ..modeling_mybert import IGNORE_INDEX
from ..pretraining import MODEL_SIZES
from .accelerator import MASKED, GpuSettings, Section
from .peers import training_twins

PEER = "transformers, compiled"
HEADER = """| size | length | full | | tokens/s | share of the matrix rate | peak memory, GB | times as fast |
|---|---:|---:|---|---:|---:|---:|---:|"""
TOLERANCE = 0.01  # relative, for the first loss and its gradient's norm, in bf16
Batch = dict[str, Any]


def draw_lengths(rows: int, length: int, per_row: int, generator: torch.Generator) -> list[int]:
    """Random lengths of sequences that fill rows of a length, this many in each row."""
    lengths: list[int] = []
    for _ in range(rows):
        ends = torch.randperm(length - 1, generator=generator)[: per_row - 1].sort().values + 1
        lengths += torch.tensor([0, *ends, length]).diff().tolist()
    return lengths


def make_batches(lengths: list[int], length: int, vocabulary: int) -> tuple[Batch, Batch]:
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
    borders = torch.tensor([0, *lengths]).cumsum(0).int()
    rows = {
        "input_ids": ids.view(-1, length),
        "position_ids": torch.cat([torch.arange(each) for each in lengths]).view(-1, length),
        "labels": labels.view(-1, length),
        "next_sentence_label": next_sentence,
        "prediction_indices": (labels != IGNORE_INDEX).nonzero().squeeze(1),
        "cu_seq_lens_q": borders,
        "cu_seq_lens_k": borders,
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


class _Theirs:
    """transformers' loss, as its model computes it, but compiled; inside the model it would not be."""

    def __init__(self, model: torch.nn.Module, backend: str) -> None:
        self.model = model
        for part in (*model.get_submodule("bert.encoder.layer").children(), model.get_submodule("cls.predictions")):
            part.compile(backend=backend, dynamic=False)
        self._both_losses = torch.compile(_both_losses, backend=backend, dynamic=False)

    def __call__(self, labels: torch.Tensor, next_sentence_label: torch.Tensor, **batch: torch.Tensor) -> torch.Tensor:
        outputs = self.model(**batch)
        return self._both_losses(
            outputs.prediction_logits, outputs.seq_relationship_logits, labels, next_sentence_label
        )


def _both_losses(
    words: torch.Tensor, pairs: torch.Tensor, labels: torch.Tensor, next_sentence_label: torch.Tensor
) -> torch.Tensor:
    of_words = F.cross_entropy(words.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORE_INDEX)
    return of_words + F.cross_entropy(pairs.float(), next_sentence_label)


class _Ours:
    """mybert's loss; compiled in parts, like the other side; `mybert pretrain --torch_compile` compiles the whole."""

    def __init__(self, model: torch.nn.Module, backend: str) -> None:
        self.model = model
        for layer in model.get_submodule("bert.encoder.layer").children():
            layer.compile(backend=backend, dynamic=False)  # one graph for all layers saves minutes
        head: Any = model.get_submodule("cls.predictions")
        head.with_loss = torch.compile(head.with_loss, backend=backend, dynamic=False)

    def __call__(self, **batch: Any) -> torch.Tensor:
        return self.model(**batch).loss


class _Measurement:
    """One side in training, with learning rate 0, so that the weights stay the same."""

    def __init__(self, side: _Theirs | _Ours, settings: GpuSettings) -> None:
        self._side = side
        self._settings = settings
        self._optimizer = torch.optim.AdamW(side.model.parameters(), lr=0.0, fused=True)

    def loss_and_gradient(self, batch: Batch) -> tuple[float, float]:
        self._optimizer.zero_grad()  # an earlier batch may have run out of memory halfway
        loss = self._forward_and_backward(batch)
        gradients = [p.grad for p in self._side.model.parameters() if p.grad is not None]
        found = float(loss), float(torch.nn.utils.get_total_norm(gradients))
        self._optimizer.zero_grad()
        return found

    def step(self, batch: Batch) -> None:
        self._forward_and_backward(batch)
        self._optimizer.step()
        self._optimizer.zero_grad()

    def _forward_and_backward(self, batch: Batch) -> torch.Tensor:
        with self._settings.autocast():
            loss = self._side(**batch)
        loss.backward()
        return loss.detach()


def training_section(settings: GpuSettings, rate: float) -> Section:
    """Yield a row for every size, side, length and fill; different losses or gradients are an error."""
    yield HEADER
    for size in settings.sizes:
        with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):  # otherwise it would continue uncompiled
            yield from _rows(size, settings, rate)


def _rows(size: str, settings: GpuSettings, rate: float) -> Section:
    cells = [(length, fill) for length in settings.lengths for fill in settings.fills]
    losses: dict[tuple[int, float], tuple[float, float]] = {}
    speeds: dict[tuple[int, float], float] = {}
    models = training_twins(**settings.network(size)).values()
    sides: tuple[tuple[str, type[_Theirs | _Ours]], ...] = ((PEER, _Theirs), ("mybert, packed and compiled", _Ours))
    for place, ((name, side), model) in enumerate(zip(sides, models, strict=True)):
        torch.compiler.reset()
        measurement = _Measurement(side(model.to(settings.device), settings.backend), settings)
        for length, fill in cells:
            generator = torch.Generator().manual_seed(0)
            lengths = draw_lengths(settings.tokens // length, length, round(1 / fill), generator)
            batches = make_batches(lengths, length, settings.vocabulary)
            batch = send_to_device(batches[place], settings.device)
            labels = int((batch["labels"] != IGNORE_INDEX).sum())
            work, tokens = needed_work(size, torch.tensor(lengths), labels, settings.vocabulary), sum(lengths)
            row = f"| {size} | {length} | {tokens / batches[0]['input_ids'].numel():.0%} | {name} "
            try:
                found = measurement.loss_and_gradient(batch)
                seconds, peak = settings.measured(partial(measurement.step, batch))
            except torch.OutOfMemoryError:
                yield f"{row}| out of memory | | | |"
                continue
            expected = losses.setdefault((length, fill), found)
            for ours, theirs in zip(found, expected, strict=True):
                assert abs(ours - theirs) <= TOLERANCE * theirs, f"loss and gradient are {found}, not {expected}"
            speed = tokens / seconds
            if place == 0:
                speeds[length, fill] = speed
            times = f"{speed / speeds[length, fill]:.2f}" if (length, fill) in speeds else ""
            yield f"{row}| {speed:,.0f} | {work / seconds / rate:.0%} | {peak:.1f} | {times} |"
        model.to("meta")  # free its memory for the next model
