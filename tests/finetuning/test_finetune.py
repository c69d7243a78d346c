import json

import pytest
from transformers import pipeline

from mybert import MyBertForSequenceClassification
from mybert.finetuning import FinetuningArguments, finetune


def write(path, rows, header=("text", "label")):
    path.write_text("\n".join("\t".join(map(str, row)) for row in (header, *rows)) + "\n")
    return str(path)


# The label says whether a happy word occurs.
ROWS = [
    (f"the {noun} was {word} {end}", "good" if word in ("happy", "fish") else "bad")
    for noun in ("cat", "dog", "tree", "mat")
    for word in ("happy", "sad", "fish", "under")
    for end in ("today", "very", "and")
]


def arguments(tmp_path, pretrained, **settings):
    defaults = {
        "model": str(pretrained),
        "output_dir": str(tmp_path / "out"),
        "train_file": write(tmp_path / "train.tsv", ROWS),
        "validation_file": write(tmp_path / "dev.tsv", ROWS[::3]),
        "num_train_epochs": 8,
        "learning_rate": 3e-3,
        "per_device_train_batch_size": 8,
        "eval_strategy": "no",
        "save_strategy": "no",
        "max_length": 16,
        "disable_tqdm": True,
        "use_cpu": True,
    }
    return FinetuningArguments(**defaults | settings)


def test_a_classifier_learns_and_is_written(tmp_path, pretrained):
    test_file = write(tmp_path / "test.tsv", [(text,) for text, _ in ROWS[:6]], header=("text",))
    metrics = finetune(arguments(tmp_path, pretrained, test_file=test_file))
    out = tmp_path / "out"
    assert metrics["accuracy"] == 1.0
    assert metrics["macro_f1"] == 1.0
    assert json.loads((out / "metrics.json").read_text())["accuracy"] == 1.0
    lines = (out / "predictions.tsv").read_text().splitlines()
    assert lines[0].split("\t") == ["index", "prediction", "bad", "good"]
    for number, (line, (_, label)) in enumerate(zip(lines[1:], ROWS[:6], strict=True)):
        index, prediction, *probabilities = line.split("\t")
        assert (index, prediction) == (str(number), label)
        assert sum(map(float, probabilities)) == pytest.approx(1, abs=1e-5)
    classify = pipeline("text-classification", model=str(out))
    assert [classify(text)[0]["label"] for text, _ in ROWS] == [label for _, label in ROWS]
    card = (out / "README.md").read_text()
    assert "accuracy" in card
    assert "text-classification" in card
    model = MyBertForSequenceClassification.from_pretrained(out)
    assert model.config.id2label == {0: "bad", 1: "good"}
    assert not list(out.glob("*.bin"))


def test_pairs_and_other_columns(tmp_path, pretrained):
    rows = [(text, "the mat", label) for text, label in ROWS]
    metrics = finetune(
        arguments(
            tmp_path,
            pretrained,
            train_file=write(tmp_path / "pairs.tsv", rows, header=("one", "two", "gold")),
            validation_file=write(tmp_path / "pairs_dev.tsv", rows, header=("one", "two", "gold")),
            text_column="one",
            text_pair_column="two",
            label_column="gold",
        )
    )
    assert metrics["accuracy"] > 0.9


def test_regression(tmp_path, pretrained):
    rows = [(text, "the mat", 5.0 if label == "good" else 0.0) for text, label in ROWS]
    header = ("sentence1", "sentence2", "score")
    metrics = finetune(
        arguments(
            tmp_path,
            pretrained,
            task="stsb",
            num_train_epochs=20,
            train_file=write(tmp_path / "sts.tsv", rows, header),
            validation_file=write(tmp_path / "sts_dev.tsv", rows, header),
            test_file=write(tmp_path / "sts_test.tsv", rows[:2], header),
        )
    )
    assert metrics["pearson"] > 0.9
    lines = (tmp_path / "out" / "predictions.tsv").read_text().splitlines()
    assert lines[0] == "index\tprediction"
    assert len(lines) == 3


def test_same_seed_same_weights(tmp_path, pretrained):
    weights = []
    for name in ("a", "b"):
        finetune(arguments(tmp_path, pretrained, output_dir=str(tmp_path / name), num_train_epochs=1))
        weights.append((tmp_path / name / "model.safetensors").read_bytes())
    assert weights[0] == weights[1]


@pytest.mark.parametrize(
    ("rows", "header", "message"),
    [
        ([("a", "x")], ("sentence", "label"), r"no column 'text' in row 1; its columns are 'sentence', 'label'"),
        ([("a", "x")], ("text", "gold"), r"no column 'label'"),
        ([("a", "x"), ("b", "x")], ("text", "label"), r"one class only \('x'\)"),
        ([("a", "x"), ("b", "")], ("text", "label"), r"has no label in row 2"),
    ],
)
def test_broken_training_data(tmp_path, pretrained, rows, header, message):
    with pytest.raises(ValueError, match=message):
        finetune(arguments(tmp_path, pretrained, train_file=write(tmp_path / "broken.tsv", rows, header)))
    assert not (tmp_path / "out").exists()
