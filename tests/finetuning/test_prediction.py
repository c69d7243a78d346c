"""Predicting with models of every kind, from every kind of input to every kind of file."""

import csv
import dataclasses
import datetime
import errno
import gzip
import io
import json
import pickle
import re
import shutil
import sys
from collections import Counter
from contextlib import nullcontext
from itertools import chain, repeat

import numpy as np
import pytest
import torch
from accelerate import PartialState
from transformers import BertForSequenceClassification, pipeline

import mybert
from mybert import MyBertForSequenceClassification, MyBertForTokenClassification
from mybert.cli import main
from mybert.files.source import read_rows
from mybert.finetuning import TASKS, FeaturesArguments, Predictor, commands, comparison, extract_features
from mybert.finetuning.data import DataRow
from mybert.finetuning.prediction import prediction_run, predictor
from mybert.finetuning.prediction.predictor import task_for_columns
from mybert.finetuning.tasks.steps import label_count_line, read_examples


@pytest.fixture(scope="module")
def expected(models, texts):
    """Label and score of every text, one by one, by transformers' own pipeline."""
    classify = pipeline("text-classification", model=str(models / "sst2"), device="cpu")
    found = [(answer["label"], answer["score"]) for answer in classify(texts, truncation=True, max_length=16)]
    assert len({label for label, _ in found}) == 2
    return found


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same(rows, expected):
    rows = rows if isinstance(rows, list) else rows.to_dict("records")  # of a data frame
    assert [row["label"] for row in rows] == [label for label, _ in expected]
    assert [float(row["score"]) for row in rows] == pytest.approx([score for _, score in expected], abs=2e-6)


@pytest.mark.parametrize(
    ("task", "file", "form"),
    [
        ("sst2", "new.txt", None),
        ("ner", "new.txt", None),
        ("squad", "new.txt", "question ||| context"),
        ("swag", "new.jsonl", "an object with sent1, sent2, ending0, ending1, ending2, ending3"),
    ],
)
def test_new_data_is_a_file_that_the_model_reads(models, short_run, tmp_path, capsys, task, file, form):
    assert short_run(output_dir=str(models / task), train_file="x", save_strategy="no").new_data == (file, form)
    (tmp_path / "new.txt").write_text("who sat ||| the cat sat\n" if form else "the cat sat\n")
    flags = ["predict", str(models / task), str(tmp_path / "new.txt"), "--use_cpu", "--output"]
    assert main([*flags, str(tmp_path / "out.csv")]) == (0 if file == "new.txt" else 2)
    if task == "squad":
        (tmp_path / "new.txt").write_text("who sat\n")
        assert main([*flags, str(tmp_path / "other.csv")]) == 2
        assert "'who sat'; expected question ||| context in a line" in capsys.readouterr().err


def test_predict_every_kind_of_data_answers_as_the_pipeline(tmp_path, models, texts, expected):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    model = models / "sst2"
    table = {"id": list(range(30)), "sentence": texts}
    rows = [{"sentence": text} for text in texts]
    (tmp_path / "t.txt").write_text("\n\n".join(texts) + "\n")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress("\n".join(["sentence", *texts]).encode()))
    (tmp_path / "t.tsv").write_text("\n".join(["id\tsentence", *(f"{n}\t{text}" for n, text in enumerate(texts))]))
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pandas.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    frame = pandas.DataFrame({"review": texts})
    for data in (texts, rows, tuple(texts), pandas.DataFrame(table), datasets.Dataset.from_dict(table), frame):
        same(mybert.predict(model, data), expected)
    assert frame.columns.tolist() == ["review"]
    for name in ("t.txt", "t.csv.gz", "t.tsv", "t.jsonl", "t.parquet"):
        same(mybert.predict(model, str(tmp_path / name)), expected)
    same(mybert.predict(model, [tmp_path / "t.csv.gz", tmp_path / "t.tsv"]), expected * 2)
    lazy = mybert.predict(model, iter(texts))
    same([next(lazy), *lazy], expected)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_predict_data_frame_returns_one_of_its_kind(models, texts, library):
    library = pytest.importorskip(library)
    make = getattr(library, "table", None) or library.DataFrame
    frame = make({"id": list(range(30)), "sentence": texts, "label": ["mine"] * 30})
    told = mybert.predict(models / "sst2", texts, top_k=2)
    expected = [{"label": "mine", "predicted_label": row.pop("label")} | row for row in told]
    found = mybert.predict(models / "sst2", frame, top_k=2, keep_columns=["label"])
    assert type(found) is type(frame)
    records = getattr(found, "to_pylist", None) or getattr(found, "to_dicts", None)
    assert (records() if records else found.to_dict("records")) == expected


def test_predict_pandas_frame_keeps_index_and_columns(tmp_path, models, texts):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"sentence": texts, 7: [0.5, None] * 15}, index=texts)
    found = mybert.predict(models / "sst2", frame)
    pandas.testing.assert_frame_equal(found[["sentence", 7]], frame)
    mybert.predict(models / "sst2", frame, output=tmp_path / "o.csv")
    assert list(map(str, found)) == list(read_rows(tmp_path / "o.csv")[0]) == ["sentence", "7", "label", "score"]


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv", "o.tsv", "o.parquet"])
def test_predict_every_kind_of_output_has_the_columns_of_the_data(tmp_path, models, texts, expected, name):
    rows = [{"sentence": text, "label": f"mine {n}", "note": [n]} for n, text in enumerate(texts)]
    found = mybert.predict(models / "sst2", rows, output=tmp_path / name, probabilities=True)
    assert found == {"rows": 30, "cut": 0, "windowed": 0, "empty": 0}
    written = read_rows(tmp_path / name)
    assert [row["sentence"] for row in written] == texts
    assert [row["label"] for row in written] == [f"mine {n}" for n in range(30)]
    is_text = name in ("o.csv", "o.tsv")
    assert [row["note"] for row in written] == [f"[{n}]" if is_text else [n] for n in range(30)]
    same([row | {"label": row["predicted_label"]} for row in written], expected)
    sums = [float(row["probability_0"]) + float(row["probability_1"]) for row in written]
    assert sums == pytest.approx([1.0] * 30, abs=2e-6)
    assert names(tmp_path) == [name]


