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
from mybert.finetuning import TASKS, EvaluateArguments, FinetuningArguments, evaluate_model, finetune
from mybert.finetuning.data.labels import Labels
from mybert.finetuning.data.rows import DataRow
from mybert.finetuning.tasks.classification import LabelPrediction, TextExample
from mybert.finetuning.tasks.multiple_choice import ChoicePrediction
from mybert.finetuning.tasks.question_answering import AnswerPrediction, QuestionExample
from mybert.finetuning.tasks.tagging import TaggedSentence, TagWindow, WordPieces, tag_windows
from mybert.finetuning.tasks.task import TaskData


def write_json(path, content):
    path.write_text("\n".join(map(json.dumps, content)) if path.suffix == ".jsonl" else json.dumps(content))
    return path


def logits_of(labels, ids):
    """Logits whose maximum is the given class; -100 becomes class 0."""
    ids = np.where(np.array(ids) < 0, 0, ids)
    return np.eye(len(labels.names))[ids] * 5.0


# Classification


def test_the_most_frequent_answer_is_scored_as_any_other():
    labels = ["1"] * 5 + ["0"] * 3
    examples = [TextExample(("the cat",), label) for label in labels]
    assert TASKS["sst2"].majority_scores(examples) == {"accuracy": 5 / 8}
    paraphrases = TASKS["mrpc"].majority_scores(examples)
    assert paraphrases["f1"] == pytest.approx(2 * 5 / (5 + 8))  # precision 5/8, recall 1
    assert TASKS["cola"].majority_scores(examples)["matthews_correlation"] == 0
    tie = [TextExample(("the cat",), label) for label in "ba"]
    assert TASKS["classification"].majority_scores(tie)["accuracy"] == 0.5
    assert TASKS["stsb"].majority_scores([TextExample(("a", "b"), 1.0)]) == {}
    assert TASKS["ner"].majority_scores([]) == {}


def test_of_a_pair_the_longer_sentence_is_cut(tokenizer):
    task = replace(TASKS["rte"], max_length=12)
    (example,) = task.examples(
        _rows([{"sentence1": "the cat " * 9, "sentence2": "a dog", "label": "entailment"}]), True
    )
    data = task.encode([example], Labels(task.classes), tokenizer, "x")
    first, second = tokenizer.decode(data[0]["input_ids"]).removeprefix("[CLS]").strip("[SEP] ").split("[SEP]")
    assert second.split() == ["a", "dog"]
    assert len(first.split()) == 7
    assert data[0]["token_type_ids"].count(1) == 3


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
    examples = task.examples(_rows([{"text": "a cat", "label": label} for label in train]), True)
    labels = task.labels(examples, "train")
    examples = task.examples(_rows([{"text": "a cat", "label": label} for label in dev]), True)
    data = task.encode(examples, labels, tokenizer, "dev")
    assert list(data.inputs["labels"]) == ids
    predictions = task.predict(logits_of(labels, ids), data, labels)
    assert task.score(predictions, data.examples)["accuracy"] == 1.0


def test_qqp_leaves_out_the_broken_rows_of_its_file(tmp_path, caplog):
    lines = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\ta cat ?\ta dog ?\t0", "2\t4\t5\ta"]
    (tmp_path / "train.tsv").write_text("\n".join(lines))
    with caplog.at_level(logging.WARNING):
        (example,) = TASKS["qqp"].read(tmp_path / "train.tsv")
    assert example.texts == ("a cat ?", "a dog ?")
    assert "1 broken rows" in caplog.text


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
    examples = task.examples(_rows(rows), True)
    labels = task.labels(examples, "train")
    assert labels.names == ("animal", "small")
    data = task.encode(examples, labels, tokenizer, "train")
    assert data.inputs["labels"] == [[1.0, 1.0], [0.0, 0.0]]
    predictions = task.predict(np.array([[3.0, -3.0], [-3.0, -3.0]]), data, labels)
    assert [item.label for item in predictions] == [{"animal"}, set()]
    scores = task.score(predictions, examples)
    assert scores == {"accuracy": 0.5, "micro_f1": pytest.approx(2 / 3), "macro_f1": 0.5}
    task.write_predictions(predictions, examples, tmp_path)
    assert (tmp_path / "predictions.tsv").read_text().splitlines()[0] == "index\tprediction\tanimal\tsmall"
    again = task.read_predictions(tmp_path / "predictions.tsv", examples)
    assert [item.label for item in again] == [item.label for item in predictions]


