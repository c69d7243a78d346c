"""Outputs and gradients of encoders that are sped up, compared with stock ones."""

import itertools

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import mybert
from mybert.encoders import ENCODER_TYPES

HEADS = (
    "Model ForPreTraining ForMaskedLM ForNextSentencePrediction ForSequenceClassification ForMultipleChoice "
    "ForTokenClassification ForQuestionAnswering"
).split()
MASKS = ("right", "left", "holes", "left and holes", "empty", "full", "none")


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
@pytest.mark.parametrize("mask", MASKS)
def test_speed_up_every_mask_gives_stock_outputs_and_gradients(encoder_type, mask, pair, agree, packed):
    models = pair(encoder_type, "Model")
    batch = models.batch(mask)
    agree(models.stock, models.fast, {**batch, "output_hidden_states": True})
    assert bool(packed.value) == (mask != "empty")  # also without padding: filler tokens round up the number of rows
    for model in (models.stock, models.fast):
        model.train()
    agree(models.stock, models.fast, batch, gradients=True)


@pytest.mark.parametrize(("encoder_type", "head"), itertools.product(ENCODER_TYPES, HEADS))
def test_speed_up_every_head_gives_stock_logits_and_gradients_of_its_loss(encoder_type, head, pair, agree, packed):
    models = pair(encoder_type, head)
    for mask in ("right", "left and holes"):
        agree(models.stock, models.fast, models.batch(mask))
    assert packed.value
    packed.value = 0
    for model in (models.stock, models.fast):
        model.train()
    agree(models.stock, models.fast, models.batch("left", labels=True), gradients=True)
    assert bool(packed.value) == (head != "ForQuestionAnswering")  # whose loss reads padding


