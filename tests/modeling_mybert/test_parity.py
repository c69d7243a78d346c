"""Against transformers' BERT: the same weights and inputs give the same outputs, losses and gradients."""

import pytest
import torch


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padding", [None, "right", "left", "holes"])
def test_outputs_and_their_gradients_in_evaluation(head, agree, padding, attn_implementation):
    agree(*head.matched_models(attn_implementation=attn_implementation), head.batch(padding))


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("training", [False, True])
def test_losses_and_gradients(head_with_loss, agree, training, attn_implementation):
    my_bert, bert = head_with_loss.matched_models(dropout=0.0, attn_implementation=attn_implementation)
    agree(my_bert.train(training), bert.train(training), head_with_loss.batch(labels=True))


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
def test_training_with_dropout_from_equal_generators(head, agree, attn_implementation):
    my_bert, bert = head.matched_models(attn_implementation=attn_implementation, classifier_dropout=0.3)
    agree(my_bert.train(), bert.train(), head.batch(labels=True))


EAGER = {"attn_implementation": "eager"}
BOTH = {"output_hidden_states": True, "output_attentions": True}


@pytest.mark.parametrize(
    ("settings", "padding", "arguments"),
    [
        *((EAGER, padding, BOTH) for padding in (None, "right", "holes")),
        ({}, "right", {"output_hidden_states": True}),
        ({**EAGER, **BOTH}, "right", {}),
        ({}, "right", {"return_dict": False}),
        ({"return_dict": False}, "right", {}),
    ],
)
def test_forms_of_the_output(head, agree, settings, padding, arguments):
    """Hidden states, attentions and tuples, asked for by arguments or in the configuration."""
    agree(
        *head.matched_models(**settings),
        {**head.batch(padding, labels="output_hidden_states" not in arguments), **arguments},
    )


@pytest.mark.parametrize("name", ["token_type_ids", "position_ids"])
@pytest.mark.parametrize("rows", ["one for each sequence", "one for all"])
def test_segments_and_positions(head, agree, rows, name):
    batch = head.batch()
    ids = batch["input_ids"] % 3 if name == "token_type_ids" else (torch.arange(11) * 5 + 2) % 24
    ids = ids.expand(batch["input_ids"].shape).contiguous()
    agree(*head.matched_models(), {**batch, name: ids[:1] if rows == "one for all" and ids.dim() == 2 else ids})


def test_model_with_equal_positions_agrees_with_bert(heads, agree):
    batch = heads("Model").batch(None)
    agree(*heads("Model").matched_models(), batch | {"position_ids": torch.zeros_like(batch["input_ids"])})


def test_model_with_inputs_embeds_agrees_with_bert(head, agree):
    batch = head.batch()
    shape = (*batch.pop("input_ids").shape, 32)
    batch["inputs_embeds"] = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    agree(*head.matched_models(), batch)


def test_embeddings_and_layers_by_themselves(heads):
    """Code that calls them directly, for example to add noise, gets the same results as with transformers' BERT."""
    my_bert, bert = heads("Model").matched_models()
    ids = heads("Model").batch()["input_ids"]
    words = bert.embeddings.word_embeddings(ids)
    for model_input in ({"input_ids": ids}, {"inputs_embeds": words}, {"input_ids": ids, "token_type_ids": ids % 2}):
        torch.testing.assert_close(my_bert.embeddings(**model_input), bert.embeddings(**model_input))
    torch.testing.assert_close(my_bert.encoder.layer[0](words), bert.encoder.layer[0](words), rtol=0, atol=1e-5)


def test_gradient_of_the_input_embeddings(heads):
    head = heads("ForMaskedLM")
    gradients = []
    for model in head.matched_models():
        embeddings = torch.randn(2, 5, 32, generator=torch.Generator().manual_seed(1)).requires_grad_()
        model(inputs_embeds=embeddings).logits.square().mean().backward()
        gradients.append(embeddings.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-5)


def test_prepared_four_dimensional_mask(heads, agree):
    head = heads("Model")
    batch = head.batch(None)
    allowed = torch.rand(4, 1, 11, 11, generator=torch.Generator().manual_seed(2)) < 0.7
    allowed |= torch.eye(11, dtype=torch.bool)
    agree(*head.matched_models(), {**batch, "attention_mask": allowed})
    expected = head.matched_models()[0](**batch, attention_mask=allowed).last_hidden_state
    # Not of BERT: transformers' eager attention would add True and False to the scores.
    eager = head.matched_models(attn_implementation="eager")[0]
    found = eager(**batch, attention_mask=allowed).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("attn_implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("padding", [None, "right", "left"])
def test_left_to_right(heads, agree, padding, attn_implementation):
    head = heads("Model")
    my_bert, bert = head.matched_models(is_decoder=True, attn_implementation=attn_implementation)
    pooler, my_bert.pooler, bert.pooler = my_bert.pooler, None, None
    batch = head.batch(padding)
    agree(my_bert, bert, {**batch, "use_cache": False, "return_dict": False})
    # We pool the last token, which attends to all others; transformers pools the first, which attends to none.
    my_bert.pooler = pooler
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))
    last = [row.nonzero().max() for row in mask]
    for unpad_inputs in (True, False):
        my_bert.config.unpad_inputs = unpad_inputs
        outputs = my_bert(**batch)
        expected = pooler(outputs.last_hidden_state[torch.arange(len(last)), last][:, None])
        torch.testing.assert_close(outputs.pooler_output, expected)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("ForMaskedLM", {"tie_word_embeddings": False}),
        ("ForPreTraining", {"tie_word_embeddings": False}),
        ("Model", {"chunk_size_feed_forward": 1}),
        ("Model", {"pad_token_id": None}),
        ("Model", {"num_hidden_layers": 0}),
        *(("ForMaskedLM", {"hidden_act": act}) for act in ("gelu", "gelu_pytorch_tanh", "relu", "gelu_new")),
    ],
)
def test_model_of_unusual_settings_agrees_with_bert(heads, agree, name, settings):
    agree(*heads(name).matched_models(**settings), heads(name).batch(labels=True))