def test_predict_to_parquet_loses_no_column(tmp_path, models, monkeypatch, caplog):
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 2)
    given = [{"first": 1}, {"second": [1]}, {"first": 2.5, "second": []}, {"third": "x", "mixed": "a"}, {"mixed": 1}]
    given[0]["mixed"], given[2]["huge"] = {"b": True}, 2**80
    rows = [{"sentence": "a cat"} | row for row in given]
    mybert.predict(models / "sst2", rows, output=tmp_path / "o.parquet")
    written = read_rows(tmp_path / "o.parquet")
    assert {name: [row[name] for row in written] for name in ("first", "second", "third", "mixed", "huge")} == {
        "first": [1.0, None, 2.5, None, None],
        "second": [None, [1], [], None, None],
        "third": [None, None, None, "x", None],
        "mixed": ['{"b": true}', None, None, "a", "1"],
        "huge": [None, None, str(2**80), None, None],
    }
    assert "'mixed'" in caplog.text


def test_predict_interrupted_says_that_the_same_command_continues(tmp_path, models, monkeypatch, caplog):
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 1)
    (tmp_path / "t.txt").write_text("a cat\na dog\n")
    answers = prediction_run.Predictor.answers

    def interrupted_after_the_first_part(predictor, rows, progress):
        if any(tmp_path.glob("*/predictions-*.jsonl")) or any(tmp_path.glob(".*/predictions-*.jsonl")):
            raise KeyboardInterrupt
        return answers(predictor, rows, progress)

    call = {"model": models / "sst2", "data": str(tmp_path / "t.txt"), "output": tmp_path / "o.csv"}
    with monkeypatch.context() as patches, pytest.raises(KeyboardInterrupt):
        patches.setattr(prediction_run.Predictor, "answers", interrupted_after_the_first_part)
        mybert.predict(**call)
    assert "What was predicted is kept; the same command continues from there." in caplog.text
    mybert.predict(**call)
    assert len(read_rows(tmp_path / "o.csv")) == 2


def test_predict_on_a_disk_that_fills_up_keeps_what_was_predicted(tmp_path, models, monkeypatch):
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 1)
    (tmp_path / "t.txt").write_text("a cat\na dog\nit\n")
    write, answers, read = prediction_run.write_lines, prediction_run.Predictor.answers, []

    def full(file, lines):
        if [*file.parent.glob("predictions-*.jsonl")]:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(file, lines)

    call = {"model": models / "sst2", "data": str(tmp_path / "t.txt"), "output": tmp_path / "o.csv"}
    with monkeypatch.context() as patches, pytest.raises(OSError, match="No space left on device"):
        patches.setattr(prediction_run, "write_lines", full)
        mybert.predict(**call)
    monkeypatch.setattr(
        prediction_run.Predictor, "answers", lambda self, *rows: read.append(1) or answers(self, *rows)
    )
    mybert.predict(**call)
    assert len(read_rows(tmp_path / "o.csv")) == 3 and len(read) == 2  # the other parts


@pytest.mark.parametrize(("row", "found"), [({"id": "a\tb"}, r"'a\\tb' as id"), ({"a\nb": 1}, "name of a column")])
def test_predict_to_tsv_rejects_breaks_in_the_first_part(tmp_path, models, monkeypatch, row, found):
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 1)
    endless = ({"sentence": "a cat"} | values for values in chain([row], repeat({})))
    rows = type("Lazily", (), {"__iter__": lambda self: endless})()
    with pytest.raises(ValueError, match=found):
        mybert.predict(models / "sst2", rows, output=tmp_path / "o.tsv")
    assert not (tmp_path / "o.tsv").exists()


def test_predict_standard_input_to_standard_output(capsys, monkeypatch, models, texts, expected):
    def run(content):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        code, captured = main(["predict", str(models / "sst2"), "-"]), capsys.readouterr()
        return code, [json.loads(line) for line in captured.out.splitlines()], captured.err

    for content in ("\n".join(texts), "\n".join(json.dumps({"id": n, "text": text}) for n, text in enumerate(texts))):
        same(run(content)[1], expected)
    code, rows, said = run("\n\na cat\n\na dog\n")
    assert code == 0 and [row["line"] for row in rows] == [3, 5]
    assert "standard input: 3 empty lines" in said
    code, _, said = run('\n{"sentence": "a cat"}\n[]\n')
    assert code == 2 and "standard input, line 3" in said


def test_predict_pairs_by_every_name_of_their_columns(tmp_path, models, texts):
    classify = pipeline("text-classification", model=str(models / "mrpc"), device="cpu")
    pairs = list(zip(texts, texts[::-1], strict=True))
    wanted = [classify({"text": a, "text_pair": b}, truncation=True, max_length=16) for a, b in pairs]
    wanted = [(answer["label"], answer["score"]) for answer in wanted]
    (tmp_path / "t.txt").write_text("\n".join(" ||| ".join(pair) for pair in pairs))
    for data, settings in (
        (pairs, {}),
        (tmp_path / "t.txt", {}),
        ([{"#1 String": a, "#2 String": b, "text": "other"} for a, b in pairs], {}),
        ([{"question1": a, "question2": b} for a, b in pairs], {}),
        ([{"left": a, "right": b} for a, b in pairs], {"text_column": "left", "text_pair_column": "right"}),
    ):
        same(mybert.predict(models / "mrpc", data, **settings), wanted)


@pytest.mark.parametrize("task", ["sst2", "regression", "multilabel"])
def test_predict_text_with_its_label_is_no_pair(models, texts, task):
    rows = [(text, "good") for text in texts[:3]]
    for data in (rows, iter(rows), list(map(list, rows)), torch.utils.data.Subset(rows, range(3))):
        with pytest.raises(ValueError, match=r"row 1: .*\(the task reads no pairs\)"):
            list(mybert.predict(models / task, data))
    with pytest.raises(ValueError, match=r"row 1: .*; expected a tuple of one text"):
        mybert.evaluate(models / task, [((text, "x"), "0") for text in texts[:3]])
    with pytest.raises(ValueError, match="a list of words"):
        mybert.predict(models / "ner", [("the cat sat", "B-PER")])


def test_predict_bars_in_a_file_are_text_for_a_model_of_single_texts(tmp_path, models):
    (tmp_path / "t.txt").write_text("the cat ||| a dog\n")
    mybert.predict(models / "sst2", tmp_path / "t.txt", output=tmp_path / "o.jsonl")
    (row,) = read_rows(tmp_path / "o.jsonl")
    assert row["text"] == "the cat ||| a dog" and "text_pair" not in row


