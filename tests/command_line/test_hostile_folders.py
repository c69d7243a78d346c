"""Model folders that are broken, or hold code and pickles where a library might run them, given to every command."""

import builtins
import contextlib
import json
import pickle
import re
import shutil

import pytest
import torch
from transformers import AutoTokenizer, BertForPreTraining, BertForSequenceClassification

import mybert
from mybert import cli

SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 128, "hidden_act": "gelu_pytorch_tanh"}
TASKS = {
    "fill-mask": "AutoModelForMaskedLM",
    "next-sentence-prediction": "AutoModelForNextSentencePrediction",
    "text-classification": "AutoModelForSequenceClassification",
    "feature-extraction": "AutoModel",
}
AUTO_CLASSES = ("AutoConfig", "AutoModelForPreTraining", *TASKS.values())
# Commands that read no model folder.
WITHOUT_MODEL = {"completion", "demo", "vocab", "ablation", "convert google"}
ONE_STEP = "--output_dir out --max_steps 1 --per_device_train_batch_size 2 --use_cpu"
ON_TEXT = f"{ONE_STEP} --max_length 32 --num_processes 1"
# Every other command, on the folder `model`.
COMMANDS = {
    "adapt": f"model text.txt --validation_split 0.2 {ON_TEXT}",
    "attention": "model the cat --output out.png",
    "bench": "model dev.tsv --task sst2 --num_sentences 2 --repeats 1 --output out.md",
    "card": "model --overwrite",
    "compare": "model model --data dev.tsv --task sst2 --output out.tsv --use_cpu",
    "convert bert": "model out",
    "convert onnx": "model out",
    "convert openvino": "model out",
    "convert to-bert": "model out",
    "convert to-google": "model out/model.ckpt",
    "curves": "model --output out.png",
    "data": "text.txt --tokenizer model --output out.safetensors",
    "distill": f"model --student model --task sst2 --train_file dev.tsv {ONE_STEP}",
    "evaluate": "dev.tsv --model model --task sst2 --output out.json",
    "features": "text.txt --model model --output out.jsonl",
    "finetune": f"model --task sst2 --train_file dev.tsv --validation_file dev.tsv {ONE_STEP}",
    "glue": "model --suite suite.yaml --data_dir . --output_dir out",
    "predict": "model dev.tsv --task sst2 --output out.jsonl",
    "pretrain": f"text.txt --model model --validation_split 0 {ON_TEXT}",
    "push": "model owner/name --output_dir out",
    "score": "model text.txt --output out.jsonl --use_cpu",
}
WITHOUT_WEIGHTS = {"curves", "data"}
TAKES_LONG = {("bert", name) for name in ("adapt", "distill", "finetune", "glue", "pretrain")}
TAKES_LONG |= {
    (kind, name) for kind in ("bert", "mybert") for name in ("bench", "compare", "convert onnx", "convert openvino")
}


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_model):
    """(Model type, whether it is a classifier) -> a folder that is as it should be."""
    return {
        kind: tiny_model(tmp_path_factory.mktemp("folders"), model_class, **SIZES)
        for kind, model_class in {
            ("mybert", False): mybert.MyBertForPreTraining,
            ("mybert", True): mybert.MyBertForSequenceClassification,
            ("bert", False): BertForPreTraining,
            ("bert", True): BertForSequenceClassification,
        }.items()
    }


@pytest.fixture
def desk(tmp_path, monkeypatch, text_file):
    """The working directory, with data; fails if a command asks a question."""
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\n" + "the cat sat\t1\na dog ate\t0\n" * 2)
    files = (
        "train_file: dev.tsv, validation_file: dev.tsv, max_steps: 1, per_device_train_batch_size: 2, use_cpu: true"
    )
    (tmp_path / "suite.yaml").write_text(f"tasks: {{sst2: {{{files}}}}}")
    asked = []
    monkeypatch.setattr(builtins, "input", lambda *prompt: asked.append(prompt) or "y")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not asked


def run(command):
    return cli.main([*command.split(), *COMMANDS[command].split(), "--quiet"])


