"""A dry run reports what the command would do, and why; it writes nothing and loads no weights."""

import json
from pathlib import Path

import pytest
from transformers import (
    AutoModelForSequenceClassification,
    DistilBertConfig,
    DistilBertModel,
    MPNetForSequenceClassification,
    PreTrainedModel,
)

from mybert import MyBertForSequenceClassification, MyBertTokenizer, cli
from mybert.finetuning import distill, finetune

ROWS = [(f"the {noun} was {word}", word) for noun in ("cat", "dog", "tree") for word in ("happy", "sad")] * 2
SMALL = ["--use_cpu", "--disable_tqdm", "true", "--max_steps", "2", "--max_length", "16"]


@pytest.fixture
def place(tmp_path, tiny_model, text_file, monkeypatch):
    """A folder with a pretrained model, a fine-tuned one, a table and a text."""
    tiny_model(tmp_path / "pretrained")
    tiny_model(
        tmp_path / "tuned",
        MyBertForSequenceClassification,
        id2label={0: "happy", 1: "sad"},
        label2id={"happy": 0, "sad": 1},
    )
    (tmp_path / "rows.tsv").write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    (tmp_path / "text.txt").write_bytes(Path(text_file).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


CALLS = {
    "pretrain": "text.txt --model_size 1x64 --vocab_size 90 --vocab_layout compact --num_processes 1",
    "adapt": "pretrained text.txt --new_pieces 3 --num_processes 1",
    "finetune": "pretrained --train_file rows.tsv --validation_split 0.25",
    "distill": "tuned --student 1x64 --train_file rows.tsv",
}


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("command", CALLS)
def test_dry_run_writes_nothing_and_loads_no_weights(place, command, monkeypatch, capsys):
    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *args, **kwargs: pytest.fail("loads weights"))
    before = contents(place)
    flags = [*CALLS[command].split(), "--output_dir", "out", "--dry_run", *SMALL]
    assert cli.main([command, *flags]) == 0
    shown = capsys.readouterr().out
    assert "What would be done; nothing is written." in shown and "Done" not in shown
    assert cli.main([command, *flags, "--quiet"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["output"] == {"folder": "out", "state": "new"}
    assert report["model"]["parameters"] > 1000
    assert contents(place) == before


@pytest.mark.parametrize("command", CALLS)
def test_dry_run_decides_what_the_run_records(place, command, capsys):
    flags = [command, *CALLS[command].split(), "--output_dir", "out", *SMALL, "--quiet"]
    assert cli.main([*flags, "--dry_run"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert cli.main(flags) == 0
    record = json.loads((place / "out" / "run.json").read_text())
    assert report["decided"] == record.get("decisions", {})
    for name, decision in report["decided"].items():
        assert record.get(name, decision["value"]) == decision["value"], name
    capsys.readouterr()
    assert cli.main([*flags, "--dry_run"]) == 0
    assert json.loads(capsys.readouterr().out)["output"]["state"] == "continued"
    assert cli.main([*flags, "--dry_run", "--seed", "7"]) == 2
    assert "What differs: seed was 42, is 7" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_length": 1024}, "--max_length"),
        ({"freeze_layers": 9}, "--freeze_layers"),
        ({"reinitialize_layers": 9}, "--reinitialize_layers"),
        ({"reinitialize_layers": 1, "freeze_layers": 1}, "--reinitialize_layers --freeze_layers"),
        ({"approach": "contrastive", "freeze_layers": 2}, "--freeze_layers --approach"),
        ({"approach": "auto", "freeze_layers": 2}, "--freeze_layers --approach"),
        ({"model": "other", "pooling": "mean"}, "--pooling"),
        ({"model": "other", "bilstm": True}, "other is of type distilbert; a BiLSTM can only be put on"),
        ({"train_file": [*ROWS, ("a dog", "third")], "model": "tuned"}, "tuned was fine-tuned with 2 labels"),
        ({"eval_strategy": "epochs"}, "--eval_strategy"),
        ({"approach": "features"}, "The approach 'features' is only for tagging words"),
    ],
)
def test_dry_run_rejects_what_the_run_rejects(place, given, message, user_error):
    small = {"vocab_size": 99, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 16}
    model = DistilBertModel(DistilBertConfig(**small))
    model.save_pretrained("other")
    MyBertTokenizer.from_pretrained("pretrained").save_pretrained("other")
    settings = {
        "model": "pretrained",
        "train_file": ROWS,
        "output_dir": "out",
        "use_cpu": True,
        "max_steps": 1,
    } | given
    for dry_run in (True, False):
        with user_error(message):
            finetune(**settings, dry_run=dry_run)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max_length": 1024}, "--max_length"),
        ({"freeze_layers": 9}, "--freeze_layers"),
        ({"teacher": "pretrained", "task": "classification"}, "pretrained has no head for this task"),
        ({"relation_weight": 1.0, "teacher": "mpnet"}, "MPNetLayer has no .*; relations need models built like BERT"),
        ({"student": "./nothing"}, "There is no model folder ./nothing. A new student has a size"),
    ],
)
def test_dry_run_of_a_distillation_rejects_what_the_run_rejects(place, tiny_model, given, message, user_error):
    tiny_model(
        "mpnet", MPNetForSequenceClassification, id2label={0: "happy", 1: "sad"}, label2id={"happy": 0, "sad": 1}
    )
    settings = {
        "teacher": "tuned",
        "student": "1x64",
        "train_file": ROWS,
        "output_dir": "out",
        "use_cpu": True,
    } | given
    for dry_run in (True, False):
        with user_error(message, (ValueError, OSError)):
            distill(**settings, dry_run=dry_run)
    assert not Path("out").exists()


def test_dry_run_counts_the_parameters_of_changed_networks(place):
    settings = {"model": "pretrained", "train_file": ROWS, "output_dir": "out", "use_cpu": True, "max_steps": 1}
    for bilstm in (False, True):
        said = finetune(**settings, bilstm=bilstm, overwrite=True, dry_run=True)["model"]["parameters"]
        finetune(**settings, bilstm=bilstm, overwrite=True)
        assert said == AutoModelForSequenceClassification.from_pretrained("out").num_parameters()


def test_dry_run_counts_trainings_and_steps(place, user_error):
    settings = {"model": "pretrained", "train_file": ROWS, "output_dir": "out", "dry_run": True, "use_cpu": True}
    report = finetune(**settings, folds=3, num_train_epochs=2, per_device_train_batch_size=4)
    assert report["training"] == {"trainings": 4, "steps": 6, "epochs": 2.0, "batch size": 4}
    assert report["data"]["train"]["examples"] == 12 and report["classes"] == ["happy", "sad"]
    assert report["decided"]["learning_rate"]["reason"].startswith("5e-05 x 768 / hidden size")
    with user_error("--metric_for_best_model"):
        finetune(**settings, folds=3, metric_for_best_model="mood")
