"""The four commands: every argument reaches its function."""

from pathlib import Path

import torch
from safetensors.torch import load_file
from transformers import AutoConfig

from mybert.command_line.command_table import COMMANDS
from mybert.command_line.flags import CommandParser
from mybert.conversion import commands, read_tensor_bundle
from mybert.files.settings import build

TF1 = Path(__file__).parents[1] / "fixtures" / "google_tf1"


def parse(command, *flags):
    return build(COMMANDS[command].load_settings(), CommandParser(command).given([str(flag) for flag in flags]))


def test_the_whole_round(tmp_path, write_vocab, caplog):
    caplog.set_level("INFO", "mybert.conversion")
    google = [
        "--source",
        TF1 / "squad_adam",
        "--output_dir",
        tmp_path / "model",
        "--head",
        "squad",
        "--optimizer_state",
    ]
    google += ["--config_file", TF1 / "squad_adam" / "bert_config.json", "--do_lower_case", "no"]
    google += ["--vocab_file", write_vocab(tmp_path / "words")]
    report = commands.convert_google(parse("convert google", *google))
    assert str(report) in caplog.text
    assert report.optimizer_step == 1234 and "tokenizer: cased, as asked for" in report.decisions
    to_bert = ["--model", tmp_path / "model", "--output_dir", tmp_path / "bert"]
    assert commands.convert_to_bert(parse("convert to-bert", *to_bert)).verification.ok
    back = ["--model", tmp_path / "bert", "--output_dir", tmp_path / "back", "--no_verify"]
    assert commands.convert_bert(parse("convert bert", *back)).verification is None
    (tmp_path / "google").mkdir()
    to_google = ["--model", tmp_path / "back", "--output", tmp_path / "google"]
    commands.convert_to_google(parse("convert to-google", *to_google))
    exported, googles = (
        read_tensor_bundle(folder / "bert_model.ckpt") for folder in (tmp_path / "google", TF1 / "squad_adam")
    )
    assert exported["cls/squad/output_weights"].tobytes() == googles["cls/squad/output_weights"].tobytes()
    a, b = (load_file(tmp_path / name / "model.safetensors") for name in ("model", "back"))
    assert all(torch.equal(a[name], b[name]) for name in a)


def test_labels_and_another_activation(tmp_path, change_config, write_vocab, user_error):
    arguments = ["--source", TF1 / "classifier", "--output_dir", tmp_path / "m"]
    arguments += ["--labels", "x", "y", "z", "--ignore", "q.*", "--vocab_file", write_vocab(tmp_path / "words")]
    commands.convert_google(parse("convert google", *arguments))
    assert AutoConfig.from_pretrained(tmp_path / "m").id2label == {0: "x", 1: "y", 2: "z"}
    change_config(tmp_path / "m", hidden_act="gelu")
    arguments = ["--model", tmp_path / "m", "--output", tmp_path / "out" / "x"]
    with user_error("--allow_other_activation"):
        commands.convert_to_google(parse("convert to-google", *arguments))
    arguments.append("--allow_other_activation")
    assert commands.convert_to_google(parse("convert to-google", *arguments)).verification.ok


CARD = """---
tags:
- mybert
- mybert-like
---

# tuned

Mine: MyBertModel and mybert stay here, as does model='other'.

| Architecture | MyBertForSequenceClassification |
| Model type | mybert |

![Training curves](training_curves.png)

import mybert  # on the Hub it runs without as well: pipeline(..., trust_remote_code=True)
from transformers import pipeline

run = pipeline('text-classification', model={path!r})
"""
CARD_OF_BERT = (
    CARD.replace("- mybert\n", "- bert\n")
    .replace("# tuned", "# plain")
    .replace("| MyBertFor", "| BertFor")
    .replace("| mybert |", "| bert |")
    .replace("import mybert  # on the Hub it runs without as well: pipeline(..., trust_remote_code=True)\n", "")
)


def test_the_card_of_a_bert_folder_describes_that_folder(tmp_path, save_model):
    tuned, plain, back = (str(tmp_path / name) for name in ("tuned", "plain", "back"))
    save_model(tmp_path / "tuned", "sequence-classification")
    (tmp_path / "tuned" / "README.md").write_text(CARD.format(path=tuned))
    for name in ("training_curves.png", "attention.png"):  # the card names one of them
        (tmp_path / "tuned" / name).write_bytes(b"picture")
    commands.convert_to_bert(parse("convert to-bert", "--model", tuned, "--output_dir", plain))
    assert (tmp_path / "plain" / "README.md").read_text() == CARD_OF_BERT.format(path=plain)
    commands.convert_bert(parse("convert bert", "--model", plain, "--output_dir", back))
    there_again = CARD.format(path=back).replace("# tuned", "# back")
    assert (tmp_path / "back" / "README.md").read_text() == there_again
    assert [path.name for path in (tmp_path / "back").glob("*.png")] == ["training_curves.png"]
    card = tmp_path / "plain" / "README.md"
    own = CARD_OF_BERT.format(path=plain).replace("from tr", "import mybert\nfrom tr")  # one of mybert's pipelines
    card.write_text(own + "\n    BertModel.from_pretrained('bert-base-uncased')  # its owner's\n")
    commands.convert_bert(parse("convert bert", "--model", plain, "--output_dir", str(tmp_path / "again")))
    again = (tmp_path / "again" / "README.md").read_text()
    assert again.count("import mybert") == 1
    assert "    BertModel.from_pretrained('bert-base-uncased')  # its owner's\n" in again
