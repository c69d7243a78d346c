"""Linear layers on a CPU: which kernel multiplies, prepacked weights, few rows, and fused GELU.

PyTorch's default kernel for float32 is usually MKL; it also ships oneDNN. On AMD processors MKL uses only its AVX2
kernels. On those with AVX-512, oneDNN is faster: up to 1.4 times on Zen 4, which executes AVX-512 in two halves, and
2.3 times on Zen 5. `mybert bench --workloads kernels` measures both.
"""

import functools
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeGuard

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.forward_ad import unpack_dual
from torch.multiprocessing.reductions import StorageWeakRef
from transformers.activations import ACT2FN

from .hooks_mybert import has_hooks

KERNELS = ("auto", "mkl", "onednn")
FEW_ROWS = 64  # up to here W x^T is faster than x W^T on CPUs (mybert bench --workloads query)
_FULL_WIDTH_FAMILY = 26  # AMD's CPU family with full-width AVX-512: Zen 5
_NARROW = 512  # up to this size a weight gradient is faster without copying its operands to contiguous memory
_SAME_STATES = ("query", "key", "value")  # attention layers with the same input
# Activations fused into the product: GELU, with oneDNN's name for each form.
_GELU = {type(ACT2FN["gelu"]): "none", type(ACT2FN["gelu_pytorch_tanh"]): "tanh", type(ACT2FN["gelu_new"]): "tanh"}

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


def multiply_by_onednn(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, gelu: str | None = None
) -> torch.Tensor:
    """Multiply states (..., I) by the transpose of a weight (O, I) of any strides, then add bias and apply GELU."""
    end: tuple[Any, ...] = ("none", [], "") if gelu is None else ("gelu", [], gelu)
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, *end)
    return product


