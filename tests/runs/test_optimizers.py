import numpy as np
import pytest
import torch
from torch import nn

from mybert.runs import Lamb, MyBertAdamW, linear_schedule, parameter_groups
from mybert.runs.optimizers import UNCORRECTED_STEP


def make_model() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Module()
    model.dense = nn.Linear(5, 3)
    model.LayerNorm = nn.LayerNorm(3)
    model.forward = lambda x: model.LayerNorm(model.dense(x))
    return model


def batches(steps: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(4, 5, generator=generator) for _ in range(steps)]


def google_adam(model: nn.Module, gradients: list[dict[str, torch.Tensor]], rates: list[float], decay: float) -> dict:
    """The update of google-research/bert written out, in float64."""
    values = {name: p.detach().numpy().astype(np.float64) for name, p in model.named_parameters()}
    m = {name: np.zeros_like(value) for name, value in values.items()}
    v = {name: np.zeros_like(value) for name, value in values.items()}
    for step, rate in zip(gradients, rates, strict=True):
        for name in values:
            gradient = step[name].numpy().astype(np.float64)
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.999 * v[name] + 0.001 * gradient**2
            update = m[name] / (np.sqrt(v[name]) + 1e-6)
            if name == "dense.weight":
                update += decay * values[name]
            values[name] -= rate * update
    return values


@pytest.mark.parametrize("fused", [True, False])
def test_adam_is_googles(fused):
    model = make_model()
    generator = torch.Generator().manual_seed(2)
    gradients = [
        {name: torch.randn(p.shape, generator=generator) * 10.0**-step for name, p in model.named_parameters()}
        for step in [0, 1, 2, 3] * 10
    ]
    rates = [1e-2 * (step / 5 if step < 5 else 1 - step / 40) for step in range(40)]
    expected = google_adam(model, gradients, rates, decay=0.1)
    start = model.dense.weight.detach().clone()
    optimizer = MyBertAdamW(parameter_groups(model, 0.1), lr=1e-2, fused=fused)
    schedule = linear_schedule(optimizer, num_warmup_steps=5, num_training_steps=40)
    for step in gradients:
        for name, parameter in model.named_parameters():
            parameter.grad = step[name].clone()
        optimizer.step()
        schedule.step()
    assert (model.dense.weight - start).abs().max() > 0.01
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), torch.from_numpy(expected[name]), atol=1e-6, rtol=0)


def test_corrected_bias_is_adamw():
    results = []
    for make in (
        lambda p: MyBertAdamW(p, lr=1e-2, weight_decay=0.1, correct_bias=True),
        lambda p: torch.optim.AdamW(p, lr=1e-2, weight_decay=0.1, eps=1e-6),
    ):
        model = make_model()
        optimizer = make(model.parameters())
        for x in batches(5):
            optimizer.zero_grad()
            (model.forward(x) ** 3).sum().backward()
            optimizer.step()
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    assert torch.equal(*results)


def test_state_of_torchs_adamw_is_taken_over():
    model = make_model()
    parameters = list(model.parameters())
    theirs = torch.optim.AdamW(parameters)
    (model.forward(batches(1)[0]) ** 3).sum().backward()
    theirs.step()
    ours = MyBertAdamW(parameters)
    ours.load_state_dict(theirs.state_dict())
    ours.step()
    assert all(float(state["step"]) == UNCORRECTED_STEP + 2 for state in ours.state.values())
    assert all(torch.isfinite(parameter).all() for parameter in parameters)


def test_the_largest_mean_may_be_kept():
    results = []
    for amsgrad in (False, True):
        parameter = torch.nn.Parameter(torch.ones(3))
        optimizer = MyBertAdamW([parameter], lr=1e-2, betas=(0.0, 0.5), amsgrad=amsgrad)
        for size in (4.0, 0.0, 1.0):
            parameter.grad = torch.full((3,), size)
            optimizer.step()
        results.append(parameter.detach())
    assert (results[0] < results[1]).all()  # without correction the last denominator is smaller


