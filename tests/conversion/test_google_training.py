"""Thirty steps of Google's own training loop: our model, loss and optimizer reach the same weights."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import mybert
from mybert.conversion import convert_google_checkpoint, key_map, load_optimizer_state, read_tensor_bundle
from mybert.runs import MyBertAdamW, parameter_groups

TRAINING = Path(__file__).parents[1] / "fixtures" / "google_tf1" / "training"


@pytest.fixture(scope="module")
def recipe():
    return json.loads((TRAINING / "recipe.json").read_text())


def load(folder, name, **arguments):
    convert_google_checkpoint(TRAINING / name, folder, **arguments, overwrite=True)
    return mybert.MyBertForPreTraining.from_pretrained(
        folder, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0
    ).train()


def make_optimizer(model, recipe):
    return MyBertAdamW(
        parameter_groups(model, recipe["weight_decay"]),
        lr=recipe["learning_rate"],
        betas=(recipe["beta_1"], recipe["beta_2"]),
        eps=recipe["epsilon"],
    )


def labels_of(batch):
    """Convert predictions, given as positions, ids and weights, to labels of all positions."""
    labels = torch.full(batch["input_ids"].shape, -100)
    rows, columns = np.nonzero(batch["masked_lm_weights"])
    places = batch["masked_lm_positions"][rows, columns]
    labels[rows, places] = torch.from_numpy(batch["masked_lm_ids"][rows, columns]).long()
    return labels


def train(model, optimizer, recipe, steps):
    """Take steps of Google's loop and give the two losses of each."""
    batches = np.load(TRAINING / "batches.npz")
    losses = []
    for step in steps:
        batch = {name: batches[name][step] for name in batches}
        inputs = {
            "input_ids": torch.from_numpy(batch["input_ids"]).long(),
            "attention_mask": torch.from_numpy(batch["input_mask"]).long(),
            "token_type_ids": torch.from_numpy(batch["segment_ids"]).long(),
        }
        next_sentence = torch.from_numpy(batch["next_sentence_labels"]).long().view(-1)
        optimizer.zero_grad()
        total = model(**inputs, labels=labels_of(batch), next_sentence_label=next_sentence)
        total.loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe["clip_norm"])
        for group in optimizer.param_groups:
            group["lr"] = recipe["learning_rate_of_each_update"][step]
        optimizer.step()
        losses.append(total.loss.item())
    return losses


def test_thirty_steps_arrive_at_googles_weights_and_moments(tmp_path, recipe):
    model = load(tmp_path / "initial", "initial")
    optimizer = make_optimizer(model, recipe)
    losses = train(model, optimizer, recipe, range(30))
    expected = np.load(TRAINING / "losses.npz")
    assert np.abs(np.array(losses) - expected["masked_lm_loss"] - expected["next_sentence_loss"]).max() < 1e-4

    final = load(tmp_path / "final", "final", optimizer_state=True)
    of_google = make_optimizer(final, recipe)
    assert load_optimizer_state(tmp_path / "final", final, of_google) == 30
    moved = 0.0
    initial = read_tensor_bundle(TRAINING / "initial" / "bert_model.ckpt")
    for row in key_map.model_rows("pretraining", 2):
        weights, expected = model.get_parameter(row.parameter), final.get_parameter(row.parameter)
        assert (weights - expected).abs().max() < 1e-4, row.parameter
        start = torch.from_numpy(row.to_parameter("google", initial[row.google]).copy())
        moved = max(moved, (start - expected).abs().max().item())
        a, b = optimizer.state[weights], of_google.state[expected]
        assert a["step"] == b["step"]
        for moment in ("exp_avg", "exp_avg_sq"):
            assert (a[moment] - b[moment]).abs().max() < 1e-4, (row.parameter, moment)
            assert b[moment].abs().max() > 0
    assert moved > 5e-3, "training moved the weights, so agreement means something"


def test_training_goes_on_where_tensorflow_stopped(tmp_path, recipe):
    """A step after the thirty: with Google's moments it equals that of a loop that never stopped."""
    unbroken = load(tmp_path / "initial", "initial")
    optimizer = make_optimizer(unbroken, recipe)
    train(unbroken, optimizer, recipe, range(30))
    resumed = load(tmp_path / "final", "final", optimizer_state=True)
    continued = make_optimizer(resumed, recipe)
    load_optimizer_state(tmp_path / "final", resumed, continued)
    forgetful = load(tmp_path / "final", "final")
    for model, adam in ((unbroken, optimizer), (resumed, continued), (forgetful, make_optimizer(forgetful, recipe))):
        train(model, adam, recipe, [3, 4])
    pairs = list(zip(unbroken.parameters(), resumed.parameters(), forgetful.parameters(), strict=True))
    assert max((a - b).abs().max().item() for a, b, _ in pairs) < 1e-5
    assert max((a - c).abs().max().item() for a, _, c in pairs) > 1e-4, "without the moments it is another step"
