"""A model folder with code and pickles in every place where a library might run them, given to every command."""

import builtins
import json
import pickle
import shutil
import subprocess
import sys

import pytest
import torch
from transformers import BertConfig, BertForPreTraining, BertForSequenceClassification

import mybert
from mybert import cli

SIZES = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32,
    "max_position_embeddings": 64,
}  # fmt: skip
TASKS = {
    "fill-mask": "AutoModelForMaskedLM",
    "next-sentence-prediction": "AutoModelForNextSentencePrediction",
    "text-classification": "AutoModelForSequenceClassification",
    "feature-extraction": "AutoModel",
}
AUTO_CLASSES = ("AutoConfig", "AutoModelForPreTraining", *TASKS.values())
# Commands that read no model folder.
WITHOUT_MODEL = {"demo", "vocab", "ablation", "bench", "convert google"}
# Every other command, on the folder `model` beside a text, GLUE's RTE and a results file.
COMMANDS = {
    "card": "card {model} --overwrite",
    "push": "push {model} owner/name --output_dir out",
    "attention": "attention {model} the_cat --output out.html",
    "curves": "curves {model} --output out.png",
    "convert to-google": "convert to-google {model} out/bert.ckpt",
    "convert bert": "convert bert {model} out",
    "convert to-bert": "convert to-bert {model} out",
    "convert onnx": "convert onnx {model} out",
    "evaluate": "evaluate --task rte --model {model} --data dev.tsv --output out.json",
    "finetune": "finetune {model} --task rte --train_file dev.tsv --validation_file dev.tsv --output_dir out "
    "--max_steps 1 --per_device_train_batch_size 2 --use_cpu",
    "features": "features {model} text.txt --output out.jsonl",
    "data": "data text.txt --tokenizer {model} --output out.safetensors",
    "pretrain": "pretrain text.txt --tokenizer {model} --model {model} --output_dir out --max_steps 1 --heldout 0 "
    "--max_length 32 --per_device_train_batch_size 2 --use_cpu",
}


class Bomb:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark):
        self.mark = mark

    def __reduce__(self):
        return open, (str(self.mark), "w")


def plant(folder, mark):
    """Put code and pickles that leave a mark into a model folder."""
    bomb = f"open({str(mark)!r}, 'w').write(__file__)\n"
    classes = "from transformers import *\n" + "".join(
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
    tag = f"!!python/object/apply:builtins.open [{str(mark)!r}, w]"
    (folder / "README.md").write_text(f"---\nlicense: {tag}\n---\n```python\nopen({str(mark)!r}, 'w')\n```\n")
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": [{"step": 1, "loss": 1.0}]}))


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tokenizer):
    """Kind of folder -> one without code."""
    made = {}
    for kind, model_class, config_class in (
        ("mybert", mybert.MyBertForPreTraining, mybert.MyBertConfig),
        ("classifier", mybert.MyBertForSequenceClassification, mybert.MyBertConfig),
        ("bert", BertForPreTraining, BertConfig),
        ("bert-classifier", BertForSequenceClassification, BertConfig),
    ):
        torch.manual_seed(0)
        made[kind] = tmp_path_factory.mktemp("folders") / kind
        model_class(config_class(vocab_size=len(tokenizer), **SIZES)).save_pretrained(made[kind])
        tokenizer.save_pretrained(made[kind])
    return made


@pytest.fixture
def desk(tmp_path, monkeypatch, documents):
    """The working directory, with data; nobody answers questions, and that none is asked is checked."""
    rows = "".join(f"{i}\tthe cat sat\tit was happy\t{('not_' * (i % 2))}entailment\n" for i in range(4))
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
    (tmp_path / "text.txt").write_text("\n\n".join("\n".join(document) for document in documents[:20]) + "\n")
    asked = []
    monkeypatch.setattr(builtins, "input", lambda *prompt: asked.append(prompt) or "y")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not asked


def test_every_command_is_tried():
    assert COMMANDS.keys() | WITHOUT_MODEL == cli.COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["mybert", "classifier", "bert", "bert-classifier", "evil", "pickled"])
def test_no_command_runs_what_a_model_folder_holds(kind, command, folders, desk, capsys):
    mark = desk / "mark"
    model = shutil.copytree(folders[kind if kind in folders else "mybert"], desk / "model")
    plant(model, mark)
    if kind == "evil":  # a model type that only the folder's code knows
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"model_type": "evil"}))
    if kind == "pickled":
        (model / "model.safetensors").unlink()
    status = cli.main([word.replace("_cat", " cat") for word in COMMANDS[command].format(model=model).split()])
    assert not mark.exists()
    error = capsys.readouterr().err.splitlines()
    fits = command in ("card", "attention", "curves") or (command == "data" and kind != "evil")
    if kind in ("mybert", "bert", "classifier", "bert-classifier") and fits:
        assert status == 0, error
    if kind in ("evil", "pickled") and command not in ("data", "curves", "card", "push"):
        assert status == 2 and len(error[-1]) < 500, error


def test_the_mark_is_left_by_whoever_trusts(folders, desk):
    """The folder of the tests above does what it threatens."""
    model, mark = shutil.copytree(folders["mybert"], desk / "model"), desk / "mark"
    plant(model, mark)
    script = (
        "import sys, torch\n"
        "from transformers import AutoConfig\n"
        "if sys.argv[2] == 'pickle':\n"
        "    torch.load(sys.argv[1] + '/pytorch_model.bin', weights_only=False)\n"
        "else:\n"
        "    AutoConfig.from_pretrained(sys.argv[1], trust_remote_code=True)\n"
    )
    for way in ("pickle", "code"):
        subprocess.run([sys.executable, "-c", script, str(model), way], capture_output=True)
        assert mark.exists(), way
        mark.unlink()
