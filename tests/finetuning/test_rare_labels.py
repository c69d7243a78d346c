"""Fine-tuning on frequencies far from equal: the head's bias, the best checkpoint, and thresholds of rare labels."""

import json
from functools import partial

import numpy as np
import pytest
from safetensors.torch import load_file
from transformers import TrainerControl, TrainerState, TrainingArguments

from mybert import metrics
from mybert.files.source import Source
from mybert.finetuning import finetune
from mybert.finetuning.data import WINDOW_WEIGHT, Labels, TaskData
from mybert.finetuning.tasks.calibration import calibrated, calibrator_of
from mybert.finetuning.tasks.losses import ClassLoss, LabelLoss, NumberLoss, SpanTeaching, label_counts, tables_of
from mybert.finetuning.tasks.registry import TASKS
from mybert.finetuning.tasks.texts import LabelPrediction, TextExample
from mybert.finetuning.training.trainer import LossBreaksTies

NOUNS = ("cat", "dog", "tree", "mat", "fish")
CLASSES = [(f"the {noun} was {word}", word) for noun in NOUNS for word in ("sad", "sad", "sad", "happy")]
SEVERAL = [(text, [label, "any"] if "cat" in text else [label]) for text, label in CLASSES]
TAGS = [(text.split(), ["O", "B-X", "O", "O"]) for text, _ in CLASSES]


@pytest.fixture
def arguments(short_run):
    return partial(short_run, train_file=CLASSES, learning_rate=0.0, max_steps=1)


def bias_of(folder):
    names = json.loads((folder / "config.json").read_text())["id2label"].values()
    return dict(zip(names, load_file(folder / "model.safetensors")["classifier.bias"].tolist(), strict=True))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, {"sad": np.log(16 / 22), "happy": np.log(6 / 22)}),
        ({"class_weights": "balanced"}, {"sad": 0.0, "happy": 0.0}),
        ({"lora": True, "seed": 7}, {"sad": np.log(16 / 22), "happy": np.log(6 / 22)}),
        (
            {"task": "multilabel", "train_file": SEVERAL},
            {"sad": np.log(16 / 6), "happy": np.log(6 / 16), "any": np.log(5 / 17)},
        ),
        ({"task": "tagging", "train_file": TAGS}, {"O": np.log(61 / 82), "B-X": np.log(21 / 82)}),
        (  # windows of a text count as one
            {"max_length": 5, "window_pooling": "mean", "doc_stride": 0},
            {"sad": np.log(16 / 22), "happy": np.log(6 / 22)},
        ),
    ],
)
def test_a_new_head_begins_with_the_frequencies_of_the_labels(arguments, tmp_path, settings, expected):
    finetune(arguments(**settings))
    assert bias_of(tmp_path / "out") == pytest.approx(expected, abs=1e-5)


def test_a_kept_head_keeps_its_bias(arguments, tmp_path):
    finetune(arguments())
    rows = [*CLASSES, *[(text, "happy") for text, _ in CLASSES]]
    finetune(arguments("more", model=str(tmp_path / "out"), train_file=rows))
    assert bias_of(tmp_path / "more") == bias_of(tmp_path / "out")


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_the_lowest_loss_is_best_among_equal_metrics(arguments, tmp_path, metric):
    """With a small learning rate the most frequent class is always predicted, while the loss decreases."""
    settings = {"learning_rate": 1e-5, "max_steps": -1, "num_train_epochs": 3, "validation_file": CLASSES}
    settings |= {"dropout": 0.0, "early_stopping_patience": 1, "metric_for_best_model": metric}
    finetune(arguments(**settings))
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    evaluations = [entry for entry in state["log_history"] if "eval_loss" in entry][:3]  # without that of the end
    assert {entry["eval_accuracy"] for entry in evaluations} == {0.75}
    losses = [entry["eval_loss"] for entry in evaluations]
    assert losses == sorted(losses, reverse=True) and len(losses) == 3
    assert state["best_global_step"] == state["global_step"]


