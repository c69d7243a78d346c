"""Int8 weights for inference on a CPU: symmetric, with a scale for each output; activations are quantized dynamically.

Each token's hidden states become uint8 with their own scale and offset (dynamic, per token, asymmetric), so a result
does not depend on the rest of the batch, and no calibration data is needed. oneDNN multiplies the integers.

The saved model holds the int8 weights. `quantization_config` in its `config.json` names the method, for which this
module registers a quantizer with transformers' `from_pretrained`.
"""

import functools
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.auto import AUTO_QUANTIZER_MAPPING
from transformers.utils import logging
from transformers.utils.quantization_config import QuantizationConfigMixin

from .linear_mybert import PackedTensors, has_hooks, packed_product

logger = logging.get_logger(__name__)

QUANT_METHOD = "mybert_int8"
STEPS = 254  # between a token's smallest and largest value
_SMALLEST_RANGE = 1e-30  # used where a token's states, or an output's weights, are all equal


@functools.cache
def has_exact_int8_kernel() -> bool:
    """Whether oneDNN multiplies uint8 by int8 exactly here.

    CPUs with VNNI (or AMX) do. Other x86 CPUs add pairs of products in 16 bits, which overflows. A product tests it.
    """
    largest, weight = torch.full((16, 64), 255, dtype=torch.uint8), torch.full((64, 64), 127, dtype=torch.int8)
    try:
        packed = torch.ops.onednn.qlinear_prepack(weight, None)
        product = _multiply(largest, packed, torch.ones(64), torch.zeros(1, dtype=torch.int32))
    except (AttributeError, NotImplementedError, RuntimeError):  # a build without oneDNN, or without these products
        return False
    return bool((product == 64 * 127 * 127).all())


def _multiply(rows: torch.Tensor, packed: torch.Tensor, scale: torch.Tensor, zeros: torch.Tensor) -> torch.Tensor:
    """Multiply uint8 rows (N, I), less 128, by packed int8 weights (O, I) and their scale (O,): float32 (N, O)."""
    product: torch.Tensor = torch.ops.onednn.qlinear_pointwise(
        rows, 1.0, 128, packed, scale, zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )
    return product


