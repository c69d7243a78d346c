"""The pages of messages and of tested versions match the code, and the files that name versions."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
OF_TRANSFORMERS = {"At most one of fp16 and bf16 can be True, but not both"}


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def strings_of_the_package() -> str:
    """The literals, a line each; values that an f-string inserts are left out."""
    folders = {path.parent for path in ROOT.glob("*/__init__.py")}
    trees = [ast.parse(path.read_text(encoding="utf-8")) for folder in folders for path in folder.rglob("*.py")]
    nodes = [node for tree in trees for node in ast.walk(tree)]
    constants = [str(node.value) for node in nodes if isinstance(node, ast.Constant)]
    # Options in the templates of messages, as commands name them.
    return re.sub(r"\[( or pass )\{(\w+)=\w*\}\]", r"\1--\2", "\n".join(constants))


def test_troubleshooting_has_messages_of_the_package():
    messages = set(re.findall(r"^\| `(.+?)` \|", read("docs/troubleshooting.md"), re.MULTILINE)) - OF_TRANSFORMERS
    parts = {part.strip() for message in messages for part in message.split("...") if part.strip(" .,;:()")}
    assert len(messages) >= 15 and len(parts) > 25
    strings = strings_of_the_package()
    assert not [part for part in parts if part not in strings]


def test_tested_versions_are_those_of_the_files():
    rows = re.findall(
        r"^\| ([\w -]+) \| ([\d.]+) or newer[^|]* \| ([\d.]+)", read("docs/tested_versions.md"), re.MULTILINE
    )
    assert {"PyTorch", "transformers", "OpenVINO", "NNCF", "sentence-transformers"} < {name for name, *_ in rows}
    for name, lowest, tested in rows:
        package = {"PyTorch": "torch", "ONNX Runtime": "onnxruntime"}.get(name, name.lower())
        if name == "Python":
            assert f'requires-python = ">={lowest}"' in read("pyproject.toml")
        else:
            assert re.search(rf'"{package}>={re.escape(lowest)}[",]', read("pyproject.toml")), name
            assert re.search(
                rf"^{package}=={re.escape(tested)}(?:;.*>=.*)?$", read("constraints.txt"), re.MULTILINE
            ), name


def test_the_citation_names_the_version_of_the_package():
    (version,) = re.findall(r'^version = "(.+)"$', read("pyproject.toml"), re.MULTILINE)
    assert f"\nversion: {version}\n" in read("CITATION.cff")
