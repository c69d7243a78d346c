"""Ways of running the network: precisions, gradient checkpointing, attention implementations, compilation, export."""

import pytest
import torch
import transformers
from packaging.version import Version
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.flex_attention import create_block_mask

import mybert

ONE_LAYER = {"num_hidden_layers": 1}


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.bfloat16, 0.1), (torch.float16, 0.02)])
def test_model_in_half_precision_is_close_to_float32(head, dtype, tolerance, attn_implementation):
    model = head.model()
    model.set_attn_implementation(attn_implementation)
    batch = head.batch(labels=True)
    batch["attention_mask"][1] = 0  # a sequence of padding only
    expected = model(**batch)
    outputs = model.to(dtype)(**batch)
    assert outputs[1 if "loss" in outputs else 0].dtype == dtype
    if "loss" in outputs:
        assert outputs.loss.isfinite()
        outputs.loss.backward()
        assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())
    torch.testing.assert_close(outputs[0].float(), expected[0], rtol=tolerance, atol=tolerance)


@pytest.mark.filterwarnings("ignore:`gradient_checkpointing_enable` is deprecated")  # its new name is not in 5.13
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_gradient_checkpointing_changes_no_gradient(head, use_reentrant, step):
    model, batch = head.model().train(), head.batch(labels=True)
    torch.manual_seed(0)
    _, plain = step(model, batch)
    model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
    assert all(layer.gradient_checkpointing for layer in model.base_model.encoder.layer)
    torch.manual_seed(0)
    torch.testing.assert_close(step(model, batch)[1], plain, rtol=0, atol=1e-6)


