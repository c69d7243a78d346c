"""The masked-LM output layer with its loss, forward and backward, in bfloat16: plain, and by kernels without logits.

These kernels, `torch.nn.functional.linear_cross_entropy` (torch 2.13) and Liger's, compute it in chunks of rows.
Neither returns logits, which accuracy needs, and torch's does not work in graphs of torch.compile.
"""

import importlib.util
from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from ..modeling_mybert import IGNORE_INDEX
from ..modeling_mybert.vocabulary_loss_mybert import linear_cross_entropy
from ..pretraining import MODEL_SIZES
from .accelerator import MASKED, GpuSettings, Section

HEADER = """| width | labels | | milliseconds | peak memory, GB |
|---:|---:|---|---:|---:|"""
TOLERANCE = 0.02  # relative, for the loss and the gradients' norms
Way = Callable[[nn.Linear, torch.Tensor, torch.Tensor], torch.Tensor]


def plain(layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """As `MyBertForPreTraining` computes it, logits included."""
    return linear_cross_entropy(layer, states, labels)[1]


def torch_in_chunks(layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """PyTorch's kernel, in chunks of rows that it chooses; products are in the dtype of its arguments."""
    return nn.functional.linear_cross_entropy(
        *(states.bfloat16(), layer.weight.bfloat16(), labels),
        linear_bias=layer.bias.bfloat16(),
        ignore_index=IGNORE_INDEX,
        options=nn.LinearCrossEntropyOptions(),
    ).float()


def liger(layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    from liger_kernel.transformers import LigerFusedLinearCrossEntropyLoss  # type: ignore[import-not-found]

    loss = LigerFusedLinearCrossEntropyLoss(ignore_index=IGNORE_INDEX)
    return loss(layer.weight.bfloat16(), states.bfloat16(), labels, layer.bias.bfloat16()).float()


def ways(settings: GpuSettings) -> dict[str, Way]:
    found: dict[str, Way] = {"mybert": plain, "mybert, compiled": torch.compile(plain, backend=settings.backend)}
    if hasattr(nn, "LinearCrossEntropyOptions"):
        found["torch, in chunks"] = torch_in_chunks
    if settings.device == "cuda" and importlib.util.find_spec("liger_kernel") is not None:
        found["Liger"] = liger
    return found


def vocabulary_section(settings: GpuSettings) -> Section:
    """Yield a row for every width and implementation; different losses or gradients are an error."""
    yield HEADER
    count = round(MASKED * settings.tokens)
    for size in settings.sizes:
        width = MODEL_SIZES[size][1]
        torch.manual_seed(0)
        torch.compiler.reset()
        layer = nn.Linear(width, settings.vocabulary, device=settings.device)
        states = torch.randn(count, width, device=settings.device, requires_grad=True)
        labels = torch.randint(0, settings.vocabulary, (count,), device=settings.device)
        expected: list[float] = []
        for name, way in ways(settings).items():
            step = partial(_loss_and_gradients, way, layer, states, labels, settings)
            found = [float(tensor.norm()) for tensor in step()]
            expected = expected or found
            for value, other in zip(found, expected, strict=True):
                assert abs(value - other) <= TOLERANCE * other, f"{name} differs: {found}, {expected}"
            seconds, peak = settings.measured(step)
            yield f"| {width} | {count:,} | {name} | {1000 * seconds:.2f} | {peak:.2f} |"


def _loss_and_gradients(
    way: Way, layer: nn.Linear, states: torch.Tensor, labels: torch.Tensor, settings: GpuSettings
) -> list[torch.Tensor]:
    with settings.autocast():
        loss = way(layer, states, labels)
    return [loss.detach(), *torch.autograd.grad(loss, (states, layer.weight, layer.bias))]
