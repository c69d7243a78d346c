"""`nn.Linear` with the machine's faster kernel."""

import torch
import torch.nn.functional as F
from torch import nn

from ..modeling_mybert.hooks_mybert import Scan, is_product
from ..modeling_mybert.linear_mybert import call_layer, choose_product


class FastLinear(nn.Linear):
    """The class that `speed_up` gives an `nn.Linear`: the same parameters, a faster product on a CPU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """States (..., in_features) to (..., out_features)."""
        layers = frozenset((self,)) if is_product(self) else frozenset()
        product = choose_product(input, self.training or torch.is_grad_enabled(), Scan(False, layers))
        if product is call_layer:
            return F.linear(input, self.weight, self.bias)
        return product(self, input)
