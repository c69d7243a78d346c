"""The kinds of tasks: reading data, targets, predictions and files."""

import copy
import functools
import json
import logging
from dataclasses import replace

import numpy as np
import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from transformers import BertConfig, PreTrainedTokenizerFast

from mybert import MyBertForQuestionAnswering
from mybert.files.source import Source
from mybert.finetuning import TASKS, EvaluateArguments, FinetuningArguments, evaluate_model, finetune
from mybert.finetuning.data import DataRow, Labels, TaskData
from mybert.finetuning.tasks.calibration import calibrated, with_mean_fit
from mybert.finetuning.tasks.multiple_choice import ChoicePrediction
from mybert.finetuning.tasks.question_answering import AnswerPrediction, QuestionExample
from mybert.finetuning.tasks.steps import is_empty, read_examples, read_predictions, write_predictions
from mybert.finetuning.tasks.tagging import TaggedSentence, TagWindow, WordPieces, tag_windows
from mybert.finetuning.tasks.texts import LabelPrediction, TextExample


def write_json(path, content):
    path.write_text("\n".join(map(json.dumps, content)) if path.suffix == ".jsonl" else json.dumps(content))
    return path


def rows_of(*values):
    return [DataRow(row, "x.csv", number) for number, row in enumerate(values, start=1)]


def examples_of(task, *values):
    return (TASKS[task] if isinstance(task, str) else task).examples(rows_of(*values), True)


def logits_of(labels, ids):
    """Logits whose maximum is the given class; -100 becomes class 0."""
    ids = np.where(np.array(ids) < 0, 0, ids)
    return np.eye(len(labels.names))[ids] * 5.0


# Rows of all tasks

QUESTION = {"question": "What?", "context": "The cat sat on the mat. The dog ate fish under the tree."}
NAN = float("nan")
WRITTEN_LIST = r"expected a list \(.jsonl, .parquet\), or text without \[ and \]"


@pytest.mark.parametrize(
    ("task", "row", "found"),
    [
        ("classification", {"text": ["a", "cat"], "label": "x"}, "x.csv, row 1: .* as text; expected a text"),
        ("classification", {"text": {"words": "a cat"}, "label": "x"}, "row 1: .* as text; expected a text"),
        ("classification", {"text": "a", "label": ["a"]}, r"row 1: .* as label; .*multilabel"),
        ("classification", {"text": "a", "label": {"a": 1}}, r"row 1: .* as label; .*multilabel"),
        ("classification", {"text": "a", "label": NAN}, "no label in row 1"),
        ("classification", {"text": "a", "label": np.float32("nan")}, "no label in row 1"),
        ("classification", {"text": NAN, "label": 1}, "row 1: an empty text"),
        ("multilabel", {"text": "a", "labels": "['x', 'y']"}, WRITTEN_LIST),
        ("multilabel", {"text": "a", "labels": '["x"]'}, WRITTEN_LIST),
        ("multilabel", {"text": "a", "labels": "[0, 3]"}, WRITTEN_LIST),
        ("multilabel", {"text": "a", "labels": "[]"}, WRITTEN_LIST),
        ("multilabel", {"text": "a", "labels": ["x", None]}, r"row 1: \"\['x', None\]\" as labels; expected a list"),
        ("multilabel", {"text": "a", "labels": [["x"]]}, r"row 1: .* as labels; expected a list"),
        ("multilabel", {"text": "a", "labels": {"x": 1}}, r"row 1: .* as labels; expected a list"),
        ("regression", {"text": "a", "score": 10**400}, r"row 1: '10+' as score; expected a number"),
        ("tagging", {"tokens": "['EU', 'rejects']", "tags": "['NOUN', 'VERB']"}, WRITTEN_LIST),
        ("tagging", {"tokens": ["EU", "rejects"], "tags": "['NOUN' 'VERB']"}, WRITTEN_LIST),
        ("tagging", {"tokens": ["a", "b"], "tags": ["X", " "]}, "row 1: an empty tag"),
        ("tagging", {"tokens": 3, "tags": "X"}, "row 1: '3' as tokens; expected a list of words"),
        ("tagging", {"tokens": ["a", None], "tags": "X X"}, r"row 1: .* as tokens; expected a list of words"),
        ("multiple_choice", {"text": "a", "choices": ["a", "b"], "label": "4"}, "row 1: '4' as label; .* 0 to 1"),
        ("multiple_choice", {"text": "a", "choices": ["a"], "label": 0}, "row 1: 1 choices"),
        ("multiple_choice", {"text": "a", "choices": "a", "label": 0}, "row 1: 'a' as choices"),
        ("multiple_choice", {"text": "a", "choices": ["a", None], "label": 0}, "as choices; expected a list"),
        ("multiple_choice", {"text": "a", "choices": ["a", NAN], "label": 0}, "as choices; expected a list"),
        ("multiple_choice", {"text": " ", "choices": ["a", "b"], "label": 0}, "row 1: an empty text"),
        ("question_answering", QUESTION | {"question": ""}, "row 1: an empty question"),
        ("question_answering", QUESTION | {"context": " "}, "row 1: an empty context"),
        ("question_answering", QUESTION | {"question": b"What?"}, r"row 1: \"b'What\?'\" as question"),
        ("question_answering", QUESTION | {"answers": []}, "row 1: a question without an answer; .* squad_v2"),
        ("question_answering", QUESTION | {"answers": [{"text": "", "answer_start": 1}]}, "not empty"),
        ("question_answering", QUESTION | {"answers": {"text": None}}, "not empty"),
        (
            "question_answering",
            QUESTION | {"answers": [{"text": "fish", "answer_start": "x"}]},
            "answer_start is 'x'; expected a whole",
        ),
        (
            "question_answering",
            QUESTION | {"answers": {"text": "a", "answer_start": np.inf}},
            "is 'inf'; expected a whole number",
        ),
        ("question_answering", QUESTION | {"answers": {"text": ["a", "b"], "answer_start": [3]}}, "for each text"),
        ("question_answering", QUESTION | {"answers": {"text": ["fish"], "answer_start": 36}}, "for each text"),
        ("question_answering", QUESTION | {"answers": 5}, "row 1: '5' as answers"),
    ],
)
def test_examples_broken_row_is_an_error(task, row, found):
    with pytest.raises(ValueError, match=found):
        examples_of(task, {"answers": "fish"} | row)


