"""Checks of the model inputs. An error is one sentence: the argument, what was found and what was expected.

In training, values on an accelerator are not checked: reading them would synchronize with the device.

Shapes: B sequences of L tokens in a batch.
"""

import torch

from .losses_mybert import IGNORE_INDEX


def shape_of(tensor: torch.Tensor) -> str:
    """The shape as error messages show it."""
    return str(tuple(tensor.shape))


def check_words(
    input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, hidden_size: int
) -> tuple[int, int]:
    """Check that a batch is given as either token ids or word embeddings.

    Returns:
        (B, L).

    Raises:
        ValueError: If both or neither is given, the batch is empty, or the shape is not (B, L) or (B, L, hidden_size).
    """
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Exactly one of input_ids and inputs_embeds must be given.")
    if input_ids is not None and input_ids.dim() != 2:
        raise ValueError(f"input_ids has shape {shape_of(input_ids)}; expected (batch, tokens).")
    if inputs_embeds is not None and (inputs_embeds.dim() != 3 or inputs_embeds.shape[2] != hidden_size):
        raise ValueError(
            f"inputs_embeds has shape {shape_of(inputs_embeds)}; expected (batch, tokens, {hidden_size})."
        )
    words = input_ids if inputs_embeds is None else inputs_embeds
    assert words is not None
    batch_size, length = words.shape[:2]
    if batch_size == 0 or length == 0:
        raise ValueError(f"The batch is empty: {batch_size} sequences of {length} tokens.")
    return batch_size, length


def check_length(longest: int, max_position_embeddings: int) -> None:
    """Check that the longest sequence of a batch is within the model's maximum length.

    Args:
        longest: Length of the longest sequence, in tokens.
        max_position_embeddings: Number of position embeddings of the model.

    Raises:
        ValueError: If the sequence is longer than that.
    """
    if longest > max_position_embeddings:
        raise ValueError(
            f"The sequence has {longest} tokens; this model reads at most {max_position_embeddings} "
            "(max_position_embeddings). Truncate it or split it into windows."
        )


def check_cu_seqlens(shape: tuple[int, int], borders: torch.Tensor) -> None:
    """Check that sequence boundaries increase from 0 to B * L and that each row starts a new sequence.

    Args:
        shape: (B, L).
        borders: Offset of the first token of each sequence in the flattened batch, and B * L at the end (N + 1,).

    Raises:
        ValueError: If they do not.
    """
    size = shape[0] * shape[1]
    row_starts = torch.arange(0, size + 1, shape[1], device=borders.device)
    if (
        borders.dim() != 1
        or not (borders.diff() > 0).all()
        or not torch.isin(row_starts, borders).all()
        or borders[0] != 0
        or borders[-1] != size
    ):
        raise ValueError(
            f"cu_seq_lens_q is {borders.tolist()}; expected increasing offsets into the flattened batch from 0 to "
            f"{size}, one of them at the start of each row of {shape[1]} tokens."
        )


def check_ids(name: str, ids: torch.Tensor | None, shape: tuple[int, int], limit: int, training: bool) -> None:
    """Check ids that are given for every token of a batch.

    Args:
        name: Name of the argument, for the message.
        ids: (B, L), or (1, L) for all sequences, or None.
        shape: (B, L).
        limit: Valid ids are in [0, limit).
        training: Whether the model is in training mode.

    Raises:
        ValueError: If their shape, dtype or values are wrong.
    """
    if ids is None:
        return
    if ids.dim() != 2 or ids.shape[1] != shape[1] or ids.shape[0] not in (shape[0], 1):
        raise ValueError(f"{name} has shape {shape_of(ids)}; expected {shape} like the other inputs.")
    _check_values(name, ids, limit, training)


def check_attention_mask(attention_mask: torch.Tensor | None, shape: tuple[int, int]) -> None:
    """Check an attention mask: of shape (B, L), or a prepared one of four dimensions, bool or floating point.

    Raises:
        ValueError: If the shape or the dtype is another.
    """
    if attention_mask is None:
        return
    # A prepared mask may be flex attention's BlockMask, which has a shape and no `dim()`.
    if len(attention_mask.shape) == 4:
        if isinstance(attention_mask, torch.Tensor) and not (
            attention_mask.is_floating_point() or attention_mask.dtype == torch.bool
        ):
            raise ValueError(
                f"attention_mask has type {attention_mask.dtype}; a prepared mask is expected to be bool (True "
                "where a token may be attended to) or floating point (added to the scores)."
            )
    elif attention_mask.shape != shape:
        raise ValueError(
            f"attention_mask has shape {shape_of(attention_mask)}; expected {shape}, or four dimensions for a "
            "prepared mask."
        )


def check_labels(name: str, labels: torch.Tensor, shape: torch.Size, num_classes: int, training: bool) -> None:
    """Check the shape and values of class ids, some of which may be `IGNORE_INDEX`.

    Nothing is checked in a graph that is being compiled or exported.

    Raises:
        ValueError: If their shape, dtype or values are wrong.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    if labels.shape != shape:
        raise ValueError(f"{name} has shape {shape_of(labels)}; expected {tuple(shape)}.")
    _check_values(name, labels.masked_fill(labels == IGNORE_INDEX, 0), num_classes, training)


def check_indices(name: str, indices: torch.Tensor, count: int, training: bool) -> None:
    """Check indices into the flattened batch of `count` tokens: shape (n,), an integer dtype and values in [0, count).

    Values are not checked in a graph that is being compiled or exported.

    Raises:
        ValueError: If their shape, dtype or values are wrong.
    """
    if indices.dim() != 1:
        raise ValueError(f"{name} has shape {shape_of(indices)}; expected indices into the flattened batch (n,).")
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or not indices.shape[0]:
        check_type(name, indices)
    else:
        _check_values(name, indices, count, training)


def check_type(name: str, ids: torch.Tensor) -> None:
    """Check that ids are of an integer dtype that PyTorch accepts as an index.

    Raises:
        ValueError: If they are not.
    """
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


__all__ = [
    "check_attention_mask",
    "check_cu_seqlens",
    "check_ids",
    "check_indices",
    "check_labels",
    "check_length",
    "check_type",
    "check_words",
    "shape_of",
]