def test_names_of_labels_with_commas_and_breaks(tmp_path):
    task = TASKS["multilabel"]
    rows = [{"text": "a", "labels": ["b, c", "d\te"]}, {"text": "a", "labels": ["f"]}, {"text": "a", "labels": []}]
    examples = task.examples(_rows(rows), True)
    assert task.classes_of(examples[0]) == ("b, c", "d e")
    names = ["b, c", "d e", "f"]
    predictions = [LabelPrediction(example.label, dict.fromkeys(names, 0.5)) for example in examples]
    task.write_predictions(predictions, examples, tmp_path)
    read = task.read_predictions(tmp_path / "predictions.tsv", examples)
    assert [item.label for item in read] == [example.label for example in examples]


def test_the_index_says_whose_a_prediction_is(tmp_path):
    examples = TASKS["sst2"].examples(_rows([{"sentence": "a", "label": label} for label in (1, 0, 0)]), True)
    file = tmp_path / "p.tsv"
    file.write_text("index\tprediction\n2\t0\n0\t1\n1\t0\n")
    assert [item.label for item in TASKS["sst2"].read_predictions(file, examples)] == ["1", "0", "0"]
    for index, message in (("1\n2\n3", "row 3: '3' as index; expected 0 to 2"), ("0\n1\n1", "'1' as index a second")):
        file.write_text("".join(f"{line}\t0\n" for line in ["index", *index.split()]).replace("x\t0", "x\tprediction"))
        with pytest.raises(ValueError, match=message):
            TASKS["sst2"].read_predictions(file, examples)
    choices = [{"text": "a", "choices": ["b", "c"], "label": label} for label in (1, 0)]
    examples = TASKS["multiple_choice"].examples(_rows(choices), True)
    (tmp_path / "p.csv").write_text("index,prediction\n1,0\n0,1\n")
    read = TASKS["multiple_choice"].read_predictions(tmp_path / "p.csv", examples)
    assert TASKS["multiple_choice"].score(read, examples) == {"accuracy": 1.0}
    masked = [{"text": "[MASK] [MASK]", "label": label} for label in ("b c", "d e")]
    examples = TASKS["fill_mask"].examples(_rows(masked), True)
    (tmp_path / "m.tsv").write_text("index\tprediction\n1\td e\n0\tb c\n")
    read = TASKS["fill_mask"].read_predictions(tmp_path / "m.tsv", examples)
    assert TASKS["fill_mask"].score(read, examples) == {"accuracy": 1.0}


def test_several_labels_where_none_holds():
    task = TASKS["multilabel"]
    examples = task.examples(_rows([{"text": "a", "labels": []}, {"text": "b", "labels": None}]), True)
    assert task.score(list(map(task.right_prediction, examples)), examples) == {
        "accuracy": 1.0,
        "micro_f1": 0.0,
        "macro_f1": 0.0,
    }


def test_words_and_tags_with_breaks_are_written_and_read(tmp_path):
    task = TASKS["tagging"]
    examples = task.examples(_rows([{"tokens": ["a\tb", "c\nd", "e"], "tags": ["X", "Y\tZ", "X"]}]), True)
    assert (examples[0].words, examples[0].tags) == (("a b", "c d", "e"), ("X", "Y Z", "X"))
    task.write_predictions([examples[0].tags], examples, tmp_path)
    assert task.read_predictions(tmp_path / "predictions.conll", examples) == [examples[0].tags]


def test_words_that_columns_do_not_hold_are_written_and_read(tmp_path):
    task = TASKS["tagging"]
    sentences = (["a", "", "\n", "b"], ["-DOCSTART-"], ["_", " "])
    examples = task.examples(_rows([{"tokens": words, "tags": ["X"] * len(words)} for words in sentences]), True)
    predictions = [example.tags for example in examples]
    task.write_predictions(predictions, examples, tmp_path)
    lines = (tmp_path / "predictions.conll").read_text().splitlines()
    assert [line.partition("\t")[0] for line in lines] == ["a", "_", "_", "b", "", "_", "", "_", "_"]
    assert task.read_predictions(tmp_path / "predictions.conll", examples) == predictions
    with pytest.raises(ValueError, match="row 1: an empty tag; expected one tag per word"):
        task.examples(_rows([{"tokens": ["a", "b"], "tags": ["X", " "]}]), True)


