"""The default learning rate for a model's size, and the rate of the word embeddings."""

import json
import re
from functools import partial

import pytest
from safetensors.torch import load_file

from mybert import MyBertConfig
from mybert.finetuning import DistillationArguments, finetune, plan_finetuning
from mybert.finetuning.distillation import plan_student
from mybert.finetuning.training import plan as plan_module
from mybert.finetuning.training.parameters import rate_for_size
from mybert.finetuning.training.plan import completed

ROWS = [("the cat was happy", "good"), ("the dog was sad", "bad")] * 8


@pytest.fixture
def arguments(short_run):
    return partial(short_run, train_file=ROWS, max_steps=1, per_device_train_batch_size=4)


@pytest.mark.parametrize(
    ("hidden_size", "rate"), [(128, 3e-4), (256, 1.5e-4), (384, 1e-4), (512, 7.5e-5), (768, 5e-5), (1024, 3.75e-5)]
)
def test_rate_for_size_follows_the_hidden_size(tmp_path, hidden_size, rate):
    MyBertConfig(hidden_size=hidden_size, num_attention_heads=4).save_pretrained(tmp_path)
    assert rate_for_size(5e-5, str(tmp_path)) == (rate, f"5e-05 x 768 / hidden size {hidden_size}")


@pytest.mark.parametrize(
    ("settings", "rate", "why"),
    [
        ({}, 1.2e-3, "5e-05 x 768 / hidden size 32"),
        ({"task": "swag"}, 4.8e-4, "2e-05 x 768 / hidden size 32"),
        ({"lora": True}, 5e-4, "for adapters"),
        ({"task": "ner", "approach": "features"}, 1e-3, "for a tagger on features"),
        ({"learning_rate": 1e-4}, 1e-4, ""),
    ],
)
def test_completed_explains_a_default_rate(arguments, settings, rate, why):
    plan = plan_finetuning(arguments(**settings))
    plan = completed(plan, plan.task, 1, {})
    assert (plan.value("learning_rate"), plan.reason("learning_rate")) == (rate, why)
    assert plan.training.learning_rate == rate


def test_completed_learning_rate_of_students(arguments, tmp_path):
    finetuned = tmp_path / "out"
    finetune(arguments())
    for student, rate in (("1x64", 5e-4), (str(finetuned), 1.2e-3)):
        settings = {"teacher": str(finetuned), "student": student, "train_file": ROWS, "use_cpu": True}
        plan = plan_student(DistillationArguments(output_dir=str(tmp_path / "student"), **settings))
        assert completed(plan, plan.task, 1, {}).training.learning_rate == rate


def test_finetune_states_the_default_learning_rate(arguments, tmp_path, caplog):
    caplog.set_level("INFO")
    finetune(arguments(logging_steps=1, warmup_steps=0))
    reason = "0.0012 (5e-05 x 768 / hidden size 32)"
    assert re.search(r"learning_rate +0\.0012  \(5e-05 x 768 / hidden size 32\)", caplog.text)
    assert f"| learning rate | {reason} |" in (tmp_path / "out" / "README.md").read_text()
    assert json.loads((tmp_path / "out" / "run.json").read_text())["learning_rate"] == 1.2e-3
    logged = json.loads((tmp_path / "out" / "trainer_state.json").read_text())["log_history"]
    assert logged[0]["learning_rate"] == 1.2e-3


