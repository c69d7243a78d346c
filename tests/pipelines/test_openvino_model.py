"""Which sequences share a row of OpenVINO's graph, and whose outputs a call returns."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from mybert import MyBertConfig
from mybert.pipelines.openvino_model import OpenVinoModel, row_length, shared_rows


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


class Output:
    """An output of a graph."""

    def __init__(self, name):
        self.get_any_name = lambda: name


class Graph:
    """A request whose states are the ids, and whose logits are the sums of the ids that the mask counts."""

    def infer(self, arrays):
        self.arrays = arrays
        time.sleep(0.0005)  # the time of another thread
        ids, mask, _ = self.arrays.values()
        results = {"last_hidden_state": ids[..., None].astype(np.float32), "logits": (ids * mask).sum(1)[:, None]}
        return {Output(name): values for name, values in results.items()}


def model_of_graph(packs):
    model = OpenVinoModel.__new__(OpenVinoModel)
    torch.nn.Module.__init__(model)
    model.config, model._logits, model._has_choices = MyBertConfig(max_position_embeddings=8), "", False
    model._packs, model._limits, model.inputs = packs, model.config, {"input_ids", "attention_mask", "token_type_ids"}
    model._of_tokens, model._request = {"last_hidden_state": True, "logits": False}, Graph()
    model._lock = threading.Lock()
    return model


@pytest.mark.parametrize("packs", [True, False])
def test_states_of_padding_before_tokens_are_zero_and_sequences_keep_their_outputs(packs):
    model = model_of_graph(packs)
    ids = torch.tensor([[7, 7, 3, 4], [5, 6, 7, 8]])
    for dtype in (torch.long, torch.float32, torch.bool):
        outputs = model(ids, torch.tensor([[0, 0, 1, 1], [1, 1, 1, 1]], dtype=dtype))
        assert outputs["last_hidden_state"][..., 0].tolist() == [[0, 0, 3, 4], [5, 6, 7, 8]]
        assert outputs["logits"][:, 0].tolist() == [7, 26]


def test_openvino_model_threads_get_their_own_outputs():
    model = model_of_graph(False)
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda number: model(torch.full((1, 1 + number % 4), number))["logits"].item(), range(64))
    assert list(found) == [number * (1 + number % 4) for number in range(64)]


@pytest.mark.parametrize("packs", [True, False])
def test_openvino_model_with_one_output_for_logits_returns_that_only(packs):
    model = model_of_graph(packs)
    assert model.outputs == ["last_hidden_state", "logits"]
    model._logits = "last_hidden_state"
    outputs = model(torch.tensor([[3, 4], [5, 0]]), torch.tensor([[1, 1], [1, 0]]))
    assert list(outputs) == ["logits"] and outputs["logits"][..., 0].tolist() == [[3, 4], [5, 0]]


class GraphOfChoices:
    """A request whose scores are the sums of the ids of each sequence, whose number the mask has at its tokens."""

    def infer(self, arrays):
        ((ids,), (mask,), _) = arrays.values()
        rows = zip(ids, mask, strict=True)
        scores = [row[numbers == number].sum() for row, numbers in rows for number in range(1, numbers.max() + 1)]
        return {Output("logits"): np.array([scores])}


@pytest.mark.parametrize("packs", [True, False])
def test_openvino_model_scores_the_choices_of_each_example(packs):
    model = model_of_graph(packs)
    model._has_choices, model._of_tokens, model._request = True, {"logits": False}, GraphOfChoices()
    ids = torch.tensor([[[1, 2, 3], [4, 5, 0], [6, 0, 0]], [[7, 7, 7], [8, 0, 0], [9, 9, 0]]])
    assert model(ids, (ids > 0).long())["logits"].tolist() == [[6, 9, 6], [21, 8, 18]]
    with pytest.raises(ValueError, match=r"input_ids has shape \(3, 3\); expected \(batch, choices, tokens\)"):
        model(ids[0])
