"""Labels as people write them: lists in all forms, 0 and 1 for each label, numbers for classes with names."""

import csv
import io
import json

import numpy as np
import pytest

import mybert
from mybert import MyBertForSequenceClassification
from mybert.cli import main
from mybert.finetuning import TASKS, EvaluateArguments, evaluate_model
from mybert.finetuning.data import DataRow, Labels, accepted_rows, is_written_list, label_name, whole_number
from mybert.finetuning.tasks.data_report import check_classes
from mybert.finetuning.tasks.steps import read_predictions, write_predictions
from mybert.finetuning.tasks.texts import LabelPrediction

TEXTS = ("a cat sat", "the dog slept", "fish ate bread")
MULTILABEL = TASKS["multilabel"]
WRITTEN = r"row 1: .* as labels; expected a list \(.jsonl, .parquet\), or text without \[ and \]"


def rows_of(values, column="labels"):
    pairs = zip(TEXTS, values, strict=False)
    return [DataRow({"text": text, column: value}, "x", n) for n, (text, value) in enumerate(pairs, 1)]


def labels_of(values, task=MULTILABEL):
    """The labels of texts, and the classes."""
    rows = rows_of(values, task.label_column)
    task = task.infer_columns(rows)
    examples = task.examples(rows, labeled=True)
    return [example.label for example in examples], task.labels(examples, "x").names


def table_of(values, column="labels"):
    return [{"text": text, column: value} for text, value in zip(TEXTS, values, strict=False)]


def as_csv(values, column="labels"):
    stream = io.StringIO()
    csv.writer(stream).writerows(
        [("text", column), *((text, value) for text, value in zip(TEXTS, values, strict=True))]
    )
    return stream.getvalue()


@pytest.fixture
def stars(tmp_path, tiny_model):
    """A model whose classes have numbers in their names."""
    names = ["1 star", *(f"{count} stars" for count in (2, 3, 4, 5))]
    return tiny_model(tmp_path / "stars", MyBertForSequenceClassification, labels=names, task="classification")


# Case 06: 0 and 1 for each label

BITS = [[1, 0, 1], [0, 1, 0], [0, 0, 0]]


@pytest.mark.parametrize(
    "values",
    [
        BITS,
        [[1.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]],
        [[True, False, True], [False, True, False], [False] * 3],
        [["1", "0", "1"], ["0", "1", "0"], ["0", "0", "0"]],
        ["1,0,1", "0,1,0", "0,0,0"],
        ["1;0;1", "0;1;0", "0;0;0"],
        ["1 0 1", "0 1 0", "0 0 0"],
        ["1.0|0.0|1.0", "0.0|1.0|0.0", "0.0|0.0|0.0"],
    ],
)
def test_case_06_lists_of_0_and_1_have_a_label_for_each_position(values):
    expected = [{"0", "2"}, {"1"}, set()], ("0", "1", "2")
    assert labels_of(values) == expected


def test_case_06_a_position_without_examples_is_a_label():
    assert labels_of([[1, 0, 0], [0, 1, 0], [1, 1, 0]]) == ([{"0"}, {"1"}, {"0", "1"}], ("0", "1", "2"))


