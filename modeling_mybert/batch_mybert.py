"""A batch: how it runs.

A batch runs as rows with a mask, or packed into one row of tokens, without padding. Padded rows, and rows that hold
several sequences one after the other, become one row of tokens in which sequences of equal length are adjacent.
Attention then runs on each group as one dense batch, without a mask.

Shapes: B rows of L tokens in a batch, N sequences with S tokens in total, H heads of size d.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_causal_mask,
    flash_attention_mask,
    packed_sequence_mask_function,
)
from transformers.utils.import_utils import is_tracing

from .configuration_mybert import MyBertConfig
from .inputs_mybert import Inputs
from .linear_mybert import rounded_rows

# Raised by a compiled model, whose branches must not depend on tensor values.
_NOT_KEPT_APART = (
    "position_ids restart at 0 within a row, but a compiled model with flash attention cannot use them to find where "
    "sequences end; pass cu_seq_lens_q and max_length_q."
)


@dataclass(frozen=True)
class Batch:
    """How the layers run a batch: as its rows, or packed into one row of tokens."""

    shape: tuple[int, int]  # (B, L) of the batch
    # Index of the token that the pooler reads for each sequence (N,), in batch order, in the packed row or else in the
    # flattened batch: the first token, or the last with causal attention. None: the first of each row.
    pooled_tokens: torch.Tensor | None
    is_causal: bool = False
    is_packed: bool = True
    # "varlen": PyTorch's kernel for sequences of any length. "flash": one of transformers' flash functions, which get
    # `cu_seqlens` as arguments. None: any other attention.
    kernel: str | None = None
    index: torch.Tensor | None = None  # in the flattened batch, of each packed token (S,); None: in the same order
    # Packed sequences of equal length: their number, their length, and the first key position (1 if the first position
    # is padding, which is packed only because the pooler reads it). None if attention uses `cu_seqlens`.
    groups: list[tuple[int, int, int]] | None = None
    cu_seqlens: torch.Tensor | None = None  # offset of the first token of each sequence, and S (N + 1,), int32
    max_seqlen: int | None = None  # length of the longest sequence, or an upper bound
    padding: torch.Tensor | None = None  # True at padding (B, L) if some is among the packed tokens
    fill: int = 0  # number of filler tokens at the end, copies of the batch's first token; see `rounded_rows`
    attention_mask: torch.Tensor | None = None  # of a batch that is not packed; see `MyBertModel.forward`
    numbers: torch.Tensor | None = None  # of each token's sequence (B, L), if rows that are not packed hold several

    @classmethod
    def of(
        cls, config: MyBertConfig, inputs: Inputs, training: bool, may_pack: bool, has_varlen_kernel: bool
    ) -> "Batch":
        """Decide how a batch runs."""
        attention, masks = config._attn_implementation, ALL_MASK_ATTENTION_FUNCTIONS
        kernel = None
        if attention in masks and masks[attention] is flash_attention_mask:  # built in or from the Hub, without a mask
            kernel = "flash"
        elif attention == "sdpa" and has_varlen_kernel:
            kernel = "varlen"
        # With a mask, positions do not mark sequence boundaries.
        of_tokens = None if inputs.attention_mask is not None else inputs.position_ids
        lengths = sequence_lengths(inputs.shape, of_tokens, inputs.cu_seqlens)
        packed = None
        if may_pack and (kernel is not None or attention == "sdpa"):
            packed = _packed(config, inputs, lengths, kernel, training)
        return packed or _in_rows(config, inputs, lengths, kernel)

    def pack(self, states: torch.Tensor | None) -> Any:
        """Pack (B, L, ...) into (1, S, ...); unchanged if the batch is not packed, or there is nothing to pack."""
        if states is None or not self.is_packed:
            return states
        states = states.flatten(0, 1)
        return (states if self.index is None else states.index_select(0, self.index))[None]

    def unpack(self, states: torch.Tensor) -> torch.Tensor:
        """Unpack (1, S, D) into (B, L, D), with zeros at padding; unchanged if the batch is not packed."""
        if not self.is_packed:
            return states
        batch_size, length = self.shape
        if self.index is None:
            return states.view(batch_size, length, -1)
        places = len(self.index) - self.fill
        padded = states.new_zeros(batch_size * length, states.shape[-1])
        padded = padded.index_copy(0, self.index[:places], states[0, :places])
        padded = padded.view(batch_size, length, -1)
        return padded if self.padding is None else padded.masked_fill(self.padding[..., None], 0)

    def rows(self, states: torch.Tensor) -> torch.Tensor:
        """Hidden states (B, L, D) of a batch that is not packed, with a row for each sequence: (N, longest, D)."""
        if self.cu_seqlens is None:
            return states
        longest = self.shape[1] if self.max_seqlen is None and is_tracing(states) else self.max_seqlen
        return rows_of_sequences(states, self.cu_seqlens.long().diff(), longest)

    def places(self, indices: torch.Tensor) -> torch.Tensor:
        """Indices in the packed row of tokens (n,) from those in the flattened batch; 0 for removed padding."""
        if self.index is None:
            return indices
        kept = self.index[: len(self.index) - self.fill]
        places = indices.new_zeros(self.shape[0] * self.shape[1])
        places = places.index_copy(0, kept, torch.arange(len(kept), dtype=places.dtype, device=places.device))
        return places.index_select(0, indices)

    def attention_arguments(self, config: MyBertConfig, hidden_states: torch.Tensor) -> dict[str, Any]:
        """Arguments of the layers for attention within each sequence: itself, or a mask and boundaries for flash."""
        if self.is_packed and self.kernel != "flash":
            return {"batch": self}
        create_mask = create_causal_mask if config.is_decoder else create_bidirectional_mask
        keep_apart = None if self.numbers is None else packed_sequence_mask_function(self.numbers)
        # No cache, by position: its name is `past_key_values` or, from transformers 5.24, `cache`.
        attention_mask = create_mask(config, hidden_states, self.attention_mask, None, and_mask_function=keep_apart)
        limits = {}
        if self.kernel == "flash" and self.cu_seqlens is not None:
            names = (("cu_seq_lens", self.cu_seqlens), ("max_length", self.max_seqlen))
            limits = {f"{name}_{side}": value for name, value in names for side in "qk"}
        return {"attention_mask": attention_mask, **limits}


def _packed(
    config: MyBertConfig, inputs: Inputs, lengths: torch.Tensor | None, kernel: str | None, training: bool
) -> Batch | None:
    """The batch packed; None if it has to run as its rows, or nothing is gained."""
    shape, mask, is_causal = inputs.shape, inputs.attention_mask, config.is_decoder
    if is_tracing(inputs.words) and (kernel is None or lengths is None or inputs.max_seqlen is None):
        return None  # shapes and branches of a graph must not depend on tensor values
    # An accelerator without a kernel for it runs one masked call faster than one call for each length.
    is_fast = kernel is not None or inputs.words.device.type == "cpu"
    if lengths is not None:
        if is_fast or shape[1] > config.max_position_embeddings:
            return pack_sequences(shape, lengths, is_causal, kernel, inputs.max_seqlen)
    elif is_fast and (mask is None or len(mask.shape) == 2):
        return pack_batch(shape, mask, is_causal, kernel, inputs.token_indices, may_fill_up=not training)
    return None


def _in_rows(config: MyBertConfig, inputs: Inputs, lengths: torch.Tensor | None, kernel: str | None) -> Batch:
    """The batch as its rows, with what keeps several sequences in a row apart."""
    shape, mask, device = inputs.shape, inputs.attention_mask, inputs.words.device
    is_graph, is_causal = is_tracing(inputs.words), config.is_decoder
    pooled_tokens = numbers = cu_seqlens = None
    max_seqlen = inputs.max_seqlen
    if lengths is not None:
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        if mask is None or len(mask.shape) == 2:  # a prepared one keeps sequences apart
            tokens = torch.arange(shape[0] * shape[1], device=device)
            numbers = torch.bucketize(tokens, offsets[1:], right=True).view(shape)
        pooled_tokens, cu_seqlens = (offsets[1:] - 1 if is_causal else offsets[:-1]), offsets.int()
        if kernel == "flash":
            max_seqlen = max_seqlen or (shape[1] if is_graph else int(lengths.max()))
    else:
        if is_causal:
            pooled_tokens = last_tokens(shape, mask, device)
        if mask is None and inputs.position_ids is not None:
            if kernel == "flash":
                # A graph cannot branch on whether rows hold several sequences; checked on the device.
                torch._assert_async(~number_sequences(inputs.position_ids).any(), _NOT_KEPT_APART)
            elif is_graph:
                numbers = number_sequences(inputs.position_ids)
    if inputs.token_indices is not None and mask is not None:  # transformers would read the mask's values
        if is_causal:
            mask = None  # no token attends to the padding after it
        elif config._attn_implementation in ("sdpa", "eager"):
            mask = mask.bool()[:, None, None].expand(-1, 1, shape[1], -1)  # prepared
    return Batch(
        shape,
        pooled_tokens,
        is_causal,
        is_packed=False,
        kernel=kernel,
        cu_seqlens=cu_seqlens,
        max_seqlen=max_seqlen,
        attention_mask=mask,
        numbers=numbers,
    )


def pack_batch(
    shape: tuple[int, int],
    attention_mask: torch.Tensor | None,
    is_causal: bool,
    kernel: str | None = None,
    token_indices: torch.Tensor | None = None,
    may_fill_up: bool = False,
) -> Batch | None:
    """Pack rows of one sequence each; None if attention cannot skip padding at their start, or nothing is gained.

    Without padding, packing only adds filler tokens on a CPU, if it may. It may not in training, so that dropout draws
    the same random numbers as transformers' BERT.
    """
    is_full, has_left_padding = attention_mask is None, False
    if attention_mask is not None:
        is_token = attention_mask.bool()
        starts_padded = ~is_token[:, 0]
        if token_indices is None:
            is_full, has_left_padding = torch.stack([is_token.all(), starts_padded.any()]).tolist()
    if is_full:
        size = shape[0] * shape[1]
        if kernel is not None or not may_fill_up or rounded_rows(size) == size:
            return None
        index = torch.arange(size)
        pooled_tokens = index[(shape[1] - 1 if is_causal else 0) :: shape[1]]
        return _fill_up(shape, index, pooled_tokens, is_causal, [(*shape, 0)])
    if has_left_padding and (is_causal or kernel is not None):
        return None
    kept, padding = is_token, None
    if has_left_padding:
        kept, padding = is_token.clone(), ~is_token
        kept[:, 0] = True
    index = flat_indices(kept) if token_indices is None else token_indices
    if kernel is not None:
        return _pack_for_kernel(shape, index, kept.sum(1), is_causal, kernel, shape[1])
    return _pack_by_length(shape, index, kept.sum(1), is_causal, starts_padded.long(), padding)


def pack_sequences(
    shape: tuple[int, int],
    lengths: torch.Tensor,
    is_causal: bool,
    kernel: str | None = None,
    max_seqlen: int | None = None,
) -> Batch:
    """Pack rows that hold sequences of these lengths (N,) one after the other, without padding."""
    if kernel is not None:  # the order stays
        return _pack_for_kernel(shape, None, lengths, is_causal, kernel, max_seqlen or int(lengths.max()))
    index = torch.arange(shape[0] * shape[1], device=lengths.device)
    return _pack_by_length(shape, index, lengths, is_causal, torch.zeros_like(lengths), None)


def _pack_for_kernel(
    shape: tuple[int, int],
    index: torch.Tensor | None,
    lengths: torch.Tensor,
    is_causal: bool,
    kernel: str,
    max_seqlen: int,
) -> Batch:
    offsets = F.pad(lengths.cumsum(0), (1, 0))
    pooled = offsets[1:] - 1 if is_causal else offsets[:-1]
    return Batch(shape, pooled, is_causal, kernel=kernel, index=index, cu_seqlens=offsets.int(), max_seqlen=max_seqlen)


def _pack_by_length(
    shape: tuple[int, int],
    index: torch.Tensor,
    lengths: torch.Tensor,
    is_causal: bool,
    first_keys: torch.Tensor,
    padding: torch.Tensor | None,
) -> Batch:
    """Pack sequences, given by the indices of their tokens, sorted by length; with filler on a CPU."""
    kinds, order = (2 * lengths + first_keys).sort(stable=True)
    sorted_lengths = lengths[order]
    starts = lengths.cumsum(0) - lengths
    packed_starts = sorted_lengths.cumsum(0) - sorted_lengths
    moved_by = (starts[order] - packed_starts).repeat_interleave(sorted_lengths, output_size=len(index))
    index = index[moved_by + torch.arange(len(index), device=index.device)]
    pooled = packed_starts + sorted_lengths - 1 if is_causal else packed_starts
    pooled_tokens = torch.empty_like(starts).scatter_(0, order, pooled)
    distinct, counts = kinds.unique_consecutive(return_counts=True)
    groups = [(count, kind // 2, kind % 2) for count, kind in zip(counts.tolist(), distinct.tolist(), strict=True)]
    return _fill_up(shape, index, pooled_tokens, is_causal, groups, padding)


def _fill_up(
    shape: tuple[int, int],
    index: torch.Tensor,
    pooled_tokens: torch.Tensor,
    is_causal: bool,
    groups: list[tuple[int, int, int]],
    padding: torch.Tensor | None = None,
) -> Batch:
    """A batch packed in groups, with filler tokens on a CPU."""
    fill = rounded_rows(len(index)) - len(index) if index.device.type == "cpu" else 0
    if fill:
        index, groups = F.pad(index, (0, fill)), [*groups, (1, fill, 0)]
    return Batch(shape, pooled_tokens, is_causal, index=index, groups=groups, padding=padding, fill=fill)


def flat_indices(mask: torch.Tensor) -> torch.Tensor:
    """Indices (n,) of the nonzero elements of a flattened mask of any shape; collators compute them on the CPU."""
    return mask.flatten().nonzero().squeeze(1)


def last_tokens(shape: tuple[int, int], attention_mask: torch.Tensor | None, device: torch.device) -> torch.Tensor:
    """Index in the flattened batch of the last token of each row (B,), before the padding that a mask (B, L) marks."""
    row_ends = torch.arange(1, shape[0] + 1, device=device) * shape[1] - 1
    if attention_mask is None or len(attention_mask.shape) != 2:
        return row_ends
    return row_ends - attention_mask.bool().flip(1).int().argmax(1)


def sequence_lengths(
    shape: tuple[int, int], position_ids: torch.Tensor | None, cu_seqlens: torch.Tensor | None
) -> torch.Tensor | None:
    """Lengths (N,) of the sequences in the rows of a batch; None if no row holds several, or a graph cannot know."""
    if cu_seqlens is not None:
        return cu_seqlens[1:].long() - cu_seqlens[:-1].long()  # OpenVINO converts no `diff`
    if position_ids is None or is_tracing(position_ids):
        return None
    numbers = number_sequences(position_ids)
    if not numbers.any():
        return None
    rows = torch.arange(shape[0], device=numbers.device)[:, None]
    return (numbers + rows * shape[1]).unique_consecutive(return_counts=True)[1]


def rows_of_sequences(
    states: torch.Tensor, lengths: torch.Tensor, longest: int | None = None, fill: float = 0.0
) -> torch.Tensor:
    """Rearrange (B, L, ...) into a row for each sequence of these lengths (N,), with `fill` at its end."""
    states = states.flatten(0, 1)
    places = torch.arange(int(lengths.max()) if longest is None else longest, device=states.device)
    rows = states[((lengths.cumsum(0) - lengths)[:, None] + places).clamp(max=len(states) - 1)]
    is_outside = places >= lengths[:, None]
    return rows.masked_fill(is_outside.view(*is_outside.shape, *(1,) * (rows.dim() - 2)), fill)


def number_sequences(position_ids: torch.Tensor) -> torch.Tensor:
    """Number of each token's sequence within its row (B, L), from positions that start again at 0 (others: all 0)."""
    is_start = position_ids == 0
    goes_on = is_start[:, 1:] | (position_ids[:, 1:] == position_ids[:, :-1] + 1)
    is_regular = is_start[:, 0].all() & goes_on.all() & position_ids.any()
    return (is_start.cumsum(1) - 1) * is_regular
