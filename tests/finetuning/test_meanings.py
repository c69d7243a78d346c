"""Names, numbers and places that mean one thing wherever they are read or written."""

import json

import numpy as np
import pytest

import mybert
from mybert.cli import main
from mybert.files.source import Source, read_rows
from mybert.finetuning import TASKS
from mybert.finetuning.prediction.predictor import Predictor
from mybert.finetuning.tasks.steps import read_examples, read_predictions, read_task_rows
from mybert.metrics import metric_of_class

TAGGED = [
    {"tokens": ["the", "cat", "sat"], "tags": ["O", "B-test", "I-test"]},
    {"tokens": ["a", "dog"], "tags": ["O", "B-PER"]},
]


@pytest.mark.parametrize(
    ("name", "metric"),
    [("PER", "PER_f1"), ("test", "of_test_f1"), ("of_test", "of_of_test_f1"), ("testing", "testing_f1")],
)
def test_a_metric_of_a_class_is_not_taken_for_that_of_other_data(name, metric):
    assert metric_of_class(name, "f1") == metric


def test_an_entity_called_test_has_its_own_metric(tmp_path, tune):
    found = tune(tmp_path / "m", TAGGED * 4, task="ner", validation_file=TAGGED, test_file=TAGGED[1:])
    assert {"f1", "of_test_f1", "PER_f1", "test_f1", "test_PER_f1"} <= found.keys()
    assert found["f1"] == mybert.evaluate(tmp_path / "m", TAGGED)["f1"]
    assert found["test_f1"] == mybert.evaluate(tmp_path / "m", TAGGED[1:])["f1"]
    alone = tune(tmp_path / "alone", TAGGED * 4, task="ner", validation_file=TAGGED)
    assert "of_test_f1" in alone and "split: test" not in (tmp_path / "alone" / "README.md").read_text()


def test_columns_called_test_and_mean_value_have_their_own_errors(tmp_path, tune):
    rows = [
        {"text": f"the cat {word}", "test": place, "mean_value": 10 * place} for place, word in enumerate("abcdef")
    ]
    settings = {"task": "scores", "label_columns": ["test", "mean_value"]}
    found = tune(tmp_path / "m", rows * 2, validation_file=rows, test_file=rows[:3], **settings)
    again = mybert.evaluate(tmp_path / "m", rows)
    assert found["of_test_mae"] == pytest.approx(again["of_test_mae"], rel=1e-5)
    assert found["of_mean_value_mae"] == pytest.approx(again["of_mean_value_mae"], rel=1e-5)
    assert found["mean_value_mae"] == pytest.approx(np.mean([1.5, 15]))  # of always saying the mean
    assert found["test_mae"] == pytest.approx(mybert.evaluate(tmp_path / "m", rows[:3])["mae"], rel=1e-5)


def test_validation_data_called_test_is_not_shown_as_test_data(tmp_path, tune, rows):
    files = {"test": rows[::3], "other": rows[::4]}
    tune(tmp_path / "m", rows, validation_file=files)
    assert "split: test" not in (tmp_path / "m" / "README.md").read_text()
    with pytest.raises(ValueError, match="Validation data is named 'test', as the metrics of test data"):
        tune(tmp_path / "n", rows, validation_file=files, test_file={"a": rows[:9], "b": rows[:9]})


def test_a_card_names_the_settings_that_decide_the_model(tmp_path, tune, rows):
    settings = {"class_weights": "balanced", "label_smoothing_factor": 0.1, "window_pooling": "mean", "doc_stride": 2}
    tune(tmp_path / "m", rows, validation_split=0.25, freeze_layers=0, **settings)
    card = (tmp_path / "m" / "README.md").read_text()
    for name, value in [*settings.items(), ("validation_split", 0.25), ("freeze_layers", 0)]:
        assert f"| {name.replace('_', ' ')} | {value} |" in card


def test_targets_of_minus_100_count_as_others_do(tmp_path, tune):
    rows = [
        {"text": f"the cat {word}", "score": -100.0 if place % 2 else 100.0} for place, word in enumerate("abcdefgh")
    ]
    tune(tmp_path / "m", rows, task="regression", validation_file=rows, learning_rate=0.0, dropout=0.0)
    found = json.loads((tmp_path / "m" / "metrics.json").read_text())
    assert found["loss"] == pytest.approx(found["rmse"] ** 2, rel=1e-4)


@pytest.mark.parametrize("approach", ["linear_probe", "contrastive"])
def test_a_fitted_head_learns_a_column_of_few_numbers(tmp_path, tune, approach):
    rows = [
        {"text": f"the cat {word} {end}", "a": place, "b": 2.0 if place == 3 else None}
        for place, (word, end) in enumerate((word, end) for word in "abcde" for end in ("sat", "ran"))
    ]
    settings = {"task": "scores", "label_columns": ["a", "b"], "approach": approach}
    tune(tmp_path / "m", rows, **settings)
    assert all(np.isfinite(answer["b"]) for answer in mybert.predict(tmp_path / "m", ["the cat a sat"]))


def test_skip_empty_reaches_test_data_with_and_without_labels(tmp_path, tune, rows):
    labeled = [{"text": "a cat", "label": "good"}, {"text": "", "label": "bad"}, {"text": "a dog", "label": None}]
    found = tune(tmp_path / "m", rows, test_file=labeled, skip_empty=True)
    assert found["test_accuracy"] in (0, 1)
    with pytest.raises(ValueError, match="pass skip_empty"):
        tune(tmp_path / "n", rows, test_file=labeled)
    (row,) = read_task_rows(
        TASKS["classification"], Source.of([{"text": "it"}, {"text": " "}]), labeled=None, skip_empty=True
    )
    assert row.values == {"text": "it"}