def quantize_rows(rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Quantize each row separately, in 254 equal steps from its smallest to its largest value.

    Args:
        rows: float32 (N, I).

    Returns:
        Integers from 1 to 255, uint8 (N, I), and the range and the middle of each row (N, 1): a value is about
        (integer - 128) / 254 of the range, plus the middle; the error is at most half a step.
    """
    lowest, highest = rows.amin(-1, keepdim=True), rows.amax(-1, keepdim=True)
    middle, extent = lowest.lerp(highest, 0.5), highest.sub_(lowest).clamp_min_(_SMALLEST_RANGE)
    # Via int8, to which PyTorch converts much faster than to uint8.
    integers = rows.sub(middle).mul_(STEPS / extent).round_().to(torch.int8)
    return integers.view(torch.uint8).bitwise_xor_(128), extent, middle


class MyBertInt8Linear(nn.Module):
    """A linear layer with int8 weights. It multiplies integers for float32 on a CPU, otherwise floats.

    Args:
        in_features: I.
        out_features: O.
    """

    def __init__(self, in_features: int, out_features: int) -> None:
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        weight = torch.empty(out_features, in_features, dtype=torch.int8)
        # Not called `weight`, so that code that does not know of the scale fails instead of using the integers.
        self.int8_weight = nn.Parameter(weight, requires_grad=False)
        self.weight_scale = nn.Parameter(torch.empty(out_features), requires_grad=False)
        self.bias = nn.Parameter(torch.empty(out_features), requires_grad=False)
        self._packed: _PackedInt8Weights | None = None

    @classmethod
    def from_float(cls, layer: nn.Linear) -> "MyBertInt8Linear":
        """Quantize a layer: each output's weights are divided by their largest magnitude / 127 and rounded."""
        quantized = cls(layer.in_features, layer.out_features)
        weight = layer.weight.detach()
        scale = weight.abs().amax(1).clamp_min(_SMALLEST_RANGE).div(127)
        quantized.int8_weight.data = weight.div(scale[:, None]).round_().to(torch.int8)
        quantized.weight_scale.data = scale
        quantized.bias.data = layer.bias.detach().clone()
        return quantized.train(layer.training)

    def extra_repr(self) -> str:
        """As `nn.Linear`'s."""
        return f"in_features={self.in_features}, out_features={self.out_features}"

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        """Hidden states (..., I) to (..., O)."""
        if not _can_be_quantized(hidden_states):
            weight = self.int8_weight.to(self.weight_scale.dtype) * self.weight_scale[:, None]
            return F.linear(hidden_states, weight, self.bias)
        return _multiply_each((self,), hidden_states)[0]


def product_of_each(layers: Sequence[nn.Module], hidden_states: torch.Tensor) -> Sequence[torch.Tensor] | None:
    """Multiply the same states (..., I) by each layer, in one product; None if weights are not int8 or packed."""
    int8_layers = [layer for layer in layers if type(layer) is MyBertInt8Linear and not has_hooks(layer)]
    if len(int8_layers) == len(layers) and _can_be_quantized(hidden_states):
        return _multiply_each(int8_layers, hidden_states)
    return packed_product(layers, hidden_states)


def supports_int8(layer: nn.Module | None, hidden_states: torch.Tensor) -> bool:
    """Whether a layer multiplies these hidden states as integers."""
    return type(layer) is MyBertInt8Linear and _can_be_quantized(hidden_states)


def _multiply_each(layers: Sequence[MyBertInt8Linear], hidden_states: torch.Tensor) -> Sequence[torch.Tensor]:
    """Multiply states (..., I) by all layers' weights in one product; the first layer stores the packed weights."""
    tensors = [tensor for layer in layers for tensor in (layer.int8_weight, layer.weight_scale, layer.bias)]
    packed = layers[0]._packed
    if packed is None or not packed.is_of(*tensors):
        packed = layers[0]._packed = _PackedInt8Weights(*tensors)
    product = packed.multiply(*quantize_rows(hidden_states.reshape(-1, layers[0].in_features)))
    product = product.view(*hidden_states.shape[:-1], product.shape[-1])
    return (product,) if len(layers) == 1 else product.split([layer.out_features for layer in layers], -1)


def _can_be_quantized(hidden_states: torch.Tensor) -> bool:
    """Whether these states can be multiplied as integers: eager mode, float32, on a CPU, without gradients."""
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or type(hidden_states) is not torch.Tensor  # subclasses may count or record operations
        or hidden_states.device.type != "cpu"
        or hidden_states.dtype != torch.float32
        or (hidden_states.requires_grad and torch.is_grad_enabled())
        or not hidden_states.numel()
        or not has_exact_int8_kernel()
    )


class _PackedInt8Weights(PackedTensors):
    """Concatenated int8 weights of layers, with their scales and biases.

    Args:
        *tensors: Weight (O, I), scale and bias (O,) of each layer in turn.
    """

    def __init__(self, *tensors: torch.Tensor) -> None:
        super().__init__(*tensors)
        weight, scale, bias = (torch.cat([tensor.detach() for tensor in tensors[kind::3]]) for kind in range(3))
        self.packed, self.scale, self.bias = torch.ops.onednn.qlinear_prepack(weight, None), scale / STEPS, bias
        self.zeros = torch.zeros(1, dtype=torch.int32)
        self.sums = weight.sum(1, dtype=torch.int32) * scale  # the rows' middles are multiplied by these sums

    def multiply(self, integers: torch.Tensor, extent: torch.Tensor, middle: torch.Tensor) -> torch.Tensor:
        """Multiply rows (N, I), as `quantize_rows` returns them, to float32 (N, O), with bias."""
        product = _multiply(integers, self.packed, self.scale, self.zeros)
        return product.mul_(extent).addcmul_(middle, self.sums).add_(self.bias)


