"""Comparing two models, or files of predictions, on the same data."""

import csv
import json
import re
import shutil
import sys
import warnings
from collections import Counter
from itertools import permutations

import numpy as np
import pandas
import pytest

import mybert
from mybert import MyBertForMaskedLM, MyBertTokenizer
from mybert.cli import main
from mybert.files.checkpoint import distinct_names
from mybert.finetuning import TASKS, comparison
from mybert.finetuning.tasks.fill_mask import FilledMasks, MaskedText
from mybert.finetuning.tasks.multiple_choice import ChoiceExample, ChoicePrediction
from mybert.finetuning.tasks.question_answering import AnswerPrediction, QuestionExample
from mybert.finetuning.tasks.tagging import TaggedSentence
from mybert.finetuning.tasks.texts import LabelPrediction, TextExample

ROWS = 40
NOT_RESAMPLED = re.compile(r"best_.*|.*total")


def examples_of(name, draw):
    """Random examples of a task, and random predictions that are often right."""
    task, words = TASKS[name], "cat dog mat tree".split()
    for _ in range(ROWS):
        right = draw.random() < 0.6
        if name == "fill_mask":
            hidden = tuple(draw.choice(words, draw.integers(1, 4)))
            found = hidden if right else tuple(draw.choice(words, len(hidden)))
            yield MaskedText("", 1, hidden), FilledMasks(tuple(((word, 1.0),) for word in found))
        elif name == "swag":
            label = int(draw.integers(2))
            yield ChoiceExample("", ("a", "b"), label), ChoicePrediction(label if right else int(draw.integers(2)))
        elif name.startswith("squad"):
            answers = ((0, " ".join(draw.choice(words, 3))),) if draw.random() < 0.6 or name == "squad" else ()
            text = answers[0][1] if right and answers else str(draw.choice([*words, "cat dog"]))
            odds = draw.normal() if name == "squad_v2" else None
            unanswered = name == "squad" and draw.random() < 0.1
            yield (
                QuestionExample(str(draw.integers(1 << 60)), "", "", answers),
                AnswerPrediction(None if unanswered else text, odds),
            )
        elif name in ("ner", "tagging"):
            kinds = ["O", "B-A", "I-A", "B-B"] if name == "ner" else words
            tags = tuple(draw.choice(kinds, draw.integers(1, 6)))
            found = tuple(tag if draw.random() < 0.6 else str(draw.choice(kinds)) for tag in tags)
            yield TaggedSentence(tags, tags), found
        elif task.loss.is_regression:
            value = float(draw.integers(5))
            yield TextExample(("a",), value), LabelPrediction(value + round(draw.normal(), 1))
        elif name == "multilabel":
            label = frozenset(draw.choice(words, 2)) if draw.random() < 0.9 else frozenset()
            yield TextExample(("a",), label), LabelPrediction(label if right else frozenset(draw.choice(words, 2)))
        else:
            classes = task.classes or tuple(words)
            label = str(draw.choice(classes))
            yield TextExample(("a",), label), LabelPrediction(label if right else str(draw.choice(classes)))


@pytest.mark.parametrize(
    "name",
    [
        *("sst2", "mrpc", "cola", "mnli", "classification", "multilabel", "stsb", "regression"),
        *("ner", "tagging", "squad", "squad_v2", "swag", "fill_mask"),
    ],
)
def test_weighted_metrics_are_the_scores_of_resampled_rows(name, caplog):
    draw, task = np.random.default_rng(len(name)), TASKS[name]
    examples, predictions = zip(*examples_of(name, draw), strict=True)
    one_row = ROWS * np.eye(ROWS)[0]
    weights = np.vstack([np.ones(ROWS), one_row, draw.multinomial(ROWS, np.full(ROWS, 1 / ROWS), 12)])
    found = task.measures(predictions, examples).resampled()(weights)
    assert not caplog.records  # of questions without a prediction
    for number, row in enumerate(weights.astype(int)):
        places = np.repeat(np.arange(ROWS), row)
        # Copies of a question have ids of their own, as they would be one question otherwise.
        chosen = [examples[place] for place in places]
        if name.startswith("squad"):
            copies = zip(chosen, range(ROWS), strict=True)
            chosen = [QuestionExample(str(copy), "", "", example.answers) for example, copy in copies]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            scores = task.measures([predictions[place] for place in places], chosen).scores()
        expected = {key: value for key, value in scores.items() if not NOT_RESAMPLED.fullmatch(key)}
        values = {key: value[number] for key, value in found.items() if not np.isnan(value[number])}
        assert values == pytest.approx(expected), (name, number)


@pytest.fixture(autouse=True)
def speed_is_measured_in_a_moment(monkeypatch):
    monkeypatch.setattr(comparison, "_MIN_SECONDS", 0.0)


