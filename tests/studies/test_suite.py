"""`mybert glue`: every task of a suite, the best of a grid, one table, the server's zip."""

import errno
import json
import re
import zipfile
from pathlib import Path

import pytest

from mybert.files.source import HubSplit
from mybert.finetuning import TASKS, FinetuningArguments, plan_finetuning
from mybert.studies import AblationArguments, SuiteArguments, read_suite, run_ablation, run_suite, suite
from mybert.studies.suite import main_score

SENTENCES = ["the cat sat on the mat", "a dog ate the bread", "it was a very happy fish", "the tree was sad today"]
FINETUNING = {"max_length": 24, "max_steps": 1, "use_cpu": True, "save_strategy": "no", "learning_rate": 1e-3}
OWN = """
title: Mine
tasks:
  same: {title: Same text, task: mnli, data_dir: pairs, submission: [M-m.tsv, M-mm.tsv]}
  animals: {task: classification, train_file: [none.tsv, "a*.tsv"], validation_file: animals.tsv, submission: [A.tsv],
            test_file: animals.tsv, text_column: text, label_column: label}
  split: {task: classification, train_file: animals.tsv, validation_split: 0.5, text_column: text, label_column: label}
published:
  someone: {same: [70.0, 50.0], animals: 40.0}
  2019: {same: [10.0, 20.0]}
"""


@pytest.fixture
def model(tmp_path, tiny_model):
    return str(tiny_model(tmp_path / "model"))


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "pairs").mkdir(parents=True)
    classes = TASKS["mnli"].classes
    rows = [
        f"{a}\t{b}\t{classes[number % 3]}"
        for number, (a, b) in enumerate(zip(SENTENCES, SENTENCES[::-1], strict=True))
    ]
    for name in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        (folder / "pairs" / f"{name}.tsv").write_text("\n".join(["sentence1\tsentence2\tgold_label", *rows]) + "\n")
    animals = [f"the {animal} sat on the mat\t{animal}" for animal in ("cat", "dog")] * 4
    (folder / "animals.tsv").write_text("\n".join(["text\tlabel", *animals]) + "\n")
    (tmp_path / "mine.yaml").write_text(OWN)
    return folder


@pytest.fixture
def settings(tmp_path, model, data):
    def make(**others):
        places = {"data_dir": str(data), "output_dir": str(tmp_path / "out"), "suite": str(tmp_path / "mine.yaml")}
        return SuiteArguments(**{"model": model, "finetuning": FINETUNING, "disable_tqdm": True} | places | others)

    return make


def test_run_suite_failing_in_one_report_leaves_all_of_them(tmp_path, settings, monkeypatch):
    out = tmp_path / "out"
    out.mkdir()
    for name in ("suite.json", "suite.md", "submission.zip"):
        (out / name).write_text("old")
    monkeypatch.setattr(suite.Finetuning, "run", lambda self: {"accuracy": 0.5, "interrupted": False})

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(suite, "_write_submission", fail)
        with pytest.raises(OSError, match="the disk is full"):
            run_suite(settings(only=["animals"]))
    assert {path.name: path.read_text() for path in out.iterdir()} == dict.fromkeys(
        ("suite.json", "suite.md", "submission.zip"), "old"
    )
    run_suite(settings(only=["animals"]))
    assert json.loads((out / "suite.json").read_text())["average"] == 0.5
    assert (out / "suite.md").read_text() != "old" and len(list(out.iterdir())) == 3


@pytest.mark.parametrize("stopped", [1, 2, 3])  # of the trials, and of the run
def test_run_suite_interrupted_says_so_and_writes_no_report(tmp_path, settings, monkeypatch, stopped):
    runs = iter([{"accuracy": 0.5, "loss": 0.5, "interrupted": False}] * (stopped - 1) + [{"interrupted": True}])
    monkeypatch.setattr(suite.Finetuning, "run", lambda self: next(runs))
    grid = {"learning_rate": [1e-3, 1e-4]}
    assert run_suite(settings(only=["animals"], grid=grid)) == {"interrupted": True}
    assert not (tmp_path / "out").exists() and not [*runs]


