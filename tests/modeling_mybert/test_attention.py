"""Attention in bfloat16 training on a CPU, in plain operations, compared with PyTorch's kernel and float32."""

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from mybert.modeling_mybert import attention_mybert
from mybert.modeling_mybert.attention_mybert import eager_attention_forward, packed_attention
from mybert.modeling_mybert.batch_mybert import Batch


@pytest.fixture(autouse=True)
def many_scores(monkeypatch) -> None:
    """These tests have few scores, so lower the threshold."""
    monkeypatch.setattr(attention_mybert, "_MANY_SCORES", 1)


@pytest.fixture
def kernel_calls(monkeypatch) -> list[torch.dtype]:
    """Dtypes of the inputs to PyTorch's kernel."""
    calls, kernel = [], F.scaled_dot_product_attention

    def counting(query, *rest, **options):
        calls.append(query.dtype)
        return kernel(query, *rest, **options)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counting)
    return calls


def states(dtype: torch.dtype = torch.float32, keys: int = 12) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    lengths = (12, keys, keys)
    return [torch.randn(3, 2, n, 8, generator=generator).to(dtype).requires_grad_() for n in lengths]


def context_and_gradients(function, dtype: torch.dtype, keys: int = 12) -> list[torch.Tensor]:
    """The context (B, L, H, d) and the gradients of queries, keys and values."""
    inputs = states(dtype, keys)
    context = function(*inputs)
    context.backward(torch.linspace(-1, 1, context.numel()).view_as(context).to(dtype))
    return [tensor.float() for tensor in (context, *(tensor.grad for tensor in inputs))]


def attention(query, key, value, dropout=0.0):
    """Three packed sequences of equal length, of which the first keys may be missing."""
    missing = 12 - key.shape[2]
    key, value = (F.pad(states, (0, 0, missing, 0)) for states in (key, value))
    packed = (states.transpose(0, 1).flatten(1, 2)[None] for states in (query, key, value))
    batch = Batch((3, 12), None, groups=[(3, 12, missing)])
    context, weights = packed_attention(None, *packed, None, 0.3, dropout, batch=batch)
    assert weights is None
    return context.view(3, 12, 2, 8)


def kernel(query, key, value, dropout=0.0):
    return F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=0.3).transpose(1, 2)


@pytest.mark.parametrize("keys", [12, 11])
def test_as_exact_as_the_kernel(keys):
    """Both are as far from float32 as bfloat16 is."""
    exact = context_and_gradients(kernel, torch.float32, keys)
    found = context_and_gradients(attention, torch.bfloat16, keys)
    others = context_and_gradients(kernel, torch.bfloat16, keys)
    for mine, other, right in zip(found, others, exact, strict=True):
        assert mine.shape == right.shape
        assert 0 < (mine - right).norm() < 2 * (other - right).norm() < 0.02 * right.norm()


def test_dropout_of_the_kernel():
    """The same seed drops the same attention weights."""
    torch.manual_seed(0)
    found = context_and_gradients(partial(attention, dropout=0.4), torch.bfloat16)
    torch.manual_seed(0)
    others = context_and_gradients(partial(kernel, dropout=0.4), torch.bfloat16)
    kept = context_and_gradients(kernel, torch.bfloat16)
    for mine, other, without in zip(found, others, kept, strict=True):
        torch.testing.assert_close(mine, other, rtol=0.05, atol=0.05)
        assert (mine - without).abs().max() > 0.2


@pytest.mark.parametrize("scaling", [None, 0.3])
@pytest.mark.parametrize("mask", [None, "bool", "added"])
def test_plain_operations_are_the_attention_of_torch(scaling, mask):
    query, key, value = states(keys=11)
    allowed = torch.rand(3, 1, 12, 11, generator=torch.Generator().manual_seed(1)) < 0.7
    masks = {None: None, "bool": allowed, "added": torch.where(allowed, 0.0, -torch.inf)}
    context, weights = eager_attention_forward(None, query, key, value, masks[mask], scaling)
    expected = F.scaled_dot_product_attention(query, key, value, masks[mask], scale=scaling)
    torch.testing.assert_close(context.transpose(1, 2), expected)
    assert weights.shape == (3, 2, 12, 11) and (weights.sum(-1) - 1).abs().max() < 1e-6


@pytest.mark.parametrize("padding", ["right", "left", None])
@pytest.mark.parametrize(
    ("dtype", "is_training", "is_decoder", "is_kernel"),
    [
        (torch.bfloat16, True, False, False),
        (torch.bfloat16, True, True, True),
        (torch.bfloat16, False, False, True),
        (torch.float32, True, False, True),
    ],
)
def test_attention_in_each_setting_runs_in_the_fitting_kernel(
    heads, kernel_calls, padding, dtype, is_training, is_decoder, is_kernel
):
    head = heads("Model")
    model, batch = head.model(is_decoder=is_decoder).to(dtype), head.batch(padding)
    with torch.set_grad_enabled(is_training):
        model(**batch)
    assert set(kernel_calls) == ({dtype} if is_kernel else set())


@pytest.mark.parametrize(
    ("bound", "largest", "dropout", "calls"),
    [
        ("_MANY_SCORES", 3 * 2 * 12 * 12, 0.0, 0),
        ("_MANY_SCORES", 3 * 2 * 12 * 12 + 1, 0.0, 1),
        ("_LONG", 12, 0.0, 0),
        ("_LONG", 11, 0.0, 1),
        ("_LONG", 11, 0.1, 0),  # there PyTorch has no kernel that avoids storing the attention weights
    ],
)
def test_few_scores_and_long_sequences_stay_with_the_kernel(monkeypatch, kernel_calls, bound, largest, dropout, calls):
    monkeypatch.setattr(attention_mybert, bound, largest)
    attention(*states(torch.bfloat16), dropout)
    assert len(kernel_calls) == calls


@pytest.mark.parametrize("padding", ["right", "left", None])
def test_gradients_of_a_model_under_autocast(head_with_loss, padding):
    """As near to float32's as with transformers' attention."""
    my_bert, bert = head_with_loss.matched_models()
    batch = head_with_loss.batch(padding, labels=True)

    def gradient(model, is_cast: bool) -> torch.Tensor:
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=is_cast):
            model(**batch).loss.backward()
        return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])

    exact = gradient(my_bert, is_cast=False)
    error = (gradient(my_bert, is_cast=True) - exact).norm()
    assert 0 < error < 1.5 * (gradient(bert, is_cast=True) - exact).norm() + 1e-4 * exact.norm()
