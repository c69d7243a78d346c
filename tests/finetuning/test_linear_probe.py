"""`mybert finetune --approach linear_probe`: a head fitted to frozen vectors; and `auto`, which compares by folds."""

import json
import logging
import re
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from mybert import MyBertForSequenceClassification, MyBertTokenizer
from mybert.finetuning import finetune, plan_finetuning, predict
from mybert.finetuning.data import Labels
from mybert.finetuning.tasks.steps import load_task_model
from mybert.finetuning.training import run as training_run
from mybert.finetuning.training import trainer
from mybert.finetuning.training.finetune_settings import BEST, BEST_HEAD, CONTRASTIVE, FINETUNING, LINEAR_PROBE
from mybert.finetuning.training.plan import completed
from mybert.finetuning.training.trainings import Training, better_approach

linear_model = pytest.importorskip("sklearn.linear_model")

APPROACHES = {each.name: each for each in BEST.compared}


@pytest.fixture
def probe(tmp_path, short_run):
    """Fits a probe to rows, by keywords, and returns its folder and metrics."""

    def fit(rows, **settings):
        metrics = finetune(short_run(train_file=rows, approach="linear_probe", **settings))
        return tmp_path / "out", metrics

    return fit


def vectors_of(folder, texts):
    """The mean of the last hidden states of each text, by itself."""
    model, tokenizer = MyBertForSequenceClassification.from_pretrained(folder), MyBertTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model.eval().bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text in texts]
    return torch.stack([each.mean(0) for each in states]).double().numpy()


@pytest.mark.parametrize("classes", [2, 3])
def test_linear_probe_is_the_logistic_regression_on_the_means(probe, rows, pretrained, caplog, classes):
    caplog.set_level(logging.INFO)
    rows = [(text, label if classes == 2 else text.split()[1][0]) for text, label in rows if "mat" not in text]
    folder, _ = probe(rows)
    texts, labels = map(list, zip(*rows, strict=True))
    vectors = vectors_of(folder, texts)
    scaled = (vectors - vectors.mean(0)) / vectors.std()
    strength = float(re.search(r"Linear probe on 36 vectors: C = ([\de.-]+),", caplog.text)[1])
    expected = linear_model.LogisticRegression(C=strength, max_iter=1000).fit(scaled, labels)
    answers = predict(folder, texts, probabilities=True)
    assert len(expected.classes_) == classes and (expected.predict(scaled) == labels).all()
    found = [[answer[f"probability_{name}"] for name in expected.classes_] for answer in answers]
    np.testing.assert_allclose(found, expected.predict_proba(scaled), atol=2e-4)
    before, after = (load_file(path / "model.safetensors") for path in (pretrained, folder))
    frozen = [name for name in after if name.startswith("bert.")]
    assert frozen and all(torch.equal(before[name], after[name]) for name in frozen)
    card = (folder / "README.md").read_text()
    assert "linear probe: logistic regression on frozen vectors" in card and "| learning rate |" not in card
    assert not (folder / "training_curves.png").exists()


def test_linear_probe_of_a_number_is_in_its_unit(probe, rows):
    data = [(text, 1000.0 + 50 * len(text.split()) + 100 * (label == "good")) for text, label in rows]
    folder, _ = probe(data, task="regression")
    found = [answer["score"] for answer in predict(folder, [text for text, _ in data])]
    assert np.corrcoef(found, [value for _, value in data])[0, 1] > 0.95
    assert np.mean(found) == pytest.approx(np.mean([value for _, value in data]), rel=1e-3)


def test_linear_probe_of_several_labels_learns_each(probe, rows):
    data = [
        {"text": text, "labels": ["any", *(["tree"] if "tree" in text else []), *([label] if label == "bad" else [])]}
        for text, label in rows
    ]
    folder, metrics = probe(data, task="multilabel", validation_file={"": data})
    assert metrics["micro_f1"] == 1  # also of the label that all have
    weight = load_file(folder / "model.safetensors")["classifier.weight"]
    assert [bool(row.any()) for row in weight] == [False, True, True]  # any, bad, tree