def test_predict_one_text_of_a_pair_may_be_missing(tmp_path, models):
    (tmp_path / "t.jsonl").write_text('{"#1 String": "a cat", "#2 String": null}\n')
    empty = mybert.predict(models / "mrpc", [("a cat", "")])
    for data in ([("a cat", None)], [["a cat", None]], [{"text": "a cat", "text_pair": None}], tmp_path / "t.jsonl"):
        assert mybert.predict(models / "mrpc", data) == empty
    for task, data, found in (
        *(("mrpc", [pair], r"row 1: an empty .* and an empty") for pair in (("", ""), (None, None), (" ", None))),
        ("mrpc", [{"#1 String": "", "#2 String": None}], r"row 1: an empty .* and an empty"),
        ("sst2", ["a", None], r"data, row 2: an empty text"),
        ("squad", [("who", None)], r"data, row 1: an empty text_pair"),
    ):
        with pytest.raises(ValueError, match=found):
            mybert.predict(models / task, data)


def test_predict_lone_surrogates_in_memory_name_the_row(models):
    model = models / "sst2"
    for run, found in (
        (lambda: mybert.predict(model, ["a", "b\ud800"]), r"data, row 2: .*\\ud800, as text"),
        (lambda: mybert.predict(model, [{"text": "a"}, {"text": "a", "n": [{"id": "\udfff"}]}]), r"row 2: .* as n"),
        (lambda: mybert.evaluate(model, [("b\ud800", "0")]), r"data, row 1: half of"),
        (lambda: Predictor(model)({"sentence": ["\ud800"]}), r"The batch, row 1: half of"),
    ):
        with pytest.raises(ValueError, match=found):
            run()


def test_predict_quotes_of_published_files_are_text_and_of_others_those_of_csv(tmp_path, models):
    for name, text in (("dev.tsv", '"the cat"'), ("mine.tsv", "the cat"), ("dev.tsv.gz", '"the cat"')):
        content = b'sentence\tlabel\n"the cat"\t1\n'
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        mybert.predict(models / "sst2", tmp_path / name, output=tmp_path / "o.jsonl", overwrite=True)
        assert read_rows(tmp_path / "o.jsonl")[0]["sentence"] == text
        assert read_examples(TASKS["sst2"], tmp_path / name)[0].texts == (text,)


def test_predict_table_of_one_column_without_its_name_is_an_error(tmp_path, capsys, models):
    for name, header in (("t.csv", "I loved it"), ("t.tsv", "great")):
        (tmp_path / name).write_text(f"{header}\nthe cat sat\n")
        assert main(["predict", str(models / "sst2"), str(tmp_path / name)]) == 2
        captured = capsys.readouterr()
        assert f"'{header}'" in captured.err and not captured.out
        assert len(mybert.predict(models / "sst2", tmp_path / name, text_column=header)) == 1
    (tmp_path / "t.csv").write_text("Review\nthe cat sat\n")
    assert len(mybert.predict(models / "sst2", tmp_path / "t.csv")) == 1


