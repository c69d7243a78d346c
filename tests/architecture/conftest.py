"""The package's own Python files, parsed once."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def trees() -> dict[Path, ast.Module]:
    """Path below the root -> its syntax tree, for files of the root and of all subpackages."""
    files = [*ROOT.glob("*.py"), *(path for init in ROOT.glob("*/__init__.py") for path in init.parent.rglob("*.py"))]
    return {path.relative_to(ROOT): ast.parse(path.read_text(encoding="utf-8")) for path in sorted(files)}
