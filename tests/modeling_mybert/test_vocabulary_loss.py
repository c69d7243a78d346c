"""Cross entropy of the masked-LM output layer with gradients in the same pass, compared with PyTorch's own."""

import pytest
import torch
import torch.nn.functional as F

from mybert.modeling_mybert import losses_mybert
from mybert.modeling_mybert.linear_mybert import filled_up
from mybert.modeling_mybert.losses_mybert import linear_cross_entropy

WIDTH, WORDS = 12, 50


@pytest.fixture(params=[1, 3 * WORDS, 1000 * WORDS], ids=["a row a time", "three rows", "all rows"], autouse=True)
def chunk(request, monkeypatch):
    monkeypatch.setattr(losses_mybert, "_CHUNK", request.param)


@pytest.fixture
def passes(monkeypatch):
    """Count how often gradients were computed in the forward pass."""
    calls, difference = [], losses_mybert._difference
    monkeypatch.setattr(losses_mybert, "_difference", lambda *tensors: calls.append(1) or difference(*tensors))
    return calls


def example(rows=10, scale=1.0):
    generator = torch.Generator().manual_seed(rows)
    layer = torch.nn.Linear(WIDTH, WORDS)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    states = torch.randn(rows, WIDTH, generator=generator).requires_grad_()
    return layer, states, torch.randint(0, WORDS, (rows,), generator=generator)


def plain(layer, states, labels, items=None):
    logits = F.linear(states, layer.weight, layer.bias)
    return logits, F.cross_entropy(logits, labels, reduction="sum") / (items or len(labels))


def gradients_of(loss, layer, states, **settings):
    return torch.autograd.grad(loss, (states, layer.weight, layer.bias), **settings)


def assert_equal(actual, expected, tolerance=1e-5):
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("rows", [1, 2, 10])
@pytest.mark.parametrize("scale", [1.0, 40.0], ids=["", "labels of no probability"])
@pytest.mark.parametrize("items", [None, 7, torch.tensor(13)])
def test_loss_logits_and_gradients(rows, scale, items, passes):
    layer, states, labels = example(rows, scale)
    expected = plain(layer, states, labels, items)
    actual = linear_cross_entropy(layer, states, labels, items)
    assert passes
    assert_equal(actual, expected)
    assert actual[1].isfinite()
    assert_equal(gradients_of(actual[1], layer, states), gradients_of(expected[1], layer, states))


def test_logits_have_a_gradient_of_their_own():
    """Needed for distillation."""
    layer, states, labels = example()
    gradients = []
    for function in (linear_cross_entropy, plain):
        logits, loss = function(layer, states, labels)
        gradients.append(gradients_of(loss + logits.softmax(-1).pow(2).sum(), layer, states))
        logits, loss = function(layer, states, labels)
        gradients.append(gradients_of(logits.pow(2).sum(), layer, states))
    assert_equal(gradients[0], gradients[2])
    assert_equal(gradients[1], gradients[3], 1e-4)


def test_twice_backward_and_gradients_of_gradients():
    layer, states, labels = example()
    _, loss = linear_cross_entropy(layer, states, labels)
    _, expected = plain(layer, states, labels)
    first = gradients_of(loss, layer, states, retain_graph=True)
    assert_equal(gradients_of(loss, layer, states, retain_graph=True), first)
    second = []
    for one in (loss, expected):
        (gradient, *_) = gradients_of(one, layer, states, create_graph=True)
        second.append(gradients_of(gradient.pow(2).sum(), layer, states, allow_unused=True))
    for actual, reference in zip(*second, strict=True):
        torch.testing.assert_close(actual, reference)


def test_only_what_learns_gets_a_gradient():
    layer, states, labels = example()
    layer.weight.requires_grad_(False)
    for function in (linear_cross_entropy, plain):
        function(layer, states.detach(), labels)[1].backward()
    assert layer.weight.grad is None
    expected = torch.autograd.grad(plain(layer, states, labels)[1], layer.bias)[0]
    torch.testing.assert_close(layer.bias.grad, 2 * expected)


@pytest.mark.parametrize("rounded", [False, True], ids=["float32", "bfloat16"])
def test_under_autocast(rounded, passes):
    """Products in bfloat16, whatever the dtype of the hidden states; sums in float32."""
    layer, states, labels = example()
    given = states.to(torch.bfloat16) if rounded else states
    results = []
    for function in (linear_cross_entropy, plain):
        with torch.autocast("cpu", torch.bfloat16):
            logits, loss = function(layer, given, labels)
        assert (logits.dtype, loss.dtype) == (torch.bfloat16, torch.float32)
        gradients = gradients_of(loss, layer, states, retain_graph=True)
        assert all(one.dtype == torch.float32 for one in gradients)
        results.append((logits, loss, *gradients))
        results.append(gradients_of(loss + logits.float().pow(2).mean(), layer, states))
    assert passes
    actual, actual_of_both, reference, reference_of_both = results
    assert torch.equal(actual[0], reference[0])
    torch.testing.assert_close(actual[1], reference[1], rtol=0, atol=1e-5)
    for one, other in zip((*actual[2:], *actual_of_both), (*reference[2:], *reference_of_both), strict=True):
        assert (one - other).norm() < 0.01 * other.norm()


