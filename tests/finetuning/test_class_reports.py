"""Reports by class, of a run and of `mybert evaluate`."""

import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import mybert
from mybert import metrics
from mybert.cli import main
from mybert.conversion import to_transformers_bert
from mybert.finetuning import TASKS, EvaluateArguments, commands, evaluate_model
from mybert.finetuning.prediction import predictor
from mybert.finetuning.tasks.calibration import calibrated, calibrator_of
from mybert.finetuning.tasks.texts import LabelPrediction, TextExample
from mybert.finetuning.training.card import _calibration_table

ROWS = [(f"the {noun} sat", "animal" if noun in ("cat", "dog") else "thing") for noun in ("cat", "dog", "mat", "tree")]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("data") / "data.tsv"
    path.write_text("\n".join(["text\tlabel", *("\t".join(row) for row in ROWS * 3)]) + "\n")
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory, tune, data, any_temperature_helps):
    folder = tmp_path_factory.mktemp("run") / "out"
    with any_temperature_helps():
        tune(
            folder, data, validation_file=data, test_file=shutil.copy(data, folder.with_name("test.tsv")), max_steps=2
        )
    return folder


def test_a_run_reports_validation_and_test_data_by_class(run, tmp_path):
    report = json.loads((run / "class_report.json").read_text())
    assert report == json.loads((run / "class_report_test.json").read_text())
    assert sum(values["support"] for values in report["classes"].values()) == 12
    metrics = json.loads((run / "metrics.json").read_text())
    assert report["averages"]["micro"]["f1"] == metrics["accuracy"]
    assert report["averages"]["macro"]["f1"] == pytest.approx(metrics["macro_f1"])
    assert (run / "class_report.txt").read_text().splitlines()[1].split()[0] == "animal"
    card = (run / "README.md").read_text()
    assert "| text-classification | test.tsv | test | test_accuracy |" in card
    assert "| Class | precision | recall | f1 | support |" in card
    wrong = {
        (true, predicted): count
        for true, row in report["confusion_matrix"].items()
        for predicted, count in row.items()
        if true != predicted
    }
    assert wrong and all(f"| {true}, taken for {other} | {count} |" in card for (true, other), count in wrong.items())
    assert "![Confusion matrix](confusion_matrix.png)" in card
    assert "![Confusion matrix (test)](confusion_matrix_test.png)" in card
    to_transformers_bert(run, tmp_path / "bert")
    assert "(confusion_matrix.png)" in (tmp_path / "bert" / "README.md").read_text()
    assert (tmp_path / "bert" / "confusion_matrix.png").is_file()


def test_evaluate_gives_the_report_of_a_model_and_of_predictions(run, data, tmp_path, capsys):
    for number, what in enumerate(({"model": str(run)}, {"predictions": str(run / "predictions.tsv")})):
        folder = tmp_path / str(number)
        evaluate_model(EvaluateArguments(data=[str(data)], report_dir=str(folder), use_cpu=True, **what))
        assert (folder / "class_report.json").read_bytes() == (run / "class_report.json").read_bytes()
        assert (folder / "confusion_matrix.png").read_bytes() == (run / "confusion_matrix.png").read_bytes()
    flags = ["evaluate", str(data), "--model", str(run), "--report_dir", str(tmp_path / "0"), "--use_cpu"]
    assert main(flags) == 2
    assert "class_report.json exists" in capsys.readouterr().err
    assert main([*flags, "--overwrite"]) == 0