@pytest.fixture
def data(tmp_path, texts):
    """Labeled data by task, and the file name of each."""
    swag = {"sent2": "a"} | {f"ending{number}": word for number, word in enumerate(["cat", "mat", "dog", "tree"])}
    rows = {  # the texts repeat after the seventh; equal ones, in different batches, would be ties or not by rounding
        "sst2": ("tsv", [{"sentence": text, "label": number % 2} for number, text in enumerate(texts)]),
        "regression": ("csv", [{"text": text, "score": number / 7} for number, text in enumerate(texts[:7])]),
        "swag": ("jsonl", [swag | {"sent1": text, "label": number % 4} for number, text in enumerate(texts)]),
    }
    files = {}
    for name, (ending, lines) in rows.items():
        files[name] = tmp_path / f"{name}.{ending}"
        if ending == "jsonl":
            files[name].write_text("".join(f"{json.dumps(line)}\n" for line in lines))
        else:
            with files[name].open("w", newline="") as file:
                table = csv.DictWriter(file, lines[0], delimiter="\t" if ending == "tsv" else ",")
                table.writeheader()
                table.writerows(lines)
    return files


@pytest.fixture(scope="module")
def other(tmp_path_factory, models, tiny_model):
    """A smaller model of sst2."""
    from mybert import MyBertForSequenceClassification

    sizes = {"hidden_size": 16, "intermediate_size": 32, "initializer_range": 0.5, "max_position_embeddings": 128}
    folder = tmp_path_factory.mktemp("other") / "small"
    return tiny_model(folder, MyBertForSequenceClassification, labels=["0", "1"], task="sst2", seed=3, **sizes)


def test_compare_writes_table_report_and_differing_rows(tmp_path, data, models, other, capsys):
    output, report = tmp_path / "rows.csv", tmp_path / "report.json"
    words = ["compare", models / "sst2", other, "--data", data["sst2"], "--output", output, "--report", report]
    assert main([*map(str, words), "--use_cpu", "--num_resamples", "200"]) == 0
    printed = capsys.readouterr().out
    found = json.loads(report.read_text())
    assert found["names"] == {"a": "sst2", "b": "small"} and found["resamples"] == 200
    for side, model in (("a", models / "sst2"), ("b", other)):
        scores = mybert.evaluate(model, str(data["sst2"]), use_cpu=True)
        interval = found["metrics"]["accuracy"][side]
        assert interval["value"] == pytest.approx(scores["accuracy"])
        assert interval["low"] < interval["value"] < interval["high"]
        assert found["models"][side]["bytes"] == (model / "model.safetensors").stat().st_size
        assert found["models"][side]["texts_per_second"] > 0
    assert found["models"]["a"]["parameters"] > found["models"]["b"]["parameters"]
    rows = list(csv.DictReader(output.open()))
    predictions = [
        [answer["label"] for answer in mybert.predict(model, data["sst2"], use_cpu=True)]
        for model in (models / "sst2", other)
    ]
    lines = list(csv.reader(data["sst2"].open(), delimiter="\t"))[1:]
    assert rows == [
        {"row": str(number), "text": text, "true": true, "sst2": a, "small": b}
        for number, ((text, true), a, b) in enumerate(zip(lines, *predictions, strict=True), start=1)
        if a != b
    ]
    right = Counter((row["sst2"] == row["true"], row["small"] == row["true"]) for row in rows)
    assert [found["mcnemar"][side] for side in ("only_a", "only_b")] == [right[True, False], right[False, True]]
    assert found["differing_rows"] == len(rows) > 0
    assert f"{len(rows)} differently" in printed and "McNemar" in printed and "accuracy" in printed


def test_compare_of_a_data_frame_is_that_of_its_file(data, models):
    frame, pair = pandas.read_csv(data["sst2"], sep="\t"), [models / "sst2"] * 2
    found, expected = (mybert.compare(*pair, each, num_resamples=5, use_cpu=True) for each in (frame, data["sst2"]))
    assert found["metrics"] == expected["metrics"] and found["rows"] == len(frame)
    frame.loc[len(frame)] = [None] * frame.shape[1]
    assert mybert.compare(*pair, frame, num_resamples=5, use_cpu=True, skip_empty=True)["rows"] == expected["rows"]


def test_compare_without_scipy_is_an_error_before_the_work(data, models, other, monkeypatch):
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    monkeypatch.setattr("mybert.finetuning.prediction.predictor.network_outputs", lambda *_, **__: pytest.fail("ran"))
    with pytest.raises(ImportError, match=r"scipy\.stats"):
        mybert.compare(models / "sst2", other, str(data["sst2"]), use_cpu=True)