def test_state_goes_on_exactly_and_takes_steps_counted_from_0():
    inputs = batches(8)

    def train(model, optimizer, some):
        for x in some:
            optimizer.zero_grad()
            (model.forward(x) ** 3).sum().backward()
            optimizer.step()

    whole, halves = make_model(), make_model()
    train(whole, MyBertAdamW(whole.parameters(), lr=1e-2), inputs)
    first = MyBertAdamW(halves.parameters(), lr=1e-2)
    train(halves, first, inputs[:4])
    state = first.state_dict()
    for of_parameter in state["state"].values():
        of_parameter["step"] = torch.tensor(4.0)  # as in a converted checkpoint
    second = MyBertAdamW(halves.parameters(), lr=1e-2)
    second.load_state_dict(state)
    train(halves, second, inputs[4:])
    for a, b in zip(whole.parameters(), halves.parameters(), strict=True):
        assert torch.equal(a, b)


def test_lamb_is_algorithm_2():
    """Compared with float64 code, with zero weights and gradients, a late parameter, and a restored state."""
    model = make_model()
    torch.nn.init.zeros_(model.dense.bias)
    model.zero = nn.Parameter(torch.zeros(4))  # decayed, of norm 0: its first trust ratio is 1
    model.idle = nn.Parameter(torch.ones(4))  # decayed, without a gradient of its own
    model.late = nn.Parameter(torch.ones(2, 2))  # decayed, without gradients in the first three steps
    generator = torch.Generator().manual_seed(2)
    steps = [{n: torch.randn(p.shape, generator=generator) for n, p in model.named_parameters()} for _ in range(12)]
    for number, gradients in enumerate(steps):
        gradients["idle"].zero_()
        gradients["late"] = None if number < 3 else gradients["late"]
    values = {name: p.detach().numpy().astype(np.float64) for name, p in model.named_parameters()}
    m = {name: np.zeros_like(value) for name, value in values.items()}
    v = {name: np.zeros_like(value) for name, value in values.items()}
    for number, gradients in enumerate(steps, start=1):
        for name in [name for name in values if gradients[name] is not None]:
            gradient, count = gradients[name].numpy().astype(np.float64), number - 3 * (name == "late")
            m[name] = 0.9 * m[name] + 0.1 * gradient
            v[name] = 0.99 * v[name] + 0.01 * gradient**2
            update = m[name] / (1 - 0.9**count) / (np.sqrt(v[name] / (1 - 0.99**count)) + 1e-6)
            ratio = 1.0
            if name in ("dense.weight", "zero", "idle", "late"):
                update += 0.1 * values[name]
                norms = np.linalg.norm(values[name]), np.linalg.norm(update)
                ratio = norms[0] / norms[1] if all(norms) else 1.0
            values[name] = values[name] - 1e-2 * ratio * update
    optimizer = Lamb(parameter_groups(model, 0.1), lr=1e-2, betas=(0.9, 0.99))
    for number, gradients in enumerate(steps):
        if number == 6:  # save and restore the state dict
            state = optimizer.state_dict()
            optimizer = Lamb(parameter_groups(model, 0.1), lr=1.0)
            optimizer.load_state_dict(state)
        for name, parameter in model.named_parameters():
            parameter.grad = None if gradients[name] is None else gradients[name].clone()
        optimizer.step()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.detach().double(), torch.from_numpy(values[name]), atol=1e-6, rtol=0)
    with pytest.raises(ValueError, match="lr is -1"):
        Lamb(model.parameters(), lr=-1)


def test_parameter_groups_leave_layer_norm_and_biases_undecayed():
    model = make_model()
    decayed, not_decayed = parameter_groups(model, 0.1)
    assert [id(p) for p in decayed["params"]] == [id(model.dense.weight)]
    assert {id(p) for p in not_decayed["params"]} == {id(model.dense.bias), *map(id, model.LayerNorm.parameters())}
    assert (decayed["weight_decay"], not_decayed["weight_decay"]) == (0.1, 0.0)
    model.dense.weight.requires_grad = False
    assert len(parameter_groups(model)) == 1


def test_schedule_is_googles():
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = linear_schedule(optimizer, num_warmup_steps=4, num_training_steps=10)
    rates = []
    for _ in range(11):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    assert rates == pytest.approx([0, 0.25, 0.5, 0.75, 0.6, 0.5, 0.4, 0.3, 0.2, 0.1, 0])
    with pytest.raises(ValueError, match="num_training_steps 0"):
        linear_schedule(optimizer, 0, 0)
