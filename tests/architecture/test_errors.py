"""Errors about options have a type, so that no pattern has to look for options in messages."""

import ast
import re
from collections import defaultdict
from pathlib import Path
from string import Formatter

from mybert.command_line import COMMANDS
from mybert.files.options import options_of

ROOT = Path(__file__).resolve().parents[2]
# Their functions have arguments of these names, and no options.
WITHOUT_OPTIONS = ("modeling_mybert", "metrics", "conversion/tensorflow", "benchmarks")
OPTIONS = {name for command in COMMANDS.values() for name in options_of(command.load_settings())}


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
                if first in OPTIONS and rest:
                    plain.append(f"{path}:{call.lineno}: {first} {rest}")
    assert not plain, "these are raised as `SettingError`: " + "\n".join(plain)


def test_command_line_has_patterns_for_messages_of_argparse_only():
    functions = defaultdict(list)
    for path in sorted((ROOT / "command_line").glob("*.py")):
        for part in ast.parse(path.read_text(encoding="utf-8")).body:
            uses = [node for node in ast.walk(part) if isinstance(node, ast.Name) and node.id in ("re", "_QUOTED")]
            if uses:
                functions[path.stem].append(getattr(part, "name", "a constant"))
    assert functions == {"closings": ["a constant", "shell_lines"], "flags": ["_in_words"]}


def test_worded_has_a_value_for_each_of_its_places(trees):
    """Only an error that occurs would show it."""
    for path, tree in trees.items():
        for call in ast.walk(tree):
            is_wording = isinstance(call, ast.Call) and re.fullmatch(r"(\w+\.)?worded", ast.unparse(call.func))
            if is_wording and all(isinstance(each, ast.Constant) for each in call.args[:1]):
                template, *values = call.args
                fields = [field for _, field, _, _ in Formatter().parse(template.value) if field is not None]
                places = sum(field == "" or field.endswith("=") for field in fields)
                assert places == len(values) or any(isinstance(each, ast.Starred) for each in values), (
                    path,
                    call.lineno,
                )
                options = [field.partition("=")[0] for field in fields if field]
                known = {*OPTIONS, "max_seq_len", "max_question_len"}  # of a pipeline
                assert known.issuperset(options), (path, call.lineno, options)