def test_a_test_file_without_any_label_is_not_measured(tmp_path, tune):
    rows = [{"text": f"the cat {word}", "labels": "x,y" if word == "a" else "x"} for word in "abcd"]
    found = tune(tmp_path / "m", rows, task="multilabel", test_file=[{"text": "it", "labels": ""}] * 2)
    assert not [name for name in found if name.startswith("test")]


def test_lists_of_names_that_are_0_and_1_stay_names_in_other_data(tmp_path, tune):
    labels = [["0"], ["1"], ["0", "1"], []]
    rows = [{"text": f"the cat {word}", "labels": labels[place % 4]} for place, word in enumerate("abcdefgh")]
    tune(tmp_path / "m", rows, task="multilabel")
    task = Predictor(tmp_path / "m", use_cpu=True).load().task
    both = [{"text": "a", "labels": ["0", "1"]}, {"text": "it", "labels": ["1", "0"]}]
    assert [example.label for example in read_examples(task, Source.of(both))] == [frozenset("01")] * 2


def test_the_separator_of_predictions_does_not_depend_on_other_columns(tmp_path):
    rows = [{"text": "a", "labels": "x,y"}, {"text": "it", "labels": "y"}]
    task = TASKS["multilabel"].infer_columns(read_task_rows(TASKS["multilabel"], Source.of(rows)))
    examples = read_examples(task, Source.of(rows))
    for title in ("score", "score, raw"):
        (tmp_path / "p.tsv").write_text(f"index\tprediction\t{title}\n0\tx,y\t1\n1\ty\t2\n")
        found = read_predictions(task, tmp_path / "p.tsv", examples)
        assert [prediction.label for prediction in found] == [frozenset("xy"), frozenset("y")]
    (tmp_path / "p.tsv").write_text("index\tprediction\tx\ty\tv,w\n0\tx;y;v,w\t1\t1\t1\n1\tv,w\t0\t1\t1\n")
    found = read_predictions(task, tmp_path / "p.tsv", examples)
    assert [prediction.label for prediction in found] == [frozenset(("x", "y", "v,w")), frozenset(("v,w",))]


@pytest.mark.parametrize("value", ["4_5", "NA", "nan"])
def test_what_is_no_number_is_an_error_or_left_out(value):
    source = Source.of([{"text": "a", "score": value}, {"text": "it", "score": "3.5"}])
    with pytest.raises(ValueError, match=f"'{value}' as score; expected a number"):
        read_examples(TASKS["regression"], source)
    if value != "4_5":  # as programs write a missing number
        (example,) = read_examples(TASKS["regression"], source, skip_empty=True)
        assert example.label == 3.5


def test_ids_of_many_digits_stay_in_a_spreadsheet(tmp_path, models):
    ids = [1234567890123456789, 1234567890123456790, 12]
    mybert.predict(models / "sst2", [{"id": number, "text": "a cat"} for number in ids], output=tmp_path / "o.xlsx")
    assert [str(row["id"]) for row in read_rows(tmp_path / "o.xlsx")] == list(map(str, ids))


def test_a_word_that_is_a_number_in_a_spreadsheet_is_a_word(tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    for row in (("sentence_id", "tokens", "tags"), (1, "in", "O"), (1, 1996, "B-DATE"), (2, "it", "O")):
        book.active.append(row)
    book.save(tmp_path / "words.xlsx")
    examples = read_examples(TASKS["tagging"], Source.of(tmp_path / "words.xlsx"))
    assert [example.words for example in examples] == [("in", "1996"), ("it",)]


def test_compare_says_the_row_of_the_data(tmp_path, models, changed):
    swapped = changed(models / "sst2", id2label={"0": "1", "1": "0"})
    (tmp_path / "d.tsv").write_text("sentence\tlabel\na cat\t0\n\t1\nthe dog\t1\n")
    call = ["compare", str(models / "sst2"), str(swapped), "--data", str(tmp_path / "d.tsv"), "--skip_empty"]
    assert main([*call, "--output", str(tmp_path / "c.tsv"), "--num_resamples", "10", "--use_cpu"]) == 0
    assert sorted(str(row["row"]) for row in read_rows(tmp_path / "c.tsv")) == ["1", "3"]


def test_rows_without_text_have_the_names_of_answers_wherever_they_are(models):
    model = Predictor(models / "sst2", skip_empty=True, use_cpu=True, probabilities=True)
    names = ["text", "label", "score", "probability_0", "probability_1"]
    assert list(model({"text": ["", " "]})) == names
    assert list(model({"text": ["it", " "]})) == names
    assert (model.labels.total(), model.empty) == (1, 3)


def test_questions_with_one_id_are_named():
    row = {"context": "a cat sat", "question": "who", "answers": {"text": ["cat"], "answer_start": [2]}, "id": "q1"}
    with pytest.raises(ValueError, match="the questions in rows 1 and 3 have the id 'q1'; expected an id for each"):
        read_examples(TASKS["squad"], Source.of([row, row | {"id": "q2"}, row]))


def test_two_classes_of_one_name_are_an_error(models, changed):
    folder = changed(models / "multilabel", id2label={"0": "a", "1": "a", "2": "b"}, label2id={"a": 1, "b": 2})
    with pytest.raises(ValueError, match=rf"{folder} has 'a' for two classes \(id2label\); expected different names"):
        mybert.predict(folder, ["a cat"])