def test_compare_of_a_model_and_its_prediction_file_finds_no_difference(tmp_path, data, models):
    for name in ("sst2", "regression", "swag"):
        model = models / name
        mybert.evaluate(model, str(data[name]), predictions_dir=str(tmp_path / name), use_cpu=True)
        (file,) = (tmp_path / name).iterdir()
        found = mybert.compare(file, model, str(data[name]), use_cpu=True, num_resamples=20)
        assert found["differing_rows"] == 0 and found["models"].keys() == {"b"}, name
        for metric, values in found["metrics"].items():
            assert values["difference"]["value"] == pytest.approx(0, abs=0.01), (name, metric)  # six decimals
        assert ("mcnemar" in found) == (name != "regression")
        files = mybert.compare(file, file, str(data[name]), task=name, num_resamples=20)
        assert files["models"] == {} and files["metrics"].keys() == found["metrics"].keys()


def test_compare_says_what_is_cut_and_prints_the_costs_of_models_alone(tmp_path, models, caplog, capsys):
    (tmp_path / "p.tsv").write_text("prediction\n1\n0\n")
    (tmp_path / "long.tsv").write_text("sentence\tlabel\n" + f"{'the cat ' * 9}\t1\na dog\t0\n")
    words = ["compare", models / "sst2", tmp_path / "p.tsv", "--data", tmp_path / "long.tsv", "--num_resamples", "5"]
    assert main([*map(str, words), "--use_cpu"]) == 0
    shown = capsys.readouterr()
    assert re.search(rf"{models / 'sst2'}: 1 of 2 texts is longer than 16 tokens: truncated", shown.err)
    lines = shown.out.splitlines()
    assert (
        re.fullmatch(r"a: sst2 \([\d,]+ parameters, .* MB, .* texts a second\)", lines[0]) and lines[1] == "b: p.tsv"
    )


