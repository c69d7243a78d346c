"""Training on each device: no waiting, the memory of the sparse head, graphs, optimizers, and going on exactly."""

import shutil
from contextlib import contextmanager

import pytest
import torch
from safetensors.torch import load_file
from torch._dynamo.utils import counters
from transformers import TrainerCallback

from mybert.modeling_mybert.attention_mybert import supports_varlen
from mybert.pretraining import PretrainingTrainer, pretrain
from mybert.runs import MuonWithAdamW, MyBertAdamW, matrix_groups, parameter_groups


@contextmanager
def no_waiting(device):
    """Fail if anything makes the CPU wait for a GPU."""
    if device == "cuda":
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        if device == "cuda":
            torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["float32", "bfloat16"])
def test_a_step_waits_for_nothing(device, head, heads, dtype, matched_models, batch_for):
    """And the collator's indices change nothing."""
    model, _ = matched_models(head, device)
    batch = batch_for(head, device)
    if head == "ForSequenceClassification":
        model.config.problem_type = "single_label_classification"
    if head == "ForQuestionAnswering":
        batch["unpad_inputs"] = True
    optimizer = MyBertAdamW(parameter_groups(model), lr=0.0, fused=True)
    with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
        expected = model(**batch).loss
    prepared, losses = heads(head).known(batch), []
    for attempt in range(2):  # the first one may set things up
        with no_waiting(device if attempt else None):
            with torch.autocast(device, dtype=dtype, enabled=dtype is not None):
                losses.append(model(**prepared).loss)
            losses[-1].backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
    torch.testing.assert_close(losses[1], expected, rtol=1e-5, atol=1e-5)


def test_the_sparse_head_keeps_little(device, matched_models, batch_for):
    """Bytes kept for the backward pass, mostly of the vocabulary; on a GPU the peak of the step, too."""
    model, _ = matched_models("ForPreTraining", device)
    model.resize_token_embeddings(8192)
    batch = batch_for("ForPreTraining", device)
    share = float((batch["labels"] != -100).float().mean())
    kept, peaks = [], []
    for sparse in (True, False):
        model.train(sparse)  # evaluating, the logits are complete
        model.zero_grad()
        sizes = {}
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
        with torch.autograd.graph.saved_tensors_hooks(
            lambda tensor, to=sizes: keep(tensor, to), lambda tensor: tensor
        ):
            loss = model(**batch).loss
        for parameter in model.parameters():  # saved, too, but there anyway
            sizes.pop(parameter.untyped_storage().data_ptr(), None)
        kept.append(sum(sizes.values()))
        if device == "cuda":
            loss.backward()
            peaks.append(torch.cuda.max_memory_allocated() - before)
    assert kept[0] < (share + 0.2) * kept[1]
    assert device == "cpu" or peaks[0] < peaks[1]


def keep(tensor, sizes):
    if tensor.shape[-1:] == (8192,):
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
    return tensor


@pytest.mark.parametrize("kind", ["google", "muon"])
def test_optimizers_step_as_on_a_cpu(device, kind, matched_models):
    results = []
    for place in ("cpu", device):
        model, _ = matched_models("ForMaskedLM", place)
        if kind == "muon":
            optimizer = MuonWithAdamW(*matrix_groups(model, parameter_groups(model, 0.01)), lr=1e-3, fused=True)
        else:
            optimizer = MyBertAdamW(parameter_groups(model), lr=1e-3, fused=True)
        generator = torch.Generator().manual_seed(5)
        for _ in range(3):
            for parameter in model.parameters():
                parameter.grad = torch.randn(parameter.shape, generator=generator).to(place)
            optimizer.step()
        results.append(torch.cat([parameter.detach().flatten().cpu() for parameter in model.parameters()]))
    start = torch.cat(
        [parameter.detach().flatten() for parameter in matched_models("ForMaskedLM", "cpu")[0].parameters()]
    )
    moved = results[0] - start
    # Muon multiplies in bfloat16.
    assert (results[1] - results[0]).norm() <= (0.02 if kind == "muon" else 1e-4) * moved.norm()
    assert moved.norm() > 0.01


def run(folder, text_file, device, steps=6, **settings):
    """A small pretraining on packed rows in bfloat16."""
    torch.compiler.reset()
    return pretrain(
        text=[str(text_file)],
        output_dir=str(folder),
        vocab_size=90,
        vocab_layout="compact",
        num_hidden_layers=2,
        hidden_size=64,
        num_attention_heads=4,
        max_length=24,
        row_length=48,
        pack=True,
        dropout=0.0,
        validation_split=0.0,
        max_steps=steps,
        per_device_train_batch_size=4,
        learning_rate=1e-3,
        bf16=True,
        logging_steps=100,
        dataloader_num_workers=0,
        disable_tqdm=True,
        use_cpu=device == "cpu",
        **settings,
    )


@pytest.fixture
def deterministic():
    """Flash attention's gradients are sums in any order, if nothing is said."""
    before = torch.are_deterministic_algorithms_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    yield
    torch.use_deterministic_algorithms(before)


@pytest.mark.usefixtures("deterministic")
@pytest.mark.filterwarnings("ignore:.*does not have a deterministic implementation")
def test_a_run_goes_on_exactly(device, tmp_path, text_file, kernel_calls):
    run(tmp_path / "whole", text_file, device, save_steps=3)
    has_kernel = supports_varlen(torch.device(device), torch.bfloat16, head_size=16, dropout=0.0)
    assert bool(kernel_calls) == has_kernel
    shutil.copytree(tmp_path / "whole", tmp_path / "again")
    shutil.rmtree(tmp_path / "again" / "checkpoint-6")
    (tmp_path / "again" / "model.safetensors").unlink()
    run(tmp_path / "again", text_file, device, save_steps=3)
    one, other = (load_file(tmp_path / name / "model.safetensors") for name in ("whole", "again"))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert (tmp_path / "again" / "checkpoint-6").is_dir()


class NoWaiting(TrainerCallback):
    """Steps after the second may not make the CPU wait for a GPU."""

    def on_step_begin(self, args, state, control, **kwargs):
        if state.global_step >= 2 and args.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("error")

    def on_step_end(self, args, state, control, **kwargs):
        if args.device.type == "cuda":
            torch.cuda.set_sync_debug_mode("default")


def test_a_run_waits_for_nothing(device, tmp_path, text_file, monkeypatch):
    made = PretrainingTrainer.__init__

    def with_callback(self, *args, callbacks=(), **kwargs):
        made(self, *args, callbacks=[*callbacks, NoWaiting()], **kwargs)

    monkeypatch.setattr(PretrainingTrainer, "__init__", with_callback)
    run(tmp_path / "run", text_file, device, save_strategy="no")
    assert (tmp_path / "run" / "model.safetensors").is_file()


@pytest.mark.slow
def test_a_compiled_run_is_one_graph(device, tmp_path, text_file):
    counters.clear()
    backend = "inductor" if device == "cuda" else "eager"
    settings = {"torch_compile": True, "torch_compile_backend": backend, "save_strategy": "no"}
    run(tmp_path / "run", text_file, device, steps=12, **settings)
    assert (counters["stats"]["unique_graphs"], sum(counters["graph_break"].values())) == (1, 0)
    torch.compiler.reset()