@pytest.mark.parametrize("kind", ["list", "array", "pandas", "arrow", "jsonl", "parquet"])
def test_case_06_lists_of_0_and_1_are_read_alike_from_every_source(kind, tmp_path, tune):
    rows = table_of(BITS)
    data = [row | {"labels": np.array(row["labels"])} for row in rows] if kind == "array" else rows
    if kind == "pandas":
        data = pytest.importorskip("pandas").DataFrame(rows)
    elif kind in ("arrow", "parquet"):
        data = pytest.importorskip("pyarrow").Table.from_pylist(rows)
    if kind == "parquet":
        pytest.importorskip("pyarrow.parquet").write_table(data, tmp_path / "t.parquet")
        data = str(tmp_path / "t.parquet")
    elif kind == "jsonl":
        (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
        data = str(tmp_path / "t.jsonl")
    tune(tmp_path / "out", data, task="multilabel", validation_file=data)
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["label2id"] == {"0": 0, "1": 1, "2": 2}
    names = [("0", "2"), ("1",), ()]
    metrics = mybert.evaluate(tmp_path / "out", table_of(list(map(list, names))), use_cpu=True)
    assert metrics == mybert.evaluate(tmp_path / "out", data, use_cpu=True)


def test_case_06_positions_are_ids_of_a_model_with_names(tmp_path, models, tune):
    """In every command that measures."""
    named = [["a", "c"], ["b"], []]
    found = [mybert.evaluate(models / "multilabel", table_of(values), use_cpu=True) for values in (named, BITS)]
    assert found[0] == found[1]
    compared = [
        mybert.compare(models / "multilabel", models / "multilabel", table_of(values), use_cpu=True)["metrics"]
        for values in (named, BITS)
    ]
    assert compared[0] == compared[1]
    settings = {"task": "multilabel", "validation_file": table_of(BITS)}
    metrics = tune(tmp_path / "out", table_of(named), **settings)
    assert metrics == tune(tmp_path / "again", table_of(named), **settings | {"validation_file": table_of(named)})
    settings = {"teacher": str(models / "multilabel"), "student": str(models / "multilabel"), "use_cpu": True}
    settings |= {"train_file": table_of(BITS), "max_steps": 1, "save_strategy": "no", "disable_tqdm": True}
    mybert.distill(output_dir=str(tmp_path / "student"), **settings)
    assert json.loads((tmp_path / "student" / "config.json").read_text())["label2id"] == {"a": 0, "b": 1, "c": 2}


def test_case_06_another_number_of_positions_than_labels_is_an_error(models):
    for values, count in (([[1, 0], [1, 1]], 2), ([[1, 0, 0, 0], [0, 0, 0, 0]], 4)):
        with pytest.raises(
            ValueError, match=rf"data has 0 and 1 for {count} labels in 'labels'; expected 3 \(a, b, c\)"
        ):
            mybert.evaluate(models / "multilabel", table_of(values), use_cpu=True)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            [[1, 0, 1], [0, 1], [0, 0, 0]],
            "row 1: .* each once, or in all rows 0 and 1 for each label .* label_columns",
        ),
        ([["joy"], [0, 0, 1], ["fear"]], "row 2: .* each once, or in all rows 0 and 1 for each label"),
        ([[0.3, 0.7], [0.2, 0.8]], r"row 1: '\[0.3, 0.7\]' as labels; expected names of labels, or 0 and 1 for each"),
        ([[float("nan"), 1], [1, 0]], "row 1: .*; expected names of labels, or 0 and 1 for each"),
    ],
)
def test_case_06_other_lists_of_numbers_are_an_error(values, message):
    with pytest.raises(ValueError, match=message):
        labels_of(values)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[1, 0], [1], [0]], [{"0", "1"}, {"1"}, {"0"}]),  # ids of labels
        ([[27], [2, 14], []], [{"27"}, {"2", "14"}, set()]),
        (["1,0", "0", "1"], [{"0", "1"}, {"0"}, {"1"}]),
        ([[1], [0], [1]], [{"1"}, {"0"}, {"1"}]),
        ([["joy", "joy"], ["fear"]], [{"joy"}, {"fear"}]),
        ([{"joy"}, frozenset({"joy", "fear"}), set()], [{"joy"}, {"joy", "fear"}, set()]),
    ],
)
def test_labels_in_cells_of_names_and_ids_stay(values, expected):
    assert labels_of(values)[0] == expected


def test_read_predictions_of_0_and_1_for_each_label_need_data_of_the_same_form(tmp_path):
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prediction": bits}) for bits in BITS))
    examples = MULTILABEL.examples(rows_of(BITS), labeled=True)
    assert read_predictions(MULTILABEL, tmp_path / "p.jsonl", examples) == [
        LabelPrediction(label) for label in ({"0", "2"}, {"1"}, frozenset())
    ]
    named = MULTILABEL.examples(rows_of([["a"], ["b"], []]), labeled=True)
    with pytest.raises(ValueError, match=r"p.jsonl or the data has 0 and 1 for each label, the other names"):
        read_predictions(MULTILABEL, tmp_path / "p.jsonl", named)
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prediction": name}) for name in "aba"))
    with pytest.raises(ValueError, match=r"p.jsonl or the data has 0 and 1 for each label, the other names"):
        read_predictions(MULTILABEL, tmp_path / "p.jsonl", examples)


