"""Errors about options have a type, so that no pattern has to look for options in messages."""

import ast
from collections import defaultdict
from pathlib import Path

from mybert.command_line.option_table import table

ROOT = Path(__file__).resolve().parents[2]
# Their functions have arguments of these names, and no options.
WITHOUT_OPTIONS = ("modeling_mybert", "metrics", "conversion/tensorflow", "benchmarks")


def text_of(node: ast.expr) -> str:
    """The constant text of a message; values are "{}"."""
    if isinstance(node, ast.JoinedStr):
        return "".join(map(text_of, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else "{}"


def test_errors_that_begin_with_an_option_are_setting_errors(trees):
    plain = []
    for path, tree in trees.items():
        if path.as_posix().startswith(WITHOUT_OPTIONS):
            continue
        for call in ast.walk(tree):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "ValueError" and call.args:
                first, _, rest = text_of(call.args[0]).partition(" ")
                if first in table()["options"] and rest:
                    plain.append(f"{path}:{call.lineno}: {first} {rest}")
    assert not plain, "these are raised as `SettingError`: " + "\n".join(plain)


def test_command_line_has_patterns_for_messages_of_argparse_only():
    functions = defaultdict(list)
    for path in sorted((ROOT / "command_line").glob("*.py")):
        for part in ast.parse(path.read_text(encoding="utf-8")).body:
            uses = [node for node in ast.walk(part) if isinstance(node, ast.Name) and node.id in ("re", "_QUOTED")]
            if uses:
                functions[path.stem].append(getattr(part, "name", "a constant"))
    assert functions == {"console": ["a constant", "shell_lines"], "flags": ["_in_words"]}
