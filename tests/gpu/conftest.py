"""What can differ on a GPU. Every test runs on the CPU, too, at the same tiny size: tests that run nowhere rot."""

import os
from collections.abc import Callable
from typing import Any

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # without it cuBLAS is not deterministic

import pytest
import torch
import transformers
from transformers import TrainingArguments

import mybert

NO_GPU = "there is no CUDA device"
SIZE = {
    "vocab_size": 97,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 96,
    "max_position_embeddings": 192,
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}
LENGTHS = (24, 3, 17, 9, 24, 11)
HEADS = (
    "ForPreTraining",
    "ForMaskedLM",
    "ForNextSentencePrediction",
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
)


@pytest.fixture(
    params=["cpu", pytest.param("cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason=NO_GPU))]
)
def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Each device in turn; of several GPUs one process takes one."""
    monkeypatch.setattr(TrainingArguments, "n_gpu", property(lambda self: int(request.param == "cuda")))
    return request.param


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> str:
    """Each head in turn."""
    return request.param


def make_twins(head: str, device: str) -> tuple[Any, Any]:
    """Our model and transformers', with equal weights at which every term matters; in training, without dropout."""
    labels = {"num_labels": 3} if "Classification" in head else {}
    theirs = getattr(transformers, f"Bert{head}")(transformers.BertConfig(**SIZE, **labels))
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            offset = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(offset + 0.2 * torch.randn(parameter.shape, generator=generator))
    ours = getattr(mybert, f"MyBert{head}")(mybert.MyBertConfig(**SIZE, **labels))
    ours.load_state_dict(theirs.state_dict())
    return ours.train().to(device), theirs.train().to(device)


def make_batch(head: str, device: str, is_full: bool = False) -> dict[str, torch.Tensor]:
    """A batch with labels; padded, or all rows of equal length and no mask."""
    generator = torch.Generator().manual_seed(4)
    rows, length = len(LENGTHS), max(LENGTHS)
    ids = torch.randint(1, SIZE["vocab_size"], (rows, length), generator=generator)
    mask = torch.ones_like(ids) if is_full else (torch.arange(length) < torch.tensor(LENGTHS)[:, None]).long()
    batch = {"input_ids": ids * mask, "attention_mask": mask}
    of_rows = torch.randint(0, 2, (rows,), generator=generator)
    if head in ("ForPreTraining", "ForMaskedLM", "ForTokenClassification"):
        chosen = (torch.rand(ids.shape, generator=generator) < 0.3) & mask.bool()
        batch["labels"] = (ids % 3 if head == "ForTokenClassification" else ids).where(chosen, -100)
        if head == "ForPreTraining":
            batch["next_sentence_label"] = of_rows
    elif head == "ForQuestionAnswering":
        batch |= {"start_positions": of_rows, "end_positions": of_rows + 1}
    elif head == "ForMultipleChoice":
        batch = {name: tensor.view(-1, 2, length) for name, tensor in batch.items()}
        batch["labels"] = of_rows[: rows // 2]
    else:
        batch["labels"] = of_rows
    if is_full:
        del batch["attention_mask"]
    return {name: tensor.to(device) for name, tensor in batch.items()}


@pytest.fixture
def twins() -> Callable[[str, str], tuple[Any, Any]]:
    """Makes two models, see `make_twins`."""
    return make_twins


@pytest.fixture
def batch_for() -> Callable[..., dict[str, torch.Tensor]]:
    """Makes a batch, see `make_batch`."""
    return make_batch


@pytest.fixture
def kernel_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The tokens of each call of the flash kernel for sequences of any length."""
    from mybert.modeling_mybert import batch_mybert

    calls: list[int] = []
    kernel = getattr(batch_mybert, "varlen_attn", None)

    def counted(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(len(query))
        return kernel(query, *args, **kwargs)

    monkeypatch.setattr(batch_mybert, "varlen_attn", counted, raising=False)
    return calls
