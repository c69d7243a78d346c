"""Cross-validation: `mybert finetune --folds`."""

import json
import shutil
from functools import partial

import numpy as np
import pytest

from mybert.finetuning import TASKS, finetune, predict
from mybert.finetuning.tasks.question_answering import QuestionExample
from mybert.finetuning.tasks.tagging import TaggedSentence
from mybert.finetuning.tasks.texts import TextExample
from mybert.finetuning.training import run as training_run
from mybert.finetuning.training.preparation import fold_numbers, split_off

ROWS = [(f"the {noun} sat {n}", "animal" if noun in ("cat", "dog") else "thing") for n in range(3) for noun in
        ("cat", "mat", "tree", "fish")]  # fmt: skip
EXAMPLES = [TextExample((text,), label) for text, label in ROWS]
CLASSIFICATION = TASKS["classification"]


@pytest.fixture
def arguments(short_run):
    return partial(short_run, train_file=ROWS, folds=3, num_train_epochs=1)


def test_folds_have_one_size_and_the_classes_in_proportion():
    folds = np.array(fold_numbers(CLASSIFICATION, EXAMPLES, 3, seed=1))
    assert np.bincount(folds).tolist() == [4, 4, 4]
    animals = np.array([example.label == "animal" for example in EXAMPLES])
    assert np.bincount(folds[animals]).tolist() == [1, 1, 1]
    assert folds.tolist() == fold_numbers(CLASSIFICATION, EXAMPLES, 3, seed=1)
    assert folds.tolist() != fold_numbers(CLASSIFICATION, EXAMPLES, 3, seed=2)
    assert len(set(fold_numbers(CLASSIFICATION, [*EXAMPLES, TextExample(("x",), "rare")], 3, seed=1))) == 3
    each = [TextExample((str(n),), str(n)) for n in range(4)]
    assert sorted(fold_numbers(CLASSIFICATION, each, 4, seed=1)) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="folds is 5, but there are only 4 examples"):
        fold_numbers(CLASSIFICATION, each, 5, seed=1)


def test_folds_that_cannot_be_measured_show_before_anything_is_trained(arguments, tmp_path):
    rows = [(f"the cat {number}", number) for number in range(5)]
    with pytest.raises(ValueError, match=r"A fold of .* with 1 examples cannot be measured: a correlation"):
        finetune(arguments(task="regression", train_file=rows))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("settings", "options"),
    [
        ({"save_strategy": "best"}, "--folds --save_strategy"),
        ({"features": "all", "task": "tagging", "approach": "features"}, "--folds --features"),
    ],
)
def test_folds_with_what_needs_one_training_are_an_error(arguments, user_error, settings, options):
    with user_error(options) as error:
        arguments(**settings)
    assert f"use either folds or {options.split('--')[-1]}." in str(error.value)


def test_equal_texts_are_in_one_fold():
    examples = [*EXAMPLES, *EXAMPLES[:5], TextExample(EXAMPLES[0].texts, "other")]
    folds = fold_numbers(CLASSIFICATION, examples, 3, seed=1)
    assert folds[12:17] == folds[:5] and folds[17] == folds[0] and set(folds) == {0, 1, 2}
    assert folds[:12] == fold_numbers(CLASSIFICATION, EXAMPLES, 3, seed=1)
    tagged = [TaggedSentence(tuple(example.texts[0].split()), ("O",) * 4) for example in examples]
    folds = fold_numbers(TASKS["tagging"], tagged, 3, seed=1)
    assert folds[12:17] == folds[:5]


def test_questions_on_one_text_are_in_one_fold_or_held_out_together():
    examples = [QuestionExample(str(n), f"question {n}", f"text {n % 5}", ((0, "text"),)) for n in range(20)]
    folds = fold_numbers(TASKS["squad"], examples, 2, seed=0)
    assert all(folds[n] == folds[n % 5] for n in range(20)) and set(folds) == {0, 1}
    kept, held_out = split_off(TASKS["squad"], examples, 0.2, seed=0)
    assert len(held_out) == 4
    assert not {example.context for example in kept} & {example.context for example in held_out}


def table_of(path):
    return [line.split("\t") for line in path.read_text().splitlines()[1:]]


def assert_out_of_fold(out, temperatures):
    """Files on all folds agree with those of each fold, whose probabilities are calibrated."""
    folds = np.array(fold_numbers(CLASSIFICATION, EXAMPLES, 3, seed=42))
    predicted = table_of(out / "predictions_out_of_fold.tsv")
    assert [row[0] for row in predicted] == [str(number) for number in range(12)]
    for fold in range(3):
        here = [predicted[place] for place in np.flatnonzero(folds == fold)]
        there = table_of(out / f"fold_{fold + 1}" / "predictions.tsv")
        assert [row[1] for row in here] == [row[1] for row in there]
        odds, calibrated = (np.log(np.array(rows)[:, 2:].astype(float)) @ [1, -1] for rows in (here, there))
        assert odds == pytest.approx(calibrated * temperatures[fold], abs=3e-5)
    report = json.loads((out / "class_report_out_of_fold.json").read_text())
    assert report["classes"]["animal"]["support"] == 3 and report["classes"]["thing"]["support"] == 9
    wrong = {(row[0], row[1], row[5]) for row in table_of(out / "errors_out_of_fold.tsv")}
    assert wrong == {(*ROWS[place], str(place + 1)) for place, row in enumerate(predicted) if row[1] != ROWS[place][1]}