def test_compare_of_masked_words_reads_each_model_by_its_own_tokens(tmp_path, tiny_model):
    """A cased and an uncased model that both know the word, and the file of one of them."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "cat", "paris", "Paris"]
    for name, word in (("uncased", "paris"), ("cased", "Paris")):

        def change(model, word=word):
            model.get_output_embeddings().bias.data[words.index(word)] = 100

        tokenizer = MyBertTokenizer(vocab=words, do_lower_case=name == "uncased")
        tiny_model(tmp_path / name, MyBertForMaskedLM, words=tokenizer, change=change)
    data = [{"text": "the cat [MASK]", "label": "Paris"}] * 3
    settings = {"task": "fill_mask", "use_cpu": True}
    mybert.evaluate(tmp_path / "uncased", data, predictions_dir=str(tmp_path / "told"), **settings)
    sides = [tmp_path / "uncased", tmp_path / "cased", tmp_path / "told" / "predictions.tsv"]
    for first, second in permutations(sides, 2):
        found = mybert.compare(first, second, data, num_resamples=10, **settings)
        values = found["metrics"]["accuracy"]
        assert values["a"]["value"] == values["b"]["value"] == 1 and found["differing_rows"] == 0


def test_compare_of_files_of_answers_lists_those_that_differ(tmp_path):
    data = [{"id": n, "question": "who sat", "context": f"the {n} sat", "answers": n} for n in ("cat", "dog")]
    for name, answer in (("a", "dog"), ("b", "the dog sat")):
        (tmp_path / f"{name}.json").write_text(json.dumps({"cat": "cat", "dog": answer}))
    settings = {"task": "squad", "num_resamples": 5, "output": str(tmp_path / "rows.csv")}
    mybert.compare(tmp_path / "a.json", tmp_path / "b.json", data, **settings)
    (row,) = csv.reader((tmp_path / "rows.csv").read_text().splitlines()[1:])
    assert row[-3:] == ["dog", "dog", "the dog sat"]


def test_compare_of_numbers_lists_the_largest_differences_first(tmp_path, data):
    files = [tmp_path / "a.tsv", tmp_path / "b.tsv"]
    for file, values in zip(files, ([0, 1, 2, 3, 4, 5, 6], [0, 2, -1, 3.5, 4, 7.5, 5]), strict=True):
        file.write_text("\n".join(["prediction", *map(str, values)]) + "\n")
    output = tmp_path / "rows.csv"
    settings = {"task": "regression", "num_resamples": 20, "output": str(output)}
    mybert.compare(*files, str(data["regression"]), **settings)
    assert [row["row"] for row in csv.DictReader(output.open())] == ["3", "6", "2", "7", "4"]


def test_compare_of_files_reads_numbers_in_the_data_as_the_tasks_classes(tmp_path):
    names = TASKS["rte"].classes
    data = [{"sentence1": f"a {row}", "sentence2": "b", "label": row % 2} for row in range(8)]
    for name, labels in (("a", [names[row % 2] for row in range(8)]), ("b", [names[0]] * 8)):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["prediction", *labels]) + "\n")
    settings = {"task": "rte", "num_resamples": 5, "output": str(tmp_path / "rows.csv")}
    found = mybert.compare(tmp_path / "a.tsv", tmp_path / "b.tsv", data, **settings)
    assert (found["mcnemar"]["only_a"], found["mcnemar"]["only_b"]) == (4, 0)
    rows = csv.DictReader((tmp_path / "rows.csv").open())
    assert {row["true"] for row in rows} == {names[1]}


def test_compare_reads_numbers_in_prediction_files_as_the_models_classes(tmp_path, data, models, changed):
    model = changed(models / "sst2", id2label={"0": "bad", "1": "good"}, label2id={"bad": 0, "good": 1})
    config = json.loads((model / "config.json").read_text())
    config["finetuned_for"] |= {"task": "classification", "text_column": "sentence"}
    (model / "config.json").write_text(json.dumps(config))
    file = tmp_path / "p.tsv"
    file.write_text("prediction\n" + "".join(f"{number % 2}\n" for number in range(30)))
    found = mybert.compare(model, file, str(data["sst2"]), use_cpu=True, num_resamples=20)
    assert found["metrics"]["accuracy"]["b"]["value"] == 1.0
    file.write_text("prediction\n" + "good\n" * 29 + "fine\n")
    with pytest.raises(ValueError, match=r"p.tsv, row 30, has the label 'fine'; expected one of 'bad', 'good'"):
        mybert.compare(model, file, str(data["sst2"]), use_cpu=True)


def test_compare_with_numbers_that_mean_different_classes_is_an_error(
    tmp_path, data, models, change_config, user_error
):
    folders = []
    for name, order in (("one", ["bad", "good"]), ("other", ["good", "bad"])):
        classes = {"id2label": dict(enumerate(order)), "label2id": {label: i for i, label in enumerate(order)}}
        record = {"task": "classification", "text_column": "sentence", "max_length": 16}
        folder = shutil.copytree(models / "sst2", tmp_path / name)
        folders.append(change_config(folder, finetuned_for=record, **classes))
    with user_error(
        r"has numbers as labels, which mean different classes for .*one and .*other; expected the classes'"
    ):
        mybert.compare(*folders, str(data["sst2"]), use_cpu=True)


def test_compare_rejects_what_cannot_be_compared(tmp_path, data, models, other, changed, capsys):
    short, output, renamed = tmp_path / "short.tsv", tmp_path / "rows.tsv", tmp_path / "renamed"
    short.write_text("prediction\n1\n")
    changed(other, id2label={"0": "x", "1": "y"}, label2id={"x": 0, "y": 1}).rename(renamed)
    unlabeled = tmp_path / "unlabeled.tsv"
    unlabeled.write_text("sentence\na cat\n")
    by_name = ["--task", "classification", "--text_column", "sentence"]
    a, b, file = str(models / "sst2"), str(other), str(data["sst2"])
    for words, message in (
        ([a, "--data", file], r"models is \['.*sst2'\]; expected two, each a model or a file of predictions"),
        ([a, b], "data is not set; expected: Task data with labels, one file"),
        ([a, b, "--data", unlabeled], r"unlabeled.tsv has no column 'label'"),
        ([a, str(models / "ner"), "--data", file], r"is for text-classification \(classes\) and .*ner for token-cl"),
        ([a, renamed, "--data", file, *by_name], r"The classes of .*sst2 \(0, 1\) and .*renamed \(x, y\) differ"),
        ([a, short, "--data", file], "short.tsv has 1 predictions; expected 30"),
        ([short, short, "--data", file], "task is not set; expected the task of the two files"),
        ([a, b, "--data", file, "--output", tmp_path / "rows.txt"], "rows.txt'; expected a name that ends in .tsv"),
        ([a, b, "--data", file, "--report", file, "--overwrite"], "sst2.tsv is already read or written"),
        ([a, b, "--data", file, "--report", output], "rows.tsv is already read or written"),
    ):
        extra = [] if "--output" in words else ["--output", output]
        assert main(["compare", *map(str, [*words, *extra, "--use_cpu"])]) == 2, message
        error = capsys.readouterr().err
        assert re.search(message, error), (message, error)
        assert len(error.strip().splitlines()) == 1 and not output.exists(), error


def test_distinct_names_are_as_short_as_they_may_be(tmp_path):
    assert distinct_names(["runs/a", "runs/b"]) == ["a", "b"]
    assert distinct_names(["x/a/out", "x/b/out"]) == ["a/out", "b/out"]
    assert distinct_names(["a", "./a", "b"]) == ["a (1)", "a (2)", "b"]
