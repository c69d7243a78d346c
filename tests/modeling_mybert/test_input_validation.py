"""Wrong inputs raise one clear sentence instead of an index error from a kernel, without slowing a GPU."""

import re

import pytest
import torch

IDS = torch.arange(1, 9).view(2, 4)
EMBEDDINGS = torch.zeros(2, 4, 32)
NO_INPUT = "Exactly one of input_ids and inputs_embeds must be given."
TOO_LONG = "The sequence has 25 tokens; this model reads at most 24 (max_position_embeddings)."
MASK = "attention_mask has shape {}; expected (2, 4), or four dimensions"


def refused(model, sentence, **inputs):
    with pytest.raises(ValueError, match=re.escape(sentence)):
        model(**inputs)


@pytest.fixture(params=[False, True], ids=["evaluation", "training"])
def model(request, heads):
    """The encoder, in eval and in training mode."""
    return heads("Model").model().train(request.param)


def with_one(wrong: int) -> torch.Tensor:
    """`IDS` with a wrong one."""
    return IDS.clone().index_fill_(1, torch.tensor(2), wrong)


@pytest.mark.parametrize(
    ("sentence", "inputs"),
    [
        (NO_INPUT, {}),
        (NO_INPUT, {"input_ids": IDS, "inputs_embeds": EMBEDDINGS}),
        ("input_ids has shape (4,); expected (batch, tokens).", {"input_ids": IDS[0]}),
        ("input_ids has shape (1, 2, 4); expected (batch, tokens).", {"input_ids": IDS[None]}),
        ("inputs_embeds has shape (2, 4, 31); expected (", {"inputs_embeds": EMBEDDINGS[..., 1:]}),
        ("inputs_embeds has shape (4, 32); expected (", {"inputs_embeds": EMBEDDINGS[0]}),
        ("input_ids has type torch.float32; expected int64 or int32.", {"input_ids": IDS.float()}),
        ("token_type_ids has type torch.bool; expected int", {"input_ids": IDS, "token_type_ids": IDS > 2}),
        *(
            (f"input_ids holds {wrong}; expected values from 0 to 60.", {"input_ids": with_one(wrong)})
            for wrong in (61, 9999, -1, -100)
        ),
        *(
            (
                f"{name} holds {wrong}; expected values from 0 to {limit - 1}.",
                {"input_ids": IDS, name: with_one(wrong)},
            )
            for name, limit in (("token_type_ids", 3), ("position_ids", 24))
            for wrong in (max(limit, 8), -1)
        ),
        (TOO_LONG, {"input_ids": torch.ones(1, 25, dtype=torch.long)}),
        (TOO_LONG, {"inputs_embeds": torch.ones(1, 25, 32)}),
        (TOO_LONG, {"input_ids": torch.ones(1, 30, dtype=torch.long), "cu_seq_lens_q": torch.tensor([0, 5, 30])}),
        *(
            (
                f"cu_seq_lens_q is {wrong}; expected increasing offsets into the flattened batch from 0 to 8",
                {"input_ids": IDS, "cu_seq_lens_q": torch.tensor(wrong)},
            )
            for wrong in ([0, 2], [1, 4, 8], [0, 4, 4, 8], [0, 3, 8], [0, 4, 9], [[0, 4, 8]])
        ),
        *(
            (f"{name} has shape {shape}; expected (2, 4)", {**given, name: torch.zeros(shape, dtype=torch.long)})
            for name in ("token_type_ids", "position_ids")
            for shape in ((2, 3), (3, 4), (4,), (2, 4, 1))
            for given in ({"input_ids": IDS}, {"inputs_embeds": EMBEDDINGS})
        ),
        *(
            (MASK.format(shape), {"input_ids": IDS, "attention_mask": torch.ones(shape)})
            for shape in ((2, 3), (2, 5), (1, 4), (4,), (2, 4, 4))
        ),
        # SDPA raises an unclear error for them, and eager attention would add them to the scores.
        (
            "attention_mask has type torch.int64",
            {"input_ids": IDS, "attention_mask": torch.ones(2, 1, 4, 4, dtype=torch.long)},
        ),
        *(
            (f"The batch is empty: {rows} sequences of {length} tokens.", inputs)
            for rows, length in ((0, 5), (2, 0))
            for inputs in (
                {"input_ids": torch.zeros(rows, length, dtype=torch.long)},
                {"inputs_embeds": torch.zeros(rows, length, 32)},
            )
        ),
    ],
)
def test_wrong_inputs(model, sentence, inputs):
    refused(model, sentence, **inputs)


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


def test_longer_than_the_positions_with_positions_that_start_again(model):
    """Packed sequences: only positions outside the embedding table are an error."""
    model(input_ids=torch.ones(1, 40, dtype=torch.long), position_ids=torch.arange(20).repeat(2)[None])


