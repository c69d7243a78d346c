"""Predicting with models of every kind, from every kind of input to every kind of file."""

import csv
import dataclasses
import gzip
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from itertools import chain, repeat

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification, pipeline

import mybert
from mybert import (
    MyBertConfig,
    MyBertForMultipleChoice,
    MyBertForPreTraining,
    MyBertForQuestionAnswering,
    MyBertForSequenceClassification,
    MyBertForTokenClassification,
)
from mybert.cli import main
from mybert.finetuning import TASKS, Predictor
from mybert.finetuning.data.rows import DataRow
from mybert.finetuning.prediction import prediction_files, prediction_run, predictor
from mybert.finetuning.prediction.predictor import task_for_columns
from mybert.finetuning.tasks.registry import task_record

WORDS = "the cat dog sat ran on under a mat tree and slept ate fish bread it was happy sad very today".split()
TEXTS = [" ".join(WORDS[(3 * row + 5 * word) % len(WORDS)] for word in range(1 + row % 7)) for row in range(30)]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
HEADS = {
    "sst2": (MyBertForSequenceClassification, ["0", "1"]),
    "mrpc": (MyBertForSequenceClassification, ["0", "1"]),
    "regression": (MyBertForSequenceClassification, ["value"]),
    "multilabel": (MyBertForSequenceClassification, ["a", "b", "c"]),
    "ner": (MyBertForTokenClassification, ["O", "B-PER", "I-PER"]),
    "squad": (MyBertForQuestionAnswering, ["LABEL_0", "LABEL_1"]),
    "squad_v2": (MyBertForQuestionAnswering, ["LABEL_0", "LABEL_1"]),
    "swag": (MyBertForMultipleChoice, ["LABEL_0", "LABEL_1"]),
}


@pytest.fixture(scope="module")
def models(tmp_path_factory, tokenizer):
    """Folders by task of models with random weights, large enough that predictions differ."""
    folder = tmp_path_factory.mktemp("models")
    for name, (model_class, labels) in HEADS.items():
        torch.manual_seed(1)
        named = {"id2label": dict(enumerate(labels)), "label2id": {label: i for i, label in enumerate(labels)}}
        config = MyBertConfig(
            vocab_size=len(tokenizer), initializer_range=0.5, max_position_embeddings=64, **SIZE, **named
        )
        config.problem_type = getattr(TASKS[name], "problem", None)
        config.finetuned_for = task_record(name, TASKS[name]) | {"max_length": 16}
        if name.startswith("squad"):
            config.finetuned_for |= {"max_length": 32, "doc_stride": 4}
        if name == "multilabel":
            config.finetuned_for |= {"thresholds": {"a": 0.9, "b": 0.1}}
        model = model_class(config)
        if name == "sst2":  # both classes must occur
            with torch.no_grad():
                batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
                model.classifier.bias -= model.eval()(**batch).logits.mean(0)
        model.save_pretrained(folder / name)
        tokenizer.save_pretrained(folder / name)
    return folder


@pytest.fixture(scope="module")
def expected(models):
    """Label and score of every text, one by one, by transformers' own pipeline."""
    classify = pipeline("text-classification", model=str(models / "sst2"), device="cpu")
    return [(answer["label"], answer["score"]) for answer in classify(TEXTS, truncation=True, max_length=16)]


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def same(rows, expected):
    assert [row["label"] for row in rows] == [label for label, _ in expected]
    assert [float(row["score"]) for row in rows] == pytest.approx([score for _, score in expected], abs=2e-6)


def test_answers_are_those_of_the_pipeline(models, expected):
    assert len({label for label, _ in expected}) == 2
    same(mybert.predict(models / "sst2", TEXTS), expected)


def test_kinds_of_data(tmp_path, models, expected):
    pandas, datasets = pytest.importorskip("pandas"), pytest.importorskip("datasets")
    model = models / "sst2"
    table = {"id": list(range(30)), "sentence": TEXTS}
    rows = [{"sentence": text} for text in TEXTS]
    (tmp_path / "t.txt").write_text("\n\n".join(TEXTS) + "\n")
    (tmp_path / "t.csv.gz").write_bytes(gzip.compress("\n".join(["sentence", *TEXTS]).encode()))
    (tmp_path / "t.tsv").write_text("\n".join(["id\tsentence", *(f"{n}\t{text}" for n, text in enumerate(TEXTS))]))
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    pandas.DataFrame(table).to_parquet(tmp_path / "t.parquet")
    for data in (rows, tuple(TEXTS), pandas.DataFrame(table), datasets.Dataset.from_dict(table)):
        same(mybert.predict(model, data), expected)
    for name in ("t.txt", "t.csv.gz", "t.tsv", "t.jsonl", "t.parquet"):
        same(mybert.predict(model, str(tmp_path / name)), expected)
    same(mybert.predict(model, [tmp_path / "t.csv.gz", tmp_path / "t.tsv"]), expected * 2)
    lazy = mybert.predict(model, iter(TEXTS))
    assert next(lazy)["label"] == expected[0][0]
    same([{"label": expected[0][0], "score": expected[0][1]}, *lazy], expected)
    frame = pandas.DataFrame({"review": TEXTS})
    same(mybert.predict(model, frame), expected)
    assert frame.columns.tolist() == ["review"]


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv", "o.tsv", "o.parquet"])
def test_kinds_of_output(tmp_path, models, expected, name):
    rows = [{"sentence": text, "label": f"mine {n}", "note": [n]} for n, text in enumerate(TEXTS)]
    found = mybert.predict(models / "sst2", rows, output=tmp_path / name, probabilities=True)
    assert found == {"rows": 30, "cut": 0, "windowed": 0}
    written = mybert.files.read_rows(tmp_path / name)
    assert [row["sentence"] for row in written] == TEXTS
    assert [row["label"] for row in written] == [f"mine {n}" for n in range(30)]
    is_text = name in ("o.csv", "o.tsv")
    assert [row["note"] for row in written] == [f"[{n}]" if is_text else [n] for n in range(30)]
    same([row | {"label": row["predicted_label"]} for row in written], expected)
    sums = [float(row["probability_0"]) + float(row["probability_1"]) for row in written]
    assert sums == pytest.approx([1.0] * 30, abs=2e-6)
    assert names(tmp_path) == [name]


