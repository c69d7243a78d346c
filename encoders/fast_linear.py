"""`nn.Linear` with the machine's faster kernel."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.autograd.forward_ad import unpack_dual

from ..modeling_mybert.linear_mybert import FEW_ROWS, _Product, linear_kernels, multiply_by_onednn


class FastLinear(nn.Linear):
    """The class that `speed_up` gives an `nn.Linear`: the same parameters, a faster product on a CPU."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        """States (..., in_features) to (..., out_features)."""
        weight, bias = self.weight, self.bias
        if not _is_plain(input, weight, bias):
            return F.linear(input, weight, bias)
        kernels, size = linear_kernels(), input.numel() * self.out_features
        by_onednn = kernels.product and input.dtype == weight.dtype == torch.float32
        by_large_onednn = by_onednn and size >= kernels.smallest
        if self.training or torch.is_grad_enabled():
            if by_large_onednn:
                return _Product.apply(input.contiguous(), weight, bias)
        elif input.numel() <= FEW_ROWS * self.in_features:
            if not by_onednn or size >= kernels.smallest_few_rows:
                return _transposed_product(input, weight, bias, by_onednn)
        elif by_large_onednn:
            return multiply_by_onednn(input.contiguous(), weight, bias)
        return F.linear(input, weight, bias)


def _is_plain(states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> bool:
    """Whether the product is just that, on a CPU, of at least one row."""
    return not (
        torch.compiler.is_compiling()
        or torch.jit.is_tracing()
        or type(states) is not torch.Tensor
        or type(weight) is not nn.Parameter
        or (bias is not None and type(bias) is not nn.Parameter)
        or states.device.type != "cpu"
        or not states.numel()
        or not weight.is_contiguous()
        or torch.is_autocast_enabled("cpu")
        or torch._C._are_functorch_transforms_active()
        or unpack_dual(states).tangent is not None
    )


def _transposed_product(
    states: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, by_onednn: bool
) -> torch.Tensor:
    """W x^T, transposed back: it reads the weight, the larger operand, in memory order."""
    rows = states.reshape(-1, weight.shape[1])
    if by_onednn:
        columns = multiply_by_onednn(weight, rows.contiguous())
    elif bias is None:
        columns = weight @ rows.t()
    else:
        columns = torch.addmm(bias[:, None], weight, rows.t())
    if by_onednn and bias is not None:
        product = torch.add(columns.t(), bias, out=rows.new_empty(len(rows), len(weight)))
    else:
        product = columns.t().contiguous()
    return product.view(*states.shape[:-1], len(weight))
