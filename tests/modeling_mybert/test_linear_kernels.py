"""The kernels of linear layers on a CPU: the same results and gradients from both, and where neither is called."""

import platform
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
from transformers.activations import ACT2FN

from mybert.modeling_mybert import linear_kernels, linear_mybert, set_linear_kernel
from mybert.modeling_mybert.linear_mybert import linear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="PyTorch is built without oneDNN")


@pytest.fixture
def kernel(request):
    set_linear_kernel(getattr(request, "param", "onednn"))
    yield
    set_linear_kernel("auto")


@pytest.fixture
def onednn_calls(monkeypatch):
    """Shapes of the operands that oneDNN has multiplied."""
    calls, multiply = [], linear_mybert.multiply_by_onednn

    def counted(left, right, *others):
        calls.append((*left.shape, len(right)))
        return multiply(left, right, *others)

    monkeypatch.setattr(linear_mybert, "multiply_by_onednn", counted)
    return calls


both_kernels = pytest.mark.parametrize("kernel", ["mkl", "onednn", "auto"], indirect=True)


def draw(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# The models--------


@pytest.mark.parametrize("padding", [None, "right", "holes"])
@pytest.mark.parametrize("training", [False, True], ids=["evaluating", "training"])
def test_models_agree_with_transformers(kernel, head, padding, training, onednn_calls, agree):
    """Outputs, loss and all gradients, padded and packed; with MKL they agree in `test_parity.py`."""
    my_bert, bert = head.matched_models(dropout=0.0)
    agree(my_bert.train(training), bert.train(training), head.batch(padding, labels=True))
    assert onednn_calls


@both_kernels
@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh", "gelu_new", "relu"])
@pytest.mark.parametrize("prepacked", [False, True])
def test_activations_agree_with_transformers(kernel, heads, activation, prepacked):
    head = heads("ForMaskedLM")
    my_bert, bert = head.matched_models(hidden_act=activation)
    batch = head.batch()
    if prepacked:
        my_bert.prepack_weights()
    with torch.no_grad():
        outputs, expected = my_bert(**batch).logits, bert(**batch).logits
    torch.testing.assert_close(head.at_tokens(outputs, batch), head.at_tokens(expected, batch), rtol=0, atol=1e-5)


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16 kernels")
@pytest.mark.filterwarnings("ignore:TF32 acceleration")
@pytest.mark.parametrize("activation", ["gelu", "gelu_pytorch_tanh", "relu"])
def test_inference_in_bfloat16_computes_bias_and_gelu_with_the_product(heads, activation, onednn_calls):
    head = heads("ForMaskedLM")
    model, batch = head.model(hidden_act=activation).eval(), head.batch()
    with torch.no_grad():
        exact = model(**batch).logits
        assert not onednn_calls or linear_kernels().product
        model.bfloat16()
        with torch.backends.mkldnn.flags(enabled=False):
            onednn_calls.clear()
            usual = model(**batch).logits
            assert not onednn_calls
        fused = model(**batch).logits
    assert len(onednn_calls) >= 6 * model.config.num_hidden_layers and fused.dtype == torch.bfloat16
    errors = [float((head.at_tokens(each.float() - exact, batch)).square().mean().sqrt()) for each in (usual, fused)]
    assert errors[1] < 1.2 * errors[0], "fewer roundings are not less exact"
    model.train()
    onednn_calls.clear()
    model(**batch).logits.float().sum().backward()
    assert not onednn_calls


def test_dropout_masks_do_not_depend_on_the_kernel(heads):
    head, losses = heads("ForMaskedLM"), []
    for name in ("mkl", "onednn"):
        set_linear_kernel(name)
        model = head.model().train()
        torch.manual_seed(1)
        losses.append(model(**head.batch(labels=True)).loss.detach())
    set_linear_kernel("auto")
    torch.testing.assert_close(losses[0], losses[1], rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")  # its new name is not in 5.13
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointing_gives_the_same_gradients(kernel, heads, reentrant):
    head, gradients = heads("ForMaskedLM"), []
    for checkpointing in (False, True):
        model = head.model().train()
        if checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": reentrant})
        torch.manual_seed(1)
        model(**head.batch(labels=True)).loss.backward()
        gradients.append(model.bert.encoder.layer[0].intermediate.dense.weight.grad)
    assert gradients[0].abs().max() > 0
    torch.testing.assert_close(*gradients, rtol=0, atol=0)


# One layer--------


@pytest.mark.parametrize("shape", [(1, 24), (3, 24), (2, 5, 24), (1, 70, 24), (90, 24)])
@pytest.mark.parametrize("outputs", [1, 8, 24, 600])
def test_product_and_gradients_of_a_layer(kernel, shape, outputs, onednn_calls):
    layer, states = torch.nn.Linear(24, outputs), draw(*shape).requires_grad_()
    check_against_plain(layer, states, draw(*shape[:-1], outputs, seed=1))
    assert len(onednn_calls) == 3


def test_wide_layers(kernel):
    check_against_plain(torch.nn.Linear(640, 560), draw(30, 640).requires_grad_(), draw(30, 560, seed=1))


def check_against_plain(layer, states, gradient):
    results = []
    for product in (linear(layer, states), F.linear(states, layer.weight, layer.bias)):
        gradients = torch.autograd.grad(product, (states, layer.weight, layer.bias), gradient)
        assert all(one.is_contiguous() for one in (product, *gradients))
        results.append((product, *gradients))
    for actual, expected in zip(*results, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5 * float(expected.detach().abs().max()))


@pytest.mark.parametrize(
    "strided",
    [lambda states: states[:, 0], lambda states: states[..., ::2], lambda states: states[:1, :, :12].expand(4, 5, 12)],
    ids=["rows", "columns", "expanded"],
)
@pytest.mark.parametrize("learning", [False, True])
def test_strided_states_and_gradients(kernel, strided, learning):
    states = strided(draw(4, 5, 24))
    layer = torch.nn.Linear(states.shape[-1], 10).train(learning)
    with torch.set_grad_enabled(learning):
        product = linear(layer, states)
    torch.testing.assert_close(product, layer(states), rtol=0, atol=1e-5)
    if learning:
        product.sum().backward()  # its gradient is a single expanded number, not contiguous
        rows = states.reshape(-1, states.shape[-1])
        torch.testing.assert_close(layer.weight.grad, rows.sum(0).expand(10, -1), rtol=0, atol=1e-5)


@both_kernels
@pytest.mark.parametrize("rows", [0, 1, 2, 31, 64, 65])
@pytest.mark.parametrize("learning", [False, True])
def test_number_of_rows(kernel, rows, learning):
    layer, states = torch.nn.Linear(24, 40).train(learning), draw(1, rows, 24)
    with torch.set_grad_enabled(learning):
        product = linear(layer, states)
    assert product.is_contiguous()
    torch.testing.assert_close(product, layer(states), rtol=0, atol=1e-5)


@both_kernels
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("training", [False, True])
def test_batch_without_labeled_positions_has_no_logits(kernel, dtype, training, heads):
    model, _ = heads("ForMaskedLM").matched_models(dropout=0.0)
    model.to(dtype).train(training).config.sparse_prediction = True
    batch = heads("ForMaskedLM").batch("right", labels=True)
    batch["labels"].fill_(-100)
    with torch.set_grad_enabled(training):
        outputs = model(**batch)
    assert outputs.logits.shape == (0, model.config.vocab_size)
    if training:
        outputs.loss.backward()
        assert outputs.loss == 0
    else:
        assert outputs.loss.isnan()


def test_only_what_learns_gets_a_gradient(kernel, onednn_calls):
    layer = torch.nn.Linear(24, 10)
    layer.weight.requires_grad_(False)
    linear(layer, draw(4, 24)).sum().backward()
    assert onednn_calls == [(4, 24, 10)]
    assert layer.weight.grad is None
    torch.testing.assert_close(layer.bias.grad, torch.full((10,), 4.0))


def test_gradients_of_gradients(kernel):
    layer, states = torch.nn.Linear(6, 4), draw(3, 6).requires_grad_()
    gradients = []
    for call in (lambda: linear(layer, states), lambda: layer(states)):
        (first,) = torch.autograd.grad(call().pow(3).sum(), states, create_graph=True)
        gradients.append(torch.autograd.grad(first.pow(2).sum(), (states, layer.weight)))
    for actual, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-4)


def test_checkpointing_a_layer(kernel):
    layer, states = torch.nn.Linear(6, 4), draw(3, 6).requires_grad_()
    product = checkpoint(lambda x: linear(layer, x), states, use_reentrant=False)
    torch.testing.assert_close(torch.autograd.grad(product.sum(), states)[0], layer.weight.sum(0).expand(3, 6))


# What steps aside--------


class Subclass(torch.Tensor):
    pass


@pytest.mark.parametrize(
    "change",
    [
        lambda layer: layer.register_full_backward_hook(lambda *call: None),
        lambda layer: layer.register_full_backward_pre_hook(lambda *call: None),
        lambda layer: layer.register_forward_hook(lambda *call: None),
        lambda layer: layer.double(),
        lambda layer: setattr(layer, "forward", layer.forward),
        lambda layer: torch.nn.utils.parametrizations.weight_norm(layer),
        lambda layer: setattr(layer, "weight", torch.nn.Parameter(draw(24, 10).t())),
    ],
    ids=["backward", "backward pre", "forward", "double", "own forward", "parametrized", "strided weight"],
)
def test_layers_that_are_not_plain(kernel, change, onednn_calls):
    layer = torch.nn.Linear(24, 10)
    change(layer)
    states = draw(4, 24).to(layer.weight.dtype)
    for learning in (True, False):
        with torch.set_grad_enabled(learning):
            torch.testing.assert_close(linear(layer, states), layer(states))
    assert not onednn_calls


def test_circumstances_that_are_not_plain(kernel, onednn_calls, monkeypatch):
    layer, states = torch.nn.Linear(24, 10), draw(4, 24)
    with torch.autocast("cpu", torch.bfloat16):
        assert linear(layer, states).dtype == torch.bfloat16
    with monkeypatch.context() as switched_off:
        switched_off.setattr(torch.backends.mkldnn, "enabled", False)
        linear(layer, states)
    assert type(linear(layer, states.as_subclass(Subclass))) is Subclass
    each = torch.func.vmap(torch.func.grad(lambda state: linear(layer, state).sum()))(states)
    torch.testing.assert_close(each, layer.weight.sum(0).expand(4, 24))
    tangents = {"weight": draw(10, 24, seed=1), "bias": draw(10, seed=2)}
    direction = draw(4, 24, seed=3)
    expected = {"weight": states @ tangents["weight"].t(), "bias": tangents["bias"].expand(4, 10)}
    with torch.autograd.forward_ad.dual_level():
        make_dual, unpack_dual = torch.autograd.forward_ad.make_dual, torch.autograd.forward_ad.unpack_dual
        along = unpack_dual(linear(layer, make_dual(states, direction))).tangent
        torch.testing.assert_close(along, direction @ layer.weight.t())
        for name, tangent in tangents.items():
            dual = torch.nn.Linear(24, 10)
            dual.load_state_dict(layer.state_dict())
            value = make_dual(getattr(dual, name).detach(), tangent)
            delattr(dual, name)  # a parameter cannot be dual
            setattr(dual, name, value)
            torch.testing.assert_close(unpack_dual(linear(dual, states)).tangent, expected[name])
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, inputs, output: output + 1)
    try:
        torch.testing.assert_close(linear(layer, states), F.linear(states, layer.weight, layer.bias) + 1)
    finally:
        handle.remove()
    assert not onednn_calls
    linear(layer, states)
    assert onednn_calls