def test_no_column_is_lost_on_the_way_to_parquet(tmp_path, models, monkeypatch, caplog):
    monkeypatch.setattr(prediction_run, "ROWS_OF_A_PART", 2)
    given = [{"first": 1}, {"second": [1]}, {"first": 2.5, "second": []}, {"third": "x", "mixed": "a"}, {"mixed": 1}]
    given[0]["mixed"], given[2]["huge"] = {"b": True}, 2**80
    rows = [{"sentence": "a cat"} | row for row in given]
    mybert.predict(models / "sst2", rows, output=tmp_path / "o.parquet")
    written = mybert.files.read_rows(tmp_path / "o.parquet")
    assert [row["first"] for row in written] == [1.0, None, 2.5, None, None]
    assert [row["second"] for row in written] == [None, [1], [], None, None]
    assert [row["third"] for row in written] == [None, None, None, "x", None]
    assert [row["mixed"] for row in written] == ['{"b": true}', None, None, "a", "1"]
    assert [row["huge"] for row in written] == [None, None, str(2**80), None, None]
    assert "'mixed' has values of several kinds; they are written as text" in caplog.text


def test_what_no_tsv_holds_shows_at_once(tmp_path, models, monkeypatch):
    monkeypatch.setattr(prediction_run, "ROWS_OF_A_PART", 1)
    for row, message in (
        ({"id": "a\tb"}, r"'a\\tb' as id has a tab"),
        ({"a\nb": 1}, "as the name of a column has a tab"),
    ):
        rows = ({"sentence": "a cat"} | values for values in chain([row], repeat({})))
        with pytest.raises(ValueError, match=message):
            mybert.predict(models / "sst2", _Lazily(rows), output=tmp_path / "o.tsv")
        assert not (tmp_path / "o.tsv").exists()


class _Lazily:
    """Rows one by one, which need not all be in memory."""

    def __init__(self, rows):
        self.rows = rows

    def __iter__(self):
        return self.rows


def test_lines_of_standard_input_have_their_numbers(capsys, monkeypatch, models):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\n\na cat\n\na dog\n")))
    assert main(["predict", str(models / "sst2"), "-"]) == 0
    captured = capsys.readouterr()
    assert [json.loads(line)["line"] for line in captured.out.splitlines()] == [3, 5]
    assert "standard input: 3 empty lines are left out" in captured.err
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'\n{"sentence": "a cat"}\n[]\n')))
    assert main(["predict", str(models / "sst2"), "-"]) == 2
    assert "standard input, line 3" in capsys.readouterr().err


def test_standard_input_and_output(capsys, monkeypatch, models, expected):
    for content in ("\n".join(TEXTS), "\n".join(json.dumps({"id": n, "text": text}) for n, text in enumerate(TEXTS))):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content.encode())))
        assert main(["predict", str(models / "sst2"), "-"]) == 0
        same([json.loads(line) for line in capsys.readouterr().out.splitlines()], expected)


def test_pairs(tmp_path, models):
    classify = pipeline("text-classification", model=str(models / "mrpc"), device="cpu")
    pairs = list(zip(TEXTS, TEXTS[::-1], strict=True))
    wanted = [classify({"text": a, "text_pair": b}, truncation=True, max_length=16) for a, b in pairs]
    wanted = [(answer["label"], answer["score"]) for answer in wanted]
    same(mybert.predict(models / "mrpc", pairs), wanted)
    (tmp_path / "t.txt").write_text("\n".join(" ||| ".join(pair) for pair in pairs))
    same(mybert.predict(models / "mrpc", tmp_path / "t.txt"), wanted)
    named = [{"#1 String": a, "#2 String": b, "text": "other"} for a, b in pairs]
    same(mybert.predict(models / "mrpc", named), wanted)
    named = [{"question1": a, "question2": b} for a, b in pairs]
    same(mybert.predict(models / "mrpc", named), wanted)
    named = [{"left": a, "right": b} for a, b in pairs]
    same(mybert.predict(models / "mrpc", named, text_column="left", text_pair_column="right"), wanted)


