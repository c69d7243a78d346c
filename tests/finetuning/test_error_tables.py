"""Tables of wrong predictions, `errors.tsv`, of a run and of `mybert evaluate`."""

import csv
from dataclasses import replace

import pytest

import mybert
from mybert.files.source import Source
from mybert.finetuning import TASKS
from mybert.finetuning.data import TaskData
from mybert.finetuning.tasks.fill_mask import FilledMasks, MaskedText
from mybert.finetuning.tasks.multiple_choice import ChoiceExample, ChoicePrediction
from mybert.finetuning.tasks.question_answering import AnswerPrediction, QuestionExample
from mybert.finetuning.tasks.steps import write_errors
from mybert.finetuning.tasks.tagging import TaggedSentence
from mybert.finetuning.tasks.texts import LabelPrediction, TextExample
from mybert.hub_card import publishable_files
from mybert.pipelines import Answer


def rows_of(path):
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def span(text, probability):
    return Answer(text, 0, len(text), 0.0, 0.0, probability)


CASES = {  # task -> (example, prediction) pairs, and what the table has of each error, without source and row
    "classification": (
        [
            (TextExample(("fine",), "good"), LabelPrediction("good", {"bad": 0.1, "good": 0.9})),
            (TextExample(("dull",), "bad"), LabelPrediction("good", {"bad": 0.4, "good": 0.6})),
            (TextExample(("a\tb\nc",), "good"), LabelPrediction("bad", {"bad": 0.75, "good": 0.25})),
        ],
        {3: ("a\tb\nc", "good", "bad", "0.75"), 2: ("dull", "bad", "good", "0.6")},
    ),
    "multilabel": (
        [
            (TextExample(("x",), frozenset("ab")), LabelPrediction(frozenset("a"), {"a": 0.9, "b": 0.3})),
            (TextExample(("y",), frozenset()), LabelPrediction(frozenset("ab"), {"a": 0.8, "b": 0.2})),
            (TextExample(("z",), frozenset("b")), LabelPrediction(frozenset("b"), {"a": 0.1, "b": 0.2})),
        ],
        {2: ("y", "", "a, b", "0.8"), 1: ("x", "a, b", "a", "0.7")},
    ),
    "regression": (
        [
            (TextExample(("x",), 1.0), LabelPrediction(1.5)),
            (TextExample(("y",), 2.0), LabelPrediction(-1.0)),
        ],
        {2: ("y", "2.0", "-1.0", "-3.0"), 1: ("x", "1.0", "1.5", "0.5")},
    ),
    "mrpc": (  # predictions of another tool, which writes no probabilities
        [(TextExample(("x", "y"), "1"), LabelPrediction("0")), (TextExample(("x", "z"), "1"), LabelPrediction("1"))],
        {1: ("x", "y", "1", "0", "")},
    ),
    "rte": (  # numbers mean the benchmark's classes
        [
            (TextExample(("x", "y"), "entailment"), LabelPrediction("1")),
            (TextExample(("x", "z"), "entailment"), LabelPrediction("0")),
        ],
        {1: ("x", "y", "entailment", "not_entailment", "")},
    ),
    "ner": (
        [
            (TaggedSentence(("Ada", "sat"), ("B-PER", "O")), ("O", "B-PER")),
            (TaggedSentence(("a", "cat"), ("O", "O")), ("O", "O")),
        ],
        {1: [("Ada sat", "Ada", "B-PER", "O"), ("Ada sat", "sat", "O", "B-PER")]},
    ),
    "multiple_choice": (
        [
            (ChoiceExample("she", ("sat", "ran"), 1), ChoicePrediction(0, (0.6, 0.4))),
            (ChoiceExample("he", ("sat", "ran"), 1), ChoicePrediction(1, (0.1, 0.9))),
        ],
        {1: ("she", "ran", "sat", "0.6")},
    ),
    "squad_v2": (
        [
            (QuestionExample("1", "who?", "a cat", ((2, "cat"), (0, "a cat"))), AnswerPrediction("a cat", -1.0)),
            (QuestionExample("2", "where?", "a mat", ()), AnswerPrediction("mat", -1.0, (span("mat", 0.3),))),
            (QuestionExample("3", "what?", "a b c", ((2, "b c"),)), AnswerPrediction("b", -1.0, (span("b", 0.9),))),
            (QuestionExample("4", "who?", "today", ((0, "today"),)), AnswerPrediction("today", 1.0, (span("", 0.8),))),
        ],
        {
            4: ("4", "who?", "today", "", "0.0"),
            2: ("2", "where?", "", "mat", "0.0"),
            3: ("3", "what?", "b c", "b", "66.666667"),
        },
    ),
    "fill_mask": (
        [
            (MaskedText("a [MASK] [MASK]", ("cat", "sat")), FilledMasks(((("cat", 0.9),), (("ran", 0.4),)))),
            (MaskedText("[MASK] sat", ("it",)), FilledMasks(((("he", 0.5),),))),
        ],
        {2: ("[MASK] sat", "it", "he", "0.5"), 1: ("a [MASK] [MASK]", "sat", "ran", "0.4")},
    ),
}  # fmt: skip


