"""Linear layers on a CPU: the faster kernel, prepacked weights, a transposed product for few rows, fused GELU."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd import forward_ad
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules.module import _has_any_global_hook
from transformers.activations import ACT2FN

from .hooks_mybert import is_known_class
from .kernels_mybert import linear_kernels

FEW_ROWS = 64  # up to here W x^T is faster than x W^T on CPUs (mybert bench --workloads query)
_NARROW = 512  # up to this width a weight gradient is faster without copying its operands to contiguous memory
_SAME_STATES = ("query", "key", "value")  # attention layers with the same input
# Activations fused into the product: GELU, with oneDNN's name for each form.
_GELU = {type(ACT2FN["gelu"]): "none", type(ACT2FN["gelu_pytorch_tanh"]): "tanh", type(ACT2FN["gelu_new"]): "tanh"}


def rounded_rows(count: int) -> int:
    """`count`, or up to a thirty-second more: how many rows to multiply, so that few different row counts occur.

    oneDNN caches a kernel for every row count that it meets: half a megabyte for each product, and half a millisecond
    to create.
    """
    step = 1 << max(0, count.bit_length() - 6)
    return -(-count // step) * step


def filled_up(rows: torch.Tensor, multiple: int = 1) -> torch.Tensor:
    """Pad rows (N, ...) on a CPU with zeros to `rounded_rows`; unchanged in a traced or compiled graph.

    Two and more rows are first rounded up to a `multiple`, which keeps row counts few where they are small.
    """
    if rows.device.type != "cpu" or torch.compiler.is_compiling() or torch.jit.is_tracing():
        return rows
    count = len(rows)
    fill = rounded_rows(-(-count // multiple) * multiple) - count if count > 1 else 0
    return F.pad(rows, (*(0, 0) * (rows.dim() - 1), 0, fill))


class PackedTensors:
    """Data computed from a layer's tensors, in the memory layout of oneDNN's kernels.

    `is_of` recognizes the tensors by their memory, as long as it is alive, and by PyTorch's version counter. Addresses
    alone are not enough, because freed memory is reused, for example when a model is cast to another dtype and back.

    Args:
        *tensors: The tensors it is computed from.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        self._storages = [StorageWeakRef(tensor.untyped_storage()) for tensor in tensors]
        self._states = self._states_of(tensors)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles become None: tensors in this layout cannot be copied."""
        return type(None), ()

    @staticmethod
    def _states_of(tensors: Sequence[torch.Tensor]) -> list[tuple[int, int]]:
        return [(tensor.data_ptr(), -1 if tensor.is_inference() else tensor._version) for tensor in tensors]

    def is_of(self, *tensors: torch.Tensor) -> bool:
        """Whether these are the packed tensors, unchanged since."""
        return self._states == self._states_of(tensors) and not any(storage.expired() for storage in self._storages)


class PackedWeight(PackedTensors):
    """Weights of linear layers, concatenated.

    Args:
        *weights: The weight (O, I) of each layer, float32 or bfloat16.
    """

    def __init__(self, *weights: torch.Tensor) -> None:
        super().__init__(*weights)
        weight = weights[0].detach() if len(weights) == 1 else torch.cat([weight.detach() for weight in weights])
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight)

    def multiply(self, hidden_states: torch.Tensor, bias: torch.Tensor, gelu: str | None = None) -> torch.Tensor:
        """Multiply states (..., I) by the weight and add the bias: (..., O); then GELU, "none" (erf) or "tanh"."""
        return multiply_by_onednn(hidden_states, self.packed, bias, gelu)


def multiply_by_onednn(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None, gelu: str | None = None
) -> torch.Tensor:
    """Multiply states (..., I) by the transpose of a weight (O, I) of any strides, then add bias and apply GELU."""
    end: tuple[Any, ...] = ("none", [], "") if gelu is None else ("gelu", [], gelu)
    product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, *end)
    return product


def linear(layer: nn.Module, hidden_states: torch.Tensor, activation: nn.Module | None = None) -> torch.Tensor:
    """Call a linear layer and an optional activation, by the fastest way on a CPU.

    Inference uses the packed weight if there is one, otherwise the faster kernel (`set_linear_kernel`), a transposed
    product for few rows, and fused GELU. All of this applies to plain layers only: not to one that an adapter or a
    quantizer has replaced, that has hooks, or whose weight is a tensor subclass. In training the product is the same
    with and without gradients, as gradient checkpointing requires, and contiguous, because dropout depends on the
    memory layout.

    Args:
        layer: The layer, (..., I) to (..., O).
        hidden_states: (..., I).
        activation: Applied to the result, if given.

    Returns:
        (..., O).
    """
    gelu = None
    if not is_plain(layer, hidden_states):
        product = layer(hidden_states)
    elif layer.training or torch.is_grad_enabled():
        product = _product_in_training(layer, hidden_states)
    else:
        packed_weight = getattr(layer, "packed_weight", None)
        kernels, size = linear_kernels(), hidden_states.numel() * layer.out_features
        by_onednn = kernels.product and in_float32(layer, hidden_states)
        few_rows = hidden_states.numel() <= FEW_ROWS * layer.in_features
        if (
            packed_weight is not None
            and packed_weight.is_of(layer.weight)
            and hidden_states.dtype == layer.weight.dtype
        ):
            gelu = _gelu_of(activation)
            product = packed_weight.multiply(hidden_states, layer.bias, gelu)
        elif by_onednn and not few_rows and size >= kernels.smallest:
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


def packed_product(layers: Sequence[nn.Module], hidden_states: torch.Tensor) -> Sequence[torch.Tensor] | None:
    """Multiply the same states (..., I) by each layer, in one product; None if their weights are not packed."""
    packed_weight = getattr(layers[0], "packed_weight", None)
    if packed_weight is None or torch.is_grad_enabled():
        return None
    plain = [layer for layer in layers if is_plain(layer, hidden_states) and not layer.training]
    if (
        len(plain) < len(layers)
        or hidden_states.dtype != plain[0].weight.dtype
        or not packed_weight.is_of(*(layer.weight for layer in plain))
    ):
        return None
    product = packed_weight.multiply(hidden_states, torch.cat([layer.bias for layer in plain]))
    parts: Sequence[torch.Tensor] = product.split([layer.out_features for layer in plain], -1)
    return parts


def has_hooks(module: nn.Module) -> bool:
    """Whether a call of a module does more than its class's own `forward`: hooks, or a replaced forward."""
    own = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return (
        any(own)
        or bool(_has_any_global_hook())
        or "forward" in module.__dict__  # accelerate replaces it
        or not is_known_class(type(module), type(module).forward)
    )


