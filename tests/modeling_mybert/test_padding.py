"""The functions of packing, on batches small enough to write the result by hand."""

import pytest
import torch

from mybert.modeling_mybert import batch_mybert
from mybert.modeling_mybert.attention_mybert import packed_attention
from mybert.modeling_mybert.batch_mybert import (
    last_tokens,
    number_sequences,
    pack_batch,
    pack_sequences,
    sequence_lengths,
)
from mybert.modeling_mybert.bilstm import MyBertBiLstmConfig, MyBertBiLstmForTokenClassification
from mybert.modeling_mybert.inputs_mybert import unmask_empty_rows
from mybert.modeling_mybert.linear_mybert import rounded_rows

CPU = torch.device("cpu")


def test_last_tokens_with_any_padding_are_found():
    mask = torch.tensor([[1, 1, 1, 0, 0], [0, 1, 0, 1, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    assert last_tokens((4, 5), mask, CPU).tolist() == [2, 8, 14, 19]
    assert last_tokens((4, 5), None, CPU).tolist() == [4, 9, 14, 19]
    assert last_tokens((4, 5), mask[:, None, None].expand(4, 1, 5, 5), CPU).tolist() == [4, 9, 14, 19]


@pytest.mark.parametrize(
    ("positions", "numbers", "lengths"),
    [
        ([[0, 1, 2, 0, 1]], [[0, 0, 0, 1, 1]], [3, 2]),
        ([[0, 0, 1, 0]], [[0, 1, 1, 2]], [1, 2, 1]),
        ([[0, 1, 2], [0, 0, 1]], [[0, 0, 0], [0, 1, 1]], [3, 1, 2]),
        ([[0, 1, 2], [0, 0, 0]], [[0, 0, 0], [0, 1, 2]], [3, 1, 1, 1]),
        ([[0, 0, 0]], [[0, 0, 0]], None),  # all 0, as in studies without word order
        ([[0, 1, 2], [0, 1, 2]], [[0, 0, 0], [0, 0, 0]], None),  # one sequence in each row
        ([[1, 2, 0]], [[0, 0, 0]], None),  # custom positions
        ([[5, 6, 7, 8]], [[0, 0, 0, 0]], None),
        ([[0, 1, 2], [0, 2, 0]], [[0, 0, 0], [0, 0, 0]], None),
    ],
)
def test_sequences_are_found_by_their_positions(positions, numbers, lengths):
    positions = torch.tensor(positions)
    assert number_sequences(positions).tolist() == numbers
    found = sequence_lengths(tuple(positions.shape), positions, None)
    assert (None if found is None else found.tolist()) == lengths


def test_borders_come_before_positions():
    cu_seqlens = torch.tensor([0, 4, 6], dtype=torch.int32)
    found = sequence_lengths((1, 6), torch.tensor([[0, 1, 2, 0, 1, 2]]), cu_seqlens)
    assert found.tolist() == [4, 2] and found.dtype == torch.int64
    assert sequence_lengths((1, 6), None, None) is None


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_rows_of_padding_only_see_everything(dtype):
    mask = torch.tensor([[1, 0, 0], [0, 0, 0], [0, 0, 1]]).to(dtype)
    seen = unmask_empty_rows(mask)
    assert seen.dtype == dtype and seen.tolist() == torch.tensor([[1, 0, 0], [1, 1, 1], [0, 0, 1]]).to(dtype).tolist()


def test_a_padded_batch_is_packed_by_length():
    """Rows that start with padding keep that position, which the pooler reads, and form their own groups."""
    mask = torch.tensor([[1, 1, 1, 1], [0, 1, 1, 0], [1, 0, 1, 0], [1, 1, 0, 1], [0, 0, 1, 1]])
    packing = pack_batch(mask.shape, mask, False)
    assert packing.groups == [(1, 2, 0), (1, 3, 0), (2, 3, 1), (1, 4, 0)]
    assert packing.index.tolist() == [8, 10, 12, 13, 15, 4, 5, 6, 16, 18, 19, 0, 1, 2, 3]
    assert packing.pooled_tokens.tolist() == [11, 5, 0, 2, 8]
    assert packing.cu_seqlens is None and packing.max_seqlen is None
    states = torch.arange(20.0).view(5, 4, 1) + 1
    assert torch.equal(packing.unpack(packing.pack(states)), states * mask[..., None])
    assert pack_batch(mask.shape, mask, True) is None
    assert pack_batch(mask.shape, mask, False, "varlen") is None
    assert pack_batch(mask.shape, torch.ones_like(mask), False) is None
    right = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 1], [1, 0, 0, 0]])
    causal = pack_batch(right.shape, right, True)
    assert causal.groups == [(1, 1, 0), (2, 3, 0)] and causal.pooled_tokens.tolist() == [3, 6, 0]
    assert causal.index.tolist() == [8, 0, 1, 2, 4, 6, 7] and causal.padding is None


