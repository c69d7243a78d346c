"""Every MyBERT model class paired with transformers' class, tiny, with equal weights and inputs."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers

import mybert

HEADS = (
    "Model",
    "ForPreTraining",
    "ForMaskedLM",
    "ForNextSentencePrediction",
    "ForSequenceClassification",
    "ForMultipleChoice",
    "ForTokenClassification",
    "ForQuestionAnswering",
)
TINY = {
    "vocab_size": 61,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 24,
    "type_vocab_size": 3,
}
NUM_LABELS = 3
BATCH_SIZE, NUM_CHOICES, LENGTH = 4, 2, 11


class Head:
    """A model class of MyBERT, transformers' class of the same name, and batches for both."""

    names = HEADS

    def __init__(self, name: str) -> None:
        self.name = name
        self.ours: Any = getattr(mybert, f"MyBert{name}")
        self.theirs: Any = getattr(transformers, f"Bert{name}")

    def settings(self, **changes: Any) -> dict[str, Any]:
        """Configuration fields: tiny, one `dropout` or that of BERT, three labels if the head has labels."""
        labels = {} if self.name == "ForQuestionAnswering" else {"num_labels": NUM_LABELS}
        dropout = changes.pop("dropout", 0.1)
        dropouts = {"hidden_dropout_prob": dropout, "attention_probs_dropout_prob": dropout}
        return {**TINY, **labels, **dropouts, **changes}

    def twins(self, **changes: Any) -> tuple[Any, Any]:
        """Our model and theirs, in eval mode, with the same random weights."""
        attention = changes.pop("attn_implementation", "sdpa")
        theirs = self.theirs._from_config(
            transformers.BertConfig(**self.settings(**changes)), attn_implementation=attention
        )
        spread_weights(theirs)
        ours = self.ours._from_config(mybert.MyBertConfig(**self.settings(**changes)), attn_implementation=attention)
        ours.load_state_dict(theirs.state_dict())
        return ours.eval(), theirs.eval()

    def model(self, **changes: Any) -> Any:
        """Our model, in eval mode."""
        model = self.ours(mybert.MyBertConfig(**self.settings(**changes)))
        spread_weights(model)
        return model.eval()

    def batch(self, padding: str | None = "right", labels: bool = False, batch_size: int = BATCH_SIZE) -> dict:
        """A batch; padding is `right`, `left`, `holes` (here and there) or None (no mask)."""
        generator = torch.Generator().manual_seed(7)
        choices = (NUM_CHOICES,) if self.name == "ForMultipleChoice" else ()
        shape = (batch_size, *choices, LENGTH)
        batch = {"input_ids": torch.randint(1, TINY["vocab_size"], shape, generator=generator)}
        if padding is not None:
            batch["attention_mask"] = padding_mask(padding, shape, generator)
        if labels:
            batch.update(self.labels(batch["input_ids"], generator))
        if padding is not None and batch.get("labels", batch["input_ids"][0]).shape == shape:
            batch["labels"] = batch["labels"].where(batch["attention_mask"].bool(), -100)
        return batch

    @staticmethod
    def at_tokens(output: torch.Tensor, batch: dict[str, Any]) -> torch.Tensor:
        """An output at real tokens only; a packed batch has no hidden states at padding."""
        mask = batch.get("attention_mask")
        if mask is None or mask.dim() == 4 or output.shape[:2] != mask.flatten(0, -2).shape:
            return output
        return output[mask.flatten(0, -2).bool()]

    def flattened(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The sequences of a padded batch one after the other, in a row, with their positions and boundaries."""
        mask = batch["attention_mask"].flatten(0, -2).bool()
        flat = {name: value for name, value in batch.items() if name != "attention_mask"}
        flat["position_ids"] = (mask.cumsum(1) - 1)[mask][None]
        for name in {"input_ids", "labels"} & batch.keys():
            if batch[name].shape == batch["input_ids"].shape:
                flat[name] = batch[name].flatten(0, -2)[mask][None]
        if self.name == "ForMultipleChoice":
            flat |= {name: flat[name][None] for name in ("input_ids", "position_ids")}
        ends = torch.nn.functional.pad(mask.sum(1).cumsum(0), (1, 0)).int()
        for side in "qk":
            flat |= {f"cu_seq_lens_{side}": ends, f"max_length_{side}": int(mask.sum(1).max())}
        return flat

    def labels(self, input_ids: torch.Tensor, generator: torch.Generator) -> dict[str, torch.Tensor]:
        """Labels of a batch, some of them -100 where the head allows it."""

        def draw(high: int, shape: tuple[int, ...]) -> torch.Tensor:
            return torch.randint(0, high, shape, generator=generator)

        rows = (len(input_ids),)
        if self.name in ("ForMaskedLM", "ForPreTraining"):
            chosen = torch.rand(input_ids.shape, generator=generator) < 0.3
            labels = {"labels": input_ids.where(chosen, -100)}
            return labels if self.name == "ForMaskedLM" else {**labels, "next_sentence_label": draw(2, rows)}
        if self.name == "ForTokenClassification":
            labels = draw(NUM_LABELS, input_ids.shape)
            return {"labels": labels.where(torch.rand(input_ids.shape, generator=generator) < 0.7, -100)}
        if self.name == "ForQuestionAnswering":
            return {"start_positions": draw(LENGTH, rows), "end_positions": draw(LENGTH, rows)}
        classes = {"ForNextSentencePrediction": 2, "ForMultipleChoice": NUM_CHOICES}.get(self.name, NUM_LABELS)
        return {} if self.name == "Model" else {"labels": draw(classes, rows)}


def spread_weights(model: Any) -> None:
    """Draw weights so that every term matters: biases are not 0 and layer-norm gains are not 1."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            offset = 1.0 if name.endswith("LayerNorm.weight") else 0.0
            parameter.copy_(offset + 0.2 * torch.randn(parameter.shape, generator=generator))


def padding_mask(padding: str, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """1 at tokens, 0 at padding."""
    length = shape[-1]
    lengths = torch.randint(3, length + 1, (*shape[:-1], 1), generator=generator)
    if padding == "right":
        return (torch.arange(length) < lengths).long()
    if padding == "left":
        return (torch.arange(length) >= length - lengths).long()
    mask = (torch.rand(shape, generator=generator) < 0.6).long()
    mask[..., 0] = 1
    return mask


def assert_twins_agree(
    ours: Any,
    theirs: Any,
    batch: dict[str, Any],
    *,
    seed: int = 0,
    tolerance: float = 1e-5,
    gradients: bool = True,
    unpads: tuple[bool, ...] = (False, True),
) -> None:
    """Call both on the batch, ours with padding and packed: outputs, loss and all parameters' gradients must agree.

    Without a loss the gradients are those of a fixed random projection of all outputs. If dropout is on, both draw
    from the same seed.
    """
    assert ours.config.unpad_inputs
    for unpad_inputs in unpads:
        if unpad_inputs and ours.training and ours.config.hidden_dropout_prob > 0:
            continue  # packed tokens draw their dropout in another order
        ours.config.unpad_inputs = unpad_inputs
        compare_outputs(ours, theirs, batch, seed, tolerance, gradients)


def compare_outputs(
    ours: Any, theirs: Any, batch: dict[str, Any], seed: int, tolerance: float, gradients: bool
) -> None:
    """One comparison of `assert_twins_agree`; a packed batch has no states at padding, so none are compared there."""
    torch.manual_seed(seed)
    our_outputs = ours(**batch)
    torch.manual_seed(seed)
    their_outputs = theirs(**batch)
    if not isinstance(our_outputs, tuple):
        # Theirs have an empty field for cross-attentions; ours also return both losses.
        both = [name for name in ("mlm_loss", "nsp_loss") if name in our_outputs]
        assert list(our_outputs) == [name for name in their_outputs if name != "cross_attentions"] + both
        assert not both or our_outputs.loss == sum(our_outputs[name] for name in both)
        our_outputs = [our_outputs[name] for name in our_outputs if name not in both]
    our_tensors, their_tensors = flat_tensors(our_outputs), flat_tensors(their_outputs)
    assert len(our_tensors) == len(their_tensors)
    labels = batch.get("labels")
    pairs = []
    for our_tensor, their_tensor in zip(our_tensors, their_tensors, strict=True):
        if our_tensor.dim() > 1 and our_tensor.shape[0] != their_tensor.shape[0]:
            # Logits of labelled positions only, in training.
            assert ours.training and our_tensor.shape == (int((labels != -100).sum()), TINY["vocab_size"])
            their_tensor = their_tensor[labels != -100]
        elif ours.config.unpad_inputs:
            our_tensor, their_tensor = Head.at_tokens(our_tensor, batch), Head.at_tokens(their_tensor, batch)
        pairs.append((our_tensor, their_tensor))
        torch.testing.assert_close(our_tensor, their_tensor, rtol=0, atol=tolerance)
    if gradients:
        compare_gradients(ours, theirs, *map(list, zip(*pairs, strict=True)), tolerance)


def compare_gradients(ours: Any, theirs: Any, our_tensors: list, their_tensors: list, tolerance: float) -> None:
    """The gradients of both models' first scalar output, or of a projection of all outputs."""
    for model, tensors in ((ours, our_tensors), (theirs, their_tensors)):
        model.zero_grad()
        generator = torch.Generator().manual_seed(5)
        if tensors[0].dim() == 0:
            objective = tensors[0]
        else:
            objective = sum((tensor * torch.randn(tensor.shape, generator=generator)).mean() for tensor in tensors)
        objective.backward()
    their_gradients = {name: parameter.grad for name, parameter in theirs.named_parameters()}
    our_gradients = {name: parameter.grad for name, parameter in ours.named_parameters()}
    assert our_gradients.keys() == their_gradients.keys()
    assert any(gradient is not None and gradient.abs().max() > 1e-4 for gradient in our_gradients.values())
    # A parameter without a gradient (a pooler that no loss uses) must have none in either model.
    torch.testing.assert_close(our_gradients, their_gradients, rtol=0, atol=tolerance)


def flat_tensors(outputs: Any) -> list[torch.Tensor]:
    """All tensors of a model's output, in order."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    values = outputs.values() if hasattr(outputs, "values") else outputs
    return [tensor for value in values if value is not None for tensor in flat_tensors(value)]


@pytest.fixture(params=HEADS)
def head(request: pytest.FixtureRequest) -> Head:
    """Each head in turn."""
    return Head(request.param)


@pytest.fixture(params=HEADS[1:])
def head_with_loss(request: pytest.FixtureRequest) -> Head:
    """Each head that takes labels in turn."""
    return Head(request.param)


@pytest.fixture
def heads() -> Callable[[str], Head]:
    """A head by name."""
    return Head


@pytest.fixture
def agree() -> Callable[..., None]:
    """The comparison of both models, `assert_twins_agree`."""
    return assert_twins_agree


def shapes_of_inputs(module: torch.nn.Module, measure: Callable[[torch.Size], Any] = tuple) -> list[Any]:
    """Record the shape of the first input at each call, by a hook that counts as PyTorch's: batches stay packed."""
    shapes: list[Any] = []

    def record(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
        shapes.append(measure(inputs[0].shape))

    record.__module__ = "torch.utils.flop_counter"
    module.register_forward_pre_hook(record)
    return shapes


@pytest.fixture
def watch() -> Callable[..., list[Any]]:
    """The recorder `shapes_of_inputs`."""
    return shapes_of_inputs


@contextlib.contextmanager
def complaints_heard() -> Iterator[list[str]]:
    """Collect what is logged as a warning or an error by any library, and Python's warnings."""
    complaints: list[str] = []
    handler = logging.Handler(logging.WARNING)
    handler.emit = lambda record: complaints.append(record.getMessage())  # type: ignore[method-assign]
    # transformers' logger does not propagate, and issues some warnings only once per process.
    loggers = [logging.getLogger(), logging.getLogger("transformers")]
    transformers.utils.logging.warning_once.cache_clear()
    for logger in loggers:
        logger.addHandler(handler)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield complaints
    finally:
        for logger in loggers:
            logger.removeHandler(handler)
    complaints.extend(str(warning.message) for warning in caught)


@pytest.fixture
def record_complaints() -> Callable[..., Any]:
    """The context manager `complaints_heard`."""
    return complaints_heard


@pytest.fixture
def no_complaints() -> Iterator[None]:
    """Fail the test if it causes a warning or an error in the log."""
    with complaints_heard() as complaints:
        yield
    assert complaints == []