def test_examples_several_rows_that_do_not_fit():
    row = QUESTION | {"id": "a", "answers": "fish"}
    with pytest.raises(ValueError, match="rows 1 and 2 have the id 'a'"):
        examples_of("question_answering", row, row)
    with pytest.raises(ValueError, match="row 2: 3 choices; expected 2 as in row 1"):
        examples_of(
            "multiple_choice",
            *({"text": "a", "choices": choices, "label": 0} for choices in (["a", "b"], ["a", "b", "c"])),
        )


def test_infer_columns_with_pairs_from_the_second_row_on_reads_pairs():
    rows = rows_of({"text": "a", "label": "x"}, {"text": "b", "text_pair": "c", "label": "y"})
    with pytest.raises(ValueError, match="no column 'text_pair' in row 1"):
        TASKS["classification"].infer_columns(rows).examples(rows, True)


@pytest.mark.parametrize("missing", [None, "", NAN])
def test_examples_missing_values(missing):
    """Like an empty cell of a CSV file, a null in other tables."""
    pairs = replace(TASKS["classification"], text_pair_column="text_pair")
    rows = rows_of({"text": "a", "text_pair": missing, "label": "x"})
    assert not is_empty(pairs, rows[0]) and pairs.examples(rows, True)[0].texts == ("a", "")
    several = replace(TASKS["multilabel"], label_columns=("x", "y"))
    (row,) = rows_of({"text": "a", "x": 1, "y": missing})
    assert is_empty(several, row) and not several.has_label(row)
    with pytest.raises(ValueError, match="row 1: an empty value as y; expected 0 or 1"):
        several.examples([row], True)
    assert is_empty(TASKS["classification"], rows_of({"text": "a", "label": missing})[0])


def test_predicted_numbers_keep_seven_digits_in_every_unit():
    task, (example,) = TASKS["regression"], examples_of("regression", {"text": "a", "score": 1.5e-8})
    for value, shown in ((1.23456789e-8, 1.234568e-08), (-12.3456789, -12.34568), (123456789.0, 123456800.0)):
        prediction = LabelPrediction(value)
        assert task.columns_of(prediction, example).answer == {"score": shown}
        assert task.columns_of(prediction, example).text == str(shown)
        ((size, error),) = task.errors(prediction, example)
        assert (size, error["true"]) == (pytest.approx(abs(value - 1.5e-8), rel=1e-6), 1.5e-8)


# Files of predictions


TABLE = {"animal": 0.9, "small": 0.8, "red, green": 0.1}
ODD_NAMES = ["index", "prediction", "predicted_index", "x"]


@pytest.mark.parametrize(
    ("task", "rows", "predictions"),
    [
        ("multilabel", [{"text": "a", "labels": labels} for labels in (["b, c", "d\te"], ["f"], [])], None),
        # The separator of labels is decided by all classes, not only those of the data.
        ("multilabel", [{"text": "a", "labels": ["animal", "small"]}], [({"animal", "small"}, TABLE)]),
        # A class may be called as a column of the table is.
        ("classification", [{"text": "a", "label": name} for name in ODD_NAMES], None),
        ("tagging", [{"tokens": ["a\tb", "c\nd", "e"], "tags": ["X", "Y\tZ", "X"]}], None),
        (
            "tagging",
            [{"tokens": w, "tags": ["X"] * len(w)} for w in (["a", "", "\n"], ["-DOCSTART-"], ["_", " "])],
            None,
        ),
    ],
)
def test_write_predictions_is_read_as_it_was_written(tmp_path, task, rows, predictions):
    task = TASKS[task]
    examples = examples_of(task, *rows)
    if predictions is not None:
        predictions = [LabelPrediction(frozenset(label), table) for label, table in predictions]
    elif task.pipeline == "token-classification":
        predictions = [example.tags for example in examples]
    else:
        table = dict.fromkeys((name for example in examples for name in example.classes), 0.5)
        predictions = [LabelPrediction(example.label, table) for example in examples]
    write_predictions(task, predictions, examples, tmp_path)
    (file,) = tmp_path.iterdir()
    read = read_predictions(task, file, examples)
    assert [getattr(item, "label", item) for item in read] == [getattr(item, "label", item) for item in predictions]


def test_write_predictions_in_columns(tmp_path):
    examples = examples_of("classification", *({"text": "a", "label": name} for name in ODD_NAMES))
    table = dict.fromkeys(ODD_NAMES, 0.25)
    write_predictions(TASKS["classification"], [LabelPrediction("x", table)] * 4, examples, tmp_path)
    columns = (tmp_path / "predictions.tsv").read_text().splitlines()[0].split("\t")
    expected = ["index", "prediction", "predicted_predicted_index", "predicted_prediction", "predicted_index", "x"]
    assert columns == expected
    examples = examples_of("tagging", *({"tokens": words, "tags": ["X"] * 2} for words in (["a", ""], ["_", "\n"])))
    assert [example.words for example in examples] == [("a", ""), ("_", " ")]
    write_predictions(TASKS["tagging"], [example.tags for example in examples], examples, tmp_path)
    assert (tmp_path / "predictions.conll").read_text().split("\n") == [
        "a\tX\tX",
        "_\tX\tX",
        "",
        "_\tX\tX",
        "_\tX\tX",
        "",
    ]


@pytest.mark.parametrize(
    ("task", "rows", "name", "lines", "metrics"),
    [
        ("sst2", [{"sentence": "a", "label": n} for n in (1, 0, 0)], "p.tsv", "2\t0\n0\t1\n1\t0", {"accuracy": 1.0}),
        (
            *("multiple_choice", [{"text": "a", "choices": ["b", "c"], "label": n} for n in (1, 0)]),
            *("p.csv", "1,0\n0,1", {"accuracy": 1.0}),
        ),
        ("fill_mask", [{"text": "[MASK] x", "label": w} for w in "bd"], "p.tsv", "1\td\n0\tb", {"accuracy": 1.0}),
    ],
)
def test_read_predictions_by_index(tmp_path, task, rows, name, lines, metrics):
    examples, file = examples_of(task, *rows), tmp_path / name
    header = "index,prediction" if name.endswith("csv") else "index\tprediction"
    file.write_text(f"{header}\n{lines}\n")
    assert TASKS[task].measures(read_predictions(TASKS[task], file, examples), examples).scores() == metrics
    count = len(rows)
    for index, found in ((count, f"'{count}' as index; expected 0 to {count - 1}"), (0, "'0' as index a second time")):
        mark = "," if name.endswith("csv") else "\t"
        numbers = [*range(count - 1), index]
        file.write_text("\n".join([header, *(f"{number}{mark}0" for number in numbers)]))
        with pytest.raises(ValueError, match=found):
            read_predictions(TASKS[task], file, examples)


