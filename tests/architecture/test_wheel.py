"""The built wheel, installed alone into an empty environment, imports and runs."""

import email
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

SCRIPT = """
import sys
from pathlib import Path
import mybert, torch
from transformers import AutoModel, AutoConfig
assert Path(mybert.__file__).is_relative_to(sys.prefix), mybert.__file__
from mybert import MyBertConfig, MyBertForPreTraining, MyBertTokenizer
from mybert.hub_card import CardContent, render_card
from mybert.pretraining import PretrainingDataset
tokenizer = MyBertTokenizer(vocab=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "hello", "world"])
config = MyBertConfig(vocab_size=7, hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
outputs = MyBertForPreTraining(config)(**tokenizer("hello", "world", return_tensors="pt"))
assert outputs.prediction_logits.shape == (1, 5, 7)
assert type(AutoModel.from_config(config)).__name__ == "MyBertModel"
assert "# name" in render_card(CardContent(name="name"))
print("works")
"""


def build_wheel(folder: Path, change: Callable[[Path], object] = lambda path: None) -> Path:
    """Build the wheel in a folder, from a copy of the files that may be changed one by one."""
    source = folder / "source"
    ignored = shutil.ignore_patterns(".*", "build", "dist", "*.egg-info", "__pycache__", "demo_output", "tests")
    shutil.copytree(ROOT, source, ignore=ignored)
    for path in source.rglob("*"):
        change(path)
    build = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-w", folder, source]
    subprocess.run(build, check=True, capture_output=True)
    (wheel,) = folder.glob("mybert-*.whl")
    shutil.rmtree(source)
    return wheel


def make_private_and_old(path: Path) -> None:
    path.chmod(0o700 if path.is_dir() else 0o600)
    os.utime(path, (1e9, 1e9))


@pytest.mark.slow
def test_wheel_built_twice_is_the_same_byte_for_byte(tmp_path):
    wheels = [build_wheel(tmp_path / "first"), build_wheel(tmp_path / "second", make_private_and_old)]
    assert wheels[0].read_bytes() == wheels[1].read_bytes()


@pytest.mark.slow
def test_wheel_works_alone(tmp_path):
    wheel = build_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as content:
        names = content.namelist()
        metadata = email.message_from_bytes(content.read(next(name for name in names if name.endswith("/METADATA"))))
    assert not {"mybert/setup.py", "setup.py"} & set(names)
    shipped = {"/".join(name.split("/")[:2]) for name in names if name.startswith("mybert/")}
    assert "mybert/studies" in shipped
    assert not {f"mybert/{name}" for name in ("benchmarks", "docs", "examples", "skills", "tests")} & shipped
    description = metadata.get_payload()
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert description.startswith("# mybert\n") and "## For you, or not" in description
    links = re.findall(r"\]\(([^)]*)\)", description)
    assert all(link.startswith("https://") for link in links), links

    environment = tmp_path / "environment"
    venv.create(environment, with_pip=True)
    python = environment / "bin" / "python"
    install = [python, "-m", "pip", "install", "--no-deps", "--no-index", str(wheel)]
    subprocess.run(install, check=True, capture_output=True)
    # The dependencies come from this environment, without the checkout that is installed in it.
    (site_packages,) = environment.glob("lib/python*/site-packages")
    dependencies = tmp_path / "dependencies"
    dependencies.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if "mybert" not in entry.name and entry.suffix != ".pth":
            (dependencies / entry.name).symlink_to(entry)
    (site_packages / "dependencies.pth").write_text(f"{dependencies}\n")

    def run(*command: object) -> subprocess.CompletedProcess[str]:
        alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        words = [str(part) for part in command]
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path, env=alone)

    result = run(python, "-c", SCRIPT)
    assert result.stdout == "works\n", result.stderr
    result = run(environment / "bin" / "mybert", "--version")
    assert result.stdout.startswith("mybert "), result.stderr
    result = run(environment / "bin" / "mybert", "pretrain", "missing.txt", "--output_dir", "out")
    assert result.returncode == 2
    assert result.stderr.strip().endswith("There is no file or folder missing.txt.")
    # Recipes are in the wheel, and are reached by name.
    recipes = {path.name for path in (ROOT / "pretraining" / "recipes").iterdir()}
    assert recipes == {path.name for path in (site_packages / "mybert" / "pretraining" / "recipes").iterdir()}
    for flags in (["--config", "base", "--model_size", "large"], ["--config", "two_phase"]):
        result = run(environment / "bin" / "mybert", "pretrain", "missing.txt", *flags, "--output_dir", "out")
        assert result.stderr.strip().endswith("There is no file or folder missing.txt."), result.stderr
