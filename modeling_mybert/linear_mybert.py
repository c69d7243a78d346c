"""Linear layers on a CPU: which kernel multiplies, prepacked weights, few rows, and fused GELU.

PyTorch's default kernel for float32 is usually MKL; it also ships oneDNN. On AMD processors MKL uses only its AVX2
kernels. On those with AVX-512, oneDNN is faster: up to 1.4 times on Zen 4, which executes AVX-512 in two halves, and
2.3 times on Zen 5 (docs/cpu_kernels.md).
"""

import functools
import platform
import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.forward_ad import unpack_dual
from torch.multiprocessing.reductions import StorageWeakRef
from transformers.activations import ACT2FN

from .hooks_mybert import Scan, is_plain_linear, scan

KERNELS = ("auto", "mkl", "onednn")
FEW_ROWS = 64  # up to here W x^T is faster than x W^T on CPUs
_FULL_WIDTH_FAMILY = 26  # AMD's CPU family with full-width AVX-512: Zen 5
_NARROW = 512  # up to this size a weight gradient is faster without copying its operands to contiguous memory
# What oneDNN does to a product: nothing, or GELU, in the form that its activation has.
_PLAIN: tuple[Any, ...] = ("none", [], "")
_GELU: dict[type, tuple[Any, ...]] = {
    type(ACT2FN[name]): ("gelu", [], form)
    for name, form in (("gelu", "none"), ("gelu_pytorch_tanh", "tanh"), ("gelu_new", "tanh"))
}

_chosen = "auto"


# Kernels


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
_BFLOAT16 = LinearKernels(True, False, False, 0, 0)  # bias and GELU with the product, for any number of rows


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


@functools.cache
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


def has_bfloat16_kernels() -> bool:
    return bool(torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported())


