"""Wherever transformers could run code or unpickle weights of a model folder it is told not to."""

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(path for subpackage in ROOT.glob("*/__init__.py") for path in subpackage.parent.rglob("*.py"))
LOADERS = ("AutoConfig", "AutoTokenizer", "AutoModel", "auto_class")


def calls(path):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "from_pretrained":
            yield node, ast.unparse(node.func.value)


def test_auto_classes_trust_no_remote_code():
    careless = []
    for path in FILES:
        for node, loader in calls(path):
            if loader.removeprefix("transformers.").startswith(LOADERS):
                given = {keyword.arg for keyword in node.keywords}  # None is ** of a dictionary
                if not given & {"trust_remote_code", None}:
                    careless.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not careless


def test_remote_code_is_never_trusted_nor_anything_unpickled():
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "weights_only"):
                expected = node.arg == "weights_only"
                assert isinstance(node.value, ast.Constant) and node.value.value is expected, f"{path}:{node.lineno}"
            if isinstance(node, ast.Call):
                name = ast.unparse(node.func)
                assert name not in ("torch.load", "pickle.load", "pickle.loads", "yaml.load", "evaluate.load"), (
                    f"{path}:{node.lineno}"
                )