@pytest.mark.parametrize("is_causal", [False, True])
def test_for_the_kernel_of_any_length_nothing_moves(is_causal):
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 1, 0]])
    padded = pack_batch(mask.shape, mask, is_causal, "varlen")
    assert padded.groups is None and padded.index.tolist() == [0, 1, 2, 4, 6]
    assert padded.cu_seqlens.tolist() == [0, 3, 5] and padded.cu_seqlens.dtype == torch.int32
    assert padded.max_seqlen == 4
    assert padded.pooled_tokens.tolist() == ([2, 4] if is_causal else [0, 3])
    rows = pack_sequences((2, 4), torch.tensor([4, 1, 3]), is_causal, "varlen")
    assert rows.index is None and rows.groups is None and rows.max_seqlen == 4
    assert rows.cu_seqlens.tolist() == [0, 4, 5, 8]
    assert rows.pooled_tokens.tolist() == ([3, 4, 7] if is_causal else [0, 4, 5])
    known = pack_sequences((2, 4), torch.tensor([4, 1, 3]), is_causal, "varlen", 9)
    assert known.max_seqlen == 9
    states = torch.arange(16.0).view(2, 4, 2)
    assert rows.pack(states).shape == (1, 8, 2) and torch.equal(rows.unpack(rows.pack(states)), states)


def test_many_tokens_are_filled_up():
    """With copies of the first token, which attend only to each other and are dropped afterwards."""
    mask = torch.ones(9, 11, dtype=torch.long)
    mask[1:, 8:] = 0  # 75 tokens
    packing = pack_batch(mask.shape, mask, False)
    assert packing.fill == 1 and packing.groups == [(8, 8, 0), (1, 11, 0), (1, 1, 0)]
    assert len(packing.index) == 76 and packing.index[-1] == 0
    states = torch.arange(1.0, 100).view(9, 11, 1)
    packed = packing.pack(states)
    assert packed.shape == (1, 76, 1) and packed[0, -1] == 1
    packed[0, -1] = torch.nan
    assert torch.equal(packing.unpack(packed), states * mask[..., None])
    states = torch.randn(3, 1, 2, 76, 4, generator=torch.Generator().manual_seed(0))
    context, _ = packed_attention(None, *states, None, 0.5, batch=packing)
    states[:, :, :, -1] = 100.0
    assert torch.equal(packed_attention(None, *states, None, 0.5, batch=packing)[0][:, :-1], context[:, :-1])
    assert pack_batch(mask.shape, mask, False, "varlen").fill == 0
    assert pack_sequences((1, 75), torch.tensor([70, 5]), True).fill == 1
    filled = [batch_mybert._fill_up((1, 75), torch.arange(75, device=at), None, True, []) for at in ("cpu", "meta")]
    assert [(packing.fill, len(packing.index)) for packing in filled] == [(1, 76), (0, 75)]  # only a CPU needs it


@pytest.mark.parametrize("is_causal", [False, True])
def test_a_batch_without_padding_is_filled_up(is_causal):
    packing = pack_batch((5, 15), None, is_causal, may_fill_up=True)
    assert packing.fill == 1 and packing.groups == [(5, 15, 0), (1, 1, 0)]
    assert packing.pooled_tokens.tolist() == ([14, 29, 44, 59, 74] if is_causal else [0, 15, 30, 45, 60])
    states = torch.randn(5, 15, 2)
    assert packing.pack(states).shape == (1, 76, 2) and torch.equal(packing.unpack(packing.pack(states)), states)
    assert pack_batch((4, 16), None, is_causal, may_fill_up=True) is None


def test_rounded_rows_adds_at_most_one_part_in_32():
    assert [rounded_rows(count) for count in (0, 1, 63, 64, 65, 127, 128, 129, 4095, 4097)] == [
        *(0, 1, 63, 64, 66, 128, 128, 132, 4096, 4224),
    ]
    rounded = [rounded_rows(count) for count in range(64, 4096)]
    assert all(count <= found <= count * 33 / 32 for count, found in enumerate(rounded, start=64))
    assert len(set(rounded)) == 6 * 32 + 1


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32])
def test_bilstm_model_accepts_padding_on_the_right_only(dtype):
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = MyBertBiLstmForTokenClassification(MyBertBiLstmConfig(**sizes, intermediate_size=8)).eval()
    ids, mask = torch.randint(5, 20, (2, 4)), torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).to(dtype)
    torch.testing.assert_close(model(ids, mask).logits[:1, :3], model(ids[:1, :3]).logits)
    for other in (mask.flip(1), mask[:, [0, 3, 1, 2]]):
        with pytest.raises(ValueError, match=r"attention_mask has .*; a BiLSTM expects padding on the right"):
            model(ids, other)


def test_bilstm_model_rejects_several_sequences_in_a_row():
    sizes = {"vocab_size": 20, "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = MyBertBiLstmForTokenClassification(MyBertBiLstmConfig(**sizes, intermediate_size=8)).eval()
    ids = torch.randint(5, 20, (1, 5))
    for limits in ({"cu_seq_lens_q": torch.tensor([0, 3, 5])}, {"position_ids": torch.tensor([[0, 1, 2, 0, 1]])}):
        with pytest.raises(ValueError, match="2 sequences are in 1 rows"):
            model(ids, **limits)
    one = {"cu_seq_lens_q": torch.tensor([0, 5]), "position_ids": torch.arange(5)[None]}
    torch.testing.assert_close(model(ids, **one).logits, model(ids).logits)