def test_linear_probe_counts_windows_of_a_text_as_one(probe, rows, monkeypatch):
    given = []
    monkeypatch.setattr(trainer, "_best", lambda *args, best=trainer._best: given.append(args) or best(*args))
    data = [(" ".join([text] * (5 if label == "bad" else 1)), label) for text, label in rows]
    folder, _ = probe(data, window_pooling="mean", max_length=12, doc_stride=2)
    ((_, vectors, targets, weights, _),) = given
    assert len(vectors) > len(data) and weights.sum() == pytest.approx(len(data))
    assert weights[targets == 0].sum() == pytest.approx(sum(label == "bad" for _, label in data))
    answers = predict(folder, [text for text, _ in data])
    assert [answer["label"] for answer in answers] == [label for _, label in data]


def test_linear_probe_with_a_class_of_one_example_is_finite(probe):
    folder, _ = probe([("the cat sat", "a"), ("a dog ran", "b"), ("it was a tree", "b"), ("fish", "c")])
    weights = load_file(folder / "model.safetensors")
    assert weights["classifier.weight"].isfinite().all() and weights["classifier.bias"].isfinite().all()
    assert predict(folder, ["the cat sat"])[0]["label"] in "abc"


def test_linear_probe_offset_of_a_class_without_an_example_is_below_all_others(short_run, look, rows, pretrained):
    """By the logarithm of one more than the number of examples, so that it is as rare as less than one of them."""
    _, run = look(short_run(train_file=rows))
    labels = Labels((*run.labels.names, "never"))
    model, _ = load_task_model(run.task.with_classes(labels), str(pretrained), labels)
    run = replace(run, labels=labels)
    trainer.fit_linear_probe(model, run, short_run(train_file=rows))
    weight, bias = (value.detach().double().numpy() for value in (model.classifier.weight, model.classifier.bias))
    with torch.no_grad():
        batch = run.tokenizer([text for text, _ in rows], padding=True, return_tensors="pt")
        vectors = model.eval().bert(**batch).pooler_output.double().numpy()
    offsets = bias + weight @ vectors.mean(0)
    assert not weight[2].any() and weight[:2].any(1).all()
    assert offsets[2] == pytest.approx(offsets[:2].min() - np.log1p(len(rows)), abs=1e-4)


@pytest.mark.parametrize("approach", ["linear_probe", "contrastive"])
def test_a_fitted_head_of_a_sample_with_one_class_predicts_it(tmp_path, short_run, rows, approach):
    data = [(text, "common") for text, _ in rows] + [("a rare text", "rare")]
    finetune(short_run(train_file=data, max_train_samples=3, approach=approach))
    (answer,) = predict(tmp_path / "out", ["the cat sat"], probabilities=True)
    assert answer["label"] == "common" and answer["probability_rare"] == pytest.approx(1 / 5)


def test_linear_probe_of_equal_texts_with_numbers_is_their_mean(probe):
    folder, _ = probe([("the cat sat", 1.0), ("the cat sat", 2.0)], task="regression")
    assert predict(folder, ["the cat sat"])[0]["score"] == pytest.approx(1.5)


def test_linear_probe_of_a_first_token_reads_the_pooler(probe, rows):
    folder, _ = probe(rows, pooling="cls")
    assert any("pooler" in name for name in load_file(folder / "model.safetensors"))
    assert "classifier_pooling" not in json.loads((folder / "config.json").read_text())


def test_auto_keeps_the_first_approach_if_no_other_is_better_and_says_all_scores(
    short_run, rows, tmp_path, monkeypatch, caplog
):
    caplog.set_level(logging.INFO)
    make = partial(short_run, train_file=rows, folds=3, max_steps=1)
    result = finetune(make(approach="auto", learning_rate=1e-12))  # it learns nothing
    table = result["approaches"]
    assert (
        table["linear_probe"]["accuracy"]
        == 1
        > table["finetune"]["accuracy"] + 2 * table["finetune"]["standard error"]
    )
    assert table["contrastive"]["accuracy"] == 1 and "linear_probe  1 ± 0\n" in caplog.text
    assert "kept: contrastive, others are not better by two standard errors" in caplog.text
    out = tmp_path / "out"
    assert json.loads((out / "metrics.json").read_text())["approaches"] == table
    assert result["accuracy"] == 1 and list(result["folds"]) == ["1", "2", "3"]
    finetune(make("alone", approach="contrastive", learning_rate=1e-12, folds=0))
    assert (out / "model.safetensors").read_bytes() == (tmp_path / "alone" / "model.safetensors").read_bytes()
    card = (out / "README.md").read_text()
    assert "The approaches, in the same folds" in card and "contrastive: pairs of texts" in card
    assert not list(out.rglob("fold_*/*.safetensors"))
    monkeypatch.setattr(training_run, "fit_linear_probe", lambda *args: pytest.fail("fits again"))
    monkeypatch.setattr(training_run.TaskTrainer, "train", lambda *args, **kwargs: pytest.fail("trains again"))
    assert finetune(make(approach="auto", learning_rate=1e-12))["approaches"] == table


