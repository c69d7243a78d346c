"""accelerate: device maps, weights that stay on disk, mixed precision."""

import pytest
import torch
from accelerate import Accelerator
from accelerate.hooks import ModelHook, SequentialHook, add_hook_to_module
from accelerate.state import AcceleratorState, GradientState

import mybert
from mybert import MyBertForSequenceClassification

HEADS = ["MyBertModel", *(name for name in mybert.__all__ if name.startswith("MyBertFor"))]


@pytest.fixture
def accelerator():
    """On the CPU, with bfloat16; its global state does not outlive the test."""
    AcceleratorState._reset_state(reset_partial_state=True)
    yield Accelerator(cpu=True, mixed_precision="bf16")
    AcceleratorState._reset_state(reset_partial_state=True)
    GradientState._reset_state()


@pytest.mark.parametrize("head", HEADS)
def test_device_map_auto(head, load, outputs_of):
    model = load(head, device_map="auto")
    assert not any(parameter.is_meta for parameter in model.parameters())
    outputs, expected = outputs_of(head, model), outputs_of(head, load(head).to(model.device))
    for name, tensor in expected.items():
        torch.testing.assert_close(outputs[name], tensor, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", HEADS)
def test_weights_that_do_not_fit_stay_on_disk(head, load, outputs_of, tmp_path):
    plain = load(head)
    budget = sum(parameter.nbytes for parameter in plain.parameters()) * 3 // 4
    model = load(head, device_map="auto", max_memory={"cpu": budget}, offload_folder=tmp_path)
    assert set(model.hf_device_map.values()) == {"cpu", "disk"}
    layer = "encoder.layer.1" if head == "MyBertModel" else "bert.encoder.layer.1"
    assert not [name for name in model.hf_device_map if name.startswith(f"{layer}.")], "a layer stays whole"
    expected, outputs = outputs_of(head, plain), outputs_of(head, model)
    assert not model.base_model._scan().is_changed, "batches stay packed"
    for name, tensor in expected.items():
        torch.testing.assert_close(outputs[name], tensor, atol=1e-5, rtol=1e-5)


def test_a_hook_of_a_user_prevents_packing(load):
    class Doubling(ModelHook):
        def post_forward(self, module, output):
            return output * 2

    model = load("MyBertModel")
    add_hook_to_module(model.pooler, SequentialHook(ModelHook(), ModelHook()))
    assert not model._scan().is_changed
    add_hook_to_module(model.pooler, Doubling(), append=True)
    assert model._scan().is_changed


@pytest.mark.parametrize("head", HEADS[1:])
def test_mixed_precision(head, load, make_batch, outputs_of, accelerator):
    model, batch = load(head), make_batch(head)
    full = outputs_of(head, model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer = accelerator.prepare(model, optimizer)
    mixed = outputs_of(head, model)
    for name, tensor in full.items():
        assert mixed[name].dtype == torch.float32  # accelerate gives outputs back in float32
        torch.testing.assert_close(mixed[name], tensor, atol=0.1, rtol=0.1)
    assert any(not torch.equal(mixed[name], full[name]) for name in full)
    losses = []
    for _ in range(3):
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}


def test_accumulation_gathering_and_saving(load, make_batch, outputs_of, tmp_path):
    """The loop of accelerate's documentation."""
    AcceleratorState._reset_state(reset_partial_state=True)
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    head = "MyBertForSequenceClassification"
    batch = make_batch(head)
    rows = [{name: tensor[row] for name, tensor in batch.items()} for row in range(3)] * 4
    loader = torch.utils.data.DataLoader(rows, batch_size=3)
    model = load(head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    steps = 0
    for inputs in loader:
        with accelerator.accumulate(model):
            outputs = model(**inputs)
            accelerator.backward(outputs.loss)
            optimizer.step()
            optimizer.zero_grad()
            steps += accelerator.sync_gradients
        assert accelerator.gather_for_metrics(outputs.logits).shape == (3, 3)
    assert steps == 2
    unwrapped = accelerator.unwrap_model(model)
    unwrapped.save_pretrained(tmp_path, save_function=accelerator.save)
    again = MyBertForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(outputs_of(head, again.eval())["logits"], outputs_of(head, unwrapped.eval())["logits"])
    GradientState._reset_state()


def test_tied_weights_stay_tied_when_loaded_by_a_device_map(load):
    model = load("MyBertForMaskedLM", device_map="auto")
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight
