"""The picture of the architecture is the one that the code gives, and so are the floors that the page names."""

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


def test_the_page_names_the_same_floors(drawing):
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (\d) \| `(\w+)/`", page, re.MULTILINE)
    assert len(rows) >= 13
    assert {room: int(number) for number, room in rows} == {room: drawing.floor(room) for _, room in rows}


def test_what_follows_is_left_out(drawing):
    pairs = drawing.arrows(["finetuning", "hub_card"])
    assert ("hub_card", "modeling_mybert") in pairs
    assert "modeling_mybert" in drawing.imports("finetuning") and ("finetuning", "modeling_mybert") not in pairs