def test_predict_line_breaks_of_every_kind_are_kept(tmp_path, models):
    rows = [{"sentence": "a cat", "id": f"a{mark}b"} for mark in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"]
    for name in ("o.jsonl", "o.csv"):
        mybert.predict(models / "sst2", rows, output=tmp_path / name)
        lines = (tmp_path / name).read_bytes().decode().splitlines(keepends=True)
        written = map(json.loads, lines) if name == "o.jsonl" else csv.DictReader(lines)
        assert [row["id"] for row in written] == [row["id"] for row in rows]
    for row in rows:
        with pytest.raises(ValueError, match="as id has a tab or line break"):
            mybert.predict(models / "sst2", [row], output=tmp_path / "o.tsv")


def test_predict_tsv_with_quotes_is_read_as_it_was_written(tmp_path, models):
    texts = ['"the cat sat"', '"', 'he said "the dog"']
    mybert.predict(models / "sst2", texts, output=tmp_path / "o.tsv")
    assert [row["text"] for row in read_rows(tmp_path / "o.tsv")] == texts
    assert mybert.predict(models / "sst2", tmp_path / "o.tsv") == mybert.predict(models / "sst2", texts)


def test_predict_question_too_long_for_a_window_names_row_and_flag(tmp_path, models):
    rows = [{"question": question, "context": "the cat sat"} for question in ("who", "who " * 40)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for data, name in ((rows, "data"), (tmp_path / "t.jsonl", "t.jsonl")):
        with pytest.raises(ValueError, match=rf"{name}, row 2: max_length \(32\) leaves .* max_question_length"):
            mybert.predict(models / "squad", data)
        assert len(mybert.predict(models / "squad", data, max_question_length=10)) == 2


def test_task_for_columns_reads_pairs_and_keeps_named_columns():
    row = DataRow({"line": 1, "text": "a", "text_pair": "b"}, "data", 1)
    for given in ([], ["max_length", "encoding", "task"]):
        assert task_for_columns(TASKS["classification"], row, given).text_pair_column == "text_pair"
    row = DataRow({"premise": "a", "hypothesis": "b", "other": "c"}, "data", 1)
    task = dataclasses.replace(TASKS["classification"], text_pair_column="other")
    with pytest.raises(ValueError, match="has no column 'text'"):
        task_for_columns(task, row, ["text_pair_column"])
    task = dataclasses.replace(task, text_pair_column="hypothesis")
    assert task_for_columns(task, row, ["text_pair_column"]).text_column == "premise"


def logits(model, tokenizer, text, **settings):
    with torch.no_grad():
        return model(**tokenizer(text, return_tensors="pt", **settings)).logits[0]


def test_predict_several_labels_are_those_above_their_thresholds(models, tokenizer, texts):
    model = MyBertForSequenceClassification.from_pretrained(models / "multilabel").eval()
    thresholds = {"a": 0.9, "b": 0.1, "c": 0.5}
    for text, row in zip(texts, mybert.predict(models / "multilabel", texts, top_k=3), strict=True):
        scores = dict(zip("abc", logits(model, tokenizer, text).sigmoid().tolist(), strict=True))
        ranked = sorted(scores, key=lambda name: -scores[name])
        assert row["label"] == [name for name in ranked if scores[name] > thresholds[name]]
        assert row["score"] == pytest.approx([scores[name] for name in row["label"]], abs=2e-6)
        assert [item["label"] for item in row["best"]] == ranked


def test_predict_confidence_threshold_leaves_uncertain_labels_empty(tmp_path, models, texts, changed):
    def model(**recorded):
        record = json.loads((models / "sst2" / "config.json").read_text())["finetuned_for"]
        return changed(models / "sst2", finetuned_for=record | {"temperature": 3.0} | recorded)

    sure = mybert.predict(model(), texts)
    threshold = float(np.mean(sorted({row["score"] for row in sure})[2:4]))
    wanted = [row["label"] if row["score"] > threshold else None for row in sure]
    found = mybert.predict(model(), texts, confidence_threshold=threshold)
    assert [row["label"] for row in found] == wanted and [row["score"] for row in found] == [r["score"] for r in sure]
    mybert.predict(model(confidence_threshold=threshold), texts, output=tmp_path / "o.csv")
    assert [row["label"] or None for row in read_rows(tmp_path / "o.csv")] == wanted
    assert mybert.predict(model(confidence_threshold=threshold), texts, confidence_threshold=0) == sure

    data = [(text, "1") for text in texts]
    metrics = mybert.evaluate(model(), data, confidence_threshold=threshold)
    answered = 30 - wanted.count(None)
    assert 0 < answered < 30
    assert metrics["coverage"] == answered / 30 and metrics["selective_accuracy"] == wanted.count("1") / answered
    assert metrics["accuracy"] == [row["label"] for row in sure].count("1") / 30
    assert "coverage" not in mybert.evaluate(model(), data)


@pytest.mark.parametrize("task", ["sst2", "multilabel", "ner", "regression"])
def test_predict_reports_how_often_each_label_is_predicted(models, texts, caplog, task):
    settings = {"confidence_threshold": 0.9} if task == "sst2" else {}
    with caplog.at_level("INFO"):
        answers = mybert.predict(models / task, texts, **settings)
    if task == "regression":
        assert "Labels" not in caplog.text
        return
    labels_of = {
        "sst2": lambda row: [row["label"] or "no label"],
        "multilabel": lambda row: row["label"] or ["no label"],
        "ner": lambda row: [entity["label"] for entity in row["entities"]],
    }[task]
    counts = Counter(chain.from_iterable(map(labels_of, answers)))
    shares = {name: f" ({count / 30:.1%})" if task != "ner" else "" for name, count in counts.items()}
    line = ", ".join(f"{name} {count}{shares[name]}" for name, count in counts.most_common())
    assert f"Labels: {line}.\n" in caplog.text and (task == "ner" or "no label" in counts)


def test_predicted_tags_that_are_of_no_entities_list_none(tmp_path, tiny_model):
    folder = tiny_model(tmp_path / "model", MyBertForTokenClassification, labels=["NOUN", "VERB"], task="tagging")
    (row,) = mybert.predict(folder, ["the cat sat"])
    assert row.keys() == {"words", "label", "score"}


def test_label_count_line_shows_the_most_frequent_ones():
    counts = Counter({f"c{number}": 12 - number for number in range(12)})
    line = label_count_line(TASKS["sst2"], counts, 78)
    assert line.startswith("Labels: c0 12 (15.4%), c1 11 (14.1%), ") and line.endswith(", c9 3 (3.8%), others 3.")
    assert label_count_line(TASKS["tagging"], counts, 78).startswith("Labels: c0 12, c1 11, ")


def test_each_call_in_a_process_chooses_its_device(models, monkeypatch):
    monkeypatch.setattr(PartialState, "_shared_state", {})
    monkeypatch.setattr(PartialState, "default_device", property(lambda self: torch.device("meta")))  # the accelerator
    for use_cpu in (True, False, True, False):
        predictor = Predictor(models / "sst2", use_cpu=use_cpu)
        assert predictor.load().model.device.type == ("cpu" if use_cpu else "meta")


def test_predict_words_and_entities(models, tokenizer):
    model = MyBertForTokenClassification.from_pretrained(models / "ner").eval()
    text = "The cat, today: (happy) dog sat."
    words = ["The", "cat", ",", "today", ":", "(", "happy", ")", "dog", "sat", "."]
    (row,) = mybert.predict(models / "ner", [{"text": text}], use_cpu=True)
    assert row["words"] == words
    scores = logits(model, tokenizer, words, is_split_into_words=True)[1:-1].softmax(-1)
    assert row["label"] == [model.config.id2label[number] for number in scores.argmax(-1).tolist()]
    assert row["score"] == pytest.approx(scores.max(-1).values.tolist(), abs=2e-6)
    assert {entity["label"] for entity in row["entities"]} == {"PER"}
    assert all(entity["text"] == text[entity["start"] : entity["end"]] for entity in row["entities"])
    (from_words,) = mybert.predict(models / "ner", [words], use_cpu=True)
    assert (from_words["label"], from_words["score"]) == (row["label"], row["score"])
    entities = from_words["entities"]
    assert [" ".join(words)[item["start"] : item["end"]] for item in entities] == [item["text"] for item in entities]


def test_predict_questions_answers_as_the_pipeline(models):
    context = "the cat sat on the mat . " * 5
    data = [{"question": "was it happy", "context": context}]
    answerer = pipeline("question-answering", model=str(models / "squad"), device="cpu")
    wanted = answerer(**data[0], max_seq_len=32, doc_stride=4, max_answer_len=30, top_k=3)
    (row,) = mybert.predict(models / "squad", data, top_k=3)
    assert [item["answer"] for item in row["best"]] == [item["answer"] for item in wanted]
    assert [item["score"] for item in row["best"]] == pytest.approx([item["score"] for item in wanted], abs=2e-6)
    assert context[row["start"] : row["end"]] == row["answer"]
    (never,) = mybert.predict(models / "squad_v2", data, null_score_threshold=-1e9, top_k=2)
    (always,) = mybert.predict(models / "squad_v2", data, null_score_threshold=1e9, top_k=2)
    assert (never["answer"], never["start"], never["end"]) == ("", 0, 0)
    assert always["answer"] == context[always["start"] : always["end"]] != ""


def test_predict_choices_answers_as_the_pipeline(models, texts):
    choose = pipeline("multiple-choice", model=str(models / "swag"), device="cpu")
    rows = [{"sent1": text, "sent2": "a", **{f"ending{n}": texts[n] for n in range(4)}} for text in texts[:8]]
    found = mybert.predict(models / "swag", rows, probabilities=True)
    for row, answer in zip(rows, found, strict=True):
        wanted = choose(prompt=row["sent1"], choices=[f"a {row[f'ending{n}']}" for n in range(4)])
        assert (answer["label"], answer["answer"]) == (wanted["label"], wanted["answer"])
        assert answer["score"] == pytest.approx(wanted["score"], abs=2e-6) == answer[f"probability_{answer['label']}"]


def test_predict_bert_folder_without_a_record(tmp_path, tiny_model, texts):
    model = tiny_model(tmp_path / "bert", BertForSequenceClassification, initializer_range=0.5, num_labels=3)
    classify = pipeline("text-classification", model=str(model), device="cpu")
    rows = [{"id": n, "premise": text, "hypothesis": "a cat"} for n, text in enumerate(texts)]
    pairs = [{"text": text, "text_pair": "a cat"} for text in texts]
    for data, inputs in ((rows, pairs), (texts, texts)):
        answers = [classify([text])[0] for text in inputs]
        same(mybert.predict(model, data), [(row["label"].removeprefix("LABEL_"), row["score"]) for row in answers])


# Few rows are written directly, more in parts


def test_predict_up_to_a_part_of_rows_writes_no_parts(tmp_path, models, texts, monkeypatch):
    monkeypatch.setattr(prediction_run, "RunFolder", lambda *args, **settings: pytest.fail("in parts"))
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 30)
    (tmp_path / "t.csv").write_text("\n".join(["sentence", *texts]))
    for data in (tmp_path / "t.csv", texts, iter(texts)):
        assert mybert.predict(models / "sst2", data, output=tmp_path / "o.csv", overwrite=True)["rows"] == 30
    with pytest.raises(pytest.fail.Exception, match="in parts"):
        mybert.predict(models / "sst2", [*texts, "a cat"], output=tmp_path / "o.csv", overwrite=True)


@pytest.mark.parametrize("ending", ["jsonl", "csv", "tsv", "parquet", "xlsx"])
def test_predict_directly_and_in_parts_write_the_same(tmp_path, models, texts, ending):
    others = [
        {"day": datetime.date(2026, 11, 27), "label": "mine", "note": [float("nan"), "x"], "n": np.float32(0.1)},
        {"day": None, "n": 2**80, "note": (1, 2), "bytes": b"abc", 7: "seven"},
        {"object": {"a": {"b": np.int64(3)}}, "n": float("inf"), "text": 'a "quoted", text'},
        {},
    ]
    rows = [{"sentence": text} | others[place % 4] for place, text in enumerate(texts)]
    one, other = (tmp_path / f"{name}.{ending}" for name in ("directly", "parts"))
    mybert.predict(models / "sst2", rows, output=one, probabilities=True)
    (tmp_path / f".{other.name}.partial").mkdir()  # as an earlier call leaves it
    mybert.predict(models / "sst2", rows, output=other, probabilities=True)
    assert one.read_bytes() == other.read_bytes() or (ending == "xlsx" and read_rows(one) == read_rows(other))
    assert names(tmp_path) == [one.name, other.name]


def test_predict_stream_is_read_once_and_one_row_beyond_a_part(tmp_path, models, texts, monkeypatch):
    read = []
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 4)
    answers = predictor.Predictor.answers
    at_first_answer = []

    def answered(self, rows, progress=False):
        at_first_answer.append(len(read))
        return answers(self, rows, progress)

    monkeypatch.setattr(predictor.Predictor, "answers", answered)
    for count, expected in ((3, 3), (4, 4), (5, 5), (11, 5)):
        read.clear()
        at_first_answer.clear()
        stream = (read.append(text) or text for text in texts[:count])
        mybert.predict(models / "sst2", stream, output=tmp_path / "o.jsonl", overwrite=True)
        assert read == texts[:count] and at_first_answer[0] == expected
        assert [row["text"] for row in read_rows(tmp_path / "o.jsonl")] == texts[:count]
    assert names(tmp_path) == ["o.jsonl"]