def test_linear_cross_entropy_of_special_inputs_is_computed_plainly(passes):
    layer, states, labels = example()
    with torch.no_grad():
        assert_equal(linear_cross_entropy(layer, states, labels), plain(layer, states, labels))
    without_bias = torch.nn.Linear(WIDTH, WORDS, bias=False)
    assert_equal(linear_cross_entropy(without_bias, states, labels), plain(without_bias, states, labels))
    half = layer.to(torch.bfloat16)
    assert linear_cross_entropy(half, states.bfloat16(), labels)[1].dtype == torch.float32
    with torch.autocast("cpu", torch.float16):
        assert linear_cross_entropy(layer, states, labels)[0].dtype == torch.float16
    layer.float().register_forward_hook(lambda module, inputs, output: output + torch.arange(float(WORDS)))
    loss, expected = (function(layer, states, labels)[1] for function in (linear_cross_entropy, plain))
    assert (loss - expected).abs() > 0.1
    assert not passes


def step(loss, logits, parameters):
    (loss + logits.square().mean()).backward()


def two_steps(loss, logits, parameters):
    loss.backward(retain_graph=True)
    logits.square().mean().backward()


def the_same_step_twice(loss, logits, parameters):
    loss.backward(retain_graph=True)
    (2 * loss).backward()


def second_derivatives(loss, logits, parameters):
    gradients = torch.autograd.grad(loss + logits.square().mean(), parameters, create_graph=True, allow_unused=True)
    sum(gradient.square().sum() for gradient in gradients if gradient is not None).backward()


@pytest.mark.parametrize("backward", [step, two_steps, the_same_step_twice, second_derivatives])
@pytest.mark.parametrize("name", ["ForMaskedLM", "ForPreTraining"])
def test_gradients_through_logits_and_loss_are_those_of_bert(heads, passes, name, backward):
    """The word embeddings, which are tied, are both a weight of the product and below its input."""
    head, gradients = heads(name), []
    batch = head.batch(labels=True)
    for model in head.matched_models(dropout=0.0, attn_implementation="eager"):  # differentiable twice
        outputs = model.train()(**batch)
        logits = outputs.logits if name == "ForMaskedLM" else outputs.prediction_logits
        if logits.dim() == 3:
            logits = logits[batch["labels"] != -100]
        backward(outputs.loss, logits, list(model.parameters()))
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    assert passes
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("more", [1, 5])
def test_rows_behind_the_labels_are_left_out(more, passes):
    layer, states, labels = example(7)
    filled = torch.cat([states, torch.full((more, WIDTH), 3.0)])
    expected = plain(layer, states, labels)
    actual = linear_cross_entropy(layer, filled, labels)
    assert passes
    assert_equal(actual, expected)
    assert_equal(gradients_of(actual[1], layer, states), gradients_of(expected[1], layer, states))
    expected, actual = plain(layer, states, labels), linear_cross_entropy(layer, filled, labels)  # logits used, too
    assert_equal(
        gradients_of(actual[1] + actual[0].square().sum(), layer, states),
        gradients_of(expected[1] + expected[0].square().sum(), layer, states),
    )
    labels[2] = -100  # by PyTorch
    logits, loss = linear_cross_entropy(layer, filled, labels)
    assert logits.shape == (7, WORDS)
    torch.testing.assert_close(loss, F.cross_entropy(expected[0], labels))
    actual = linear_cross_entropy(layer, filled, labels.clamp(min=0))
    actual[0].mul_(2)  # a user may
    assert actual[1].isfinite()


def test_a_head_fills_its_rows_up():
    rows = torch.ones(69, 3, requires_grad=True)
    filled = filled_up(rows)
    assert filled.shape == (70, 3) and torch.equal(filled[:69], rows) and not filled[69:].any()
    assert filled_up(torch.ones(64, 3)).shape == (64, 3)
    assert filled_up(torch.ones(69, 3, device="meta")).shape == (69, 3)
    assert [len(filled_up(torch.ones(count, 3))) for count in (0, 1, 2)] == [0, 1, 2]
    assert [len(filled_up(torch.ones(count), 16)) for count in (0, 1, 2, 16, 17, 130)] == [0, 1, 16, 16, 32, 144]