def test_run_suite_says_which_test_data_a_submission_lacks(tmp_path, settings, data, monkeypatch, caplog):
    (data / "pairs" / "test_matched.tsv").unlink()
    measured = dict.fromkeys(("accuracy", "matched_accuracy", "mismatched_accuracy"), 0.5)
    monkeypatch.setattr(suite.Finetuning, "run", lambda self: measured | {"interrupted": False})
    with caplog.at_level("INFO", logger="mybert"):
        run_suite(settings(only=["split"], finetuning=FINETUNING))
        assert "submission" not in caplog.text  # none of the tasks belongs to one
        run_suite(settings(only=["same", "animals"]))
    assert "There is no submission.zip: test data of Same text is missing." in caplog.text
    assert not (tmp_path / "out" / "submission.zip").exists()


@pytest.mark.parametrize(
    ("task", "metric", "full"), [("squad", "f1", 100), ("mrpc", "f1", 1), ("squad", "loss", 1), ("stsb", "rmse", 1)]
)
def test_scores_are_of_one_whatever_the_tasks_own_unit(tmp_path, model, task, metric, full):
    """SQuAD's scripts give percents, which a table must not take a hundred times."""
    file = tmp_path / "data.json"
    file.write_text("[]")
    data = {"train_file": str(file), "validation_file": str(file), "max_length": 64}
    data |= {"metric_for_best_model": metric}
    arguments = FinetuningArguments(model=str(model), task=task, output_dir=str(tmp_path / "out"), **data)
    found = {"mean": {metric: 0.88 * full}, "deviation": {metric: 0.01 * full}}
    plan = plan_finetuning(arguments)
    assert main_score(found, plan) == pytest.approx((0.88, 0.01))
    assert main_score(found["mean"], plan) == (pytest.approx(0.88), None)


@pytest.mark.slow
def test_a_suite_of_ones_own(tmp_path, settings, model, data, caplog):
    report = run_suite(settings(only=["split"], output_dir=str(tmp_path / "one")))
    assert list(report["tasks"]) == ["split"] and 0 <= report["average"] <= 1
    only = ["same", "animals"]
    report = run_suite(settings(only=only))
    out = tmp_path / "out"
    assert json.loads((out / "suite.json").read_text()) == report
    scores = {task: found["score"] for task, found in report["tasks"].items()}
    measured = report["tasks"]["same"]["metrics"]
    assert scores["same"] == pytest.approx((measured["matched_accuracy"] + measured["mismatched_accuracy"]) / 2)
    assert report["average"] == pytest.approx((scores["same"] + scores["animals"]) / 2)
    lines = (out / "suite.md").read_text().splitlines()
    both = " / ".join(f"{100 * measured[f'{name}_accuracy']:.1f}" for name in ("matched", "mismatched"))
    assert lines[0] == "|  | Same text | animals | average |"
    assert lines[2] == f"| model | {both} | {100 * scores['animals']:.1f} | {100 * report['average']:.1f} |"
    assert lines[3] == "| Always the most frequent answer | 50.0 / 50.0 | 50.0 |  |"  # 2 of 4, 4 of 8
    assert lines[4:6] == ["| someone | 70.0 / 50.0 | 40.0 | 50.0 |", "| 2019 | 10.0 / 20.0 |  |  |"]
    assert lines[-1].startswith("Mine, 2 of its 3 tasks, validation data: Same text accuracy, animals accuracy.")
    with zipfile.ZipFile(out / "submission.zip") as archive:
        assert sorted(archive.namelist()) == ["A.tsv", "M-m.tsv", "M-mm.tsv"]
        mismatched = (out / "same" / "predictions_mismatched.tsv").read_bytes()
        assert archive.read("M-mm.tsv") == mismatched
    assert mismatched.splitlines()[0] == b"index\tprediction"
    assert (out / "animals" / "README.md").is_file()
    caplog.clear()
    with caplog.at_level("INFO", logger="mybert"):
        assert run_suite(settings(only=only))["average"] == report["average"]
    assert "Step 1" not in caplog.text and caplog.text.count("is finished; it is not trained again") == 2


