"""Every command reports a model folder broken in any of many ways in one sentence."""

import json
import shutil

import pytest
import torch

from mybert import MyBertForSequenceClassification, cli

# What a command is given: MODEL is the broken folder, OUT what it is to write.
COMMANDS = {
    "adapt": "MODEL TEXT --output_dir OUT --max_steps 1 --heldout 0.2 --use_cpu --num_processes 1",
    "attention": "MODEL 'the cat' --output OUT.html",
    "card": "MODEL",
    "convert bert": "MODEL OUT",
    "convert onnx": "MODEL OUT",
    "convert to-bert": "MODEL OUT",
    "convert to-google": "MODEL OUT/model.ckpt",
    "data": "TEXT --tokenizer MODEL --output OUT.safetensors",
    "distill": "MODEL --student tiny --task sst2 --train_file TASK --output_dir OUT --use_cpu",
    "evaluate": "TASK --model MODEL --task sst2 --output OUT.json",
    "features": "TEXT --model MODEL --output OUT.jsonl",
    "finetune": "MODEL --task sst2 --train_file TASK --validation_file TASK --output_dir OUT --use_cpu",
    "glue": "MODEL --suite SUITE --data_dir DATA --output_dir OUT",
    "predict": "MODEL TEXT --task sst2 --output OUT.jsonl",
    "pretrain": "TEXT --model MODEL --output_dir OUT --max_steps 1 --use_cpu --num_processes 1",
    "prune": "MODEL TASK --task sst2 --keep_layers 1 --output_dir OUT --use_cpu",
    "push": "MODEL me/model --output_dir OUT",
}
# Commands that read a part only.
READS_NO_TOKENIZER = {"convert bert", "convert onnx", "convert to-bert", "convert to-google"}
READS_NO_MODEL = {"data"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, tiny_model):
    return tiny_model(
        tmp_path_factory.mktemp("models") / "model", MyBertForSequenceClassification, num_hidden_layers=2
    )


def change(**fields):
    def apply(folder):
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | fields))

    return apply


def write(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def truncate(folder):
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])


def pickle_only(folder):
    (folder / "model.safetensors").unlink()
    torch.save({}, folder / "pytorch_model.bin")


BROKEN_MODELS = {
    "config is a list": write("config.json", b"[]"),
    "config is empty": write("config.json", b""),
    "config is nested": write("config.json", b"[" * 100_000),
    "config is no text": write("config.json", b"\xff\xfe{}"),
    "other vocabulary": change(vocab_size=7),
    "other width": change(hidden_size=32),
    "far too many layers": change(num_hidden_layers=10**9),
    "far too many words": change(vocab_size=10**12),
    "labels are no map": change(id2label=[1, 2]),
    "architectures is a number": change(architectures=3),
    "dtype is none": change(dtype="float33"),
    "weights are cut off": truncate,
    "weights are a pickle": pickle_only,
    "no weights": lambda folder: (folder / "model.safetensors").unlink(),
    "no config": lambda folder: (folder / "config.json").unlink(),
}
BROKEN_TOKENIZERS = {
    "tokenizer is a list": write("tokenizer.json", b"[]"),
    "tokenizer is empty": write("tokenizer.json", b""),
    "tokenizer is nested": write("tokenizer.json", b"[" * 100_000),
    "tokenizer's settings are a list": write("tokenizer_config.json", b"[]"),
}
QUICK = {"config is a list", "other width", "tokenizer is a list"}