@pytest.mark.parametrize("label", [["a"], {"a": 1}])
def test_a_list_is_no_label(label):
    with pytest.raises(ValueError, match=r"row 1: .* as label; expected one label \(several: --task multilabel"):
        TASKS["classification"].examples(_rows([{"text": "a", "label": label}]), True)


@pytest.mark.parametrize("nan", [float("nan"), np.float32("nan")])
def test_nan_is_no_label_and_no_text(nan):
    task = TASKS["classification"]
    with pytest.raises(ValueError, match="has no label in row 1"):
        task.examples(_rows([{"text": "a", "label": nan}]), True)
    with pytest.raises(ValueError, match="row 1: an empty text"):
        task.examples(_rows([{"text": nan, "label": 1}]), True)
    assert task.is_empty(_rows([{"text": "a", "label": nan}])[0])


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_a_second_text_may_be_missing(missing):
    """Like an empty cell of a CSV file, a null in other tables."""
    task = replace(TASKS["classification"], text_pair_column="text_pair")
    rows = _rows([{"text": "a", "text_pair": missing, "label": "x"}])
    assert not task.is_empty(rows[0])
    assert task.examples(rows, True)[0].texts == ("a", "")


@pytest.mark.parametrize("missing", [None, "", float("nan")])
def test_an_indicator_that_is_missing_is_no_label(missing):
    task = replace(TASKS["multilabel"], label_columns=("x", "y"))
    row = _rows([{"text": "a", "x": 1, "y": missing}])[0]
    assert task.is_empty(row) and not task.has_label(row)
    with pytest.raises(ValueError, match="row 1: an empty value as y; expected 0 or 1"):
        task.examples([row], True)


def test_messages_do_not_repeat_pages(tokenizer):
    """A column of texts may be given as the label column by mistake."""
    texts = [f"{number} {'cat ' * 1000}" for number in range(30)]
    with pytest.raises(ValueError, match=r"has the label '30 cat .*\.\.\.'; expected one of '0 cat") as caught:
        Labels.from_data(texts, "x").ids([f"30 {'cat ' * 1000}"], "dev")
    assert len(str(caught.value)) < 1500
    for task, row in (("regression", {"score": texts[0]}), ("multiple_choice", {"choices": ["a", "b"]})):
        with pytest.raises(ValueError, match="row 1: '0 cat cat") as caught:
            TASKS[task].examples(_rows([{"text": "a", "label": texts[0], **row}]), True)
        assert len(str(caught.value)) < 200


def test_true_and_false_are_one_and_zero():
    labels = Labels(("0", "1"))
    assert labels.ids(["True", "False", "true"], "dev") == [1, 0, 1]
    assert Labels(("False", "True")).ids(["1", "0"], "dev") == [1, 0]
    with pytest.raises(ValueError, match="dev has the label 'True'; expected one of '0', '1', '2'"):
        Labels(("0", "1", "2")).ids(["True"], "dev")


def test_several_labels_by_number(tokenizer):
    task = TASKS["multilabel"]
    labels = Labels(("animal", "small"))
    examples = task.examples(_rows([{"text": "a cat", "labels": [1, 0]}, {"text": "a tree", "labels": ["1"]}]), True)
    data = task.encode(examples, labels, tokenizer, "dev")
    assert data.inputs["labels"] == [[1.0, 1.0], [0.0, 1.0]]
    assert [example.label for example in data.examples] == [{"animal", "small"}, {"small"}]


@pytest.mark.parametrize("text", [["a", "cat"], {"words": "a cat"}])
def test_a_text_is_no_list(text):
    with pytest.raises(ValueError, match=r"x.csv, row 1: .* as text; expected a text"):
        TASKS["classification"].examples(_rows([{"text": text, "label": "x"}]), True)


def test_glue_scores_are_of_the_positive_class():
    task = TASKS["mrpc"]
    examples = task.examples(_rows([{"#1 String": "a", "#2 String": "b", "Quality": q} for q in "1100"]), True)
    scores = task.score([LabelPrediction(label) for label in "1000"], examples)
    assert scores == {"accuracy": 0.75, "f1": pytest.approx(2 / 3)}


