"""Hooks of other tools see the rows of the batch; hooks that need no rows do not prevent packing."""

import pytest
import torch
from torch.nn.utils import parametrizations, prune
from transformers.integrations.neftune import neftune_post_forward_hook

from mybert.modeling_mybert.hooks_mybert import is_changed

NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def register_forward(module, seen):
    module.register_forward_hook(lambda module, inputs, output: seen.append(tuple(output.shape)))


def register_forward_pre(module, seen):
    def see(module, inputs, keywords):
        seen.append(tuple((inputs or [keywords["input_ids"]])[0].shape))

    module.register_forward_pre_hook(see, with_kwargs=True)


def register_backward(module, seen):
    module.register_full_backward_hook(lambda module, before, after: seen.append(tuple(after[0].shape)))


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("register", [register_forward, register_forward_pre, register_backward])
@pytest.mark.parametrize(
    "place", ["embeddings", "encoder.layer.1", "encoder.layer.0.attention.self.key", "encoder.layer.1.output.dense"]
)
def test_a_hook_inside_sees_the_rows_of_the_batch(heads, agree, place, register):
    head = heads("Model")
    ours, theirs = head.twins(**NO_DROPOUT)
    batch, seen = head.batch("right"), []
    register(ours.get_submodule(place), seen)
    agree(ours, theirs, batch)
    assert seen and {shape[:2] for shape in seen} == {tuple(batch["input_ids"].shape)}


def test_a_hook_sees_the_sequences_of_a_flattened_row_in_their_order(heads):
    model, seen = heads("Model").model(), []
    ids = torch.randint(1, 61, (1, 12), generator=torch.Generator().manual_seed(1))
    lengths = (3, 7, 2)
    row = {"input_ids": ids, "cu_seq_lens_q": torch.tensor([0, 3, 10, 12])}
    expected = model(**row).last_hidden_state
    model.encoder.layer[1].register_forward_hook(lambda module, inputs, output: seen.append(output))
    torch.testing.assert_close(model(**row).last_hidden_state, expected, rtol=0, atol=1e-5)
    alone = torch.cat([model(part).last_hidden_state for part in ids.split(lengths, 1)], 1)
    torch.testing.assert_close(seen[0], alone, rtol=0, atol=1e-5)


def test_hooks_that_need_no_rows_leave_the_batch_packed(heads, watch):
    model, batch = heads("Model").model(), heads("Model").batch()
    model(**batch, output_hidden_states=True)  # transformers installs its own
    layer = model.encoder.layer[1]
    prune.l1_unstructured(layer.intermediate.dense, "weight", amount=0.5)
    parametrizations.weight_norm(layer.output.dense)
    model.register_forward_hook(lambda module, inputs, output: None)  # the trunk itself has the batch's shape
    seen = watch(model.encoder.layer[0])
    model(**batch)
    assert seen == [(1, int(batch["attention_mask"].sum()), 32)]
    assert not is_changed(model.encoder)


@pytest.mark.parametrize("padding", ["right", "left", None])
def test_noise_on_the_embeddings_is_that_of_bert(heads, watch, padding):
    """NEFTune's noise depends on the batch's shape; for equal shapes it is bitwise equal."""
    head = heads("Model")
    ours, theirs = head.twins(**NO_DROPOUT)
    batch, noise = head.batch(padding), []
    outputs = []
    for model in (ours, theirs):
        words = model.train().get_input_embeddings()
        words.neftune_noise_alpha = 5.0
        words.register_forward_hook(neftune_post_forward_hook)
        words.register_forward_hook(lambda module, inputs, output: noise.append(output - module.weight[inputs[0]]))
        torch.manual_seed(3)
        outputs.append(head.at_tokens(model(**batch).last_hidden_state, batch))
    assert torch.equal(noise[0], noise[1]) and noise[0].abs().max() > 0.1
    torch.testing.assert_close(*outputs, rtol=0, atol=1e-5)
    gradients = []
    for model, output in zip((ours, theirs), outputs, strict=True):
        output.square().sum().backward()
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-4)
    if padding == "right":
        seen = watch(ours.encoder.layer[0])
        ours(**batch)
        assert seen == [(1, int(batch["attention_mask"].sum()), 32)]  # the layers run packed all the same