@pytest.mark.parametrize("task", CASES)
def test_write_errors_of_each_task_has_the_surest_first_with_their_rows(task, tmp_path):
    pairs, expected = CASES[task]
    examples = [replace(example, row=number) for number, (example, _) in enumerate(pairs, start=1)]
    predictions = [prediction for _, prediction in pairs]
    write_errors(TASKS[task], predictions, TaskData(examples, {}, Source.of("dev.tsv")), tmp_path / "errors.tsv")
    found = rows_of(tmp_path / "errors.tsv")
    several = {row: each if isinstance(each, list) else [each] for row, each in expected.items()}
    assert [tuple(row.values()) for row in found] == [
        (*columns, "dev.tsv", str(row)) for row, each in several.items() for columns in each
    ]


def test_write_errors_without_errors_writes_a_header(tmp_path):
    data = TaskData([TextExample(("x",), "a")], {}, Source.of("dev.tsv"))
    write_errors(TASKS["classification"], [LabelPrediction("a")], data, tmp_path / "errors.tsv")
    assert (tmp_path / "errors.tsv").read_text() == "source\trow\n"


def test_finetune_and_evaluate_write_the_same_errors_with_rows_of_the_source(tune, rows, tmp_path):
    path = tmp_path / "train.tsv"
    path.write_text("text\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    tune(tmp_path / "out", path, validation_split=0.5, test_file=rows[:9])
    for name, source in (("errors.tsv", str(path)), ("errors_test.tsv", "test_file")):
        found = rows_of(tmp_path / "out" / name)
        assert found and all(row["source"] == source for row in found)
        assert all((row["text"], row["true"]) == rows[int(row["row"]) - 1] for row in found)
        assert all(row["true"] != row["predicted"] for row in found)
        sure = [float(row["probability"]) for row in found]
        assert sure == sorted(sure, reverse=True) and sure[0] > 0.5
    reports = {"report_dir": tmp_path / "reports", "use_cpu": True}
    mybert.evaluate(tmp_path / "out", rows[:9], **reports)
    again = rows_of(tmp_path / "reports" / "errors.tsv")
    columns = ("text", "true", "predicted", "probability", "row")
    assert [[row[name] for name in columns] for row in again] == [[row[name] for name in columns] for row in found]


SECRET = "happy fish slept under bread"
PRIVATE = {
    "classification": [{"text": f"{SECRET} {n}", "label": "ab"[n % 2]} for n in range(6)],
    "regression": [{"text": f"{SECRET} {n}", "score": n} for n in range(6)],
    "ner": [{"tokens": f"{SECRET} {n}".split(), "tags": ["B-X", *["O"] * 5]} for n in range(6)],
    "squad": [{"question": f"{SECRET} {n}?", "context": SECRET, "answers": SECRET} for n in range(6)],
    "multiple_choice": [{"text": f"{n}", "choices": [SECRET, f"it {n}"], "label": n % 2} for n in range(6)],
}  # fmt: skip


@pytest.mark.parametrize("task", PRIVATE)
def test_finetune_publishes_texts_of_the_data_only_with_card_examples(task, tune, tmp_path):
    rows, settings = PRIVATE[task], {"task": task, "max_length": 24}
    for asked in (False, True):
        out = tmp_path / str(asked)
        tune(out, rows, validation_file=rows, card_examples=asked, **settings)
        assert SECRET in (out / "errors.tsv").read_text()
        files = publishable_files(out, "owner/name")
        contents = {name: part if isinstance(part, bytes) else part.read_bytes() for name, part in files.items()}
        assert [name for name, content in contents.items() if SECRET.encode() in content] == ["README.md"] * asked
        card = contents["README.md"].decode()
        assert ("The surest errors" in card) == asked and "## Examples" in card