def rounded_rows(count: int) -> int:
    """`count`, or up to a thirty-second more, so that few different row counts occur."""
    # oneDNN caches a kernel for every row count: half a megabyte for each product, and half a millisecond to create.
    step = 1 << max(0, count.bit_length() - 6)
    return -(-count // step) * step


def filled_up(rows: torch.Tensor, multiple: int = 1) -> torch.Tensor:
    """Pad two or more rows (N, ...) on a CPU with zeros, to `rounded_rows` of a `multiple`; not in a graph."""
    if rows.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return rows
    count = len(rows)
    fill = rounded_rows(-(-count // multiple) * multiple) - count if count > 1 else 0
    return F.pad(rows, (*(0, 0) * (rows.dim() - 1), 0, fill))


# States (..., I), weight (O, I) of any strides, bias (O,) or None, then *_PLAIN or *_GELU[...]: the product (..., O).
multiply_by_onednn: Any = getattr(torch.ops.mkldnn, "_linear_pointwise", None)  # some builds have none


def multiply(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Multiply states (..., I) by the transpose of a weight (O, I), and add the bias: (..., O)."""
    kernels = linear_kernels()
    is_large = rows.numel() * len(weight) >= kernels.smallest
    if kernels.product and is_large and rows.dtype == torch.float32:
        return multiply_by_onednn(rows, weight, bias, *_PLAIN)
    return F.linear(rows, weight, bias)


def gradient_of_states(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Gradient of x (rows, I) from the output gradient (rows, O) and the weight (O, I); differentiable if enabled."""
    kernels = linear_kernels()
    is_large = gradient.numel() * weight.shape[1] >= kernels.smallest
    if kernels.input_gradient and is_large and gradient.dtype == torch.float32 and not torch.is_grad_enabled():
        return multiply_by_onednn(gradient, weight.t(), None, *_PLAIN)
    return gradient @ weight


def gradient_of_weight(gradient: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gradient of W (O, I) from the output gradient (rows, O) and x (rows, I); differentiable if enabled."""
    kernels = linear_kernels()
    is_large = gradient.numel() * rows.shape[1] >= kernels.smallest
    left, right = gradient.t(), rows.t()
    if not (kernels.weight_gradient and is_large) or torch.is_grad_enabled():
        return left @ rows
    if min(len(left), len(right)) > _NARROW:
        return multiply_by_onednn(left.contiguous(), right.contiguous(), None, *_PLAIN)
    if len(left) > len(right):
        return multiply_by_onednn(right, left, None, *_PLAIN).t().contiguous()
    return multiply_by_onednn(left, right, None, *_PLAIN)


# A linear layer

# From a linear layer, states (..., I) and an optional activation to (..., O).
Product = Callable[..., torch.Tensor]


def choose_product(states: torch.Tensor, is_learning: bool, network: Scan) -> Product:
    """Choose once how the linear layers of a network multiply such states: by the fastest way on a CPU.

    Inference uses the packed weight if there is one, otherwise the faster kernel (`set_linear_kernel`), a transposed
    product for few rows, and fused GELU. In training the product is the same with and without gradients, as gradient
    checkpointing requires, and contiguous, because dropout depends on the memory layout. All of this applies to the
    plain layers of the `network`; others are called. They are `nn.Linear`, not a derived class: `torch.ao` quantizes
    no others, and transformers makes new ones where it resizes or prunes a layer, which would lose the faster kernels.
    """
    if not network.layers or not is_plain(states):
        return call_layer
    # PyTorch gives products in float32 to MKL; half precision goes to oneDNN anyway.
    kernels = linear_kernels() if states.dtype == torch.float32 else _MKL
    if states.dtype == torch.bfloat16 and not is_learning and torch.backends.mkldnn.enabled and has_bfloat16_kernels():
        kernels = _BFLOAT16
    return partial(_multiply_to_learn if is_learning else _multiply, kernels, network)


def call_layer(layer: nn.Module, states: torch.Tensor, activation: nn.Module | None = None) -> torch.Tensor:
    """A layer's own call, and that of the activation."""
    product: torch.Tensor = layer(states)
    return product if activation is None else activation(product)


def call_layers(layers: Sequence[Any], states: torch.Tensor) -> Sequence[torch.Tensor]:
    """The layers' own calls with the same states (..., I); of plain layers on a GPU, one product with all weights.

    Each forward puts the weights next to each other, which takes little time compared with the product of many tokens.
    """
    if _is_joined(states) and all(is_plain_linear(layer) and layer.bias is not None for layer in layers):
        weight, bias = torch.cat([each.weight for each in layers]), torch.cat([each.bias for each in layers])
        return F.linear(states, weight, bias).split([each.out_features for each in layers], dim=-1)
    return [layer(states) for layer in layers]


def _is_joined(states: torch.Tensor) -> bool:
    return states.is_cuda  # a CPU has no use for wide products


def linear(layer: nn.Module, states: torch.Tensor, activation: nn.Module | None = None) -> torch.Tensor:
    """The product of a layer outside the encoder, such as a head's."""
    product = choose_product(states, layer.training or torch.is_grad_enabled(), scan(layer, activation))
    return product(layer, states, activation)


def is_plain(states: torch.Tensor) -> bool:
    """Whether states are on a CPU and nobody records, transforms or casts what happens to them."""
    return not (
        type(states) is not torch.Tensor  # subclasses may count or record operations
        or states.device.type != "cpu"
        or not states.numel()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or unpack_dual(states).tangent is not None
    )


def _multiply_to_learn(
    kernels: LinearKernels, network: Scan, layer: Any, states: torch.Tensor, activation: nn.Module | None = None
) -> torch.Tensor:
    if layer not in network.layers or layer.weight.dtype != states.dtype or not states.numel():
        return call_layer(layer, states, activation)
    if kernels.product and states.numel() * layer.out_features >= kernels.smallest:
        product = _Product.apply(states.contiguous(), layer.weight, layer.bias)
    else:
        product = F.linear(states, layer.weight, layer.bias)
    return product if activation is None else activation(product)


def _multiply(
    kernels: LinearKernels, network: Scan, layer: Any, states: torch.Tensor, activation: nn.Module | None = None
) -> torch.Tensor:
    """One call of our own for each product: a short forward is mostly Python."""
    weight, bias = layer.weight, layer.bias
    # Of a batch with tokens, the last layers may have none: a head that predicts labeled tokens only.
    if layer not in network.layers or weight.dtype != states.dtype or not states.numel():
        return call_layer(layer, states, activation)
    gelu = _GELU.get(type(activation)) if activation in network.activations else None
    size = states.numel() * layer.out_features
    few_rows = states.numel() <= FEW_ROWS * layer.in_features and kernels is not _BFLOAT16
    packed_weight = layer.__dict__.get("packed_weight")
    if packed_weight is not None and packed_weight.is_of(weight):
        product = multiply_by_onednn(states, packed_weight.packed, bias, *(gelu or _PLAIN))
    elif kernels.product and size >= kernels.smallest and not few_rows:
        product = multiply_by_onednn(states.contiguous(), weight, bias, *(gelu or _PLAIN))
    else:
        gelu = None
        if few_rows and not kernels.product:  # W x^T, transposed back: it reads the larger operand in memory order
            rows = states.reshape(-1, layer.in_features)
            columns = weight @ rows.t() if bias is None else torch.addmm(bias[:, None], weight, rows.t())
            product = columns.t().contiguous().view(*states.shape[:-1], -1)
        elif few_rows and size >= kernels.smallest_few_rows:
            rows = states.reshape(-1, layer.in_features).contiguous()
            columns = multiply_by_onednn(weight, rows, None, *_PLAIN)
            product = rows.new_empty(len(rows), layer.out_features)
            product = product.copy_(columns.t()) if bias is None else torch.add(columns.t(), bias, out=product)
            product = product.view(*states.shape[:-1], -1)
        else:
            product = F.linear(states, weight, bias)
    return product if activation is None or gelu is not None else activation(product)


class _Product(torch.autograd.Function):
    """x W^T + b in float32 by oneDNN, and its gradients, each by the faster kernel."""

    @staticmethod
    def forward(
        ctx: Any, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        ctx.save_for_backward(hidden_states, weight)
        return multiply_by_onednn(hidden_states, weight, bias, *_PLAIN)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_states, weight = ctx.saved_tensors
        gradient, rows = gradients[0].flatten(0, -2).contiguous(), hidden_states.flatten(0, -2)
        return (
            gradient_of_states(gradient, weight).view(hidden_states.shape) if ctx.needs_input_grad[0] else None,
            gradient_of_weight(gradient, rows) if ctx.needs_input_grad[1] else None,
            gradient.sum(0) if ctx.needs_input_grad[2] else None,
        )


# Prepacked weights


class PackedWeight:
    """A linear layer's weight (O, I), float32 or bfloat16, in the memory layout of oneDNN's kernels.

    `is_of` recognizes the weight by its memory, as long as it is alive, and by PyTorch's version counter. The address
    alone is not enough, because freed memory is reused, for example when a model is cast to another dtype and back.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self._storage = StorageWeakRef(weight.untyped_storage())
        self._state = weight.data_ptr(), None if weight.is_inference() else weight._version
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles become None: tensors in this layout cannot be copied."""
        return type(None), ()

    def is_of(self, weight: torch.Tensor) -> bool:
        """Whether this is the packed weight, unchanged since."""
        state = weight.data_ptr(), None if weight.is_inference() else weight._version
        return self._state == state and not self._storage.expired()


def pack_weights(model: nn.Module) -> None:
    """Give every plain linear layer a packed copy of its weight."""
    weight = next(model.parameters())
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(
            f"The model is {weight.dtype} on {weight.device}; prepacking weights expects float32 or bfloat16 on a CPU."
        )
    if not torch.backends.mkldnn.is_available():
        raise ValueError("This build of PyTorch has no oneDNN, which prepacked weights need.")
    if weight.dtype == torch.bfloat16 and not has_bfloat16_kernels():
        raise ValueError("This CPU has no bfloat16 kernels; expected a float32 model to prepack weights.")
    for layer in model.modules():
        if type(layer) is nn.Linear and type(layer.weight) is nn.Parameter:
            layer.packed_weight = PackedWeight(layer.weight)  # type: ignore[assignment]
