"""Shared parts of the GPU report: settings, device, matrix-product rate, time and memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..modeling_mybert.configuration_mybert import fields_of_size
from .timing import median_seconds

VOCABULARY = 30592  # a multiple of 64 above 30,522: the same for all sides
MASKED = 0.15
WARM_UP = 3  # untimed calls before the timed ones
Section = Iterator[str]  # the lines of a section of the report, each as soon as it is measured


def accelerator() -> str:
    """`cuda`, or `cpu` without a GPU, on which everything runs at a tiny size."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Floating-point operations per second of a large matrix product."""
    edge = 8192 if device == "cuda" else 512
    one, other = torch.randn(2, edge, edge, device=device).to(dtype)
    return 2 * edge**3 / median_seconds(lambda: one @ other, 12)


@dataclass(frozen=True)
class GpuSettings:
    """What to measure, and on which device."""

    sizes: tuple[str, ...] = ("base", "large")
    lengths: tuple[int, ...] = (128, 512)  # maximum sequence lengths of batches, in tokens
    fills: tuple[float, ...] = (0.5, 1.0)  # ratios of mean to maximum length: 1, 1/2, 1/3 and so on
    tokens: int = 32768  # real tokens in a batch, a multiple of the lengths
    steps: int = 10  # timed calls, of which medians are reported
    recipe_steps: int = 60  # training steps of the recipe
    backend: str = "inductor"  # of torch.compile
    vocabulary: int = VOCABULARY  # its size
    device: str = field(default_factory=accelerator)

    def network(self, size: str) -> dict[str, Any]:
        """Return fields of a configuration, without dropout."""
        without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return {"vocab_size": self.vocabulary, **fields_of_size(size), **without_dropout}

    def autocast(self) -> torch.autocast:
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def measured(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Return the median seconds of a call, and its peak memory in GB, NaN on a CPU."""
        on_gpu = self.device == "cuda"
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        for _ in range(WARM_UP):
            call()
        return median_seconds(call, self.steps), torch.cuda.max_memory_allocated() / 1e9 if on_gpu else float("nan")