def test_a_report_is_written_whole_or_not_at_all(run, data, tmp_path, monkeypatch, capsys):
    def full(folder, *_):
        assert list(folder.parent.iterdir())
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patches:  # another requested file cannot be written
        places = {name: str(tmp_path / "new" / name) for name in ("report_dir", "predictions_dir", "output")}
        wanted = EvaluateArguments(model=str(run), data=[str(data)], use_cpu=True, **places)
        for writer, name in ((commands, "write_predictions"), (predictor, "write_json")):
            patches.setattr(writer, name, lambda *args: full(tmp_path / "new" / "report_dir"))
            with pytest.raises(OSError, match=r"could not be written \(the disk is full"):
                evaluate_model(wanted)
            assert not list(tmp_path.iterdir())
    monkeypatch.setattr(predictor, "confusion_picture", lambda report, classes, path, what: full(path.parent))
    flags = ["evaluate", str(data), "--predictions", str(run / "predictions.tsv"), "--report_dir"]
    assert main([*flags, str(tmp_path / "new" / "report")]) == 2
    assert "report could not be written (the disk is full" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    for place, sentence in ((str(data), "is a file; expected a folder"), ("s3://bucket/report", "is an address")):
        assert main([*flags, place]) == 2
        assert sentence in capsys.readouterr().err


def test_a_report_without_matplotlib_is_without_picture_and_says_so(run, data, tmp_path, monkeypatch, caplog):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    mybert.evaluate(run, data, report_dir=tmp_path / "report", use_cpu=True)
    names = {file.name for file in (tmp_path / "report").iterdir()}
    assert names == {"errors.tsv", "class_report.json", "class_report.txt"}
    assert "PNG pictures need matplotlib: run pip install '.[train]' in the clone of mybert" in caplog.text


def test_the_card_shows_the_most_frequent_of_many_classes(tune, tmp_path):
    rows = [("the cat", f"c{number}") for number in range(32) for _ in range(2 if number in (7, 31) else 1)]
    tune(tmp_path / "out", rows, validation_file=rows)
    card = (tmp_path / "out" / "README.md").read_text()
    title = "Each class, counted in texts; the 30 most frequent of 32, all are in `class_report.json`."
    _, _, *table = card.partition(f"{title}\n\n")[2].partition("\n\n")[0].splitlines()
    assert len(table) == 30 and {line.split()[1] for line in table[:2]} == {"c7", "c31"}


def test_a_task_without_classes_has_errors_and_no_report_by_class(tune, tmp_path):
    path = tmp_path / "data.tsv"
    path.write_text("text\tscore\n" + "".join(f"the cat {n}\t{n}\n" for n in range(4)))
    tune(tmp_path / "out", path, task="regression", validation_file=path)
    assert not list((tmp_path / "out").glob("class_report*"))
    mybert.evaluate(tmp_path / "out", path, report_dir=tmp_path / "report", use_cpu=True)
    assert [file.name for file in (tmp_path / "report").iterdir()] == ["errors.tsv"]
    assert (tmp_path / "report" / "errors.tsv").read_bytes() == (tmp_path / "out" / "errors.tsv").read_bytes()


def test_the_temperature_is_remembered_and_used_for_probabilities(run, changed):
    record = json.loads((run / "config.json").read_text())["finetuned_for"]
    temperature = record["temperature"]
    assert temperature > 0 and temperature != 1
    texts = [text for text, _ in ROWS]
    found = mybert.predict(run, texts, probabilities=True)
    plain = mybert.predict(changed(run, finetuned_for=record | {"temperature": 1.0}), texts, probabilities=True)
    for row, before in zip(found, plain, strict=True):
        assert row["label"] == before["label"]
        logits = np.log([before["probability_animal"], before["probability_thing"]]) / temperature
        expected = np.exp(logits) / np.exp(logits).sum()
        assert [row["probability_animal"], row["probability_thing"]] == pytest.approx(expected, abs=1e-5)
    with pytest.raises(ValueError, match="temperature is 0; expected a number above 0"):
        mybert.predict(changed(run, finetuned_for=record | {"temperature": 0}), texts)


def test_adapted_keeps_a_temperature_only_if_it_helps_held_out_examples():
    examples = [
        TextExample(("x",), "b" if number < 40 else "a") for number in np.random.default_rng(0).permutation(200)
    ]
    for probability, is_kept in ((0.8, False), (0.99, True)):  # of class a; as frequent as it is, or too sure
        predictions = [LabelPrediction("a", {"a": probability, "b": 1 - probability})] * 200
        assert (calibrated(TASKS["classification"], predictions, examples).temperature != 1) == is_kept
    assert calibrated(TASKS["classification"], predictions[:1], examples[:1]).temperature == 1  # none is held out


