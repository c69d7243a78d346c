"""Which kernel multiplies matrices on a CPU: PyTorch's usual one (mostly MKL), or oneDNN, which PyTorch holds too.

On AMD's processors MKL keeps to its AVX2 kernels. Where such a processor has AVX-512, oneDNN is faster: up to 1.4
times on Zen 4, which runs it in two halves, and 2.3 times on Zen 5. `mybert bench --workloads kernels` measures both.
"""

import platform
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

KERNELS = ("auto", "mkl", "onednn")
_FULL_WIDTH_FAMILY = 26  # of AMD's processors: Zen 5

_chosen = "auto"


class LinearKernels(NamedTuple):
    """Whether oneDNN multiplies in float32, by what is multiplied.

    Attributes:
        product: Hidden states and weight.
        input_gradient: The product's gradient and the weight.
        weight_gradient: The product's gradient and the hidden states.
        smallest: Multiplications from which it does. Each new number of rows costs it a third of a millisecond.
        smallest_few_rows: The same for few rows in inference, of which all numbers are soon known.
    """

    product: bool
    input_gradient: bool
    weight_gradient: bool
    smallest: int
    smallest_few_rows: int


_MKL = LinearKernels(False, False, False, 0, 0)
_ONEDNN = LinearKernels(True, True, True, 0, 0)


def set_linear_kernel(name: str) -> None:
    """Choose what multiplies float32 matrices in the linear layers of MyBERT on a CPU, in this process.

    Args:
        name: "auto", the default, which decides by processor, product and size, the same in every run on one machine;
            "mkl" for PyTorch's usual kernel, "onednn" for oneDNN, whatever the product.

    Raises:
        ValueError: If it is another name, or oneDNN is wanted and this build of PyTorch has none.
    """
    global _chosen
    if name not in KERNELS:
        raise ValueError(f"The linear kernel is {name!r}; expected one of {', '.join(KERNELS)}.")
    if name == "onednn" and not torch.backends.mkldnn.is_available():
        raise ValueError("The linear kernel is 'onednn', which this build of PyTorch does not have.")
    _chosen = name


def linear_kernels() -> LinearKernels:
    """What `set_linear_kernel` has chosen; none of it where oneDNN is switched off (`torch.backends.mkldnn.flags`)."""
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
    # In two halves a weight's gradient is computed as fast by both.
    return LinearKernels(True, True, int(family[1]) >= _FULL_WIDTH_FAMILY, smallest=2**27, smallest_few_rows=2**23)


__all__ = ["KERNELS", "LinearKernels", "linear_kernels", "set_linear_kernel"]
