"""`mybert finetune --approach contrastive`: vectors of equal labels become similar, then a head is fitted to them."""

import json
import logging

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from mybert import MyBertForSequenceClassification, MyBertTokenizer
from mybert.files.source import Source
from mybert.finetuning import finetune, plan_finetuning, predict
from mybert.finetuning.data import TaskData
from mybert.finetuning.tasks.registry import TASKS
from mybert.finetuning.training.contrastive import PairLoss, label_spread, paired
from mybert.finetuning.training.plan import pair_training

pytest.importorskip("sklearn.linear_model")

EIGHT = [(f"the {noun} was {word}", word) for noun in ("cat", "dog", "tree", "mat") for word in ("happy", "sad")]


@pytest.fixture
def contrast(tmp_path, short_run):
    """Trains on rows, by keywords, and returns its folder and metrics."""

    def train(rows, name="out", **settings):
        settings = {"learning_rate": 3e-3} | settings
        return tmp_path / name, finetune(short_run(name, train_file=rows, approach="contrastive", **settings))

    return train


def predicted(folder, rows):
    """The labels that a classifier gives the texts of rows."""
    return [answer["label"] for answer in predict(folder, [text for text, _ in rows])]


def cosines_of(folder, rows):
    """The mean cosine of the vectors that the head reads, of texts with equal labels and with others."""
    model, tokenizer = MyBertForSequenceClassification.from_pretrained(folder), MyBertTokenizer.from_pretrained(folder)
    with torch.no_grad():
        states = [model.eval().bert(**tokenizer(text, return_tensors="pt")).last_hidden_state[0] for text, _ in rows]
    vectors = torch.nn.functional.normalize(torch.stack([each.mean(0) for each in states]), dim=-1)
    same = torch.tensor([[one == other for _, other in rows] for _, one in rows])
    return float((vectors @ vectors.T)[same].mean()), float((vectors @ vectors.T)[~same].mean())


def test_contrastive_training_of_eight_rows_separates_the_vectors(contrast, pretrained, caplog):
    caplog.set_level(logging.INFO, logger="mybert")
    folder, metrics = contrast(pd.DataFrame(EIGHT, columns=["text", "label"]))
    assert metrics == {"interrupted": False}
    assert "Contrastive training: 20 steps of 8 texts, 28 pairs each; 8 texts have 28 pairs." in caplog.text
    assert [answer["label"] for answer in predict(folder, [text for text, _ in EIGHT])] == [
        label for _, label in EIGHT
    ]
    (near, far), (near_before, far_before) = cosines_of(folder, EIGHT), cosines_of(pretrained, EIGHT)
    assert near - far > 0.4 > 5 * (near_before - far_before)
    assert "contrastive: pairs of texts, then a linear head" in (folder / "README.md").read_text()


def test_contrastive_training_with_one_seed_gives_the_same_bytes(contrast):
    folders = [contrast(EIGHT, name, max_steps=3, seed=seed)[0] for name, seed in (("a", 1), ("b", 1), ("c", 2))]
    first, second, other = ((folder / "model.safetensors").read_bytes() for folder in folders)
    assert first == second != other


