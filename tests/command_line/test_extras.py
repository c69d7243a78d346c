"""Without an optional package, what needs it says in one sentence what to install, before it works for nothing."""

import re
import sys
from importlib.metadata import requires

import pytest

import mybert
from mybert import cli

ROWS = "text,label\nthe cat,yes\na dog,no\nthe dog,yes\na cat,no\n"
TRAINING = (
    "m --train_file dev.csv --validation_file test.csv --task classification --output_dir out --max_steps 1 --use_cpu"
)
# Package -> its extra, if it has one, the name under which it is imported, and a command that needs it.
CASES = {
    "datasets": ("train", "datasets", "data hf:owner/name --tokenizer m --output out.safetensors"),
    "scikit-learn": ("train", "sklearn", f"finetune {TRAINING}"),
    "scipy": ("train", "scipy", "compare c c --data dev.csv --output out.tsv --use_cpu"),
    "matplotlib": ("train", "matplotlib", "attention m the cat --output out.png"),
    "peft": ("peft", "peft", f"finetune {TRAINING} --lora"),
    "ftfy": ("corpus", "ftfy", "data text.txt --tokenizer m --output out.safetensors --clean mojibake"),
    "shtab": (None, "shtab", "completion bash"),
    "openpyxl": ("excel", "openpyxl", "predict c dev.csv --output out.xlsx --use_cpu"),
    "onnx": ("onnx", "onnx", "convert onnx c out"),
    "onnxruntime": ("onnx", "onnxruntime", "convert onnx c out"),
    "onnxscript": ("onnx", "onnxscript", "convert onnx c out"),
    "openvino": ("openvino", "openvino", "convert openvino c out"),
    "nncf": ("openvino", "nncf", "convert openvino c out --dtype int8 --data dev.csv"),
    "pyarrow": (None, "pyarrow", "predict c dev.csv --output out.parquet --use_cpu"),
    "zstandard": (None, "zstandard", "vocab text.txt.zst --output_dir out"),
}
OF_CALLS = {"evaluate"}  # `mybert.metrics.load` alone needs it
# Extras for programs around mybert, which import it, for tests and for pages.
OTHERS = {"ray", "spark", "peers", "docs", "dev"}


@pytest.fixture(scope="module")
def desk(tmp_path_factory, tiny_model):
    folder = tmp_path_factory.mktemp("extras")
    tiny_model(folder / "m")
    labels = ["no", "yes"]
    tiny_model(folder / "c", mybert.MyBertForSequenceClassification, labels=labels, task="classification")
    for name, content in {"dev.csv": ROWS, "test.csv": ROWS, "text.txt": "the cat\n" * 9, "text.txt.zst": "x"}.items():
        (folder / name).write_text(content)
    return folder


def hide(package, monkeypatch):
    """Let imports of a package fail, as if it were not installed."""
    loaded = [name for name in sys.modules if name.startswith(f"{package}.")]
    for name in [package, *loaded]:
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.parametrize("package", CASES)
def test_command_without_a_package_says_what_to_install(package, desk, monkeypatch, capsys):
    extra, module, command = CASES[package]
    monkeypatch.chdir(desk)
    there = sorted(desk.iterdir())
    hide(module, monkeypatch)
    assert cli.main([*command.split(), *(["--quiet"] if package != "shtab" else [])]) == 2
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert re.search(package, error, re.IGNORECASE), error
    step = f"run pip install '.[{extra}]' in the clone of mybert" if extra else f"pip install {package}"
    assert step in error and ".partial" not in error, error
    assert sorted(desk.iterdir()) == there


def test_every_optional_package_has_a_case():
    extras = {}
    for requirement in requires("mybert") or ():
        if match := re.match(r"([\w.-]+).*extra == ['\"](\w+)['\"]", requirement):
            extras.setdefault(match[2], set()).add(match[1])
    packages = set().union(*(packages for extra, packages in extras.items() if extra not in OTHERS))
    assert packages and packages <= CASES.keys() | OF_CALLS
