"""A batch: how it runs, attention within its sequences, and the checks of what the model gets.

A batch runs as rows with a mask, or packed into one row of tokens, without padding. Padded rows, and rows that hold
several sequences one after the other, become one row of tokens in which sequences of equal length are adjacent.
Attention then runs on each group as one dense batch, without a mask.

Shapes: B rows of L tokens in a batch, N sequences with S tokens in total, H heads of size d.
"""

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from transformers.masking_utils import (
    ALL_MASK_ATTENTION_FUNCTIONS,
    create_bidirectional_mask,
    create_causal_mask,
    flash_attention_mask,
    packed_sequence_mask_function,
)
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.import_utils import is_tracing

from .configuration_mybert import MyBertConfig
from .linear_mybert import rounded_rows
from .losses_mybert import IGNORE_INDEX

try:
    from torch.nn.attention.varlen import varlen_attn
except ImportError:  # PyTorch before 2.10
    HAS_VARLEN_KERNEL = False
else:  # its first releases lack arguments
    HAS_VARLEN_KERNEL = {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys()

_MANY_SCORES = 16_384  # below this, bfloat16 products are dominated by launch overhead
_LONG = 256  # tokens
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
        cls,
        config: MyBertConfig,
        words: torch.Tensor,
        attention_mask: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        cu_seqlens: torch.Tensor | None,
        max_seqlen: int | None,
        token_indices: torch.Tensor | None,
        training: bool,
        may_pack: bool,
        has_varlen_kernel: bool,
    ) -> "Batch":
        """Decide how a batch of token ids (B, L) or word embeddings (B, L, D) runs; see `MyBertModel.forward`."""
        shape, is_causal = (words.shape[0], words.shape[1]), config.is_decoder
        attention, masks = config._attn_implementation, ALL_MASK_ATTENTION_FUNCTIONS
        kernel = None
        if attention in masks and masks[attention] is flash_attention_mask:  # built in or from the Hub, without a mask
            kernel = "flash"
        elif attention == "sdpa" and has_varlen_kernel:
            kernel = "varlen"
        is_graph, is_fast = is_tracing(words), kernel is not None or words.device.type == "cpu"
        # With a mask, positions do not mark sequence boundaries.
        lengths = sequence_lengths(shape, None if attention_mask is not None else position_ids, cu_seqlens)
        may_pack = may_pack and (kernel is not None or attention == "sdpa")
        if is_graph:  # its shapes and branches must not depend on tensor values
            may_pack = may_pack and kernel is not None and lengths is not None and max_seqlen is not None
        if may_pack and lengths is not None:
            # An accelerator runs one masked call faster than one call for each length.
            if is_fast or shape[1] > config.max_position_embeddings:
                return pack_sequences(shape, lengths, is_causal, kernel, max_seqlen)
        elif may_pack and is_fast and (attention_mask is None or len(attention_mask.shape) == 2):
            packed = pack_batch(shape, attention_mask, is_causal, kernel, token_indices, may_fill_up=not training)
            if packed is not None:
                return packed
        pooled_tokens = numbers = cu_seqlens = None
        if lengths is not None:
            offsets = F.pad(lengths.cumsum(0), (1, 0))
            if attention_mask is None or len(attention_mask.shape) == 2:  # a prepared one keeps sequences apart
                places = torch.arange(shape[0] * shape[1], device=words.device)
                numbers = torch.bucketize(places, offsets[1:], right=True).view(shape)
            pooled_tokens, cu_seqlens = (offsets[1:] - 1 if is_causal else offsets[:-1]), offsets.int()
            if kernel == "flash":
                max_seqlen = max_seqlen or (shape[1] if is_graph else int(lengths.max()))
        else:
            if is_causal:
                pooled_tokens = last_tokens(shape, attention_mask, words.device)
            if attention_mask is None and position_ids is not None:
                if kernel == "flash":
                    # A graph cannot branch on whether rows hold several sequences; checked on the device.
                    torch._assert_async(~number_sequences(position_ids).any(), _NOT_KEPT_APART)
                elif is_graph:
                    numbers = number_sequences(position_ids)
        if token_indices is not None and attention_mask is not None:  # transformers would read the mask's values
            if is_causal:
                attention_mask = None  # no token attends to the padding after it
            elif attention in ("sdpa", "eager"):
                attention_mask = attention_mask.bool()[:, None, None].expand(-1, 1, shape[1], -1)  # prepared
        return cls(
            shape,
            pooled_tokens,
            is_packed=False,
            kernel=kernel,
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
        return _fill_up(shape, index, index[(shape[1] - 1 if is_causal else 0) :: shape[1]], [(*shape, 0)])
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
    return Batch(shape, pooled, kernel=kernel, index=index, cu_seqlens=offsets.int(), max_seqlen=max_seqlen)


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


def mean_states(
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    max_seqlen: int | None,
) -> torch.Tensor:
    """The mean hidden state (N, D) of the tokens of each sequence in a batch (B, L, D), special tokens included."""
    shape = (hidden_states.shape[0], hidden_states.shape[1])
    lengths = sequence_lengths(shape, None if attention_mask is not None else position_ids, cu_seqlens)
    if lengths is not None:
        return rows_of_sequences(hidden_states, lengths, max_seqlen).sum(1) / lengths[:, None]
    if attention_mask is None:
        return hidden_states.mean(1)
    if len(attention_mask.shape) != 2:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected {shape}: a prepared mask does not say "
            "which tokens are padding, and classifier_pooling is 'mean'."
        )
    is_token = unmask_empty_rows(attention_mask).bool()
    return hidden_states.masked_fill(~is_token[..., None], 0).sum(1) / is_token.sum(1, keepdim=True)


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