def test_read_predictions_of_0_and_1_in_a_table_with_their_columns_are_both_labels(tmp_path):
    both = LabelPrediction(frozenset({"0", "1"}), {"0": 0.9, "1": 0.8})
    write_predictions(
        MULTILABEL, [both, both], examples := MULTILABEL.examples(rows_of([[1, 1], [0, 1]]), True), tmp_path
    )
    read = read_predictions(MULTILABEL, tmp_path / "predictions.tsv", examples)
    assert [prediction.label for prediction in read] == [both.label] * 2


# Case 07: written lists

LISTS = ["['joy', 'fear']", '["joy"]', "['joy' 'fear']", "['joy',\n 'fear']", "('joy',)", "('joy', 'fear')", "{'joy'}"]
LISTS += ["array(['joy'], dtype=object)", "tensor([1, 0])", "frozenset({'joy'})", "[1.0, 0.0]", "[1. 0.]", "(1, 0)"]
LISTS += ["[joy, fear]", "{joy,fear}", '{"choices": ["joy"]}', '{"joy": 1}', "[]", "{}", "set()", "[True, False]"]
LISTS += ['[{"labels": ["joy"]}]', "[['joy']]", "[27]", "Index(['joy'], dtype='object')", "[nan]"]


@pytest.mark.parametrize("text", LISTS)
def test_case_07_written_lists_are_no_labels(text):
    with pytest.raises(ValueError, match=WRITTEN):
        labels_of([text, "joy", "fear"])
    with pytest.raises(ValueError, match=r"row 1: .* as label; expected one label \(several: task='multilabel'"):
        labels_of([text, "joy", "fear"], TASKS["classification"])
    row = DataRow({"tokens": ["a", "cat"], "tags": text}, "x", 1)
    with pytest.raises(ValueError, match=r"row 1: .* as tags; expected a list"):
        TASKS["tagging"].examples([row], labeled=True)


@pytest.mark.parametrize(
    ("text", "is_label", "is_tag"),
    [
        ("[joy]", True, False),  # one alone is a list only where there may be several
        ("{joy}", True, False),
        ("(joy, fear)", True, True),
        ("(none)", True, True),
        ("(1)", True, True),
        ("(0, 10]", True, True),  # an interval
        ("[NOISE],[MUSIC]", True, True),
        ("f(x)", True, True),
        (":)", True, True),
        ("joy, fear", True, True),
        ("( NN , NN )", True, True),  # parts of speech of "( a , b )"
    ],
)
def test_case_07_names_with_brackets_stay(text, is_label, is_tag):
    assert is_written_list(text, "label") != is_label
    assert is_written_list(text, "tags") != is_tag


@pytest.mark.parametrize("text", ["('EU', 'rejects')", "{'EU'}", "array(['EU' 'x'], dtype=object)", "('EU',)"])
def test_words_of_written_lists_are_an_error(text):
    with pytest.raises(ValueError, match=r"row 1: .* as tokens; expected a list"):
        DataRow({"tokens": text}, "x", 1).words("tokens")


@pytest.mark.parametrize("text", ['( " What ? " )', '("What?")', "[ laughs ] [1]", "{ x }", "(a, b)", "[1]"])
def test_words_of_sentences_in_brackets_stay(text):
    assert DataRow({"tokens": text}, "x", 1).words("tokens") == text.split()


@pytest.mark.parametrize("text", ["['a', 'b']", "('a',)", "[a, b]"])
def test_case_07_every_command_rejects_written_lists(tmp_path, models, pretrained, capsys, text):
    (tmp_path / "bad.csv").write_text(as_csv([text, "b", "c"]))
    (tmp_path / "good.csv").write_text(as_csv(["a,b", "b", "c"]))
    bad, good, model = str(tmp_path / "bad.csv"), str(tmp_path / "good.csv"), str(models / "multilabel")
    train = ["finetune", str(pretrained), "--task", "multilabel", "--output_dir", str(tmp_path / "out"), "--use_cpu"]
    train += ["--max_length", "16", "--train_file"]
    teach = ["distill", model, "--student", model, "--output_dir", str(tmp_path / "out"), "--use_cpu", "--train_file"]
    for call in (
        [*train, bad],
        [*train, good, "--validation_file", bad],
        [*train, good, "--test_file", bad],
        [*train, bad, "--folds", "3"],
        [*teach, bad],
        ["evaluate", bad, "--model", model, "--use_cpu"],
        ["compare", model, model, "--data", bad, "--use_cpu"],
    ):
        assert main(call) == 2, call
        assert "row 1: " in (said := capsys.readouterr().err) and "as labels; expected a list (.jsonl" in said, call
    assert not (tmp_path / "out").exists()
    (tmp_path / "p.csv").write_text(f'prediction\n"{text}"\nb\nc\n')
    arguments = EvaluateArguments(task="multilabel", data=good, predictions=str(tmp_path / "p.csv"))
    with pytest.raises(ValueError, match=r"p.csv, row 1: .* as prediction; expected a list"):
        evaluate_model(arguments)