@pytest.mark.parametrize("place", ["answers", "write_rows"])
def test_predict_few_rows_killed_leaves_the_old_result_alone(tmp_path, models, texts, monkeypatch, place):
    (tmp_path / "o.csv").write_text("an earlier one")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(predictor.Predictor if place == "answers" else prediction_run, place, killed)
        mybert.predict(models / "sst2", texts, output=tmp_path / "o.csv", overwrite=True)
    assert names(tmp_path) == ["o.csv"] and (tmp_path / "o.csv").read_text() == "an earlier one"


def test_predict_few_rows_resume_a_call_that_had_more(tmp_path, models, texts, interrupted, killer):
    data, output = interrupted
    data.write_text("\n".join(["sentence", *texts[:4]]))
    with pytest.raises(ValueError, match=r"other settings.*top_k was 1, is 2"):  # its parts are not deleted
        mybert.predict(models / "sst2", data, output=output, top_k=2)
    assert mybert.predict(models / "sst2", data, output=output)["rows"] == 4
    assert killer.written == [] and names(tmp_path) == ["o.csv", "t.csv"]


# Calls that are killed, and go on


class Killer:
    """Ends calls before they write certain parts; records the numbers of those that are written."""

    def __init__(self, monkeypatch):
        self.written, self.at = [], None
        write = prediction_run.write_lines

        def write_or_die(file, lines):
            number = int(file.stem.rpartition("-")[2])
            if number == self.at:
                raise KeyboardInterrupt
            self.written.append(number)
            write(file, lines)

        monkeypatch.setattr(predictor.Predictor, "rows_per_part", 4)
        monkeypatch.setattr(prediction_run, "write_lines", write_or_die)

    def kill(self, at, *args, **settings):
        self.at = at
        with pytest.raises(KeyboardInterrupt):
            mybert.predict(*args, **settings)
        self.at = None


@pytest.fixture
def killer(monkeypatch):
    return Killer(monkeypatch)


def killed_behind_output(monkeypatch, model, data, output, **settings):
    """Predict, but for the deletion of the parts, which are then left."""
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(prediction_run, "discard", killed)
        mybert.predict(model, data, output=output, **settings)
    assert len(names(output.parent)) == 3


def killed(*args, **settings):
    raise KeyboardInterrupt


@pytest.fixture
def interrupted(tmp_path, models, texts, killer):
    """Data and output of a call that was killed after three parts of eight."""
    data, output = tmp_path / "t.csv", tmp_path / "o.csv"
    data.write_text("\n".join(["sentence", *texts]))
    killer.kill(3, models / "sst2", data, output=output)
    assert names(tmp_path) == [".o.csv.partial", "t.csv"]
    killer.written.clear()
    return data, output