@pytest.mark.slow  # generates code; on a CPU flex attention has no backward pass
@pytest.mark.parametrize("is_decoder", [False, True])
def test_model_with_flex_attention_is_equal(heads, is_decoder):
    model, batch = heads("Model").model(is_decoder=is_decoder), heads("Model").batch()
    real = batch["attention_mask"].bool()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        model.set_attn_implementation("flex_attention")
        torch.testing.assert_close(model(**batch).last_hidden_state[real], expected[real], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_prepared_block_mask(heads):
    model, batch = heads("Model").model(), heads("Model").batch(None)
    mask = create_block_mask(lambda row, head, query, key: (query < 6) == (key < 6), 4, None, 11, 11, device="cpu")
    halves = torch.arange(11) < 6
    with torch.no_grad():
        expected = model(**batch, attention_mask=(halves[:, None] == halves).expand(4, 1, 11, 11)).last_hidden_state
        model.set_attn_implementation("flex_attention")
        states = model(**batch, attention_mask=mask).last_hidden_state
    torch.testing.assert_close(states, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("unpad_inputs", [False, True])
def test_sdpa_really_uses_the_fused_function(heads, unpad_inputs):
    model, batch = heads("Model").model(unpad_inputs=unpad_inputs), heads("Model").batch()
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), torch.no_grad():
        model(**batch)
    with torch.profiler.profile() as profile, torch.no_grad():
        model(**batch)
    assert any("scaled_dot_product" in event.name for event in profile.events())


def test_own_attention_function(heads):
    """`AttentionInterface` is where transformers registers custom attention functions."""
    calls = []

    def counting(module, query, key, value, attention_mask, **kwargs):
        calls.append(kwargs["marker"])
        sdpa = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS["sdpa"]
        kwargs.pop("marker")
        return sdpa(module, query, key, value, attention_mask, **kwargs)

    transformers.AttentionInterface.register("counting", counting)
    transformers.AttentionMaskInterface.register("counting", transformers.masking_utils.sdpa_mask)
    model, batch = heads("ForMaskedLM").model(unpad_inputs=False), heads("ForMaskedLM").batch()
    expected = model(**batch).logits
    model.set_attn_implementation("counting")
    torch.testing.assert_close(model(**batch, marker=7).logits, expected, rtol=0, atol=1e-6)
    assert calls == [7, 7]


def compiled(model):
    torch._dynamo.reset()
    # "eager" finds graph breaks; "aot_eager" also traces the backward graph, of which these two heads have a part of
    # their own. Generating code would take minutes.
    has_own_backward = isinstance(model, (mybert.MyBertForMaskedLM, mybert.MyBertForPreTraining))
    backend = "aot_eager" if model.training and has_own_backward else "eager"
    return torch.compile(model, fullgraph=True, backend=backend)


@pytest.mark.parametrize("is_decoder", [False, True])
def test_compiled_without_graph_break(head, is_decoder):
    if is_decoder and head.name != "Model":
        pytest.skip("the same encoder")
    model, batch = head.model(is_decoder=is_decoder, **ONE_LAYER), head.batch()
    with torch.no_grad():
        expected, outputs = model(**batch), compiled(model)(**batch)
    assert list(outputs) == list(expected)
    for output, reference in zip(outputs.values(), expected.values(), strict=True):
        torch.testing.assert_close(head.at_tokens(output, batch), head.at_tokens(reference, batch), rtol=0, atol=1e-5)


@pytest.mark.parametrize("count", [None, torch.tensor(17)])
def test_compiled_training_without_graph_break(head_with_loss, count, step):
    head = head_with_loss
    if count is not None and head.name not in ("ForPreTraining", "ForQuestionAnswering"):
        pytest.skip("each kind of loss once")
    model, batch = head.model(dropout=0.0, **ONE_LAYER).train(), head.batch(labels=True)
    batch |= {} if count is None else {"num_items_in_batch": count}
    _, expected = step(model, batch)
    torch.testing.assert_close(step(compiled(model), batch)[1], expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_compiled_with_changing_shapes(heads):
    head = heads("ForMaskedLM")
    model = head.model(**ONE_LAYER)
    torch._dynamo.reset()
    dynamic = torch.compile(model, fullgraph=True, backend="aot_eager", dynamic=True)
    for batch_size, length in ((2, 5), (4, 9), (3, 11)):
        batch = {name: tensor[:batch_size, :length] for name, tensor in head.batch().items()}
        with torch.no_grad():
            logits, expected = (head.at_tokens(one(**batch).logits, batch) for one in (dynamic, model))
        torch.testing.assert_close(logits, expected, rtol=0, atol=1e-5)


@pytest.mark.slow
def test_model_compiled_for_training_is_equal(heads, step):
    model, batch = heads("ForMaskedLM").model(dropout=0.0).train(), heads("ForMaskedLM").batch(labels=True)
    _, expected = step(model, batch)
    torch._dynamo.reset()
    generated = torch.compile(model, fullgraph=True)
    torch.testing.assert_close(step(generated, batch)[1], expected, rtol=0, atol=1e-5)


def export_example(head) -> dict:
    """The batch that is exported; without token types a graph has no input for them."""
    batch = head.batch()
    return {**batch, "token_type_ids": torch.zeros_like(batch["input_ids"])}


def assert_same_on_other_shapes(head, exported, model, batch) -> None:
    for rows, length in ((4, 11), (3, 7), (7, 5), (2, 20)):
        other = {
            name: torch.cat([tensor, tensor.flip(0)])[:rows].repeat_interleave(2, dim=-1)[..., :length]
            for name, tensor in batch.items()
        }
        with torch.no_grad():
            outputs, expected = exported(**other), model(**other)
        assert list(outputs) == list(expected)
        for output, reference in zip(outputs.values(), expected.values(), strict=True):
            torch.testing.assert_close(
                head.at_tokens(output, other), head.at_tokens(reference, other), rtol=0, atol=1e-5
            )


def test_exported_with_changing_shapes(head):
    if head.name == "ForMultipleChoice" and Version(torch.__version__).release < (2, 12):
        pytest.skip("PyTorch 2.11 fixes the length of multiple choice")
    model, batch = head.model(**ONE_LAYER), export_example(head)
    rows, length = torch.export.Dim("rows", max=64), torch.export.Dim("length", max=24)
    shapes = {name: {0: rows, tensor.dim() - 1: length} for name, tensor in batch.items()}
    program = torch.export.export(model, (), batch, dynamic_shapes=shapes)
    assert_same_on_other_shapes(head, program.module(), model, batch)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec")
def test_exported_to_onnx(head, tmp_path):
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package, reason="needs the extra 'onnx'")
    exporters = pytest.importorskip("transformers.exporters", reason="needs a transformers that exports")
    onnx_exporter = pytest.importorskip("transformers.exporters.exporter_onnx", reason="needs the extra 'onnx'")

    model, batch = head.model(), export_example(head)
    exported = onnx_exporter.OnnxExporter().export(model, batch, config=onnx_exporter.OnnxConfig(dynamic=True))
    exported.save_pretrained(tmp_path)
    assert_same_on_other_shapes(head, exporters.base.ExportedModel.from_pretrained(tmp_path), model, batch)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`is_gradient")  # about transformers' code
def test_model_traced_is_equal(heads):
    """`torch.jit.trace` is still used by older serving tools."""
    head = heads("ForSequenceClassification")
    model = head.model(return_dict=False)
    batch = head.batch()
    arguments = (batch["input_ids"], batch["attention_mask"])
    traced = torch.jit.trace(model, arguments)
    torch.testing.assert_close(traced(*arguments)[0], model(*arguments)[0], rtol=0, atol=1e-6)


def test_model_runs_on_fake_tensors(head):
    """Tools that plan memory run a model on tensors without values."""
    with FakeTensorMode():
        model = head.my_bert_class(mybert.MyBertConfig(**head.settings())).eval()
        batch = {name: torch.ones(tensor.shape, dtype=torch.long) for name, tensor in head.batch(None).items()}
        assert isinstance(model(**batch)[0], FakeTensor)


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_gradients_of_single_examples(heads, step):
    """`torch.func.vmap`, as for differential privacy and influence functions."""
    head = heads("ForSequenceClassification")
    model, batch = head.model(), head.batch(None, labels=True)
    parameters = dict(model.named_parameters())

    def loss(parameters, input_ids, label):
        inputs = {"input_ids": input_ids[None], "labels": label[None]}
        return torch.func.functional_call(model, parameters, kwargs=inputs).loss

    gradients = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0, 0))(parameters, *batch.values())
    _, expected = step(model, batch)
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient.mean(0), expected[name], rtol=0, atol=1e-5)