def is_plain(layer: nn.Module, hidden_states: torch.Tensor) -> TypeGuard[nn.Linear]:
    """Whether calling a layer on these states is just a matrix product on a CPU, of at least one row."""
    return not (
        type(layer) is not nn.Linear
        or type(layer.weight) is not nn.Parameter
        or layer.bias is None
        or type(hidden_states) is not torch.Tensor  # subclasses may count or record operations
        or hidden_states.device.type != "cpu"
        or not hidden_states.numel()
        or not layer.weight.is_contiguous()
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or has_hooks(layer)
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or forward_ad._current_level >= 0
    )


def in_float32(layer: nn.Linear, hidden_states: torch.Tensor) -> bool:
    """Whether the product is in float32, which PyTorch gives to MKL; half precision goes to oneDNN anyway."""
    return hidden_states.dtype == layer.weight.dtype == layer.bias.dtype == torch.float32


def _product_in_training(layer: nn.Linear, hidden_states: torch.Tensor) -> torch.Tensor:
    kernels = linear_kernels()
    size = hidden_states.numel() * layer.out_features
    if not kernels.product or size < kernels.smallest or not in_float32(layer, hidden_states):
        return F.linear(hidden_states, layer.weight, layer.bias)
    return _Product.apply(hidden_states.contiguous(), layer.weight, layer.bias)


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
    """x W^T + b in float32 and its gradients, each product by the faster kernel."""

    @staticmethod
    def forward(ctx: Any, hidden_states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(hidden_states, weight)
        return multiply(hidden_states, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        hidden_states, weight = ctx.saved_tensors
        gradient, rows = gradients[0].flatten(0, -2).contiguous(), hidden_states.flatten(0, -2)
        return (
            gradient_of_states(gradient, weight).view(hidden_states.shape) if ctx.needs_input_grad[0] else None,
            gradient_of_weight(gradient, rows) if ctx.needs_input_grad[1] else None,
            gradient.sum(0) if ctx.needs_input_grad[2] else None,
        )


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


def pack_weights(model: nn.Module) -> None:
    """Give every plain linear layer a packed copy of its weight; query, key and value of an attention share one.

    Args:
        model: A model whose parameters have one dtype and are on one device.

    Raises:
        ValueError: If it is not on a CPU, its weights are neither float32 nor bfloat16, or this build of PyTorch has
            no oneDNN.
    """
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


def drop_packed_weights(model: nn.Module) -> None:
    """Undo `pack_weights`."""
    for module in model.modules():
        module.__dict__.pop("packed_weight", None)


__all__ = [
    "PackedTensors",
    "PackedWeight",
    "drop_packed_weights",
    "filled_up",
    "gradient_of_states",
    "gradient_of_weight",
    "has_hooks",
    "in_float32",
    "is_plain",
    "linear",
    "multiply",
    "multiply_by_onednn",
    "pack_weights",
    "packed_product",
    "rounded_rows",
]
