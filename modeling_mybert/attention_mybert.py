"""Scaled dot-product attention: written out in plain operations, or by PyTorch's fused kernels where those are faster.

Shapes: B sequences of L tokens, H heads of size d.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

_MANY_SCORES = 16_384  # below this, bfloat16 products are dominated by launch overhead
_LONG = 256  # tokens


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in plain tensor operations, the one implementation that returns the attention weights.

    Args:
        module: The attention module; only its `training` flag is read.
        query, key, value: (B, H, L, d).
        attention_mask: None, or values to add to the scores, (B or 1, H or 1, L, L). A bool mask is True where a
            token may be attended to.
        scaling: The scores are multiplied by it.
        dropout: Dropout probability of the attention weights, in [0, 1]; used in training mode only.

    Returns:
        The context (B, L, H, d) and the attention weights (B, H, L, L).
    """
    dropout = dropout if module.training else 0.0
    return _attend(query, key, value, attention_mask, dropout, scaling)


def dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, scaling: float, is_causal: bool
) -> torch.Tensor:
    """Attention without a mask, either by PyTorch's fused kernel or in plain operations, whichever is faster.

    Args:
        query: (B, H, L, d).
        key, value: (B, H, L, d); without causal attention they may have fewer tokens.
        dropout: Dropout probability of the attention weights, in [0, 1].
        scaling: The scores are multiplied by it.
        is_causal: Whether a token attends to itself and earlier tokens only.

    Returns:
        The context (B, L, H, d).
    """
    if prefers_eager(query, dropout, is_causal):
        return _attend(query, key, value, None, dropout, scaling)[0]
    context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scaling, is_causal=is_causal)
    return context.transpose(1, 2)


def prefers_eager(query: torch.Tensor, dropout: float, is_causal: bool) -> bool:
    """Whether plain matrix products are faster here than PyTorch's fused attention.

    Measured on AMD Zen 4: for bfloat16 training on a CPU, the flash kernel takes three to four times as long, and
    PyTorch's implementation with dropout twice as long. Inference keeps the fused kernel because it computes the
    scores in float32. Long sequences without dropout keep it, too, because it stores no attention weights for the
    backward pass.
    """
    length = query.shape[2]
    return (
        not is_causal
        and query.dtype == torch.bfloat16
        and query.device.type == "cpu"
        and query.requires_grad
        and not torch.compiler.is_compiling()
        and query.shape[:3].numel() * length >= _MANY_SCORES
        and (dropout > 0 or length <= _LONG)
    )


def _attend(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    mask: torch.Tensor | None,
    dropout: float,
    scaling: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, torch.finfo(scores.dtype).min)
    elif mask is not None:
        scores = scores + mask
    weights = F.dropout(F.softmax(scores, dim=-1), p=dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


__all__ = ["dot_product_attention", "eager_attention_forward", "prefers_eager"]
