"""`mybert score`: sentences, minimal pairs and labeled sentences, from files and from memory."""

import json
import sys

import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score
from transformers import AutoModelForMaskedLM, AutoTokenizer, BertForMaskedLM
from transformers.utils import logging as transformers_logging

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


def plain_scores(model, texts, method):
    """The scores of texts by one forward for each token, of transformers' BERT with the same weights."""
    network, tokenizer = BertForMaskedLM.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)
    scores = []
    for text in texts:
        encoding = tokenizer(text, return_tensors="pt")
        ids, words, score = encoding["input_ids"], encoding.word_ids(), 0.0
        for place, word in enumerate(words):
            if word is None:  # [CLS] or [SEP]
                continue
            masked = ids.clone()
            for later in range(place, len(words)):
                if later == place or (words[later] == word and method == "within_word_l2r"):
                    masked[0, later] = tokenizer.mask_token_id
            with torch.no_grad():
                score += network(masked).logits[0, place].log_softmax(-1)[ids[0, place]].item()
        scores.append(score)
    return scores


@pytest.fixture
def groups(tmp_path):
    """A folder with minimal pairs in two files, as BLiMP's: three paradigms of 4, 2 and 2 pairs, two phenomena."""
    pairs = [
        *zip(TEXTS, TEXTS[::-1], strict=True),
        ("a cat", "a cat"),
        ("the cats", "a dog"),
        *zip(TEXTS[:2], TEXTS[2:], strict=True),
    ]
    uids, terms = ["agree"] * 4 + ["island", "gap"] * 2, ["one"] * 4 + ["two"] * 4
    rows = [
        {"sentence_good": good, "sentence_bad": bad, "UID": uid, "linguistics_term": term}
        for (good, bad), uid, term in zip(pairs, uids, terms, strict=True)
    ]
    folder = tmp_path / "data"
    folder.mkdir()
    for name, part in (("agree", rows[:4]), ("others", rows[4:])):
        (folder / f"{name}.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in part))
    return folder, rows


@pytest.mark.parametrize("method", ["within_word_l2r", "original"])
def test_score_of_groups_is_the_accuracy_of_a_plain_masked_loop(tmp_path, model, groups, method):
    mybert.conversion.to_transformers_bert(model, tmp_path / "bert")
    folder, rows = groups
    good, bad = (
        plain_scores(tmp_path / "bert", [row[name] for row in rows], method)
        for name in ("sentence_good", "sentence_bad")
    )
    output, report = tmp_path / "out.jsonl", tmp_path / "report.json"
    words = ["--group_columns", "UID", "linguistics_term", "--method", method]
    words += ["--output", str(output), "--report", str(report)]
    assert cli.main(["score", model, str(folder), *words]) == 0
    written = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["score"] for row in written] == pytest.approx(good, abs=1e-4)
    assert [row["pair_score"] for row in written] == pytest.approx(bad, abs=1e-4)
    is_right = [a - b > 1e-4 for a, b in zip(good, bad, strict=True)]
    assert not is_right[4] and good[4] == bad[4]  # a tie

    def accuracies(column):
        by_group = {}
        for row, right in zip(rows, is_right, strict=True):
            by_group.setdefault(row[column], []).append(right)
        return {name: sum(each) / len(each) for name, each in by_group.items()}

    expected = {column: accuracies(column) for column in ("UID", "linguistics_term")}
    mean = sum(expected["UID"].values()) / 3
    assert mean != pytest.approx(sum(is_right) / 8)  # the groups have other sizes
    result = {"rows": 8, "accuracy": pytest.approx(mean), "groups": expected}
    assert json.loads(report.read_text()) == {"model": model, "method": method} | result
    in_memory = mybert.score(model, rows, method=method, group_columns=["UID"], report=tmp_path / "again.json")
    assert [row["score"] for row in in_memory] == pytest.approx(good, abs=1e-4)
    assert json.loads((tmp_path / "again.json").read_text())["groups"] == {"UID": expected["UID"]}