@pytest.mark.parametrize(
    ("metric", "scores", "kept"),
    [
        ("accuracy", {"contrastive": (0.8, 0.6), "finetune": (0.9, 0.7)}, "finetune"),
        ("loss", {"contrastive": (0.8, 0.6), "finetune": (0.9, 0.7)}, "contrastive"),
        ("loss", {"contrastive": (0.8, 0.6), "finetune": (0.7, 0.5)}, "finetune"),
        ("mae", {"contrastive": (0.8, 0.6), "finetune": (0.7, 0.5)}, "finetune"),
        # Gains of 0.2 ± 0.1, which is in doubt, of 0.2 ± 0.05, and a larger one that is in doubt.
        ("accuracy", {"contrastive": (0.5, 0.5), "finetune": (0.6, 0.8)}, "contrastive"),
        ("accuracy", {"contrastive": (0.5, 0.5), "finetune": (0.65, 0.75)}, "finetune"),
        ("accuracy", {"contrastive": (0.5, 0.5), "finetune": (0.65, 0.75), "linear_probe": (1.0, 0.6)}, "finetune"),
        ("accuracy", {"contrastive": (0.5, 0.5), "finetune": (0.6, 0.6), "linear_probe": (0.7, 0.7)}, "linear_probe"),
    ],
)
def test_another_approach_is_kept_only_if_it_is_better_by_two_errors(short_run, rows, metric, scores, kept):
    arguments = short_run(train_file=rows, approach="auto", folds=2, metric_for_best_model=metric)
    folds = [
        Training(f"{name} fold {number}", Path(), 1, lambda: None, APPROACHES[name], True, {metric: value})
        for name, values in scores.items()
        for number, value in enumerate(values)
    ]
    chosen, table = better_approach(folds, plan_finetuning(arguments), CONTRASTIVE)
    assert chosen == [fold for fold in folds if fold.approach is APPROACHES[kept]]
    mean, error = np.mean(scores["finetune"]), abs(np.subtract(*scores["finetune"])) / 2
    assert table["finetune"] == {metric: pytest.approx(mean), "standard error": pytest.approx(error)}


@pytest.mark.parametrize(
    ("settings", "texts", "epochs"),
    [
        ({}, 16, 20),
        ({}, 800, 20),  # 25 steps an epoch
        ({}, 801, 19),
        ({}, 1600, 10),
        ({}, 10**6, 3),
        ({"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}, 800, 10),
        ({"freeze": "encoder"}, 16, 20),
        ({"num_train_epochs": 4}, 16, 4),
        ({"approach": "finetune"}, 16, 3),
    ],
)
def test_fine_tuning_that_is_compared_has_more_epochs_on_few_texts(short_run, rows, settings, texts, epochs):
    plan = plan_finetuning(short_run(train_file=rows, **{"approach": "auto", "max_steps": -1} | settings))
    plan = completed(plan, plan.task, texts, {})
    assert plan.training.num_train_epochs == plan.value("num_train_epochs") == epochs


def test_in_doubt_few_labels_train_by_contrast_and_more_finetune():
    assert [BEST.in_doubt(number) for number in (1, 99.5, 100)] == [CONTRASTIVE, CONTRASTIVE, FINETUNING]
    assert BEST_HEAD.in_doubt(1000) is LINEAR_PROBE


def test_a_run_on_few_labels_offers_other_approaches(tune, rows, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    offer = "Few labels (24 texts a class): --approach contrastive or linear_probe may do better"
    tune(tmp_path / "few", rows)
    assert offer in caplog.text
    caplog.clear()
    tune(tmp_path / "scratch", rows, from_scratch=True)
    assert "Few labels" not in caplog.text
    many = [(f"{text} {number}", label) for text, label in rows for number in range(9)]
    tune(tmp_path / "many", many)
    assert "Few labels" not in caplog.text