def test_hooks_of_an_activation_see_the_product(kernel):
    layer, activation, seen = torch.nn.Linear(24, 10), ACT2FN["gelu"], []
    states = draw(4, 24)
    with torch.no_grad():
        expected = activation(layer(states))
        torch.testing.assert_close(linear(layer, states, activation), expected, rtol=0, atol=1e-5)
        activation.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
        torch.testing.assert_close(linear(layer, states, activation), expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(seen[0], layer(states), rtol=0, atol=1e-5)


# The choice--------

CPUINFO = "processor\t: 0\nvendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: 17\n"


@pytest.mark.parametrize(
    ("processor", "features", "products"),
    [
        (CPUINFO.format("AuthenticAMD", 26), "AVX512", (True, True, True)),
        (CPUINFO.format("AuthenticAMD", 25), "AVX512", (True, True, False)),
        (CPUINFO.format("AuthenticAMD", 25), "AVX2", (False, False, False)),
        (CPUINFO.format("GenuineIntel", 6), "AVX512", (False, False, False)),
        ("", "AVX512", (False, False, False)),
        ("AMD64 Family 26 Model 68 Stepping 0, AuthenticAMD", "AVX512", (True, True, True)),
    ],
)
@pytest.mark.parametrize("on_linux", [True, False])
def test_the_choice_by_processor(processor, features, products, on_linux, monkeypatch):
    def read_text(path, encoding):
        if not on_linux:
            raise FileNotFoundError(path)
        return processor

    monkeypatch.setattr(Path, "read_text", read_text)
    monkeypatch.setattr(platform, "processor", lambda: processor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: features)
    linear_mybert._by_processor.cache_clear()
    try:
        assert linear_kernels()[:3] == products
        set_linear_kernel("onednn")
        assert linear_kernels()[:3] == (True, True, True)
        set_linear_kernel("mkl")
        assert linear_kernels()[:3] == (False, False, False)
    finally:
        set_linear_kernel("auto")
        linear_mybert._by_processor.cache_clear()


def test_small_products_keep_to_the_usual_kernel(monkeypatch, onednn_calls):
    kernels = linear_mybert.LinearKernels(True, True, False, smallest=100 * 24 * 10, smallest_few_rows=30 * 24 * 10)
    monkeypatch.setattr(linear_mybert, "linear_kernels", lambda: kernels)
    layer = torch.nn.Linear(24, 10)
    for rows, in_inference, in_training in ((29, 0, 0), (30, 1, 0), (64, 1, 0), (65, 0, 0), (100, 1, 2)):
        states = draw(rows, 24).requires_grad_()
        with torch.no_grad():
            torch.testing.assert_close(linear(layer.eval(), states), layer(states), rtol=0, atol=1e-5)
        assert len(onednn_calls) == in_inference, rows
        onednn_calls.clear()
        linear(layer.train(), states).sum().backward()
        assert len(onednn_calls) == in_training, rows
        onednn_calls.clear()


def test_a_choice_that_cannot_be(monkeypatch):
    with pytest.raises(ValueError, match="'blas'; expected one of auto, mkl, onednn"):
        set_linear_kernel("blas")
    monkeypatch.setattr(torch.backends.mkldnn, "is_available", lambda: False)
    with pytest.raises(ValueError, match="this build of PyTorch does not have"):
        set_linear_kernel("onednn")