def test_a_class_may_be_called_as_a_column_of_predictions_is(tmp_path):
    names = ["index", "prediction", "predicted_index", "x"]
    examples = [TextExample(("a cat",), name) for name in names]
    table = dict.fromkeys(names, 0.25)
    predictions = [LabelPrediction(name, table) for name in names]
    task = TASKS["classification"]
    task.write_predictions(predictions, examples, tmp_path)
    columns = (tmp_path / "predictions.tsv").read_text().splitlines()[0].split("\t")
    expected = ["index", "prediction", "predicted_predicted_index", "predicted_prediction", "predicted_index", "x"]
    assert columns == expected
    read = task.read_predictions(tmp_path / "predictions.tsv", examples)
    assert [prediction.label for prediction in read] == names


def test_what_stands_between_labels_is_told_by_all_classes_not_those_of_the_data(tmp_path):
    examples = [TextExample(("a cat",), frozenset({"animal", "small"}))]
    table = {"animal": 0.9, "small": 0.8, "red, green": 0.1}
    predictions = [LabelPrediction(frozenset({"animal", "small"}), table)]
    task = TASKS["multilabel"]
    task.write_predictions(predictions, examples, tmp_path)
    (read,) = task.read_predictions(tmp_path / "predictions.tsv", examples)
    assert read.label == {"animal", "small"}


# Multiple choice


def test_swag_reads_sent2_before_every_ending(tokenizer):
    row = {"sent1": "the cat sat.", "sent2": "it", "label": "2"} | {f"ending{n}": f"ate {n}" for n in range(4)}
    task = TASKS["swag"]
    (example,) = task.examples(_rows([row]), True)
    assert example.text == "the cat sat."
    assert example.choices == ("it ate 0", "it ate 1", "it ate 2", "it ate 3")
    assert example.label == 2
    data = task.encode([example] * 3, None, tokenizer, "x")
    batch = task.collator(tokenizer)([data[0], data[1]])
    assert batch["input_ids"].shape[:2] == (2, 4)
    assert batch["labels"].tolist() == [2, 2]
    assert task.collator(tokenizer)([data[0]])["input_ids"].shape[:2] == (1, 4)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"label": "4"}, "row 1: '4' as label; expected a number from 0 to 1"),
        ({"choices": ["a"]}, "row 1: 1 choices; expected at least two"),
        ({"choices": "a"}, "row 1: 'a' as choices; expected a list of texts"),
        ({"choices": ["a", None]}, "as choices; expected a list of texts"),
        ({"text": " "}, "row 1: an empty text"),
    ],
)
def test_broken_choices(row, message):
    rows = [{"text": "a cat", "choices": ["a", "b"], "label": 0} | row]
    with pytest.raises(ValueError, match=message):
        TASKS["multiple_choice"].examples(_rows(rows), True)


def test_choices_written_and_read(tmp_path):
    examples = TASKS["multiple_choice"].examples(
        _rows([{"text": "a", "choices": ["b", "c"], "label": label} for label in (0, 1)]), True
    )
    predictions = [ChoicePrediction(1, (0.25, 0.75)), ChoicePrediction(1, (0.4, 0.6))]
    TASKS["multiple_choice"].write_predictions(predictions, examples, tmp_path)
    assert (tmp_path / "predictions.csv").read_text().splitlines()[1] == "0,1,0.250000,0.750000"
    read = TASKS["multiple_choice"].read_predictions(tmp_path / "predictions.csv", examples)
    assert TASKS["multiple_choice"].score(read, examples) == {"accuracy": 0.5}


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


def test_only_the_first_piece_of_a_word_is_learnt(tokenizer):
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
    assert task.score(predictions, SENTENCES)["f1"] == 1.0
    task.write_predictions(predictions, SENTENCES, tmp_path)
    assert task.read_predictions(tmp_path / "predictions.conll", SENTENCES) == predictions


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


def test_tags_of_a_type_come_together():
    assert TASKS["ner"].labels([TaggedSentence(("a", "b"), ("B-A", "O")), SENTENCES[1]], "x").names == (
        "B-A",
        "I-A",
        "O",
    )
    sentences = [TaggedSentence(("a", "b", "c"), ("B-A", "I-A", "B-P"))]
    assert TASKS["ner"].labels(sentences, "x").names == ("B-A", "B-P", "I-A", "I-P")
    pos = [TaggedSentence(("a", "b", "c"), ("NOUN", "IN", "BES"))]
    assert TASKS["tagging"].labels(pos, "x").names == ("BES", "IN", "NOUN")