def test_all_heads_check_their_inputs(head):
    model, batch = head.model(), head.batch()
    batch["input_ids"][..., 2] = 61
    refused(model, "input_ids holds 61; expected values from 0 to 60.", **batch)


def test_multiple_choice_needs_choices(heads):
    model = heads("ForMultipleChoice").model()
    refused(model, "input_ids has shape (2, 4); expected (batch, choices, tokens).", input_ids=IDS)
    sentence = "inputs_embeds has shape (2, 4, 32); expected (batch, choices, tokens, 32)."
    refused(model, sentence, inputs_embeds=EMBEDDINGS)
    refused(model, NO_INPUT)


def labels_of(name: str, classes: int, labels: torch.Tensor) -> dict[str, torch.Tensor]:
    """Wrong labels, by what is said about them."""
    one_less, values = labels[..., 1:], f"expected values from 0 to {classes - 1}."
    wrong = {
        f"{name} has shape {tuple(one_less.shape)}; expected {tuple(labels.shape)}.": one_less,
        f"{name} holds {classes}; {values}": labels.clamp(min=classes),
        f"{name} holds -1; {values}": labels.clamp(max=-1),
        f"{name} has type torch.float32; expected int64 or int32.": labels.float(),
    }
    if labels.dim() > 1:
        wrong[f"{name} has shape (44,); expected (4, 11)."] = labels.flatten()
    return wrong


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("name", "label", "classes"),
    [
        ("ForMaskedLM", "labels", 61),
        ("ForTokenClassification", "labels", 3),
        ("ForNextSentencePrediction", "labels", 2),
        ("ForSequenceClassification", "labels", 3),
        ("ForMultipleChoice", "labels", 2),
        ("ForPreTraining", "labels", 61),
        ("ForPreTraining", "next_sentence_label", 2),
    ],
)
def test_wrong_labels(heads, name, label, classes, training):
    model, batch = heads(name).model().train(training), heads(name).batch(labels=True)
    model.config.problem_type = "single_label_classification"
    for sentence, labels in labels_of(label, classes, batch[label]).items():
        refused(model, sentence, **{**batch, label: labels})


@pytest.mark.parametrize("name", ["ForNextSentencePrediction", "ForSequenceClassification", "ForMultipleChoice"])
def test_labels_of_sequences_may_be_a_column(heads, name):
    model, batch = heads(name).model(), heads(name).batch(labels=True)
    assert model(**{**batch, "labels": batch["labels"][:, None]}).loss == model(**batch).loss


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_a_value_for_each_logit(heads, problem_type):
    model = heads("ForSequenceClassification").model(problem_type=problem_type)
    batch = {**heads("ForSequenceClassification").batch(), "labels": torch.zeros(4)}
    refused(model, f"labels has shape (4,); {problem_type} needs a value for each of the (4, 3) logits.", **batch)


@pytest.mark.parametrize("name", ["start_positions", "end_positions"])
def test_answer_positions(heads, name):
    model, batch = heads("ForQuestionAnswering").model(), heads("ForQuestionAnswering").batch(labels=True)
    refused(model, f"{name} has type torch.float32; expected int64", **{**batch, name: batch[name].float()})
    refused(model, f"{name} has shape (3,); expected (4,).", **{**batch, name: batch[name][:3]})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"token_indices": torch.zeros(2, 3).long()}, "token_indices has shape (2, 3)"),
        ({"token_indices": torch.tensor([0.5])}, "token_indices has type torch.float32"),
        ({"token_indices": torch.tensor([0]), "attention_mask": None}, "token_indices is given without"),
        ({"prediction_indices": torch.tensor(3)}, "prediction_indices has shape ()"),
        ({"output_indices": torch.tensor([[0, 1]])}, "output_indices has shape (1, 2); expected indices"),
        ({"output_indices": torch.tensor([0.0])}, "output_indices has type torch.float32; expected int64 or int32"),
        *(  # the batch has 4 rows of 11 tokens
            ({name: torch.tensor([3, wrong])}, f"{name} holds {wrong}; expected values from 0 to 43.")
            for name in ("token_indices", "output_indices", "prediction_indices")
            for wrong in (44, -1)
        ),
    ],
)
def test_wrong_indices(heads, changes, sentence):
    head = heads("Model" if "output_indices" in changes else "ForMaskedLM")
    refused(head.model(sparse_prediction=True), sentence, **{**head.batch("right", labels=True), **changes})


def test_shapes_are_checked_on_every_device(heads):
    model = heads("Model").model().to("meta").train()
    refused(model, "input_ids has shape (4,); expected (batch, tokens).", input_ids=IDS[0].to("meta"))


def test_32_bit_ids_and_labels(head):
    """NumPy's default on some systems; transformers accepts such ids, but not such labels."""
    model, batch = head.model(), head.batch(labels=True)
    expected = model(**batch)
    found = model(**{name: tensor.int() for name, tensor in batch.items()})
    assert all(torch.equal(found[name], tensor) for name, tensor in expected.items())
