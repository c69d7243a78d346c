"""Remove the padding of a batch and restore it: which positions hold tokens, and attention among them.

Padded rows, and rows that hold several sequences one after the other, become one row of tokens in which sequences of
equal length are adjacent, so that attention runs on each group as one dense batch without a mask.

Shapes: B rows of L tokens in a batch, N sequences with S tokens in total, H heads of size d.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers.utils.import_utils import is_tracing

from .attention_mybert import dot_product_attention
from .linear_mybert import rounded_rows

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # PyTorch before 2.10
    HAS_VARLEN_KERNEL = False
else:  # its first releases lack arguments
    HAS_VARLEN_KERNEL = {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()


@dataclass(frozen=True)
class Packing:
    """How the tokens of a batch are packed into one row.

    Attributes:
        shape: (B, L) of the batch.
        index: Index in the flattened batch of each packed token (S,); None if the flattened batch is not reordered.
        pooled_tokens: Index in the packed row of the token that the pooler reads for each sequence (N,), in batch
            order: the first token, or the last with causal attention.
        groups: Groups of sequences of equal length: number of sequences, length of each, and first key position (1 if
            the first position is padding, which is packed only because the pooler reads it). None if attention uses
            `cu_seqlens`.
        cu_seqlens: Offset of the first token of each packed sequence, and S (N + 1,), int32; None with `groups`.
        max_seqlen: Length of the max_seqlen sequence, or an upper bound; None with `groups`.
        padding: True at padding (B, L) if padding is among the packed tokens; None if it is not.
        fill: Number of filler tokens at the end, copies of the batch's first token; see `rounded_rows`.
    """

    shape: tuple[int, int]
    index: torch.Tensor | None
    pooled_tokens: torch.Tensor
    groups: list[tuple[int, int, int]] | None
    cu_seqlens: torch.Tensor | None
    max_seqlen: int | None
    padding: torch.Tensor | None = None
    fill: int = 0

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Pack (B, L, ...) into (1, S, ...)."""
        states = states.flatten(0, 1)
        return (states if self.index is None else states.index_select(0, self.index))[None]

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Unpack (1, S, D) into (B, L, D), with zeros at padding."""
        batch_size, length = self.shape
        if self.index is None:
            return states.view(batch_size, length, -1)
        places = len(self.index) - self.fill
        padded = states.new_zeros(batch_size * length, states.shape[-1])
        padded = padded.index_copy(0, self.index[:places], states[0, :places])
        padded = padded.view(batch_size, length, -1)
        return padded if self.padding is None else padded.masked_fill(self.padding[..., None], 0)

    def places(self, indices: torch.Tensor) -> torch.Tensor:
        """Indices in the packed row of tokens (n,) from those in the flattened batch; 0 for removed padding."""
        if self.index is None:
            return indices
        kept = self.index[: len(self.index) - self.fill]
        places = indices.new_zeros(self.shape[0] * self.shape[1])
        places = places.index_copy(0, kept, torch.arange(len(kept), dtype=places.dtype, device=places.device))
        return places.index_select(0, indices)

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        dropout: float,
        scaling: float,
        is_causal: bool,
    ) -> torch.Tensor:
        """Attention within each sequence; returns (S, H, d).

        Args:
            query, key, value: (S, H, d).
            dropout: Dropout probability of the attention weights, in [0, 1].
            scaling: The scores are multiplied by it.
            is_causal: Whether a token attends to itself and earlier tokens only.
        """
        if self.groups is None:
            window = (-1, 0) if is_causal else (-1, -1)
            cu_seqlens, max_seqlen = self.cu_seqlens, self.max_seqlen
            assert cu_seqlens is not None
            assert max_seqlen is not None
            context = varlen_attn(
                query, key, value, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, scale=scaling, window_size=window
            )
            assert isinstance(context, torch.Tensor)
            return context
        sizes = [count * length for count, length, _ in self.groups]
        contexts = []
        for (count, length, first_key), *parts in zip(
            self.groups, query.split(sizes), key.split(sizes), value.split(sizes), strict=True
        ):
            queries, keys, values = (part.view(count, length, *part.shape[1:]).transpose(1, 2) for part in parts)
            if first_key:
                keys, values = keys[:, :, first_key:], values[:, :, first_key:]
            context = dot_product_attention(queries, keys, values, dropout, scaling, is_causal)
            contexts.append(context.flatten(0, 1))
        return torch.cat(contexts)


def unmask_empty_rows(attention_mask: torch.Tensor) -> torch.Tensor:
    """The mask (B, L), with ones in the rows that hold only padding.

    Google's graph adds -10,000 to the scores of padding, which does not change the softmax of a row of padding only.
    """
    num_tokens = attention_mask.bool().sum(1, keepdim=True)  # ONNX Runtime infers no shapes through `any`
    return attention_mask.masked_fill(num_tokens == 0, 1)


def bidirectional_mask(attention_mask: torch.Tensor) -> torch.Tensor:
    """Expand a mask (B, L) to a prepared bool mask (B, 1, L, L): every position attends to all tokens of its row."""
    length = attention_mask.shape[1]
    return attention_mask.bool()[:, None, None].expand(-1, 1, length, -1)


def flat_indices(mask: torch.Tensor) -> torch.Tensor:
    """Indices (n,) of the nonzero elements of a flattened mask of any shape; collators compute them on the CPU."""
    return mask.flatten().nonzero().squeeze(1)


def pack_padded(
    attention_mask: torch.Tensor, varlen: bool, is_causal: bool, token_indices: torch.Tensor | None = None
) -> Packing | None:
    """Packing of a padded batch.

    Args:
        attention_mask: Nonzero at tokens (B, L); padding may be anywhere, but no row is padding only.
        varlen: Whether attention uses `cu_seqlens`: the variable-length kernel (see `supports_varlen`) or flash
            attention.
        is_causal: Whether attention is causal.
        token_indices: Indices of the tokens in the flattened batch (S,), for a batch with padding, all of it at the
            end of rows; None to find them.

    Returns:
        The packing; None if the batch should stay as it is: it has no padding, or a row starts with padding and
        attention is causal or uses `cu_seqlens`.
    """
    is_token = attention_mask.bool()
    starts_padded = ~is_token[:, 0]
    kept, padding = is_token, None
    if token_indices is None:
        is_full, has_left_padding = torch.stack([is_token.all(), starts_padded.any()]).tolist()
        if is_full or (has_left_padding and (is_causal or varlen)):
            return None
        if has_left_padding:
            kept, padding = is_token.clone(), ~is_token
            kept[:, 0] = True
    shape = (attention_mask.shape[0], attention_mask.shape[1])
    index, lengths = flat_indices(kept) if token_indices is None else token_indices, kept.sum(1)
    if varlen:
        cu_seqlens = F.pad(lengths.cumsum(0), (1, 0))
        return Packing(shape, index, pooled_places(cu_seqlens, is_causal), None, cu_seqlens.int(), shape[1])
    return _group(shape, index, lengths, starts_padded.long(), padding, is_causal)


def has_padding(attention_mask: torch.Tensor | None) -> bool:
    """Whether a mask (B, L) is 0 anywhere."""
    return attention_mask is not None and not bool(attention_mask.bool().all())


def pack_full(shape: tuple[int, int], is_causal: bool) -> Packing | None:
    """Packing of a batch (B, L) without padding on a CPU, with filler tokens; None if it needs none."""
    index = torch.arange(shape[0] * shape[1])
    pooled_tokens = index[(shape[1] - 1 if is_causal else 0) :: shape[1]]
    packing = _fill_up(shape, index, pooled_tokens, [(*shape, 0)])
    return packing if packing.fill else None


def pack_sequences(
    shape: tuple[int, int], lengths: torch.Tensor, varlen: bool, max_seqlen: int | None, is_causal: bool
) -> Packing:
    """Packing of rows that hold sequences one after the other, without padding.

    Args:
        shape: (B, L) of the batch.
        lengths: Length of each sequence in tokens (N,), B L in total.
        varlen: Whether attention uses `cu_seqlens`; see `pack_padded`.
        max_seqlen: Length of the max_seqlen sequence, if known.
        is_causal: Whether attention is causal.
    """
    if varlen:  # the order stays
        cu_seqlens = F.pad(lengths.cumsum(0), (1, 0))
        return Packing(
            shape, None, pooled_places(cu_seqlens, is_causal), None, cu_seqlens.int(), max_seqlen or int(lengths.max())
        )
    index = torch.arange(shape[0] * shape[1], device=lengths.device)
    return _group(shape, index, lengths, torch.zeros_like(lengths), None, is_causal)


def pooled_places(cu_seqlens: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Index of the token that the pooler reads for each sequence (N,): the first, or the last if attention is causal.

    Args:
        cu_seqlens: Offset of the first token of each sequence, and the end (N + 1,).
    """
    return cu_seqlens[1:] - 1 if is_causal else cu_seqlens[:-1]


