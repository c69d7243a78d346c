"""Checks of the network's inputs: one sentence that names the argument, what was found and what was expected.

Values on an accelerator are not checked in training, where reading them would synchronize with the device.

Shapes: B sequences of L tokens in a batch.
"""

import torch

from .losses_mybert import IGNORED_LABEL


def shape_of(tensor: torch.Tensor) -> str:
    """The shape as a message shows it."""
    return str(tuple(tensor.shape))


def check_words(
    input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None, hidden_size: int
) -> tuple[int, int]:
    """Check that a batch came as token ids or as word embeddings.

    Returns:
        (B, L).

    Raises:
        ValueError: If both or none are given, or the shape is not (B, L) or (B, L, hidden_size), or nothing is in it.
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


def check_longest(longest: int, max_position_embeddings: int) -> None:
    """Check that the longest sequence of a batch has positions.

    Raises:
        ValueError: If it has not.
    """
    if longest > max_position_embeddings:
        raise ValueError(
            f"The sequence has {longest} tokens; this model reads at most {max_position_embeddings} "
            "(max_position_embeddings). Truncate it or split it into windows."
        )


def check_borders(shape: tuple[int, int], borders: torch.Tensor) -> None:
    """Check that borders rise from 0 to B L and that each row starts a sequence.

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
            f"cu_seq_lens_q is {borders.tolist()}; expected increasing places in the flattened batch from 0 to "
            f"{size}, one of them at the start of each row of {shape[1]} tokens."
        )


def check_ids(name: str, ids: torch.Tensor | None, shape: tuple[int, int], limit: int, training: bool) -> None:
    """Check ids that go with a batch.

    Args:
        name: The argument.
        ids: (B, L), or (1, L) for all sequences, or None.
        shape: (B, L).
        limit: Number of valid ids: they are in [0, limit).
        training: Whether the model trains.

    Raises:
        ValueError: If their shape, type or values do not fit.
    """
    if ids is None:
        return
    if ids.dim() != 2 or ids.shape[1] != shape[1] or ids.shape[0] not in (shape[0], 1):
        raise ValueError(f"{name} has shape {shape_of(ids)}; expected {shape} like the other inputs.")
    _check_values(name, ids, limit, training)


def check_attention_mask(attention_mask: torch.Tensor | None, shape: tuple[int, int]) -> None:
    """Check the shape (B, L) of a mask; a prepared one has four dimensions and is bool or floating point.

    Raises:
        ValueError: If it is neither.
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
                "where a token is seen) or floating point (added to the scores)."
            )
    elif attention_mask.shape != shape:
        raise ValueError(
            f"attention_mask has shape {shape_of(attention_mask)}; expected {shape}, or four dimensions for a "
            "prepared mask."
        )


def check_labels(name: str, labels: torch.Tensor, shape: torch.Size, num_classes: int, training: bool) -> None:
    """Check class ids, or `IGNORED_LABEL`, of the expected shape; nothing in a graph that is compiled or exported.

    Raises:
        ValueError: If their shape, type or values do not fit.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing():
        return
    if labels.shape != shape:
        raise ValueError(f"{name} has shape {shape_of(labels)}; expected {tuple(shape)}.")
    _check_values(name, labels.masked_fill(labels == IGNORED_LABEL, 0), num_classes, training)


def check_indices(name: str, indices: torch.Tensor) -> None:
    """Check the shape (n,) and the type of places in the flattened batch.

    Raises:
        ValueError: If one does not fit.
    """
    if indices.dim() != 1:
        raise ValueError(f"{name} has shape {shape_of(indices)}; expected places in the flattened batch (n,).")
    check_type(name, indices)


def check_type(name: str, ids: torch.Tensor) -> None:
    """Check that ids are integers of a size that PyTorch takes for an index.

    Raises:
        ValueError: If they are not.
    """
    if ids.dtype not in (torch.int64, torch.int32):
        raise ValueError(f"{name} has type {ids.dtype}; expected int64 or int32.")


def _check_values(name: str, ids: torch.Tensor, limit: int, training: bool) -> None:
    """Check an id tensor's type, and its values where looking at them does not make a training device wait."""
    check_type(name, ids)
    if ids.device.type != "cpu" and (training or (ids.is_cuda and torch.cuda.is_current_stream_capturing())):
        return
    try:
        smallest, largest = (int(value) for value in torch.aminmax(ids))
    except RuntimeError:  # there are no values to look at: meta and fake tensors, torch.func.vmap
        return
    if smallest < 0 or largest >= limit:
        wrong = smallest if smallest < 0 else largest
        raise ValueError(f"{name} holds {wrong}; expected values from 0 to {limit - 1}.")


__all__ = [
    "check_attention_mask",
    "check_borders",
    "check_ids",
    "check_indices",
    "check_labels",
    "check_longest",
    "check_type",
    "check_words",
    "shape_of",
]
