"""What a sped-up model is: its way back, files, copies, threads, errors, and the check."""

import copy
import io
import pickle
import re
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from transformers import (
    AutoModel,
    GPT2Config,
    GPT2LMHeadModel,
    PreTrainedModel,
    T5Config,
    T5ForConditionalGeneration,
    pipeline,
)

import mybert
from mybert import MyBertConfig, MyBertForMaskedLM
from mybert.encoders import ENCODER_TYPES, attention, in_place
from mybert.encoders.fast_linear import FastLinear
from mybert.encoders.in_place import _states

TYPES = ", ".join(ENCODER_TYPES[:-1])


def state_of(model):
    """Everything that `speed_up` might change: classes, hooks, other attributes, the attention implementation."""
    return [
        (
            name,
            type(module),
            set(vars(module)),
            *(dict(hooks) for name, hooks in vars(module).items() if name[0] == "_" and name.endswith("_hooks")),
        )
        for name, module in model.named_modules()
    ], [module.config._attn_implementation for module in model.modules() if hasattr(module, "config")]


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize("check", [False, True])
def test_restore_gives_back_the_model_as_it_was(encoder_type, check, pair, packed):
    models = pair(encoder_type, "ForSequenceClassification")
    before = state_of(models.stock)
    assert mybert.speed_up(models.stock, check=check) is models.stock
    changed = state_of(models.stock)
    assert changed != before
    assert mybert.speed_up(models.stock, check=check) is models.stock
    assert state_of(models.stock) == changed
    assert mybert.restore(models.stock) is models.stock
    assert state_of(models.stock) == before
    assert state_of(mybert.restore(models.stock)) == before
    models.stock(**models.batch("right"))
    assert not packed.value
    mybert.speed_up(models.stock)(**models.batch("right"))
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_saved_model_is_a_stock_model(encoder_type, pair, tmp_path, agree):
    models = pair(encoder_type, "ForSequenceClassification")
    models.stock.save_pretrained(tmp_path / "stock")
    models.fast.save_pretrained(tmp_path / "fast")
    for name in ("config.json", "model.safetensors"):
        assert (tmp_path / "fast" / name).read_bytes() == (tmp_path / "stock" / name).read_bytes()
    again = type(models.stock).from_pretrained(tmp_path / "fast")
    assert again.config._attn_implementation == models.stock.config._attn_implementation
    assert not any(type(module) is FastLinear for module in again.modules())
    agree(models.stock, again, models.batch("right"))
    assert list(models.fast.state_dict()) == list(models.stock.state_dict())


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_copies_are_sped_up_and_independent(encoder_type, pair, packed, agree):
    models = pair(encoder_type, "ForSequenceClassification")
    file = io.BytesIO()
    torch.save(models.fast, file)
    file.seek(0)
    for again in (
        copy.deepcopy(models.fast),
        pickle.loads(pickle.dumps(models.fast)),
        torch.load(file, weights_only=False),
    ):
        packed.value = 0
        agree(models.stock, again, models.batch("left"))
        assert packed.value
        assert state_of(mybert.restore(again)) == state_of(models.stock)
    packed.value = 0
    models.fast(**models.batch("right"))  # after its copies were restored
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_threads_give_stock_outputs(encoder_type, pair):
    models = pair(encoder_type, "ForTokenClassification")
    batches = [models.batch(mask, labels) for mask in ("right", "left", "holes", "empty") for labels in (False, True)]
    with torch.no_grad():
        expected = [models.stock(**batch) for batch in batches]

    def run(number):
        batch = batches[number % len(batches)]
        with torch.no_grad():
            return models.fast(**batch), expected[number % len(batches)], batch.get("attention_mask").bool()

    with ThreadPoolExecutor(4) as pool:
        for output, stock, mask in pool.map(run, range(64)):
            torch.testing.assert_close(output.logits[mask], stock.logits[mask], atol=1e-5, rtol=1e-5)
            if stock.loss is not None:
                torch.testing.assert_close(output.loss, stock.loss)


def test_speed_up_after_restore_of_a_model_with_the_same_configuration_packs_again(pair, packed, agree):
    models = pair("bert", "Model")
    other = mybert.speed_up(type(models.stock)(models.fast.config))
    mybert.restore(other)
    agree(models.stock, models.fast, models.batch("right"))
    assert not packed.value
    mybert.speed_up(models.fast)
    agree(models.stock, models.fast, models.batch("right"))
    assert packed.value


def test_speed_up_leaves_a_mybert_of_code_from_the_hub_as_it_is():
    class FromTheHub(PreTrainedModel):
        config_class = MyBertConfig

        def __init__(self, config):
            super().__init__(config)
            self.layer = nn.Linear(2, 2)

    model = FromTheHub(MyBertConfig())
    assert mybert.speed_up(model) is model and type(model.layer) is nn.Linear


def test_speed_up_model_of_another_kind_raises_one_sentence():
    sizes = {"n_embd": 8, "n_layer": 1, "n_head": 2, "vocab_size": 20}
    gpt2 = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=0, eos_token_id=1))
    t5 = T5ForConditionalGeneration(T5Config(d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, vocab_size=20))
    for model in (gpt2, t5, nn.Linear(2, 2)):
        message = (
            f"{type(model).__name__} contains no encoder that is known; speed_up expects a model of type {TYPES} or"
        )
        with pytest.raises(ValueError, match=re.escape(message)):
            mybert.speed_up(model)
        assert not any(type(module) is FastLinear for module in model.modules())
        assert mybert.restore(model) is model
    for function in (mybert.speed_up, mybert.restore):
        with pytest.raises(ValueError, match="model is of class str; speed_up expects a model of type bert, "):
            function("bert-base-uncased")


