"""The moving average of the weights: its values, and saving it in the optimizer's state."""

import copy

import pytest
import torch

from mybert.runs import MyBertAdamW
from mybert.runs.muon import MuonWithAdamW
from mybert.runs.weight_average import WeightAverage


def optimizer_of(model, kind):
    if kind == "muon":
        return MuonWithAdamW([{"params": [model.weight]}], [{"params": [model.bias]}], muon_lr=0.1, lr=0.1)
    return MyBertAdamW(model.parameters(), lr=0.1)


def take_steps(model, optimizer, steps):
    """Take steps whose gradients depend only on their number; returns the weights after each."""
    weights = []
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
        weights.append([parameter.detach().clone() for parameter in model.parameters()])
    return weights


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_the_mean_is_the_one_by_hand(kind):
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(1))])  # makes torch also run hooks in the parent's `step`
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    twin = copy.deepcopy(model)
    optimizer = optimizer_of(model, kind)
    average = WeightAverage(optimizer, 0.6)
    weights = take_steps(model, optimizer, range(12))
    assert all(map(torch.equal, weights[-1], take_steps(twin, optimizer_of(twin, kind), range(12))[-1]))
    expected = weights[0]
    for number, now in enumerate(weights[1:], start=2):
        decay = min(0.6, (1 + number) / (10 + number))
        expected = [decay * mean + (1 - decay) * weight for mean, weight in zip(expected, now, strict=True)]
    with average.in_the_model():
        for parameter, mean in zip(model.parameters(), expected, strict=True):
            assert torch.allclose(parameter, mean, atol=1e-6)
            assert not torch.equal(parameter, weights[-1][0]) and parameter.requires_grad
    assert all(map(torch.equal, model.parameters(), weights[-1]))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_a_stored_mean_goes_on_to_the_last_bit(kind, tmp_path):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 4)
    whole, stopped = copy.deepcopy(model), copy.deepcopy(model)
    optimizer = optimizer_of(whole, kind)
    average = WeightAverage(optimizer, 0.9)
    take_steps(whole, optimizer, range(9))

    first = optimizer_of(stopped, kind)
    mean = WeightAverage(first, 0.9)
    take_steps(stopped, first, range(4))
    with mean.in_the_model():  # as in checkpoints: the model has the average
        torch.save([first.state_dict(), stopped.state_dict()], tmp_path / "checkpoint.pt")
    restored = copy.deepcopy(model)
    second = optimizer_of(restored, kind)
    mean = WeightAverage(second, 0.9)
    optimizer_state, weights = torch.load(tmp_path / "checkpoint.pt", weights_only=True)
    restored.load_state_dict(weights)
    second.load_state_dict(optimizer_state)
    mean.exchange()
    take_steps(restored, second, range(4, 9))
    assert all(map(torch.equal, restored.parameters(), whole.parameters()))
    with average.in_the_model(), mean.in_the_model():
        assert all(map(torch.equal, restored.parameters(), whole.parameters()))


def test_what_does_not_change_has_no_mean():
    model = torch.nn.Linear(3, 4)
    model.bias.requires_grad = False
    optimizer = MyBertAdamW([model.weight], lr=0.1)
    average = WeightAverage(optimizer, 0.9)
    with average.in_the_model():
        pass  # nothing to exchange before the first step
    before = model.bias.detach().clone()
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    average.exchange()
    assert torch.equal(model.bias, before)
