"""One product for query, key and value, as on a GPU, against three."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mybert.modeling_mybert import linear_mybert, modeling_mybert


@pytest.fixture
def joined(monkeypatch):
    """Joins products from its call on; the widths of products of states (..., 32)."""
    widths, multiply = [], F.linear

    def linear(states, weight, bias=None):
        widths.append(len(weight))
        return multiply(states, weight, bias)

    def join():
        monkeypatch.setattr(linear_mybert, "_is_joined", lambda states: True)
        monkeypatch.setattr(modeling_mybert, "choose_product", lambda *arguments: linear_mybert.call_layer)
        monkeypatch.setattr(linear_mybert.F, "linear", linear)
        return widths

    return join


def outputs_and_gradients(model, batch):
    model.zero_grad()
    outputs = model(**batch)
    outputs.loss.backward()
    return outputs.logits.detach(), {name: each.grad.clone() for name, each in model.named_parameters()}


@pytest.mark.parametrize("padding", ["right", None])
@pytest.mark.parametrize("compiled", [False, True])
def test_joined_products_give_the_outputs_and_gradients_of_three(heads, joined, padding, compiled):
    head = heads("ForTokenClassification")
    model, batch = head.model(dropout=0.0).train(), head.batch(padding, labels=True)
    logits, gradients = outputs_and_gradients(model, batch)
    names = list(model.state_dict())
    widths = joined()
    if compiled:
        torch.compiler.reset()
        for layer in model.bert.encoder.layer:
            layer.compile(backend="aot_eager", fullgraph=True)
    same_logits, same_gradients = outputs_and_gradients(model, batch)
    assert widths.count(96) == len(model.bert.encoder.layer) or compiled
    torch.testing.assert_close(same_logits, logits, rtol=0, atol=1e-5)
    for name, gradient in gradients.items():
        torch.testing.assert_close(same_gradients[name], gradient, rtol=0, atol=1e-5, msg=name)
    assert list(model.state_dict()) == names


class Added(nn.Module):
    """An adapter in place of a layer."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, states):
        return self.layer(states) + 1


CHANGES = {
    "hook": lambda part: part.key.register_forward_hook(lambda layer, inputs, output: output * 2),
    "adapter": lambda part: setattr(part, "query", Added(part.query)),
    "forward": lambda part: setattr(part.value, "forward", lambda states: states * 2),
    "parametrization": lambda part: nn.utils.parametrizations.weight_norm(part.value),
    "no bias": lambda part: setattr(part.key, "bias", None),
    "subclass": lambda part: setattr(part.query, "__class__", type("Own", (nn.Linear,), {})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_joined_products_are_not_made_of_changed_layers(heads, joined, change):
    head = heads("ForTokenClassification")
    model, batch = head.model(dropout=0.0).eval(), head.batch(None)
    changed = copy.deepcopy(model)
    CHANGES[change](changed.bert.encoder.layer[0].attention.self)
    expected = changed(**batch).logits.detach()
    widths = joined()
    torch.testing.assert_close(changed(**batch).logits.detach(), expected, rtol=0, atol=1e-5)
    assert widths.count(96) == len(model.bert.encoder.layer) - 1
    is_other = change in ("hook", "adapter", "forward")
    assert not is_other or (expected - model(**batch).logits).abs().max() > 1e-4
