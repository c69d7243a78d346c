"""Which sequences share a row of OpenVINO's graph."""

import numpy as np
import pytest

from mybert.pipelines.openvino_model import row_length, shared_rows


@pytest.mark.parametrize(
    ("lengths", "rows"),
    [
        ([7], 1),
        ([5] * 6, 6),  # nothing to share
        ([250] + [30] * 31, 1 + 4),
        ([1, 9, 8, 2, 5, 4, 3, 6, 7], 5),
    ],
)
def test_shared_rows_are_filled_and_hold_every_sequence_once(lengths, rows):
    found = shared_rows(np.array(lengths), max(lengths))
    assert len(found) == rows
    assert sorted(sequence for row in found for sequence in row) == list(range(len(lengths)))
    assert max(sum(lengths[sequence] for sequence in row) for row in found) == max(lengths)


@pytest.mark.parametrize(
    ("lengths", "length"), [([21], 21), ([15, 3], 15), ([21, 3], 22), ([9, 33], 36), ([120, 60], 120), ([121, 2], 128)]
)
def test_row_length_of_several_sequences_is_rounded_up(lengths, length):
    assert row_length(np.array(lengths)) == length