def test_every_command_is_tried():
    assert COMMANDS.keys() | WITHOUT_MODEL == cli.COMMANDS.keys()


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
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"curves"}))
def test_one_sentence_and_nothing_written(command, way, folders, desk, capsys):
    if command in WITHOUT_WEIGHTS and way in BROKEN_MODELS:
        pytest.skip("the command reads no model")
    model = shutil.copytree(folders["mybert", True], desk / "model")
    (BROKEN_MODELS | BROKEN_TOKENIZERS)[way](model)
    before = sorted(path.name for path in model.iterdir())
    capsys.readouterr()
    assert run(command) == 2
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mybert ")]
    assert len(said) == 1 and 20 < len(said[0]) < 600, said
    assert not [path.name for path in desk.iterdir() if path.name.startswith(("out", ".out"))]
    assert sorted(path.name for path in model.iterdir()) == before


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"curves"} - {*WITHOUT_WEIGHTS}))
def test_an_adapter_in_place_of_a_model_is_named(command, folders, desk, capsys):
    model = shutil.copytree(folders["mybert", True], desk / "model")
    (model / "config.json").unlink()
    (model / "model.safetensors").rename(model / "adapter_model.safetensors")
    (model / "adapter_config.json").write_text('{"base_model_name_or_path": "a/base"}')
    assert run(command) == 2
    assert "model holds a PEFT adapter of 'a/base'; expected a model." in capsys.readouterr().err
    assert not [path.name for path in desk.iterdir() if path.name.startswith(("out", ".out"))]


def without_tokenizer(folder):
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt"):
        (folder / name).unlink()


def only_settings(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").unlink()


def other_name(folder):
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").rename(folder / "my-words.txt")


def changed_vocabulary(change):
    def apply(folder):
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        change(tokenizer["model"]["vocab"])
        path.write_text(json.dumps(tokenizer))

    return apply


FOREIGN_TOKENIZERS = {
    "no tokenizer": (without_tokenizer, r"model holds (neither|no) tokenizer\.json"),
    "settings alone": (only_settings, r"model holds (neither|no) tokenizer\.json"),
    "vocabulary of another name": (other_name, r"my-words\.txt looks like its vocabulary: rename it to vocab\.txt"),
    "more tokens than embeddings": (
        changed_vocabulary(lambda pieces: pieces.update(more=len(pieces))),
        r"has the id \d+ \(more\), and the model \d+ word embeddings",
    ),
    "no special tokens": (
        changed_vocabulary(lambda pieces: pieces.update({"[first]": pieces.pop("[CLS]"), "[x]": pieces.pop("[UNK]")})),
        r"lacks the special tokens \[\w+\], \[\w+\]",
    ),
}


@pytest.mark.parametrize("kind", ["bert", pytest.param("mybert", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "way", [way if way == "no tokenizer" else pytest.param(way, marks=pytest.mark.slow) for way in FOREIGN_TOKENIZERS]
)
@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"curves"}))
def test_case_01_a_tokenizer_that_does_not_belong_to_the_model_is_an_error(command, way, kind, folders, desk, capsys):
    if command == "push" and (kind == "bert" or way == "vocabulary of another name"):
        pytest.skip("another error comes first")
    if command == "data" and way == "more tokens than embeddings":
        pytest.skip("the command reads no model")
    model = shutil.copytree(folders[kind, True], desk / "model")
    spoil, message = FOREIGN_TOKENIZERS[way]
    spoil(model)
    before = sorted(path.name for path in model.iterdir())
    capsys.readouterr()
    assert run(command) == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("mybert ")]
    assert re.search(message, said), said
    assert not [path.name for path in desk.iterdir() if path.name.startswith(("out", ".out"))]
    assert sorted(path.name for path in model.iterdir()) == before


@pytest.mark.parametrize("command", sorted(COMMANDS.keys() - {"card", "glue"}))
def test_an_output_that_is_there_is_not_replaced(command, folders, desk, capsys):
    """Of these, `card` is called to overwrite, and `glue` writes next to other files."""
    shutil.copytree(folders["mybert", True], desk / "model")
    place = desk / next(word for word in COMMANDS[command].split() if word.startswith("out"))
    mine = place if place.suffix else place / "thesis.tex"
    mine = mine.with_name("model.ckpt.index") if mine.suffix == ".ckpt" else mine
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    before = sorted(desk.rglob("*"))
    assert run(command) == 2
    assert re.search(rf"{re.escape(place.stem)}\S* (exists|holds)", capsys.readouterr().err)
    assert mine.read_text() == "mine" and sorted(desk.rglob("*")) == before


