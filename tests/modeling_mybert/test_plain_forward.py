"""A forward is short: what was decided about the batch and the network is not asked again in each layer."""

import sys
from collections import Counter
from types import FrameType
from typing import Any

import pytest
import torch

from mybert import MyBertConfig, MyBertModel

LAYERS = 12


def own_calls(model: MyBertModel, batch: dict[str, Any]) -> tuple[Counter[str], set[str]]:
    """Calls of functions of the package, and those made by the product of a linear layer."""
    calls, by_products = Counter[str](), set()

    def record(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_globals.get("__name__", "").startswith("mybert."):
            calls[frame.f_code.co_qualname] += 1
            if frame.f_back is not None and frame.f_back.f_code.co_name == "_multiply":
                by_products.add(frame.f_code.co_qualname)

    with torch.inference_mode():
        model(**batch)  # PyTorch and the caches of classes prepare themselves
        sys.setprofile(record)
        try:
            model(**batch)
        finally:
            sys.setprofile(None)
    return calls, by_products


@pytest.fixture(scope="module")
def model() -> MyBertModel:
    size = {"hidden_size": 32, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 50}
    return MyBertModel(MyBertConfig(num_hidden_layers=LAYERS, **size)).eval()


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code objects have no qualified names")
@pytest.mark.parametrize("lengths", [(16,), (16, 16), (16, 10, 4, 1)], ids=["query", "full", "ragged"])
@pytest.mark.parametrize("all_states", [False, True])
def test_forward_of_twelve_layers_takes_few_own_calls(model, lengths, all_states):
    mask = torch.arange(16) < torch.tensor(lengths)[:, None]
    batch = {"input_ids": torch.ones(mask.shape, dtype=torch.long), "attention_mask": mask.long()}
    calls, by_products = own_calls(model, {**batch, "output_hidden_states": all_states})
    assert calls.total() <= 250, calls.most_common()
    assert calls["_multiply"] == 6 * LAYERS + 1 and not by_products
