"""Regression learns standardized numbers, and everything that a user sees is in the unit of the data."""

from functools import partial

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoConfig, pipeline

import mybert
from mybert import MyBertForSequenceClassification
from mybert.finetuning import finetune
from mybert.finetuning.data import Labels
from mybert.finetuning.heads import fold_target_scale, learn_standardized
from mybert.finetuning.tasks import number

WORDS = {"happy": 3.0, "sad": -3.0, "fish": 1.0, "under": -1.0}
ROWS = [
    (f"the {noun} was {word} {end}", value + (end == "very"))
    for noun in ("cat", "dog", "tree", "mat")
    for word, value in WORDS.items()
    for end in ("today", "very", "and")
]
MINUTES = [(text, 30 * value + 500) for text, value in ROWS]


@pytest.fixture
def arguments(short_run):
    defaults = {"task": "regression", "train_file": MINUTES, "validation_file": MINUTES[::2], "num_train_epochs": 2}
    defaults |= {"learning_rate": 3e-3, "per_device_train_batch_size": 8, "dropout": 0.0}
    return partial(short_run, save_strategy="no", **defaults)


def values_of(folder):
    return np.array([row["score"] for row in mybert.predict(folder, [text for text, _ in ROWS])])


@pytest.mark.parametrize(
    "settings", [{}, {"lora": True}, {"keep_model_type": True}, {"max_length": 6, "window_pooling": "mean"}]
)
def test_finetune_gives_the_same_model_in_every_unit(arguments, tmp_path, settings):
    found = []
    for scale, offset in ((1, 0), (1e-4, 0.0), (1e4, -2e5)):
        rows = [(text, scale * value + offset) for text, value in ROWS]
        finetune(arguments(str(scale), train_file=rows, validation_file=rows[::2], num_train_epochs=1, **settings))
        found.append(load_file(tmp_path / str(scale) / "model.safetensors"))
        expected = found[0] | {"classifier.weight": found[0]["classifier.weight"] * scale}
        expected["classifier.bias"] = found[0]["classifier.bias"] * scale + offset
        for name, value in expected.items():
            tolerance = 1e-3 * (scale if name.startswith("classifier") else 1)
            assert torch.allclose(found[-1][name], value, rtol=1e-5, atol=tolerance), name


def test_finetune_measures_numbers_in_their_unit(arguments, tmp_path, log_history):
    metrics = finetune(arguments(test_file=MINUTES[1::2], num_train_epochs=8, save_strategy="epoch"))
    assert metrics["pearson"] > 0.9
    assert metrics["mae"] < metrics["rmse"] < np.std([value for _, value in MINUTES])
    found = values_of(tmp_path / "out")
    errors = found - np.array([value for _, value in MINUTES])
    assert metrics["mae"] == pytest.approx(np.abs(errors[::2]).mean(), rel=1e-3)
    assert metrics["test_rmse"] == pytest.approx(np.sqrt((errors[1::2] ** 2).mean()), rel=1e-3)
    for entry in log_history():
        if "eval_rmse" in entry:
            assert entry["eval_loss"] == pytest.approx(entry["eval_rmse"] ** 2, rel=1e-4)
    assert log_history()[0]["loss"] == pytest.approx(np.var([value for _, value in MINUTES]), rel=0.6)


@pytest.mark.parametrize(
    ("settings", "is_greater"),
    [
        ({}, True),
        ({"metric_for_best_model": "spearmanr"}, True),
        ({"metric_for_best_model": "mae"}, False),
        ({"metric_for_best_model": "eval_rmse"}, False),
        ({"metric_for_best_model": "rmse", "greater_is_better": True}, True),
    ],
)
def test_plan_finetuning_takes_lower_errors_for_better(arguments, look, settings, is_greater):
    plan, _ = look(arguments(**settings))
    assert plan.training.greater_is_better is is_greater


def test_finetune_keeps_the_checkpoint_of_the_lowest_error(arguments, tmp_path, log_history):
    opposite = [(text, -value) for text, value in MINUTES]  # so that the error rises
    rates = {"metric_for_best_model": "mae", "early_stopping_patience": 1, "num_train_epochs": 3}
    metrics = finetune(arguments(save_strategy="epoch", validation_file=opposite, **rates))
    errors = [entry["eval_mae"] for entry in log_history() if "eval_mae" in entry]
    assert errors[0] < errors[1] and metrics["mae"] == pytest.approx(errors[0])
    assert len(errors) == 3  # of two epochs, and of the end


@pytest.mark.parametrize(("metric", "has_learned"), [("mae", True), ("pearson", False)])
def test_finetune_warns_of_scores_of_0_but_not_of_errors(arguments, monkeypatch, caplog, metric, has_learned):
    monkeypatch.setattr(number, "value_scores", lambda *_: {"pearson": 0.0, "mae": 0.0})
    finetune(arguments(metric_for_best_model=metric, num_train_epochs=1))
    assert ("has not learned the task" not in caplog.text) == has_learned


