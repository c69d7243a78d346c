"""Attention within the sequences of a packed row, as one of transformers' attention functions.

Shapes: S tokens in a packed row, H heads of size d; a group holds `count` sequences of equal `length`.
"""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from ..modeling_mybert.batch_mybert import Batch

PACKED_ATTENTION = "mybert_packed"


def packed_attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    batch: Batch | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each sequence of a packed `batch`: (1, H, S, d) to (1, S, H, d); without one, as "sdpa".

    A token attends to those that are less than `sliding_window` columns of the padded batch away, if it is given.
    """
    if batch is None:
        kwargs |= {"scaling": scaling, "dropout": dropout, "sliding_window": sliding_window}
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)
    query, key, value = (part[0].transpose(0, 1) for part in (query, key, value))
    scaling = query.shape[-1] ** -0.5 if scaling is None else scaling
    if sliding_window is None or batch.shape[1] <= sliding_window:
        return batch.attend(query, key, value, dropout, scaling, is_causal=False)[None], None
    if batch.groups is None:
        return _windows_by_kernel(batch, query, key, value, scaling, sliding_window)[None], None
    masks = window_masks(batch, sliding_window)
    return attend_in_groups(batch, query, key, value, dropout, scaling, masks)[None], None


def attend_in_groups(
    batch: Batch,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout: float,
    scaling: float,
    masks: Sequence[torch.Tensor | None],
) -> torch.Tensor:
    """Attention (S, H, d) within the sequences of each group, with its mask (count or 1, H or 1, length, keys)."""
    assert batch.groups is not None
    sizes = [count * length for count, length, _ in batch.groups]
    contexts = []
    for (count, length, first_key), mask, *parts in zip(
        batch.groups, masks, query.split(sizes), key.split(sizes), value.split(sizes), strict=True
    ):
        queries, keys, values = (part.view(count, length, *part.shape[1:]).transpose(1, 2) for part in parts)
        options: dict[str, Any] = {"attn_mask": mask, "dropout_p": dropout, "scale": scaling}
        context = F.scaled_dot_product_attention(queries, keys[:, :, first_key:], values[:, :, first_key:], **options)
        contexts.append(context.transpose(1, 2).flatten(0, 1))
    return torch.cat(contexts)


def columns_of_groups(batch: Batch) -> list[torch.Tensor]:
    """The columns of the padded batch in which each group's tokens were: (count, length), or (1, length).

    One row stands for all if none has a hole: only differences of columns matter.
    """
    assert batch.groups is not None
    assert batch.index is not None
    columns = (batch.index % batch.shape[1]).split([count * length for count, length, _ in batch.groups])
    rows = [part.view(count, length) for part, (count, length, _) in zip(columns, batch.groups, strict=True)]
    has_holes = torch.stack([(part[:, -1] - part[:, 0]).max() - part.shape[1] + 1 for part in rows]).tolist()
    return [part if holes else part[:1] for part, holes in zip(rows, has_holes, strict=True)]


def window_masks(batch: Batch, sliding_window: int) -> list[torch.Tensor | None]:
    """For each group, whether a token may attend to another: (count or 1, 1, length, keys); None: always."""
    assert batch.groups is not None
    masks: list[torch.Tensor | None] = []
    for columns, (_, _, first_key) in zip(columns_of_groups(batch), batch.groups, strict=True):
        if int((columns[:, -1] - columns[:, 0]).max()) < sliding_window:
            masks.append(None)
        else:
            distances = (columns[:, None, first_key:] - columns[:, :, None]).abs()
            masks.append((distances < sliding_window)[:, None])
    return masks


def _windows_by_kernel(
    batch: Batch, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scaling: float, sliding_window: int
) -> torch.Tensor:
    from torch.nn.attention.varlen import varlen_attn

    assert batch.cu_seqlens is not None
    assert batch.max_seqlen is not None
    limits = (batch.cu_seqlens, batch.cu_seqlens, batch.max_seqlen, batch.max_seqlen)
    window = (sliding_window - 1, sliding_window - 1)  # inclusive
    context = varlen_attn(query, key, value, *limits, scale=scaling, window_size=window)
    assert isinstance(context, torch.Tensor)
    return context


AttentionInterface.register(PACKED_ATTENTION, packed_attention)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)  # for batches that are not packed
