"""Optimizers and Google's schedule: Adam, and Muon with Adam."""

import copy
import pickle

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import AutoConfig, AutoModel, get_scheduler

from mybert import MyBertConfig, MyBertForPreTraining
from mybert.runs import MyBertAdamW, linear_schedule, optimizers, parameter_groups
from mybert.runs.optimizers import UNCORRECTED_STEP, MuonWithAdamW, matrix_groups, nearest_orthogonal

SIZE = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


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


@pytest.mark.parametrize("matrices", [None, True, False])
def test_a_closure_is_called_with_gradients_and_its_loss_returned(matrices):
    model, (batch,) = make_model(), batches(1)
    others, whole = parameter_groups(model, 0.1), [{"params": [model.dense.weight]}]
    norms = [{"params": [model.dense.bias, *model.LayerNorm.parameters()]}]
    made = {True: (whole, norms), False: ([], others)}
    optimizer = MyBertAdamW(others, lr=0.1) if matrices is None else MuonWithAdamW(*made[matrices], lr=0.1)
    before = [parameter.detach().clone() for parameter in model.parameters()]

    def closure():
        loss = model.forward(batch).square().sum()
        loss.backward()
        return loss

    with torch.no_grad():  # as torch's own optimizers
        assert optimizer.step(closure).requires_grad
    assert all((new != old).any() for new, old in zip(model.parameters(), before, strict=True))


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
    adamw = torch.optim.AdamW(parameters)
    (model.forward(batches(1)[0]) ** 3).sum().backward()
    adamw.step()
    fused = MyBertAdamW(parameters)
    fused.load_state_dict(adamw.state_dict())
    fused.step()
    assert all(float(state["step"]) == UNCORRECTED_STEP + 2 for state in fused.state.values())
    assert all(torch.isfinite(parameter).all() for parameter in parameters)


def test_each_group_may_correct_the_bias_or_not():
    corrected, uncorrected = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    groups = [{"params": [corrected], "correct_bias": True}, {"params": [uncorrected]}]
    optimizer = MyBertAdamW(groups, lr=1e-2, weight_decay=0.0)
    corrected.grad, uncorrected.grad = torch.ones(3), torch.ones(3)
    optimizer.step()
    # The first step of Adam is the rate; without correction it is 0.1 / sqrt(0.001) times that.
    assert torch.allclose(1 - corrected, torch.full((3,), 1e-2), rtol=1e-4)
    assert torch.allclose(1 - uncorrected, torch.full((3,), 1e-2 * 0.1 / 0.001**0.5), rtol=1e-4)


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


def test_parameter_groups_leave_layer_norm_and_biases_undecayed():
    model = make_model()
    decayed, not_decayed = parameter_groups(model, 0.1)
    assert [id(p) for p in decayed["params"]] == [id(model.dense.weight)]
    assert {id(p) for p in not_decayed["params"]} == {id(model.dense.bias), *map(id, model.LayerNorm.parameters())}
    assert (decayed["weight_decay"], not_decayed["weight_decay"]) == (0.1, 0.0)
    model.dense.weight.requires_grad = False
    assert len(parameter_groups(model)) == 1


@pytest.mark.parametrize("name", ["bert", "distilbert", "modernbert", "mpnet", "electra", "roberta"])
def test_parameter_groups_leave_the_normalizations_of_every_encoder_undecayed(name):
    size = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    of_distilbert = {"dim": 8, "hidden_dim": 16, "n_layers": 2, "n_heads": 2}
    config = AutoConfig.for_model(name, vocab_size=20, pad_token_id=0, **size, **of_distilbert)
    network = AutoModel.from_config(config)
    decayed = {id(parameter) for parameter in parameter_groups(network)[0]["params"]}
    norms = [each for each in network.modules() if isinstance(each, nn.LayerNorm)]
    assert norms and not any(id(parameter) in decayed for each in norms for parameter in each.parameters())
    assert len(decayed) == sum(parameter.ndim == 2 for parameter in network.parameters())


