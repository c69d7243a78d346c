"""`mybert score`: sentences, minimal pairs and labeled sentences, from files and from memory."""

import json

import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertForMaskedLM

import mybert
from mybert import cli
from mybert.finetuning import ScoreArguments, score_files
from mybert.pipelines import pseudo_log_likelihoods

TEXTS = ["the cat sat on the mat", "fish bread the", "it was cats", "a dog and a cat"]


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_model):
    return str(tiny_model(tmp_path_factory.mktemp("scored") / "model", initializer_range=0.5))


@pytest.fixture(scope="module")
def expected(model):
    network, tokenizer = AutoModelForMaskedLM.from_pretrained(model), AutoTokenizer.from_pretrained(model)

    def scores(texts, method="within_word_l2r"):
        return [float(found.sum()) for found in pseudo_log_likelihoods(network, tokenizer, texts, method)]

    return scores


def test_score_of_any_kind_of_data_is_the_pseudo_log_likelihood(tmp_path, model, expected):
    file = tmp_path / "texts.txt"
    file.write_text("\n\n".join(TEXTS) + "\n")
    for data in (TEXTS, file, [{"sentence": text} for text in TEXTS], pd.DataFrame({"text": TEXTS})):
        for settings in ({}, {"method": "original"}):
            found = mybert.score(model, data, **settings)
            assert [row["score"] for row in found] == pytest.approx(expected(TEXTS, **settings), abs=1e-5)
            assert [row["num_tokens"] for row in found] == [6, 3, 4, 5]
            assert found[1]["score_per_token"] == pytest.approx(found[1]["score"] / 3, abs=1e-6)
    assert expected(TEXTS)[2] != pytest.approx(expected(TEXTS, "original")[2], abs=1e-3)  # cat ##s
    with pytest.raises(FileNotFoundError, match="There is no file 'the cat'; a text is given in a list"):
        mybert.score(model, "the cat")


def test_score_of_a_bert_of_transformers_is_that_of_its_weights(tmp_path, model, expected):
    mybert.conversion.to_transformers_bert(model, tmp_path / "bert")
    assert isinstance(AutoModelForMaskedLM.from_pretrained(tmp_path / "bert"), BertForMaskedLM)
    found = mybert.score(tmp_path / "bert", TEXTS)
    assert [row["score"] for row in found] == pytest.approx(expected(TEXTS), abs=1e-5)


def test_score_of_minimal_pairs_reports_the_accuracy(tmp_path, model, expected, capsys):
    pairs = [*zip(TEXTS, TEXTS[::-1], strict=True), ("a cat", "a cat")]  # two right, two wrong, a tie
    good, bad = zip(*pairs, strict=True)
    table = pd.DataFrame({"uid": range(5), "sentence_good": good, "sentence_bad": bad, "score": "x"})
    table.to_json(tmp_path / "pairs.jsonl", orient="records", lines=True)
    table.rename(columns={"sentence_good": "a", "sentence_bad": "b"}).to_csv(tmp_path / "pairs.csv", index=False)
    output = tmp_path / "out.jsonl"
    assert cli.main(["score", model, str(tmp_path / "pairs.jsonl"), "--output", str(output)]) == 0
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    columns = {"uid", "sentence_good", "sentence_bad", "score", "predicted_score", "num_tokens", "score_per_token"}
    assert set(rows[0]) == columns | {"pair_score", "pair_num_tokens", "pair_score_per_token"}
    assert [row["predicted_score"] for row in rows] == pytest.approx(expected(good), abs=1e-5)
    assert [row["pair_score"] for row in rows] == pytest.approx(expected(bad), abs=1e-5)
    files = {"data": [str(tmp_path / "pairs.csv")], "text_column": "a", "text_pair_column": "b"}
    assert score_files(ScoreArguments(model=model, **files)) == {"rows": 5, "accuracy": 0.4}
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["uid"] == "4"
    assert [row["pair_score"] for row in mybert.score(model, pairs)] == pytest.approx(expected(bad), abs=1e-5)


def test_score_of_labeled_sentences_reports_the_area_under_the_curve(tmp_path, model, expected):
    labels = [1, 0, 0, 1]
    file = tmp_path / "dev.tsv"
    file.write_text("".join(f"x\t{label}\t\t{text}\n" for label, text in zip(labels, TEXTS, strict=True)))
    found = score_files(ScoreArguments(model=model, data=str(file), task="cola", output=str(tmp_path / "out.csv")))
    scores = expected(TEXTS)
    means = [score / count for score, count in zip(scores, (6, 3, 4, 5), strict=True)]
    areas = {"roc_auc": roc_auc_score(labels, scores), "roc_auc_per_token": roc_auc_score(labels, means)}
    assert areas["roc_auc"] != areas["roc_auc_per_token"]
    assert found == {"rows": 4} | areas
    written = pd.read_csv(tmp_path / "out.csv")
    assert list(written.columns[:5]) == ["source", "label", "author_mark", "sentence", "score"]


def test_score_of_wrong_input_is_one_sentence_and_writes_nothing(tmp_path, model, tiny_model, capsys, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "__call__", pytest.fail)  # nothing is computed
    encoder = str(tiny_model(tmp_path / "encoder", mybert.MyBertModel))
    (tmp_path / "labels.csv").write_text("sentence,label\nthe cat,1\nthe dog,2\n")
    (tmp_path / "empty.csv").write_text("good,bad\nthe cat,\n")
    (tmp_path / "control.csv").write_text("good,bad\nthe cat,a cat\na dog,\x01\n")
    (tmp_path / "texts.txt").write_text("the cat\n")
    (tmp_path / "mixed.txt").write_text("the cat\na cat ||| a dog\n")
    output = tmp_path / "out.csv"
    for words, message in (
        ((model, "labels.csv", "--label_column", "label"), "labels.csv, row 2: '2' as label; expected 0 and 1"),
        ((model, "labels.csv", "--text_column", "text"), "no column 'text'; its columns are 'sentence', 'label'"),
        ((model, "empty.csv"), "empty.csv, row 1: an empty bad; expected a text."),
        ((model, "control.csv"), "control.csv, row 2: '\\x01' has no tokens; expected a sentence."),
        ((model, "mixed.txt"), "mixed.txt has no column 'text_pair' in row 1"),
        ((model, "texts.txt", "--max_length", "600"), "max_length is 600; expected 3 to 512, what the model reads"),
        ((model, "texts.txt", "--task", "mrpc"), "task is 'mrpc'; expected one of classification, cola, sst2."),
        ((encoder, "texts.txt"), "no head for this task"),
        ((model, "none.txt"), f"There is no file or folder {tmp_path / 'none.txt'}"),
    ):
        data = str(tmp_path / words[1])
        assert cli.main(["score", words[0], data, *words[2:], "--output", str(output)]) == 2, words
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error
    assert not output.exists()
