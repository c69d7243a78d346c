"""Packing for PyTorch's variable-length kernel, which a reference on the CPU stands for."""

import pytest
import torch
import torch.nn.functional as F

from mybert.encoders import ENCODER_TYPES, packing
from mybert.modeling_mybert import attention_mybert

varlen = pytest.importorskip("torch.nn.attention.varlen")


def reference(query, key, value, cu_seqlens, cu_seqlens_of_keys, longest, longest_of_keys, scale, window_size):
    """Attention of each sequence alone, within an inclusive window to both sides (-1: all)."""
    assert cu_seqlens.equal(cu_seqlens_of_keys) and cu_seqlens.dtype == torch.int32
    assert longest == longest_of_keys >= cu_seqlens.diff().max()
    contexts = []
    for start, end in zip(cu_seqlens[:-1].tolist(), cu_seqlens[1:].tolist(), strict=True):
        parts = (states[start:end].transpose(0, 1) for states in (query, key, value))
        distances = (torch.arange(end - start)[:, None] - torch.arange(end - start)).abs()
        mask = distances <= window_size[0] if window_size[0] >= 0 else None
        contexts.append(F.scaled_dot_product_attention(*parts, attn_mask=mask, scale=scale).transpose(0, 1))
    return torch.cat(contexts)


@pytest.fixture
def kernel(monkeypatch):
    """Every batch may run in the kernel, as on a GPU in bfloat16; the list has an entry for each of its calls."""
    calls = []

    def count(*args, **kwargs):
        calls.append(1)
        return reference(*args, **kwargs)

    monkeypatch.setattr(packing, "supports_varlen", lambda device, dtype, head_size, dropout: not dropout)
    monkeypatch.setattr(packing, "_is_on_gpu", lambda words: True)
    monkeypatch.setattr(attention_mybert, "varlen_attn", count, raising=False)
    monkeypatch.setattr(varlen, "varlen_attn", count)
    return calls


@pytest.mark.parametrize("encoder_type", [name for name in ENCODER_TYPES if name != "mpnet"])
@pytest.mark.parametrize("mask", ["right", "holes", "left", "full", "none", "empty"])
def test_speed_up_kernel_gives_stock_outputs(encoder_type, mask, pair, agree, kernel):
    models = pair(encoder_type, "ForTokenClassification")
    agree(models.stock, models.fast, models.batch(mask, labels=True), gradients=True)
    # The kernel cannot leave out keys at the start of a row; a window would skip a hole.
    assert bool(kernel) == (mask == "right" or (mask == "holes" and encoder_type != "modernbert"))


def test_speed_up_kernel_with_attention_dropout_does_not_run_in_it(pair, kernel):
    for encoder_type, name in (("bert", "attention_probs_dropout_prob"), ("distilbert", "attention_dropout")):
        models = pair(encoder_type, "Model", **{name: 0.1})
        models.fast.train()(**models.batch("right"))
        assert not kernel
