"""Scaled dot-product attention in plain operations, and where they are faster than PyTorch's fused kernels.

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
    module: nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in plain tensor operations, the one implementation that returns the attention weights.

    From query, key and value (B, H, L, d) to the context (B, L, H, d) and the weights (B, H, L, L). A bool mask
    (B or 1, H or 1, L, L) is True where a token may be attended to; one of another type is added to the scores.
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = F.dropout(F.softmax(scores, dim=-1), p=dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


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