@pytest.mark.parametrize("kind", [list, iter, "lists", "map_style"])
@pytest.mark.parametrize("task", ["sst2", "regression", "multilabel"])
def test_a_text_and_its_label_are_no_pair_for_a_model_of_single_texts(models, task, kind):
    rows = [(text, "good") for text in TEXTS[:3]]
    data = {"lists": list(map(list, rows)), "map_style": torch.utils.data.Subset(rows, range(3))}.get(kind) or kind(
        rows
    )
    with pytest.raises(ValueError, match=r"row 1: .*; expected one text \(the task reads no pairs\) or a dictionary"):
        list(mybert.predict(models / task, data))
    with pytest.raises(ValueError, match=r"row 1: .*; expected a tuple of one text"):
        mybert.evaluate(models / task, [((text, "x"), "0") for text in TEXTS[:3]])


def test_a_text_with_its_label_is_no_list_of_words(models):
    with pytest.raises(ValueError, match="expected a text, a list of words or a dictionary"):
        mybert.predict(models / "ner", [("the cat sat", "B-PER")])


def test_bars_in_a_file_are_text_for_a_model_of_single_texts(tmp_path, models):
    (tmp_path / "t.txt").write_text("the cat ||| a dog\n")
    mybert.predict(models / "sst2", tmp_path / "t.txt", output=tmp_path / "o.jsonl")
    (row,) = mybert.files.read_rows(tmp_path / "o.jsonl")
    assert row["text"] == "the cat ||| a dog" and "text_pair" not in row


def test_one_text_of_a_pair_may_be_missing(tmp_path, models):
    (tmp_path / "t.jsonl").write_text('{"#1 String": "a cat", "#2 String": null}\n')
    empty = mybert.predict(models / "mrpc", [("a cat", "")])
    for data in ([("a cat", None)], [["a cat", None]], [{"text": "a cat", "text_pair": None}], tmp_path / "t.jsonl"):
        assert mybert.predict(models / "mrpc", data) == empty
    for data in ([("", "")], [(None, None)], [(" ", None)], [{"#1 String": "", "#2 String": None}]):
        with pytest.raises(ValueError, match=r"data, row 1: an empty .* and an empty .*; expected a text in one of"):
            mybert.predict(models / "mrpc", data)
    with pytest.raises(ValueError, match=r"data, row 2: an empty text; expected a text"):
        mybert.predict(models / "sst2", ["a", None])
    with pytest.raises(ValueError, match=r"data, row 1: an empty text_pair; expected a text"):
        mybert.predict(models / "squad", [("who", None)])


def test_lone_surrogates_in_memory_name_the_row(models):
    for data, name in ((["a", "b\ud800"], "text"), ([{"text": "a"}, {"text": "a", "n": [{"id": "\udfff"}]}], "n")):
        with pytest.raises(ValueError, match=rf"data, row 2: half of a character pair, \\ud\w+, as {name}; expected"):
            mybert.predict(models / "sst2", data)
    with pytest.raises(ValueError, match=r"data, row 1: half of a character pair"):
        mybert.evaluate(models / "sst2", [("b\ud800", "0")])
    with pytest.raises(ValueError, match=r"The batch, row 1: half of a character pair"):
        Predictor(models / "sst2")({"sentence": ["\ud800"]})


def test_quotes_of_published_files_are_text_and_of_others_those_of_csv(tmp_path, models):
    for name, text in (("dev.tsv", '"the cat"'), ("mine.tsv", "the cat"), ("dev.tsv.gz", '"the cat"')):
        content = b'sentence\tlabel\n"the cat"\t1\n'
        (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith("gz") else content)
        mybert.predict(models / "sst2", tmp_path / name, output=tmp_path / "o.jsonl", overwrite=True)
        assert mybert.files.read_rows(tmp_path / "o.jsonl")[0]["sentence"] == text
        assert TASKS["sst2"].read(tmp_path / name)[0].texts == (text,)


def test_a_table_of_one_column_without_its_name_is_an_error(tmp_path, capsys, models):
    for name, header in (("t.csv", "I loved it"), ("t.tsv", "great")):
        (tmp_path / name).write_text(f"{header}\nthe cat sat\n")
        assert main(["predict", str(models / "sst2"), str(tmp_path / name)]) == 2
        captured = capsys.readouterr()
        assert f"has one column, and '{header}' in its first line" in captured.err and not captured.out
        assert len(mybert.predict(models / "sst2", tmp_path / name, text_column=header)) == 1
    (tmp_path / "t.csv").write_text("Review\nthe cat sat\n")
    assert len(mybert.predict(models / "sst2", tmp_path / "t.csv")) == 1


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv"])
def test_line_breaks_of_every_kind_are_kept(tmp_path, models, name):
    rows = [{"sentence": "a cat", "id": f"a{mark}b"} for mark in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"]
    mybert.predict(models / "sst2", rows, output=tmp_path / name)
    lines = (tmp_path / name).read_bytes().decode().splitlines(keepends=True)
    written = map(json.loads, lines) if name == "o.jsonl" else csv.DictReader(lines)
    assert [row["id"] for row in written] == [row["id"] for row in rows]
    for row in rows:
        with pytest.raises(ValueError, match="as id has a tab or line break"):
            mybert.predict(models / "sst2", [row], output=tmp_path / "o.tsv")


def test_a_tsv_with_quotes_is_read_as_it_was_written(tmp_path, models):
    texts = ['"the cat sat"', '"', 'he said "the dog"']
    mybert.predict(models / "sst2", texts, output=tmp_path / "o.tsv")
    assert [row["text"] for row in mybert.files.read_rows(tmp_path / "o.tsv")] == texts
    assert mybert.predict(models / "sst2", tmp_path / "o.tsv") == mybert.predict(models / "sst2", texts)


def test_a_question_too_long_for_a_window_names_row_and_flag(tmp_path, models):
    rows = [{"question": question, "context": "the cat sat"} for question in ("who", "who " * 40)]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)))
    for data, name in ((rows, "data"), (tmp_path / "t.jsonl", "t.jsonl")):
        with pytest.raises(ValueError, match=rf"{name}, row 2: max_length \(32\) leaves .* max_question_length\.$"):
            mybert.predict(models / "squad", data)
        assert len(mybert.predict(models / "squad", data, max_question_length=10)) == 2


