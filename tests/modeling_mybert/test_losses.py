"""The losses alone: in float32, in float64 if the network is, and exact."""

import math

import pytest
import torch
import torch.nn.functional as F

from mybert.modeling_mybert import IGNORE_INDEX, cross_entropy
from mybert.modeling_mybert.losses_mybert import (
    padding_is_ignored,
    position_loss,
    value_loss,
)

HALF = (torch.bfloat16, torch.float16)


@pytest.mark.parametrize("dtype", HALF)
def test_labels_are_not_rounded_to_the_networks_type(dtype):
    for value in (71.03, 100_000.0):
        logits = torch.tensor([71.0], dtype=dtype, requires_grad=True)
        loss = value_loss(logits, torch.tensor([value]))
        loss.backward()
        assert loss.dtype == torch.float32
        difference = logits.item() - torch.tensor(value).item()
        assert loss.item() == pytest.approx(difference**2, rel=1e-6)
        assert logits.grad.item() == pytest.approx(2 * difference, rel=0.01, abs=0) or dtype == torch.float16
    assert value_loss(torch.tensor([71]).float(), torch.tensor([72], dtype=torch.int64)) == 1.0
    labels, logits = torch.tensor([[0.3001, 1.0, 0.0]]), torch.tensor([[0.25, -2.0, 4.0]], dtype=dtype)
    expected = F.binary_cross_entropy_with_logits(logits.double(), labels.double()).item()
    assert value_loss(logits, labels, is_regression=False).dtype == torch.float32
    assert value_loss(logits, labels, is_regression=False).item() == pytest.approx(expected, rel=1e-6)
    assert value_loss(logits, labels, 6, is_regression=False).item() == pytest.approx(expected / 2, rel=1e-6)


@pytest.mark.parametrize(
    ("problem", "labels"),
    [
        ("regression", torch.tensor([71.03, 100_000.0, -3.0001, 0.1])),
        ("multi_label_classification", torch.tensor([[0.3001, 1.0], [0.0, 1.0], [0.7, 0.1], [1.0, 0.0]])),
    ],
)
def test_a_head_under_autocast_has_the_loss_of_its_own_logits(heads, problem, labels):
    head = heads("ForSequenceClassification")
    model = head.model(problem_type=problem, num_labels=1 if problem == "regression" else 2)
    with torch.autocast("cpu", torch.bfloat16):
        outputs = model(**head.batch(), labels=labels)
    assert outputs.logits.dtype == torch.bfloat16
    logits, labels = outputs.logits.double(), labels.double().view(outputs.logits.shape)
    reference = F.mse_loss if problem == "regression" else F.binary_cross_entropy_with_logits
    assert outputs.loss.item() == pytest.approx(reference(logits, labels).item(), rel=1e-6)


def test_cross_entropy_leaves_out_what_does_not_count():
    logits = torch.tensor([[1.0, 2.0, 0.0], [5.0, -1.0, 0.5], [0.0, 0.0, 0.0]], dtype=torch.bfloat16)
    labels = torch.tensor([1, IGNORE_INDEX, 2], dtype=torch.int32)
    terms = -logits.double().log_softmax(-1)
    total = (terms[0, 1] + terms[2, 2]).item()
    assert cross_entropy(logits, labels).item() == pytest.approx(total / 2, rel=1e-6)
    assert cross_entropy(logits, labels, 5).item() == pytest.approx(total / 5, rel=1e-6)
    for none in (None, 0, torch.tensor(0), torch.tensor([0])):
        assert cross_entropy(logits, torch.full((3,), IGNORE_INDEX), none).isnan()
        learned = logits.float().requires_grad_()
        loss = cross_entropy(learned, torch.full((3,), IGNORE_INDEX), none)
        loss.backward()
        assert loss == 0 and not learned.grad.any()
    assert cross_entropy(logits[None], labels[None]) == cross_entropy(logits, labels)


def test_span_loss_ignores_positions_past_the_end():
    """The first and the last position count, one past the end does not; a negative one counts as 0."""
    scores = torch.tensor([[0.0, 1.0, 2.0], [3.0, 1.0, -math.inf]])
    terms = -scores.log_softmax(-1)
    for positions, expected in (
        ([0, 0], [terms[0, 0], terms[1, 0]]),
        ([2, 1], [terms[0, 2], terms[1, 1]]),
        ([3, 1], [terms[1, 1]]),
        ([-1, 9], [terms[0, 0]]),
        ([1, 2], [terms[0, 1]]),  # an impossible position
        ([3, 2], []),
    ):
        wanted = torch.stack(expected).sum() if expected else torch.tensor(0.0)
        mean = wanted / torch.tensor(len(expected))
        torch.testing.assert_close(position_loss(scores, torch.tensor(positions)), mean, equal_nan=True)
        torch.testing.assert_close(position_loss(scores, torch.tensor(positions), 4), wanted / 4)


def test_padding_is_ignored_where_no_label_stands_on_it():
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    inside = torch.tensor([[5, -100, -100], [-100, -100, -100]])
    outside = torch.tensor([[5, -100, -100], [0, -100, 3]])
    assert padding_is_ignored(inside, mask) and not padding_is_ignored(outside, mask)
    assert not padding_is_ignored(outside, mask.bool())
    assert padding_is_ignored(None, mask) and padding_is_ignored(outside, None)
    assert padding_is_ignored(torch.tensor([1, 2]), mask)  # labels of sequences


FLOATS = {
    "regression": (1, torch.tensor([71.03, -3.0, 0.1, 4.0])),
    "multi_label_classification": (2, torch.tensor([[0.3, 1.0], [0.0, 1.0], [0.7, 0.1], [1.0, 0.0]])),
}


@pytest.mark.parametrize("problem", [None, *FLOATS])
def test_loss_of_a_network_in_float64_is_berts(head_with_loss, problem):
    """Whose finite differences are its gradient, as far as float64 goes."""
    if problem and head_with_loss.name != "ForSequenceClassification":
        pytest.skip("only texts have numbers as labels")
    num_labels, labels = FLOATS.get(problem, (3, None))
    fields = {"problem_type": problem, "num_labels": num_labels} if problem else {}
    my_bert, bert = (model.double() for model in head_with_loss.matched_models(dropout=0.0, **fields))
    batch = head_with_loss.batch(labels=True) | ({"labels": labels.double()} if problem else {})
    loss = my_bert(**batch).loss
    assert loss.dtype == torch.float64
    torch.testing.assert_close(loss, bert(**batch).loss, rtol=1e-12, atol=0)
    words = my_bert.get_input_embeddings()(batch.pop("input_ids")).detach().requires_grad_()
    assert torch.autograd.gradcheck(lambda words: my_bert(inputs_embeds=words, **batch).loss, words, fast_mode=True)