@pytest.mark.slow
def test_folds_measure_and_the_model_learns_from_all(
    arguments, tmp_path, monkeypatch, same_weights, any_temperature_helps
):
    temperatures, keep = [], training_run.keep_training

    def note_temperatures(kept, trainings, output_dir):  # before the folds' configurations are deleted
        for training in trainings[:-1]:
            record = json.loads((training.folder / "config.json").read_text())["finetuned_for"]
            temperatures.append(record["temperature"])
        keep(kept, trainings, output_dir)

    with any_temperature_helps(), monkeypatch.context() as patch:
        patch.setattr(training_run, "keep_training", note_temperatures)
        result = finetune(arguments())
    out = tmp_path / "out"
    metrics = json.loads((out / "metrics.json").read_text())
    assert list(metrics["folds"]) == ["1", "2", "3"]
    scores = [fold["accuracy"] for fold in metrics["folds"].values()]
    assert result["accuracy"] == metrics["accuracy"] == metrics["mean"]["accuracy"] == pytest.approx(np.mean(scores))
    assert metrics["deviation"]["accuracy"] == pytest.approx(np.std(scores, ddof=1))
    for fold in metrics["folds"]:
        report = json.loads((out / f"fold_{fold}" / "class_report.json").read_text())
        assert report["classes"]["animal"]["support"] == 1 and report["classes"]["thing"]["support"] == 3
        assert not list((out / f"fold_{fold}").glob("*.safetensors"))
    assert_out_of_fold(out, temperatures)
    card = (out / "README.md").read_text()
    assert "confusion_matrix_out_of_fold.png" in card
    assert "Cross-validation in 3 folds" in card and "| fold 3 |" in card and "| deviation |" in card
    assert "calibration_error" not in card and "Expected calibration error" in card
    record = json.loads((out / "config.json").read_text())["finetuned_for"]
    assert CLASSIFICATION.fitted_fields["temperature"]([0.5, 2.0]) == 1
    assert len(set(temperatures)) == 3 and record["temperature"] == pytest.approx(np.prod(temperatures) ** (1 / 3))
    assert len(predict(out, ["the cat sat"])) == 1
    state = json.loads((out / "trainer_state.json").read_text())
    assert state["max_steps"] == 1  # of all 12 examples in a batch of 32
    finetune(arguments("plain", folds=0))
    same_weights("plain", "out")

    monkeypatch.setattr(training_run.TaskTrainer, "train", lambda *args, **kwargs: pytest.fail("trains again"))
    again = finetune(arguments())
    assert again["mean"] == result["mean"]


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_with_the_next_fold(arguments, tmp_path, monkeypatch):
    finetune(arguments())
    out = tmp_path / "out"
    weights, metrics = (out / "model.safetensors").read_bytes(), (out / "metrics.json").read_text()
    predictions = (out / "predictions_out_of_fold.tsv").read_text()
    shutil.rmtree(out)
    train, calls = training_run.Finetuning._train, []

    def killed(*given):
        if len(calls) == 2:
            raise KeyboardInterrupt
        calls.append(given)
        return train(*given)

    with monkeypatch.context() as patch:
        patch.setattr(training_run.Finetuning, "_train", killed)
        with pytest.raises(KeyboardInterrupt):
            finetune(arguments())
    assert sorted(path.name for path in out.glob("fold_*")) == ["fold_1", "fold_2"]
    finetune(arguments())
    assert (out / "model.safetensors").read_bytes() == weights
    assert (out / "metrics.json").read_text() == metrics
    assert (out / "predictions_out_of_fold.tsv").read_text() == predictions
    assert not list(out.rglob("fold_outputs*"))
    with pytest.raises(ValueError, match=r"other settings; .*folds was 3, is 2"):
        finetune(arguments(folds=2))
    finetune(arguments(folds=2, overwrite=True))
    assert not (out / "fold_3").exists()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["multilabel", "ner", "regression", "squad"])
def test_other_tasks_have_folds(arguments, task, tmp_path):
    rows = {
        "multilabel": [{"text": text, "labels": ["any", label]} for text, label in ROWS],
        "ner": [{"tokens": text.split(), "tags": ["O", "B-X", "O", "O"]} for text, _ in ROWS],
        "regression": [{"text": text, "score": n} for n, (text, _) in enumerate(ROWS)],
        "squad": [{"question": "who sat?", "context": text, "answers": text[:7]} for text, _ in ROWS],
    }[task]
    result = finetune(arguments(task=task, train_file=rows, folds=2))
    assert TASKS[task].main_metric in result["mean"]
    (path,) = (tmp_path / "out").glob("predictions_out_of_fold*")
    count = path.read_text().count({"ner": "\n\n", "squad": ":"}.get(task, "\n")) + {"ner": 1, "squad": 0}.get(
        task, -1
    )
    assert count == len(ROWS)
    errors = table_of(tmp_path / "out" / "errors_out_of_fold.tsv")
    assert {row[-2] for row in errors} == {"train_file"} and {int(row[-1]) for row in errors} <= set(range(1, 13))