def test_contrastive_training_resumes_to_the_same_weights(contrast, short_run, tmp_path, monkeypatch):
    whole, _ = contrast(EIGHT, "whole", max_steps=4, save_strategy="steps", save_steps=2)
    from mybert.finetuning.training import run as training_run

    with monkeypatch.context() as patch:
        patch.setattr(training_run, "fit_linear_probe", lambda *args: (_ for _ in ()).throw(OSError("killed")))
        with pytest.raises(OSError, match="killed"):
            contrast(EIGHT, "cut", max_steps=4, save_strategy="steps", save_steps=2)
    cut, _ = contrast(EIGHT, "cut", max_steps=4, save_strategy="steps", save_steps=2)
    before, after = (load_file(folder / "model.safetensors") for folder in (whole, cut))
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize(
    ("task", "labels", "expected"),
    [
        ("classification", [0, 1, 0], [[1, 0, 1], [0, 1, 0], [1, 0, 1]]),
        (
            "multilabel",
            [[1.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
            [[1, 1 / 3, 0, 1 / 2], [1 / 3, 1, 0, 0], [0, 0, 1, 0], [1 / 2, 0, 0, 1]],
        ),
        ("regression", [0.0, 5.0, 4.0], [[1, 0, 0.2], [0, 1, 0.8], [0.2, 0.8, 1]]),
        ("scores", [[0.0, 1.0], [4.0, float("nan")], [0.0, 3.0]], [[1, 0, 0.5], [0, 1, 0], [0.5, 0, 1]]),
    ],
)
def test_similarity_of_labels_is_between_0_and_1(task, labels, expected):
    labels = torch.tensor(labels)
    found = TASKS[task].loss.similarity(labels, labels, label_spread(labels))
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32))


def test_pair_loss_is_the_mean_over_similar_and_dissimilar_pairs():
    torch.manual_seed(0)
    vectors = torch.randn(4, 5, requires_grad=True)
    labels = torch.tensor([0, 1, 0, -100])  # the last one has no label
    loss = PairLoss(TASKS["classification"].loss, torch.tensor(1.0))
    found = loss({"logits": vectors}, {"labels": labels})
    cosine = torch.nn.functional.cosine_similarity
    similar = (cosine(vectors[0], vectors[2], dim=0) - 1) ** 2
    other = (cosine(vectors[0], vectors[1], dim=0) ** 2 + cosine(vectors[1], vectors[2], dim=0) ** 2) / 2
    torch.testing.assert_close(found, (similar + other) / 2)
    torch.testing.assert_close(loss({"logits": vectors}, {"labels": labels}, 6), found * 3 / 6)
    found.backward()
    assert not vectors.grad[3].any() and vectors.grad[:3].any(1).all()


def test_pair_loss_of_one_class_has_no_dissimilar_pairs():
    loss = PairLoss(TASKS["classification"].loss, torch.tensor(1.0))
    vectors = torch.eye(2, requires_grad=True)
    assert loss({"logits": vectors}, {"labels": torch.tensor([1, 1])}).item() == 0.5


def test_paired_gives_every_text_a_partner_of_its_class():
    labels = [0, 0, 0, 1, 1, 2]
    data = TaskData(list("abcdef"), {"labels": labels, "input_ids": [[n] for n in range(6)]}, Source.of("t.tsv"))
    train, _ = paired(data, TASKS["classification"].loss, batches=9, batch=4, seed=0)
    firsts, partners = (np.array(train.inputs["input_ids"]).reshape(-1, 2)[:, side].tolist() for side in (0, 1))
    assert len(train) == 36 and sorted(firsts) == sorted(list(range(6)) * 3)
    assert all(labels[one] == labels[other] for one, other in zip(firsts, partners, strict=True))
    assert all((one == other) == (one == 5) for one, other in zip(firsts, partners, strict=True))  # it is alone
    assert [labels[index] for index in np.ravel(train.inputs["input_ids"])] == train.inputs["labels"]


@pytest.mark.parametrize(
    ("settings", "texts", "expected"),
    [
        ({}, 16, (20, 16, 0.00161)),  # 3e-4 / sqrt(steps) * 768 / hidden size 32
        ({}, 17, (22, 16, 0.00154)),
        ({}, 500, (80, 32, 0.000804)),
        ({"num_train_epochs": 20}, 400, (250, 32, 0.000456)),
        ({"max_steps": 7}, 400, (7, 32, 0.00271)),
        ({"per_device_train_batch_size": 5}, 400, (80, 4, 0.000804)),
        ({}, 1, (10, 2, 0.00228)),
        ({"gradient_accumulation_steps": 2}, 64, (20, 32, 0.00161)),
        ({"learning_rate": 1e-5}, 16, (20, 16, 1e-5)),
    ],
)
def test_pair_training_has_twenty_epochs_up_to_80_steps(short_run, rows, settings, texts, expected):
    plan = plan_finetuning(short_run(train_file=rows, approach="contrastive", **settings))
    training = pair_training(plan.settings, plan.training, texts)
    assert tuple(decision.value for decision in training) == expected