def test_read_predictions_in_the_order_of_a_key_that_the_data_has(tmp_path):
    data, file = tmp_path / "data.csv", tmp_path / "p.csv"
    data.write_text("id,text,label,kind\nr7,a,x,k\nr5,b,y,l\nr9,c,x,k\n")
    task, source = TASKS["classification"], Source.of(str(data))
    examples = read_examples(task, source)

    def read(*lines):
        file.write_text("\n".join(lines) + "\n")
        return [item.label for item in read_predictions(task, file, examples, source)]

    assert read("id,prediction", "r7,x", "r5,y", "r9,y") == ["x", "y", "y"]
    with pytest.raises(ValueError, match="row 1: 'r5' as id; expected the data's order, and 'r7' here"):
        read("id,prediction", "r5,y", "r7,x", "r9,y")
    # Neither a key of the data: names of other rows, values of several rows, and what is predicted.
    assert read("id,prediction", "r5,y", "r7,x", "r8,y") == ["y", "x", "y"]
    assert read("kind,prediction", "l,y", "k,x", "k,y") == ["y", "x", "y"]
    assert read("label,prediction", "y,y", "x,x", "x,y") == ["y", "x", "y"]
    assert read("index,id,prediction", "1,r5,y", "0,r7,x", "2,r9,y") == ["x", "y", "y"]


def test_choices_are_written_with_probabilities(tmp_path):
    task = TASKS["multiple_choice"]
    examples = examples_of(task, *({"text": "a", "choices": ["b", "c"], "label": label} for label in (0, 1)))
    predictions = [ChoicePrediction(1, (0.25, 0.75)), ChoicePrediction(1, (0.4, 0.6))]
    write_predictions(task, predictions, examples, tmp_path)
    assert (tmp_path / "predictions.csv").read_text().splitlines()[1] == "0,1,0.250000,0.750000"
    read = read_predictions(task, tmp_path / "predictions.csv", examples)
    assert task.measures(read, examples).scores() == {"accuracy": 0.5}


# Classification


def baseline(task, examples):
    return task.measures([task.gold_prediction(example) for example in examples], examples).baseline()


def test_the_most_frequent_answer_is_scored_as_any_other():
    labels = ["1"] * 5 + ["0"] * 3
    examples = [TextExample(("the cat",), label) for label in labels]
    assert baseline(TASKS["sst2"], examples) == {"majority_accuracy": 5 / 8}
    paraphrases = baseline(TASKS["mrpc"], examples)
    assert paraphrases == {"majority_f1": pytest.approx(2 * 5 / (5 + 8))}  # precision 5/8, recall 1
    assert baseline(TASKS["cola"], examples) == {"majority_matthews_correlation": 0}
    tie = [TextExample(("the cat",), label) for label in "ba"]
    assert baseline(TASKS["classification"], tie) == {"majority_accuracy": 0.5}
    assert baseline(TASKS["ner"], []) == baseline(TASKS["stsb"], []) == {}


def test_constant_scores_of_numbers_are_the_errors_of_their_mean():
    examples = [TextExample(("a", "b"), value) for value in (1.0, 2.0, 6.0)]
    expected = {"mean_value_mae": 2.0, "mean_value_rmse": pytest.approx(np.sqrt(14 / 3))}
    assert baseline(TASKS["stsb"], examples) == expected


@pytest.mark.parametrize(
    ("train", "dev", "ids"),
    [
        ([0, 1, 1], ["1", "0"], [1, 0]),
        (["0", "1", "1"], [1.0, 0], [1, 0]),
        (["no", "yes", "yes"], ["yes", "no"], [1, 0]),
        (["no", "yes", "yes"], [1, 0], [1, 0]),
        ([10, 9, 9], [10, 9], [1, 0]),
        (["1.0", "0.0", "0.0"], [True, "0", 0.0], [1, 0, 0]),
        (["nan", "b", "a"], ["a", "b", "nan"], [0, 1, 2]),
    ],
)
def test_labels_are_numbers_or_names(tokenizer, train, dev, ids):
    task = TASKS["classification"]
    examples = examples_of(task, *[{"text": "a cat", "label": label} for label in train])
    labels = task.labels(examples, "train")
    examples = examples_of(task, *[{"text": "a cat", "label": label} for label in dev])
    data = task.encode(examples, labels, tokenizer, "dev")
    assert list(data.inputs["labels"]) == ids
    predictions = task.predict(logits_of(labels, ids), data, labels)
    assert task.measures(predictions, data.examples).scores()["accuracy"] == 1.0


@pytest.mark.parametrize(
    ("rows", "options"),
    [
        ([{"text": "a cat", "labels": ["animal", "small"]}, {"text": "a tree", "labels": []}], {}),
        ([{"text": "a cat", "labels": "animal,small"}, {"text": "a tree", "labels": ""}], {}),
        (
            [{"text": "a cat", "animal": 1, "small": "1"}, {"text": "a tree", "animal": 0, "small": 0}],
            {"label_columns": ("animal", "small")},
        ),
        (
            [{"text": "a cat", "animal": "1.0", "small": "True"}, {"text": "a tree", "animal": "0.0", "small": False}],
            {"label_columns": ("animal", "small")},
        ),
    ],
)
def test_several_labels(tokenizer, rows, options, tmp_path):
    task = replace(TASKS["multilabel"], **options)
    examples = examples_of(task, *rows)
    labels = task.labels(examples, "train")
    assert labels.names == ("animal", "small")
    data = task.encode(examples, labels, tokenizer, "train")
    assert data.inputs["labels"] == [[1.0, 1.0], [0.0, 0.0]]
    predictions = task.predict(np.array([[3.0, -3.0], [-3.0, -3.0]]), data, labels)
    assert [item.label for item in predictions] == [{"animal"}, set()]
    scores = task.measures(predictions, examples).scores()
    assert scores == {"accuracy": 0.5, "micro_f1": pytest.approx(2 / 3), "macro_f1": 0.5}
    write_predictions(task, predictions, examples, tmp_path)
    assert (tmp_path / "predictions.tsv").read_text().splitlines()[0] == "index\tprediction\tanimal\tsmall"
    if not options:
        numbered = examples_of(task, {"text": "a cat", "labels": [1, 0]}, {"text": "a tree", "labels": ["1"]})
        data = task.encode(numbered, labels, tokenizer, "dev")
        assert data.inputs["labels"] == [[1.0, 1.0], [0.0, 1.0]]
        assert [example.label for example in data.examples] == [{"animal", "small"}, {"small"}]


def test_several_labels_with_a_separator_and_a_column_for_each_is_an_error(user_error):
    with user_error("--label_separator --label_column"):
        replace(TASKS["multilabel"], label_separator=";", label_columns=("animal", "small"))


def test_read_examples_of_rows_that_are_all_empty_is_an_error(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("text,label\na cat,\n,x\n")
    with pytest.raises(ValueError, match=r"t\.csv has 2 rows, and none with both text and label\."):
        read_examples(TASKS["classification"], path, skip_empty=True)


def test_several_labels_where_none_holds():
    task = TASKS["multilabel"]
    examples = examples_of(task, *[{"text": "a", "labels": []}, {"text": "b", "labels": None}])
    assert task.measures(list(map(task.gold_prediction, examples)), examples).scores() == {
        "accuracy": 1.0,
        "micro_f1": 0.0,
        "macro_f1": 0.0,
    }


def test_messages_do_not_repeat_pages():
    """A column of texts may be given as the label column by mistake."""
    texts = [f"{number} {'cat ' * 1000}" for number in range(30)]
    with pytest.raises(ValueError, match=r"has the label '30 cat .*\.\.\.'; expected one of '0 cat") as caught:
        Labels.from_data(texts, "x").ids([f"30 {'cat ' * 1000}"], "dev")
    assert len(str(caught.value)) < 1500
    for task, row in (("regression", {"score": texts[0]}), ("multiple_choice", {"choices": ["a", "b"]})):
        with pytest.raises(ValueError, match="row 1: '0 cat cat") as caught:
            examples_of(TASKS[task], *[{"text": "a", "label": texts[0], **row}])
        assert len(str(caught.value)) < 200


def test_read_qqp_leaves_out_the_broken_rows_of_its_file(tmp_path, caplog):
    lines = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\ta cat ?\ta dog ?\t0", "2\t4\t5\ta"]
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    (example,) = read_examples(TASKS["qqp"], tmp_path / "train.tsv")
    assert example.texts == ("a cat ?", "a dog ?") and "1 broken rows" in caplog.text


def test_true_and_false_are_one_and_zero():
    labels = Labels(("0", "1"))
    assert labels.ids(["True", "False", "true", "TRUE", "1"], "dev") == [1, 0, 1, 1, 1]
    assert Labels(("False", "True")).ids(["1", "0"], "dev") == [1, 0]
    assert Labels(("1.0", "2.0", "a\tb")).ids(["2", "1.0", "a b"], "dev") == [1, 0, 2]  # as a model from elsewhere
    assert Labels(("1.0", "1")).ids(["1", "1.0"], "dev") == [1, 0]
    with pytest.raises(ValueError, match="dev has the label 'True'; expected one of '0', '1', '2'"):
        Labels(("0", "1", "2")).ids(["True"], "dev")
    several = replace(TASKS["multilabel"], label_columns=("x", "y"))
    (example,) = examples_of(several, {"text": "a", "x": "TRUE", "y": "false"})
    assert example.label == {"x"}


# Multiple choice


def test_swag_reads_sent2_before_every_ending(tokenizer):
    row = {"sent1": "the cat sat.", "sent2": "it", "label": "2"} | {f"ending{n}": f"ate {n}" for n in range(4)}
    task = TASKS["swag"]
    (example,) = examples_of(task, *[row])
    assert example.text == "the cat sat."
    assert example.choices == ("it ate 0", "it ate 1", "it ate 2", "it ate 3")
    assert example.label == 2
    data = task.encode([example] * 3, None, tokenizer, "x")
    batch = task.collator(tokenizer)([data[0], data[1]])
    assert batch["input_ids"].shape[:2] == (2, 4)
    assert batch["labels"].tolist() == [2, 2]
    assert task.collator(tokenizer)([data[0]])["input_ids"].shape[:2] == (1, 4)


# Tagging

SENTENCES = [
    TaggedSentence(("cats", "sat", "on", "mats"), ("B-A", "O", "O", "B-P"), 0),
    TaggedSentence(("dogs", "ate"), ("B-A", "I-A"), 0),
    TaggedSentence(("a", "tree"), ("O", "B-P"), 1),
]
TAGS = Labels(("B-A", "B-P", "I-A", "I-P", "O"))


@pytest.mark.parametrize("starts_with_space", [False, True])
def test_the_pieces_of_words_are_those_of_their_text(starts_with_space):
    """Behind a space, a byte-level vocabulary has other pieces than at the beginning."""
    letters = {
        piece: number for number, piece in enumerate(["<s>", "</s>", "<unk>", "a", "b", "\u0120", "ab", "\u0120a"])
    }
    model = BPE(letters, [("a", "b"), ("\u0120", "a")], unk_token="<unk>")
    backend = Tokenizer(model)
    backend.pre_tokenizer = ByteLevel(add_prefix_space=starts_with_space)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, cls_token="<s>", sep_token="</s>", unk_token="<unk>")
    pieces = WordPieces([TaggedSentence(("ab", "a", "ab"), None)], tokenizer)
    assert pieces.ids.tolist() == tokenizer("ab a ab", add_special_tokens=False)["input_ids"]
    assert pieces.words.tolist() == sorted(pieces.words)
    assert pieces.is_first.sum() == 3


def test_only_the_first_piece_of_a_word_is_learned(tokenizer):
    data = TASKS["ner"].encode(SENTENCES, TAGS, tokenizer, "x")
    assert tokenizer.convert_ids_to_tokens(data[0]["input_ids"]) == "[CLS] cat ##s sat on mat ##s [SEP]".split()
    assert data[0]["labels"] == [-100, 0, -100, 4, 4, 1, -100, -100]
    inside = replace(TASKS["ner"], continuation_labels="inside").encode(SENTENCES, TAGS, tokenizer, "x")
    assert inside[0]["labels"] == [-100, 0, 2, 4, 4, 1, 3, -100]