def test_tags_that_are_not_of_entities(tokenizer):
    sentences = [TaggedSentence(("a", "cat"), ("DET", "NOUN")), TaggedSentence(("sat",), ("VERB",))]
    task = TASKS["tagging"]
    assert task.score([("DET", "NOUN"), ("NOUN",)], sentences) == {"accuracy": 2 / 3, "f1": pytest.approx(5 / 9)}
    predictions = [sentence.tags for sentence in SENTENCES]
    assert task.score(predictions, SENTENCES) == TASKS["ner"].score(predictions, SENTENCES)
    with pytest.raises(ValueError, match=r"x: tag 'DET' is not of the form .*; for other tags use --task tagging"):
        TASKS["ner"].labels(sentences, "x")


def test_the_classes_tell_whether_tags_are_of_entities_not_each_file():
    """In the scheme B, M, E, S for Chinese words, M is unsupported, but some files may have no M."""
    words = [TaggedSentence(("a", "b", "c"), ("B-X", "E-X", "S-X"))]
    predictions = [("B-X", "E-X", "S-X")]
    task = TASKS["tagging"]
    assert "precision" in task.score(predictions, words)
    task = task.with_classes(Labels(("B-X", "E-X", "M-X", "S-X")))
    assert task.score(predictions, words) == {"accuracy": 1.0, "f1": 1.0}
    assert task.report_by_class(predictions, words).counted == "words"
    labels = Labels(("B-X", "I-X", "O"))
    assert "precision" in TASKS["tagging"].with_classes(labels).score([("O", "O", "O")], words)
    assert "precision" in TASKS["ner"].with_classes(None).score(predictions, words)


def test_a_text_is_no_context_of_another(tokenizer):
    """What is predicted for a text depends on no other, unless a column says that they are of one document."""
    task = replace(TASKS["ner"], max_document_context=True)
    rows = [{"tokens": "a cat sat"}, {"tokens": "dogs ate"}]
    alone = [task.encode(task.new_examples([row]), TAGS, tokenizer, "x")[0]["input_ids"] for row in _rows(rows)]
    data = task.encode(task.new_examples(_rows(rows)), TAGS, tokenizer, "x")
    assert list(data.inputs["input_ids"]) == alone
    together = task.new_examples(_rows([{"document": 3} | row for row in rows]))
    assert len(task.encode(together, TAGS, tokenizer, "x")[0]["input_ids"]) == len(alone[0]) + len(alone[1]) - 2


def test_documents_may_have_any_name(tokenizer):
    named = [replace(sentence, document=name) for sentence, name in zip(SENTENCES, "zza", strict=True)]
    task = replace(TASKS["ner"], max_document_context=True)
    found, expected = (task.encode(rows, TAGS, tokenizer, "x").inputs["input_ids"] for rows in (named, SENTENCES))
    assert found == expected


def test_tags_from_tables(tmp_path):
    rows = [{"tokens": ["a", "cat"], "tags": ["O", "B-A"]}, {"tokens": ["sat"], "tags": ["O"]}]
    expected = [TaggedSentence(("a", "cat"), ("O", "B-A")), TaggedSentence(("sat",), ("O",))]
    assert TASKS["tagging"].read(write_json(tmp_path / "t.jsonl", rows)) == expected
    (tmp_path / "t.csv").write_text("tokens,tags\na cat,O B-A\nsat,O\n")
    assert TASKS["tagging"].read(tmp_path / "t.csv") == expected
    (tmp_path / "t.csv").write_text("tokens,tags\na cat,O\n")
    with pytest.raises(ValueError, match=r"t.csv, row 1: 2 words and 1 tags"):
        TASKS["tagging"].read(tmp_path / "t.csv")


# Question answering

FISH = {"text": "fish", "answer_start": 36}
CONTEXT = "The cat sat on the mat. The dog ate fish under the tree."


def squad(tmp_path, answers, question="What?", **fields):
    qas = [{"id": str(n), "question": question, "answers": a, **fields} for n, a in enumerate(answers)]
    paragraphs = [{"context": CONTEXT, "qas": qas}]
    return write_json(tmp_path / "squad.json", {"version": "x", "data": [{"title": "t", "paragraphs": paragraphs}]})


