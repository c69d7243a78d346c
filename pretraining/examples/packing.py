"""Sequences of different lengths packed into rows of one length."""

import numpy as np


def pack_rows(lengths: np.ndarray, row_length: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Pack sequences into rows, longest first, each into the fullest row with enough space (best-fit decreasing)."""
    # shuffled, so that a row does not hold neighboring sequences
    order = generator.permutation(len(lengths))
    order = order[np.argsort(-lengths[order], kind="stable")]
    row_of = np.empty(len(lengths), np.int64)
    with_room: list[np.ndarray] = [np.empty(0, np.int64)] * (row_length + 1)  # rows, by the number of free tokens
    rows = 0

    def fill(sequences: np.ndarray, length: int, room: int) -> np.ndarray:
        """Put as many sequences of one length as fit into rows with so much space; return the rest."""
        fit = room // length
        used, with_room[room] = np.split(with_room[room], [-(-len(sequences) // fit)])
        placed = min(len(sequences), fit * len(used))
        row_of[sequences[:placed]] = np.repeat(used, fit)[:placed]
        left = room - length * np.bincount(np.arange(placed) // fit, minlength=len(used))
        for free in np.unique(left):
            with_room[free] = np.concatenate([with_room[free], used[left == free]])
        return sequences[placed:]

    ends = np.flatnonzero(np.diff(lengths[order], append=0))
    for sequences in np.split(order, ends[:-1] + 1) if len(order) else []:
        length = int(lengths[sequences[0]])
        for room in range(length, row_length + 1):
            if len(sequences) and len(with_room[room]):
                sequences = fill(sequences, length, room)
        if len(sequences):
            new = -(-len(sequences) // (row_length // length))
            with_room[row_length] = np.arange(rows, rows + new)
            rows += new
            fill(sequences, length, row_length)
    by_row = np.argsort(row_of, kind="stable")
    # sequences of the first row, then of the second, ..., (n,); offset of each row among them, (rows + 1,)
    return by_row, np.concatenate([[0], np.cumsum(np.bincount(row_of, minlength=rows))])