def test_only_entities_have_an_inside(tokenizer):
    """I- has no meaning for parts of speech: NN would become IN, a preposition."""
    task = replace(TASKS["tagging"], continuation_labels="inside")
    words = TaggedSentence(("cats", "on"), ("NN", "IN"))
    with pytest.raises(ValueError, match="'inside' and x has the tag 'IN'; expected tags of entities such as B-PER"):
        task.encode([words], Labels(("IN", "NN")), tokenizer, "x")
    last = TaggedSentence(("cats", "on"), ("U-A", "O"))  # an unsupported tagging scheme
    data = task.encode([last], Labels(("B-A", "I-A", "L-A", "O", "U-A")), tokenizer, "x")
    assert data[0]["labels"] == [-100, 4, 1, 3, -100]


def test_document_context_is_of_the_own_document(tokenizer):
    data = replace(TASKS["ner"], max_document_context=True).encode(SENTENCES, TAGS, tokenizer, "x")
    tokens = [tokenizer.convert_ids_to_tokens(row) for row in data.inputs["input_ids"]]
    assert tokens[0] == tokens[1] == "[CLS] cat ##s sat on mat ##s dog ##s ate [SEP]".split()
    assert tokens[2] == "[CLS] a tree [SEP]".split()
    assert data[0]["labels"] == [-100, 0, -100, 4, 4, 1, -100, -100, -100, -100, -100]
    assert data[1]["labels"] == [-100] * 7 + [0, -100, 2, -100]
    named = [replace(sentence, document=name) for sentence, name in zip(SENTENCES, "zza", strict=True)]
    again = replace(TASKS["ner"], max_document_context=True).encode(named, TAGS, tokenizer, "x")
    assert again.inputs["input_ids"] == data.inputs["input_ids"]


@pytest.mark.parametrize("context", [False, True])
@pytest.mark.parametrize("max_length", [3, 4, 6, 9, 64])
def test_every_word_is_tagged_once_at_every_length(tokenizer, max_length, context, tmp_path):
    task = replace(TASKS["ner"], max_length=max_length, max_document_context=context)
    data = task.encode(SENTENCES, TAGS, tokenizer, "x")
    assert max(map(len, data.inputs["input_ids"])) <= max_length
    longest = max(map(len, data.inputs["labels"]))
    padded = [row + [-100] * (longest - len(row)) for row in data.inputs["labels"]]
    predictions = task.predict(logits_of(TAGS, padded), data, TAGS)
    assert predictions == [sentence.tags for sentence in SENTENCES]
    assert task.measures(predictions, SENTENCES).scores()["f1"] == 1.0
    write_predictions(task, predictions, SENTENCES, tmp_path)
    assert read_predictions(task, tmp_path / "predictions.conll", SENTENCES) == predictions


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("cats\tO\n", r"predictions\.conll has 1 sentences; expected 3\."),
        ("cats\n\ndogs\n\na\n", r"predictions\.conll has only one column; expected words and tags\."),
        (
            "cats\tO\nsat\tO\n\nhorses\tO\nate\tO\n\na\tO\n",
            r"predictions\.conll has other words in sentence 1 than the data: 'cats sat' in place of 'cats sat on",
        ),
    ],
)
def test_read_predictions_of_other_sentences_is_an_error(tmp_path, lines, message):
    (tmp_path / "predictions.conll").write_text(lines)
    with pytest.raises(ValueError, match=message):
        read_predictions(TASKS["ner"], tmp_path / "predictions.conll", SENTENCES)


def test_encode_tags_in_sequences_without_space_for_a_word_is_an_error(tokenizer, user_error):
    with user_error("--max_length") as error:
        replace(TASKS["ner"], max_length=2).encode(SENTENCES, TAGS, tokenizer, "x")
    assert "expected at least 3" in str(error.value)


def test_windows_of_tags():
    assert tag_windows(10, 20, 10, 20, 12) == [TagWindow(10, 20, 10, 20)]
    assert tag_windows(10, 20, 0, 40, 14) == [TagWindow(8, 22, 10, 20)]
    assert tag_windows(0, 10, 0, 40, 14) == [TagWindow(0, 14, 0, 10)]
    assert tag_windows(30, 40, 0, 40, 14) == [TagWindow(26, 40, 30, 40)]
    assert tag_windows(0, 10, 0, 10, 4) == [
        *(TagWindow(0, 4, 0, 3), TagWindow(2, 6, 3, 5), TagWindow(4, 8, 5, 7), TagWindow(6, 10, 7, 10))
    ]
    # A long sentence with document context: half of the stride on each side, if there is so much.
    assert tag_windows(1, 9, 0, 20, 6, 4) == [
        *(TagWindow(0, 6, 1, 4), TagWindow(2, 8, 4, 6), TagWindow(4, 10, 6, 8), TagWindow(5, 11, 8, 9))
    ]


def test_a_word_without_pieces_is_tagged(tokenizer):
    sentences = [TaggedSentence(("cat", "\u200b", "sat"), ("B-A", "O", "O"))]
    data = TASKS["ner"].encode(sentences, TAGS, tokenizer, "x")
    assert data[0]["labels"] == [-100, 0, 4, 4, -100]


@pytest.mark.parametrize(
    ("task", "tags", "names"),
    [
        ("ner", ["B-A", "O", "B-A", "I-A"], ("B-A", "I-A", "O")),
        ("ner", ["B-A", "I-A", "B-P"], ("B-A", "B-P", "I-A", "I-P")),
        ("tagging", ["NOUN", "IN", "BES"], ("BES", "IN", "NOUN")),
    ],
)
def test_labels_of_entities_have_both_tags_of_a_type(task, tags, names):
    assert TASKS[task].labels([TaggedSentence(("a",) * len(tags), tuple(tags))], "x").names == names


def test_tags_that_are_not_of_entities():
    sentences = [TaggedSentence(("a", "cat"), ("DET", "NOUN")), TaggedSentence(("sat",), ("VERB",))]
    task = TASKS["tagging"]
    assert task.measures([("DET", "NOUN"), ("NOUN",)], sentences).scores() == {
        "accuracy": 2 / 3,
        "f1": pytest.approx(5 / 9),
    }
    predictions = [sentence.tags for sentence in SENTENCES]
    assert task.measures(predictions, SENTENCES).scores() == TASKS["ner"].measures(predictions, SENTENCES).scores()
    with pytest.raises(ValueError, match=r"x: tag 'DET' is not of the form .*\. For other tags use task='tagging'"):
        TASKS["ner"].labels(sentences, "x")


