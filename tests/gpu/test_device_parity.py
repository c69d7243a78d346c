"""Losses and gradients compared with transformers' BERT on each device, in float32 and bfloat16, padded and packed."""

import pytest
import torch

from mybert.modeling_mybert.attention_mybert import supports_varlen

LAYERS = 2


def has_kernel(device: str) -> bool:
    """Whether the models of these tests run in the flash kernel for sequences of any length in bfloat16."""
    return supports_varlen(torch.device(device), torch.bfloat16, head_size=16, dropout=0.0)


def loss_and_gradient(model, batch, dtype=None) -> tuple[float, torch.Tensor]:
    """The loss, and all gradients as one vector in float64."""
    model.zero_grad()
    device = next(model.parameters()).device.type
    with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        loss = model(**batch).loss
    loss.backward()
    gradients = [p.grad.flatten().double().cpu() for p in model.parameters() if p.grad is not None]
    return float(loss.detach()), torch.cat(gradients)


@pytest.fixture
def in_rows(heads):
    """The sequences of a padded batch one after the other in one row, with the indices of their labels."""
    head = heads("ForPreTraining")
    return lambda batch: head.known(head.flattened(batch))


@pytest.mark.parametrize("is_full", [False, True], ids=["padded", "full"])
def test_float32(device, head, is_full, matched_models, batch_for):
    my_bert, bert = matched_models(head, device)
    batch = batch_for(head, device, is_full)
    (loss, gradient), (expected, expected_gradient) = (loss_and_gradient(model, batch) for model in (my_bert, bert))
    assert loss == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert (gradient - expected_gradient).norm() <= 1e-5 * expected_gradient.norm()


@pytest.mark.parametrize("is_full", [False, True], ids=["padded", "full"])
def test_bfloat16(device, head, is_full, matched_models, batch_for, kernel_calls):
    """As near to float32 as transformers in bfloat16; a padded batch runs in the flash kernel where there is one."""
    my_bert, bert = matched_models(head, device)
    batch = batch_for(head, device, is_full)
    expected, expected_gradient = loss_and_gradient(bert, batch)
    losses, distances = [], []
    for model in (my_bert, bert):
        loss, gradient = loss_and_gradient(model, batch, torch.bfloat16)
        losses.append(abs(loss - expected))
        distances.append(float((gradient - expected_gradient).norm() / expected_gradient.norm()))
    assert losses[0] <= 2 * losses[1] + 0.01 * expected
    assert 1e-4 < distances[0] <= 1.5 * distances[1] + 0.01
    is_packed = has_kernel(device) and not is_full and head != "ForQuestionAnswering"
    assert kernel_calls == [int(batch["attention_mask"].sum())] * LAYERS if is_packed else kernel_calls == []


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_packed_rows_are_the_padded_batch(device, dtype, matched_models, batch_for, in_rows, kernel_calls):
    my_bert, bert = matched_models("ForPreTraining", device)
    batch = batch_for("ForPreTraining", device)
    expected, expected_gradient = loss_and_gradient(bert, batch)
    loss, gradient = loss_and_gradient(my_bert, in_rows(batch), dtype)
    tolerance = 1e-5 if dtype is None else 0.05
    assert loss == pytest.approx(expected, rel=tolerance)
    assert (gradient - expected_gradient).norm() <= tolerance * expected_gradient.norm()
    assert bool(kernel_calls) == (has_kernel(device) and dtype is not None)


@pytest.mark.parametrize("attention", ["flash_attention_2", "flash_attention_3"])
def test_flash_attention(device, attention, matched_models, batch_for, in_rows):
    """If it is installed; the CPU tests use a stand-in."""
    my_bert, bert = matched_models("ForPreTraining", device)
    try:
        my_bert.set_attn_implementation(attention)
    except (ImportError, ValueError, OSError) as error:
        pytest.skip(f"{attention} cannot be had here: {error}")
    batch = batch_for("ForPreTraining", device)
    expected, expected_gradient = loss_and_gradient(bert, batch)
    for form in (batch, in_rows(batch)):
        loss, gradient = loss_and_gradient(my_bert, form, torch.bfloat16)
        assert loss == pytest.approx(expected, rel=0.05)
        assert (gradient - expected_gradient).norm() <= 0.05 * expected_gradient.norm()