def test_calibration_of_what_a_temperature_is_fitted_to_is_by_the_other_examples():
    generator = np.random.default_rng(0)
    examples = [TextExample(("x",), "a" if right else "b") for right in generator.random(60) < 0.7]
    probabilities = generator.uniform(0.9, 0.999, 60)  # too sure
    predictions = [LabelPrediction("a", {"a": p, "b": 1 - p}) for p in probabilities.tolist()]
    task, held_out = TASKS["classification"], {"held_out": True}
    before, after = (calibrator_of(task).measure(predictions, examples, **how) for how in ({}, held_out))
    table = np.stack([probabilities, 1 - probabilities], axis=1)
    references = np.array([example.label == "b" for example in examples], dtype=int)
    by_others = metrics.held_out_temperatures(table, references)
    fitted = metrics.with_temperature(table, metrics.fit_temperature(table, references))
    errors = [metrics.expected_calibration_error(values, references) for values in (table, by_others, fitted)]
    assert len(set(errors)) == 3
    assert [before["expected_calibration_error"], after["expected_calibration_error"]] == pytest.approx(errors[:2])


def test_the_error_of_probabilities_is_measured_before_and_after(run, data):
    metrics = json.loads((run / "metrics.json").read_text())
    names = {name for name in metrics if name.endswith("calibration_error")}
    both = {f"{split}{when}expected_calibration_error" for split in ("", "test_") for when in ("", "uncalibrated_")}
    assert names == both | {"held_out_expected_calibration_error"}
    evaluated = mybert.evaluate(run, data, use_cpu=True)
    for name in ("expected_calibration_error", "test_expected_calibration_error"):
        assert evaluated["expected_calibration_error"] == pytest.approx(metrics[name])


def test_the_card_has_calibration_errors_in_a_table_of_their_own(run):
    card = (run / "README.md").read_text()
    assert "calibration_error" not in card  # neither in the Hub's results nor in the first table
    assert "| Data | this model | cross-fitted | without temperature |" in card
    metrics = json.loads((run / "metrics.json").read_text())
    names = [f"{start}expected_calibration_error" for start in ("test_", "test_uncalibrated_")]
    assert "| test | {:.4g} |  | {:.4g} |".format(*(metrics[name] for name in names)) in card


def test_the_cards_calibration_errors_of_data_named_held_out_are_its_own():
    names = ("dev", "dev_held_out", "held_out", "test_dev", "test_held_out")
    errors = {f"{name}_expected_calibration_error": place / 10 for place, name in enumerate(names)}
    run = SimpleNamespace(validation=dict.fromkeys(("dev", "held_out")), test=dict.fromkeys(("dev", "held_out")))
    (table,) = _calibration_table(errors, run)
    assert table.rows == {
        "dev": {"this model": 0.0, "cross-fitted": 0.1},
        "held_out": {"this model": 0.2},
        "test_dev": {"this model": 0.3},
        "test_held_out": {"this model": 0.4},
    }


def test_no_error_is_reported_of_a_temperature_that_is_not_kept(tune, data, tmp_path):
    metrics = tune(tmp_path / "out", data, validation_file=data)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["finetuned_for"]["temperature"] == 1
    assert [name for name in metrics if "calibration" in name] == ["expected_calibration_error"]


def test_finetune_in_a_script_prints_the_report_and_no_bars_of_loading(tmp_path, tune, capfd):
    rows = [("the cat sat", "animals"), ("bread and fish", "food")] * 4
    tune(tmp_path / "out", rows, validation_file=rows, disable_tqdm=False)
    printed = capfd.readouterr()
    assert (tmp_path / "out" / "class_report.txt").read_text() in printed.out
    assert not any(f"{done} " in printed.err for done in ("Loading weights", "Writing model"))
    tune(tmp_path / "again", rows, validation_file=rows)  # with disable_tqdm
    assert "precision" not in capfd.readouterr().out