def test_the_classes_tell_whether_tags_are_of_entities_not_each_file():
    """P-X is no tag of an entity, but some files may be without it."""
    words = [TaggedSentence(("a", "b", "c"), ("B-X", "E-X", "S-X"))]
    predictions = [("B-X", "E-X", "S-X")]
    task = TASKS["tagging"]
    assert "precision" in task.measures(predictions, words).scores()
    task = task.with_classes(Labels(("B-X", "E-X", "P-X", "S-X")))
    assert task.measures(predictions, words).scores() == {"accuracy": 1.0, "f1": 1.0}
    assert task.measures(predictions, words).report().counted == "words"
    labels = Labels(("B-X", "I-X", "O"))
    assert "precision" in TASKS["tagging"].with_classes(labels).measures([("O", "O", "O")], words).scores()
    assert "precision" in TASKS["ner"].with_classes(None).measures(predictions, words).scores()


def test_a_text_is_no_context_of_another(tokenizer):
    """What is predicted for a text depends on no other, unless a column says that they are of one document."""
    task = replace(TASKS["ner"], max_document_context=True)
    rows = [{"tokens": "a cat sat"}, {"tokens": "dogs ate"}]
    alone = [
        task.encode(task.examples([row], labeled=False, new=True), TAGS, tokenizer, "x")[0]["input_ids"]
        for row in rows_of(*rows)
    ]
    data = task.encode(task.examples(rows_of(*rows), labeled=False, new=True), TAGS, tokenizer, "x")
    assert list(data.inputs["input_ids"]) == alone
    together = task.examples(rows_of(*[{"document": 3} | row for row in rows]), labeled=False, new=True)
    assert len(task.encode(together, TAGS, tokenizer, "x")[0]["input_ids"]) == len(alone[0]) + len(alone[1]) - 2


def test_tags_from_tables(tmp_path):
    rows = [{"tokens": ["a", "cat"], "tags": ["O", "B-A"]}, {"tokens": ["sat"], "tags": ["O"]}]
    expected = [TaggedSentence(("a", "cat"), ("O", "B-A")), TaggedSentence(("sat",), ("O",))]
    assert read_examples(TASKS["tagging"], write_json(tmp_path / "t.jsonl", rows)) == expected
    (tmp_path / "t.csv").write_text("tokens,tags\na cat,O B-A\nsat,O\n")
    assert read_examples(TASKS["tagging"], tmp_path / "t.csv") == expected
    assert examples_of("tagging", {"tokens": "[ laughs ] [1]", "tags": "X X X X"})[0].words == (
        "[",
        "laughs",
        "]",
        "[1]",
    )
    (tmp_path / "t.csv").write_text("tokens,tags\na cat,O\n")
    with pytest.raises(ValueError, match=r"t.csv, row 1: 2 words and 1 tags"):
        read_examples(TASKS["tagging"], tmp_path / "t.csv")


# Question answering

FISH = {"text": "fish", "answer_start": 36}
CONTEXT = QUESTION["context"]


