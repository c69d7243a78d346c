"""Both kernels of float32 products on a CPU (`set_linear_kernel`), product by product, forward and backward."""

import statistics
from collections.abc import Callable
from functools import partial

import torch

from ..modeling_mybert import linear_kernels, set_linear_kernel
from ..modeling_mybert.linear_mybert import gradient_of_states, gradient_of_weight, multiply
from .timing import take_turns

# Rows, input and output width: a single query, BERT-base's layers, those of 2 x 128, an output layer's labels.
PRODUCTS = ((32, 768, 3072), (2048, 768, 768), (2048, 768, 3072), (4096, 128, 512), (600, 128, 30522))
_KERNELS = ("mkl", "onednn")


def kernel_table(repeats: int) -> str:
    """Return a Markdown table of median milliseconds of MKL and oneDNN, in turns, and the choice of "auto"."""
    chosen = linear_kernels()
    lines = [
        "| rows, width -> width | product | gradient of the states | gradient of the weight |",
        "|---|---|---|---|",
    ]
    for rows, width, outputs in PRODUCTS:
        states, gradient = torch.randn(rows, width), torch.randn(rows, outputs)
        weight, bias = torch.randn(outputs, width), torch.randn(outputs)
        cells = [
            _cell(partial(multiply, states, weight, bias), repeats),
            _cell(partial(gradient_of_states, gradient, weight), repeats),
            _cell(partial(gradient_of_weight, gradient, states), repeats),
        ]
        lines.append(f"| {rows}, {width} -> {outputs} | {' | '.join(cells)} |")
    takes = [
        f"{what}: {'oneDNN' if by_onednn else 'MKL'}"
        for what, by_onednn in zip(("product", "gradient of the states", "of the weight"), chosen[:3], strict=True)
    ]
    return (
        "\n".join(lines) + f"\n\nTaken here: {', '.join(takes)}; oneDNN from {chosen.smallest:,} multiplications on."
    )


def _cell(product: Callable[[], torch.Tensor], repeats: int) -> str:
    """Milliseconds of both kernels, whose results must agree."""

    def by(kernel: str) -> torch.Tensor:
        set_linear_kernel(kernel)
        try:
            with torch.no_grad():
                return product()
        finally:
            set_linear_kernel("auto")

    one, other = map(by, _KERNELS)
    difference = float((one - other).norm() / one.norm())
    assert difference < 1e-5, f"the kernels differ by {difference} of the result"
    seconds = take_turns({kernel: partial(by, kernel) for kernel in _KERNELS}, repeats)
    mkl, onednn = (1e3 * statistics.median(seconds[kernel]) for kernel in _KERNELS)
    return f"{mkl:.2f} -> {onednn:.2f} ms ({mkl / onednn:.2f})"
