"""The last layer computes, after its attention, only the tokens that a head reads; outputs and gradients are equal."""

from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

POOLED = ("ForNextSentencePrediction", "ForSequenceClassification", "ForMultipleChoice")
PREDICTING = ("ForMaskedLM", "ForPreTraining")
SEQUENCES = {"cu_seq_lens_q": torch.tensor([0, 4, 11, 22, 33])}  # in three rows of 11 tokens


def narrow_and_whole(model: Any, batch: dict[str, Any]) -> list[tuple[Any, dict[str, torch.Tensor], int]]:
    """Output, gradients and operations: with the tokens that are read, and with all, since hidden states are asked."""
    found = []
    for settings in ({}, {"output_hidden_states": True}):
        model.zero_grad()
        with FlopCounterMode(display=False) as counter:
            outputs = model(**batch, **settings)
        outputs.loss.backward()
        gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
        found.append((outputs, gradients, counter.get_total_flops()))
    return found


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("padding", ["right", "left", "holes", None])
@pytest.mark.parametrize("name", POOLED + PREDICTING)
def test_outputs_and_gradients_are_those_of_all_tokens(heads, name, padding, training, attention):
    head = heads(name)
    model = head.model(dropout=0.0, sparse_prediction=True).train(training)
    model.set_attn_implementation(attention)
    narrow, whole = narrow_and_whole(model, head.batch(padding, labels=True, batch_size=12))
    torch.testing.assert_close(narrow[0].loss, whole[0].loss, rtol=0, atol=1e-6)
    torch.testing.assert_close(narrow[1], whole[1], rtol=0, atol=1e-5)
    logits = "prediction_logits" if name == "ForPreTraining" else "logits"
    torch.testing.assert_close(narrow[0][logits], whole[0][logits], rtol=0, atol=1e-5)
    assert narrow[2] < whole[2]


@pytest.mark.parametrize("is_decoder", [False, True])
@pytest.mark.parametrize("name", POOLED + PREDICTING)
def test_several_sequences_in_a_row(heads, name, is_decoder):
    """The pooled token is the first of each sequence, or with causal attention the last."""
    head = heads(name)
    model = head.model(dropout=0.0, sparse_prediction=True, is_decoder=is_decoder)
    ids = torch.randint(1, 61, (3, 11), generator=torch.Generator().manual_seed(1))
    batch = {**head.labels(ids, torch.Generator().manual_seed(2)), "input_ids": ids, **SEQUENCES}
    for key in {"labels", "next_sentence_label"} & batch.keys():
        if batch[key].shape != ids.shape:
            batch[key] = torch.tensor([0, 1, 1, 0])
    if name == "ForMultipleChoice":
        batch.update(input_ids=ids.flatten()[None, None], labels=torch.tensor([0, 1]))
    narrow, whole = narrow_and_whole(model, batch)
    torch.testing.assert_close(narrow[0].loss, whole[0].loss, rtol=0, atol=1e-6)
    torch.testing.assert_close(narrow[1], whole[1], rtol=0, atol=1e-5)
    assert narrow[2] < whole[2]


@pytest.mark.parametrize("settings", [{}, {"unpad_inputs": False}])
@pytest.mark.parametrize("pooler", [True, False])
def test_the_trunk_returns_the_states_that_are_needed(heads, settings, pooler):
    head = heads("Model")
    model, batch = head.my_bert_class(head.model().config, add_pooling_layer=pooler).eval(), head.batch("right")
    indices = batch["attention_mask"].flatten().nonzero().squeeze(1)[[5, 0, 9, 5]]  # any order, with a repeat
    whole = model(**batch, **settings)
    for some in (indices, indices[:0], indices.int()):
        found = model(**batch, **settings, output_indices=some)
        expected = whole.last_hidden_state.flatten(0, 1)[some]
        torch.testing.assert_close(found.last_hidden_state, expected, rtol=0, atol=1e-5)
        torch.testing.assert_close(found.pooler_output, whole.pooler_output, rtol=0, atol=1e-5)


@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning", "ignore:`is_gradient")  # about transformers' code
@pytest.mark.parametrize("place", ["bert", "bert.encoder.layer.1", "bert.encoder.layer.1.output", "bert.pooler"])
def test_a_hook_sees_the_rows_of_the_batch_in_a_graph(heads, place):
    """There the batch stays padded, hooks or not; PEFT's choose an adapter for each row and are compiled."""
    model, batch, seen = heads("ForSequenceClassification").model(return_dict=False), heads("Model").batch(), []

    def see(module: nn.Module, inputs: Any, output: Any) -> None:
        seen.append(output if isinstance(output, torch.Tensor) else output.last_hidden_state)

    model.get_submodule(place).register_forward_hook(see)
    torch.jit.trace(model, (batch["input_ids"], batch["attention_mask"]), check_trace=False)
    assert seen and {len(states) for states in seen} == {len(batch["input_ids"])}


@pytest.mark.parametrize("settings", [{}, {"unpad_inputs": False}])
@pytest.mark.parametrize("name", POOLED)
def test_a_hook_on_the_trunk_sees_all_hidden_states(heads, name, settings):
    """`model.bert` is where features of a classifier are taken."""
    model, batch, seen = heads(name).model(**settings), heads(name).batch("right"), []
    expected = model(**batch, output_hidden_states=True)
    model.bert.register_forward_hook(lambda module, inputs, output: seen.append(output.last_hidden_state))
    logits = model(**batch).logits
    torch.testing.assert_close(seen[0], expected.hidden_states[-1], rtol=0, atol=1e-5)
    torch.testing.assert_close(logits, expected.logits, rtol=0, atol=1e-5)
