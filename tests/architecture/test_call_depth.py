"""How many functions of the network stand between a head and the kernels."""

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import mybert

TINY = {"vocab_size": 61, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
HEADS = [name for name in mybert.__all__ if name.startswith("MyBertFor")]


def chain_of_own_calls() -> list[str]:
    """The functions of mybert that are running, from the outermost to the one that calls the kernel."""
    frame, names = sys._getframe(2), []
    while frame:
        if frame.f_globals.get("__name__", "").startswith("mybert."):
            names.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)
        frame = frame.f_back
    return names[::-1]


@pytest.mark.parametrize("padding", [True, False])
@pytest.mark.parametrize("name", HEADS)
def test_at_most_six_functions_between_a_head_and_the_kernels(monkeypatch, name, padding):
    """Encoder, layer, attention and the parts of a layer are among them, since users hook them."""
    chains: dict[str, list[list[str]]] = {"linear": [], "scaled_dot_product_attention": []}

    def recorded(kernel: str) -> Callable[..., Any]:
        function = getattr(F, kernel)

        def call(*inputs: Any, **options: Any) -> Any:
            chains[kernel].append(chain_of_own_calls())
            return function(*inputs, **options)

        return call

    for kernel in chains:
        monkeypatch.setattr(F, kernel, recorded(kernel))
    choices = {"num_labels": 2} if name == "MyBertForQuestionAnswering" else {}
    model = getattr(mybert, name)(mybert.MyBertConfig(**TINY, **choices))
    shape = (4, 2, 12) if name == "MyBertForMultipleChoice" else (4, 12)
    mask = torch.ones(shape, dtype=torch.long)
    if padding:
        mask[1:, ..., 7:] = 0
    mybert.modeling_mybert.set_linear_kernel("mkl")
    try:
        model(torch.ones(shape, dtype=torch.long), attention_mask=mask)
    finally:
        mybert.modeling_mybert.set_linear_kernel("auto")
    assert len(chains["linear"]) >= 2 * 6 and len(chains["scaled_dot_product_attention"]) >= 2
    for chain in (*chains["linear"], *chains["scaled_dot_product_attention"]):
        assert chain[0].endswith("forward") and len(chain) <= 1 + 6, chain