@pytest.mark.parametrize(("changed", "parts"), [(None, [3, 4, 5, 6, 7]), (5, [1, 3, 4, 5, 6, 7])])
def test_predict_killed_call_goes_on_with_what_is_missing_or_changed(
    tmp_path, models, texts, interrupted, killer, changed, parts
):
    data, output = interrupted
    if changed:
        texts = [*texts[:changed], "a cat", *texts[changed + 1 :]]
        data.write_text("\n".join(["sentence", *texts]))
    mybert.predict(models / "sst2", data, output=output)
    assert killer.written == parts
    assert [row["sentence"] for row in read_rows(output)] == texts
    mybert.predict(models / "sst2", data, output=tmp_path / "whole.csv")
    assert output.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert names(tmp_path) == ["o.csv", "t.csv", "whole.csv"]


def test_predict_call_killed_behind_its_output_leaves_nothing_for_good(tmp_path, models, interrupted, monkeypatch):
    data, output = interrupted
    killed_behind_output(monkeypatch, models / "sst2", data, output)
    written = output.read_bytes()
    with pytest.raises(ValueError, match=r"o.csv exists.*pass overwrite=True"):
        mybert.predict(models / "sst2", data, output=output)
    assert names(tmp_path) == ["o.csv", "t.csv"] and output.read_bytes() == written


def test_predict_overwriting_killed_behind_its_output_writes_it_again(tmp_path, models, interrupted, monkeypatch):
    data, output = interrupted
    output.write_text("an earlier one")
    killed_behind_output(monkeypatch, models / "sst2", data, output, overwrite=True)
    written = output.read_bytes()
    mybert.predict(models / "sst2", data, output=output)
    assert names(tmp_path) == ["o.csv", "t.csv"] and output.read_bytes() == written != b"an earlier one"


def test_predict_output_of_others_that_appears_keeps_the_parts(tmp_path, models, interrupted, killer):
    data, output = interrupted
    output.write_text("of others")
    with pytest.raises(ValueError, match=r"o.csv exists"):
        mybert.predict(models / "sst2", data, output=output)
    output.unlink()
    mybert.predict(models / "sst2", data, output=output)
    assert killer.written == [3, 4, 5, 6, 7] and names(tmp_path) == ["o.csv", "t.csv"]


def test_predict_resumed_call_counts_the_long_texts_of_all(tmp_path, models, killer, caplog):
    data, output = tmp_path / "t.txt", tmp_path / "o.jsonl"
    data.write_text("\n".join(["the cat " * 20, *["the cat"] * 8, "a dog " * 30, "a dog " * 30]))
    killer.kill(1, models / "sst2", data, output=output)
    with caplog.at_level("INFO"):
        found = mybert.predict(models / "sst2", data, output=output, batch_size=2)  # as after running out of memory
    assert found == {"rows": 11, "cut": 3, "windowed": 0, "empty": 0}
    assert killer.written == [0, 1, 2] and "3 of 11 texts" in caplog.text
    (line,) = [record.getMessage() for record in caplog.records if record.getMessage().startswith("Labels")]
    assert sum(map(int, re.findall(r" (\d+) \(", line))) == 11


@pytest.mark.parametrize("in_memory", [False, True])
def test_predict_changed_settings_or_model_do_not_resume(tmp_path, models, texts, interrupted, in_memory):
    data, output = interrupted
    moved = shutil.copytree(models / "sst2", tmp_path / "sst2")
    for model, settings, found in (
        (models / "sst2", {"top_k": 2}, r"What differs: top_k was 1, is 2\."),
        (moved, {}, "model was"),
    ):
        with pytest.raises(ValueError, match=f"other settings.*{found}"):
            mybert.predict(model, data, output=output, **settings)
    assert not output.exists()
    again = iter(texts) if in_memory else data  # what cannot be read again always starts over
    mybert.predict(models / "sst2", again, output=output, top_k=2, overwrite=not in_memory)
    assert not (tmp_path / ".o.csv.partial").exists()


def test_predict_error_in_the_data_keeps_what_was_predicted(tmp_path, models, texts, killer, caplog):
    data, output = tmp_path / "t.csv", tmp_path / "o.csv"
    data.write_text("\n".join(["sentence", *texts[:6], '" "']))
    with caplog.at_level("INFO"), pytest.raises(ValueError, match="row 7: an empty sentence"):
        mybert.predict(models / "sst2", data, output=output)
    assert "What was predicted is kept" in caplog.text
    data.write_text("\n".join(["sentence", *texts[:7]]))
    assert mybert.predict(models / "sst2", data, output=output)["rows"] == 7
    assert killer.written == [0, 1]
    assert names(tmp_path) == ["o.csv", "t.csv"]


def test_predict_error_before_anything_is_predicted_leaves_nothing(tmp_path, models, texts, killer):
    data, output = tmp_path / "t.csv", tmp_path / "o.csv"
    data.write_text("\n".join(["sentence", texts[0], '" "']))
    with pytest.raises(ValueError, match="row 2: an empty sentence"):
        mybert.predict(models / "sst2", data, output=output)
    with pytest.raises(ValueError, match="row 6: an empty text"):  # these rows cannot be read again
        mybert.predict(models / "sst2", iter([*texts[:5], " "]), output=output)
    assert names(tmp_path) == ["t.csv"]


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv", "-"])
def test_predict_columns_have_one_name_in_all_rows(tmp_path, models, texts, killer, capsys, name):
    """Even if only some of the rows have a column of that name."""
    rows = [{"sentence": text} | ({"label": "mine"} if place == 6 else {}) for place, text in enumerate(texts[:9])]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if name == "-":  # printed row by row, so from the first such row on
        main(["predict", str(models / "sst2"), str(tmp_path / "t.jsonl")])
        written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert ["predicted_label" in row for row in written] == [place >= 6 for place in range(9)]
        return
    mybert.predict(models / "sst2", tmp_path / "t.jsonl", output=tmp_path / name)
    written = read_rows(tmp_path / name)
    assert {row["predicted_label"] for row in written} <= {"0", "1"}
    assert [row.get("label") or None for row in written] == [row.get("label") for row in rows]


