"""How a batch runs: as rows with a mask, or packed into one row of tokens, without padding.

Padded rows, and rows that hold several sequences one after the other, become one row of tokens in which sequences of
equal length are adjacent, so that attention runs on each group as one dense batch without a mask.

Shapes: B rows of L tokens in a batch, N sequences with S tokens in total, H heads of size d.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from transformers.masking_utils import create_bidirectional_mask, create_causal_mask, packed_sequence_mask_function
from transformers.utils.import_utils import is_tracing

from .attention_mybert import eager_attention_forward, prefers_eager
from .configuration_mybert import MyBertConfig
from .linear_mybert import rounded_rows

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # PyTorch before 2.10
    HAS_VARLEN_KERNEL = False
else:  # its first releases lack arguments
    HAS_VARLEN_KERNEL = {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()

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
    is_packed: bool = True
    is_flash: bool = False  # attention is one of transformers' flash functions, which get `cu_seqlens` as arguments
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
        cls,
        words: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor | None,
        max_seqlen: int | None,
        token_indices: torch.Tensor | None,
        config: MyBertConfig,
        training: bool,
        may_pack: bool,
        varlen: bool,
        is_flash: bool,
    ) -> "Batch":
        """Decide how a batch of token ids (B, L) or word embeddings (B, L, D) runs; see `MyBertModel.forward`.

        Packed tokens, if they are allowed by `may_pack`, attend by `cu_seqlens` if `varlen`, else length by length.
        """
        shape, is_causal = (words.shape[0], words.shape[1]), config.is_decoder
        # With a mask, positions do not mark sequence boundaries.
        lengths = sequence_lengths(shape, None if attention_mask is not None else position_ids, cu_seqlens)
        is_graph, is_fast = is_tracing(words), varlen or words.device.type == "cpu"
        if is_graph:  # its shapes and branches must not depend on tensor values
            may_pack = may_pack and varlen and lengths is not None and max_seqlen is not None
        if may_pack and lengths is not None:
            # An accelerator runs one masked call faster than one call for each length.
            if is_fast or shape[1] > config.max_position_embeddings:
                return pack_sequences(shape, lengths, varlen, max_seqlen, is_causal, is_flash)
        elif may_pack and is_fast and (attention_mask is None or len(attention_mask.shape) == 2):
            packed = None
            if attention_mask is not None:
                packed = pack_padded(attention_mask, varlen, is_causal, token_indices, is_flash)
            # In training without padding, dropout draws the same random numbers as transformers' BERT.
            may_fill_up = packed is None and not varlen and not training
            if may_fill_up and (attention_mask is None or bool(attention_mask.bool().all())):
                packed = pack_full(shape, is_causal)
            if packed is not None:
                return packed
        pooled_tokens = numbers = cu_seqlens = None
        if lengths is not None:
            offsets = F.pad(lengths.cumsum(0), (1, 0))
            places = torch.arange(shape[0] * shape[1], device=words.device)
            numbers = torch.bucketize(places, offsets[1:], right=True).view(shape)
            pooled_tokens, cu_seqlens = pooled_places(offsets, is_causal), offsets.int()
            if is_flash:
                max_seqlen = max_seqlen or (shape[1] if is_graph else int(lengths.max()))
        else:
            if is_causal:
                pooled_tokens = last_tokens(shape, attention_mask, words.device)
            if attention_mask is None and position_ids is not None:
                if is_flash:
                    # A graph cannot branch on whether rows hold several sequences; checked on the device.
                    torch._assert_async(~number_sequences(position_ids).any(), _NOT_KEPT_APART)
                elif is_graph:
                    numbers = number_sequences(position_ids)
        if token_indices is not None and attention_mask is not None:  # transformers would read the mask's values
            if is_causal:
                attention_mask = None  # no token attends to the padding after it
            elif config._attn_implementation in ("sdpa", "eager"):
                attention_mask = attention_mask.bool()[:, None, None].expand(-1, 1, shape[1], -1)  # prepared
        return cls(
            shape,
            pooled_tokens,
            is_packed=False,
            is_flash=is_flash,
            cu_seqlens=cu_seqlens,
            max_seqlen=max_seqlen,
            attention_mask=attention_mask,
            numbers=numbers,
        )

    def pack(self, states: torch.Tensor) -> torch.Tensor:
        """Pack (B, L, ...) into (1, S, ...); unchanged if the batch is not packed."""
        if not self.is_packed:
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
        if self.is_packed and not self.is_flash:
            return {"batch": self}
        create_mask = create_causal_mask if config.is_decoder else create_bidirectional_mask
        attention_mask = create_mask(
            config=config,
            inputs_embeds=hidden_states,
            attention_mask=self.attention_mask,
            past_key_values=None,
            and_mask_function=None if self.numbers is None else packed_sequence_mask_function(self.numbers),
        )
        limits = {}
        if self.is_flash and self.cu_seqlens is not None:
            names = (("cu_seq_lens", self.cu_seqlens), ("max_length", self.max_seqlen))
            limits = {f"{name}_{side}": value for name, value in names for side in "qk"}
        return {"attention_mask": attention_mask, **limits}

    def attend(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        dropout: float,
        scaling: float,
        is_causal: bool,
    ) -> torch.Tensor:
        """Attention within each packed sequence: query, key and value (S, H, d) to the context (S, H, d)."""
        if self.groups is None:
            assert self.cu_seqlens is not None
            assert self.max_seqlen is not None
            limits = (self.cu_seqlens, self.cu_seqlens, self.max_seqlen, self.max_seqlen)
            window = (-1, 0) if is_causal else (-1, -1)
            context = varlen_attn(query, key, value, *limits, scale=scaling, window_size=window)
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
            if prefers_eager(queries, dropout, is_causal):
                context, _ = eager_attention_forward(None, queries, keys, values, None, scaling, dropout)
            else:
                options: dict[str, Any] = {"dropout_p": dropout, "scale": scaling, "is_causal": is_causal}
                context = F.scaled_dot_product_attention(queries, keys, values, **options).transpose(1, 2)
            contexts.append(context.flatten(0, 1))
        return torch.cat(contexts)


def pack_padded(
    attention_mask: torch.Tensor,
    varlen: bool,
    is_causal: bool,
    token_indices: torch.Tensor | None = None,
    is_flash: bool = False,
) -> Batch | None:
    """Pack a padded batch; None if it has no padding, or a row starts with padding that attention cannot skip."""
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
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        pooled = pooled_places(offsets, is_causal)
        return Batch(shape, pooled, is_flash=is_flash, index=index, cu_seqlens=offsets.int(), max_seqlen=shape[1])
    return _group(shape, index, lengths, starts_padded.long(), padding, is_causal)


def pack_full(shape: tuple[int, int], is_causal: bool) -> Batch | None:
    """Pack a batch (B, L) without padding on a CPU, with filler tokens; None if it needs none."""
    index = torch.arange(shape[0] * shape[1])
    pooled_tokens = index[(shape[1] - 1 if is_causal else 0) :: shape[1]]
    packed = _fill_up(shape, index, pooled_tokens, [(*shape, 0)])
    return packed if packed.fill else None


def pack_sequences(
    shape: tuple[int, int],
    lengths: torch.Tensor,
    varlen: bool,
    max_seqlen: int | None,
    is_causal: bool,
    is_flash: bool = False,
) -> Batch:
    """Pack rows that hold sequences of these lengths (N,) one after the other, without padding; see `Batch.of`."""
    if varlen:  # the order stays
        offsets = F.pad(lengths.cumsum(0), (1, 0))
        return Batch(
            shape,
            pooled_places(offsets, is_causal),
            is_flash=is_flash,
            cu_seqlens=offsets.int(),
            max_seqlen=max_seqlen or int(lengths.max()),
        )
    index = torch.arange(shape[0] * shape[1], device=lengths.device)
    return _group(shape, index, lengths, torch.zeros_like(lengths), None, is_causal)


def _group(
    shape: tuple[int, int],
    index: torch.Tensor,
    lengths: torch.Tensor,
    first_keys: torch.Tensor,
    padding: torch.Tensor | None,
    is_causal: bool,
) -> Batch:
    """Pack sequences, given by the indices of their tokens, sorted by length; with filler on a CPU."""
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
) -> Batch:
    """A batch packed in groups, with filler tokens on a CPU."""
    fill = rounded_rows(len(index)) - len(index) if index.device.type == "cpu" else 0
    if fill:
        index, groups = F.pad(index, (0, fill)), [*groups, (1, fill, 0)]
    return Batch(shape, pooled_tokens, index=index, groups=groups, padding=padding, fill=fill)


def unmask_empty_rows(attention_mask: torch.Tensor) -> torch.Tensor:
    """The mask (B, L), with ones in the rows that hold only padding.

    Google's graph adds -10,000 to the scores of padding, which does not change the softmax of a row of padding only.
    """
    num_tokens = attention_mask.bool().sum(1, keepdim=True)  # ONNX Runtime infers no shapes through `any`
    return attention_mask.masked_fill(num_tokens == 0, 1)


def flat_indices(mask: torch.Tensor) -> torch.Tensor:
    """Indices (n,) of the nonzero elements of a flattened mask of any shape; collators compute them on the CPU."""
    return mask.flatten().nonzero().squeeze(1)


def pooled_places(offsets: torch.Tensor, is_causal: bool) -> torch.Tensor:
    """Index of the token that the pooler reads for each sequence (N,), from the sequences' offsets (N + 1,)."""
    return offsets[1:] - 1 if is_causal else offsets[:-1]


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
        return cu_seqlens.long().diff()
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


def restarting_positions(shape: tuple[int, int], cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Positions (B, L) that start at 0 with each sequence."""
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