def multiply(rows: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    """Multiply states (..., I) by the transpose of a weight (O, I), and add the bias: (..., O)."""
    kernels = linear_kernels()
    is_large = rows.numel() * len(weight) >= kernels.smallest
    if kernels.product and is_large and rows.dtype == torch.float32:
        return multiply_by_onednn(rows, weight, bias)
    return F.linear(rows, weight, bias)


def gradient_of_states(gradient: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Gradient of x (rows, I) from the output gradient (rows, O) and the weight (O, I); differentiable if enabled."""
    kernels = linear_kernels()
    is_large = gradient.numel() * weight.shape[1] >= kernels.smallest
    if kernels.input_gradient and is_large and gradient.dtype == torch.float32 and not torch.is_grad_enabled():
        return multiply_by_onednn(gradient, weight.t())
    return gradient @ weight


def gradient_of_weight(gradient: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    """Gradient of W (O, I) from the output gradient (rows, O) and x (rows, I); differentiable if enabled."""
    kernels = linear_kernels()
    is_large = gradient.numel() * rows.shape[1] >= kernels.smallest
    left, right = gradient.t(), rows.t()
    if not (kernels.weight_gradient and is_large) or torch.is_grad_enabled():
        return left @ rows
    if min(len(left), len(right)) > _NARROW:
        return multiply_by_onednn(left.contiguous(), right.contiguous())
    if len(left) > len(right):
        return multiply_by_onednn(right, left).t().contiguous()
    return multiply_by_onednn(left, right)


# A linear layer


def linear(layer: nn.Module, hidden_states: torch.Tensor, activation: nn.Module | None = None) -> torch.Tensor:
    """Call a linear layer and an optional activation on states (..., I), by the fastest way on a CPU; (..., O).

    Inference uses the packed weight if there is one, otherwise the faster kernel (`set_linear_kernel`), a transposed
    product for few rows, and fused GELU. In training the product is the same with and without gradients, as gradient
    checkpointing requires, and contiguous, because dropout depends on the memory layout. All of this applies to plain
    layers only. They are `nn.Linear`, not a derived class: `torch.ao` quantizes no others, and transformers makes new
    ones where it resizes or prunes a layer, which would lose the faster kernels.
    """
    if not is_plain(layer, hidden_states):
        product = layer(hidden_states)
        return product if activation is None else activation(product)
    kernels, size, gelu = linear_kernels(), hidden_states.numel() * layer.out_features, None
    # PyTorch gives products in float32 to MKL; half precision goes to oneDNN anyway.
    is_float32 = hidden_states.dtype == layer.weight.dtype == layer.bias.dtype == torch.float32
    by_onednn = kernels.product and is_float32
    by_large_onednn = by_onednn and size >= kernels.smallest
    if layer.training or torch.is_grad_enabled():
        if by_large_onednn:
            product = _Product.apply(hidden_states.contiguous(), layer.weight, layer.bias)
        else:
            product = F.linear(hidden_states, layer.weight, layer.bias)
    else:
        packed_weight = getattr(layer, "packed_weight", None)
        few_rows = hidden_states.numel() <= FEW_ROWS * layer.in_features
        if (
            packed_weight is not None
            and packed_weight.is_of(layer.weight)
            and hidden_states.dtype == layer.weight.dtype
        ):
            gelu = _gelu_of(activation)
            product = multiply_by_onednn(hidden_states, packed_weight.packed, layer.bias, gelu)
        elif by_large_onednn and not few_rows:
            gelu = _gelu_of(activation)
            product = multiply_by_onednn(hidden_states.contiguous(), layer.weight, layer.bias, gelu)
        elif few_rows and (not by_onednn or size >= kernels.smallest_few_rows):
            product = _transposed_product(layer, hidden_states, by_onednn)
        else:
            product = F.linear(hidden_states, layer.weight, layer.bias)
    return product if activation is None or gelu is not None else activation(product)


def _gelu_of(activation: nn.Module | None) -> str | None:
    """OneDNN's name for an activation that it can apply to the product; None if it cannot."""
    return None if activation is None or has_hooks(activation) else _GELU.get(type(activation))


def is_plain(layer: nn.Module, hidden_states: torch.Tensor) -> TypeGuard[nn.Linear]:
    """Whether calling a layer on these states is just a matrix product on a CPU, of at least one row."""
    return not (
        type(layer) is not nn.Linear
        or type(layer.weight) is not nn.Parameter  # functional_call puts tensors there, also dual ones
        or type(layer.bias) is not nn.Parameter
        or type(hidden_states) is not torch.Tensor  # subclasses may count or record operations
        or hidden_states.device.type != "cpu"
        or not hidden_states.numel()
        or not layer.weight.is_contiguous()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or has_hooks(layer)
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or unpack_dual(hidden_states).tangent is not None
    )


def _transposed_product(layer: nn.Linear, hidden_states: torch.Tensor, by_onednn: bool) -> torch.Tensor:
    """W x^T, transposed back: it reads the weight, the larger operand, in memory order."""
    rows = hidden_states.reshape(-1, layer.in_features)
    if by_onednn:
        columns = multiply_by_onednn(layer.weight, rows.contiguous())
        product = torch.add(columns.t(), layer.bias, out=rows.new_empty(len(rows), layer.out_features))
    else:
        product = torch.addmm(layer.bias[:, None], layer.weight, rows.t()).t().contiguous()
    return product.view(*hidden_states.shape[:-1], layer.out_features)


class _Product(torch.autograd.Function):
    """x W^T + b in float32 by oneDNN, and its gradients, each by the faster kernel."""

    @staticmethod
    def forward(ctx: Any, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden_states, weight)
        return multiply_by_onednn(hidden_states, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_states, weight = ctx.saved_tensors
        gradient, rows = gradients[0].flatten(0, -2).contiguous(), hidden_states.flatten(0, -2)
        return (
            gradient_of_states(gradient, weight).view(hidden_states.shape) if ctx.needs_input_grad[0] else None,
            gradient_of_weight(gradient, rows) if ctx.needs_input_grad[1] else None,
            gradient.sum(0) if ctx.needs_input_grad[2] else None,
        )


def product_of_each(layers: Sequence[Any], hidden_states: torch.Tensor) -> Sequence[torch.Tensor] | None:
    """Multiply the same states (..., I) by each layer, in one product; None if the weights are not packed."""
    packed_weight = getattr(layers[0], "packed_weight", None)
    if (
        packed_weight is None
        or torch.is_grad_enabled()
        or not all(is_plain(layer, hidden_states) and not layer.training for layer in layers)
        or hidden_states.dtype != layers[0].weight.dtype
        or not packed_weight.is_of(*(layer.weight for layer in layers))
    ):
        return None
    biases = torch.cat([layer.bias for layer in layers])
    product = multiply_by_onednn(hidden_states, packed_weight.packed, biases)
    parts: Sequence[torch.Tensor] = product.split([layer.out_features for layer in layers], -1)
    return parts


# Prepacked weights


class PackedWeight:
    """Weights (O, I) of linear layers, float32 or bfloat16, concatenated in the memory layout of oneDNN's kernels.

    `is_of` recognizes the weights by their memory, as long as it is alive, and by PyTorch's version counter. Addresses
    alone are not enough, because freed memory is reused, for example when a model is cast to another dtype and back.
    """

    def __init__(self, *weights: torch.Tensor) -> None:
        self._storages = [StorageWeakRef(weight.untyped_storage()) for weight in weights]
        self._states = self._states_of(weights)
        weight = weights[0].detach() if len(weights) == 1 else torch.cat([weight.detach() for weight in weights])
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles become None: tensors in this layout cannot be copied."""
        return type(None), ()

    @staticmethod
    def _states_of(weights: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
        return [(weight.data_ptr(), -1 if weight.is_inference() else weight._version) for weight in weights]

    def is_of(self, *weights: torch.Tensor) -> bool:
        """Whether these are the packed weights, unchanged since."""
        return self._states == self._states_of(weights) and not any(storage.expired() for storage in self._storages)


def pack_weights(model: nn.Module) -> None:
    """Give every plain linear layer a packed copy of its weight; query, key and value of an attention share one."""
    weight = next(model.parameters())
    if weight.device.type != "cpu" or weight.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(
            f"The model is {weight.dtype} on {weight.device}; prepacking weights expects float32 or bfloat16 on a CPU."
        )
    if not torch.backends.mkldnn.is_available():
        raise ValueError("This build of PyTorch has no oneDNN, which prepacked weights need.")
    if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise ValueError("This CPU has no bfloat16 kernels; expected a float32 model to prepack weights.")
    for module in model.modules():
        children = {name: child for name, child in module.named_children() if type(child) is nn.Linear}
        plain = {name: child for name, child in children.items() if type(child.weight) is nn.Parameter}
        attention = [[plain.pop(name) for name in _SAME_STATES]] if plain.keys() >= set(_SAME_STATES) else []
        for layers in (*attention, *([layer] for layer in plain.values())):
            packed_weight = PackedWeight(*(layer.weight for layer in layers))
            for layer in layers:
                layer.packed_weight = packed_weight  # type: ignore[assignment]