def eager_attention_forward(
    module: nn.Module | None,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention in plain tensor operations, the one implementation that returns the attention weights.

    From query, key and value (B, H, L, d) to the context (B, L, H, d) and the weights (B, H, L, L). A bool mask
    (B or 1, H or 1, L, L) is True where a token may be attended to; one of another type is added to the scores.
    """
    scores = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attention_mask, torch.finfo(scores.dtype).min)
    elif attention_mask is not None:
        scores = scores + attention_mask
    weights = F.dropout(F.softmax(scores, dim=-1), p=dropout)
    return torch.matmul(weights, value).transpose(1, 2).contiguous(), weights


def prefers_eager(query: torch.Tensor, dropout: float, is_causal: bool) -> bool:
    """Whether plain matrix products are faster here than PyTorch's fused attention.

    Measured on AMD Zen 4: for bfloat16 training on a CPU, the flash kernel takes three to four times as long, and
    PyTorch's implementation with dropout twice as long. Inference keeps the fused kernel because it computes the
    scores in float32. Long sequences without dropout keep it, too, because it stores no attention weights for the
    backward pass.
    """
    length = query.shape[2]
    return (
        not is_causal
        and query.dtype == torch.bfloat16
        and query.device.type == "cpu"
        and query.requires_grad
        and not torch.compiler.is_compiling()
        and query.shape[:3].numel() * length >= _MANY_SCORES
        and (dropout > 0 or length <= _LONG)
    )


# Checks. An error is one sentence: the argument, what was found and what was expected. In training, values on an
# accelerator are not checked: reading them would synchronize with the device.


def check_inputs(
    config: MyBertConfig,
    num_words: int,
    training: bool,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    position_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
    cu_seqlens: torch.Tensor | None,
    max_seqlen: int | None,
) -> None:
    """Check the inputs of `MyBertModel.forward`, whose word embeddings are `num_words`."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Exactly one of input_ids and inputs_embeds must be given.")
    if input_ids is not None and input_ids.dim() != 2:
        raise ValueError(f"input_ids has shape {tuple(input_ids.shape)}; expected (batch, tokens).")
    if inputs_embeds is not None and (inputs_embeds.dim() != 3 or inputs_embeds.shape[2] != config.hidden_size):
        raise ValueError(
            f"inputs_embeds has shape {tuple(inputs_embeds.shape)}; expected (batch, tokens, {config.hidden_size})."
        )
    words = input_ids if inputs_embeds is None else inputs_embeds
    assert words is not None
    shape = (words.shape[0], words.shape[1])
    if 0 in shape:
        raise ValueError(f"The batch is empty: {shape[0]} sequences of {shape[1]} tokens.")
    if cu_seqlens is None:
        max_seqlen = shape[1]
    elif cu_seqlens.device.type == "cpu":
        _check_cu_seqlens(shape, cu_seqlens)
        max_seqlen = int(cu_seqlens.diff().max())
    if position_ids is None and max_seqlen is not None and max_seqlen > config.max_position_embeddings:
        raise ValueError(
            f"The sequence has {max_seqlen} tokens; this model reads at most {config.max_position_embeddings} "
            "(max_position_embeddings). Truncate it or split it into windows."
        )
    for name, ids, limit in (
        ("input_ids", input_ids, num_words),
        ("token_type_ids", token_type_ids, config.type_vocab_size),
        ("position_ids", position_ids, config.max_position_embeddings),
    ):
        if ids is None:
            continue
        if ids.dim() != 2 or ids.shape[1] != shape[1] or ids.shape[0] not in (shape[0], 1):
            raise ValueError(f"{name} has shape {tuple(ids.shape)}; expected {shape} like the other inputs.")
        check_values(name, ids, limit, training)
    # A prepared mask may be flex attention's BlockMask, which has a shape and no `dim()`.
    if isinstance(attention_mask, torch.Tensor) and attention_mask.dim() == 4:
        if not (attention_mask.is_floating_point() or attention_mask.dtype == torch.bool):
            raise ValueError(
                f"attention_mask has type {attention_mask.dtype}; a prepared mask is expected to be bool (True "
                "where a token may be attended to) or floating point (added to the scores)."
            )
    elif attention_mask is not None and len(attention_mask.shape) != 4 and attention_mask.shape != shape:
        raise ValueError(
            f"attention_mask has shape {tuple(attention_mask.shape)}; expected {shape}, or four dimensions for a "
            "prepared mask."
        )


