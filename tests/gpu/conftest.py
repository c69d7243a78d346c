"""What can differ on a GPU. Every test runs on the CPU, too, at the same tiny size: tests that run nowhere rot."""

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic

import pytest
import torch
from transformers import TrainingArguments

NO_GPU = "there is no CUDA device"
SIZE = {"hidden_size": 64, "intermediate_size": 96, "max_position_embeddings": 192, "dropout": 0.0}


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU))]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each device in turn; of several GPUs one process takes one."""
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: int(request.param == "cuda")))
    return request.param


@pytest.fixture
def head(head_with_loss: Any) -> str:
    """The name of each head in turn."""
    return head_with_loss.name


@pytest.fixture
def matched_models(heads: Any) -> Callable[[str, str], list[Any]]:
    """Makes our model and transformers' with equal weights, for training, on a device."""
    return lambda head, device: [model.train().to(device) for model in heads(head).matched_models(**SIZE)]


@pytest.fixture
def batch_for(heads: Any) -> Callable[..., dict[str, torch.Tensor]]:
    """Makes a batch with labels on a device; padded, or all rows of equal length and no mask."""

    def make(head: str, device: str, is_full: bool = False) -> dict[str, torch.Tensor]:
        batch = heads(head).batch(None if is_full else "right", labels=True)
        return {name: tensor.to(device) for name, tensor in batch.items()}

    return make


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each call of the flash kernel for sequences of any length."""
    from mybert.modeling_mybert import attention_mybert

    calls: list[int] = []
    kernel = getattr(attention_mybert, "varlen_attn", None)

    def counted(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(len(query))
        return kernel(query, *args, **kwargs)

    monkeypatch.setattr(attention_mybert, "varlen_attn", counted, raising=False)
    return calls