def test_score_of_groups_agrees_with_minicons(tmp_path, model, groups):
    verbosity = transformers_logging.get_verbosity()
    scorer = pytest.importorskip("minicons.scorer", reason="the comparison with minicons needs minicons")
    transformers_logging.set_verbosity(verbosity)  # minicons changes it
    mybert.conversion.to_transformers_bert(model, tmp_path / "bert")
    texts = [row["sentence_good"] for row in groups[1]]
    peer = scorer.MaskedLMScorer(str(tmp_path / "bert"), "cpu")
    peer.tokenizer.batch_encode_plus = peer.tokenizer.__call__  # removed in transformers 5
    for method in ("within_word_l2r", "original"):
        scores = peer.sequence_score(texts, reduction=lambda tokens: tokens.sum().item(), PLL_metric=method)
        assert [row["score"] for row in mybert.score(model, texts, method=method)] == pytest.approx(scores, abs=1e-4)


def test_score_logs_the_lowest_and_highest_of_many_groups(model, caplog):
    rows = [{"good": TEXTS[row % 4], "bad": TEXTS[row % 3], "UID": f"p{row:02}"} for row in range(20)]
    with caplog.at_level("INFO", "mybert"):
        mybert.score(model, rows, group_columns=["UID"])
    (lines,) = (message.splitlines() for message in caplog.messages if "by UID" in message)
    accuracies = [float(line.split()[0]) for line in lines[1:9] + lines[10:]]
    assert lines[0] == "Accuracy by UID, in %:" and lines[9] == "... 4 more"
    assert len(lines) == 18 and accuracies == sorted(accuracies)


def test_score_of_wrong_groups_is_one_sentence_and_writes_nothing(tmp_path, model, groups, capsys, monkeypatch):
    monkeypatch.setattr(torch.nn.Module, "__call__", pytest.fail)  # nothing is computed
    folder, rows = groups
    (tmp_path / "texts.txt").write_text("the cat\n")
    (tmp_path / "hole.jsonl").write_text(json.dumps(rows[0] | {"UID": " "}) + "\n")
    (tmp_path / "old.json").write_text("{}")
    data, output = str(folder), str(tmp_path / "out.csv")
    for words, message in (
        ((data, "--group_columns", "uid"), "no column 'uid'"),
        ((str(tmp_path / "hole.jsonl"), "--group_columns", "UID"), "an empty UID"),
        ((str(tmp_path / "texts.txt"), "--group_columns", "UID"), "expected minimal pairs, but the data has single"),
        (
            (str(tmp_path / "none"), "--group_columns", "UID"),
            "BLiMP, published at https://github.com/alexwarstadt/blimp.",
        ),
        ((data, "--group_columns", "UID", "--report", str(tmp_path / "old.json")), "old.json exists"),
        ((data, "--group_columns", "UID", "--report", output), "out.csv"),
    ):
        assert cli.main(["score", model, *words, "--output", output]) == 2, words
        error = capsys.readouterr().err
        assert message in error and "Traceback" not in error, error
    assert not (tmp_path / "out.csv").exists() and (tmp_path / "old.json").read_text() == "{}"


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
    (tmp_path / "header.csv").write_text("good,bad\n")
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "mixed.txt").write_text("the cat\na cat ||| a dog\n")
    output = tmp_path / "out.csv"
    for words, message in (
        ((model, "labels.csv", "--label_column", "label"), "labels.csv, row 2: '2' as label; expected 0 and 1"),
        ((model, "labels.csv", "--text_column", "text"), "no column 'text'; its columns are 'sentence', 'label'"),
        ((model, "header.csv"), "header.csv holds no rows."),
        ((model, "empty.txt"), "empty.txt holds no rows."),
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
    # What the output cannot hold, and where none can be, is found before the work, too, as is a missing package.
    with monkeypatch.context() as patch, pytest.raises(ImportError, match="needs the package openpyxl"):
        patch.setitem(sys.modules, "openpyxl", None)
        mybert.score(model, ["the cat"], output=tmp_path / "out.xlsx")
    with pytest.raises(ValueError, match=r"'the cat\\tsat' as text has a tab or line break"):
        mybert.score(model, [{"text": "the cat\tsat"}], output=tmp_path / "out.tsv")
    with pytest.raises(OSError, match=r"texts\.txt"):
        mybert.score(model, ["the cat"], output=tmp_path / "texts.txt" / "out.csv")
    with pytest.raises(OSError, match=r"texts\.txt"):
        mybert.score(model, ["the cat"], report=str(tmp_path / "texts.txt" / "out.json"))