def test_equal_metrics_without_checkpoints(arguments):
    settings = {"max_steps": -1, "num_train_epochs": 2, "validation_file": CLASSES, "save_strategy": "no"}
    assert finetune(arguments(**settings))["accuracy"] == 0.75


@pytest.mark.parametrize(("loss", "is_better"), [(0.4, True), (0.5, False), (0.6, False)])
@pytest.mark.parametrize("greater", [True, False])
def test_loss_breaks_ties_of_the_best_data_set(loss, is_better, greater):
    args = TrainingArguments(metric_for_best_model="a_f1", greater_is_better=greater, use_cpu=True)
    history = [{"step": 1, "eval_a_f1": 0.0, "eval_a_loss": 0.5}, {"step": 1, "eval_b_f1": 0.0, "eval_b_loss": 0.1}]
    state = TrainerState(global_step=2, best_global_step=1, best_metric=0.0, log_history=history)
    LossBreaksTies().on_evaluate(args, state, TrainerControl(), {"eval_b_f1": 0.0, "eval_b_loss": 0.0})
    assert state.best_metric == 0.0
    LossBreaksTies().on_evaluate(args, state, TrainerControl(), {"eval_a_f1": 0.0, "eval_a_loss": loss})
    assert (state.best_metric < 0 if greater else state.best_metric > 0) == is_better
    assert (state.best_metric == 0.0) != is_better


def test_fit_thresholds_shrinks_those_of_rare_labels():
    generator = np.random.default_rng(0)
    references = np.zeros((1000, 3), dtype=bool)
    references[:500, 0] = references[:1, 1] = True
    scores = generator.uniform(0.0, 0.2, references.shape)
    scores[:500, 0] += 0.6
    scores[0, 1] = 0.001  # alone, its best F1 is that of predicting it everywhere
    common = metrics.best_f1_threshold(scores.ravel(), references.ravel())
    own = [metrics.best_f1_threshold(scores[:, label], references[:, label]) for label in (0, 1)]
    assert own[1] < 0.01 < 0.1 < common
    expected = [(500 * own[0] + 10 * common) / 510, (own[1] + 10 * common) / 11, common]
    assert metrics.fit_thresholds(scores, references) == pytest.approx(expected)
    assert metrics.fit_thresholds(scores, np.zeros_like(references)).tolist() == [0.5] * 3


def test_held_out_labels_are_by_thresholds_of_the_other_folds():
    generator = np.random.default_rng(1)
    references = generator.random((53, 4)) < 0.2
    scores = generator.random(references.shape)
    found = metrics.held_out_labels(scores, references)
    for fold in range(5):
        own = np.arange(53) % 5 == fold
        assert (found[own] == (scores[own] > metrics.fit_thresholds(scores[~own], references[~own]))).all()
    assert metrics.held_out_labels([[0.6, 0.4]], [[True, False]]).tolist() == [[True, False]]


def test_labels_of_validation_data_are_by_thresholds_fitted_to_the_other_texts():
    """All probabilities are below 1/2, where F1 would be 0."""
    task = TASKS["multilabel"]
    examples = [TextExample(("x",), frozenset({"a"} if number % 4 == 0 else ())) for number in range(40)]
    tables = [{"a": 0.3 if example.label else 0.1} for example in examples]
    raw = [LabelPrediction(frozenset(), table) for table in tables]
    assert task.measures(raw, examples).scores()["micro_f1"] == 0.0
    assert task.measures(calibrator_of(task).apply(raw, examples), examples).scores()["micro_f1"] == 1.0
    fitted = calibrated(task, raw, examples)
    logits = np.array([[np.log(table["a"] / (1 - table["a"]))] for table in tables])
    data = type("Data", (), {"examples": examples})
    predictions = fitted.predict(logits, data, Labels(("a", "b")[:1]))
    assert task.measures(predictions, examples).scores()["micro_f1"] == 1.0
    assert calibrator_of(fitted).apply(predictions, examples) is predictions


