"""Wrong inputs raise one clear sentence instead of an index error from a kernel, without slowing a GPU."""

import re

import pytest
import torch

import mybert

IDS = torch.arange(1, 9).view(2, 4)


def refused(model, sentence, **inputs):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        model(**inputs)


@pytest.fixture(params=[False, True], ids=["evaluation", "training"])
def model(request, heads):
    """The trunk, in eval and in training mode."""
    return heads("Model").model().train(request.param)


def test_exactly_one_of_ids_and_embeddings(model):
    sentence = "Exactly one of input_ids and inputs_embeds must be given."
    refused(model, sentence)
    refused(model, sentence, input_ids=IDS, inputs_embeds=torch.zeros(2, 4, 32))


def test_shape_of_ids(model):
    refused(model, "input_ids has shape (4,); expected (batch, tokens).", input_ids=IDS[0])
    refused(model, "input_ids has shape (1, 2, 4); expected (batch, tokens).", input_ids=IDS[None])


def test_shape_of_embeddings(model):
    refused(model, "inputs_embeds has shape (2, 4, 31); expected (", inputs_embeds=torch.zeros(2, 4, 31))
    refused(model, "inputs_embeds has shape (4, 32); expected (", inputs_embeds=torch.zeros(4, 32))


def test_type_of_ids(model):
    refused(model, "input_ids has type torch.float32; expected int64 or int32.", input_ids=IDS.float())
    refused(
        model,
        "token_type_ids has type torch.bool; expected int64 or int32.",
        input_ids=IDS,
        token_type_ids=IDS > 2,
    )


@pytest.mark.parametrize("wrong", [61, 9999, -1, -100])
def test_token_ids_outside_the_vocabulary(model, wrong):
    ids = IDS.clone()
    ids[1, 2] = wrong
    refused(model, f"input_ids holds {wrong}; expected values from 0 to 60.", input_ids=ids)


def test_token_ids_after_resizing(model):
    model.resize_token_embeddings(70)
    model(input_ids=IDS + 61)
    refused(model, "input_ids holds 70; expected values from 0 to 69.", input_ids=IDS + 62)


def test_token_ids_with_other_word_embeddings(model):
    """Adapters replace the word embeddings by a module of their own."""
    words = model.get_input_embeddings()
    expected = model.eval()(input_ids=IDS).last_hidden_state
    model.set_input_embeddings(torch.nn.Sequential(words))
    assert torch.equal(model(input_ids=IDS).last_hidden_state, expected)
    refused(model, "input_ids holds 61; expected values from 0 to 60.", input_ids=IDS + 53)


@pytest.mark.parametrize(
    "settings",
    [{"target_modules": ["word_embeddings"]}, {"target_modules": ["query"], "trainable_token_indices": [5]}],
)
def test_word_embeddings_under_an_adapter(heads, settings):
    peft = pytest.importorskip("peft")
    model = heads("ForSequenceClassification").model()
    expected = model(input_ids=IDS).logits
    adapted = peft.get_peft_model(model, peft.LoraConfig(**settings))
    assert torch.equal(adapted.eval()(input_ids=IDS).logits, expected)  # a new adapter changes nothing


@pytest.mark.parametrize("wrong", [3, -1])
def test_segments_outside_the_table(model, wrong):
    refused(
        model,
        f"token_type_ids holds {wrong}; expected values from 0 to 2.",
        input_ids=IDS,
        token_type_ids=torch.full_like(IDS, wrong),
    )


@pytest.mark.parametrize("wrong", [24, -1])
def test_positions_outside_the_table(model, wrong):
    refused(
        model,
        f"position_ids holds {wrong}; expected values from 0 to 23.",
        input_ids=IDS,
        position_ids=torch.full_like(IDS, wrong),
    )


def test_too_long(model):
    sentence = "The sequence has 25 tokens; this model reads at most 24 (max_position_embeddings)."
    refused(model, sentence, input_ids=torch.ones(1, 25, dtype=torch.long))
    refused(model, sentence, inputs_embeds=torch.ones(1, 25, 32))


def test_longer_than_the_positions_with_positions_that_start_again(model):
    """Packed sequences: only positions outside the embedding table are an error."""
    model(input_ids=torch.ones(1, 40, dtype=torch.long), position_ids=torch.arange(20).repeat(2)[None])


@pytest.mark.parametrize("name", ["token_type_ids", "position_ids"])
@pytest.mark.parametrize("shape", [(2, 3), (3, 4), (4,), (2, 4, 1)])
def test_shapes_that_do_not_match(model, name, shape):
    ids = torch.zeros(shape, dtype=torch.long)
    refused(model, f"{name} has shape {shape}; expected (2, 4)", input_ids=IDS, **{name: ids})
    refused(model, f"{name} has shape {shape}; expected (2, 4)", inputs_embeds=torch.zeros(2, 4, 32), **{name: ids})


@pytest.mark.parametrize("shape", [(2, 3), (2, 5), (1, 4), (4,), (2, 4, 4)])
def test_masks_that_do_not_match(model, shape):
    refused(
        model,
        f"attention_mask has shape {shape}; expected (2, 4), or four dimensions",
        input_ids=IDS,
        attention_mask=torch.ones(shape),
    )


def test_prepared_masks_of_integers(model):
    """SDPA raises an unclear error for them, and eager attention would add them to the scores."""
    sentence = "attention_mask has type torch.int64; a prepared mask is expected to be bool"
    refused(model, sentence, input_ids=IDS, attention_mask=torch.ones(2, 1, 4, 4, dtype=torch.long))


