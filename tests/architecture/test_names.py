"""One word for one thing: no two classes or functions of one name in the whole package; files that can be read."""

import ast
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for subpackage in ROOT.glob("*/__init__.py")
    for path in subpackage.parent.rglob("*.py")
    if path.parent == subpackage.parent or (path.parent / "__init__.py").exists()
)
LONGEST = 600  # lines
SCRIPTS = {"main"}  # what `python -m mybert.benchmarks.scripts.NAME` runs


def public_names(path: Path) -> set[str]:
    """Classes and functions at the top of a file."""
    nodes = ast.parse(path.read_text(encoding="utf-8")).body
    definitions = [node for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)]
    return {node.name for node in definitions if not node.name.startswith("_")}


def doubled(names_of: Callable[[Path], set[str]], allowed: set[str]) -> dict[str, list[str]]:
    """Name -> files, for names in several files."""
    found = defaultdict(list)
    for path in FILES:
        for name in names_of(path) - allowed:
            found[name].append(str(path.relative_to(ROOT)))
    return {name: files for name, files in found.items() if len(files) > 1}


def test_no_name_stands_for_two_things():
    assert not doubled(public_names, SCRIPTS)


def test_the_label_that_counts_nowhere_is_stated_once():
    stated = [
        str(path.relative_to(ROOT))
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and ast.unparse(node) == "-100"
    ]
    assert stated == ["modeling_mybert/losses_mybert.py"]


def test_no_file_is_longer_than_it_can_be_read():
    files = [*FILES, *ROOT.glob("*.py")]
    lengths = {str(path.relative_to(ROOT)): len(path.read_text(encoding="utf-8").splitlines()) for path in files}
    assert not {name: length for name, length in lengths.items() if length > LONGEST}
