"""The commands and the Python of docs/visualization.md run, in their order."""

import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from mybert import MyBertConfig, MyBertForPreTraining
from mybert.cli import main

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "visualization.md").read_text(encoding="utf-8")
PIECES = re.findall(r"^    (mybert [^\n]*)$|^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def demo_output(tmp_path, monkeypatch, tokenizer):
    """A folder like the demo's, with an untrained model."""
    pytest.importorskip("matplotlib", reason="PNG pictures need matplotlib")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 16}
    folder = tmp_path / "demo_output" / "pretrained"
    MyBertForPreTraining(MyBertConfig(vocab_size=len(tokenizer), **sizes)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    (folder / "trainer_state.json").write_text('{"log_history": [{"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]}')
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_commands_and_snippets_run(demo_output):
    assert sum(bool(command) for command, _ in PIECES) == 6 and len(PIECES) == 9
    names, outputs = {}, {"attention.html"}
    for command, snippet in PIECES:
        if command:
            arguments = shlex.split(command)[1:]
            assert not main(arguments)
            outputs |= {value for option, value in pairwise(arguments) if option == "--output"}
        else:
            exec(compile(snippet, "docs/visualization.md", "exec"), names)
            outputs |= set(re.findall(r'"(\w+\.(?:html|png))"', snippet))
    assert names["attention"].weights.shape[:2] == (2, 2)
    written = {path.name for path in demo_output.iterdir()} - {"demo_output"}
    assert written == outputs and len(written) == 7


def test_pictures_are_there_and_small():
    pictures = re.findall(r"\]\((images/.*?)\)", PAGE)
    assert len(pictures) == 2
    for picture in pictures:
        assert 0 < (DOCS / picture).stat().st_size < 300_000