def test_defaults_are_googles_and_jordans(model):
    adam = MyBertAdamW(parameter_groups(model)).param_groups
    expected = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "correct_bias": False}
    assert [{name: group[name] for name in expected} for group in adam] == [expected] * 2
    assert [group["weight_decay"] for group in adam] == [0.01, 0.0]
    assert MyBertAdamW(model.parameters()).param_groups[0]["weight_decay"] == 0.01
    parts = [{"params": [each]} for each in (nn.Parameter(torch.ones(2, 2)), nn.Parameter(torch.ones(2)))]
    of_adam, of_muon = MuonWithAdamW(parts[:1], parts[1:]).param_groups
    assert {name: of_adam[name] for name in expected} == expected | {"correct_bias": True}
    assert (of_muon["lr"], of_muon["momentum"]) == (0.02, 0.95)
    assert of_adam["weight_decay"] == of_muon["weight_decay"] == 0.01


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
    with pytest.raises(ValueError, match="num_warmup_steps is -1"):
        linear_schedule(optimizer, -1, 10)
    assert linear_schedule(optimizer, 0, 1).get_last_lr() == [1.0]


@pytest.fixture
def model() -> MyBertForPreTraining:
    torch.manual_seed(0)
    return MyBertForPreTraining(MyBertConfig(vocab_size=20, max_position_embeddings=8, **SIZE)).eval()


def take_steps(model, optimizers, schedules, steps):
    """Take steps with gradients that depend only on the step's number."""
    for step in steps:
        generator = torch.Generator().manual_seed(step)
        for parameter in model.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        for optimizer in optimizers:
            optimizer.step()
        for schedule in schedules:
            schedule.step()


def test_layers_matrices_are_muons_and_all_else_is_adams(model):
    matrices, others = matrix_groups(model, parameter_groups(model, 0.1))
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    muons = {names[id(p)] for group in matrices for p in group["params"]}
    adams = {names[id(p)] for group in others for p in group["params"]}
    per_layer = (
        "attention.self.query attention.self.key attention.self.value attention.output.dense intermediate.dense"
    )
    assert muons == {
        f"bert.encoder.layer.{layer}.{name}.weight"
        for layer in (0, 1)
        for name in [*per_layer.split(), "output.dense"]
    }
    assert muons | adams == set(names.values())
    assert not muons & adams
    decay = {names[id(p)]: group["weight_decay"] for group in matrices + others for p in group["params"]}
    assert decay["bert.encoder.layer.0.output.dense.weight"] == decay["bert.pooler.dense.weight"] == 0.1
    assert decay["bert.encoder.layer.0.output.LayerNorm.weight"] == decay["bert.pooler.dense.bias"] == 0.0


class Products(TorchDispatchMode):
    """Records the dtypes of products."""

    def __init__(self) -> None:
        super().__init__()
        self.types: set[torch.dtype] = set()

    def __torch_dispatch__(self, operation, types, arguments=(), options=None):
        if operation.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm):
            self.types |= {argument.dtype for argument in arguments if isinstance(argument, torch.Tensor)}
        return operation(*arguments, **(options or {}))


@pytest.mark.parametrize(
    ("features", "dtype"),
    [((), torch.float32), (("AVX-512 BF16",), torch.bfloat16)],
)
@pytest.mark.parametrize("shape", [(6, 6), (6, 15), (15, 6)])
def test_orthogonal_in_what_the_processor_multiplies_fast(monkeypatch, features, dtype, shape):
    monkeypatch.setattr(optimizers, "bfloat16_features", lambda: features)
    torch.manual_seed(0)
    matrix = torch.randn(shape)
    u, singular, v = torch.linalg.svd(matrix, full_matrices=False)
    matrix = u @ (singular.clamp(min=1)[:, None] * v)
    with Products() as products:
        found = nearest_orthogonal(matrix)
    assert products.types == {found.dtype} == {dtype}
    stretched = u.T @ found.float() @ v.T
    assert 0.6 < stretched.diagonal().min() < stretched.diagonal().max() < 1.3
    assert (stretched - stretched.diagonal().diag()).abs().max() < (1e-5 if dtype == torch.float32 else 0.02)
    assert torch.equal(nearest_orthogonal(2.0**-12 * matrix), found)  # small gradients have the same direction
    assert not nearest_orthogonal(torch.zeros(shape)).any()  # a part without gradient


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")
@pytest.mark.parametrize("fused", [False, True])
def test_steps_are_those_of_two_optimizers(monkeypatch, model, fused):
    monkeypatch.setattr(optimizers, "bfloat16_features", lambda: ("AMX",))  # like torch's own
    copied = copy.deepcopy(model)
    optimizer = MuonWithAdamW(
        *matrix_groups(model, parameter_groups(model, 0.1)), lr=1e-2, muon_lr=0.05, betas=(0.9, 0.98), fused=fused
    )
    matrices, others = matrix_groups(copied, parameter_groups(copied, 0.1))
    pair = [
        torch.optim.Muon(matrices, lr=0.05, momentum=0.95),
        MyBertAdamW(others, lr=1e-2, betas=(0.9, 0.98), eps=1e-6, correct_bias=True, fused=fused),
    ]
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    take_steps(model, [optimizer], [linear_schedule(optimizer, 2, 8)], range(6))
    take_steps(copied, pair, [linear_schedule(part, 2, 8) for part in pair], range(6))
    for (name, weights), expected in zip(model.named_parameters(), copied.parameters(), strict=True):
        assert torch.equal(weights, expected), name
        assert not torch.equal(weights, start[name]), name


