"""Tiny models of transformers' encoders, stock and sped up, and batches with every kind of mask."""

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_MAPPING_NAMES

import mybert
from mybert.modeling_mybert.batch_mybert import Batch

SHAPE = (5, 13)
PAD, VOCABULARY, NUM_LABELS = 1, 61, 3
MASKS = ("right", "left", "holes", "left and holes", "full", "none")


def class_of(encoder_type: str, head: str) -> Any:
    """transformers' class; None if the type has no such head."""
    name = MODEL_MAPPING_NAMES[encoder_type].removesuffix("Model")
    return getattr(transformers, f"{name}{head}", None)


def config_of(encoder_type: str, **changes: Any) -> Any:
    """A tiny configuration without dropout; ModernBERT's windows are of two tokens to each side."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48}
    dropouts = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    ids = dict.fromkeys(("bos_token_id", "cls_token_id"), 2) | dict.fromkeys(("eos_token_id", "sep_token_id"), 3)
    if encoder_type == "distilbert":
        sizes = {"dim": 32, "n_layers": 3, "n_heads": 4, "hidden_dim": 48}
        dropouts = {"dropout": 0.0, "attention_dropout": 0.0, "seq_classif_dropout": 0.0, "qa_dropout": 0.0}
    elif encoder_type == "modernbert":
        sizes |= {"local_attention": 4, "global_attn_every_n_layers": 2}
        dropouts = {}
    elif encoder_type == "electra":
        sizes |= {"embedding_size": 16, "summary_last_dropout": 0.0}
    fields = {"vocab_size": VOCABULARY, "max_position_embeddings": 40, "pad_token_id": PAD, "num_labels": NUM_LABELS}
    return AutoConfig.for_model(encoder_type, **{**fields, **ids, **sizes, **dropouts, **changes})


def mask_of(kind: str, shape: tuple[int, int] = SHAPE) -> torch.Tensor | None:
    """A mask (B, L): see `MASKS`, and "empty": a row is nothing but padding."""
    columns = torch.arange(shape[1])
    right = (columns < torch.tensor([13, 4, 7, 7, 1])[:, None]).long()
    if kind == "none":
        return None
    if kind == "left":
        return right.flip(1)
    if "holes" in kind:
        right[0, 3:6] = 0
        right[2, 2] = 0
    if kind == "left and holes":
        right[:, 0] = 0
        right[4, 5] = 1
    if kind == "empty":
        right[2] = 0
    return torch.ones_like(right) if kind == "full" else right


class Pair:
    """A stock model, and the same sped up; a batch for both."""

    def __init__(self, encoder_type: str, head: str, **changes: Any) -> None:
        self.encoder_type, self.head = encoder_type, head
        model_class = class_of(encoder_type, head)
        if model_class is None:
            pytest.skip(f"{encoder_type} has no {head}")
        if head == "ForQuestionAnswering":
            changes = {"num_labels": 2, **changes}
        torch.manual_seed(0)
        self.stock = model_class(config_of(encoder_type, **changes)).eval()
        for parameter in self.stock.parameters():
            if parameter.dim() > 1:
                torch.nn.init.normal_(parameter, std=0.15)
        self.fast = mybert.speed_up(copy.deepcopy(self.stock))

    def batch(self, mask: str = "right", labels: bool = False) -> dict[str, Any]:
        """Inputs with a mask, segments where the type has some, and labels, of which none is at padding."""
        generator = torch.Generator().manual_seed(7)
        attention_mask = mask_of(mask)
        input_ids = torch.randint(5, VOCABULARY, SHAPE, generator=generator)
        batch = {"input_ids": input_ids}
        if attention_mask is not None:
            batch["input_ids"] = input_ids * attention_mask + PAD * (1 - attention_mask)
            batch["attention_mask"] = attention_mask
        if getattr(self.stock.config, "type_vocab_size", 0) > 1:
            batch["token_type_ids"] = (torch.arange(SHAPE[1]) > 2).long().expand(SHAPE).contiguous()
        if labels:
            batch |= self._labels(input_ids, attention_mask)
        if self.head == "ForMultipleChoice":
            for name in {"input_ids", "attention_mask", "token_type_ids"} & batch.keys():
                batch[name] = torch.stack([batch[name], batch[name].roll(1, 0)], 1)
        return batch

    def _labels(self, input_ids: torch.Tensor, attention_mask: torch.Tensor | None) -> dict[str, torch.Tensor]:
        rows, kept = torch.arange(SHAPE[0]), 1 if attention_mask is None else attention_mask
        if self.head == "ForQuestionAnswering":
            return {"start_positions": rows, "end_positions": rows + 2}
        if self.head == "ForPreTraining" and self.encoder_type == "electra":
            return {"labels": input_ids % 2}
        if self.head in ("ForMaskedLM", "ForPreTraining", "ForTokenClassification"):
            classes = NUM_LABELS if self.head == "ForTokenClassification" else VOCABULARY
            of_tokens = {"labels": input_ids % classes * kept - 100 * (1 - kept)}
            return of_tokens | ({"next_sentence_label": rows % 2} if self.head == "ForPreTraining" else {})
        return {} if self.head == "Model" else {"labels": rows % 2}


def tensors(output: Any) -> list[torch.Tensor]:
    """All tensors of an output, also those in tuples."""
    if isinstance(output, torch.Tensor):
        return [output]
    parts = output if isinstance(output, tuple) else output.to_tuple()
    return [tensor for part in parts if part is not None for tensor in tensors(part)]


def at_tokens(tensor: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
    """The values at tokens, and at the first token of each row, which heads read even if it is padding."""
    mask = batch.get("attention_mask")
    if mask is None or mask.dim() == 4 or tensor.shape[:2] != (mask.shape[:-1].numel(), mask.shape[-1]):
        return tensor
    mask = mask.flatten(0, -2).bool().clone()  # with the choices of a row as rows
    mask[:, 0] |= mask.any(1)
    return tensor[mask]


@pytest.fixture
def pair() -> type[Pair]:
    """(Type, head, fields of the configuration) -> a stock model and one that is sped up."""
    return Pair


@pytest.fixture
def masks() -> Callable[..., torch.Tensor | None]:
    """Kind -> a mask."""
    return mask_of


@pytest.fixture
def agree() -> Callable[..., None]:
    """Compares outputs at tokens, and the gradients of a random projection of them, or of the loss."""

    def compare(
        stock: Any, fast: Any, batch: dict[str, Any], tolerance: float = 1e-5, gradients: bool = False
    ) -> None:
        outputs = [tensors(model(**batch)) for model in (stock, fast)]
        assert len(outputs[0]) == len(outputs[1])
        both = [[at_tokens(tensor, batch) for tensor in parts] for parts in outputs]
        for expected, actual in zip(*both, strict=True):
            torch.testing.assert_close(actual, expected, atol=tolerance, rtol=tolerance)
        if gradients:
            for model, parts in zip((stock, fast), both, strict=True):
                generator = torch.Generator().manual_seed(3)
                loss = parts[0] if parts[0].dim() == 0 else 0
                if parts[0].dim():
                    for part in parts:
                        loss = loss + (part * torch.randn(part.shape, generator=generator)).sum()
                model.zero_grad()
                loss.backward()
            pairs = zip(stock.named_parameters(), fast.parameters(), strict=True)
            for (name, expected), actual in pairs:
                if expected.grad is None:
                    assert actual.grad is None or not actual.grad.any(), name
                else:
                    scale = max(1.0, expected.grad.abs().max().item())
                    difference = (actual.grad - expected.grad).abs().max().item()
                    assert difference <= tolerance * scale, (name, difference)

    return compare


class Count:
    """How often something happened."""

    def __init__(self) -> None:
        self.value = 0


@pytest.fixture
def packed(monkeypatch: pytest.MonkeyPatch) -> Iterator[Count]:
    """Counts the tensors that were unpacked: 0 if every batch ran padded."""
    count, unpack = Count(), Batch.unpack

    def counted(batch: Batch, states: torch.Tensor) -> torch.Tensor:
        count.value += 1
        return unpack(batch, states)

    monkeypatch.setattr(Batch, "unpack", counted)
    return count