def test_a_dry_run_of_contrastive_training_shows_its_steps(short_run, rows, capsys):
    report = finetune(short_run(train_file=rows, approach="contrastive", dry_run=True))
    assert report["training"]["steps"] == 30 and report["training"]["batch size"] == 32


def test_contrastive_training_of_several_labels_pairs_and_numbers(contrast, tmp_path):
    texts = [text for text, _ in EIGHT]
    folder, _ = contrast([(text, ["a;c", "a;b"][n % 2]) for n, text in enumerate(texts)], task="multilabel")
    assert predicted(folder, EIGHT[:2]) == [["c", "a"], ["b", "a"]]
    folder, _ = contrast([(text, float(n % 2)) for n, text in enumerate(texts)], "numbers", task="regression")
    low, high = (answer["score"] for answer in predict(folder, texts[:2]))
    assert abs(low) < 0.2 and abs(high - 1) < 0.2
    pairs = [{"text": text, "text_pair": label, "label": label} for text, label in EIGHT]
    folder, _ = contrast(pairs, "pairs")
    assert [answer["label"] for answer in predict(folder, [(text, label) for text, label in EIGHT])] == [
        label for _, label in EIGHT
    ]


def test_contrastive_training_evaluates_after_the_head_is_fitted(contrast, rows):
    folder, metrics = contrast(rows, validation_split=0.25, num_seeds=2, max_steps=20)
    assert metrics["accuracy"] == 1 and len(metrics["seeds"]) == 2
    logged = json.loads((folder / "trainer_state.json").read_text())["log_history"]
    assert [entry["step"] for entry in logged if "eval_accuracy" in entry] == [20]


@pytest.mark.parametrize("approach", [{}, {"approach": "contrastive", "max_steps": 20}])
def test_class_names_train_a_classifier_without_labeled_texts(tmp_path, short_run, caplog, approach):
    caplog.set_level(logging.INFO, logger="mybert")
    finetune(short_run(class_names=["happy", "sad"], label_template="the cat was {}", **approach))
    assert predicted(tmp_path / "out", EIGHT) == [label for _, label in EIGHT]
    assert ("Linear probe on 2 vectors" in caplog.text) and ("Contrastive" in caplog.text) == bool(approach)


def test_class_names_that_are_numbers_are_texts(tmp_path, short_run):
    finetune(short_run(class_names=[1, 2]))
    assert {answer["label"] for answer in predict(tmp_path / "out", [text for text, _ in EIGHT])} <= {"1", "2"}


def test_contrastive_training_reports_a_class_of_one_example_and_a_text_of_two_classes(contrast, caplog):
    contrast([*EIGHT, ("a tree", "alone"), ("the cat was happy", "sad")], max_steps=1)
    assert "1 of 3 classes in 'label' have a single example, too few to learn and evaluate." in caplog.text
    assert "One text appears in the training data with different labels." in caplog.text


def test_contrastive_training_with_all_layers_frozen_is_an_error(contrast, tmp_path):
    with pytest.raises(ValueError, match="freeze_layers is 1 with approach 'contrastive', so nothing is trained; "):
        contrast(EIGHT, freeze_layers=1)
    assert not (tmp_path / "out").exists()


def test_contrastive_training_keeps_frozen_embeddings(contrast, pretrained):
    folder, _ = contrast(EIGHT, max_steps=2, freeze_layers=0)
    before, after = (load_file(path / "model.safetensors") for path in (pretrained, folder))
    changed = {name.split(".")[1] for name in after if name in before and not torch.equal(before[name], after[name])}
    assert changed == {"encoder"}
