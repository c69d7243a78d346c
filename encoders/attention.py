"""Attention within the sequences of a packed row, as one of transformers' attention functions.

Shapes: S tokens in a packed row, H heads of size d; a group holds `count` sequences of equal `length`.
"""

from typing import Any

import torch
from torch import nn
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask
from transformers.modeling_utils import AttentionInterface

from ..modeling_mybert.attention_mybert import packed_attention
from ..modeling_mybert.batch_mybert import Batch

PACKED_ATTENTION = "mybert_packed"


def attention(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    batch: Batch | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention within each sequence of a packed `batch`: (1, H, S, d) to (1, S, H, d); without one, as "sdpa".

    A token attends to those that are less than `sliding_window` columns of the padded batch away, if it is given.
    """
    if batch is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, sliding_window=sliding_window, **kwargs
        )
    masks = None
    if sliding_window is not None and batch.shape[1] <= sliding_window:
        sliding_window = None
    elif sliding_window is not None and batch.groups is not None:
        masks = window_masks(batch, sliding_window)
    return packed_attention(
        module, query, key, value, None, batch=batch, masks=masks, sliding_window=sliding_window, **kwargs
    )


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


AttentionInterface.register(PACKED_ATTENTION, attention)
AttentionMaskInterface.register(PACKED_ATTENTION, sdpa_mask)  # for batches that are not packed
