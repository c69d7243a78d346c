"""Which sequences share a row of OpenVINO's graph."""

import numpy as np
import pytest

from mybert.pipelines.openvino_model import shared_rows


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
