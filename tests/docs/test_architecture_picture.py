"""The page on the architecture: its picture matches the code, and the functions it names exist."""

import ast
import importlib.util
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def drawing():
    spec = importlib.util.spec_from_file_location("draw_architecture", ROOT / "docs" / "draw_architecture.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_picture_is_up_to_date(drawing):
    assert drawing.PICTURE.read_text(encoding="utf-8") == drawing.draw(), "run python docs/draw_architecture.py"


def steps():
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    return re.findall(r"^\| `([\w/]+\.py)` \| `([\w.]+)` \|", page, re.MULTILINE)


def test_there_are_three_walks():
    assert len(steps()) > 15


@pytest.mark.parametrize(("file", "name"), steps())
def test_the_steps_of_a_walk_exist(file, name):
    nodes = ast.parse((ROOT / file).read_text(encoding="utf-8")).body
    for part in name.split("."):
        (found,) = (node for node in nodes if getattr(node, "name", None) == part)
        nodes = found.body


def test_drawing_leaves_out_implied_arrows(drawing):
    assert "pipelines" in drawing.arrows("cards")
    assert "modeling_mybert" in drawing.imports("finetuning").difference(drawing.arrows("finetuning"))