def test_answers_that_are_not_where_they_should_be(tmp_path, tokenizer, caplog):
    answers = [[{"text": "the mat", "answer_start": n}] for n in (15, 2)] + [[{"text": "a horse", "answer_start": 0}]]
    with caplog.at_level(logging.WARNING):
        examples = TASKS["squad"].read(squad(tmp_path, answers))
    assert [example.answers[0][0] for example in examples] == [15, 15, -1]
    assert "2 of 3 questions have an answer that is not at its answer_start; 1 were found elsewhere" in caplog.text
    assert "1 are not in it at all and are left out of training (such as '2')" in caplog.text
    assert [example.id for example in TASKS["squad"].training_examples(examples, "x")] == ["0", "1"]
    with pytest.raises(ValueError, match="x has no question with an answer that occurs in its text"):
        TASKS["squad"].training_examples(examples[2:], "x")


def test_questions_are_learnt_and_measured_without_padding(tmp_path, pretrained, monkeypatch):
    given, forward = [], MyBertForQuestionAnswering.forward

    @functools.wraps(forward)  # Trainer reads the signature
    def record(self, *args, **kwargs):
        given.append(kwargs.get("unpad_inputs"))
        return forward(self, *args, **kwargs)

    monkeypatch.setattr(MyBertForQuestionAnswering, "forward", record)
    data = str(squad(tmp_path, [[{"text": "fish", "answer_start": 36}], [{"text": "The cat", "answer_start": 0}]]))
    settings = {"task": "squad", "model": str(pretrained), "output_dir": str(tmp_path / "out"), "num_train_epochs": 1}
    metrics = finetune(
        FinetuningArguments(**settings, train_file=data, validation_file=data, disable_tqdm=True, use_cpu=True)
    )
    assert metrics["exact_match"] >= 0 and given[:2] == [True, True]  # training, evaluation
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
        "squad": lambda: task.encode(task.read(squad(tmp_path, [[FISH]])), None, at_left, "x"),
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
    answers = [[{"text": "fish", "answer_start": 36}]] + ([[]] if name == "squad_v2" else [])
    task = replace(TASKS[name], max_length=14, doc_stride=3)
    examples = task.read(squad(tmp_path, answers))
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
    scores = task.score(predictions, examples)
    if name == "squad":
        assert scores == {"exact_match": 100.0, "f1": 100.0}
        assert predictions[0].null_odds is None
    else:
        assert predictions[0].null_odds < 0 < predictions[1].null_odds
        assert scores["exact"] == scores["best_f1"] == 100.0
    task.write_predictions(predictions, examples, tmp_path)
    texts = json.loads((tmp_path / "predictions.json").read_text())
    assert texts == {"0": "fish"} | ({"1": ""} if name == "squad_v2" else {})
    assert json.loads((tmp_path / "nbest_predictions.json").read_text())["0"][0]["text"] == "fish"
    assert task.score(task.read_predictions(tmp_path / "predictions.json", examples), examples) == scores


def test_answers_by_googles_rule(tmp_path, tokenizer):
    """An answer at the border of a window counts only in a window where it is in the middle."""
    task = replace(TASKS["squad"], max_length=14, doc_stride=6, n_best_size=1)
    examples = task.read(squad(tmp_path, [[{"text": "fish", "answer_start": 36}]]))
    data = task.encode(examples, None, tokenizer, "x")
    windows = data.layout[0].windows
    outputs = [np.zeros((len(data), 14)), np.zeros((len(data), 14))]
    first = windows[0].context_start + windows[0].context_length - 1  # the last word of the first window
    outputs[0][0, first] = outputs[1][0, first] = 9.0
    place = windows[0].first_token + windows[0].context_length - 1
    word = CONTEXT[slice(*data.layout[0].token_spans[place])]
    assert task.predict(outputs, data, None)[0].text == word
    assert replace(task, max_context=True).predict(outputs, data, None)[0].text != word


def test_the_threshold_of_the_best_f1_is_used_unless_one_is_set():
    task = TASKS["squad_v2"]
    examples = [QuestionExample(name, "q", "a cat", ((0, "a"),) if name == "0" else ()) for name in "01"]
    predictions = [AnswerPrediction("a", 1.5), AnswerPrediction("a", 2.5)]
    assert task.adapted(predictions, examples).null_score_threshold == 1.5
    task = replace(task, null_score_threshold=0.5)
    assert task.adapted(predictions, examples).null_score_threshold == 0.5
    assert TASKS["squad"].adapted(predictions, examples) is TASKS["squad"]