@pytest.mark.parametrize(
    "command",
    [
        "vocab s3://b/x --output_dir out",
        "vocab texts.txt --output_dir s3://b/x",
        "data texts.txt --tokenizer MODEL --output s3://b/x",
        "data texts.txt --tokenizer s3://b/x --output out",
        "pretrain --token_store s3://b/x --tokenizer MODEL --output_dir out",
        "pretrain --token_store texts.txt --output_dir s3://b/x",
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
        "convert google s3://b/x --output_dir out",
        "convert bert s3://b/x --output_dir out",
        "convert bert MODEL --output_dir s3://b/x",
        "convert to-bert s3://b/x --output_dir out",
        "convert onnx s3://b/x --output_dir out",
        "card s3://b/x",
        "push s3://b/x owner/name",
        "attention s3://b/x hello",
        "attention MODEL hello --output s3://b/x.png",
        "curves s3://b/x",
        "bench MODEL texts.tsv --output s3://b/x",
        "bench MODEL s3://b/x",
        "bench s3://b/x texts.tsv",
    ],
)
def test_an_address_is_called_one(command, folders, tmp_path, monkeypatch, capsys):
    """URLs, such as of object stores, are rejected for every input and output; no folder of that name is created."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text("the cat sat\n\na dog ran\n")
    (tmp_path / "texts.tsv").write_text("sentence\tlabel\nthe cat sat\t1\na dog ran\t0\n")
    assert cli.main([str(folders["mybert", True]) if word == "MODEL" else word for word in command.split()]) == 2
    assert "s3://b/x" in (said := capsys.readouterr().err) and " is an address; expected a" in said
    assert {path.name for path in tmp_path.iterdir()} == {"texts.txt", "texts.tsv"}


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def plant(folder, mark):
    """Put code and pickles that leave a mark into a model folder."""
    bomb = f"open({str(mark)!r}, 'w').write(__file__)\n"
    classes = "from transformers import BertConfig, BertTokenizer\n" + "".join(
        f"class Evil{name}(BertConfig):\n    model_type = 'evil'\n" for name in AUTO_CLASSES
    )
    for name in ("modeling_evil", "pipeline_evil", "tokenization_evil", "generate", "conftest", "__init__"):
        (folder / f"{name}.py").write_text(bomb + classes + "class EvilTokenizer(BertTokenizer): pass\n")
    (folder / "custom_generate").mkdir()
    (folder / "custom_generate" / "generate.py").write_text(bomb)
    for name in ("pytorch_model.bin", "training_args.bin", "optimizer.pt", "scheduler.pt", "adapter_model.bin"):
        torch.save({"weight": Bomb(mark)}, folder / name)
    (folder / "rng_state.pth").write_bytes(pickle.dumps(Bomb(mark)))

    def change(file, **fields):
        content = json.loads((folder / file).read_text()) if (folder / file).exists() else {}
        (folder / file).write_text(json.dumps(content | fields))

    change(
        "config.json",
        auto_map={name: f"modeling_evil.Evil{name}" for name in AUTO_CLASSES},
        custom_pipelines={
            task: {"impl": "pipeline_evil.EvilPipeline", "pt": [auto_class], "type": "text"}
            for task, auto_class in TASKS.items()
        },
    )
    change("tokenizer_config.json", auto_map={"AutoTokenizer": ["tokenization_evil.EvilTokenizer"] * 2})
    change("generation_config.json", custom_generate="custom_generate")
    (folder / "README.md").write_text(f"# Evil\n\n```python\nopen({str(mark)!r}, 'w')\n```\n")
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 1, "loss": 1.0}]}))


@pytest.mark.parametrize(
    ("kind", "command"),
    [
        pytest.param(kind, name, marks=[pytest.mark.slow] if (kind, name) in TAKES_LONG else [])
        for kind in ("mybert", "bert", "evil", "pickled")
        for name in COMMANDS
    ],
)
def test_no_command_runs_what_a_model_folder_holds(kind, command, folders, desk, capsys):
    mark = desk / "mark"
    of_tasks = ("bench", "compare", "distill", "evaluate", "finetune", "glue", "predict")
    folder = folders["bert" if kind == "bert" else "mybert", command in of_tasks]
    model = shutil.copytree(folder, desk / "model")
    plant(model, mark)
    if kind == "evil":  # a model type that only the folder's code knows
        change(model_type="evil")(model)
    if kind == "pickled":
        (model / "model.safetensors").unlink()
    status = run(command)
    assert not mark.exists()
    error = capsys.readouterr().err.splitlines()
    refused = status == 2 and error[-1].startswith(f"mybert {command}: ") and len(error[-1]) < 500
    if kind == "mybert":
        assert status == 0, error
    elif kind in ("evil", "pickled") and command not in WITHOUT_WEIGHTS:
        assert refused, error
    else:
        assert status == 0 or refused, error


def test_the_mark_is_left_by_whoever_trusts(folders, desk):
    """The malicious folder really runs its code if trusted: the tests above are not vacuous."""
    model, mark = shutil.copytree(folders["mybert", False], desk / "model"), desk / "mark"
    plant(model, mark)
    with contextlib.suppress(Exception):
        AutoTokenizer.from_pretrained(model, trust_remote_code=True)
    assert mark.exists()
    mark.unlink()
    torch.load(model / "pytorch_model.bin", weights_only=False)
    assert mark.exists()
