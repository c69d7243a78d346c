"""Calls that run padded, because packing would change what they give."""

import copy

import numpy as np
import pytest
import torch
from torch import nn
from transformers import BertConfig, BertLMHeadModel, BertModel, EncoderDecoderModel, RobertaConfig, RobertaForCausalLM
from transformers.models.bert.modeling_bert import BertLayer

import mybert
from mybert.encoders import ENCODER_TYPES
from mybert.encoders.attention import PACKED_ATTENTION
from mybert.encoders.packing import CHECK
from mybert.visualization import attention_map

WITH_INTERFACE = [name for name in ENCODER_TYPES if name != "mpnet"]  # which has one attention only


def same(models, batch, **options):
    """Stock and sped up give the same, also at padding."""
    with torch.no_grad():
        outputs = [model(**batch, **options)[0] for model in (models.stock, models.fast)]
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_attentions_requested_runs_padded(encoder_type, pair, agree, packed):
    models = pair(encoder_type, "Model")
    if encoder_type in WITH_INTERFACE:
        for model in (models.stock, models.fast):
            model.set_attn_implementation("eager")
    agree(models.stock, models.fast, {**models.batch("right"), "output_attentions": True})
    assert len(models.fast(**models.batch("right"), output_attentions=True).attentions) == 3
    assert not packed.value


@pytest.mark.parametrize("encoder_type", WITH_INTERFACE)
def test_speed_up_attentions_requested_of_sdpa_runs_padded(encoder_type, pair, agree, packed):
    models = pair(encoder_type, "Model")
    agree(models.stock, models.fast, {**models.batch("right"), "output_attentions": True})
    assert not packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_attention_map_is_stock_and_the_next_call_is_packed(encoder_type, pair, tokenizer, packed):
    models, words = pair(encoder_type, "Model"), copy.deepcopy(tokenizer)
    words.model_input_names = ["input_ids", "attention_mask"]
    weights = [attention_map(model, words, "the cat sat").weights for model in (models.stock, models.fast)]
    np.testing.assert_allclose(weights[1], weights[0], atol=1e-6)
    assert not packed.value
    models.fast(**models.batch("right"))
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_mask_of_four_dimensions_gives_stock_outputs(encoder_type, pair):
    models = pair(encoder_type, "Model")
    batch = models.batch("right")
    mask = torch.rand(5, 1, 13, 13, generator=torch.Generator().manual_seed(0)) > 0.3
    mask |= torch.eye(13, dtype=torch.bool)
    if encoder_type == "mpnet":
        mask = torch.zeros(mask.shape).masked_fill(~mask, torch.finfo(torch.float32).min)
    same(models, {**batch, "attention_mask": mask})


def test_speed_up_masks_of_layer_types_give_stock_outputs(pair, masks, packed):
    models = pair("modernbert", "Model")
    mask = masks("right").bool()[:, None, None].expand(-1, 1, 13, -1)
    batch = {**models.batch("right"), "attention_mask": {"full_attention": mask, "sliding_attention": mask}}
    same(models, batch)
    assert not packed.value


@pytest.mark.parametrize("encoder_type", WITH_INTERFACE)
@pytest.mark.parametrize("implementation", ["eager", "sdpa", "flex_attention"])
def test_speed_up_another_attention_chosen_runs_padded(encoder_type, implementation, pair, packed):
    models = pair(encoder_type, "Model")
    if implementation == "flex_attention":  # it needs a compiler here
        models.fast.set_attn_implementation("eager")
        mybert.speed_up(models.fast)
        assert models.fast.config._attn_implementation == "eager"
    else:
        models.fast.set_attn_implementation(implementation)
    models.stock.set_attn_implementation(models.fast.config._attn_implementation)
    same(models, models.batch("right"))
    assert not packed.value
    models.fast.set_attn_implementation("sdpa")
    mybert.speed_up(models.fast)(**models.batch("right"))
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_labels_at_padding_give_the_stock_loss(encoder_type, pair, agree, packed):
    models = pair(encoder_type, "ForTokenClassification")
    batch = models.batch("right")
    agree(models.stock, models.fast, {**batch, "labels": batch["input_ids"] % 3}, gradients=True)
    assert not packed.value
    models.fast(**batch)  # the next call may be packed again
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_call_that_fails_leaves_the_next_packed(encoder_type, pair, packed):
    models = pair(encoder_type, "ForTokenClassification")
    batch = models.batch("right")
    with pytest.raises((RuntimeError, IndexError)):
        models.fast(**{**batch, "input_ids": batch["input_ids"] + 1000}, labels=batch["input_ids"] % 3)
    packed.value = 0
    models.fast(**batch)
    assert packed.value