@pytest.mark.parametrize("features", [(), ("AMX",)], ids=["float32", "bfloat16"])
def test_muon_with_stacked_matrices_makes_the_updates_of_single_ones(monkeypatch, model, features):
    monkeypatch.setattr(optimizers, "bfloat16_features", lambda: features)
    stacked, stacks = copy.deepcopy(model), []
    take_steps(model, [MuonWithAdamW(*matrix_groups(model, parameter_groups(model, 0.1)), muon_lr=0.05)], [], range(3))

    def by_shape(matrices):
        shapes = {matrix.shape: None for matrix in matrices}
        stacks.append([[matrix for matrix in matrices if matrix.shape == shape] for shape in shapes])
        return stacks[-1]

    monkeypatch.setattr(optimizers, "_stacks", by_shape)  # as on a GPU
    optimizer = MuonWithAdamW(*matrix_groups(stacked, parameter_groups(stacked, 0.1)), muon_lr=0.05)
    take_steps(stacked, [optimizer], [], range(3))
    assert [len(matrices) for matrices in stacks[0]] == [8, 2, 2]
    for (name, weights), expected in zip(stacked.named_parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(weights, expected, rtol=0, atol=1e-3 if features else 1e-6, msg=name)
    single = MuonWithAdamW(*matrix_groups(model, parameter_groups(model, 0.1)))
    single.load_state_dict(optimizer.state_dict())
    kinds = [set(state) for state in optimizer.state_dict()["state"].values()]
    assert kinds.count({"momentum_buffer"}) == 12


def test_muon_stacks_matrices_of_a_shape_on_a_device_that_is_no_cpu(model):
    matrices = [each.weight for each in model.bert.encoder.modules() if isinstance(each, nn.Linear)]
    assert [len(stack) for stack in optimizers._stacks(matrices)] == [1] * 12
    assert [len(stack) for stack in optimizers._stacks([each.to("meta") for each in matrices])] == [8, 2, 2]


@pytest.mark.parametrize(
    ("schedule", "settings"), [("polynomial", {"lr_end": 1e-4}), ("cosine_with_min_lr", {"min_lr": 1e-4})]
)
def test_schedules_that_end_above_0(model, schedule, settings):
    optimizer = MuonWithAdamW(*matrix_groups(model, parameter_groups(model, 0.01)), lr=1e-3, muon_lr=0.02)
    scheduler = get_scheduler(schedule, optimizer, 0, 4, scheduler_specific_kwargs=settings)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    assert {round(group["lr"], 9) for group in optimizer.param_groups} == {1e-4, 0.002}  # a tenth of each


@pytest.mark.parametrize(
    "make",
    [
        lambda model: MyBertAdamW(parameter_groups(model, 0.1), lr=1e-2),
        lambda model: MuonWithAdamW(*matrix_groups(model, parameter_groups(model, 0.1)), fused=True),
    ],
    ids=["adam", "muon"],
)
def test_a_saved_state_goes_on_to_the_last_bit(model, tmp_path, make):
    copied = copy.deepcopy(model)
    take_steps(model, [make(model)], [], range(6))
    first, second = make(copied), make(copied)
    take_steps(copied, [first], [], range(3))
    torch.save(first.state_dict(), tmp_path / "optimizer.pt")
    state = torch.load(tmp_path / "optimizer.pt", weights_only=True)
    for of_parameter in state["state"].values() if isinstance(first, MyBertAdamW) else ():
        of_parameter["step"] -= UNCORRECTED_STEP  # as in a converted checkpoint
    second.load_state_dict(state)
    take_steps(copied, [second], [], range(3, 6))
    for weights, expected in zip(model.parameters(), copied.parameters(), strict=True):
        assert torch.equal(weights, expected)


def test_muon_without_bias_correction_takes_over_steps_from_0(model):
    optimizer = MuonWithAdamW(*matrix_groups(model, parameter_groups(model)), correct_bias=False)
    take_steps(model, [optimizer], [], range(2))
    state = optimizer.state_dict()
    of_adam = [each for each in state["state"].values() if "step" in each]
    for each in of_adam:
        assert float(each["step"]) == UNCORRECTED_STEP + 2
        each["step"] = torch.tensor(2.0)
    optimizer.load_state_dict(state)
    assert {float(each["step"]) for each in optimizer.state.values() if "step" in each} == {UNCORRECTED_STEP + 2}


@pytest.mark.parametrize("copy_of", [copy.deepcopy, lambda both: pickle.loads(pickle.dumps(both))])
def test_muon_can_be_copied_and_takes_further_groups(model, copy_of):
    optimizer = MuonWithAdamW(*matrix_groups(model, parameter_groups(model, 0.1)))
    take_steps(model, [optimizer], [], range(2))
    copied, same = copy_of((model, optimizer))
    take_steps(model, [optimizer], [], range(2, 4))
    take_steps(copied, [same], [], range(2, 4))
    for weights, expected in zip(copied.parameters(), model.parameters(), strict=True):
        assert torch.equal(weights, expected)
    added = nn.Parameter(torch.ones(3))
    same.add_param_group({"params": [added]})
    added.grad = torch.ones(3)
    same.step()
    assert torch.allclose(added, torch.full((3,), (1 - 1e-3 * 0.01) - 1e-3))  # as any group of Adam


def test_frozen_and_missing_parts(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "encoder" in name and parameter.ndim == 2
    matrices, others = matrix_groups(model, parameter_groups(model, 0.1))
    assert not others
    take_steps(model, [MuonWithAdamW(matrices, others)], [], range(1))
    with pytest.raises(ValueError, match="Linear has no matrices in encoder layers for Muon"):
        matrix_groups(torch.nn.Linear(2, 2), [])
    with pytest.raises(ValueError, match=r"momentum is 1\.0; expected a value in"):
        MuonWithAdamW(matrices, others, momentum=1.0)
    with pytest.raises(ValueError, match=r"muon_lr is -1; expected at least 0"):
        MuonWithAdamW(matrices, others, muon_lr=-1)
    with pytest.raises(ValueError, match=r"momentum is -0\.1; expected a value in"):
        MuonWithAdamW(matrices, others, momentum=-0.1)
    (still,) = MuonWithAdamW(*matrix_groups(model, parameter_groups(model)), momentum=0.0, muon_lr=0.0).param_groups
    assert still["momentum"] == still["lr"] == 0
    with pytest.raises(ValueError, match=r"matrix_groups has shape \(3,\); expected a matrix"):
        MuonWithAdamW([{"params": [torch.nn.Parameter(torch.ones(3))]}], others)


SHARDED = """
import copy, torch
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from mybert import MyBertConfig, MyBertForPreTraining
from mybert.runs import optimizers

optimizers.bfloat16_features = tuple  # products in float32
size = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
mesh = init_device_mesh("cpu", (2,))
ids = torch.randint(1, 20, (4, 8), generator=torch.Generator().manual_seed(1))
for make in (
    lambda model: optimizers.MuonWithAdamW(*optimizers.matrix_groups(model, optimizers.parameter_groups(model, 0.1))),
    lambda model: optimizers.MyBertAdamW(optimizers.parameter_groups(model, 0.1), lr=0.01),
):
    torch.manual_seed(0)
    whole = MyBertForPreTraining(MyBertConfig(vocab_size=20, max_position_embeddings=8, **size)).eval()
    sharded = copy.deepcopy(whole)
    for module in (*sharded.bert.encoder.layer.children(), sharded):
        fully_shard(module, mesh=mesh)
    start = [parameter.detach().clone() for parameter in whole.parameters()]
    for model in (whole, sharded):
        optimizer = make(model)
        for _ in range(3):
            optimizer.zero_grad()
            model(input_ids=ids, labels=ids).loss.backward()
            optimizer.step()
    for before, (name, one), other in zip(start, whole.named_parameters(), sharded.parameters(), strict=True):
        assert "encoder" not in name or not torch.equal(before, one.detach()), name
        torch.testing.assert_close(one.detach(), other.full_tensor().detach(), rtol=0, atol=1e-5)
"""


@pytest.mark.slow
def test_steps_on_shards_are_those_on_whole_weights(run_in_two_processes):
    """With FSDP 2 every process has a part of each matrix, whose norm and products are of the whole."""
    run_in_two_processes(SHARDED)
