"""`--ema_decay`: the average is evaluated and saved, but not trained."""

import pytest
import torch
from safetensors.torch import load_file

from mybert.pretraining import PretrainingArguments, pretrain


def settings(tmp_path, text_file, **others):
    return PretrainingArguments(
        **{
            "text": [str(text_file)],
            "output_dir": str(tmp_path / "run"),
            "vocab_size": 60,
            "layout": "compact",
            "model_size": "tiny",
            "hidden_size": 16,
            "num_hidden_layers": 1,
            "max_length": 24,
            "max_steps": 6,
            "learning_rate": 1e-2,
            "per_device_train_batch_size": 4,
            "heldout": 0.2,
            "num_processes": 1,
            "use_cpu": True,
            "disable_tqdm": True,
        }
        | others
    )


@pytest.mark.slow
def test_the_mean_is_evaluated_and_saved(tmp_path, text_file):
    pretrain(settings(tmp_path, text_file, output_dir=str(tmp_path / "plain")))
    measured = pretrain(settings(tmp_path, text_file, ema_decay=0.9))
    plain, mean = (load_file(tmp_path / name / "model.safetensors") for name in ("plain", "run"))
    checkpoint = load_file(tmp_path / "run" / "checkpoint-6" / "model.safetensors")
    name = "bert.encoder.layer.0.output.dense.weight"
    assert not torch.equal(plain[name], mean[name])
    assert torch.equal(checkpoint[name], mean[name])
    # The weights equal those of a run without an average, and are stored in the optimizer's state.
    state = torch.load(tmp_path / "run" / "checkpoint-6" / "optimizer.pt", weights_only=True)["state"].values()
    assert any(torch.equal(kept["average"], plain[name]) for kept in state)
    # A model loaded from the folder and evaluated again has the run's metrics.
    again = pretrain(settings(tmp_path, text_file, ema_decay=0.9))
    assert again["eval_mlm_loss"] == pytest.approx(measured["eval_mlm_loss"], abs=1e-9)
    assert "| weights | running mean, decay 0.9 |" in (tmp_path / "run" / "README.md").read_text()


@pytest.mark.slow
def test_the_mean_begins_longer_sequences_where_the_weights_do(tmp_path, text_file):
    second = {"phase2_max_length": 48, "phase2_steps": 2, "phase2_positions": "repeated"}
    pretrain(settings(tmp_path, text_file, ema_decay=0.9, **second))
    weight = "bert.embeddings.position_embeddings.weight"
    mean = load_file(tmp_path / "run" / "checkpoint-4" / "model.safetensors")[weight]
    state = torch.load(tmp_path / "run" / "checkpoint-4" / "optimizer.pt", weights_only=True)["state"].values()
    averages = [kept["average"] for kept in state]  # in which the weights wait
    (weights,) = (each for each in averages if each.shape == mean.shape and torch.equal(each[24:47], each[1:24]))
    assert torch.equal(mean[24:47], mean[1:24])
    assert not torch.equal(mean, weights)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ema_decay": 1.0}, r"ema_decay is 1\.0; expected a share in \[0, 1\)"),
        (
            {"ema_decay": 0.9, "load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 500},
            "ema_decay is 0.9; a mean of the weights does not go with load_best_model_at_end",
        ),
    ],
)
def test_mistakes(tmp_path, text_file, change, message):
    with pytest.raises(ValueError, match=message):
        pretrain(settings(tmp_path, text_file, **change))
