"""Attention besides that of transformers: within the sequences of a packed batch, and in plain operations."""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs

from .batch_mybert import Batch

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # PyTorch before 2.10
    HAS_VARLEN_KERNEL = False
else:  # its first releases lack arguments
    HAS_VARLEN_KERNEL = {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()

_MANY_SCORES = 16_384  # below this, bfloat16 products are dominated by launch overhead
_LONG = 256  # tokens


def packed_attention(
    module: nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    *,
    batch: Batch,
    masks: Sequence[torch.Tensor | None] | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each sequence of a packed batch, as an attention function of transformers.

    From query, key and value (1, H, S, d) to the context (1, S, H, d), without attention weights. Each group may have
    a mask (count or 1, H or 1, length, keys), bool or added to the scores; on a GPU, where there are no groups, a
    token attends to those less than `sliding_window` away.
    """
    query, key, value = query[0].transpose(0, 1), key[0].transpose(0, 1), value[0].transpose(0, 1)
    if batch.groups is None:
        limits: Any = (batch.cu_seqlens, batch.cu_seqlens, batch.max_seqlen, batch.max_seqlen)
        width = -1 if sliding_window is None else sliding_window - 1
        window = (width, 0 if batch.is_causal else width)
        states: Any = varlen_attn(query, key, value, *limits, scale=scaling, window_size=window)
        return states[None], None
    sizes = [count * length for count, length, _ in batch.groups]
    parts, shape, contexts = (query.split(sizes), key.split(sizes), value.split(sizes)), query.shape[1:], []
    masks = [None] * len(sizes) if masks is None else masks
    for (count, length, first_key), mask, queries, keys, values in zip(batch.groups, masks, *parts, strict=True):
        queries = queries.view(count, length, *shape).transpose(1, 2)
        keys = keys.view(count, length, *shape).transpose(1, 2)[:, :, first_key:]
        values = values.view(count, length, *shape).transpose(1, 2)[:, :, first_key:]
        if mask is None and queries.dtype == torch.bfloat16 and prefers_eager(queries, dropout, batch.is_causal):
            context, _ = eager_attention_forward(None, queries, keys, values, None, scaling, dropout)
        else:
            options: dict[str, Any] = {"attn_mask": mask, "dropout_p": dropout, "is_causal": batch.is_causal}
            context = F.scaled_dot_product_attention(queries, keys, values, **options, scale=scaling).transpose(1, 2)
        contexts.append(context.flatten(0, 1))
    return torch.cat(contexts)[None], None


def supports_varlen(device: torch.device, dtype: torch.dtype, head_size: int, dropout: float) -> bool:
    """Whether the variable-length flash kernel (`torch.nn.attention.varlen`) supports such tensors."""
    return (
        HAS_VARLEN_KERNEL
        and device.type == "cuda"
        and torch.version.cuda is not None
        and dtype in (torch.bfloat16, torch.float16)
        and head_size % 8 == 0
        and head_size <= 256
        and dropout == 0
        and torch.cuda.get_device_capability(device)[0] >= 8
    )


def eager_attention_forward(
    module: nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in plain tensor operations, the one implementation that returns the attention weights.

    From query, key and value (B, H, L, d) to the context (B, L, H, d) and the weights (B, H, L, L). A bool mask
    (B or 1, H or 1, L, L) is True where a token may be attended to; one of another type is added to the scores.
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
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
