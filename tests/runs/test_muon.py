import copy

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import get_scheduler

from mybert import MyBertConfig, MyBertForPreTraining
from mybert.runs import MyBertAdamW, linear_schedule, optimizers
from mybert.runs.optimizers import MuonWithAdamW, matrix_groups, nearest_orthogonal

SIZE = {"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}


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
    matrices, others = matrix_groups(model, 0.1)
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


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="torch has Muon since 2.9")
@pytest.mark.parametrize("fused", [False, True])
def test_steps_are_those_of_two_optimizers(monkeypatch, model, fused):
    monkeypatch.setattr(optimizers, "bfloat16_features", lambda: ("AMX",))  # like torch's own
    twin = copy.deepcopy(model)
    optimizer = MuonWithAdamW(*matrix_groups(model, 0.1), lr=1e-2, muon_lr=0.05, betas=(0.9, 0.98), fused=fused)
    matrices, others = matrix_groups(twin, 0.1)
    pair = [
        torch.optim.Muon(matrices, lr=0.05, momentum=0.95),
        MyBertAdamW(others, lr=1e-2, betas=(0.9, 0.98), eps=1e-6, correct_bias=True, fused=fused),
    ]
    start = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    take_steps(model, [optimizer], [linear_schedule(optimizer, 2, 8)], range(6))
    take_steps(twin, pair, [linear_schedule(part, 2, 8) for part in pair], range(6))
    for (name, ours), theirs in zip(model.named_parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs), name
        assert not torch.equal(ours, start[name]), name


@pytest.mark.parametrize(
    ("schedule", "settings"), [("polynomial", {"lr_end": 1e-4}), ("cosine_with_min_lr", {"min_lr": 1e-4})]
)
def test_schedules_that_end_above_0(model, schedule, settings):
    optimizer = MuonWithAdamW(*matrix_groups(model, 0.01), lr=1e-3, muon_lr=0.02)
    scheduler = get_scheduler(schedule, optimizer, 0, 4, scheduler_specific_kwargs=settings)
    for _ in range(4):
        optimizer.step()
        scheduler.step()
    assert {round(group["lr"], 9) for group in optimizer.param_groups} == {1e-4, 0.002}  # a tenth of each


def test_a_saved_state_goes_on_to_the_last_bit(model, tmp_path):
    twin = copy.deepcopy(model)
    optimizer = MuonWithAdamW(*matrix_groups(model, 0.1), fused=True)
    take_steps(model, [optimizer], [], range(6))

    first = MuonWithAdamW(*matrix_groups(twin, 0.1), fused=True)
    take_steps(twin, [first], [], range(3))
    torch.save(first.state_dict(), tmp_path / "optimizer.pt")
    second = MuonWithAdamW(*matrix_groups(twin, 0.1), fused=True)
    second.load_state_dict(torch.load(tmp_path / "optimizer.pt", weights_only=True))
    take_steps(twin, [second], [], range(3, 6))
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_frozen_and_missing_parts(model):
    for name, parameter in model.named_parameters():
        parameter.requires_grad = "encoder" in name and parameter.ndim == 2
    matrices, others = matrix_groups(model, 0.1)
    assert not others
    take_steps(model, [MuonWithAdamW(matrices, others)], [], range(1))
    with pytest.raises(ValueError, match="Linear has no matrices in encoder layers for Muon"):
        matrix_groups(torch.nn.Linear(2, 2), 0.1)
    with pytest.raises(ValueError, match=r"momentum is 1\.0; expected a value in"):
        MuonWithAdamW(matrices, others, momentum=1.0)
    with pytest.raises(ValueError, match=r"muon_lr is -1; expected at least 0"):
        MuonWithAdamW(matrices, others, muon_lr=-1)
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
    lambda model: optimizers.MuonWithAdamW(*optimizers.matrix_groups(model, 0.1)),
    lambda model: optimizers.Lamb(optimizers.parameter_groups(model, 0.1), lr=0.01),
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
