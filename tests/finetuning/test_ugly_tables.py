"""Tables as people have them: spreadsheets, the CSV that these write, other encodings, nested JSON, empty cells."""

import json
import math
import sys
from dataclasses import replace
from pathlib import Path

import pandas
import pytest

import mybert
from mybert.cli import main
from mybert.files.source import Source, read_rows
from mybert.finetuning import TASKS, EvaluateArguments, Predictor, evaluate_model
from mybert.finetuning.data import rows_of
from mybert.finetuning.prediction import prediction_run, predictor
from mybert.finetuning.tasks.steps import read_examples

openpyxl = pytest.importorskip("openpyxl")

SHORT = ("--max_steps", "1", "--save_strategy", "no", "--max_length", "16", "--disable_tqdm", "--use_cpu")


def numbers(count):
    return [(number % 7) / 2 for number in range(count)]


def workbook(path, sheets):
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
    book.save(path)


@pytest.fixture
def ugly(tmp_path, rows):
    """A folder of files with the same texts and, by file, labels or numbers."""
    rows = [(f"{text} 한", label) for text, label in rows]
    scored = [(text, f"{value:.1f}".replace(".", ",")) for (text, _), value in zip(rows, numbers(48), strict=True)]
    lines = {
        "cp949.csv": (";", "cp949", rows),
        "utf16.tsv": ("\t", "utf-16", rows),
        "german.csv": (";", "utf-8-sig", scored),
    }
    for name, (mark, encoding, table) in lines.items():
        content = "\r\n".join(mark.join(row) for row in (("text", "label"), *table))
        (tmp_path / name).write_text(content, encoding=encoding, newline="")
    objects = [{"review": {"text": text, "stars": label}, "id": n} for n, (text, label) in enumerate(rows)]
    (tmp_path / "nested.jsonl").write_text("\n".join(map(json.dumps, objects)))
    numbered = [(text, float(label == "good")) for text, label in rows]
    workbook(tmp_path / "book.xlsx", {"all": [("text", "label"), *numbered], "dev 1.0": [("text",), ("a cat",)]})
    return tmp_path


@pytest.mark.parametrize(
    ("name", "output", "reading", "task"),
    [
        ("cp949.csv", "o.csv", "--encoding cp949", ""),
        ("utf16.tsv", "o.tsv", "", ""),
        ("german.csv", "o.csv", "", "--task regression --label_column label"),
        ("book.xlsx:all", "o.xlsx", "", ""),
        ("nested.jsonl", "o.jsonl", "", "--text_column review.text --label_column review.stars"),
    ],
)
def test_commands_read_ugly_files_as_rows_in_memory(ugly, rows, pretrained, name, output, reading, task):
    model, output, metrics = (str(ugly / each) for each in ("model", output, "m.json"))
    file = str(ugly / name)
    train = ["finetune", str(pretrained), "--train_file", file, "--output_dir", model, *SHORT]
    assert main([*train, *reading.split(), *task.split()]) == 0
    assert main(["predict", model, file, "--output", output, "--use_cpu", *reading.split()]) == 0
    assert main(["evaluate", file, "--model", model, "--output", metrics, "--use_cpu", *reading.split()]) == 0
    texts = [f"{text} 한" for text, _ in rows]
    labels = [str(int(label == "good")) if name == "book.xlsx:all" else label for _, label in rows]
    data = list(zip(texts, numbers(48) if "regression" in task else labels, strict=True))
    assert json.loads(Path(metrics).read_text()) == pytest.approx(mybert.evaluate(model, data), abs=1e-6)
    written = read_rows(output)
    assert [row["review"]["text"] if "review" in row else row["text"] for row in written] == texts
    answers = mybert.predict(model, texts)
    shown = [row.get("predicted_score", row["score"]) for row in written]
    assert [float(str(value).replace(",", ".")) for value in shown] == pytest.approx(
        [answer["score"] for answer in answers], abs=2e-6
    )