def test_all_heads_check_their_inputs(head):
    model, batch = head.model(), head.batch()
    batch["input_ids"][..., 2] = 61
    refused(model, "input_ids holds 61; expected values from 0 to 60.", **batch)


def test_multiple_choice_needs_choices(heads):
    model = heads("ForMultipleChoice").model()
    refused(model, "input_ids has shape (2, 4); expected (batch, choices, tokens).", input_ids=IDS)
    sentence = "inputs_embeds has shape (2, 4, 32); expected (batch, choices, tokens, 32)."
    refused(model, sentence, inputs_embeds=torch.zeros(2, 4, 32))
    refused(model, "Exactly one of input_ids and inputs_embeds must be given.")


@pytest.fixture(params=[False, True], ids=["evaluation", "training"])
def labelled(request, heads):
    """A head by name, in eval and in training mode, and a batch with labels."""

    def build(name, **changes):
        head = heads(name)
        return head.model(**changes).train(request.param), head.batch(labels=True)

    return build


@pytest.mark.parametrize(("name", "classes"), [("ForMaskedLM", 61), ("ForTokenClassification", 3)])
def test_labels_of_tokens(labelled, name, classes):
    model, batch = labelled(name)
    labels = batch.pop("labels")
    refused(model, "labels has shape (4, 10); expected (4, 11).", **batch, labels=labels[:, 1:])
    refused(model, "labels has shape (44,); expected (4, 11).", **batch, labels=labels.flatten())
    sentence = f"expected values from 0 to {classes - 1}."
    refused(model, f"labels holds {classes}; {sentence}", **batch, labels=labels.clamp(min=classes))
    refused(model, f"labels holds -1; {sentence}", **batch, labels=labels.clamp(max=-1))
    refused(model, "labels has type torch.float32; expected int64 or int32.", **batch, labels=labels.float())


@pytest.mark.parametrize(
    ("name", "classes"), [("ForNextSentencePrediction", 2), ("ForSequenceClassification", 3), ("ForMultipleChoice", 2)]
)
def test_labels_of_sequences(labelled, name, classes):
    model, batch = labelled(name)
    labels = batch.pop("labels")
    refused(model, "labels has shape (3,); expected (4,).", **batch, labels=labels[:3])
    sentence = f"labels holds {classes}; expected values from 0 to {classes - 1}."
    refused(model, sentence, **batch, labels=torch.full((4,), classes))


def test_labels_of_pretraining(labelled):
    model, batch = labelled("ForPreTraining")
    three, two = torch.zeros(3).long(), torch.full((4,), 2)
    refused(model, "next_sentence_label has shape (3,); expected (4,).", **{**batch, "next_sentence_label": three})
    sentence = "next_sentence_label holds 2; expected values from 0 to 1."
    refused(model, sentence, **{**batch, "next_sentence_label": two})
    refused(model, "labels has shape (4,); expected (4, 11).", **{**batch, "labels": two})


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_a_value_for_each_logit(labelled, problem_type):
    model, batch = labelled("ForSequenceClassification", problem_type=problem_type)
    batch["labels"] = torch.zeros(4)
    refused(model, f"labels has shape (4,); {problem_type} needs a value for each of the (4, 3) logits.", **batch)


@pytest.mark.parametrize("name", ["start_positions", "end_positions"])
def test_answer_positions(labelled, name):
    model, batch = labelled("ForQuestionAnswering")
    refused(model, f"{name} has type torch.float32; expected int64", **{**batch, name: batch[name].float()})
    batch[name] = batch[name][:3]
    refused(model, f"{name} has shape (3,); expected (4,).", **batch)


def test_training_on_an_accelerator_looks_at_no_value(head, monkeypatch):
    """Reading a value makes the host wait for the device. The meta device stands in for any but a CPU."""

    def waits(*args, **kwargs):
        raise AssertionError("a value was looked at")

    monkeypatch.setattr(torch, "aminmax", waits)
    batch = {name: tensor.to("meta") for name, tensor in head.batch(None, labels=True).items()}
    if head.name in ("ForMaskedLM", "ForPreTraining"):
        batch.pop("labels")  # counting the labelled positions reads values, but is not a check
    head.model().to("meta").train()(**batch)
    # In eval mode values are checked, which proves that the patched function is the right one.
    with pytest.raises(AssertionError, match="a value was looked at"):
        head.model()(**head.batch())


def test_shapes_are_checked_on_every_device(heads):
    model = heads("Model").model().to("meta").train()
    refused(model, "input_ids has shape (4,); expected (batch, tokens).", input_ids=IDS[0].to("meta"))


@pytest.mark.parametrize(("rows", "length"), [(0, 5), (2, 0)])
def test_empty_batch(model, rows, length):
    sentence = f"The batch is empty: {rows} sequences of {length} tokens."
    refused(model, sentence, input_ids=torch.zeros(rows, length, dtype=torch.long))
    refused(model, sentence, inputs_embeds=torch.zeros(rows, length, 32))


def test_32_bit_ids_and_labels(head):
    """NumPy's default on some systems; transformers accepts such ids, but not such labels."""
    model, batch = head.model(), head.batch(labels=True)
    expected = model(**batch)
    found = model(**{name: tensor.int() for name, tensor in batch.items()})
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())


def test_the_sentence_is_the_same_for_every_caller():
    model = mybert.MyBertModel(mybert.MyBertConfig(num_hidden_layers=0, vocab_size=10, hidden_size=12))
    with pytest.raises(ValueError, match=r"^input_ids holds 10; expected values from 0 to 9\.$"):
        model(torch.tensor([[10]]))