# Case 09: numbers as labels of classes with names

STARS = Labels(("1 star", "2 stars", "3 stars", "4 stars", "5 stars"))


@pytest.mark.parametrize("values", ["1234", "12345", "01234", "4", "0"])
def test_case_09_a_number_is_no_id_of_classes_with_numbers(values):
    with pytest.raises(ValueError, match=r"^dev has the label '\d'; expected one of '1 star', .*\."):
        STARS.ids(list(values), "dev")


@pytest.mark.parametrize(
    ("names", "are_ids"),
    [
        (("no", "yes"), True),
        (("covid19", "flu"), True),  # 19 is no id here
        (("class 1", "class 2"), False),
        (("level 01", "level 02"), False),
        (("Q0", "Q1"), False),
        (("H1N1", "flu"), False),
        (("1점", "2점"), False),
        (("-1", "1"), False),
        (("-20", "-10"), False),
        (("0.5", "1.5"), False),
        (("9", "10"), False),
        (("\u0661 x", "\u0662 x"), False),  # Arabic digits
        (("True", "False"), False),  # in data, true is 1
        ((f"{'7' * 5000} x", "flu"), True),
    ],
)
def test_case_09_numbers_are_ids_only_where_they_cannot_mean_a_name(names, are_ids):
    if are_ids:
        assert Labels(names).ids(["1", "0"], "dev") == [1, 0]
    else:
        unknown = [name for name in ("0", "1") if name not in names]
        with pytest.raises(ValueError, match=r"dev has the label '.'; expected one of"):
            Labels(names).ids(unknown, "dev")


@pytest.mark.parametrize(
    ("names", "value"), [(("no", "yes"), "5"), (("9", "10"), "1"), (("1 star", "2 stars"), "bad")]
)
def test_case_09_other_unknown_labels_are_not_said_to_be_ids(names, value):
    with pytest.raises(
        ValueError, match=rf"dev has the label '{value}'; expected one of '{names[0]}', '{names[1]}'\.$"
    ):
        Labels(names).ids([value], "dev")


def test_case_09_unnamed_classes_are_numbers():
    config = mybert.MyBertConfig(id2label={0: "LABEL_0", 1: "LABEL_1", 2: "LABEL_2"})
    assert Labels.from_config(config).ids(["2", "0"], "dev") == [2, 0]
    assert [label_name(value) for value in ("LABEL_2", 2.0, "2.0", 2, True)] == ["2", "2", "2", "2", "1"]


def test_case_09_every_command_rejects_numbers_of_classes_with_numbers(tmp_path, stars, pretrained, capsys):
    numbers = as_csv(["1", "2", "4"], "label")
    (tmp_path / "numbers.csv").write_text(numbers)
    (tmp_path / "numbers.jsonl").write_text("\n".join(map(json.dumps, table_of([1, 2.0, 4], "label"))))
    (tmp_path / "names.csv").write_text(as_csv(["1 star", "2 stars", "3 stars"], "label"))
    names, model = str(tmp_path / "names.csv"), str(stars)
    out = ["--output_dir", str(tmp_path / "out"), "--use_cpu", "--max_length", "16", "--train_file"]
    for data in (str(tmp_path / "numbers.csv"), str(tmp_path / "numbers.jsonl")):
        for call in (
            ["finetune", str(pretrained), *out, names, "--validation_file", data],
            ["finetune", str(pretrained), *out, names, "--test_file", data],
            ["distill", model, "--student", model, *out, data],
            ["evaluate", data, "--model", model, "--use_cpu"],
            ["compare", model, model, "--data", data, "--use_cpu"],
        ):
            assert main(call) == 2, call
            said = capsys.readouterr().err
            assert "has the label '1'; expected one of '1 star', '2 stars'" in said, call
            assert "A number could be a name or an id here; give the names." in said
    assert not (tmp_path / "out").exists()
    for data in (table_of([1, 2, 4], "label"), [(text, 4) for text in TEXTS]):
        with pytest.raises(ValueError, match=r"data has the label '[14]'"):
            mybert.evaluate(model, data, use_cpu=True)
    assert "accuracy" in mybert.evaluate(model, table_of(["1 star", "4 stars", "5 stars"], "label"), use_cpu=True)


