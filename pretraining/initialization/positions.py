"""Initial values of position embeddings that only a second phase with longer sequences uses."""

import torch
from torch.distributed.tensor import DTensor, distribute_tensor


@torch.no_grad()
def repeat_positions(weight: torch.Tensor, known: int) -> None:
    """Initialize positions (P, D), in place, from `known` >= 2 on by repeating the earlier ones without [CLS]'s."""
    whole = weight.full_tensor() if isinstance(weight, DTensor) else weight  # sharded by rows (FSDP 2)
    # relative positions keep their meaning there (as in Longformer, Beltagy et al., 2020, section 5)
    rows = 1 + torch.arange(len(whole) - known, device=whole.device) % (known - 1)
    whole = torch.cat([whole[:known], whole[rows]])
    if isinstance(weight, DTensor):
        whole = distribute_tensor(whole, weight.device_mesh, weight.placements)
    weight.copy_(whole)
