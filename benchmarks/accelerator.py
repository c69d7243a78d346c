"""What the parts of the GPU report share: its settings, the device, the rate of its products, seconds and memory."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from ..modeling_mybert.configuration_mybert import fields_of_size
from .timing import median_seconds

VOCABULARY = 30592  # a multiple of 64 above 30,522: the same for all sides
MASKED = 0.15
WARM_UP = 3  # calls before those that count
Section = Iterator[str]  # the lines of a part of the report, each as soon as it is known


def accelerator() -> str:
    """`cuda`, or `cpu` where there is none, on which everything can be tried at a tiny size."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def matrix_rate(device: str, dtype: torch.dtype) -> float:
    """Operations a second of a large matrix product."""
    edge = 8192 if device == "cuda" else 512
    one, other = torch.randn(2, edge, edge, device=device).to(dtype)
    return 2 * edge**3 / median_seconds(lambda: one @ other, 12)


@dataclass(frozen=True)
class GpuSettings:
    """What is measured, and on what.

    Attributes:
        sizes: Of models, by name.
        lengths: Longest sequences of batches, in tokens.
        fills: Mean lengths of sequences over the longest: 1, 1/2, 1/3 and so on.
        tokens: Real tokens of a batch, a multiple of the lengths.
        steps: Timed calls, of which medians are reported.
        recipe_steps: Of the recipe's training.
        backend: Of torch.compile.
        vocabulary: Words.
        device: See `accelerator`.
    """

    sizes: tuple[str, ...] = ("base", "large")
    lengths: tuple[int, ...] = (128, 512)
    fills: tuple[float, ...] = (0.5, 1.0)
    tokens: int = 32768
    steps: int = 10
    recipe_steps: int = 60
    backend: str = "inductor"
    vocabulary: int = VOCABULARY
    device: str = field(default_factory=accelerator)

    def network(self, size: str) -> dict[str, Any]:
        """Fields of a configuration, without dropout."""
        without_dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
        return {"vocab_size": self.vocabulary, **fields_of_size(size), **without_dropout}

    def autocast(self) -> torch.autocast:
        """Products in bfloat16."""
        return torch.autocast(self.device, dtype=torch.bfloat16)

    def measured(self, call: Callable[[], Any]) -> tuple[float, float]:
        """Median seconds of a call, and the most memory meanwhile in GB, NaN on a CPU."""
        on_gpu = self.device == "cuda"
        if on_gpu:
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
        for _ in range(WARM_UP):
            call()
        return median_seconds(call, self.steps), torch.cuda.max_memory_allocated() / 1e9 if on_gpu else float("nan")