@pytest.mark.parametrize(("predicted", "true"), [("abb", "100"), ("010", "bab")])
def test_case_09_predictions_by_name_of_data_with_numbers_are_an_error(tmp_path, predicted, true):
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prediction": label}) for label in predicted))
    data = table_of(true, "label")
    arguments = EvaluateArguments(task="classification", data=data, predictions=str(tmp_path / "p.jsonl"))
    message = rf"p.jsonl has the labels {min(predicted)}, .*, and the data {min(true)}, .*; expected the same names"
    with pytest.raises(ValueError, match=message):
        evaluate_model(arguments)


def test_evaluate_predictions_of_numbers_of_data_with_numbers_and_names_counts_them(tmp_path):
    (tmp_path / "p.jsonl").write_text("\n".join(json.dumps({"prediction": label}) for label in "110"))
    data = table_of(["1", "other", "0"], "label")
    arguments = EvaluateArguments(task="classification", data=data, predictions=str(tmp_path / "p.jsonl"))
    assert evaluate_model(arguments)["accuracy"] == pytest.approx(2 / 3)


# Whole numbers


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        *((value, 24) for value in (24, 24.0, "24", "24.0", " 24.00 ", np.int64(24), np.float32(24))),
        *((value, None) for value in (24.5, "24.5", "2_4", "x", "", None, "1e3", float("inf"), float("nan"), [24])),
        *((-1, -1), (True, 1), ("7" * 5000, None)),
    ],
)
def test_case_15_whole_number_reads_every_form(value, expected):
    assert whole_number(value) == expected


@pytest.mark.parametrize("index", ["1.0", 1.0, 1, "1"])
def test_case_15_an_index_of_predictions_may_be_a_whole_float(tmp_path, index):
    rows = [{"index": index, "prediction": "b"}, {"index": type(index)(0), "prediction": "a"}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    task = TASKS["classification"]
    examples = task.examples(rows_of("ab", "label"), labeled=True)
    assert [item.label for item in read_predictions(task, tmp_path / "p.jsonl", examples)] == ["a", "b"]


@pytest.mark.parametrize("label", [1, 1.0, "1", "1.0", True])
def test_case_15_a_choice_may_be_a_whole_float(label):
    row = DataRow({"text": "a", "choices": ["b", "c"], "label": label}, "x", 1)
    assert TASKS["multiple_choice"].examples([row], labeled=True)[0].label == 1


# Labels that are none


def examples_of(names, task="classification"):
    task = TASKS[task]
    rows = [DataRow({"text": "a", task.label_column: name}, "x", n) for n, name in enumerate(names, start=1)]
    return task, task.examples(rows, labeled=True)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            [f"id{n}" for n in range(60)],
            "x: 60 classes in 'label', 60 of them with one example, for 60 examples: is th",
        ),
        ([f"{n}.5" for n in range(60)], "is this a number? For numbers use task='regression'"),
        ([f"id{n}" for n in range(60)] + ["x"] * 100, "61 classes in 'label', 60 of them with one example"),
        (["good", "None"] * 40, "x, row 2: 'None' as label, which programs write for a missing value; leave it empty"),
        (["good", "bad", "nan"], "x, row 3: 'nan' as label"),
        (["good", "bad", "\\N"], r"x, row 3: '\\N' as label"),  # as databases write it
    ],
)
def test_check_classes_rejects_what_is_no_label_and_says_how_to_insist(names, message):
    with pytest.raises(ValueError) as caught:
        check_classes(*examples_of(names), "x")
    assert message in str(caught.value) and "or pass allow_unusual_labels=True" in str(caught.value)