def squad(tmp_path, answers, question="What?", **fields):
    qas = [{"id": str(n), "question": question, "answers": a, **fields} for n, a in enumerate(answers)]
    paragraphs = [{"context": CONTEXT, "qas": qas}]
    return write_json(tmp_path / "squad.json", {"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]})


def test_answers_that_are_not_where_they_should_be(tmp_path, caplog):
    answers = [[{"text": "the mat", "answer_start": n}] for n in (15, 2)] + [[{"text": "a horse", "answer_start": 0}]]
    with caplog.at_level(logging.WARNING):
        examples = read_examples(TASKS["squad"], squad(tmp_path, answers))
    assert [example.answers[0][0] for example in examples] == [15, 15, -1]
    assert "2 of 3 questions have an answer that is not at its answer_start; 1 were found elsewhere" in caplog.text
    assert "1 are not in it at all and are left out of training (such as '2')" in caplog.text
    assert [example.id for example in TASKS["squad"].trained_on(examples, "x")[1]] == ["0", "1"]
    with pytest.raises(ValueError, match="x has no question with an answer that occurs in its text"):
        TASKS["squad"].trained_on(examples[2:], "x")


def test_answer_that_is_not_at_its_place_is_the_nearest_occurrence(tmp_path):
    places = [0, 3, 20, 27, 50]  # of "the" in CONTEXT, or next to one
    answers = [[{"text": "The", "answer_start": start}] for start in places]
    examples = read_examples(TASKS["squad"], squad(tmp_path, answers))
    assert [example.answers[0][0] for example in examples] == [0, 0, 24, 24, 24]


def test_questions_are_learned_and_measured_without_padding(tmp_path, pretrained, monkeypatch):
    given, forward = [], MyBertForQuestionAnswering.forward

    @functools.wraps(forward)  # Trainer reads the signature
    def record(self, *args, **kwargs):
        given.append(kwargs.get("unpad_inputs"))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(MyBertForQuestionAnswering, "forward", record)
    data = str(squad(tmp_path, [[FISH], [{"text": "The cat", "answer_start": 0}]]))
    settings = {"task": "squad", "model": str(pretrained), "output_dir": str(tmp_path / "out"), "num_train_epochs": 1}
    metrics = finetune(
        FinetuningArguments(**settings, train_file=data, validation_file=data, disable_tqdm=True, use_cpu=True)
    )
    assert given[:2] == [True, True]  # training, evaluation
    given.clear()
    settings = {"task": "squad", "model": str(tmp_path / "out"), "output": str(tmp_path / "metrics.json")}
    found = evaluate_model(EvaluateArguments(**settings, data=[data], use_cpu=True))
    assert given == [True] and found == {name: metrics[name] for name in found}


@pytest.mark.parametrize("name", ["ner", "squad"])
def test_a_tokens_number_is_its_place_in_the_batch(tmp_path, tokenizer, name):
    """Whichever side the tokenizer pads on: labels and predictions use these indices."""
    at_left = copy.deepcopy(tokenizer)
    at_left.padding_side = "left"
    task = replace(TASKS[name], max_length=14)
    data = {
        "ner": lambda: task.encode(SENTENCES, TAGS, at_left, "x"),
        "squad": lambda: task.encode(read_examples(task, squad(tmp_path, [[FISH]])), None, at_left, "x"),
    }[name]()
    rows = [data[number] for number in range(len(data))]
    assert len({len(row["input_ids"]) for row in rows}) > 1
    batch = task.collator(at_left)(rows)
    for number, row in enumerate(rows):
        length = len(row["input_ids"])
        for values in (batch["input_ids"], *([batch["labels"]] if name == "ner" else [])):
            wanted = row["labels" if values is not batch["input_ids"] else "input_ids"]
            assert values[number, :length].tolist() == list(wanted)
    assert at_left.padding_side == "left"


@pytest.mark.parametrize("name", ["squad", "squad_v2"])
def test_windows_teach_and_give_back_the_answer(tmp_path, tokenizer, name):
    answers = [[FISH]] + ([[]] if name == "squad_v2" else [])
    task = replace(TASKS[name], max_length=14, doc_stride=3)
    examples = read_examples(task, squad(tmp_path, answers))
    data = task.encode(examples, None, tokenizer, "x")
    assert len(data) > len(examples)
    starts, ends = np.array(data.inputs["start_positions"]), np.array(data.inputs["end_positions"])
    assert (starts > 0).any()
    assert (starts == 0).any()  # a window without the answer points at [CLS]
    length = max(map(len, data.inputs["input_ids"]))
    # The null token gets a low score if there is an answer.
    outputs = tuple(np.eye(length)[places] * np.where(places > 0, 9.0, 1.0)[:, None] for places in (starts, ends))
    predictions = task.predict(outputs, data, None)
    assert predictions[0].text == "fish"
    scores = task.measures(predictions, examples).scores()
    if name == "squad":
        assert scores == {"exact_match": 100.0, "f1": 100.0}
        assert predictions[0].null_odds is None
    else:
        assert predictions[0].null_odds < 0 < predictions[1].null_odds
        assert scores["exact"] == scores["best_f1"] == 100.0
    write_predictions(task, predictions, examples, tmp_path)
    texts = json.loads((tmp_path / "predictions.json").read_text())
    assert texts == {"0": "fish"} | ({"1": ""} if name == "squad_v2" else {})
    assert json.loads((tmp_path / "nbest_predictions.json").read_text())["0"][0]["text"] == "fish"
    assert task.measures(read_predictions(task, tmp_path / "predictions.json", examples), examples).scores() == scores


def test_answers_by_googles_rule(tmp_path, tokenizer):
    """An answer at the border of a window counts only in a window where it is in the middle."""
    task = replace(TASKS["squad"], max_length=14, doc_stride=6, n_best_size=1)
    examples = read_examples(task, squad(tmp_path, [[FISH]]))
    data = task.encode(examples, None, tokenizer, "x")
    windows = data.layout[0].windows
    outputs = [np.zeros((len(data), 14)), np.zeros((len(data), 14))]
    first = windows[0].context_start + windows[0].context_length - 1  # the last word of the first window
    outputs[0][0, first] = outputs[1][0, first] = 9.0
    place = windows[0].first_token + windows[0].context_length - 1
    word = CONTEXT[slice(*data.layout[0].token_spans[place])]
    assert task.predict(outputs, data, None)[0].text == word
    assert replace(task, max_context=True).predict(outputs, data, None)[0].text != word


@pytest.mark.parametrize(
    "answers",
    [
        {"answers": {"text": ["fish"], "answer_start": [36]}},
        {"answers": [FISH]},
        {"answers": "fish", "answer_start": "36"},
        {"answers": "fish"},
        {"answers": ["fish"]},
        {"answers": {"text": "fish", "answer_start": 36}},
        {"answers": {"text": "fish"}},
        {"answers": {"text": ["fish"], "answer_start": None}},
    ],
)
def test_examples_of_answers_in_every_form(answers):
    examples = examples_of("question_answering", *(QUESTION | answers | {"id": name} for name in ("a", None, "", 7)))
    assert {example.answers for example in examples} == {((36, "fish"),)}
    assert not any(example.moved for example in examples)
    assert [example.id for example in examples] == ["a", "2", "3", "7"]  # without one its row
    for value, count in ((False, 1), ("FALSE", 1), ("0", 1), ("", 1), (None, 1), (True, 0), ("TRUE", 0), ("1", 0)):
        (example,) = examples_of("squad_v2", QUESTION | answers | {"is_impossible": value})
        assert len(example.answers) == count


def test_the_threshold_of_the_best_f1_is_used_unless_one_is_set():
    task = TASKS["squad_v2"]
    examples = [QuestionExample(name, "q", "a cat", ((0, "a"),) if name == "0" else ()) for name in "01"]
    predictions = [AnswerPrediction("a", 1.5), AnswerPrediction("a", 2.5)]
    assert calibrated(task, predictions, examples).null_score_threshold == 2  # in the middle, far from rounding
    task = replace(task, null_score_threshold=0.5)
    assert calibrated(task, predictions, examples).null_score_threshold == 0.5
    assert calibrated(TASKS["squad"], predictions, examples) is TASKS["squad"]
    # If it is best to answer nothing, the official script returns 0, which keeps answers if all odds are below it.
    examples = [QuestionExample(str(number), "?", "a b", ()) for number in range(3)]
    predictions = [AnswerPrediction("b", odds) for odds in (-3.0, -1.0, -2.0)]
    scores = TASKS["squad_v2"].measures(predictions, examples).scores()
    assert (scores["f1"], scores["best_f1"], scores["best_f1_thresh"]) == (0.0, 100.0, 0.0)
    fitted = calibrated(TASKS["squad_v2"], predictions, examples)
    assert fitted.measures(predictions, examples).scores()["f1"] == 100.0


def test_a_threshold_that_no_fold_has_fitted_has_no_mean():
    task, fits = TASKS["squad_v2"], [replace(TASKS["squad_v2"], null_score_threshold=value) for value in (1.0, 2.0)]
    assert with_mean_fit(task, fits).null_score_threshold == 1.5
    assert with_mean_fit(task, [*fits, task]) == task


def test_the_thresholds_of_labels_are_fitted_to_their_predictions():
    task = TASKS["multilabel"]
    wanted = [{"a"}, {"a"}, set(), {"b"}]
    scores = [{"a": 0.3, "b": 0.1}, {"a": 0.25, "b": 0.6}, {"a": 0.05, "b": 0.2}, {"a": 0.15, "b": 0.9}]
    examples = [TextExample(("x",), frozenset(names)) for names in wanted]
    task = calibrated(task, [LabelPrediction(frozenset(), {**row, "never": 0.4}) for row in scores], examples)
    # The best F1 is above 0.2 for a, 0.75 for b and 0.225 for all labels, which counts as 10 examples.
    assert task.thresholds == pytest.approx({"a": 2.65 / 12, "b": 3.0 / 11, "never": 0.225})
    task = replace(task, thresholds={"a": 0.2, "b": 0.75})
    logits = np.array([[np.log(row[name] / (1 - row[name])) for name in "ab"] for row in scores])
    data = TaskData(examples, {}, "x")
    found = [prediction.label for prediction in task.predict(logits, data, Labels(("a", "b")))]
    assert found == [frozenset(names) for names in wanted]


def test_labels_as_pipelines_call_classes_without_names():
    """Predictions of a pipeline are often the training labels of another model."""
    rows = rows_of(*[{"text": "a", "label": f"LABEL_{number}"} for number in (0, 1)])
    assert [example.label for example in TASKS["classification"].examples(rows, True)] == ["0", "1"]
    config = BertConfig(id2label={0: "LABEL_0", 1: "LABEL_spam"})
    assert Labels.from_config(config).names == ("0", "LABEL_spam")
    config.id2label = {0: 3, 1: 5}  # as in some folders on the Hub
    assert Labels.from_config(config).names == ("3", "5")


def test_predictions_count_as_they_stand(tmp_path):
    """As in the official script without odds; the odds are only used to find the best threshold."""
    examples = read_examples(TASKS["squad_v2"], squad(tmp_path, [[FISH], []]))
    path = write_json(tmp_path / "predictions.json", {"0": "fish", "1": "", "more": "cat"})
    write_json(tmp_path / "null_odds.json", {"0": 2.5, "1": 3})
    task = TASKS["squad_v2"]
    scores = task.measures(read_predictions(task, path, examples), examples).scores()
    assert (scores["exact"], scores["f1"], scores["best_exact"]) == (100.0, 100.0, 100.0)
    task = replace(task, null_score_threshold=1.0)  # the official script's --na-prob-thresh
    assert task.measures(read_predictions(task, path, examples), examples).scores()["exact"] == 50.0
    # A missing prediction is wrong in SQuAD 1.1.
    task = TASKS["squad"]
    examples = read_examples(task, squad(tmp_path, [[FISH], [{"text": "The", "answer_start": 0}]]))
    write_json(path, {"0": "fish"})
    assert task.measures(read_predictions(task, path, examples), examples).scores() == {
        "exact_match": 50.0,
        "f1": 50.0,
    }


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_read_predictions_with_an_empty_one_is_an_error(tmp_path, task):
    examples = examples_of(task, *[{"text": "a", "label": "1", "score": "1"}] * 2)
    path = tmp_path / "predictions.tsv"
    path.write_text("index\tprediction\n0\t1\n1\t\n")
    with pytest.raises(ValueError, match=r"predictions\.tsv, row 2: an empty prediction; expected one for each"):
        read_predictions(TASKS[task], path, examples)


@pytest.mark.parametrize(
    ("task", "name", "lines", "message"),
    [
        (
            "classification",
            "p.tsv",
            "text\tprediction\nb\tno\na\tyes\n",
            r"p\.tsv, row 1: 'b' as text; expected the da",
        ),
        (
            "classification",
            "p.tsv",
            "prediction\nYes\nNo\n",
            r"p\.tsv has the labels No, Yes, and the data no, yes; exp",
        ),
        ("multilabel", "p.tsv", "prediction\nYes\nno\n", r"p\.tsv has the labels Yes, and the data no, yes; expec"),
        ("ner", "p.conll", "a\tb-per\n\nb\to\n", r"p\.conll has the labels b-per, o, and the data B-PER, O; ex"),
    ],
)
def test_read_predictions_in_other_order_or_letters_is_an_error(tmp_path, task, name, lines, message):
    labels = ({"label": label, "labels": [label]} for label in ("yes", "no"))
    rows = [{"text": text, "tokens": [text]} | label for text, label in zip("ab", labels, strict=True)]
    examples = examples_of(task, *(row | {"tags": [tag]} for row, tag in zip(rows, ("B-PER", "O"), strict=True)))
    (tmp_path / name).write_text(lines)
    with pytest.raises(ValueError, match=message):
        read_predictions(TASKS[task], tmp_path / name, examples)


def test_read_predictions_with_the_texts_in_their_order_reads_them(tmp_path):
    examples = examples_of("classification", {"text": "a\tb", "label": "x"}, {"text": "text", "label": "y"})
    for lines in (
        "text,prediction\na b,x\ntext,y\n",
        "index,text,prediction\n1,text,y\n0,a b,x\n",
        "text,prediction\n0.5,x\n1,y\n",
    ):
        (tmp_path / "p.csv").write_text(lines)
        predictions = read_predictions(TASKS["classification"], tmp_path / "p.csv", examples)
        assert [prediction.label for prediction in predictions] == ["x", "y"]


@pytest.mark.parametrize(
    ("texts", "odds", "message"),
    [
        ({"0": None}, None, r"predictions.json holds None for '0'; expected a text"),
        ({"0": [{"text": "fish"}]}, None, r"predictions.json holds .* for '0'; expected a text"),
        ({"1": "fish"}, None, r"predictions.json lacks 1 of 1 questions, such as '0'"),
        (["fish"], None, r"predictions.json holds a JSON list; expected an object"),
        ({"0": "fish"}, {"0": "1.5"}, r"null_odds.json holds '1.5' for '0'; expected a number"),
        ({"0": "fish"}, {"1": 1.5}, r"null_odds.json lacks 1 of 1 questions, such as '0'"),
    ],
)
def test_broken_predictions(tmp_path, texts, odds, message):
    examples = read_examples(TASKS["squad_v2"], squad(tmp_path, [[]]))
    path = write_json(tmp_path / "predictions.json", texts)
    if odds:
        write_json(tmp_path / "null_odds.json", odds)
    with pytest.raises(ValueError, match=message):
        read_predictions(TASKS["squad_v2"], path, examples)