def test_a_model_that_had_better_answer_nothing_does_so():
    """The official script then returns 0 as the best threshold, which keeps answers if all odds are below it."""
    task = TASKS["squad_v2"]
    examples = [QuestionExample(str(number), "?", "a b", ()) for number in range(3)]
    predictions = [AnswerPrediction("b", odds) for odds in (-3.0, -1.0, -2.0)]
    scores = task.score(predictions, examples)
    assert (scores["f1"], scores["best_f1"], scores["best_f1_thresh"]) == (0.0, 100.0, 0.0)
    adapted = task.adapted(predictions, examples)
    assert adapted.score(predictions, examples)["f1"] == 100.0


def test_the_thresholds_of_labels_are_fitted_to_their_predictions():
    task = TASKS["multilabel"]
    wanted = [{"a"}, {"a"}, set(), {"b"}]
    scores = [{"a": 0.3, "b": 0.1}, {"a": 0.25, "b": 0.6}, {"a": 0.05, "b": 0.2}, {"a": 0.15, "b": 0.9}]
    examples = [TextExample(("x",), frozenset(names)) for names in wanted]
    task = task.adapted([LabelPrediction(frozenset(), {**row, "never": 0.4}) for row in scores], examples)
    # The best F1 is above 0.2 for a, 0.75 for b and 0.225 for all labels, which counts as 10 examples.
    assert task.thresholds == pytest.approx({"a": 2.65 / 12, "b": 3.0 / 11, "never": 0.225})
    task = replace(task, thresholds={"a": 0.2, "b": 0.75})
    logits = np.array([[np.log(row[name] / (1 - row[name])) for name in "ab"] for row in scores])
    data = TaskData(examples, {}, "x")
    found = [prediction.label for prediction in task.predict(logits, data, Labels(("a", "b")))]
    assert found == [frozenset(names) for names in wanted]


@pytest.mark.parametrize(
    "row",
    [
        {"answers": {"text": ["fish"], "answer_start": [36]}},
        {"answers": [{"text": "fish", "answer_start": 36}]},
        {"answers": "fish", "answer_start": "36"},
        {"answers": "fish"},
        {"answers": ["fish"]},
        {"answers": {"text": "fish", "answer_start": 36}},
        {"answers": {"text": "fish"}},
        {"answers": {"text": ["fish"], "answer_start": None}},
    ],
)
def test_own_answers(row):
    rows = _rows([{"question": "What?", "context": CONTEXT} | row])
    (example,) = TASKS["question_answering"].examples(rows, True)
    assert example.answers == ((36, "fish"),)
    assert not example.moved
    assert example.id == "1"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": ""}, "row 1: an empty question"),
        ({"context": " "}, "row 1: an empty context"),
        ({"answers": []}, "row 1: a question without an answer; expected an answer, or a task such as squad_v2"),
        ({"answers": [{"text": "", "answer_start": 1}]}, "expected texts that are not empty"),
        ({"answers": [{"text": "fish", "answer_start": "x"}]}, "answer_start is not a number"),
        ({"answers": {"text": ["fish", "cat"], "answer_start": [36]}}, "expected an answer_start for each text"),
        ({"answers": {"text": ["fish"], "answer_start": 36}}, "expected an answer_start for each text"),
        ({"answers": {"text": None}}, "expected texts that are not empty"),
        ({"answers": 5}, "row 1: '5' as answers; expected texts, or objects with text and answer_start"),
        ({"question": b"What?"}, r"row 1: \"b'What\?'\" as question; expected a text"),
    ],
)
def test_broken_questions(row, message):
    rows = [{"question": "What?", "context": CONTEXT, "answers": "fish"} | row]
    with pytest.raises(ValueError, match=message):
        TASKS["question_answering"].examples(_rows(rows), True)