@pytest.mark.parametrize(
    ("name", "encoding", "mark", "first", "decimal_sign", "has_mark"),
    [
        ("d.csv", "utf-8", ",", "1.5", ".", False),
        ("d.csv", "utf-8-sig", ",", '"1,5"', ".", True),
        ("d.csv", "utf-8", ";", "1.5", ".", False),
        ("d.csv", "utf-8", ";", "1,5", ",", False),
        ("d.csv", "utf-8-sig", "\t", "1,5", ".", True),
        ("d.csv", "cp949", ",", "1.5", ".", True),
        ("d.txt", "utf-8-sig", ",", "1.5", ".", True),
    ],
)
def test_predict_writes_csv_in_the_style_of_the_data(
    tmp_path, models, name, encoding, mark, first, decimal_sign, has_mark
):
    lines = ["a cat", "it"] if name == "d.txt" else [f"id{mark}text", f"{first}{mark}a cat", f"2{mark}it"]
    (tmp_path / name).write_text("\n".join(lines), encoding=encoding)
    flags = ["--encoding", encoding] if encoding == "cp949" else []
    output = tmp_path / "o.csv"
    assert main(["predict", str(models / "sst2"), str(tmp_path / name), "--output", str(output), *flags]) == 0
    scores = [str(answer["score"]) for answer in mybert.predict(models / "sst2", ["a cat", "it"])]
    labels = [answer["label"] for answer in mybert.predict(models / "sst2", ["a cat", "it"])]
    kept = ["line,text", "1,a cat", "2,it"] if name == "d.txt" else lines
    endings = ["label", *labels], ["score", *(score.replace(".", decimal_sign) for score in scores)]
    expected = "".join(f"{mark.join(row)}\n" for row in zip(kept, *endings, strict=True))
    assert output.read_bytes() == expected.encode("utf-8-sig" if has_mark else "utf-8")


def test_predict_writes_texts_of_a_spreadsheet_as_texts(tmp_path, models):
    rows = [{"text": "a cat", "note": note} for note in ("=1+1", "#N/A", "01", "a\nb", 7, 2.5, True, None, [1, "é"])]
    mybert.predict(models / "sst2", rows, output=tmp_path / "o.xlsx", keep_columns=["note"])
    sheet = openpyxl.load_workbook(tmp_path / "o.xlsx").active  # with formulas, if there were any
    assert [cell.value for cell in sheet["A"]] == ["note", *(row["note"] for row in rows[:-1]), '[1, "é"]']
    assert {cell.data_type for cell in sheet["A"][:5]} == {"s"}
    assert {cell.value for cell in sheet["B"][1:]} < {0, 1}  # numbers, so that they equal the labels of a sheet
    assert {type(cell.value) for cell in sheet["C"][1:]} == {float}


@pytest.mark.parametrize("note", ["a\x07", "a\ufffe", "a" * 32_768])
def test_predict_to_a_spreadsheet_rejects_what_it_cannot_hold(tmp_path, models, note):
    rows = [{"text": "a cat", "note": note}]
    with pytest.raises(ValueError, match=r"o.xlsx: 'a.*' as note has a control character or more than 32,767 .*\.csv"):
        mybert.predict(models / "sst2", rows, output=tmp_path / "o.xlsx")
    assert not list(tmp_path.iterdir())


def test_predict_to_a_spreadsheet_rejects_more_rows_than_it_holds(tmp_path, models, monkeypatch):
    monkeypatch.setattr(prediction_run, "MAX_ROWS", 3)
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 1)
    mybert.predict(models / "sst2", ["a cat"] * 2, output=tmp_path / "o.xlsx")
    with pytest.raises(ValueError, match=r"p.xlsx cannot hold more than 2 rows; expected an output that ends in .csv"):
        mybert.predict(models / "sst2", ["a cat"] * 3, output=tmp_path / "p.xlsx")