@pytest.mark.parametrize("given", [[], ["max_length", "encoding", "task"]])
def test_pairs_of_a_model_that_says_nothing_of_columns(given):
    row = DataRow({"line": 1, "text": "a", "text_pair": "b"}, "data", 1)
    assert task_for_columns(TASKS["classification"], row, given).text_pair_column == "text_pair"


def test_a_column_that_is_named_stays():
    row = DataRow({"premise": "a", "hypothesis": "b", "other": "c"}, "data", 1)
    task = dataclasses.replace(TASKS["classification"], text_pair_column="other")
    with pytest.raises(ValueError, match="has no column 'text'"):
        task_for_columns(task, row, ["text_pair_column"])
    task = dataclasses.replace(task, text_pair_column="hypothesis")
    assert task_for_columns(task, row, ["text_pair_column"]).text_column == "premise"


def test_a_regression_gives_a_number(models, tokenizer):
    model = MyBertForSequenceClassification.from_pretrained(models / "regression").eval()
    with torch.no_grad():
        wanted = [model(**tokenizer(text, return_tensors="pt")).logits.item() for text in TEXTS]
    found = mybert.predict(models / "regression", TEXTS)
    assert [list(row) for row in found] == [["score"]] * 30
    assert [row["score"] for row in found] == pytest.approx(wanted, abs=1e-5)


def test_several_labels_hold_above_their_thresholds(models, tokenizer):
    model = MyBertForSequenceClassification.from_pretrained(models / "multilabel").eval()
    thresholds = {"a": 0.9, "b": 0.1, "c": 0.5}
    for text, row in zip(TEXTS, mybert.predict(models / "multilabel", TEXTS, top_k=3), strict=True):
        with torch.no_grad():
            scores = dict(
                zip("abc", model(**tokenizer(text, return_tensors="pt")).logits.sigmoid()[0].tolist(), strict=True)
            )
        ranked = sorted(scores, key=lambda name: -scores[name])
        assert row["label"] == [name for name in ranked if scores[name] > thresholds[name]]
        assert row["score"] == pytest.approx([scores[name] for name in row["label"]], abs=2e-6)
        assert [item["label"] for item in row["best"]] == ranked


def test_words_and_entities(models, tokenizer):
    model = MyBertForTokenClassification.from_pretrained(models / "ner").eval()
    text = "The cat, today: (happy) dog sat."
    words = ["The", "cat", ",", "today", ":", "(", "happy", ")", "dog", "sat", "."]
    (row,) = mybert.predict(models / "ner", [{"text": text}])
    assert row["words"] == words
    with torch.no_grad():
        scores = model(**tokenizer(words, is_split_into_words=True, return_tensors="pt")).logits[0, 1:-1].softmax(-1)
    assert row["label"] == [model.config.id2label[number] for number in scores.argmax(-1).tolist()]
    assert row["score"] == pytest.approx(scores.max(-1).values.tolist(), abs=2e-6)
    assert row["entities"]
    for entity in row["entities"]:
        assert entity["text"] == text[entity["start"] : entity["end"]]
        assert entity["label"] == "PER"
    (from_words,) = mybert.predict(models / "ner", [words])
    assert (from_words["label"], from_words["score"]) == (row["label"], row["score"])
    joined = " ".join(words)
    assert [joined[item["start"] : item["end"]] for item in from_words["entities"]] == [
        item["text"] for item in from_words["entities"]
    ]


def test_questions(models):
    context = "the cat sat on the mat . " * 5
    answerer = pipeline("question-answering", model=str(models / "squad"), device="cpu")
    wanted = answerer(
        question="was it happy", context=context, max_seq_len=32, doc_stride=4, max_answer_len=30, top_k=3
    )
    (row,) = mybert.predict(models / "squad", [{"question": "was it happy", "context": context}], top_k=3)
    assert [item["answer"] for item in row["best"]] == [item["answer"] for item in wanted]
    assert [item["score"] for item in row["best"]] == pytest.approx([item["score"] for item in wanted], abs=2e-6)
    assert context[row["start"] : row["end"]] == row["answer"]
    data = [{"question": "was it happy", "context": context}]
    (never,) = mybert.predict(models / "squad_v2", data, null_score_threshold=-1e9, top_k=2)
    (always,) = mybert.predict(models / "squad_v2", data, null_score_threshold=1e9, top_k=2)
    assert (never["answer"], never["start"], never["end"]) == ("", 0, 0)
    assert always["answer"] == context[always["start"] : always["end"]] != ""


