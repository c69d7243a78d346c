"""Checks of the model inputs. An error is one sentence: the argument, what was found and what was expected.

In training, values on an accelerator are not checked: reading them would synchronize with the device.

Shapes: B sequences of L tokens in a batch.
"""

import torch

from .configuration_mybert import MyBertConfig
from .losses_mybert import IGNORE_INDEX


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
        _check_values(name, ids, limit, training)
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
    _check_values(name, labels.masked_fill(labels == IGNORE_INDEX, 0), num_classes, training)


def check_indices(name: str, indices: torch.Tensor, count: int, training: bool) -> None:
    """Check indices (n,) into the flattened batch of `count` tokens; in a compiled graph not the values."""
    if indices.dim() != 1:
        raise ValueError(f"{name} has shape {tuple(indices.shape)}; expected indices into the flattened batch (n,).")
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not indices.shape[0]:
        check_type(name, indices)
    else:
        _check_values(name, indices, count, training)


def check_type(name: str, ids: torch.Tensor) -> None:
    """Check that ids are of an integer dtype that PyTorch accepts as an index."""
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} has type {ids.dtype}; expected int64 or int32.")


def _check_values(name: str, ids: torch.Tensor, limit: int, training: bool) -> None:
    """Check the dtype of ids, and their values unless reading them would synchronize a training step."""
    check_type(name, ids)
    if ids.device.type != "cpu" and (training or (ids.is_cuda and torch.cuda.is_current_stream_capturing())):
        return
    try:
        smallest, largest = (int(value) for value in torch.aminmax(ids))
    except RuntimeError:  # no values to read: meta and fake tensors, torch.func.vmap
        return
    if smallest < 0 or largest >= limit:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} holds {wrong}; expected values from 0 to {limit - 1}.")