@pytest.mark.parametrize(("encoder_type", "head"), itertools.product(ENCODER_TYPES, HEADS[1:]))
def test_speed_up_every_head_with_other_arguments_gives_stock_outputs(encoder_type, head, pair, agree):
    models = pair(encoder_type, head)
    for mask in ("holes", "empty", "full", "none"):
        agree(models.stock, models.fast, models.batch(mask, labels=True))
    batch = models.batch("left", labels=True)
    embeddings = models.stock.get_input_embeddings()(batch["input_ids"]).detach()
    without_ids = {name: value for name, value in batch.items() if name != "input_ids"}
    for changed in (
        {**without_ids, "inputs_embeds": embeddings},
        {**batch, "output_hidden_states": True},
        {**batch, "return_dict": False},
    ):
        agree(models.stock, models.fast, changed)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_other_arguments_give_stock_outputs(encoder_type, pair, agree, packed):
    models = pair(encoder_type, "Model")
    batch = models.batch("left and holes")
    shape = batch["input_ids"].shape
    embeddings = torch.randn(*shape, models.stock.get_input_embeddings().embedding_dim)
    without_ids = {name: value for name, value in batch.items() if name != "input_ids"}
    positions = torch.arange(shape[1]).flip(0)
    for changed in (
        {**without_ids, "inputs_embeds": embeddings},
        {**batch, "position_ids": positions[None]},
        {**batch, "position_ids": positions.expand(shape)},
        {**batch, "return_dict": False},
        {**batch, "return_dict": False, "output_hidden_states": True},
        {**batch, "attention_mask": batch["attention_mask"].bool()},
        {**batch, "attention_mask": batch["attention_mask"].float()},
    ):
        packed.value = 0
        agree(models.stock, models.fast, changed)
        assert packed.value, changed


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_arguments_by_position_give_stock_outputs(encoder_type, pair, packed):
    models = pair(encoder_type, "Model")
    batch = models.batch("holes")
    mask = batch["attention_mask"].bool()
    outputs = [model(batch["input_ids"], batch["attention_mask"])[0] for model in (models.stock, models.fast)]
    assert packed.value
    torch.testing.assert_close(outputs[1][mask], outputs[0][mask], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_gradients_of_embeddings_are_stock(encoder_type, pair):
    models = pair(encoder_type, "Model")
    batch = models.batch("holes")
    embeddings = torch.randn(*batch.pop("input_ids").shape, models.stock.get_input_embeddings().embedding_dim)
    gradients = []
    for model in (models.stock, models.fast):
        inputs = embeddings.clone().requires_grad_()
        states = model(inputs_embeds=inputs, **batch).last_hidden_state
        states[batch["attention_mask"].bool()].square().sum().backward()
        gradients.append(inputs.grad)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_hidden_states_at_padding_are_zero(encoder_type, pair):
    models = pair(encoder_type, "Model")
    batch = models.batch("right")
    states = models.fast(**batch).last_hidden_state
    assert not states[~batch["attention_mask"].bool()].any()


@pytest.mark.parametrize("encoder_type", [name for name in ENCODER_TYPES if name != "mpnet"])
@pytest.mark.parametrize("use_reentrant", [False, True])
def test_speed_up_gradient_checkpointing_gives_stock_gradients(encoder_type, use_reentrant, pair, agree, packed):
    models = pair(encoder_type, "ForSequenceClassification")
    for model in (models.stock, models.fast):
        model.train()
        model.gradient_checkpointing_enable({"use_reentrant": use_reentrant})
        model.enable_input_require_grads()
    agree(models.stock, models.fast, models.batch("left", labels=True), gradients=True)
    assert packed.value


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_bfloat16_gives_outputs_as_near_to_float32_as_stock(encoder_type, pair, packed):
    models = pair(encoder_type, "Model")
    batch = models.batch("left and holes")
    mask = batch["attention_mask"].bool()
    exact = models.stock(**batch).last_hidden_state[mask]
    stock, fast = (model.bfloat16()(**batch).last_hidden_state[mask] for model in (models.stock, models.fast))
    assert packed.value
    assert (fast - exact).abs().mean() <= 1.2 * (stock - exact).abs().mean() + 1e-3
    with torch.autocast("cpu", dtype=torch.bfloat16):
        mybert.speed_up(models.fast.float())(**batch)


@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_dropout_in_training_has_the_stock_mean(encoder_type, pair, packed):
    changes = {"attention_dropout": 0.3} if encoder_type in ("modernbert", "distilbert") else {}
    changes = changes or {"attention_probs_dropout_prob": 0.3}
    models = pair(encoder_type, "Model", **changes)
    batch = models.batch("right")
    torch.manual_seed(0)
    means = []
    for model in (models.stock.train(), models.fast.train()):
        with torch.no_grad():
            runs = torch.stack([model(**batch).last_hidden_state[0] for _ in range(150)])
        means.append(runs.mean(0))
        assert runs.std(0).mean() > 0.01
    assert packed.value
    assert (means[0] - means[1]).abs().mean() < 0.1


@pytest.mark.parametrize("encoder_type", ["bert", "roberta", "distilbert", "electra"])
@pytest.mark.parametrize("chunk", [1, 13])
def test_speed_up_chunked_feed_forward_gives_stock_outputs(encoder_type, chunk, pair, agree, packed):
    models = pair(encoder_type, "Model", chunk_size_feed_forward=chunk)
    agree(models.stock, models.fast, models.batch("left and holes"), gradients=True)
    assert packed.value


@pytest.mark.parametrize("length", [2, 5, 40])  # shorter than the window, and longer
def test_speed_up_windows_of_long_rows_give_stock_outputs(length, pair, agree, packed):
    models = pair("modernbert", "Model")
    mask = torch.ones(4, length, dtype=torch.long)
    mask[1, length // 2 :] = 0
    mask[2, : length // 3] = 0
    mask[3, 2:-2] = 0
    batch = {"input_ids": torch.randint(5, 61, (4, length)), "attention_mask": mask}
    agree(models.stock, models.fast, batch)
    assert packed.value


@pytest.mark.parametrize("training", [False, True])
def test_speed_up_has_the_stock_number_of_flops(pair, training):
    from mybert.modeling_mybert import set_linear_kernel

    models, counts = pair("bert", "Model"), []
    batch = {name: value[:4] for name, value in models.batch("none").items()}  # which packing does not fill up
    set_linear_kernel("onednn")
    try:
        for model in (models.stock, models.fast):
            with FlopCounterMode(display=False) as counter, torch.set_grad_enabled(training):
                model.train(training)(**batch)
            counts.append(counter.get_total_flops())
    finally:
        set_linear_kernel("auto")
    assert counts[0] == counts[1] > 0


@pytest.mark.parametrize("kernel", ["mkl", "onednn"])
@pytest.mark.parametrize("encoder_type", ENCODER_TYPES)
def test_speed_up_every_kernel_gives_stock_outputs_and_gradients(encoder_type, kernel, pair, agree):
    from mybert.modeling_mybert import set_linear_kernel

    models = pair(encoder_type, "ForSequenceClassification")
    set_linear_kernel(kernel)
    try:
        with torch.no_grad():
            agree(models.stock, models.fast, models.batch("right"))
            one = {name: value[1:2, :4] for name, value in models.batch("right").items()}
            agree(models.stock, models.fast, one)
        agree(models.stock, models.fast, models.batch("right", labels=True), gradients=True)
    finally:
        set_linear_kernel("auto")