def test_check_classes_rejects_joined_labels_of_a_multilabel_task():
    values = [f"{a}/{b}" for a in "abcdefghijk" for b in "abcdefghijk" if a < b]
    with pytest.raises(ValueError, match=r"x: 55 of 55 classes in 'labels' look like several labels joined by '/'"):
        check_classes(*examples_of(values, "multilabel"), "x")


@pytest.mark.parametrize(
    "names",
    [
        [f"id{n}" for n in range(50)],
        [f"id{n % 60}" for n in range(120)],
        [f"id{n}" for n in range(60)] + [f"id{n}" for n in range(30)],
        ["NA", "none", "null value", "N/A"] * 5,
    ],
)
def test_check_classes_of_many_or_odd_names_accepts_them(names):
    check_classes(*examples_of(names), "x")


def test_check_classes_of_label_columns_and_positions_accepts_rare_ones():
    rows = [DataRow({"text": "a", "labels": [int(n == m) for m in range(60)]}, "x", n) for n in range(60)]
    check_classes(MULTILABEL, MULTILABEL.examples(rows, labeled=True), "x")


def test_finetune_with_allow_unusual_labels_learns_them(tmp_path, tune):
    rows = [(f"a cat {number}", f"id{number}") for number in range(60)]
    with pytest.raises(ValueError, match="60 classes in 'label'"):
        tune(tmp_path / "out", rows)
    assert not (tmp_path / "out").exists()
    tune(tmp_path / "out", rows, allow_unusual_labels=True)
    with pytest.raises(ValueError, match="train_file, row 2: 'null' as label"):
        tune(tmp_path / "null", [("a cat", "good"), ("a dog", "null")])
    tune(tmp_path / "null", [("a cat", "good"), ("a dog", "null")], allow_unusual_labels=True)
    assert json.loads((tmp_path / "null" / "config.json").read_text())["label2id"] == {"good": 0, "null": 1}


# Annotations of Prodigy


def test_accepted_rows_leaves_out_what_an_annotator_rejected(caplog):
    rows = [
        DataRow({"text": "a", "answer": answer}, "x", n) for n, answer in enumerate(("accept", "reject", "ignore"))
    ]
    assert accepted_rows(rows, ["text", "label"]) == rows[:1]
    assert (
        "x: 2 of 3 rows have the answer reject or ignore, as annotated with Prodigy, and are left out." in caplog.text
    )
    assert accepted_rows(rows, ["text", "answer"]) == rows  # it is the label
    with pytest.raises(ValueError, match="x: all of 2 rows have the answer reject or ignore"):
        accepted_rows(rows[1:], ["text"])
    for others in (["yes", "reject"], [["accept"], "reject"], ["accept", "accept"], [None, None]):
        rows = [DataRow({"text": "a", "answer": answer}, "x", n) for n, answer in enumerate(others)]
        assert accepted_rows(rows, ["text"]) == rows


def test_commands_leave_out_rejected_rows_with_a_label(tmp_path, models, tune):
    answers = ["accept", "reject", "accept"]
    rows = [row | {"answer": answer} for row, answer in zip(table_of("010", "label"), answers, strict=True)]
    rows.append({"text": "a mat", "label": "1", "answer": "accept"})
    kept = [row for row in rows if row["answer"] == "accept"]
    given = {"text_column": "text", "use_cpu": True}
    assert mybert.evaluate(models / "sst2", rows, **given) == mybert.evaluate(models / "sst2", kept, **given)
    metrics = tune(tmp_path / "out", rows, validation_file=rows, test_file=rows)
    assert metrics == tune(tmp_path / "kept", kept, validation_file=kept, test_file=kept)
    assert len(mybert.predict(models / "sst2", rows, **given)) == 4


def test_finetune_reports_the_errors_of_the_mean(tmp_path, tune):
    rows = [(text, value) for text, value in zip(TEXTS, (1.0, 2.0, 6.0), strict=True)]
    metrics = tune(tmp_path / "out", rows, task="regression", validation_file=rows, test_file=rows)
    assert metrics["mean_value_mae"] == metrics["test_mean_value_mae"] == 2.0