@pytest.mark.parametrize(
    ("task", "row"),
    [
        ("multilabel", {"text": "a", "labels": "['x', 'y']"}),
        ("multilabel", {"text": "a", "labels": '["x"]'}),
        ("multilabel", {"text": "a", "labels": "[0, 3]"}),
        ("multilabel", {"text": "a", "labels": "[]"}),
        ("tagging", {"tokens": "['EU', 'rejects']", "tags": "['NOUN', 'VERB']"}),
        ("tagging", {"tokens": ["EU", "rejects"], "tags": "['NOUN' 'VERB']"}),
    ],
)
def test_lists_that_a_table_of_text_has_written_out(task, row):
    """pandas writes lists this way; splitting at commas or spaces would leave brackets and quotes in labels."""
    with pytest.raises(ValueError, match=r"expected a list \(.jsonl, .parquet\), or text without \[ and \]"):
        TASKS[task].examples(_rows([row]), True)


def test_texts_in_brackets_are_no_lists():
    row = {"tokens": "[ laughs ] [1]", "tags": "X X X X"}
    assert TASKS["tagging"].examples(_rows([row]), True)[0].words == ("[", "laughs", "]", "[1]")


def test_labels_as_pipelines_call_classes_without_names():
    """Predictions of a pipeline are often the training labels of another model."""
    rows = _rows([{"text": "a", "label": f"LABEL_{number}"} for number in (0, 1)])
    assert [example.label for example in TASKS["classification"].examples(rows, True)] == ["0", "1"]
    config = BertConfig(id2label={0: "LABEL_0", 1: "LABEL_spam"})
    assert Labels.from_config(config).names == ("0", "LABEL_spam")


@pytest.mark.parametrize(("value", "count"), [(False, 1), ("False", 1), ("0", 1), (True, 0), ("True", 0), ("1", 0)])
def test_impossible_as_tables_write_it(value, count):
    rows = _rows([{"question": "What?", "context": CONTEXT, "answers": "fish", "is_impossible": value}])
    assert len(TASKS["squad_v2"].examples(rows, True)[0].answers) == count


def test_windows_share_less_where_there_is_less_room(tmp_path, tokenizer):
    task = replace(TASKS["squad"], max_length=14)
    data = task.encode(task.read(squad(tmp_path, [[{"text": "fish", "answer_start": 36}]])), None, tokenizer, "x")
    assert max(map(len, data.inputs["input_ids"])) <= 14


def test_predictions_count_as_they_stand(tmp_path):
    """As in the official script without odds; the odds are only used to find the best threshold."""
    examples = TASKS["squad_v2"].read(squad(tmp_path, [[{"text": "fish", "answer_start": 36}], []]))
    path = write_json(tmp_path / "predictions.json", {"0": "fish", "1": "", "more": "cat"})
    write_json(tmp_path / "null_odds.json", {"0": 2.5, "1": 3})
    task = TASKS["squad_v2"]
    scores = task.score(task.read_predictions(path, examples), examples)
    assert (scores["exact"], scores["f1"], scores["best_exact"]) == (100.0, 100.0, 100.0)
    task = replace(task, null_score_threshold=1.0)  # the official script's --na-prob-thresh
    assert task.score(task.read_predictions(path, examples), examples)["exact"] == 50.0


def test_missing_predictions_are_wrong_in_squad_1(tmp_path):
    task = TASKS["squad"]
    examples = task.read(
        squad(tmp_path, [[{"text": "fish", "answer_start": 36}], [{"text": "The", "answer_start": 0}]])
    )
    path = write_json(tmp_path / "predictions.json", {"0": "fish"})
    assert task.score(task.read_predictions(path, examples), examples) == {"exact_match": 50.0, "f1": 50.0}


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
    examples = TASKS["squad_v2"].read(squad(tmp_path, [[]]))
    path = write_json(tmp_path / "predictions.json", texts)
    if odds:
        write_json(tmp_path / "null_odds.json", odds)
    with pytest.raises(ValueError, match=message):
        TASKS["squad_v2"].read_predictions(path, examples)


def test_a_question_without_an_id_is_called_by_its_row():
    rows = [{"id": name, "question": "What?", "context": CONTEXT, "answers": "fish"} for name in ("a", None, "", 7)]
    examples = TASKS["question_answering"].examples(_rows(rows), True)
    assert [example.id for example in examples] == ["a", "2", "3", "7"]


def test_questions_with_the_same_id():
    rows = [{"id": "a", "question": "What?", "context": CONTEXT, "answers": "fish"}] * 2
    with pytest.raises(ValueError, match="questions with the same id"):
        TASKS["question_answering"].examples(_rows(rows), True)


def _rows(values):
    return [DataRow(row, "x.csv", number) for number, row in enumerate(values, start=1)]
