"""Batches with precomputed indices: the same results, without reading tensor values, which would synchronize a GPU."""

import pytest
import torch
from torch import nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

import mybert
from mybert.modeling_mybert import attention_mybert

VOCABULARY_HEADS = ("ForPreTraining", "ForMaskedLM")


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_known_indices_change_nothing(head_with_loss, training, is_decoder, step):
    head = head_with_loss
    model, batch = head.model(dropout=0.0, is_decoder=is_decoder).train(training), head.batch(labels=True)
    if head.name == "ForQuestionAnswering":
        batch["unpad_inputs"] = True
    if not training:
        model.config.sparse_prediction = True
    torch.testing.assert_close(step(model, head.known(batch))[1], step(model, batch)[1], rtol=0, atol=0)
    full = {name: value for name, value in batch.items() if name != "attention_mask"}
    with_mask = {**full, "attention_mask": torch.ones_like(full["input_ids"])}
    torch.testing.assert_close(step(model, head.known(with_mask))[1], step(model, full)[1], rtol=0, atol=0)
    model.set_attn_implementation("eager")  # which keeps the padding
    torch.testing.assert_close(step(model, head.known(batch))[1], step(model, batch)[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", VOCABULARY_HEADS)
@pytest.mark.parametrize("form", ["padded", "packed"])
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("num_items", [None, 17])
def test_label_positions_up_to_a_bound(heads, name, form, training, num_items, step):
    """Spare positions without a label change neither loss nor gradients, and their logits come last."""
    head = heads(name)
    model, batch = head.model(dropout=0.0, sparse_prediction=True).train(training), head.batch(labels=True)
    batch = head.flattened(batch) if form == "packed" else batch
    batch["num_items_in_batch"] = num_items
    reference, expected = step(model, batch)
    count = int((batch["labels"] != -100).sum())
    for spare in (1, 9):
        outputs, found = step(model, head.known(batch, spare))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
        logits = "prediction_logits" if name == "ForPreTraining" else "logits"
        assert outputs[logits].shape == (count + spare, model.config.vocab_size)
        torch.testing.assert_close(outputs[logits][:count], reference[logits], rtol=0, atol=1e-6)


def flash(module, query, *args, **kwargs):
    return query.transpose(1, 2).clone(), None


def as_on_a_gpu(model, kernel: str | None, monkeypatch) -> None:
    """Make the meta device take a GPU's code path: a fake variable-length kernel, or none."""
    monkeypatch.setattr(mybert.MyBertModel, "_supports_varlen", lambda model, words: kernel == "varlen")
    monkeypatch.setitem(ALL_ATTENTION_FUNCTIONS._local_mapping, "flash_attention_2", flash)
    monkeypatch.setattr(attention_mybert, "varlen_attn", lambda query, *args, **kwargs: query.clone(), raising=False)
    if kernel == "flash":
        monkeypatch.setattr(model.config, "_attn_implementation_internal", "flash_attention_2")


def on_meta(batch) -> dict:
    return {name: value.to("meta") if isinstance(value, torch.Tensor) else value for name, value in batch.items()}


@pytest.mark.parametrize("kernel", ["varlen", "flash", None])
@pytest.mark.parametrize("form", ["padded", "full", "packed"])
@pytest.mark.parametrize("is_decoder", [False, True])
def test_a_training_step_reads_no_value(head_with_loss, kernel, form, is_decoder, monkeypatch, no_value_read, step):
    """Forward and backward, dropout included; once for each head also clipping and the optimizer's step."""
    head = head_with_loss
    model, batch = head.model(is_decoder=is_decoder, max_position_embeddings=88), head.batch(labels=True)
    model.train().to("meta")
    as_on_a_gpu(model, kernel, monkeypatch)
    if head.name == "ForQuestionAnswering" and kernel == "flash":
        batch["unpad_inputs"] = True  # otherwise padding is a possible answer, and the model reads the labels
    if form == "full":
        batch["attention_mask"] = torch.ones_like(batch["input_ids"])
    batch = on_meta(head.known(head.flattened(batch) if form == "packed" else batch, 2))
    if head.name == "ForSequenceClassification":
        model.config.problem_type = "single_label_classification"
    optimizer = torch.optim.AdamW(model.parameters())
    with no_value_read():
        outputs, found = step(model, batch)
        if (kernel, form, is_decoder) == ("varlen", "padded", False):
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
    assert len(found) > 1 and outputs.loss.is_meta


@pytest.mark.parametrize("kernel", ["varlen", "flash", None])
def test_who_does_not_know_has_to_look(heads, kernel, monkeypatch, no_value_read):
    """The test above can fail: without the indices, values are read."""
    head = heads("ForMaskedLM")
    model, batch = head.model().train().to("meta"), head.batch(labels=True)
    as_on_a_gpu(model, kernel, monkeypatch)
    everything = head.known(batch)
    for missing in ("token_indices", "prediction_indices"):
        lacking = on_meta({name: value for name, value in everything.items() if name != missing})
        with pytest.raises(AssertionError, match="reads values"), no_value_read():
            model(**lacking)


def test_no_value_read_rejects_every_kind_of_reading(no_value_read):
    values = torch.ones(3, device="meta")
    for read in (
        lambda: values.sum().item(),
        lambda: values.nonzero(),
        lambda: values[values > 0],
        lambda: values.unique(),
        lambda: values.masked_select(values > 0),
        lambda: values.__setitem__(values > 0, torch.zeros(3, device="meta")),
        lambda: torch.equal(values, values),
        lambda: bool(values.all()),
    ):
        with pytest.raises((AssertionError, RuntimeError)), no_value_read():
            read()
    for read in (values.tolist, values.cpu, lambda: values.repeat_interleave(values.long())):
        with pytest.raises((NotImplementedError, RuntimeError)):  # by the device itself
            read()
    with no_value_read():
        values[torch.zeros(2, dtype=torch.long, device="meta")]