def test_padding_token_gets_no_gradient(heads, agree):
    head = heads("ForTokenClassification")
    my_bert, bert = head.matched_models(pad_token_id=4)
    batch = head.batch(labels=True)
    batch["input_ids"][0, :4] = 4
    agree(my_bert, bert, batch)
    assert my_bert.bert.embeddings.word_embeddings.weight.grad[4].abs().sum() == 0


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("problem_type", "num_labels", "labels"),
    [
        ("single_label_classification", 3, torch.tensor([0, 2, 1, 1])),
        ("single_label_classification", 3, torch.tensor([0, 2, -100, 1])),
        ("multi_label_classification", 3, torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).float()),
        ("regression", 1, torch.tensor([0.5, -1.0, 2.0, 0.25])),
        ("regression", 1, torch.tensor([[0.5], [-1.0], [2.0], [0.25]])),
        ("regression", 3, torch.linspace(-1, 1, 12).view(4, 3)),
        (None, 3, torch.tensor([0, 2, 1, 1])),
        (None, 3, torch.tensor([[0, 1, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]]).float()),
        (None, 1, torch.tensor([0.5, -1.0, 2.0, 0.25])),
    ],
)
def test_classifier_of_each_problem_type_agrees_with_bert(heads, agree, problem_type, num_labels, labels, training):
    head = heads("ForSequenceClassification")
    my_bert, bert = head.matched_models(num_labels=num_labels, problem_type=problem_type, dropout=0.0)
    agree(my_bert.train(training), bert.train(training), {**head.batch(), "labels": labels})
    assert my_bert.config.problem_type == bert.config.problem_type


@pytest.mark.parametrize("start, end", [(11, 3), (200, 500), (-1, -100), (0, 10)])
@pytest.mark.parametrize("extra_dimension", [False, True])
def test_answers_outside_the_window(heads, agree, start, end, extra_dimension):
    head = heads("ForQuestionAnswering")
    batch = head.batch(labels=True)
    batch["start_positions"][1], batch["end_positions"][1] = start, end
    if extra_dimension:
        batch.update({name: batch[name][:, None] for name in ("start_positions", "end_positions")})
    agree(*head.matched_models(), batch)


def test_shortest_and_longest_sequence(head, agree):
    agree(*head.matched_models(), {name: tensor[:1, ..., :1] for name, tensor in head.batch(None).items()})
    if head.name == "Model":
        agree(*head.matched_models(), {"input_ids": torch.arange(24).repeat(2, 1) + 1})


def test_layers_that_share_their_weights(heads, agree):
    """One module used several times, as in ALBERT or in a student model."""
    head = heads("Model")
    my_bert, bert = head.matched_models()
    for model in (my_bert, bert):
        lower, upper = model.encoder.layer
        model.encoder.layer = torch.nn.ModuleList([lower, upper, lower])
    agree(my_bert, bert, head.batch())


def test_embeddings_without_layers(head, agree):
    my_bert, bert = head.matched_models(num_hidden_layers=0, dropout=0.0)
    agree(my_bert, bert, head.batch(labels=True))
    agree(my_bert.train(), bert.train(), head.batch(labels=True))


def test_model_in_double_precision_agrees_with_bert(head, agree):
    my_bert, bert = head.matched_models()
    agree(my_bert.double(), bert.double(), head.batch(), tolerance=1e-12)


def test_model_without_some_heads_is_the_model_whose_outputs_of_these_are_zero(heads):
    """`head_dim` keeps the width of the others, by which scores are scaled."""
    head = heads("Model")
    whole, part = head.model(), head.model(num_attention_heads=2, head_dim=8)
    weights, width = whole.state_dict(), 2 * 8
    with torch.no_grad():
        for layer in whole.encoder.layer:
            layer.attention.output.dense.weight[:, width:] = 0
    for name in part.state_dict():
        if "attention.self" in name:
            weights[name] = weights[name][:width]
        elif "attention.output.dense.weight" in name:
            weights[name] = weights[name][:, :width]
    part.load_state_dict(weights)
    batch = head.batch(None)
    torch.testing.assert_close(part(**batch), whole(**batch), rtol=0, atol=1e-5)
