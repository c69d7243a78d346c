"""A model folder with code and pickles in every place where a library might run them, given to every command."""

import builtins
import contextlib
import json
import pickle
import shutil

import pytest
import torch
from transformers import AutoTokenizer, BertForPreTraining, BertForSequenceClassification

import mybert
from mybert import cli

SIZES = {"num_hidden_layers": 2, "max_position_embeddings": 128, "hidden_act": "gelu_pytorch_tanh"}
LABELS = dict(enumerate(("entailment", "not_entailment")))
TASKS = {
    "fill-mask": "AutoModelForMaskedLM",
    "next-sentence-prediction": "AutoModelForNextSentencePrediction",
    "text-classification": "AutoModelForSequenceClassification",
    "feature-extraction": "AutoModel",
}
AUTO_CLASSES = ("AutoConfig", "AutoModelForPreTraining", *TASKS.values())
# Commands that read no model folder.
WITHOUT_MODEL = {"completion", "demo", "vocab", "ablation", "bench", "convert google"}
# Every other command, on the folder `model` next to a text, GLUE's RTE and a results file.
COMMANDS = {
    "card": "card {model} --overwrite",
    "push": "push {model} owner/name --output_dir out",
    "attention": "attention {model} the_cat --output out.html",
    "curves": "curves {model} --output out.png",
    "convert to-google": "convert to-google {model} out/bert.ckpt",
    "convert bert": "convert bert {model} out",
    "convert to-bert": "convert to-bert {model} out",
    "convert onnx": "convert onnx {model} out",
    "distill": "distill {model} --student {model} --task rte --train_file dev.tsv --output_dir out --max_steps 1 "
    "--per_device_train_batch_size 2 --use_cpu",
    "evaluate": "evaluate --task rte --model {model} --data dev.tsv --output out.json",
    "finetune": "finetune {model} --task rte --train_file dev.tsv --validation_file dev.tsv --output_dir out "
    "--max_steps 1 --per_device_train_batch_size 2 --use_cpu",
    "glue": "glue {model} --suite suite.yaml --data_dir . --output_dir out",
    "predict": "predict {model} dev.tsv --task rte --output out.jsonl",
    "prune": "prune {model} dev.tsv --task rte --keep_layers 1 --output_dir out --use_cpu",
    "features": "features text.txt --model {model} --output out.jsonl",
    "data": "data text.txt --tokenizer {model} --output out.safetensors",
    "adapt": "adapt {model} text.txt --output_dir out --max_steps 1 --max_length 32 --per_device_train_batch_size 2 "
    "--heldout 0.2 --num_processes 1 --use_cpu",
    "pretrain": "pretrain text.txt --tokenizer {model} --model {model} --output_dir out --max_steps 1 --heldout 0 "
    "--max_length 32 --per_device_train_batch_size 2 --use_cpu",
}
# Commands that read no weights.
WITHOUT_WEIGHTS = {"curves", "data"}


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


@pytest.fixture(scope="module")
def folders(tmp_path_factory, tiny_model):
    """(Model type, whether it is a classifier) -> a folder without code."""
    return {
        kind: tiny_model(tmp_path_factory.mktemp("folders"), model_class, id2label=LABELS, **SIZES)
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
    rows = "".join(f"{i}\tthe cat sat\tit was happy\t{('not_' * (i % 2))}entailment\n" for i in range(4))
    (tmp_path / "dev.tsv").write_text("index\tsentence1\tsentence2\tlabel\n" + rows)
    files = (
        "train_file: dev.tsv, validation_file: dev.tsv, max_steps: 1, per_device_train_batch_size: 2, use_cpu: true"
    )
    (tmp_path / "suite.yaml").write_text(f"tasks: {{rte: {{{files}}}}}")
    asked = []
    monkeypatch.setattr(builtins, "input", lambda *prompt: asked.append(prompt) or "y")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    assert not asked


def test_every_command_is_tried():
    assert COMMANDS.keys() | WITHOUT_MODEL == cli.COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", ["mybert", "bert", "evil", "pickled"])
def test_no_command_runs_what_a_model_folder_holds(kind, command, folders, desk, capsys):
    mark = desk / "mark"
    of_tasks = ("distill", "evaluate", "finetune", "glue", "predict", "prune")
    folder = folders["bert" if kind == "bert" else "mybert", command in of_tasks]
    model = shutil.copytree(folder, desk / "model")
    plant(model, mark)
    if kind == "evil":  # a model type that only the folder's code knows
        config = json.loads((model / "config.json").read_text())
        (model / "config.json").write_text(json.dumps(config | {"model_type": "evil"}))
    if kind == "pickled":
        (model / "model.safetensors").unlink()
    status = cli.main([word.replace("_cat", " cat") for word in COMMANDS[command].format(model=model).split()])
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