def test_spreadsheets_need_a_package_from_an_extra(tmp_path, models, monkeypatch, capsys):
    workbook(tmp_path / "b.xlsx", {"a": [("text",), ("a cat",)]})
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    for words in ((tmp_path / "b.xlsx",), (tmp_path / "t.txt", "--output", tmp_path / "o.xlsx")):
        (tmp_path / "t.txt").write_text("a cat")
        assert main(["predict", str(models / "sst2"), *map(str, words)]) == 2
        assert (
            "needs the package openpyxl: run pip install '.[excel]' in the clone of mybert" in capsys.readouterr().err
        )


def test_sheets_of_a_file_are_files_of_their_own(tmp_path, models, capsys):
    sheets = {"a": [("text", "label"), ("a cat", "1"), ("it", "0")], "b": [("text", "label"), ("a dog", "1")]}
    workbook(tmp_path / "b.xlsx", sheets)
    names = [f"{tmp_path / 'b.xlsx'}:{name}" for name in sheets]
    assert mybert.predict(models / "sst2", names[1]) == mybert.predict(models / "sst2", ["a dog"])
    parts = {"a": [("a cat", "1"), ("it", "0")], "b": [("a dog", "1")]}
    assert mybert.evaluate(models / "sst2", names, text_column="text") == mybert.evaluate(models / "sst2", parts)
    call = ["predict", str(models / "sst2"), names[0], "--output", str(tmp_path / "b.xlsx"), "--overwrite"]
    assert main(call) == 2 and "b.xlsx is already read or written" in capsys.readouterr().err


EMPTY = [{"text": " ", "label": "1"}, {"text": "a cat", "label": "1"}, {"text": None, "label": "0"}]
EMPTY += [
    {"text": "it", "label": "0"},
    {"text": "it", "label": ""},
    {"text": "", "label": ""},
    {"text": "", "label": ""},
]


def test_predict_skip_empty_keeps_rows_without_text(tmp_path, models, monkeypatch, capsys):
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 5)  # the last part has no text at all
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, EMPTY)))
    call = ["predict", str(models / "sst2"), str(tmp_path / "d.jsonl"), "--output", str(tmp_path / "o.csv")]
    assert main(call) == 2 and "row 1: an empty text; expected a text" in capsys.readouterr().err
    assert main([*call, "--skip_empty"]) == 0
    assert "4 of 7 rows have no text, so their answers are empty." in capsys.readouterr().out
    answers = mybert.predict(models / "sst2", ["a cat", "it"])
    cat, it = ((answer["label"], str(answer["score"])) for answer in answers)
    written = [(row["predicted_label"], row["score"]) for row in read_rows(tmp_path / "o.csv")]
    assert written == [("", ""), cat, ("", ""), it, it, ("", ""), ("", "")]
    none = {"label": None, "score": None}
    assert mybert.predict(models / "sst2", EMPTY[:2], skip_empty=True) == [none, answers[0]]
    model = Predictor(models / "sst2", skip_empty=True)
    assert model({"text": ["", "it"]})["score"] == [None, answers[1]["score"]]
    assert model({"text": [" ", ""]}) == {"text": [" ", ""], "label": [None] * 2, "score": [None] * 2}


@pytest.mark.parametrize("missing", [math.nan, pandas.NA, pandas.NaT])
def test_a_missing_value_alone_or_in_a_pair_is_no_text(models, missing):
    series = pandas.Series(["a cat", missing], dtype=object)
    answer, none = mybert.predict(models / "sst2", series, skip_empty=True)
    assert answer["label"] and none == {"label": None, "score": None}
    with pytest.raises(ValueError, match="data, row 2: an empty text; expected a text, or pass skip_empty"):
        mybert.predict(models / "sst2", series)
    pair = replace(TASKS["rte"], text_column="text", text_pair_column="text_pair")
    (row,) = rows_of([("a cat", missing)], pair, new=True)
    assert row.values == {"text": "a cat", "text_pair": None}
    data = [("a cat", "1"), (missing, "0")]
    found = mybert.evaluate(models / "sst2", data, skip_empty=True, text_column="text")
    assert found == mybert.evaluate(models / "sst2", data[:1], text_column="text")