@pytest.mark.parametrize(
    "way",
    [
        way if way in QUICK else pytest.param(way, marks=pytest.mark.slow)
        for way in (*BROKEN_MODELS, *BROKEN_TOKENIZERS)
    ],
)
@pytest.mark.parametrize("name", COMMANDS)
def test_one_sentence_and_nothing_written(name, way, whole, tmp_path, capsys, text_file):
    if (name in READS_NO_TOKENIZER and way in BROKEN_TOKENIZERS) or (name in READS_NO_MODEL and way in BROKEN_MODELS):
        pytest.skip("the command does not read it")
    model = tmp_path / "model"
    shutil.copytree(whole, model)
    (BROKEN_MODELS | BROKEN_TOKENIZERS)[way](model)
    before = sorted(path.name for path in model.iterdir())
    (tmp_path / "task.tsv").write_text("sentence\tlabel\n" + "the cat sat\t1\na dog ate\t0\n" * 4)
    files = "train_file: task.tsv, validation_file: task.tsv, max_steps: 1, use_cpu: true"
    (tmp_path / "suite.yaml").write_text(f"tasks: {{sst2: {{{files}}}}}")
    places = {"MODEL": model, "TEXT": text_file, "TASK": tmp_path / "task.tsv"}
    places |= {"SUITE": tmp_path / "suite.yaml", "DATA": tmp_path}
    flags = [str(places.get(word, word)) for word in COMMANDS[name].replace("'", "").split()]
    flags = [flag.replace("OUT", str(tmp_path / "out")) for flag in flags]
    capsys.readouterr()
    assert cli.main([*name.split(), *flags, "--quiet"]) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mybert ")]
    assert len(said) == 1 and 20 < len(said[0]) < 600, said
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(("out", ".out"))]
    assert sorted(path.name for path in model.iterdir()) == before


@pytest.mark.parametrize(
    "command",
    [
        "vocab s3://b/x --output_dir out",
        "vocab texts.txt --output_dir s3://b/x",
        "data texts.txt --tokenizer MODEL --output s3://b/x",
        "data texts.txt --tokenizer s3://b/x --output out",
        "pretrain --data s3://b/x --tokenizer MODEL --output_dir out",
        "pretrain --data texts.txt --output_dir s3://b/x",
        "finetune --task sst2 --data_dir s3://b/x --model MODEL --output_dir out",
        "finetune --task sst2 --train_file s3://b/x --model MODEL --output_dir out",
        "finetune --task sst2 --train_file texts.tsv --model s3://b/x --output_dir out",
        "finetune --task sst2 --train_file texts.tsv --model MODEL --output_dir s3://b/x",
        "finetune --config s3://b/x",
        "evaluate --task sst2 --model MODEL --data s3://b/x",
        "evaluate --task sst2 --model s3://b/x --data texts.tsv",
        "evaluate --task sst2 --model MODEL --data texts.tsv --report_dir s3://b/x",
        "evaluate --task sst2 --model MODEL --data texts.tsv --predictions_dir s3://b/x",
        "predict MODEL s3://b/x",
        "predict MODEL texts.tsv --output s3://b/x.csv",
        "predict s3://b/x texts.tsv",
        "features --model MODEL --text s3://b/x --output out.jsonl",
        "glue --model MODEL --data_dir s3://b/x --output_dir out",
        "prune s3://b/x texts.tsv",
        "prune MODEL s3://b/x",
        "convert google s3://b/x --output_dir out",
        "convert bert s3://b/x --output_dir out",
        "convert bert MODEL --output_dir s3://b/x",
        "convert to-bert s3://b/x --output_dir out",
        "convert onnx s3://b/x --output_dir out",
        "card s3://b/x",
        "push s3://b/x owner/name",
        "attention s3://b/x hello",
        "attention MODEL hello --output s3://b/x.html",
        "curves s3://b/x",
        "bench --output s3://b/x",
        "bench --sst2 s3://b/x",
    ],
)
def test_an_address_is_called_one(command, whole, tmp_path, monkeypatch, capsys):
    """URLs, such as of object stores, are rejected for every input and output; no folder of that name is created."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("the cat sat\n\na dog ran\n")
    (tmp_path / "texts.tsv").write_text("sentence\tlabel\nthe cat sat\t1\na dog ran\t0\n")
    assert cli.main([str(whole) if word == "MODEL" else word for word in command.split()]) == 2
    assert "s3://b/x" in (said := capsys.readouterr().err) and " is an address; expected a" in said
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", "texts.tsv"}