def last_tokens(shape: tuple[int, int], attention_mask: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Index in the flattened batch of the last token of each row (B,), before any padding.

    Args:
        shape: (B, L) of the batch.
        attention_mask: Nonzero at tokens (B, L). None or a prepared mask of four dimensions: no padding.
        device: Where the batch is.
    """
    row_ends = torch.arange(1, shape[0] + 1, device=device) * shape[1] - 1
    if attention_mask is None or len(attention_mask.shape) != 2:
        return row_ends
    return row_ends - attention_mask.bool().flip(1).int().argmax(1)


def _group(
    shape: tuple[int, int],
    index: torch.Tensor,
    lengths: torch.Tensor,
    first_keys: torch.Tensor,
    padding: torch.Tensor | None,
    is_causal: bool,
) -> Packing:
    """Packing of sequences, given by the indices of their tokens, sorted by length; with filler on a CPU."""
    kinds, order = (2 * lengths + first_keys).sort(stable=True)
    sorted_lengths = lengths[order]
    starts = lengths.cumsum(0) - lengths
    packed_starts = sorted_lengths.cumsum(0) - sorted_lengths
    moved_by = (starts[order] - packed_starts).repeat_interleave(sorted_lengths, output_size=len(index))
    index = index[moved_by + torch.arange(len(index), device=index.device)]
    pooled = pooled_places(F.pad(sorted_lengths.cumsum(0), (1, 0)), is_causal)
    pooled_tokens = torch.empty_like(starts).scatter_(0, order, pooled)
    distinct, counts = kinds.unique_consecutive(return_counts=True)
    groups = [(count, kind // 2, kind % 2) for count, kind in zip(counts.tolist(), distinct.tolist(), strict=True)]
    return _fill_up(shape, index, pooled_tokens, groups, padding)


def _fill_up(
    shape: tuple[int, int],
    index: torch.Tensor,
    pooled_tokens: torch.Tensor,
    groups: list[tuple[int, int, int]],
    padding: torch.Tensor | None = None,
) -> Packing:
    """Packing in groups, with filler tokens on a CPU."""
    fill = rounded_rows(len(index)) - len(index) if index.device.type == "cpu" else 0
    if fill:
        index, groups = F.pad(index, (0, fill)), [*groups, (1, fill, 0)]
    return Packing(shape, index, pooled_tokens, groups, None, None, padding, fill)


def sequence_lengths(
    shape: tuple[int, int], position_ids: torch.Tensor | None, cu_seqlens: torch.Tensor | None
) -> torch.Tensor | None:
    """Lengths of the sequences that follow each other in the rows of a batch.

    Args:
        shape: (B, L) of the batch.
        position_ids: Positions (B, L) that start again at 0 with each sequence; used where `cu_seqlens` is None.
        cu_seqlens: Offset of the first token of each sequence in the flattened batch, and B L (N + 1,).

    Returns:
        (N,), in tokens; None if no row holds more than one sequence, or if only positions are given in a graph that is
        being traced, compiled or exported.
    """
    if cu_seqlens is not None:
        return cu_seqlens.long().diff()
    if position_ids is None or is_tracing(position_ids):
        return None
    numbers = number_sequences(position_ids)
    if not numbers.any():
        return None
    rows = torch.arange(shape[0], device=numbers.device)[:, None]
    return (numbers + rows * shape[1]).unique_consecutive(return_counts=True)[1]


def number_sequences(position_ids: torch.Tensor) -> torch.Tensor:
    """Number of each token's sequence within its row, derived from positions that start again at 0.

    Rows are treated as one sequence each if the positions have another form than 0, 1, 2, ... with restarts at 0, or
    are all 0.

    Args:
        position_ids: (B, L).

    Returns:
        (B, L), 0 in all rows if none holds more than one sequence.
    """
    is_start = position_ids == 0
    goes_on = is_start[:, 1:] | (position_ids[:, 1:] == position_ids[:, :-1] + 1)
    is_regular = is_start[:, 0].all() & goes_on.all() & position_ids.any()
    return (is_start.cumsum(1) - 1) * is_regular


def flash_limits(cu_seqlens: torch.Tensor | None, max_seqlen: int | None) -> dict[str, Any]:
    """Sequence boundaries as keyword arguments of transformers' flash attention functions.

    Args:
        cu_seqlens: Offset of the first token of each sequence, and the end (N + 1,), int32.
        max_seqlen: Length of the max_seqlen sequence, or an upper bound.

    Returns:
        `cu_seq_lens_q`, `cu_seq_lens_k`, `max_length_q` and `max_length_k`.
    """
    names = (("cu_seq_lens", cu_seqlens), ("max_length", max_seqlen))
    return {f"{name}_{side}": value for name, value in names for side in "qk"}


def restarting_positions(shape: tuple[int, int], cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Positions (B, L) that start at 0 with each sequence.

    Args:
        shape: (B, L) of the batch.
        cu_seqlens: Offset of the first token of each sequence in the flattened batch, and B L (N + 1,).
    """
    places = torch.arange(shape[0] * shape[1], device=cu_seqlens.device)
    return (places - cu_seqlens[torch.bucketize(places, cu_seqlens[1:-1], right=True)]).view(shape)


def supports_varlen(device: torch.device, dtype: torch.dtype, head_size: int, dropout: float) -> bool:
    """Whether the variable-length flash kernel (`torch.nn.attention.varlen`) supports such tensors."""
    return (
        HAS_VARLEN_KERNEL
        and device.type == "cuda"
        and torch.version.cuda is not None
        and dtype in (torch.bfloat16, torch.float16)
        and head_size % 8 == 0
        and head_size <= 256
        and dropout == 0
        and torch.cuda.get_device_capability(device)[0] >= 8
    )


__all__ = [
    "Packing",
    "bidirectional_mask",
    "flash_limits",
    "flat_indices",
    "has_padding",
    "last_tokens",
    "number_sequences",
    "pack_full",
    "pack_padded",
    "pack_sequences",
    "pooled_places",
    "restarting_positions",
    "sequence_lengths",
    "supports_varlen",
    "unmask_empty_rows",
]
