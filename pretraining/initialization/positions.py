"""Initial values of position embeddings that only a second phase with longer sequences uses."""

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def repeat_positions(weight: torch.Tensor, known: int) -> None:
    """Initialise the positions from `known` on by repeating the earlier ones, except the first, which is [CLS]'s.

    The model then knows relative positions there, too (as in Longformer, Beltagy et al., 2020, section 5).

    Args:
        weight: The position embeddings (P, D), possibly sharded by rows (FSDP 2); changed in place.
        known: Number of trained positions, at least 2.
    """
    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight
    rows = 1 + torch.arange(len(whole) - known, device=whole.device) % (known - 1)
    whole = torch.cat([whole[:known], whole[rows]])
    if isinstance(weight, DTensor):
        whole = distribute_tensor(whole, weight.device_mesh, weight.placements)
    weight.copy_(whole)