def test_speed_up_pipeline_raises_one_sentence(pair, tokenizer):
    models = pair("bert", "ForSequenceClassification")
    classifier = pipeline("text-classification", model=models.stock, tokenizer=tokenizer)
    with pytest.raises(ValueError, match="model is of class TextClassificationPipeline; speed_up expects a model"):
        mybert.speed_up(classifier)


def test_speed_up_mybert_model_stays_as_it_is():
    sizes = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = MyBertForMaskedLM(MyBertConfig(**sizes, intermediate_size=8))
    before = state_of(model)
    assert mybert.speed_up(model, check=True) is model
    assert state_of(model) == before


def test_speed_up_mybert_model_beside_an_encoder_stays_as_it_is(pair):
    sizes = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    both = nn.ModuleList([MyBertForMaskedLM(MyBertConfig(**sizes, intermediate_size=8)), pair("bert", "Model").stock])
    before = state_of(both[0])
    mybert.speed_up(both)
    assert state_of(both[0]) == before
    assert any(type(module) is FastLinear for module in both[1].modules())


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_dynamically_quantized_model_is_rejected(encoder_type, pair):
    models = pair(encoder_type, "ForSequenceClassification")
    first = next(name for name, module in models.stock.named_modules() if type(module) is nn.Linear)
    quantized = torch.ao.quantization.quantize_dynamic(models.stock, {nn.Linear}, dtype=torch.qint8)
    message = rf"{re.escape(first)} is a quantized layer .*load the model without quantization"
    with pytest.raises(ValueError, match=message):
        mybert.speed_up(quantized)
    assert not any(type(module) is FastLinear for module in quantized.modules())


def test_speed_up_layer_of_integers_is_rejected(pair):
    narrow = pair("bert", "Model").stock
    narrow.pooler.dense.weight = nn.Parameter(narrow.pooler.dense.weight.to(torch.int8), requires_grad=False)
    with pytest.raises(ValueError, match=r"pooler\.dense is a quantized layer"):
        mybert.speed_up(narrow)
    assert not any(type(module) is FastLinear for module in narrow.modules())


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize("training", [False, True])
def test_speed_up_check_of_equal_outputs_runs_once(encoder_type, training, pair, agree, monkeypatch):
    models = pair(encoder_type, "ForSequenceClassification")
    mybert.speed_up(models.fast.train(training), check=True)
    outputs = []
    monkeypatch.setattr(in_place, "_states", lambda output: outputs.append(output) or _states(output))
    models.stock.train(training)
    for mask in ("left and holes", "right"):
        agree(models.stock, models.fast, models.batch(mask, labels=True), gradients=training)
    assert [type(output).__name__.startswith("BaseModelOutput") for output in outputs].count(True) == 2
    assert models.fast.training == training


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_check_of_other_outputs_raises(encoder_type, pair, monkeypatch):
    models = pair(encoder_type, "ForSequenceClassification")
    mybert.speed_up(models.fast, check=True)
    attend = attention.Batch.pack
    monkeypatch.setattr(attention.Batch, "pack", lambda batch, states: attend(batch, states).flip(1))
    message = r"speed_up changes output 0 of \w+Model by .* on a batch of shape \(5, 13\); expected at most .*restore"
    for _ in range(2):  # until it is restored
        with pytest.raises(RuntimeError, match=message):
            models.fast(**models.batch("right"))
    mybert.restore(models.fast)(**models.batch("right"))


def test_speed_up_keeps_linear_layers_for_isinstance(pair):
    models = pair("bert", "ForMaskedLM")
    assert isinstance(models.fast.cls.predictions.decoder, nn.Linear)
    models.fast.resize_token_embeddings(70)
    batch = models.batch("right")
    assert models.fast(**batch).logits.shape[-1] == 70
    assert models.fast.cls.predictions.decoder.weight is models.fast.bert.embeddings.word_embeddings.weight


def test_speed_up_unpickled_in_a_new_process_needs_no_import(pair, tmp_path, run_python):
    models = pair("modernbert", "Model")
    torch.save(models.fast, tmp_path / "model.pt")
    torch.save(models.batch("right"), tmp_path / "batch.pt")
    torch.save(models.stock(**models.batch("right"))[0], tmp_path / "states.pt")
    script = (
        "import torch\n"
        "names = 'model', 'batch', 'states'\n"
        "model, batch, states = (torch.load(f'{name}.pt', weights_only=False) for name in names)\n"
        "mask = batch['attention_mask'].bool()\n"
        "torch.testing.assert_close(model(**batch)[0][mask], states[mask], atol=1e-5, rtol=1e-5)\n"
    )
    run_python("-c", script, cwd=tmp_path)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_of_an_auto_model_knows_the_type(encoder_type, pair):
    stock = pair(encoder_type, "Model").stock
    assert type(AutoModel.from_config(stock.config)) is type(stock)
    assert stock.config.model_type == encoder_type
