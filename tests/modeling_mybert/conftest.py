"""The comparison of a model with transformers', and what libraries log."""

import contextlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import transformers


@pytest.fixture
def agree(heads: Any) -> Callable[..., None]:
    """Calls both on a batch, MyBERT with padding and packed: outputs, loss and all parameters' gradients must agree.

    Without a loss the gradients are those of a fixed random projection of all outputs. If dropout is on, both draw
    from the same seed.
    """

    def compare(
        my_bert: Any,
        bert: Any,
        batch: dict[str, Any],
        tolerance: float = 1e-5,
        gradients: bool = True,
        unpads: tuple[bool, ...] = (False, True),
    ) -> None:
        assert my_bert.config.unpad_inputs
        expected = seeded_outputs(bert, batch)
        for unpad_inputs in unpads:
            if unpad_inputs and my_bert.training and my_bert.config.hidden_dropout_prob > 0:
                continue  # packed tokens draw their dropout in another order
            my_bert.config.unpad_inputs = unpad_inputs
            pairs = compared_outputs(heads.at_tokens, my_bert, batch, expected, tolerance)
            if gradients:
                compare_gradients(my_bert, bert, *map(list, zip(*pairs, strict=True)), tolerance)

    return compare


def seeded_outputs(model: Any, batch: dict[str, Any]) -> Any:
    """A model's outputs, with dropout drawn from one seed."""
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` keeps a traceback for each GPU library: 5 ms
    return model(**batch)


def compared_outputs(
    at_tokens: Any, my_bert: Any, batch: dict[str, Any], expected_outputs: Any, tolerance: float
) -> list:
    """Pairs of equal outputs; a packed batch has no states at padding, so none are compared there."""
    outputs = seeded_outputs(my_bert, batch)
    if not isinstance(outputs, tuple):
        # BERT's have an empty field for cross-attentions; MyBERT's also have both losses.
        both = [name for name in ("mlm_loss", "nsp_loss") if name in outputs]
        assert list(outputs) == [name for name in expected_outputs if name != "cross_attentions"] + both
        assert not both or outputs.loss == sum(outputs[name] for name in both)
        outputs = [outputs[name] for name in outputs if name not in both]
    labels, pairs = batch.get("labels"), []
    for tensor, expected in zip(flat_tensors(outputs), flat_tensors(expected_outputs), strict=True):
        if tensor.dim() > 1 and tensor.shape[0] != expected.shape[0]:
            # Logits of labeled positions only, in training.
            assert my_bert.training and tensor.shape == (int((labels != -100).sum()), my_bert.config.vocab_size)
            expected = expected[labels != -100]
        elif my_bert.config.unpad_inputs:
            tensor, expected = at_tokens(tensor, batch), at_tokens(expected, batch)
        pairs.append((tensor, expected))
        torch.testing.assert_close(tensor, expected, rtol=0, atol=tolerance)
    return pairs


def compare_gradients(my_bert: Any, bert: Any, tensors: list, expected_tensors: list, tolerance: float) -> None:
    """The gradients of both models' first scalar output, or of a projection of all outputs."""
    for model, outputs in ((my_bert, tensors), (bert, expected_tensors)):
        model.zero_grad()
        generator = torch.Generator().manual_seed(5)
        if outputs[0].dim() == 0:
            objective = outputs[0]
        else:
            objective = sum((tensor * torch.randn(tensor.shape, generator=generator)).mean() for tensor in outputs)
        objective.backward(retain_graph=model is bert)  # which is called once, for padded and packed batches
    expected_gradients = {name: parameter.grad for name, parameter in bert.named_parameters()}
    gradients = {name: parameter.grad for name, parameter in my_bert.named_parameters()}
    assert gradients.keys() == expected_gradients.keys()
    assert any(gradient is not None and gradient.abs().max() > 1e-4 for gradient in gradients.values())
    # A parameter without a gradient (a pooler that no loss uses) must have none in either model.
    torch.testing.assert_close(gradients, expected_gradients, rtol=0, atol=tolerance)


def flat_tensors(outputs: Any) -> list[torch.Tensor]:
    """All tensors of a model's output, in order."""
    if isinstance(outputs, torch.Tensor):
        return [outputs]
    values = outputs.values() if hasattr(outputs, "values") else outputs
    return [tensor for value in values if value is not None for tensor in flat_tensors(value)]


def run_step(model: Any, batch: dict[str, Any]) -> tuple[Any, dict[str, torch.Tensor]]:
    """The outputs; and by name the loss, or the outputs' mean squares, and all gradients, which must not vanish."""
    model.zero_grad()
    outputs = model(**batch)
    loss = outputs.loss if "loss" in outputs else sum(tensor.square().mean() for tensor in outputs.values())
    loss.backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
    assert loss.is_meta or max(gradient.abs().max() for gradient in gradients.values()) > 1e-4
    # A compiled model's names have a prefix.
    return outputs, {"loss": loss.detach()} | {name.removeprefix("_orig_mod."): gradients[name] for name in gradients}


@pytest.fixture
def step() -> Callable[..., tuple[Any, dict[str, torch.Tensor]]]:
    """One forward and backward pass, `run_step`."""
    return run_step


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
