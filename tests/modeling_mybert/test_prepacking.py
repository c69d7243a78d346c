"""Prepacked weights: a second copy for the CPU's kernels, used in inference as long as it is up to date."""

import copy
import pickle

import numpy as np
import pytest
import torch

import mybert
from mybert.modeling_mybert import linear_mybert
from mybert.modeling_mybert.linear_mybert import PackedWeight

needs_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")


@needs_onednn
@pytest.mark.parametrize("padding", [None, "right"])
def test_prepacked_weights_give_the_same(head, padding, monkeypatch):
    model, batch = head.model(), head.batch(padding)
    products, multiply = [], linear_mybert.multiply_by_onednn

    def counted(states, weight, *others):
        products.extend([1] if weight.is_mkldnn else [])
        return multiply(states, weight, *others)

    monkeypatch.setattr(linear_mybert, "multiply_by_onednn", counted)
    with torch.no_grad():
        expected = model(**batch)
        assert not products
        outputs = model.prepack_weights()(**batch)
    assert len(products) >= 2 * 4  # query, key and value are one
    for name, tensor in outputs.items():
        torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-5)


@needs_onednn
def test_a_layer_that_is_more_than_its_product_is_called_by_itself(heads):
    model, batch = heads("Model").model().prepack_weights(), heads("Model").batch(None)
    key, seen = model.encoder.layer[0].attention.self.key, []
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        key.register_forward_hook(lambda layer, inputs, output: seen.append(output))
        torch.testing.assert_close(model(**batch).last_hidden_state, expected, rtol=0, atol=1e-5)
        assert seen
        key.bias += 1  # biases are read at each call; the key bias shifts all scores of a query alike
        torch.testing.assert_close(model(**batch).last_hidden_state, expected, rtol=0, atol=1e-5)
        key._forward_hooks.clear()
        model.encoder.layer[0].attention.self.value.bias += 1
        assert (model(**batch).last_hidden_state - expected).abs().max() > 1e-3


@needs_onednn
def test_changed_weights_are_not_the_prepacked_ones(heads):
    model, batch = heads("Model").model().prepack_weights(), heads("Model").batch()
    layer, others = model.encoder.layer[1], heads("Model").model().state_dict()
    wide, value = layer.intermediate.dense.weight, layer.attention.self.value.weight
    changes = (
        lambda: wide.mul_(3),
        lambda: value.mul_(3),
        lambda: model.load_state_dict(others),
        lambda: model.bfloat16().float(),  # rounded, and often at the same memory address
    )
    for change in changes:
        with torch.no_grad():
            change()
            outputs, again = model(**batch), model.prepack_weights()(**batch)
        torch.testing.assert_close(outputs.last_hidden_state, again.last_hidden_state, rtol=0, atol=1e-5)
        assert outputs.last_hidden_state.abs().max() > 0


@needs_onednn
def test_other_weights_at_the_same_place_in_memory_are_others():
    memory = np.zeros((4, 4), dtype=np.float32)
    weight = torch.from_numpy(memory)
    packed, place = PackedWeight(weight), (weight.data_ptr(), weight._version)
    assert packed.is_of(weight.detach())
    del weight
    other = torch.from_numpy(memory)
    assert (other.data_ptr(), other._version) == place and not packed.is_of(other)


@needs_onednn
@pytest.mark.parametrize("whole", [True, False], ids=["model", "wrapped"])
def test_training_drops_the_prepacked_weights(heads, whole):
    """A fused optimizer changes weights without increasing their version counter."""
    head = heads("ForMaskedLM")
    model, batch = head.model(dropout=0.0).prepack_weights(), head.batch()
    with torch.no_grad():
        before = model(**batch).logits
    (model if whole else torch.nn.ModuleList([model])).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model(**head.batch(labels=True)).loss.backward()
    optimizer.step()
    with torch.no_grad():
        outputs, plain = model.eval()(**batch).logits, copy.deepcopy(model)(**batch).logits
    assert (outputs - before).abs().max() > 0.1
    torch.testing.assert_close(outputs, plain, rtol=0, atol=0)


@needs_onednn
def test_prepacked_model_trains_saves_and_is_copied(heads, tmp_path):
    head = heads("ForMaskedLM")
    plain, model = head.model(dropout=0.0), head.model(dropout=0.0).prepack_weights()
    for one in (plain, model):
        one.train()(**head.batch(labels=True)).loss.backward()
    gradients = {name: parameter.grad for name, parameter in plain.named_parameters()}
    assert gradients["bert.embeddings.word_embeddings.weight"].any()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], rtol=0, atol=0)
    assert model.state_dict().keys() == plain.state_dict().keys()
    model.eval().save_pretrained(tmp_path)
    loaded = mybert.MyBertForMaskedLM.from_pretrained(tmp_path)
    copies = (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), loaded)
    with torch.no_grad():
        for one in copies:
            assert torch.equal(one(**head.batch()).logits, plain.eval()(**head.batch()).logits)


@needs_onednn
def test_prepacking_under_autocast(heads):
    model, batch = heads("Model").model(), heads("Model").batch()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        expected = model(**batch).last_hidden_state
        assert torch.equal(model.prepack_weights()(**batch).last_hidden_state, expected)


def test_prepacking_what_cannot_be_prepacked(heads, monkeypatch):
    with pytest.raises(ValueError, match=r"The model is torch.float64 on cpu; prepacking weights expects float32"):
        heads("Model").model().double().prepack_weights()
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match="This CPU has no bfloat16 kernels; expected a float32 model"):
        heads("Model").model().bfloat16().prepack_weights()
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ValueError, match="no oneDNN"):
        heads("Model").model().prepack_weights()


@needs_onednn
@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16 kernels")
def test_prepacking_in_bfloat16(head):
    model, batch = head.model(), head.batch()
    with torch.no_grad():
        expected = model(**batch)[0]
        states = model.bfloat16().prepack_weights()(**batch)[0]
    assert states.dtype == torch.bfloat16
    torch.testing.assert_close(states.float(), expected, rtol=0.1, atol=0.1)
