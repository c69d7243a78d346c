"""Int8 weights, and activations quantized token by token: for inference on a CPU, and how they are saved."""

import copy
import json
import pickle

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification, Trainer, TrainingArguments, pipeline
from transformers import BertForSequenceClassification as TheirsForSequenceClassification

import mybert
from mybert.modeling_mybert import layers_mybert, linear_mybert
from mybert.modeling_mybert.linear_mybert import MyBertInt8Config, MyBertInt8Linear

needs_int8 = pytest.mark.skipif(
    not linear_mybert.has_exact_int8_kernel(), reason="this CPU or build of PyTorch multiplies no int8 exactly"
)


@pytest.fixture
def layer():
    """A layer with integer weights whose scales are 1/2 and 2."""
    layer = torch.nn.Linear(4, 2)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[63.5, -10, 2, 0.5], [2, 254, -100, 0]]))
        layer.bias.copy_(torch.tensor([1.0, -1.0]))
    return layer


def in_numpy(layer, states):
    """The layer's product from its definition, in float64."""
    weight, scale = layer.int8_weight.numpy().astype(np.int64), layer.weight_scale.numpy().astype(np.float64)
    states = states.numpy().astype(np.float64)
    lowest, highest = states.min(-1, keepdims=True), states.max(-1, keepdims=True)
    middle, step = (lowest + highest) / 2, np.maximum(highest - lowest, 1e-30) / 254
    integers = np.rint((states - middle) / step).astype(np.int64)
    assert np.abs(integers).max() <= 127
    return (integers @ weight.T * step + middle * weight.sum(1)) * scale + layer.bias.detach().numpy()


@needs_int8
def test_weights_and_product_by_hand(layer):
    """0 ... 254 in steps of 1 and -127 ... 127 in steps of 1 are exact: so is the product."""
    quantized = MyBertInt8Linear.from_float(layer)
    assert quantized.weight_scale.tolist() == [0.5, 2.0]
    assert quantized.int8_weight.tolist() == [[127, -20, 4, 1], [1, 127, -50, 0]]
    assert quantized.bias.tolist() == [1.0, -1.0]
    assert not any(parameter.requires_grad for parameter in quantized.parameters())
    states = torch.tensor([[0.0, 254.0, 3.0, 100.0], [-127.0, 127.0, 0.0, 1.0]])
    product = quantized(states)
    assert product.tolist() == [[-2483.0, 64215.0], [-127 * 63.5 - 1270 + 0.5 + 1, -254 + 127 * 254 - 1.0]]


@needs_int8
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("shape", [(1,), (5,), (2, 3), (300,)])
def test_product_is_its_definition(scale, shape):
    torch.manual_seed(0)
    layer = MyBertInt8Linear.from_float(torch.nn.Linear(96, 72))
    states = scale * (torch.randn(*shape, 96) + torch.randn(*shape, 1))
    product, expected = layer(states), in_numpy(layer, states)
    assert product.shape == (*shape, 72)
    # A value halfway between steps may round either way.
    np.testing.assert_allclose(product, expected, rtol=0, atol=2e-3 * scale + 1e-8)
    assert np.median(np.abs(product.numpy() - expected)) < 2e-6 * max(scale, 0.1)


@needs_int8
def test_rows_that_are_all_equal_or_far_from_zero():
    torch.manual_seed(0)
    layer = MyBertInt8Linear.from_float(torch.nn.Linear(64, 8))
    states = torch.stack([torch.zeros(64), torch.full((64,), 5.0), 1000 + torch.rand(64), -torch.rand(64)])
    weight = layer.int8_weight * layer.weight_scale[:, None]
    expected = torch.nn.functional.linear(states, weight, layer.bias)
    torch.testing.assert_close(layer(states), expected, rtol=1e-3, atol=1e-2)
    assert torch.equal(layer(states[:1])[0], layer.bias)


@needs_int8
def test_a_row_does_not_depend_on_the_others():
    """Nor on values that are not finite, which stay so."""
    torch.manual_seed(0)
    layer, states = MyBertInt8Linear.from_float(torch.nn.Linear(96, 72)), torch.randn(40, 96)
    others = 1e4 * torch.randn(40, 96)
    others[0, 0], others[1, 0] = torch.nan, torch.inf
    product = layer(torch.cat([states, others]))
    torch.testing.assert_close(product[:40], layer(states), rtol=0, atol=1e-6)
    assert not product[40:42].isfinite().any() and product[42:].isfinite().all()