def test_predict_overwrite_starts_over_and_resumes_without_the_flag(tmp_path, models, texts, interrupted, killer):
    data, output = interrupted
    output.write_text("an earlier one")
    with pytest.raises(ValueError, match=r"o.csv exists.*pass overwrite=True"):
        mybert.predict(models / "sst2", data, output=output)
    killer.kill(2, models / "sst2", data, output=output, overwrite=True)
    assert (killer.written, output.read_text()) == ([0, 1], "an earlier one")
    mybert.predict(models / "sst2", data, output=output)
    assert killer.written == list(range(8))
    assert [row["sentence"] for row in read_rows(output)] == texts
    assert names(tmp_path) == ["o.csv", "t.csv"]


def test_predict_to_its_data_or_below_a_file_is_an_error(tmp_path, models):
    table = tmp_path / "t.csv"
    table.write_text("sentence\na cat\n")
    with pytest.raises(ValueError, match=r"t.csv is already read or written"):
        mybert.predict(models / "sst2", table, output=table, overwrite=True)
    with pytest.raises(OSError, match=r"x.csv.*Not a directory"):
        mybert.predict(models / "sst2", table, output=table / "x.csv")
    assert names(tmp_path) == ["t.csv"]


@pytest.mark.parametrize(
    ("task", "data", "settings", "message"),
    [
        ("sst2", [], {}, r"^data holds no rows"),
        ("sst2", ["a", " "], {}, r"data, row 2: an empty text"),
        ("sst2", [3], {}, r"data, row 1: '3'; expected one text"),
        ("sst2", {"train": []}, {}, r"data is a dict of 'train'; expected a file"),
        ("sst2", 3, {}, r"data is 3; expected a file"),
        ("sst2", [{"a": "b", "c": "d"}], {}, r"no column 'sentence'; .* 'a', 'c'; .* text_column='NAME'"),
        ("mrpc", ["a"], {}, r"no columns '#1 String' and '#2 String'; .* text_pair_column='NAME'"),
        ("sst2", ["a"], {"text_column": "b"}, r"no column 'b'; its columns are 'text'"),
        ("sst2", ["a"], {"keep_columns": ["id"]}, r"no column 'id' in row 1"),
        ("ner", ["a"], {"top_k": 2}, r"top_k is 2; .* at most 1"),
        ("ner", ["a"], {"probabilities": True}, r"probabilities is set"),
        ("squad", ["a"], {"probabilities": True}, r"probabilities is set"),
        ("squad", ["a"], {"top_k": 21}, r"top_k is 21; expected at most n_best_size, 20"),
        ("multilabel", ["a"], {"confidence_threshold": 0.5}, r"confidence_threshold is for .* one class per text"),
        ("ner", ["a"], {"confidence_threshold": 0.5}, "--confidence_threshold"),
        ("regression", ["a"], {"top_k": 2}, r"top_k or probabilities is set"),
        ("sst2", ["a"], {"doc_stride": 3}, r"doc_stride is set without window_pooling"),
        ("sst2", ["a"], {"doc_stride": 14, "window_pooling": "max"}, r"doc_stride is 14; .* less than 14,"),
        ("ner", ["a"], {"doc_stride": 14}, "--doc_stride --max_length"),
        ("squad", ["a"], {"window_pooling": "max"}, r"window_pooling is not a setting of the task squad"),
        ("sst2", ["a"], {"max_length": 65}, "--max_length"),
        ("sst2", ["a"], {"task": "ner"}, r"has no head for this task"),
        (
            "sst2",
            ["a"],
            {"task": "multilabel"},
            r"task is for multi_label_c.* fine-tuned for single_label_classification",
        ),
        ("sst2", ["a"], {"output": "o.xls"}, r"output is 'o.xls'; expected .* .jsonl, .csv, .tsv"),
        ("sst2", [{"sentence": "a\tb"}], {"output": "o.tsv"}, r"'a\\tb' as sentence has a tab"),
        ("sst2", "a fine film", {}, r"no file 'a fine .*: \[text\]"),
        ("sst2", "a fine film " * 100, {}, r"no file 'a fine .*: \[text\]"),
    ],
)
def test_predict_mistakes(tmp_path, monkeypatch, models, task, data, settings, message, user_error):
    monkeypatch.chdir(tmp_path)
    with user_error(message, (ValueError, FileNotFoundError)):
        mybert.predict(models / task, data, **settings)
    assert not [name for name in names(tmp_path) if not name.startswith(".")]


def test_predict_kept_columns_may_be_missing_in_some_rows(tmp_path, models):
    rows = [{"id": 1, "sentence": "a"}, {"sentence": "b"}, {"id": None, "sentence": "c"}]
    mybert.predict(models / "sst2", rows, output=tmp_path / "o.jsonl", keep_columns=["id"])
    written = read_rows(tmp_path / "o.jsonl")
    assert [row.get("id", "none") for row in written] == [1, "none", None]


def test_predict_bfloat16_without_kernels_is_an_error(models, monkeypatch):
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    with pytest.raises(ValueError, match="dtype is bfloat16, and this processor has no instructions for it"):
        mybert.predict(models / "sst2", ["a cat"], dtype="bfloat16")