@pytest.mark.parametrize("summary_type", ["first", "last", "mean"])
def test_speed_up_summary_of_electra_gives_stock_logits(summary_type, pair, agree, packed):
    models = pair("electra", "ForMultipleChoice", summary_type=summary_type)
    agree(models.stock, models.fast, models.batch("right"))
    assert bool(packed.value) == (summary_type == "first")


def doubled(module, args, output):
    return output * 2


class Doubled(nn.Linear):
    def forward(self, states):
        return super().forward(states) * 2


class RowMean(nn.Module):
    def forward(self, states):
        return states - states.mean(1, keepdim=True)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize("change", ["hook", "pre-hook", "module", "class", "forward", "global hook"])
def test_speed_up_changed_modules_give_stock_outputs(encoder_type, change, pair, packed, monkeypatch):
    models = pair(encoder_type, "Model")
    handle = None
    if change == "global hook":
        handle = nn.modules.module.register_module_forward_hook(lambda module, args, output: None)
    for model in (models.stock, models.fast):
        norm = [module for module in model.modules() if isinstance(module, nn.LayerNorm)][-1]
        if change == "hook":
            norm.register_forward_hook(doubled)
        elif change == "pre-hook":
            norm.register_forward_pre_hook(lambda module, args: (args[0] - args[0].mean(1, keepdim=True),))
        elif change == "module":
            name = next(name for name, module in model.named_modules() if module is norm)
            model.set_submodule(name, RowMean())
        elif change == "class":
            layer = [module for module in model.modules() if isinstance(module, nn.Linear)][3]
            layer.__class__ = Doubled
        elif change == "forward":
            norm.forward = lambda states: states - states.mean(1, keepdim=True)
    same(models, models.batch("right"))
    assert not packed.value
    if handle is not None:
        handle.remove()


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_hook_of_the_encoder_gets_stock_rows(encoder_type, pair, packed):
    models = pair(encoder_type, "Model")
    shapes = []
    for model in (models.stock, models.fast):
        model.register_forward_hook(
            lambda module, args, kwargs, output: shapes.append(output[0].shape), with_kwargs=True
        )
    for model in (models.stock, models.fast):
        model(**models.batch("right"))
    assert shapes[0] == shapes[1]


def test_speed_up_layers_replaced_by_stock_ones_give_stock_outputs(pair):
    models = pair("bert", "Model")
    models.fast.encoder = copy.deepcopy(models.stock.encoder)
    same(models, models.batch("right"))
    models = pair("bert", "Model")
    layer = BertLayer(models.stock.config)
    for model in (models.stock, models.fast):
        model.encoder.layer[1] = copy.deepcopy(layer).eval()
    mask = models.batch("right")["attention_mask"].bool()
    outputs = [model(**models.batch("right"))[0][mask] for model in (models.stock, models.fast)]
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)
    models = pair("mpnet", "Model")
    models.fast.encoder.layer[1] = copy.deepcopy(models.stock.encoder.layer[1])
    same(models, models.batch("right"))