@needs_int8
def test_query_key_and_value_take_the_same_integers(heads, monkeypatch):
    """A layer quantizes and multiplies four times; query, key and value get their own parts of one product."""
    model, batch = heads("Model").model().quantize_weights("int8"), heads("Model").batch()
    calls, quantize = [], linear_mybert.quantize_rows
    monkeypatch.setattr(linear_mybert, "quantize_rows", lambda rows: calls.append(rows) or quantize(rows))
    products, multiply = [], linear_mybert._multiply_int8
    monkeypatch.setattr(linear_mybert, "_multiply_int8", lambda *given: products.append(1) or multiply(*given))
    with torch.no_grad():
        model(**batch)
    assert len(calls) == len(products) == 2 * 4
    attention, states = model.encoder.layer[0].attention.self, torch.randn(2, 3, 32)
    layers = (attention.query, attention.key, attention.value)
    for product, layer in zip(linear_mybert.product_of_each(layers, states), layers, strict=True):
        assert product.shape == (2, 3, 32) and torch.equal(product, layer(states))
    seen = []
    attention.key.register_forward_hook(lambda *_: seen.append(1))
    assert linear_mybert.product_of_each(layers, states) is None
    attention(states)
    assert seen == [1]


@needs_int8
def test_long_batches_go_in_parts(heads, monkeypatch):
    """The feed-forward network runs on chunks of rows, with the same result; not if it has hooks."""
    model, batch = heads("Model").model().quantize_weights("int8"), heads("Model").batch(None)
    rows, dense, quantize = [], model.encoder.layer[0].output, linear_mybert.quantize_rows
    monkeypatch.setattr(linear_mybert, "quantize_rows", lambda states: rows.append(len(states)) or quantize(states))
    tokens = batch["input_ids"].numel()
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        assert rows == [tokens] * 8
        monkeypatch.setattr(layers_mybert, "_ROWS_AT_ONCE", 5)
        rows.clear()
        torch.testing.assert_close(model(**batch).last_hidden_state, expected, rtol=0, atol=1e-6)
        parts = [5] * (tokens // 5) + [tokens % 5] * (tokens % 5 > 0)
        assert rows == 2 * ([tokens, tokens] + [count for part in parts for count in (part, part)])
        seen = []
        dense.register_forward_hook(lambda module, inputs, output: seen.append(output.shape))
        model(**batch)
    assert seen == [(*batch["input_ids"].shape, 32)]


@pytest.mark.parametrize("padding", [None, "right", "holes"])
def test_every_head(head, padding):
    """Close to float32, and the same with and without padding."""
    model, batch = head.model(), head.batch(padding)
    with torch.no_grad():
        expected = model(**batch)
        quantized = copy.deepcopy(model).quantize_weights("int8")
        outputs, padded = quantized(**batch), quantized(**batch, unpad_inputs=False)
    assert sum(isinstance(module, MyBertInt8Linear) for module in quantized.modules()) == 2 * 6
    for name, tensor in outputs.items():
        tokens, others = head.at_tokens(tensor, batch), head.at_tokens(padded[name], batch)
        states = head.at_tokens(expected[name], batch)
        assert 0 < (tokens - states).pow(2).mean().sqrt() < 0.05 * states.pow(2).mean().sqrt()
        torch.testing.assert_close(tokens, others, rtol=0, atol=0.05 * float(states.abs().max()))


def test_embeddings_norms_pooler_and_head_stay(heads):
    model = heads("ForSequenceClassification").model()
    before = copy.deepcopy(model.state_dict())
    after = model.quantize_weights("int8").state_dict()
    same = {name for name in before if name in after}
    assert {"classifier.weight", "bert.pooler.dense.weight", "bert.embeddings.word_embeddings.weight"} < same
    assert all(torch.equal(before[name], after[name]) for name in same)
    lost = before.keys() - same
    assert len(lost) == 2 * 6 and all(".layer." in name and name.endswith(".weight") for name in lost)


def test_saved_loaded_copied_and_pickled(head, tmp_path):
    model, batch = head.model().quantize_weights("int8"), head.batch()
    with torch.no_grad():
        expected = model(**batch)
        model.save_pretrained(tmp_path)
        assert json.loads((tmp_path / "config.json").read_text())["quantization_config"] == {
            "quant_method": "mybert_int8"
        }
        stored = load_file(tmp_path / "model.safetensors")
        assert sum(tensor.dtype == torch.int8 for tensor in stored.values()) == 2 * 6
        loaded = head.ours.from_pretrained(tmp_path)
        assert not any(parameter.requires_grad for parameter in loaded.parameters())
        for one in (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.deepcopy(loaded)):
            for name, tensor in one(**batch).items():
                torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
        loaded.save_pretrained(tmp_path / "again")
        head.model().save_pretrained(tmp_path / "float")
        quantized_while_loading = head.ours.from_pretrained(tmp_path / "float", quantization_config=MyBertInt8Config())
        for name, tensor in quantized_while_loading(**batch).items():
            torch.testing.assert_close(tensor, expected[name], rtol=0, atol=1e-6)
    assert (tmp_path / "again" / "config.json").read_text() == (tmp_path / "config.json").read_text()
    again = load_file(tmp_path / "again" / "model.safetensors")
    assert again.keys() == stored.keys() and all(torch.equal(again[name], stored[name]) for name in stored)


@needs_int8
def test_changed_weights_are_packed_anew(heads):
    head = heads("Model")
    model, other, batch = head.model(), head.model(), head.batch()
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(0.7)
        model.quantize_weights("int8"), other.quantize_weights("int8")
        before, expected = model(**batch).last_hidden_state, other(**batch).last_hidden_state
        model.load_state_dict(other.state_dict())
        after = model(**batch).last_hidden_state
    assert (before - expected).abs().max() > 0.1
    torch.testing.assert_close(after, expected, rtol=0, atol=1e-6)


def test_pipelines(tokenizer, tmp_path):
    torch.manual_seed(0)
    config = mybert.MyBertConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=2)
    texts = ["the cat sat on the mat", "a dog"]
    for kind, name in (("text-classification", "ForSequenceClassification"), ("fill-mask", "ForMaskedLM")):
        model = getattr(mybert, f"MyBert{name}")(config).eval()
        inputs = texts if kind == "text-classification" else [f"{text} [MASK]" for text in texts]
        expected = pipeline(kind, model=model, tokenizer=tokenizer)(inputs)
        model.quantize_weights("int8").save_pretrained(tmp_path / name)
        tokenizer.save_pretrained(tmp_path / name)
        for given in (model, str(tmp_path / name)):
            answers = pipeline(kind, model=given, tokenizer=tokenizer)(inputs, batch_size=2)
            assert str(answers) != str(expected)
            for answer, other in zip(answers, expected, strict=True):
                one, two = (value[0] if isinstance(value, list) else value for value in (answer, other))
                assert one["score"] == pytest.approx(two["score"], rel=0.05)
    model = mybert.MyBertForQuestionAnswering(config).quantize_weights("int8")
    answers = pipeline("question-answering", model=model, tokenizer=tokenizer)
    assert answers(question="who sat?", context="the cat sat on the mat")["answer"]