def test_run_suite_with_a_grid_chooses_on_held_out_training_data_and_measures_once(tmp_path, settings, data, caplog):
    words = "the cat dog sat ran on under a mat tree".split()
    rows = [f"the {animal} {' '.join(words[n : n + 3])}\t{animal}" for animal in ("cat", "dog") for n in range(8)]
    (data / "animals.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    own = {"task": "classification", "train_file": "animals.tsv", "validation_file": "dev.tsv"}
    (data / "dev.tsv").write_text("\n".join(["text\tlabel", *rows[:10]]) + "\n")
    (tmp_path / "mine.yaml").write_text(json.dumps({"tasks": {"animals": own}}))
    finetuning = {"max_length": 24, "use_cpu": True, "num_train_epochs": 2}
    grid = {"learning_rate": [1e-9, 0.02], "dropout": [0.0]}
    make = {"finetuning": finetuning, "grid": grid, "num_seeds": 2, "compare_from_scratch": True}
    report = run_suite(settings(**make))
    out = tmp_path / "out"
    for found, folder in ((report, out), (report["from_scratch"], out / "from_scratch")):
        task = found["tasks"]["animals"]
        trials = {each["settings"]["learning_rate"]: each["score"] for each in task["tried"]}
        assert set(trials) == {1e-9, 0.02}
        for rate, score in trials.items():
            run = folder / "tuning" / "animals" / f"learning_rate={rate},dropout=0.0"
            assert json.loads((run / "metrics.json").read_text())["accuracy"] == score
            record = json.loads((run / "run.json").read_text())
            assert "dev.tsv" not in json.dumps(record) and '"validation_split": 0.1' in json.dumps(record)
        assert trials[task["chosen"]["learning_rate"]] == max(trials.values())
        measured = json.loads((folder / "animals" / "metrics.json").read_text())
        both = [each["accuracy"] for each in measured["seeds"].values()]
        assert task["metric"] == "accuracy" and list(task["seeds"].values()) == both
        assert task["score"] == pytest.approx(sum(both) / 2) and len(both) == 2
        assert task["standard_error"] == pytest.approx(abs(both[0] - both[1]) / 2)
        assert "dev.tsv" in (folder / "animals" / "run.json").read_text()
    table = (out / "suite.md").read_text().splitlines()
    errors = [f"{100 * part['tasks']['animals']['standard_error']:.1f}" for part in (report, report["from_scratch"])]
    assert table[2].startswith("| model | ") and f" ± {errors[0]} |" in table[2]
    assert table[3].startswith("| Random weights | ") and f" ± {errors[1]} |" in table[3]
    assert any("± is the standard error of the mean over 2 seeds" in line for line in table)
    rate = report["tasks"]["animals"]["chosen"]["learning_rate"]
    assert f"| model | learning_rate {rate}, dropout 0.0 |" in table
    with caplog.at_level("INFO", logger="mybert"):
        assert run_suite(settings(**make)) == report
    assert "Step 1" not in caplog.text


def test_run_suite_measures_the_last_step_without_a_grid(settings):
    assert suite.task_plan(settings(), "animals", {}).training.load_best_model_at_end is False
    with pytest.raises(ValueError, match="finetuning sets eval_strategy, which the suite decides"):
        run_suite(settings(finetuning={"eval_strategy": "epoch"}, only=["animals"]))


def test_run_suite_with_train_sizes_measures_each_task_with_each_number(tmp_path, settings, monkeypatch):
    samples = []

    def train(run):
        arguments = run.plan.settings
        samples.append((arguments.max_train_samples, arguments.validation_split, arguments.from_scratch))
        found = {
            "accuracy": arguments.max_train_samples / 10,
            "majority_accuracy": 0.5,
            "loss": arguments.learning_rate,
        }
        return {"mean": found, "deviation": {"accuracy": 0.2}, **found, "interrupted": False}

    monkeypatch.setattr(suite.Finetuning, "run", train)
    sizes = {"only": ["animals"], "train_sizes": [2, 4], "num_seeds": 4, "compare_from_scratch": True}
    report = run_suite(settings(**sizes, grid={"learning_rate": [0.1, 0.2]}))
    trials = [(2, 0.1), (2, 0.1), (4, 0.1), (4, 0.1), (2, 0), (4, 0)]
    assert samples == [(*each, from_scratch) for from_scratch in (False, True) for each in trials]
    curve = [[2, 0.2, 0.1], [4, 0.4, 0.1]]
    assert report["learning_curves"] == {"animals": {"model": curve, "Random weights": curve}}
    assert report["titles"] == {"animals": "animals, accuracy"}
    assert json.loads((tmp_path / "out" / "suite.json").read_text()) == report
    table = (tmp_path / "out" / "suite.md").read_text().splitlines()
    assert table[:3] == [
        "|  | animals, 2 | animals, 4 | average |",
        "| --- | ---: | ---: | ---: |",
        "| model | 20.0 ± 10.0 | 40.0 ± 10.0 | 30.0 |",
    ]
    caption = "Mine, 1 of its 3 tasks, validation data: animals accuracy. Each column title ends with the number of"
    assert any(line.startswith(f"{caption} training examples; the average is over all columns.") for line in table)
    with pytest.raises(ValueError, match="finetuning sets max_train_samples, which the suite decides"):
        run_suite(settings(**sizes, finetuning={"max_train_samples": 3}))


@pytest.mark.parametrize(
    ("metric", "best"), [("accuracy", 0.2), ("macro_f1", 0.1), ("loss", 0.1), ("mae", 0.1), ("tied", 0.1)]
)
def test_run_suite_with_a_grid_chooses_by_the_metric_for_the_best_model(
    tmp_path, settings, data, monkeypatch, metric, best
):
    def train(run):
        arguments = run.plan.settings
        rate = arguments.learning_rate
        found = {"accuracy": rate, "macro_f1": 1 - rate, "loss": rate, "majority_accuracy": 0.5, "tied": 0.0}
        return found | {"mae": 20 * rate, "interrupted": False}

    monkeypatch.setattr(suite.Finetuning, "run", train)
    chosen = {"finetuning": FINETUNING | {"metric_for_best_model": metric}, "grid": {"learning_rate": [0.2, 0.1]}}
    report = run_suite(settings(only=["animals"], **chosen))["tasks"]["animals"]
    assert report["chosen"] == {"learning_rate": best}
    assert report["score"] == report["metrics"][metric]
    table = (tmp_path / "out" / "suite.md").read_text()
    assert f"validation data: animals {metric}." in table
    assert ("Always the most frequent answer" in table) == (metric == "accuracy")
    cells = {
        "accuracy": "20.0 | 20.0",
        "macro_f1": "90.0 | 90.0",
        "tied": "0.0 | 0.0",
        "loss": "0.1 | ",
        "mae": "2 | ",
    }
    assert f"| model | {cells[metric]} |" in table
    assert ("The average does not include animals." in table) == (metric in ("loss", "mae"))


def test_mistakes_show_before_anything_runs(tmp_path, settings, model, data):
    for change, message in (
        ({"model": ""}, "model is not set; expected: Model folder"),
        ({"suite": "superglue"}, "There is no suite superglue; expected glue, ko, laptop, short, or a YAML file"),
        ({"only": ["dogs"]}, "There is no task 'dogs' in .*mine.yaml; it has same, animals, split"),
        ({"grid": {"learning_rate": 1e-3}}, "grid has 0.001 as learning_rate; expected a list of values"),
        ({"finetuning": "["}, "finetuning is not JSON"),
        ({"finetuning": "[1]"}, r"finetuning is \[1\]; expected a map of settings"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            settings(**change)
    with pytest.raises(ValueError, match="grid is set and split has no validation_file; expected one"):
        run_suite(settings(only=["split"], grid={"dropout": [0.1]}))
    (data / "animals.tsv").rename(data / "beasts.tsv")
    for change, message in (
        ({}, r"data has no none.tsv or a\*.tsv, the train_file of animals; .* with only. Nothing is missing for same"),
        ({"data_dir": str(data / "none")}, "none', which is not a folder"),
        ({"only": ["same"], "finetuning": {"learning_rates": 1}}, "finetuning has unknown settings: learning_rates"),
        ({"only": ["same"], "grid": {"num_seeds": [1, 2]}}, "grid sets num_seeds, which the suite decides"),
        (
            {"only": ["same"], "finetuning": {"validation_split": "half"}},
            "validation_split is 'half'; exp",
        ),
        ({"only": ["same"], "finetuning": {"validation_split": [1]}}, r"finetuning: validation_split is \[1\]; exp"),
    ):
        with pytest.raises((ValueError, FileNotFoundError), match=message):
            run_suite(settings(**change))
    for text, message in (
        ("tasks: [sst2]", "is not a suite; expected the keys title, tasks, published, with a map of tasks"),
        ("tasks: {sst2: SST-2}", "has 'SST-2' as the task sst2; expected a map of settings"),
        ("tasks: {", "is not YAML"),
        (b"title: caf\xe9", "mine.yaml is not UTF-8 text: bad byte at offset 10"),
        ("tasks: {}", "is not a suite; expected the keys"),
        ("tasks: {Tuning: {}}", "has a task 'Tuning', a name of a folder for other models"),
        ("tasks: {a: {task: rte}, A: {task: rte}}", "has a task 'A' next to 'a'; expected names that differ in more"),
        ("tasks: {1: {task: rte}}", "has a task 1; expected a name that a folder can have, in quotes where YAML"),
        ("tasks: {rte: {train_file: [1]}}", r"has \[1\] as train_file of rte; expected a name, or a list of some"),
        ("tasks: {rte: {data_dir: }}", "has None as data_dir of rte; expected a name, or a list of some"),
        ("tasks: {rte: {test_file: ''}}", "has '' as test_file of rte; expected a name"),
        ("tasks: {rte: {submission: []}}", r"has \[\] as submission of rte; expected a name"),
        ("tasks: {rte: {}}\npublished: [me]", r"has \['me'\] as published; expected a map of models"),
        ("tasks: {rte: {}}\npublished: {me: {rte: []}}", "as published me; expected a map of tasks"),
        ("tasks: {../x: {task: rte}}", r"has a task '../x'; expected a name that a folder can have"),
        ("tasks: {rte: {}}\npublished: {me: 80.0}", r"has 80.0 as published me; expected a map of tasks"),
        ("tasks: {rte: {}}\npublished: {me: {rte: good}}", r"as published me; expected a map of tasks"),
        ("tasks: {rte: {}}\npublished: {me: {rtf: 80.0}}", r"has a score of me for 'rtf'"),
        ("tasks: {rte: {label_colum: x, validation_split: 0.1}}", "mine.yaml, rte has unknown settings: label_colum"),
        ("tasks: {mnli: {train_file: pairs/train.tsv}}", "There is no validation data for mnli; expected a vali"),
        ("tasks:\n  rte: {}\n  sst2: {}\n  rte: {}", "mine.yaml names rte twice, again in line 4"),
        (
            "tasks: {ner: {train_file: beasts.tsv, validation_split: 0.5, approach: features, features: all}}",
            "features is 'all' for ner, which trains a model for each; expected one of embeddings",
        ),
    ):
        (tmp_path / "mine.yaml").write_bytes(text if isinstance(text, bytes) else text.encode())
        with pytest.raises(ValueError, match=message):
            run_suite(settings())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("own", "finetuning"), [("folds: 2", {}), ("", {"folds": 2}), ("", {"validation_split": 0.5})]
)
def test_run_suite_takes_validation_data_from_any_setting(tmp_path, settings, own, finetuning):
    (tmp_path / "mine.yaml").write_text(
        f"tasks: {{animals: {{task: classification, train_file: animals.tsv, {own}}}}}"
    )
    report = run_suite(settings(finetuning=FINETUNING | finetuning | {"metric_for_best_model": "loss"}))
    found = report["tasks"]["animals"]
    assert found["score"] == found["metrics"]["loss"]
    if "validation_split" not in finetuning:
        scores = [metrics["loss"] for metrics in found["metrics"]["folds"].values()]
        assert found["score"] == pytest.approx(sum(scores) / 2)
        assert found["standard_error"] == pytest.approx(abs(scores[0] - scores[1]) / 2)  # of the mean
        assert "Cross-validation (animals): ± is" in (tmp_path / "out" / "suite.md").read_text()


@pytest.fixture
def on_hub(monkeypatch):
    """Makes a data set with some splits, all with the same rows, what the Hub has for any name."""
    datasets = pytest.importorskip("datasets")

    def make(*splits):
        names = datasets.ClassLabel(names=["entailment", "neutral", "contradiction"])
        rows = {"premise": SENTENCES[:3], "hypothesis": SENTENCES[1:], "label": [0, 1, 2]}
        data = datasets.Dataset.from_dict(rows).cast_column("label", names)
        monkeypatch.setattr(HubSplit, "_load", staticmethod(lambda name, config: dict.fromkeys(splits, data)))

    return make


@pytest.mark.parametrize("splits", [("validation",), ("validation_matched", "validation_mismatched")])
def test_suites_and_ablations_read_the_validation_splits_of_a_data_set(tmp_path, settings, model, on_hub, splits):
    on_hub("train", *splits)
    (tmp_path / "mine.yaml").write_text("tasks: {pairs: {task: mnli, dataset: owner/name}}")
    for _ in range(2):  # the second call reads what the first one has measured
        found = run_suite(settings())["tasks"]["pairs"]
        names = ["accuracy"] if len(splits) == 1 else ["matched_accuracy", "mismatched_accuracy"]
        assert found["metric"] == "accuracy"
        assert found["score"] == pytest.approx(sum(found["metrics"][name] for name in names) / len(names))
    shared = {"finetuning": FINETUNING, "disable_tqdm": True, "output_dir": str(tmp_path / "rows")}
    shared |= {"tasks": {"pairs": {"task": "mnli", "dataset": "owner/name"}}, "variants": {"own": {"model": model}}}
    table = run_ablation(AblationArguments(**shared))
    metrics = json.loads((tmp_path / "rows" / "finetuned" / "own" / "pairs" / "metrics.json").read_text())
    assert table["own"]["pairs"] == metrics[names[0]]


def test_run_suite_of_a_data_set_without_validation_data_is_an_error_before_training(tmp_path, settings, on_hub):
    on_hub("train")
    (tmp_path / "mine.yaml").write_text("tasks: {pairs: {task: mnli, dataset: owner/name}}")
    with pytest.raises(ValueError, match="There is no validation data for pairs; expected a validation_file"):
        run_suite(settings())
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["train.tsv", "./train.tsv", "t*.tsv", "[x].tsv"])
def test_only_the_names_of_a_suite_are_patterns(tmp_path, settings, data, name):
    folder = data.rename(tmp_path / "data [1]")
    for copy in ("train.tsv", "[x].tsv.gz"):
        (folder / copy).write_bytes((folder / "animals.tsv").read_bytes())
    (tmp_path / "mine.yaml").write_text(f"tasks: {{x: {{task: classification, train_file: '{name}', folds: 2}}}}")
    found = suite.task_plan(settings(data_dir=str(folder)), "x", {})
    assert Path(str(found.files.train_file)).name == ("[x].tsv.gz" if "x" in name else "train.tsv")


def test_the_files_of_a_task_may_lie_in_the_data_folder_itself(tmp_path, settings, data):
    (tmp_path / "mine.yaml").write_text("tasks: {mnli: {data_dir: .}}")
    found = suite.task_plan(settings(data_dir=str(data / "pairs")), "mnli", {})
    assert found.files.train_file == str(data / "pairs" / "train.tsv")


def test_null_takes_back_what_an_earlier_map_says(tmp_path, settings):
    own = "{task: classification, train_file: animals.tsv, validation_split: 0.5, max_steps: 7, num_train_epochs: 2}"
    (tmp_path / "mine.yaml").write_text(f"tasks: {{animals: {own}}}")
    nulls = {"max_steps": None, "num_train_epochs": None}
    found = suite.task_plan(settings(finetuning=nulls), "animals", {})
    assert (found.training.max_steps, found.training.num_train_epochs) == (-1, 3.0)


def test_texts_mean_what_they_would_on_the_command_line(tmp_path, settings, data):
    own = f"{{task: classification, train_file: {data}/animals.tsv, validation_split: 5e-1, layer_decay: 9e-1}}"
    (tmp_path / "mine.yaml").write_text(f"tasks: {{animals: {own}}}")
    found = suite.task_plan(settings(), "animals", {})
    assert (found.settings.validation_split, found.settings.layer_decay) == (0.5, 0.9)
    assert found.files.train_file == f"{data}/animals.tsv"


def test_the_suite_of_the_page_is_one(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "suites.md").read_text()
    (text,) = re.findall(r"```yaml\n(title: .*?)```", page, re.DOTALL)
    (tmp_path / "s.yaml").write_text(text)
    assert list(read_suite(str(tmp_path / "s.yaml")).tasks) == ["topic", "urgency"]


@pytest.mark.parametrize("name", ["glue", "ko", "laptop", "short"])
def test_suites_that_ship_know_their_tasks(name):
    found = read_suite(name)
    for task, own in found.tasks.items():
        kind = TASKS[own.get("task", task)]
        assert kind.main_metric and own["title"]
        if "submission" in own:
            assert len(own["submission"]) == len(kind.files["test"])
    for scores in found.published.values():
        assert set(scores) <= set(found.tasks)
        assert all(len(value) == 2 for task, value in scores.items() if task == "mnli")


def test_settings_of_the_short_runs(tmp_path):
    for task, own in read_suite("short").tasks.items():
        for name in {"train_file", "validation_file", "test_file"} & own.keys():
            (tmp_path / own[name]).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / own[name]).touch()
        for split in ("train", "dev"):
            (tmp_path / own.get("data_dir", "none")).mkdir(parents=True, exist_ok=True)
            (tmp_path / own.get("data_dir", "none") / f"{split}.tsv").touch()
        arguments = SuiteArguments(model="m", data_dir=str(tmp_path), output_dir="out", suite="short")
        for keep in (False,) if own.get("approach") == "features" else (False, True):
            found = suite.task_plan(arguments, task, {"keep_model_type": keep})
            assert found.settings.keep_model_type == keep
            assert (found.training.eval_strategy, found.training.save_strategy) == ("no", "no")
