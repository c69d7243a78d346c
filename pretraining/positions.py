"""Initial values of positions that only the longer sequences of a second phase reach."""

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def repeat_positions(weight: torch.Tensor, known: int) -> None:
    """Begin the positions from `known` on as those before, but for the first, which is [CLS]'s, over and over.

    What a token's neighbours are to it is then known there, too (as in Longformer, Beltagy et al., 2020, section 5).

    Args:
        weight: Of the position embeddings (P, D); in shards by rows (FSDP 2), too.
        known: How many positions were learnt, at least 2.
    """
    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
    rows = 1 + torch.arange(len(whole) - known, device=whole.device) % (known - 1)
    whole = torch.cat([whole[:known], whole[rows]])
    if isinstance(weight, DTensor):
        whole = distribute_tensor(whole, weight.device_mesh, weight.placements)
    weight.copy_(whole)