@pytest.mark.skipif(not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this CPU has no bfloat16 kernels")
def test_predict_bfloat16_labels_are_mostly_those_of_float32(models, texts, expected):
    found = mybert.predict(models / "sst2", texts, dtype="bfloat16")
    assert [row["score"] for row in found] != [round(score, 6) for _, score in expected]
    assert np.mean([row["label"] == label for row, (label, _) in zip(found, expected, strict=True)]) > 0.9


# Batches of engines


def batches_of(columns):
    """The same rows as each kind of batch."""
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    arrays = {name: np.array([*values, None], dtype=object)[:-1] for name, values in columns.items()}
    return {"arrays": arrays, "frame": pandas.DataFrame(columns), "table": pyarrow.table(columns)}


def columns_of(batch):
    return batch.to_pydict() if hasattr(batch, "to_pydict") else {name: list(batch[name]) for name in batch}


@pytest.mark.parametrize("name", ["sst2", "mrpc", "regression", "multilabel", "ner", "squad", "swag"])
def test_predictor_every_kind_of_batch_has_the_answers_of_predict(models, texts, name):
    columns = {"#1 String": texts, "#2 String": texts[::-1]} if name == "mrpc" else {"text": texts}
    settings = {"top_k": 2, "keep_columns": ["label", "id"]} if name == "sst2" else {}
    if name == "sst2":
        columns = {"id": list(range(30)), "sentence": texts, "label": ["mine"] * 30}
    if name == "squad":
        columns = {"question": texts[:4], "context": texts[4:8]}
    if name == "swag":
        columns = {"sent1": texts[:4], "sent2": texts[4:8]} | {f"ending{n}": texts[n : n + 4] for n in range(4)}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    told = mybert.predict(models / name, rows, **settings)
    for batch in batches_of({column: [] for column in columns}).values():
        assert Predictor(models / name, **settings)(batch) is batch
    for batch in batches_of(columns).values():
        found = Predictor(models / name, **settings)(batch)
        assert type(found) is type(batch)
        answers = columns_of(found)
        kept = settings.get("keep_columns", list(columns))
        assert list(answers)[: len(kept)] == kept and [answers.pop(column) for column in kept] == [
            columns[column] for column in kept
        ]
        if name == "sst2":
            answers = {"label": answers.pop("predicted_label")} | answers
        assert [dict(zip(answers, values, strict=True)) for values in zip(*answers.values(), strict=True)] == told


def test_predictor_in_two_workers_answers_as_one_process(models, texts, killer, monkeypatch):
    """Each gets a pickled predictor with every batch, and loads the model once."""
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(predictor.Predictor, "rows_per_part", 4)
    frame = pandas.DataFrame({"sentence": texts})
    whole = mybert.predict(models / "sst2", texts)
    sent = pickle.dumps(Predictor(models / "sst2"))
    assert len(sent) < 10_000  # settings, not weights
    loads, load = [], predictor.load_finetuned_model
    monkeypatch.setattr(predictor, "load_finetuned_model", lambda *args: loads.append(args) or load(*args))
    found = {}
    for worker in (0, 1):
        monkeypatch.setattr(predictor, "_copies", {})  # as in another process
        for start in range(8 * worker, 30, 16):
            found[start] = pickle.loads(sent)(frame[start : start + 8])
        assert len(loads) == worker + 1
    frames = pickle.loads(sent)(iter([frame[:0], frame[:16], frame[16:]]))  # as passed by Spark
    for parts in ([found[start] for start in sorted(found)], list(frames)):
        together = pandas.concat(parts)
        assert together.drop(columns="sentence").to_dict("records") == whole
        assert list(together["sentence"]) == texts and list(together.index) == list(range(30))
    pickle.loads(pickle.dumps(Predictor(models / "regression")))(frame)
    assert len(predictor._copies) == 1  # replaces the first one


@pytest.mark.parametrize(
    ("batch", "settings", "message"),
    [
        ({"a": ["b"], "c": ["d"]}, {}, r"The batch has no column 'sentence'; .* 'a', 'c'; .* text_column='NAME'"),
        ({"sentence": ["a", ""]}, {}, r"The batch, row 2: an empty sentence"),
        ({"sentence": ["a", None]}, {}, r"The batch, row 2: an empty sentence"),
        ({"sentence": "a cat"}, {}, r"The batch has 'a cat' as column 'sentence'; .* map_batches"),
        ({"sentence": ["a"]}, {"keep_columns": ["id"]}, r"The batch has no column 'id' in row 1"),
        ({"sentence": ["a"]}, {"top_k": 0}, "--top_k"),
        ({"sentence": ["a"]}, {"output": "o.csv"}, r"output"),
        (["a cat"], {}, r"The batch is \['a cat'\]; expected a dictionary of columns"),
    ],
)
def test_predictor_mistakes(models, batch, settings, message, user_error):
    with user_error(message, (ValueError, TypeError)):
        Predictor(models / "sst2", **settings)(batch)


@pytest.mark.slow
def test_predict_in_two_processes_writes_what_one_does(tmp_path, models, texts, run_python):
    (tmp_path / "t.csv").write_text("\n".join(["sentence", *(f"{text} {n}" for n in range(100) for text in texts)]))
    mybert.predict(models / "sst2", tmp_path / "t.csv", output=tmp_path / "one.csv", max_length=9)
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "mybert", "predict")
    flags = (models / "sst2", "t.csv", "--output", "two.csv", "--max_length", "9")
    said = run_python(*launcher, *flags, cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert said.stdout.count("two.csv: 3,000 rows.") == 1
    assert names(tmp_path) == ["one.csv", "t.csv", "two.csv"]


def test_predict_in_several_processes_needs_a_file(models, tmp_path, monkeypatch, capsys):
    (tmp_path / "t.txt").write_text("a cat\n")
    PartialState(cpu=True)
    monkeypatch.setitem(PartialState._shared_state, "num_processes", 2)  # as a launcher's processes find it
    assert main(["predict", str(models / "sst2"), str(tmp_path / "t.txt")]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and "Several processes cannot share standard output; give a file with --output" in shown.err


@pytest.mark.parametrize("is_wrong", [False, True])
def test_functions_with_threads_restore_those_of_pytorch(models, tmp_path, monkeypatch, is_wrong):
    used, before = [], torch.get_num_threads()

    def note(function):
        def noted(*args, **options):
            used.append(torch.get_num_threads())
            if is_wrong:
                raise ValueError("wrong")
            return function(*args, **options)

        return noted

    monkeypatch.setattr(comparison, "_MIN_SECONDS", 0)
    for module, name in ((predictor, "network_outputs"), (commands, "hidden_states")):
        monkeypatch.setattr(module, name, note(getattr(module, name)))
    folder, data, threads = models / "sst2", [("the cat sat", "1"), ("a dog", "0")], before + 1
    features = {"model": str(folder), "text": [str(tmp_path / "a.txt")], "output": str(tmp_path / "a.jsonl")}
    (tmp_path / "a.txt").write_text("the cat\n")
    for call in (
        lambda: mybert.predict(folder, ["the cat"], threads=threads),
        lambda: next(mybert.predict(folder, iter(["the cat", "a dog"]), threads=threads)),
        lambda: Predictor(folder, threads=threads)({"text": ["the cat"]}),
        lambda: mybert.evaluate(folder, data, threads=threads),
        lambda: mybert.compare(folder, folder, data, threads=threads, num_resamples=10),
        lambda: extract_features(FeaturesArguments(**features, threads=threads)),
    ):
        used.clear()
        with pytest.raises(ValueError, match="wrong") if is_wrong else nullcontext():
            call()
        assert set(used) == {threads} and torch.get_num_threads() == before