def test_speed_up_subclass_with_another_forward_is_no_encoder():
    class Reversed(BertModel):
        def forward(self, input_ids, **kwargs):
            return super().forward(input_ids.flip(1), **kwargs)

    config = BertConfig(vocab_size=61, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
    with pytest.raises(ValueError, match="Reversed contains no encoder"):
        mybert.speed_up(Reversed(config))


@pytest.mark.parametrize(
    ("model_class", "config_class"), [(BertLMHeadModel, BertConfig), (RobertaForCausalLM, RobertaConfig)]
)
def test_speed_up_decoder_gives_stock_outputs(model_class, config_class, packed):
    sizes = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = config_class(
        **sizes, intermediate_size=8, is_decoder=True, pad_token_id=1, bos_token_id=2, eos_token_id=3
    )
    torch.manual_seed(0)
    stock = model_class(config).eval()
    fast = mybert.speed_up(copy.deepcopy(stock))
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    ids = torch.randint(5, 61, mask.shape)
    torch.testing.assert_close(fast(ids, attention_mask=mask)[0], stock(ids, attention_mask=mask)[0])
    generated = [model.generate(ids[:, :3], max_new_tokens=4, do_sample=False) for model in (stock, fast)]
    assert generated[0].equal(generated[1])
    assert not packed.value


def test_speed_up_encoder_and_decoder_give_stock_logits(packed):
    sizes = {"vocab_size": 61, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "pad_token_id": 1}
    decoder = BertLMHeadModel(BertConfig(**sizes, is_decoder=True, add_cross_attention=True))
    stock = EncoderDecoderModel(encoder=BertModel(BertConfig(**sizes)), decoder=decoder).eval()
    fast = mybert.speed_up(copy.deepcopy(stock))
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    ids = torch.randint(5, 61, mask.shape)
    outputs = [model(ids, attention_mask=mask, decoder_input_ids=ids).logits for model in (stock, fast)]
    torch.testing.assert_close(outputs[1], outputs[0], atol=1e-5, rtol=1e-5)
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize(("width", "padding"), [(50, 1), (39, 7)])  # of 40 positions RoBERTa reads 38 tokens
def test_speed_up_rows_longer_than_the_positions_give_the_stock_error(encoder_type, pair, width, padding):
    models = pair(encoder_type, "Model")
    mask = torch.ones(2, width, dtype=torch.long)
    mask[:, 20:] = 0
    batch = {"input_ids": torch.full((2, width), 7) * mask + padding * (1 - mask), "attention_mask": mask}
    errors = []
    for model in (models.stock, models.fast):
        try:
            model(**batch)
            errors.append(None)
        except Exception as error:
            errors.append(type(error))
    assert errors[0] == errors[1]


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_exported_and_traced_graphs_give_stock_outputs(encoder_type, pair, packed):
    models = pair(encoder_type, "Model")
    batch = models.batch("right")
    batch = {name: batch[name] for name in ("input_ids", "attention_mask")}
    expected = models.stock(**batch)[0]
    exported = torch.export.export(models.fast, (), batch, strict=False).module()
    torch.testing.assert_close(exported(**batch)[0], expected, atol=1e-5, rtol=1e-5)
    models.fast.config.return_dict = False
    traced = torch.jit.trace(models.fast, tuple(batch.values()), check_trace=False)
    torch.testing.assert_close(traced(*batch.values())[0], expected, atol=1e-5, rtol=1e-5)
    assert not packed.value


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
def test_speed_up_check_waits_for_a_batch_that_is_not_traced(pair, packed):
    models = pair("bert", "Model", return_dict=False)
    fast = mybert.speed_up(models.fast, check=True)
    batch = models.batch("right")
    given = tuple(batch[name] for name in ("input_ids", "attention_mask"))
    traced = torch.jit.trace(fast, given, check_trace=False)
    torch.testing.assert_close(traced(*given)[0], models.stock(*given)[0], atol=1e-5, rtol=1e-5)
    assert CHECK in vars(fast) and not packed.value
    fast(*given)
    assert CHECK not in vars(fast) and packed.value


def test_speed_up_positions_without_rows_run_padded(pair, packed):
    models = pair("bert", "Model")
    batch = models.batch("right")
    same(models, {**batch, "position_ids": torch.arange(batch["input_ids"].shape[1]).flip(0)})
    assert not packed.value


@pytest.mark.slow
@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_compiled_model_gives_stock_outputs(encoder_type, pair, packed):
    models = pair(encoder_type, "ForSequenceClassification")
    batch = models.batch("right")
    expected = models.stock(**batch).logits
    for compiled in (torch.compile(models.fast, fullgraph=True), mybert.speed_up(torch.compile(models.stock))):
        torch.testing.assert_close(compiled(**batch).logits, expected, atol=1e-5, rtol=1e-5)
    assert not packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_functional_transforms_give_stock_gradients(encoder_type, pair, packed):
    models = pair(encoder_type, "ForSequenceClassification")
    batch = models.batch("right")
    values = []
    for model in (models.stock, models.fast):
        parameters = dict(model.named_parameters())

        def loss(parameters, model=model):
            return torch.func.functional_call(model, parameters, kwargs=batch).logits.square().sum()

        values.append(torch.func.grad(loss)(parameters))
    assert not packed.value
    for name, expected in values[0].items():
        torch.testing.assert_close(values[1][name], expected, atol=1e-4, rtol=1e-4)


def test_packed_attention_without_batch_is_sdpa(pair):
    models = pair("bert", "Model")
    assert models.fast.config._attn_implementation == PACKED_ATTENTION
    again = BertModel(models.fast.config).eval()  # from the configuration of one that is sped up
    again.load_state_dict(models.stock.state_dict())
    batch = models.batch("right")
    torch.testing.assert_close(again(**batch)[0], models.stock(**batch)[0])