@pytest.mark.parametrize("compiled", [False, True], ids=["captured", "exported"])
def test_elsewhere_the_product_is_in_floating_point(heads, compiled):
    """With gradients or in compiled graphs, the int8 weights are used, but activations are not quantized."""
    head = heads("Model")
    model, batch = head.model().quantize_weights("int8"), head.batch(None)
    plain = head.model()
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, MyBertInt8Linear):
                plain.get_submodule(name).weight.copy_(module.int8_weight * module.weight_scale[:, None])
    if compiled:
        program = torch.export.export(model, (), kwargs=batch)
        with torch.no_grad():
            torch.testing.assert_close(program.module()(**batch)[0], plain(**batch)[0], rtol=0, atol=1e-4)
        return
    gradients = []
    for one in (model, plain):
        words = plain.embeddings.word_embeddings(batch["input_ids"]).detach().requires_grad_()
        one(inputs_embeds=words).last_hidden_state.square().sum().backward()
        gradients.append(words.grad)
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-3)


def test_without_the_kernel(heads, monkeypatch):
    """On a CPU without VNNI the results are also correct."""
    model, batch = heads("Model").model(), heads("Model").batch()
    monkeypatch.setattr(linear_mybert, "has_exact_int8_kernel", lambda: False)
    with torch.no_grad():
        expected = model(**batch).last_hidden_state
        states = model.quantize_weights("int8")(**batch).last_hidden_state
    assert (states - expected).abs().max() < 0.2