def test_finetune_learns_rare_labels(arguments, tmp_path, caplog):
    """Each of 12 labels holds for every twelfth text: at a probability of 1/2 nothing would be predicted."""
    words = [f"{noun} {word}" for noun in ("cat", "dog", "tree") for word in ("was", "sad", "happy", "under")]
    rows = [(f"the {words[number % 12]} {noun}", [words[number % 12]]) for number in range(240) for noun in NOUNS[:1]]
    settings = {"task": "multilabel", "train_file": rows, "validation_file": rows[:60], "test_file": rows[60:120]}
    settings |= {"learning_rate": 1e-2, "max_steps": -1, "num_train_epochs": 6, "dropout": 0.0}
    caplog.set_level("INFO", "mybert")
    found = finetune(arguments(**settings))
    assert found["micro_f1"] > 0.3 and found["test_micro_f1"] > 0.3
    assert caplog.text.count("Labels are predicted above a probability of") == 1
    record = json.loads((tmp_path / "out" / "config.json").read_text())["finetuned_for"]
    assert set(record["thresholds"]) == set(words)


def test_a_metric_of_0_in_every_evaluation_is_warned_about(arguments, caplog):
    settings = {"task": "ner", "train_file": TAGS, "validation_file": TAGS}
    finetune(arguments(**settings))
    assert "f1 is 0 in every evaluation" in caplog.text
    caplog.clear()
    finetune(arguments(validation_file=CLASSES, overwrite=True))
    assert "in every evaluation" not in caplog.text


def data_of(labels, **inputs):
    return TaskData([], {"labels": labels, **inputs}, Source.of("t.tsv"))


def test_first_bias_of_classes_is_their_log_frequency():
    """Each count is one larger; windows of a text count as one label, and words without a label not at all."""
    assert ClassLoss().head_bias(data_of([0, 0, 1]), 3) == pytest.approx(np.log([3 / 6, 2 / 6, 1 / 6]))
    words = data_of([[1, -100, 0], [1, 1]])
    assert label_counts(words, 3).tolist() == [1, 3, 0]
    assert ClassLoss().head_bias(words, 3) == pytest.approx(np.log([2 / 7, 4 / 7, 1 / 7]))
    windows = data_of([2, 2, 0], **{WINDOW_WEIGHT: [0.5, 0.5, 1.0]})
    assert ClassLoss().head_bias(windows, 3) == pytest.approx(np.log([2 / 5, 1 / 5, 2 / 5]))


def test_first_bias_of_labels_is_their_log_odds():
    """One more each with and without; missing labels count neither way."""
    labels = data_of([[1, 0], [1, 0], [0, np.nan], [1, 0]])
    assert LabelLoss().head_bias(labels, 2) == pytest.approx(np.log([4 / 2, 1 / 4]))
    windows = data_of([[1, 0], [1, 0], [0, 1]], **{WINDOW_WEIGHT: [0.5, 0.5, 1.0]})
    assert LabelLoss().head_bias(windows, 2) == pytest.approx(np.log([2 / 2, 2 / 2]))
    assert NumberLoss().head_bias(labels, 1) is None


def test_outputs_of_a_teacher_are_a_table_for_each_sequence():
    data = TaskData([], {"input_ids": [[5, 6], [7, 8, 9]]}, Source.of("t.tsv"))
    pooled = tables_of(np.array([[1.0, 2.0], [3.0, 4.0]]), data)
    assert [table.tolist() for table in pooled] == [[[1, 2]], [[3, 4]]]
    of_words = np.arange(12.0).reshape(2, 3, 2)
    assert [table.tolist() for table in tables_of(of_words, data)] == [of_words[0, :2].tolist(), of_words[1].tolist()]
    ends = tables_of((np.array([[1.0, 2, 3], [4, 5, 6]]), np.array([[7.0, 8, 9], [10, 11, 12]])), data)
    assert [table.tolist() for table in ends] == [[[1, 7], [2, 8]], [[4, 10], [5, 11], [6, 12]]]
    start, end = SpanTeaching().outputs(ends)
    assert [row.tolist() for row in (*start, *end)] == [[1, 2], [4, 5, 6], [7, 8], [10, 11, 12]]
