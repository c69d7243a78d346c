"""Attention written out, and where PyTorch's own kernels are slower than that.

Shapes: B sequences of L tokens, H heads of size d.
"""

import torch
import torch.nn.functional as F
from torch import nn
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

_MANY_SCORES = 16_384  # products of fewer in bfloat16 take longer to begin than to run
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
    """Attention written out, the one implementation that returns its weights.

    Args:
        module: The attention module; only its `training` flag is read.
        query, key, value: (B, H, L, d).
        attention_mask: None, or what is added to the scores, (B or 1, H or 1, L, L); a bool mask is True where a
            token is seen.
        scaling: Factor of the scores.
        dropout: Dropout of the weights, in [0, 1].

    Returns:
        The context (B, L, H, d) and the weights (B, H, L, L).
    """
    dropout = dropout if module.training else 0.0
    return _attend(query, key, value, attention_mask, dropout, scaling)


def dot_product_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, dropout: float, scaling: float, is_causal: bool
) -> torch.Tensor:
    """Attention without a mask, by what is faster: PyTorch's kernels, or written out.

    Args:
        query: (B, H, L, d).
        key, value: (B, H, L, d); without causal attention they may be of fewer tokens.
        dropout: Dropout of the weights, in [0, 1].
        scaling: Factor of the scores.
        is_causal: Whether a token attends to itself and earlier tokens only.

    Returns:
        (B, L, H, d).
    """
    if is_faster_written_out(query, dropout, is_causal):
        return _attend(query, key, value, None, dropout, scaling)[0]
    context = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scaling, is_causal=is_causal)
    return context.transpose(1, 2)


def is_faster_written_out(query: torch.Tensor, dropout: float, is_causal: bool) -> bool:
    """Whether products of matrices are faster than PyTorch's attention, of which no weights are asked for.

    Measured on AMD's Zen 4: in training in bfloat16 on a CPU the flash kernel takes three to four times as long, and
    PyTorch's form with dropout twice as long. In inference the kernel stays, which keeps scores in float32, and for
    long sequences without dropout, too: it keeps no weights for the gradient.
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


__all__ = ["dot_product_attention", "eager_attention_forward", "is_faster_written_out"]