@pytest.mark.parametrize(
    ("settings", "factor"),
    [
        ({}, 10),
        ({"learning_rate": 1e-3, "layer_decay": 0.9}, 10),
        ({"embedding_learning_rate": 1}, 1),
        ({"max_train_samples": 10}, 1),
        ({"train_file": [{"text": text, "text_pair": text, "label": label} for text, label in ROWS]}, 1),
        ({"task": "regression", "train_file": [(text, len(label)) for text, label in ROWS]}, 1),
        ({"task": "tagging", "train_file": [{"tokens": ["a", "b"], "tags": ["B-x", "O"]}] * 16}, 1),
        ({"freeze_layers": 1}, 1),
        ({"freeze": "encoder"}, 1),
    ],
)
def test_finetune_of_many_texts_moves_word_embeddings_faster(arguments, tmp_path, monkeypatch, settings, factor):
    monkeypatch.setattr(plan_module, "_FACTOR_FROM", len(ROWS))
    finetune(arguments(**settings))
    assert json.loads((tmp_path / "out" / "run.json").read_text())["embedding_learning_rate"] == factor
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("| learning rate of word embeddings | x 10 |" in card) == (factor == 10)


@pytest.mark.parametrize(("hidden_size", "texts", "factor"), [(128, 50_000, 10), (128, 49_999, 1), (132, 50_000, 1)])
def test_completed_embedding_rate_follows_size_and_texts(arguments, tmp_path, hidden_size, texts, factor):
    MyBertConfig(hidden_size=hidden_size, num_attention_heads=4).save_pretrained(tmp_path)
    plan = plan_finetuning(arguments(model=str(tmp_path)))
    assert completed(plan, plan.task, texts, {}).value("embedding_learning_rate") == factor


def test_a_schedule_that_does_not_fit_the_default_rate_is_refused(arguments):
    settings = {"lr_scheduler_type": "polynomial", "lr_scheduler_kwargs": {"lr_end": 0.1}}
    with pytest.raises(ValueError, match="lr_scheduler_type is 'polynomial' with lr_scheduler_kwargs"):
        finetune(arguments(**settings))


@pytest.mark.parametrize("schedule", ["reduce_lr_on_plateau", "greedy"])
@pytest.mark.parametrize(
    ("metric", "given", "expected"),
    [
        ("accuracy", None, {"mode": "max"}),
        ("accuracy", {"patience": 1}, {"mode": "max", "patience": 1}),
        ("accuracy", {"mode": "min"}, {"mode": "min"}),
        ("loss", {"patience": 1}, {"patience": 1}),
        ("mae", None, None),
    ],
)
def test_schedules_by_evaluations_follow_the_direction_of_the_metric(arguments, schedule, metric, given, expected):
    """transformers would reduce the rate while the accuracy rises."""
    settings = {"lr_scheduler_type": schedule, "lr_scheduler_kwargs": given, "metric_for_best_model": metric}
    plan = plan_finetuning(arguments(validation_file=ROWS, eval_strategy="epoch", **settings))
    assert (plan.training.lr_scheduler_kwargs or None) == expected


@pytest.mark.parametrize("settings", [{}, {"optim": "google"}, {"optim": "muon"}, {"optim": "adafactor"}])
def test_finetune_moves_word_embeddings_by_their_own_rate(arguments, pretrained, tmp_path, settings):
    """The first step of Adam moves each weight by about its learning rate."""
    moved = []
    for name, factor in (("usual", 1.0), ("faster", 10.0)):
        settings |= {"embedding_learning_rate": factor, "dropout": 0.0, "warmup_steps": 0, "learning_rate": 1e-4}
        finetune(arguments(name, **settings, weight_decay=0.0))
        weights = load_file(tmp_path / name / "model.safetensors")
        start = load_file(pretrained / "model.safetensors")
        names = [f"bert.embeddings.{part}_embeddings.weight" for part in ("word", "position")]
        moved.append([(weights[each] - start[each]).abs().max().item() for each in names])
    assert moved[1][0] == pytest.approx(10 * moved[0][0], rel=0.05)
    assert moved[1][1] == pytest.approx(moved[0][1], rel=0.05)
    card = (tmp_path / "faster" / "README.md").read_text()
    assert "| learning rate of word embeddings | x 10 |" in card
    assert (
        ("| optim | muon |" in card) == ("| learning rate of Muon | 0.007 |" in card) == ("muon" in settings.values())
    )
