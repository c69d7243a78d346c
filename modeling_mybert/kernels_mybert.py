"""Which kernel multiplies matrices on a CPU: PyTorch's default (usually MKL), or oneDNN, which PyTorch also ships.

On AMD processors MKL uses only its AVX2 kernels. On those with AVX-512, oneDNN is faster: up to 1.4 times on Zen 4,
which executes AVX-512 in two halves, and 2.3 times on Zen 5. `mybert bench --workloads kernels` measures both.
"""

import platform
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

KERNELS = ("auto", "mkl", "onednn")
_FULL_WIDTH_FAMILY = 26  # AMD's CPU family with full-width AVX-512: Zen 5

_chosen = "auto"


class LinearKernels(NamedTuple):
    """Which float32 matrix products run in oneDNN.

    Attributes:
        product: The forward product of hidden states and weight.
        input_gradient: The gradient with respect to the hidden states: output gradient times weight.
        weight_gradient: The gradient with respect to the weight: output gradient times hidden states.
        smallest: Smallest product, in multiplications, that runs in oneDNN. Each new number of rows costs oneDNN a
            third of a millisecond to prepare a kernel.
        smallest_few_rows: The same for inference with few rows, where all possible numbers of rows soon have a kernel.
    """

    product: bool
    input_gradient: bool
    weight_gradient: bool
    smallest: int
    smallest_few_rows: int


_MKL = LinearKernels(False, False, False, 0, 0)
_ONEDNN = LinearKernels(True, True, True, 0, 0)


def set_linear_kernel(name: str) -> None:
    """Choose the kernel for float32 products in MyBERT's linear layers on a CPU, for this process.

    Args:
        name: "auto" (default) chooses by processor, kind of product and size, always the same on one machine; "mkl" is
            PyTorch's default kernel and "onednn" is oneDNN, for every product.

    Raises:
        ValueError: If the name is unknown, or it is "onednn" and this build of PyTorch has no oneDNN.
    """
    global _chosen
    if name not in KERNELS:
        raise ValueError(f"The linear kernel is {name!r}; expected one of {', '.join(KERNELS)}.")
    if name == "onednn" and not torch.backends.mkldnn.is_available():
        raise ValueError("The linear kernel is 'onednn', which this build of PyTorch does not have.")
    _chosen = name


def linear_kernels() -> LinearKernels:
    """The choice in force: that of `set_linear_kernel`, but no oneDNN if `torch.backends.mkldnn.flags` disables it."""
    if _chosen == "mkl" or not torch.backends.mkldnn.enabled:
        return _MKL
    return _ONEDNN if _chosen == "onednn" else _by_processor()


@cache
def _by_processor() -> LinearKernels:
    if not torch.backends.mkldnn.is_available() or torch.backends.cpu.get_cpu_capability() != "AVX512":
        return _MKL
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:  # not Linux
        processor = platform.processor()
    family = re.search(r"family\s*:?\s*(\d+)", processor, re.IGNORECASE)
    if "AuthenticAMD" not in processor or family is None:
        return _MKL
    # Before Zen 5 both kernels are equally fast for the weight gradient.
    return LinearKernels(True, True, int(family[1]) >= _FULL_WIDTH_FAMILY, smallest=2**27, smallest_few_rows=2**23)


__all__ = ["KERNELS", "LinearKernels", "linear_kernels", "set_linear_kernel"]