def quantize_layers(model: Any) -> None:
    """Replace the linear layers of the encoder by ones with int8 weights; nothing else of the model changes.

    If one of them cannot be replaced, none is.

    Args:
        model: A MyBERT model in float32 on a CPU.

    Raises:
        ValueError: If a linear layer has been replaced, for example by an adapter, or has hooks.
    """
    layers = list(_linear_layers(model))
    for parent, name in layers:
        layer = getattr(parent, name)
        if type(layer) is not nn.Linear or has_hooks(layer):
            raise ValueError(
                f"A layer's {name} is a {type(layer).__module__}.{type(layer).__name__}, or has hooks; expected a "
                "plain linear layer to quantize (merge an adapter first, with merge_and_unload)."
            )
    for parent, name in layers:
        setattr(parent, name, MyBertInt8Linear.from_float(getattr(parent, name)))
    _finish(model)


def _linear_layers(model: Any) -> list[tuple[nn.Module, str]]:
    """Parent and name of the encoder's linear layers, including those that an adapter has replaced."""
    places = []
    for layer in model.base_model.encoder.layer.children():
        places += [(layer.attention.self, name) for name in ("query", "key", "value")]
        places += [(part, "dense") for part in (layer.attention.output, layer.intermediate, layer.output)]
    return places


def _finish(model: Any) -> None:
    """Mark the model as quantized, as `from_pretrained` does, and freeze it."""
    if not has_exact_int8_kernel():
        logger.warning_once(
            "This CPU has no exact int8 products (VNNI): int8 weights are multiplied in float32, which is slower."
        )
    quantizer = MyBertInt8Quantizer(MyBertInt8Config(), pre_quantized=True)
    model.hf_quantizer, model.is_quantized, model.quantization_method = quantizer, True, QUANT_METHOD
    quantizer.postprocess_model(model)


class MyBertInt8Config(QuantizationConfigMixin):
    """The `quantization_config` of a model with int8 weights: the name of the method."""

    def __init__(self, **kwargs: Any) -> None:
        self.quant_method = QUANT_METHOD


class MyBertInt8Quantizer(HfQuantizer):
    """Called by `from_pretrained` for saved int8 weights, or to quantize with a `MyBertInt8Config`."""

    is_trainable = False
    pre_quantized: bool

    def is_serializable(self, *args: Any, **kwargs: Any) -> bool:
        """True: `save_pretrained` can write such a model."""
        return True

    def update_dtype(self, dtype: Any) -> torch.dtype:
        """The dtype of everything but the int8 weights: float32.

        Raises:
            ValueError: If another dtype is requested.
        """
        if dtype not in (None, torch.float32):
            raise ValueError(f"dtype is {dtype}; a model with int8 weights has float32 for the rest.")
        return torch.float32

    def _process_model_before_weight_loading(self, model: Any, **kwargs: Any) -> None:
        if not hasattr(model, "quantize_weights"):
            raise ValueError(
                f"These int8 weights are MyBERT's; expected one of its classes, not {type(model).__name__}."
            )
        if self.pre_quantized:
            for parent, name in _linear_layers(model):
                layer = getattr(parent, name)
                setattr(parent, name, MyBertInt8Linear(layer.in_features, layer.out_features))

    def _process_model_after_weight_loading(self, model: Any, **kwargs: Any) -> Any:
        if not self.pre_quantized:
            self.pre_quantized = True
            quantize_layers(model)
        return model.requires_grad_(False)


if QUANT_METHOD not in AUTO_QUANTIZER_MAPPING:  # a copy from the Hub may have done this
    register_quantization_config(QUANT_METHOD)(MyBertInt8Config)
    register_quantizer(QUANT_METHOD)(MyBertInt8Quantizer)


__all__ = [
    "MyBertInt8Config",
    "MyBertInt8Linear",
    "MyBertInt8Quantizer",
    "product_of_each",
    "quantize_layers",
    "supports_int8",
]
