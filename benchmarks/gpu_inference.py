"""Inference in bfloat16: mybert and transformers with SDPA, and with flash attention if installed."""

import statistics
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from accelerate.utils import send_to_device

from .accelerator import GpuSettings, Section
from .model_speed import SENTENCES
from .peers import PEER, Batch, Encoder, encoder_of, twins
from .runtimes import random_batch
from .timing import take_turns

HEADER = """| size | batch | full | | milliseconds | real tokens/s | times as fast |
|---|---|---:|---|---:|---:|---:|"""
# Mean difference of hidden states of size 1: bfloat16 has a precision of 0.004, and every layer rounds.
TOLERANCE = 0.02


def batches(settings: GpuSettings) -> dict[str, Batch]:
    """Batches of sentences with realistic lengths, 45 % full, and of full rows of the maximum length."""
    longest = max(settings.lengths)
    copies = max(1, settings.tokens // (len(SENTENCES) * max(SENTENCES)))
    return {
        "sentences": random_batch(SENTENCES * copies, settings.vocabulary),
        f"rows of {longest}": random_batch((longest,) * max(1, settings.tokens // longest), settings.vocabulary),
    }


def inference_section(settings: GpuSettings) -> Section:
    """Yield a row for every size, batch and side; different hidden states are an error."""
    yield HEADER
    for size in settings.sizes:
        network = settings.network(size) | {"max_position_embeddings": max(512, *settings.lengths)}
        models = [model.to(settings.device, torch.bfloat16) for model in twins(**network)]
        for what, batch in batches(settings).items():
            tensors = send_to_device(batch, settings.device)
            tokens = int(batch["attention_mask"].sum())
            full = tokens / batch["input_ids"].numel()
            if full == 1:
                del tensors["attention_mask"]
            sides: dict[str, Encoder] = {PEER: encoder_of(models[1]), "mybert": encoder_of(models[0])}
            _assert_same_states(sides, tensors, batch["attention_mask"].bool())
            runs: dict[str, Callable[[], Any]] = {name: partial(encode, tensors) for name, encode in sides.items()}
            seconds = take_turns(runs, settings.steps) | _with_flash_attention(models[1], tensors, settings)
            peer = statistics.median(seconds[PEER])
            for name, values in seconds.items():
                median = statistics.median(values)
                speeds = f"{1000 * median:.2f} | {tokens / median:,.0f} | {peer / median:.2f}"
                yield f"| {size} | {what} | {full:.0%} | {name} | {speeds} |"


def _assert_same_states(sides: dict[str, Encoder], batch: Batch, is_token: torch.Tensor) -> None:
    states = [encode(batch).float().cpu()[is_token] for encode in sides.values()]
    difference = float((states[1] - states[0]).abs().mean())
    assert difference < TOLERANCE, f"states differ by {difference:.3f}"


def _with_flash_attention(model: Any, batch: Batch, settings: GpuSettings) -> dict[str, list[float]]:
    """Seconds of transformers with flash attention 2; empty if neither `flash_attn` nor `kernels` provides it."""
    try:
        model.set_attn_implementation("flash_attention_2")
    except (ImportError, ValueError, OSError):  # not installed, not for this device, or no network
        return {}
    try:
        runs = {"transformers, flash attention 2": partial(encoder_of(model), batch)}
        return take_turns(runs, settings.steps)
    finally:
        model.set_attn_implementation("sdpa")
