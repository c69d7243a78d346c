"""Every task from the command line, on slices of the real files in their published formats, with a tiny model."""

import csv
import gzip
import json
from itertools import islice
from pathlib import Path

import pytest

import mybert
from mybert import MyBertTokenizer
from mybert.cli import main
from mybert.finetuning import TABLE_7, tag_words

VOCABULARY = Path(__file__).resolve().parents[1] / "fixtures" / "google_tokenization" / "vocab.txt"
GLUE = {  # task: the files for training and validation, the metric
    "cola": ("CoLA/train.tsv", "CoLA/dev.tsv", "matthews_correlation"),
    "sst2": ("SST-2/train.tsv", "SST-2/dev.tsv", "accuracy"),
    "mrpc": ("MRPC/train.tsv", "MRPC/dev.tsv", "f1"),
    "stsb": ("STS-B/train.tsv", "STS-B/dev.tsv", "pearson"),
    "qnli": ("QNLI/dev.tsv", "QNLI/dev.tsv", "accuracy"),
    "rte": ("RTE/train.tsv", "RTE/dev.tsv", "accuracy"),
    "wnli": ("WNLI/train.tsv", "WNLI/dev.tsv", "accuracy"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory, tiny_model):
    return tiny_model(tmp_path_factory.mktemp("model"), words=MyBertTokenizer(vocab=str(VOCABULARY)))


def finetune(model, output_dir, task, *flags):
    fixed = "--max_steps 2 --per_device_train_batch_size 8 --save_strategy no --use_cpu True --quiet".split()
    argv = ["finetune", "--model", str(model), "--task", task, "--output_dir", str(output_dir), *flags, *fixed]
    assert main(argv) == 0
    return json.loads((output_dir / "metrics.json").read_text())


def head(source, path, count):
    """The first lines of a file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(source.read_text().split("\n")[:count]) + "\n")
    return path


@pytest.mark.parametrize("task", GLUE)
def test_glue(task, model, data_dir, tmp_path):
    *files, metric = GLUE[task]
    for split, file in zip(("train", "dev"), files, strict=True):
        head(data_dir / "glue" / file, tmp_path / "data" / f"{split}.tsv", 40)
    assert metric in finetune(model, tmp_path / "out", task, "--data_dir", str(tmp_path / "data"))
    lines = (tmp_path / "out" / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert [line.split("\t")[0] for line in lines[1:]] == [str(number) for number in range(len(lines) - 1)]
    if task == "rte":
        assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "not_entailment"}


@pytest.mark.parametrize("version", ["1.1", "2.0"])
def test_squad(version, model, data_dir, tmp_path):
    whole = json.loads(gzip.decompress((data_dir / "squad" / f"dev-v{version}.json.gz").read_bytes()))
    paragraphs = [{**paragraph, "qas": paragraph["qas"][:6]} for paragraph in whole["data"][0]["paragraphs"][:4]]
    (tmp_path / "data").mkdir()
    for split in ("train", "dev"):
        path = tmp_path / "data" / f"{split}-v{version}.json"
        path.write_text(json.dumps({"version": version, "data": [{"title": "", "paragraphs": paragraphs}]}))
    out = tmp_path / "out"
    task = "squad" if version == "1.1" else "squad_v2"
    metrics = finetune(
        model, out, task, "--data_dir", str(tmp_path / "data"), "--max_length", "128", "--doc_stride", "32"
    )
    contexts = {question["id"]: p["context"] for p in paragraphs for question in p["qas"]}
    predictions = json.loads((out / "predictions.json").read_text())
    best = json.loads((out / "nbest_predictions.json").read_text())
    assert predictions.keys() == best.keys() == contexts.keys()
    assert all(predictions[name] in contexts[name] for name in contexts)
    if version == "1.1":
        assert metrics["exact_match"] <= metrics["f1"]
        assert not (out / "null_odds.json").exists()
        assert all(predictions.values())
    else:
        odds = json.loads((out / "null_odds.json").read_text())
        assert odds.keys() == contexts.keys()
        threshold = json.loads((out / "config.json").read_text())["finetuned_for"]["null_score_threshold"]
        assert {name for name in odds if odds[name] > threshold} == {name for name in odds if not predictions[name]}
        assert metrics["best_f1"] >= metrics["f1"]


@pytest.mark.parametrize(
    ("task", "file", "flags"),
    [
        ("swag", "sample_train_head.csv", ""),
        (
            *("multiple_choice", "cosmosqa_valid.csv"),
            "--text_column context --text_pair_column question --choice_columns answer0 answer1 answer2 answer3",
        ),
    ],
)
def test_choices(task, file, flags, model, data_dir, tmp_path):
    with (data_dir / "swag" / file).open(newline="") as source:
        rows = list(islice(csv.reader(source), 12))
    with (tmp_path / "data.csv").open("w", newline="") as target:
        csv.writer(target).writerows(rows)
    data = str(tmp_path / "data.csv")
    finetune(model, tmp_path / "out", task, "--train_file", data, "--validation_file", data, *flags.split())
    found = list(csv.DictReader((tmp_path / "out" / "predictions.csv").open()))
    assert len(found) == 11
    assert {row["prediction"] for row in found} <= set("0123")


@pytest.mark.parametrize("flags", [(), ("--max_document_context", "True", "--continuation_labels", "inside")])
def test_ner(flags, model, data_dir, tmp_path):
    for split in ("train", "dev", "test"):
        head(data_dir / "ner" / "wnut17" / f"{split}.conll", tmp_path / "data" / f"{split}.conll", 400)
    metrics = finetune(
        model, tmp_path / "out", "ner", "--data_dir", str(tmp_path / "data"), "--max_length", "64", *flags
    )
    assert {"f1", "precision", "recall", "test_f1"} <= metrics.keys()
    source = (tmp_path / "data" / "test.conll").read_text().splitlines()
    predicted = (tmp_path / "out" / "predictions.conll").read_text().splitlines()
    assert [line.split("\t")[:2] for line in predicted if line] == [line.split("\t") for line in source if line]


def test_mnli_in_published_columns(model, data_dir, tmp_path):
    """SICK's pairs in MNLI's columns: MNLI itself is not in the data."""
    (tmp_path / "data").mkdir()
    rows = list(csv.DictReader((data_dir / "extra" / "sick" / "dev.tsv").open(), delimiter="\t"))[:40]
    for split in ("train", "dev_matched", "dev_mismatched", "test_matched", "test_mismatched"):
        labeled = not split.startswith("test")
        lines = ["index\tsentence1\tsentence2" + "\tgold_label" * labeled] + [
            f"{number}\t{row['sentence_A']}\t{row['sentence_B']}" + f"\t{row['entailment_judgment'].lower()}" * labeled
            for number, row in enumerate(rows if split != "dev_mismatched" else rows[:20])
        ]
        (tmp_path / "data" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    metrics = finetune(model, tmp_path / "out", "mnli", "--data_dir", str(tmp_path / "data"))
    assert {"matched_accuracy", "mismatched_accuracy"} <= metrics.keys()
    for name in ("matched", "mismatched"):
        lines = (tmp_path / "out" / f"predictions_{name}.tsv").read_text().splitlines()
        assert len(lines) == 41
        assert {line.split("\t")[1] for line in lines[1:]} <= {"entailment", "neutral", "contradiction"}


@pytest.mark.slow
def test_table_7(model, data_dir, tmp_path):
    for split in ("train", "dev", "test"):
        head(data_dir / "ner" / "wnut17" / f"{split}.conll", tmp_path / "data" / f"{split}.conll", 200)
    flags = ("--approach", "features", "--features", "all", "--lstm_size", "8", "--max_length", "64")
    metrics = finetune(model, tmp_path / "out", "ner", "--data_dir", str(tmp_path / "data"), *flags)
    assert tuple(metrics) == TABLE_7
    for name in TABLE_7:
        assert {"f1", "test_f1"} <= metrics[name].keys()
        assert (tmp_path / "out" / name / "predictions.conll").is_file()
    words = "Tim Cook visited Berlin".split()
    (tags,) = tag_words(tmp_path / "out" / "weighted_all", [words])
    assert len(tags) == len(words)
    data = str(tmp_path / "data" / "dev.conll")
    evaluated = mybert.evaluate(tmp_path / "out" / "last", data, task="ner", max_length=64, use_cpu=True)
    assert {name: pytest.approx(evaluated[name]) for name in evaluated}.items() <= metrics["last"].items()