def test_finetune_saves_a_plain_model(arguments, tmp_path):
    finetune(arguments())
    assert not hasattr(AutoConfig.from_pretrained(tmp_path / "out"), "target_scale")
    run = pipeline("text-classification", str(tmp_path / "out"), function_to_apply="none")
    found = [row["score"] for row in run([text for text, _ in MINUTES])]
    assert found == pytest.approx(values_of(tmp_path / "out"), rel=1e-4)


def test_an_adapter_alone_has_the_unit_of_the_data(arguments, tmp_path, pretrained):
    peft = pytest.importorskip("peft")
    finetune(arguments(lora=True))
    base = MyBertForSequenceClassification.from_pretrained(pretrained, num_labels=1)
    merged = peft.PeftModel.from_pretrained(base, tmp_path / "out" / "adapter").merge_and_unload().state_dict()
    saved = load_file(tmp_path / "out" / "model.safetensors")
    assert all(torch.allclose(merged[name], saved[name], rtol=1e-5, atol=1e-5) for name in saved)


def test_a_checkpoint_predicts_in_the_unit_of_the_data(arguments, tmp_path, log_history):
    finetune(arguments(save_strategy="epoch", save_total_limit=None))
    for checkpoint in sorted((tmp_path / "out").glob("checkpoint-*")):
        assert hasattr(AutoConfig.from_pretrained(checkpoint), "target_scale")
        step = int(checkpoint.name.rpartition("-")[2])
        logged = next(entry for entry in log_history() if entry["step"] == step and "eval_mae" in entry)
        assert mybert.evaluate(checkpoint, MINUTES[::2])["mae"] == pytest.approx(logged["eval_mae"], rel=1e-4)
    again = finetune(arguments("more", model=str(checkpoint), max_steps=1, learning_rate=0.0))
    assert again["mae"] == pytest.approx(logged["eval_mae"], rel=1e-4)
    classes = [(text, "high" if value > 0 else "low") for text, value in ROWS]  # of a checkpoint with a new head
    settings = {"task": "classification", "train_file": classes, "validation_file": classes, "max_steps": 1}
    finetune(arguments("classes", model=str(checkpoint), new_head=True, **settings))
    assert not hasattr(AutoConfig.from_pretrained(tmp_path / "classes"), "target_scale")


def test_a_kept_head_gives_the_same_numbers_at_the_start(arguments, tmp_path):
    finetune(arguments())
    finetune(arguments("more", model=str(tmp_path / "out"), learning_rate=0.0, max_steps=1, train_file=MINUTES[:8]))
    assert values_of(tmp_path / "more") == pytest.approx(values_of(tmp_path / "out"), rel=1e-5)


def test_equal_numbers_are_learned(arguments, tmp_path):
    rows = [(text, 0.1) for text, _ in ROWS]
    finetune(arguments(train_file=rows, validation_file=None, num_train_epochs=8))
    assert values_of(tmp_path / "out") == pytest.approx(0.1, abs=0.05)


def test_distill_learns_the_numbers_of_the_teacher(arguments, tmp_path):
    finetune(arguments(num_train_epochs=8))
    settings = {"teacher": str(tmp_path / "out"), "student": str(tmp_path / "out"), "from_scratch": True}
    settings |= {"unlabeled": [{"text": text} for text, _ in ROWS], "num_train_epochs": 20, "learning_rate": 3e-3}
    settings |= {"per_device_train_batch_size": 8, "use_cpu": True, "disable_tqdm": True, "save_strategy": "no"}
    mybert.distill(output_dir=str(tmp_path / "student"), **settings)
    teacher = values_of(tmp_path / "out")
    assert np.abs(values_of(tmp_path / "student") - teacher).mean() < 0.5 * teacher.std()


def test_learn_standardized_has_the_gradients_of_standardized_numbers(pretrained):
    ids = torch.tensor([[5, 6, 7], [8, 9, 10]])
    targets = torch.tensor([[20.0], [60.0]])
    model = MyBertForSequenceClassification.from_pretrained(pretrained, num_labels=1, problem_type="regression").eval()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    model(ids, labels=(targets - 40) / 20).loss.backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    hook = learn_standardized(model, targets.flatten().tolist(), has_new_head=True)
    outputs = model(ids, labels=targets)
    assert outputs.loss.item() == pytest.approx((outputs.logits - targets).square().mean().item())
    outputs.loss.backward()
    for name, parameter in model.named_parameters():
        assert torch.allclose(parameter.grad, expected[name], atol=1e-6), name
    assert all(torch.equal(weights[name], value) for name, value in model.state_dict().items())
    hook.remove()
    fold_target_scale(model)
    assert torch.allclose(model(ids).logits, outputs.logits, atol=1e-5)


def test_labels_that_are_numbers_are_in_numerical_order():
    names = ["10", "-1", "2", "b", "-10", "nan", "0.5", "a"]
    assert Labels.from_data(names, "data").names == ("-10", "-1", "0.5", "2", "10", "a", "b", "nan")