def _check_cu_seqlens(shape: tuple[int, int], cu_seqlens: torch.Tensor) -> None:
    """Check that offsets increase from 0 to B * L and that each row starts a new sequence."""
    size = shape[0] * shape[1]
    row_starts = torch.arange(0, size + 1, shape[1], device=cu_seqlens.device)
    if (
        cu_seqlens.dim() != 1
        or not (cu_seqlens.diff() > 0).all()
        or not torch.isin(row_starts, cu_seqlens).all()
        or cu_seqlens[0] != 0
        or cu_seqlens[-1] != size
    ):
        raise ValueError(
            f"cu_seq_lens_q is {cu_seqlens.tolist()}; expected increasing offsets into the flattened batch from 0 to "
            f"{size}, one of them at the start of each row of {shape[1]} tokens."
        )


def check_labels(name: str, labels: torch.Tensor, shape: torch.Size, num_classes: int, training: bool) -> None:
    """Check class ids, some of which may be `IGNORE_INDEX`; not in a graph that is being compiled or exported."""
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    if labels.shape != shape:
        raise ValueError(f"{name} has shape {tuple(labels.shape)}; expected {tuple(shape)}.")
    check_values(name, labels.masked_fill(labels == IGNORE_INDEX, 0), num_classes, training)


def check_indices(name: str, indices: torch.Tensor, count: int, training: bool) -> None:
    """Check indices (n,) into the flattened batch of `count` tokens."""
    if indices.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(indices.shape)}; expected indices into the flattened batch (n,).")
    check_values(name, indices, count, training)


def check_values(name: str, ids: torch.Tensor, limit: int | None, training: bool) -> None:
    """Check that ids are of a dtype that PyTorch accepts as an index, and below a limit, if they can be read."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} has type {ids.dtype}; expected int64 or int32.")
    if limit is None or torch.compiler.is_compiling() or torch.jit.is_tracing() or not ids.numel():
        return
    if ids.device.type != "cpu" and (training or (ids.is_cuda and torch.cuda.is_current_stream_capturing())):
        return  # reading would synchronize
    try:
        smallest, largest = (int(value) for value in torch.aminmax(ids))
    except RuntimeError:  # no values to read: meta and fake tensors, torch.func.vmap
        return
    if smallest < 0 or largest >= limit:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} holds {wrong}; expected values from 0 to {limit - 1}.")