@pytest.mark.slow
def test_a_processor_that_overflows_is_noticed(run_python):
    """oneDNN limited to AVX-512 without VNNI adds pairs of products in 16 bits; PyTorch's own check is unchanged."""
    code = (
        "import os; os.environ['ONEDNN_MAX_CPU_ISA'] = 'AVX512_CORE'\n"
        "import torch\n"
        "from mybert.modeling_mybert.linear_mybert import MyBertInt8Linear, has_exact_int8_kernel\n"
        "layer = torch.nn.Linear(64, 8); layer.weight.data.fill_(1); quantized = MyBertInt8Linear.from_float(layer)\n"
        "states = torch.ones(3, 64); states[:, 0] = 0\n"
        "torch.testing.assert_close(quantized(states), layer(states))\n"
        "print(has_exact_int8_kernel())"
    )
    assert run_python("-c", code).stdout.strip() in ("True", "False")


def test_training_is_refused(heads, tmp_path):
    model = heads("ForSequenceClassification").model().train().quantize_weights("int8")
    assert not any(module.training for module in model.modules())
    for module in (model, torch.nn.ModuleList([model])):
        with pytest.raises(ValueError, match="The model has int8 weights, which cannot be trained"):
            module.train()
    with pytest.raises(ValueError, match="quantized"):
        Trainer(model, TrainingArguments(str(tmp_path), use_cpu=True))


@pytest.mark.parametrize(
    ("change", "precision", "sentence"),
    [
        (lambda model: model, "int4", "precision is 'int4'; expected 'int8' or 'bfloat16'."),
        (lambda model: model.bfloat16(), "int8", "The model is torch.bfloat16 on cpu; quantizing expects float32"),
        (lambda model: model.to("meta"), "bfloat16", "The model is torch.float32 on meta; quantizing expects float32"),
        (lambda model: model.quantize_weights("int8"), "int8", "query is a .*MyBertInt8Linear, .* expected a plain"),
    ],
)
def test_what_cannot_be_quantized(heads, change, precision, sentence):
    with pytest.raises(ValueError, match=sentence):
        change(heads("ForMaskedLM").model()).quantize_weights(precision)


def test_an_adapter_is_refused_and_nothing_changed(heads):
    peft = pytest.importorskip("peft")
    model = heads("ForSequenceClassification").model()
    adapted = peft.get_peft_model(model, peft.LoraConfig(target_modules=["value"]))
    with pytest.raises(ValueError, match=r"A layer's value is a peft\.\S+Linear, or has hooks; expected a plain"):
        model.quantize_weights("int8")
    assert not any(isinstance(module, MyBertInt8Linear) for module in model.modules())
    quantized = adapted.merge_and_unload().quantize_weights("int8")
    with pytest.raises(ValueError, match="MyBertInt8Linear"):
        peft.get_peft_model(quantized, peft.LoraConfig(target_modules=["value"]))


def test_what_cannot_read_a_folder_with_int8_weights_says_so(heads, tmp_path):
    heads("ForSequenceClassification").model().quantize_weights("int8").save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="int8 weights are MyBERT's; expected one of its classes"):
        TheirsForSequenceClassification.from_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"dtype is torch.bfloat16; a model with int8 weights has float32"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path, dtype=torch.bfloat16)
    from mybert.conversion import to_transformers_bert

    with pytest.raises(ValueError, match=r"its weights are quantized \('mybert_int8'\); expected floating-point"):
        to_transformers_bert(tmp_path, tmp_path / "bert")


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16 kernels")
def test_bfloat16_is_the_model_in_bfloat16_prepacked(heads):
    head = heads("ForSequenceClassification")
    model, batch = head.model().train(), head.batch()
    with torch.no_grad():
        expected = copy.deepcopy(model).eval().bfloat16().prepack_weights()(**batch).logits
        quantized = model.quantize_weights("bfloat16")
        assert torch.equal(quantized(**batch).logits, expected)
    assert not model.training and hasattr(model.classifier, "packed_weight")
