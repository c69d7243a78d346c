"""A classifier of the mean hidden state: equal however the batch is laid out, and saved as such."""

import pytest
import torch

from mybert import MyBertForSequenceClassification, MyBertModel


@pytest.fixture
def model(heads):
    return heads("ForSequenceClassification").model(classifier_pooling="mean", dropout=0.0)


def by_hand(model, batch):
    """The logits, a sequence at a time and without padding."""
    rows = []
    for ids, mask in zip(batch["input_ids"], batch["attention_mask"].bool(), strict=True):
        places = mask.nonzero().T
        states = model.bert(ids[mask][None], position_ids=places, unpad_inputs=False).last_hidden_state
        rows.append(model.classifier(states[0].sum(0) / len(states[0])))
    return torch.stack(rows)


@pytest.mark.parametrize("padding", ["right", "left", "holes"])
@pytest.mark.parametrize("unpad_inputs", [True, False])
def test_mean_of_padded_rows_is_that_of_their_tokens(heads, model, step, padding, unpad_inputs):
    batch = heads("ForSequenceClassification").batch(padding, labels=True)
    model.zero_grad()
    expected = by_hand(model, batch)
    loss = torch.nn.functional.cross_entropy(expected, batch["labels"])
    loss.backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters()}
    model.config.unpad_inputs = unpad_inputs
    outputs, found = step(model, batch)
    torch.testing.assert_close(outputs.logits, expected, rtol=0, atol=1e-5)
    torch.testing.assert_close(found, {"loss": loss.detach()} | gradients, rtol=0, atol=1e-5)


@pytest.mark.parametrize("boundaries", ["positions", "offsets"])
@pytest.mark.parametrize("unpad_inputs", [True, False])
def test_mean_of_several_sequences_in_a_row_is_that_of_each(heads, model, boundaries, unpad_inputs):
    head = heads("ForSequenceClassification")
    batch = head.batch("right", labels=True)
    flat = head.flattened(batch)
    for name in [name for name in flat if name.startswith(("cu_", "max_"))] if boundaries == "positions" else []:
        del flat[name]
    model.config.unpad_inputs = unpad_inputs
    torch.testing.assert_close(model(**flat).logits, by_hand(model, batch), rtol=0, atol=1e-5)


def test_mean_of_an_empty_row_is_finite_and_changes_no_other(heads, model):
    batch = heads("ForSequenceClassification").batch("right")
    expected = model(**batch).logits
    batch["attention_mask"][1] = 0
    found = model(**batch).logits
    assert found.isfinite().all()
    others = [0, 2, 3]
    torch.testing.assert_close(found[others], expected[others], rtol=0, atol=1e-6)


def test_mean_with_a_prepared_mask_is_an_error(heads, model):
    batch = heads("ForSequenceClassification").batch(None)
    mask = torch.ones(4, 1, 11, 11, dtype=torch.bool)
    with pytest.raises(ValueError, match=r"attention_mask has shape \(4, 1, 11, 11\); expected \(4, 11\)"):
        model(**batch, attention_mask=mask)


def test_a_classifier_of_the_mean_has_no_pooler_and_is_loaded_as_saved(heads, model, tmp_path):
    assert not any("pooler" in name for name in model.state_dict())
    model.save_pretrained(tmp_path)
    loaded, report = MyBertForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report.values())
    batch = heads("ForSequenceClassification").batch()
    torch.testing.assert_close(loaded.eval()(**batch).logits, model(**batch).logits, rtol=0, atol=0)
    encoder = MyBertModel.from_pretrained(tmp_path, add_pooling_layer=False).eval()
    states = encoder(**batch).last_hidden_state
    mask = batch["attention_mask"][..., None]
    mean = (states * mask).sum(1) / mask.sum(1)
    torch.testing.assert_close(model.classifier(mean), model(**batch).logits, rtol=0, atol=1e-6)