def test_skip_empty_leaves_out_null_labels_of_any_kind_of_data(tmp_path):
    rows = [{"text": "a cat", "labels": "x,y"}, {"text": "it", "labels": None}, {"text": "a", "labels": []}]
    table = tmp_path / "d.csv"
    table.write_text('text,labels\na cat,"x,y"\nit,\n')
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for data, count in ((table, 1), (pandas.read_csv(table), 1), (tmp_path / "d.jsonl", 2), (rows, 2)):
        examples = read_examples(TASKS["multilabel"], Source.of(data), skip_empty=True)
        assert len(examples) == count, data


def test_evaluate_skip_empty_measures_the_other_rows(tmp_path, models, caplog):
    caplog.set_level("INFO", "mybert")
    with pytest.raises(ValueError, match="data, row 1: an empty text"):
        mybert.evaluate(models / "sst2", EMPTY, text_column="text")
    written = {"predictions_dir": str(tmp_path / "p")}
    found = mybert.evaluate(models / "sst2", EMPTY, text_column="text", skip_empty=True, **written)
    assert found == mybert.evaluate(models / "sst2", [EMPTY[1], EMPTY[3]], text_column="text")
    settings = {"task": "sst2", "text_column": "text", "skip_empty": True, "output": str(tmp_path / "m.json")}
    predictions = str(tmp_path / "p" / "predictions.tsv")
    again = evaluate_model(EvaluateArguments(data=EMPTY, predictions=predictions, **settings))
    assert again == {"accuracy": found["accuracy"]}
    assert "data: 5 of 7 rows have no text or no label and are left out." in caplog.messages


def test_a_comma_is_decimal_if_one_value_shows_it(models):
    data = [{"text": text, "score": value} for text, value in (("a cat", "0,5"), ("it", "1,250"), ("the dog", "-3"))]
    floats = [{"text": row["text"], "score": float(row["score"].replace(",", "."))} for row in data]
    assert mybert.evaluate(models / "regression", data) == mybert.evaluate(models / "regression", floats)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (["1,250", "2,500"], "row 1: '1,250' as score, which may group thousands; expected numbers with a decimal p"),
        (["1.250", "2,5"], "row 1: '1.250' as score; expected one decimal sign in the column, and row 2 has '2,5'"),
        (["2,5", "1.250,5"], "row 2: '1.250,5' as score; expected one decimal sign"),
        (["0,5", "1,250,000"], "row 2: '1,250,000' as score; expected a number"),
    ],
)
def test_numbers_with_ambiguous_commas_are_an_error(models, values, message):
    data = [{"text": "a cat", "score": value} for value in values]
    with pytest.raises(ValueError, match=f"data, {message}"):
        mybert.evaluate(models / "regression", data)


def test_columns_of_objects_have_dotted_names(tmp_path, models, capsys):
    rows = [
        {"review": {"text": "a cat", "id": 1}},
        {"review": {"text": "it"}, "review.text": "the dog"},
        {"review": None},
    ]
    assert mybert.predict(models / "sst2", rows[:2], text_column="review.text") == mybert.predict(
        models / "sst2", ["a cat", "the dog"]
    )
    with pytest.raises(ValueError, match=r"data, row 3: an empty review.text"):
        mybert.predict(models / "sst2", rows, text_column="review.text")
    (tmp_path / "d.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for command in (["predict", str(models / "sst2")], ["vocab", "--output_dir", str(tmp_path / "v"), "--text"]):
        assert main([*command, str(tmp_path / "d.jsonl"), "--text_column", "review.txt"]) == 2
        assert "'review.text', 'review.id'" in (said := capsys.readouterr().err)
        assert "Did you mean review.text?" in said