def test_choices(models):
    choose = pipeline("multiple-choice", model=str(models / "swag"), device="cpu")
    rows = [{"sent1": text, "sent2": "a", **{f"ending{n}": TEXTS[n] for n in range(4)}} for text in TEXTS[:8]]
    found = mybert.predict(models / "swag", rows, probabilities=True)
    for row, answer in zip(rows, found, strict=True):
        wanted = choose(prompt=row["sent1"], choices=[f"a {row[f'ending{n}']}" for n in range(4)])
        assert (answer["label"], answer["answer"]) == (wanted["label"], wanted["answer"])
        assert answer["score"] == pytest.approx(wanted["score"], abs=2e-6) == answer[f"probability_{answer['label']}"]


def test_a_bert_folder_from_elsewhere(tmp_path, tokenizer):
    torch.manual_seed(1)
    config = BertConfig(vocab_size=len(tokenizer), initializer_range=0.5, num_labels=3, **SIZE)
    BertForSequenceClassification(config).save_pretrained(tmp_path / "bert")
    tokenizer.save_pretrained(tmp_path / "bert")
    classify = pipeline("text-classification", model=str(tmp_path / "bert"), device="cpu")
    rows = [{"id": n, "premise": text, "hypothesis": "a cat"} for n, text in enumerate(TEXTS)]
    wanted = [classify({"text": text, "text_pair": "a cat"}) for text in TEXTS]
    same(
        mybert.predict(tmp_path / "bert", rows),
        [(answer["label"].removeprefix("LABEL_"), answer["score"]) for answer in wanted],
    )
    wanted = [(answer["label"].removeprefix("LABEL_"), answer["score"]) for answer in classify(TEXTS)]
    same(mybert.predict(tmp_path / "bert", TEXTS), wanted)


def test_what_is_cut_is_counted(tmp_path, models, caplog):
    texts = ["the cat", "the cat " * 20, "a dog " * 30]
    assert mybert.predict(models / "sst2", texts, output=tmp_path / "o.csv") == {
        "rows": 3,
        "cut": 2,
        "windowed": 0,
    }
    assert "2 of 3 texts are longer than 16 tokens: cut (--window_pooling mean reads them whole)." in caplog.text


@pytest.fixture
def small_parts(monkeypatch):
    monkeypatch.setattr(prediction_run, "ROWS_OF_A_PART", 4)


@pytest.fixture
def interrupted(tmp_path, models, monkeypatch, small_parts):
    """A call that was killed after three parts of eight."""
    data, output = tmp_path / "t.csv", tmp_path / "o.csv"
    data.write_text("\n".join(["sentence", *TEXTS]))
    write = prediction_run.write_part

    def killed(folder, number, *others):
        if number == 3:
            raise KeyboardInterrupt
        write(folder, number, *others)

    with monkeypatch.context() as patch:
        patch.setattr(prediction_run, "write_part", killed)
        with pytest.raises(KeyboardInterrupt):
            mybert.predict(models / "sst2", data, output=output)
    assert names(tmp_path) == [".o.csv.partial", "t.csv"]
    return data, output


def test_a_killed_call_goes_on_and_gives_the_same_bytes(tmp_path, models, interrupted, monkeypatch):
    data, output = interrupted
    mybert.predict(models / "sst2", data, output=tmp_path / "whole.csv")
    parts = []
    write = prediction_run.write_part
    monkeypatch.setattr(prediction_run, "write_part", lambda *args: (parts.append(args[1]), write(*args)))
    mybert.predict(models / "sst2", data, output=output)
    assert parts == [3, 4, 5, 6, 7]
    assert output.read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert names(tmp_path) == ["o.csv", "t.csv", "whole.csv"]


