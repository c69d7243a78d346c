"""What the model was given: checked, and in one shape.

An error is one sentence: the argument, what was found and what was expected. In training, values on an accelerator are
not checked: reading them would synchronize with the device.

Shapes: B rows of L tokens in a batch, N sequences.
"""

from typing import NamedTuple

import torch

from .configuration_mybert import MyBertConfig
from .losses_mybert import IGNORE_INDEX


class Inputs(NamedTuple):
    """The arguments of `MyBertModel.forward`; None for what is the default of BERT."""

    words: torch.Tensor  # token ids (B, L) or word embeddings (B, L, D), whichever is given
    input_ids: torch.Tensor | None = None
    attention_mask: torch.Tensor | None = None  # (B, L), no row of padding only; or a prepared mask
    token_type_ids: torch.Tensor | None = None  # (B, L)
    position_ids: torch.Tensor | None = None  # (B, L)
    inputs_embeds: torch.Tensor | None = None
    token_indices: torch.Tensor | None = None  # (S,); None: unknown, or no padding
    cu_seqlens: torch.Tensor | None = None  # (N + 1,)
    max_seqlen: int | None = None

    @property
    def shape(self) -> tuple[int, int]:
        """B and L."""
        return self.words.shape[0], self.words.shape[1]

    def in_one_shape(self) -> "Inputs":
        """The same with segments and positions of each token, those of sequences in a row from their boundaries."""
        mask, indices = self.attention_mask, self.token_indices
        segments, positions = self.token_type_ids, self.position_ids
        if indices is not None and indices.shape[0] == self.shape[0] * self.shape[1]:
            mask = indices = None  # no padding
        elif mask is not None and len(mask.shape) == 2:
            mask = unmask_empty_rows(mask)
        if positions is not None:
            positions = positions.expand(self.shape)
        elif self.cu_seqlens is not None:
            positions = restarting_positions(self.shape, self.cu_seqlens)
        segments = None if segments is None else segments.expand(self.shape)
        return self._replace(
            attention_mask=mask, token_type_ids=segments, position_ids=positions, token_indices=indices
        )


def unmask_empty_rows(attention_mask: torch.Tensor) -> torch.Tensor:
    """The mask (B, L), with ones in the rows that hold only padding.

    Google's graph adds -10,000 to the scores of padding, which does not change the softmax of a row of padding only.
    """
    num_tokens = attention_mask.bool().sum(1, keepdim=True)  # ONNX Runtime infers no shapes through `any`
    return attention_mask.masked_fill(num_tokens == 0, 1)


def restarting_positions(shape: tuple[int, int], cu_seqlens: torch.Tensor) -> torch.Tensor:
    """Positions (B, L) that start at 0 with each sequence."""
    places = torch.arange(shape[0] * shape[1], device=cu_seqlens.device)
    return (places - cu_seqlens[torch.bucketize(places, cu_seqlens[1:-1], right=True)]).view(shape)


def check_inputs(config: MyBertConfig, num_words: int, training: bool, inputs: Inputs) -> None:
    """Check the inputs of `MyBertModel.forward`, whose word embeddings are `num_words`."""
    input_ids, attention_mask, token_type_ids, position_ids, inputs_embeds, token_indices = inputs[1:7]
    cu_seqlens, max_seqlen = inputs.cu_seqlens, inputs.max_seqlen
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Exactly one of input_ids and inputs_embeds must be given.")
    if input_ids is not None and input_ids.dim() != 2:
        raise ValueError(f"input_ids has shape {tuple(input_ids.shape)}; expected (batch, tokens).")
    if inputs_embeds is not None and (inputs_embeds.dim() != 3 or inputs_embeds.shape[2] != config.hidden_size):
        raise ValueError(
            f"inputs_embeds has shape {tuple(inputs_embeds.shape)}; expected (batch, tokens, {config.hidden_size})."
        )
    shape = inputs.shape
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
    if token_indices is not None:
        check_indices("token_indices", token_indices, shape[0] * shape[1], training)
        if attention_mask is None or len(attention_mask.shape) != 2:
            raise ValueError("token_indices is given without the attention_mask (batch, tokens) that it belongs to.")


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
