"""Products of linear layers on a CPU: weights in its kernels' layout, and few rows as the transposed product."""

from typing import Any

import torch
from torch import nn

FEW_ROWS = 64  # up to here W x^T is faster than x W^T on CPUs (mybert bench --workloads query)


class PackedWeight:
    """A linear layer's weight in the layout that the CPU's matrix kernels (oneDNN) read.

    Args:
        weight: The weight (O, I), float32 or bfloat16.
    """

    def __init__(self, weight: torch.Tensor) -> None:
        self.packed = torch.ops.mkldnn._reorder_linear_weight(weight.detach())
        self.origin = self._state_of(weight)

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or pickled layer has none: such tensors cannot be copied."""
        return type(None), ()

    @staticmethod
    def _state_of(weight: torch.Tensor) -> tuple[int, int]:
        return weight.data_ptr(), -1 if weight.is_inference() else weight._version

    def is_of(self, weight: torch.Tensor) -> bool:
        """Whether the weight is still the one that was packed."""
        return self.origin == self._state_of(weight)

    def multiply(self, hidden_states: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        """Product with the weight, and bias: (..., I) to (..., O)."""
        product: torch.Tensor = torch.ops.mkldnn._linear_pointwise(hidden_states, self.packed, bias, "none", [], "")
        return product


def linear(layer: nn.Module, hidden_states: torch.Tensor) -> torch.Tensor:
    """Call a linear layer; on a CPU with its packed weight, if it has one, or few rows as the transposed product.

    Only a plain layer is looked through: not one that an adapter or a quantizer has put in its place, that has hooks,
    or whose weight is not a plain one. Training never is: dropout follows the layout of its input in memory, and
    checkpointing runs a layer with and without gradient.

    Args:
        layer: The layer, (..., I) to (..., O).
        hidden_states: (..., I).

    Returns:
        (..., O).
    """
    if (
        torch.is_grad_enabled()
        or type(layer) is not nn.Linear
        or layer.training
        or hidden_states.device.type != "cpu"
        or type(layer.weight) is not nn.Parameter
        or layer.bias is None
        or layer._forward_hooks
        or layer._forward_pre_hooks
        or "forward" in layer.__dict__  # accelerate moves weights in a forward of its own
        or torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or torch.is_autocast_enabled("cpu")
    ):
        return layer(hidden_states)
    packed_weight = getattr(layer, "packed_weight", None)
    if packed_weight is not None and packed_weight.is_of(layer.weight) and hidden_states.dtype == layer.weight.dtype:
        product: torch.Tensor = packed_weight.multiply(hidden_states, layer.bias)
        return product
    rows = hidden_states.numel() // layer.in_features
    if rows > FEW_ROWS:
        return layer(hidden_states)
    columns = torch.addmm(layer.bias[:, None], layer.weight, hidden_states.reshape(rows, layer.in_features).t())
    return columns.t().contiguous().view(*hidden_states.shape[:-1], layer.out_features)


def pack_weights(model: nn.Module) -> None:
    """Give every plain linear layer of a model a copy of its weight as a `PackedWeight`.

    Args:
        model: A model whose parameters have one type and are on one device.

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
        raise ValueError("This build of PyTorch has no oneDNN, whose layout prepacked weights have.")
    if weight.dtype == torch.bfloat16 and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        raise ValueError("This CPU has no bfloat16 kernels; expected a float32 model to prepack weights.")
    for module in model.modules():
        if type(module) is nn.Linear and type(module.weight) is nn.Parameter:
            module.packed_weight = PackedWeight(module.weight)  # type: ignore[assignment]


def drop_packed_weights(model: nn.Module) -> None:
    """Undo `pack_weights`."""
    for module in model.modules():
        module.__dict__.pop("packed_weight", None)


__all__ = ["PackedWeight", "drop_packed_weights", "linear", "pack_weights"]