def test_a_call_that_is_killed_behind_its_output_leaves_nothing_for_good(tmp_path, models, interrupted, monkeypatch):
    data, output = interrupted
    with monkeypatch.context() as patch:
        patch.setattr(prediction_files.shutil, "rmtree", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mybert.predict(models / "sst2", data, output=output)
    written = output.read_bytes()
    assert len(names(tmp_path)) == 3
    with pytest.raises(ValueError, match=r"o.csv exists; name another place or pass --overwrite"):
        mybert.predict(models / "sst2", data, output=output)
    assert names(tmp_path) == ["o.csv", "t.csv"] and output.read_bytes() == written


def test_a_call_that_goes_on_counts_the_long_texts_of_all(tmp_path, models, monkeypatch, small_parts, caplog):
    data, output = tmp_path / "t.txt", tmp_path / "o.jsonl"
    data.write_text("\n".join(["the cat " * 20, *["the cat"] * 4, "a dog " * 30, "a dog " * 30]))
    with monkeypatch.context() as patch:
        patch.setattr(prediction_run, "merge_parts", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            mybert.predict(models / "sst2", data, output=output)
    second = next(tmp_path.glob(".o.jsonl.partial/*00000001.jsonl"))
    second.unlink()
    assert mybert.predict(models / "sst2", data, output=output) == {"rows": 7, "cut": 3, "windowed": 0}
    assert "3 of 7 texts are longer than 16 tokens: cut" in caplog.text


def test_changes_since_a_killed_call_are_noticed(tmp_path, models, interrupted):
    data, output = interrupted
    with pytest.raises(
        ValueError,
        match=r"holds a run with other settings \(top_k was 1, is 2\); repeat the earlier ones or pass --over",
    ):
        mybert.predict(models / "sst2", data, output=output, top_k=2)
    moved = shutil.copytree(models / "sst2", tmp_path / "sst2")
    with pytest.raises(ValueError, match="holds a run with other settings"):
        mybert.predict(moved, data, output=output)
    assert not output.exists()
    mybert.predict(models / "sst2", data, output=output, top_k=2, overwrite=True)
    assert not (tmp_path / ".o.csv.partial").exists()


@pytest.fixture
def written_parts(monkeypatch):
    """Records the numbers of the predicted parts."""
    parts, write = [], prediction_run.write_part
    monkeypatch.setattr(prediction_run, "write_part", lambda *args: (parts.append(args[1]), write(*args)))
    return parts


def test_only_rows_that_changed_since_a_killed_call_are_predicted_anew(tmp_path, models, interrupted, written_parts):
    data, output = interrupted
    texts = [*TEXTS[:5], "a cat", *TEXTS[6:-1]]
    data.write_text("\n".join(["sentence", *texts]))
    mybert.predict(models / "sst2", data, output=output)
    assert written_parts == [1, 3, 4, 5, 6, 7]
    assert [row["sentence"] for row in mybert.files.read_rows(output)] == texts
    mybert.predict(models / "sst2", data, output=tmp_path / "whole.csv")
    assert output.read_bytes() == (tmp_path / "whole.csv").read_bytes()


def test_a_mistake_in_the_data_costs_nothing_that_was_predicted(tmp_path, models, small_parts, written_parts, caplog):
    data, output = tmp_path / "t.csv", tmp_path / "o.csv"
    data.write_text("\n".join(["sentence", *TEXTS[:6], '" "']))
    with caplog.at_level("INFO"), pytest.raises(ValueError, match="row 7: an empty sentence"):
        mybert.predict(models / "sst2", data, output=output)
    assert "What was predicted is kept; correct the data and run the same command" in caplog.text
    data.write_text("\n".join(["sentence", *TEXTS[:7]]))
    assert mybert.predict(models / "sst2", data, output=output)["rows"] == 7
    assert written_parts == [0, 1]
    assert names(tmp_path) == ["o.csv", "t.csv"]


def test_a_mistake_before_anything_is_predicted_leaves_nothing(tmp_path, models, small_parts):
    data, output = tmp_path / "t.csv", tmp_path / "o.csv"
    data.write_text("\n".join(["sentence", TEXTS[0], '" "']))
    with pytest.raises(ValueError, match="row 2: an empty sentence"):
        mybert.predict(models / "sst2", data, output=output)
    with pytest.raises(ValueError, match="row 6: an empty text"):  # these rows cannot be read again
        mybert.predict(models / "sst2", iter([*TEXTS[:5], " "]), output=output)
    assert names(tmp_path) == ["t.csv"]


@pytest.mark.parametrize("name", ["o.jsonl", "o.csv", "-"])
def test_what_is_predicted_has_one_name_in_all_rows(tmp_path, models, small_parts, capsys, name):
    """Even if only some of the rows have a column of that name."""
    rows = [{"sentence": text} | ({"label": "mine"} if place == 6 else {}) for place, text in enumerate(TEXTS[:9])]
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    if name == "-":  # printed row by row, so from the first such row on
        main(["predict", str(models / "sst2"), str(tmp_path / "t.jsonl")])
        written = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert ["predicted_label" in row for row in written] == [place >= 6 for place in range(9)]
        return
    mybert.predict(models / "sst2", tmp_path / "t.jsonl", output=tmp_path / name)
    written = mybert.files.read_rows(tmp_path / name)
    assert {row["predicted_label"] for row in written} <= {"0", "1"}
    assert [row.get("label") or None for row in written] == [row.get("label") for row in rows]


def test_overwrite_begins_anew(tmp_path, models, interrupted, monkeypatch):
    data, output = interrupted
    parts = []
    write = prediction_run.write_part

    def killed(folder, number, *others):
        if number == 2:
            raise KeyboardInterrupt
        parts.append(number)
        write(folder, number, *others)

    output.write_text("an earlier one")
    with pytest.raises(ValueError, match=r"o.csv exists; name another place or pass --overwrite"):
        mybert.predict(models / "sst2", data, output=output)
    monkeypatch.setattr(prediction_run, "write_part", killed)
    with pytest.raises(KeyboardInterrupt):
        mybert.predict(models / "sst2", data, output=output, overwrite=True)
    assert (parts, output.read_text()) == ([0, 1], "an earlier one")
    # Resuming that call does not need --overwrite again.
    monkeypatch.setattr(prediction_run, "write_part", lambda *args: (parts.append(args[1]), write(*args)))
    mybert.predict(models / "sst2", data, output=output)
    assert parts == list(range(8))
    assert [row["sentence"] for row in mybert.files.read_rows(output)] == TEXTS
    assert names(tmp_path) == ["o.csv", "t.csv"]


def test_a_file_where_a_folder_should_be(tmp_path, models):
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"x.csv.* could not be written \(.*: Not a directory"):
        mybert.predict(models / "sst2", TEXTS, output=tmp_path / "file" / "x.csv")
    assert names(tmp_path) == ["file"]


def test_nothing_is_replaced_without_a_word(tmp_path, models):
    (tmp_path / "o.csv").write_text("mine")
    with pytest.raises(ValueError, match=r"o.csv exists; name another place or pass --overwrite"):
        mybert.predict(models / "sst2", TEXTS, output=tmp_path / "o.csv")
    (tmp_path / "t.csv").write_text("sentence\na cat\n")
    with pytest.raises(ValueError, match=r"t.csv would be both read and written; name another place"):
        mybert.predict(models / "sst2", tmp_path / "t.csv", output=tmp_path / "t.csv", overwrite=True)
    assert (tmp_path / "o.csv").read_text() == "mine"
    assert names(tmp_path) == ["o.csv", "t.csv"]
    mybert.predict(models / "sst2", TEXTS, output=tmp_path / "o.csv", overwrite=True)
    assert len(mybert.files.read_rows(tmp_path / "o.csv")) == 30


@pytest.mark.parametrize(
    ("task", "data", "settings", "message"),
    [
        ("sst2", [], {}, r"The data holds no rows"),
        ("sst2", ["a", " "], {}, r"data, row 2: an empty text; expected a text"),
        ("sst2", [3], {}, r"data, row 1: '3'; expected one text \(the task reads no pairs\) or a dictionary"),
        ("sst2", {"train": []}, {}, r"data is a dict of 'train'; expected a file, a table"),
        ("sst2", 3, {}, r"data is 3; expected a file, a table"),
        (
            "sst2",
            [{"a": "b", "c": "d"}],
            {},
            r"data has no column 'sentence'; its columns are 'a', 'c'; choose which to read with text_column='NAME'",
        ),
        (
            "mrpc",
            ["a"],
            {},
            r"has no column '#1 String' and '#2 String'; .* with text_column='NAME' and text_pair_column='NAME'",
        ),
        ("sst2", ["a"], {"text_column": "b"}, r"data has no column 'b'; its columns are 'text'"),
        ("sst2", ["a"], {"keep_columns": ["id"]}, r"data has no column 'id' in row 1"),
        ("sst2", ["a"], {"top_k": 0}, r"top_k is 0; expected at least 1"),
        ("ner", ["a"], {"top_k": 2}, r"top_k is 2; this task lists at most 1"),
        ("ner", ["a"], {"probabilities": True}, r"probabilities is set, but this task has no class probabilities"),
        ("squad", ["a"], {"probabilities": True}, r"probabilities is set, but this task has no class probabilities"),
        ("squad", ["a"], {"top_k": 21}, r"top_k is 21; expected at most n_best_size, 20"),
        ("regression", ["a"], {"top_k": 2}, r"top_k or probabilities is set, but this task predicts one number"),
        ("sst2", ["a"], {"batch_size": 0}, r"batch_size is 0; expected at least 1"),
        ("sst2", ["a"], {"dtype": "int4"}, r"dtype is 'int4'; expected one of float32, bfloat16, int8"),
        ("sst2", ["a"], {"doc_stride": 3}, r"doc_stride is set without window_pooling \(mean or max\)"),
        ("sst2", ["a"], {"doc_stride": 14, "window_pooling": "max"}, r"doc_stride is 14; expected 0 .* less than 14,"),
        ("sst2", ["a"], {"window_pooling": "sum"}, r"window_pooling is 'sum'; expected one of mean, max"),
        (
            "ner",
            ["a"],
            {"doc_stride": 14},
            r"doc_stride is 14; expected 0 or more and less than 14, the room for text",
        ),
        ("squad", ["a"], {"window_pooling": "max"}, r"window_pooling is not a setting of the task squad"),
        ("sst2", ["a"], {"max_length": 65}, r"max_length is 65; .* reads at most 64 tokens"),
        ("sst2", ["a"], {"task": "ner"}, r"has no head for this task"),
        ("sst2", ["a"], {"output": "o.xlsx"}, r"output is 'o.xlsx'; expected a name that ends in .jsonl, .csv, .tsv"),
        (
            "sst2",
            [{"sentence": "a\tb"}],
            {"output": "o.tsv"},
            r"'a\\tb' as sentence has a tab or line break, which a .tsv file cannot hold",
        ),
    ],
)
def test_mistakes(tmp_path, monkeypatch, models, task, data, settings, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        mybert.predict(models / task, data, **settings)
    assert not [name for name in names(tmp_path) if not name.startswith(".")]


def test_a_column_that_is_kept_may_be_missing_in_some_rows(tmp_path, models):
    rows = [{"id": 1, "sentence": "a"}, {"sentence": "b"}, {"id": None, "sentence": "c"}]
    mybert.predict(models / "sst2", rows, output=tmp_path / "o.jsonl", keep_columns=["id"])
    written = mybert.files.read_rows(tmp_path / "o.jsonl")
    assert [row.get("id", "none") for row in written] == [1, "none", None]


@pytest.mark.parametrize("text", ["a fine film", "a fine film " * 100])
def test_a_text_is_no_file(models, text):
    with pytest.raises(FileNotFoundError, match=r"There is no file 'a fine .*; a text is given in a list: \[text\]"):
        mybert.predict(models / "sst2", text)


def test_a_model_without_a_task(tmp_path, tokenizer):
    config = MyBertConfig(vocab_size=len(tokenizer), **SIZE)
    MyBertForPreTraining(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match=r"is MyBertForPreTraining, without a head for a task; expected a fine-tuned"):
        mybert.predict(tmp_path, ["a"])


@pytest.mark.parametrize("dtype", ["bfloat16", "int8"])
def test_other_types_of_weights(models, expected, dtype):
    found = mybert.predict(models / "sst2", TEXTS, dtype=dtype)
    assert [row["score"] for row in found] != [round(score, 6) for _, score in expected]
    assert np.mean([row["label"] == label for row, (label, _) in zip(found, expected, strict=True)]) > 0.9


def batches_of(columns):
    """The same rows as each kind of batch."""
    pandas, pyarrow = pytest.importorskip("pandas"), pytest.importorskip("pyarrow")
    arrays = {name: np.array([*values, None], dtype=object)[:-1] for name, values in columns.items()}
    return {"arrays": arrays, "frame": pandas.DataFrame(columns), "table": pyarrow.table(columns)}


@pytest.mark.parametrize("kind", ["arrays", "frame", "table"])
def test_batches_of_engines_have_the_answers_of_predict(models, kind):
    columns = {"id": list(range(30)), "sentence": TEXTS, "label": ["mine"] * 30}
    batch = batches_of(columns)[kind]
    told = mybert.predict(models / "sst2", TEXTS, top_k=2)
    predict = Predictor(models / "sst2", top_k=2, keep_columns=["label", "id"])
    found = predict(batch)
    assert type(found) is type(batch)
    found = found.to_pydict() if kind == "table" else {name: list(found[name]) for name in found}
    assert list(found) == ["label", "id", "predicted_label", "score", "best"]
    assert (found["label"], found["id"]) == (["mine"] * 30, list(range(30)))
    assert found["predicted_label"] == [row["label"] for row in told]
    assert found["score"] == [row["score"] for row in told]
    assert found["best"] == [row["best"] for row in told]


@pytest.mark.parametrize("name", ["mrpc", "regression", "multilabel", "ner", "squad", "swag"])
def test_batches_of_every_task(models, name):
    columns = {"#1 String": TEXTS, "#2 String": TEXTS[::-1]} if name == "mrpc" else {"text": TEXTS}
    if name == "squad":
        columns = {"question": TEXTS[:4], "context": TEXTS[4:8]}
    if name == "swag":
        columns = {"sent1": TEXTS[:4], "sent2": TEXTS[4:8]} | {f"ending{n}": TEXTS[n : n + 4] for n in range(4)}
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    for kind, batch in batches_of(columns).items():
        found = Predictor(models / name)(batch)
        answers = found.to_pydict() if kind == "table" else {name: list(found[name]) for name in found}
        for column in columns:
            del answers[column]
        told = [dict(zip(answers, values, strict=True)) for values in zip(*answers.values(), strict=True)]
        assert told == mybert.predict(models / name, rows), kind


def test_two_workers_say_what_one_process_says(models, small_parts, monkeypatch):
    """Each gets a pickled predictor with every batch, and loads the model once."""
    pandas = pytest.importorskip("pandas")
    monkeypatch.setattr(predictor, "ROWS_OF_A_PART", 4)
    frame = pandas.DataFrame({"sentence": TEXTS})
    whole = mybert.predict(models / "sst2", frame)
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
        assert list(together["sentence"]) == TEXTS and list(together.index) == list(range(30))
    pickle.loads(pickle.dumps(Predictor(models / "regression")))(frame)
    assert list(predictor._copies) != [] and len(predictor._copies) == 1  # replaces the first one


@pytest.mark.parametrize(
    ("batch", "settings", "message"),
    [
        (
            {"a": ["b"], "c": ["d"]},
            {},
            r"The batch has no column 'sentence'; its columns are 'a', 'c'; choose which to read with "
            r"text_column='NAME'",
        ),
        ({"sentence": ["a", ""]}, {}, r"The batch, row 2: an empty sentence; expected a text"),
        ({"sentence": ["a", None]}, {}, r"The batch, row 2: an empty sentence; expected a text"),
        ({"sentence": "a cat"}, {}, r"The batch has 'a cat' as column 'sentence'; .* map_batches instead of map"),
        ({"sentence": ["a"]}, {"keep_columns": ["id"]}, r"The batch has no column 'id' in row 1"),
        ({"sentence": ["a"]}, {"top_k": 0}, r"top_k is 0; expected at least 1"),
        (
            ["a cat"],
            {},
            r"The batch is \['a cat'\]; expected a dictionary of columns, a pandas.DataFrame or a pyarrow",
        ),
    ],
)
def test_mistakes_in_batches(models, batch, settings, message):
    with pytest.raises(ValueError, match=message):
        Predictor(models / "sst2", **settings)(batch)


def test_a_predictor_has_no_files(models):
    with pytest.raises(TypeError, match="output"):
        Predictor(models / "sst2", output="o.csv")


@pytest.mark.slow
def test_two_processes_write_what_one_does(tmp_path, models):
    (tmp_path / "t.csv").write_text("\n".join(["sentence", *(f"{text} {n}" for n in range(100) for text in TEXTS)]))
    mybert.predict(models / "sst2", tmp_path / "t.csv", output=tmp_path / "one.csv", max_length=9)
    launcher = ("torch.distributed.run", "--standalone", "--nproc_per_node=2", "-m", "mybert", "predict")
    flags = (str(models / "sst2"), "t.csv", "--output", "two.csv", "--max_length", "9")
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *launcher, *flags]
    said = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300)
    assert said.returncode == 0, said.stderr
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    assert said.stdout.count("two.csv: 3,000 rows.") == 1
    assert names(tmp_path) == ["one.csv", "t.csv", "two.csv"]
