"""The options of each command as a table, from which flags are made without the classes that declare them.

These classes import torch and transformers, which takes seconds of CPU. `options.json` holds what they declare; those
that they inherit, as one version of transformers has them. `python -m mybert.command_line.option_table` writes the
file, and with that version a test compares it with the classes.
"""

import functools
import json
from dataclasses import MISSING, Field, make_dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

from ..files.choices import choices_of
from ..files.errors import SettingError
from ..files.options import Group, Range, default_of, option, options_of, types_of
from ..files.settings import build
from .command_table import COMMANDS

OPTIONS_FILE = Path(__file__).with_name("options.json")
_KINDS: dict[str, type] = {"int": int, "number": float, "bool": bool, "text": str}
# Attributes of options that are declared as they are.
_PLAIN = ("needs", "excludes", "idle_with", "replaces", "why", "comes_last", "positional", "required", "reads")


def options_class(command: str) -> Any:
    """A dataclass with the options of a command that can be given, for flags, settings files and their checks."""
    shared, by_command = table()["options"], table()["commands"]
    if command in by_command:
        records = {name: shared[name] | own for name, own in by_command[command].items()}
    else:
        records = _records(COMMANDS[command].load()[0])
    declared: list[Any] = [(name, _type_of(record), _option_of(record)) for name, record in records.items()]
    namespace = {"choices": table()["choices"].get(command, {})}
    return make_dataclass("Options", declared, namespace=namespace, kw_only=True)


def arguments_of(arguments_class: Any, values: dict[str, Any]) -> Any:
    """An object of a command's class; a value that the installed version of transformers does not take is an error."""
    for name in values.keys() - options_of(arguments_class).keys():
        template = (
            "{:option} is set, but transformers {} has no such argument; leave it out, or install transformers {}."
        )
        raise SettingError.worded(template, name, version("transformers"), table()["transformers"])
    return build(arguments_class, values)


def is_as_transformers_has_it(declared: Field) -> bool:
    """Whether `TrainingArguments` has a field with the same help."""
    from transformers import TrainingArguments

    inherited = TrainingArguments.__dataclass_fields__.get(declared.name)
    return inherited is not None and inherited.metadata.get("help") == declared.metadata.get("help")


@functools.cache
def table() -> dict[str, Any]:
    """The content of the file."""
    content: dict[str, Any] = json.loads(OPTIONS_FILE.read_text(encoding="utf-8"))
    return content


def _records(arguments_class: type) -> dict[str, dict[str, Any]]:
    """What a class declares of its options, by name, as JSON values."""
    hints = types_of(arguments_class)
    return {name: _record(each, hints[name]) for name, each in options_of(arguments_class).items() if each.init}


def _record(declared: Field, hint: Any) -> dict[str, Any]:
    """What is declared of an option, without what has its usual value."""
    record: dict[str, Any] = _record_of_type(hint) | dict(declared.metadata)
    if (default := default_of(declared)) is not MISSING:
        record["default"] = getattr(default, "value", default)
    if is_as_transformers_has_it(declared):
        record["inherited"] = True
    for name in _PLAIN:
        if (value := getattr(declared, name, None)) is not None:
            record[name] = value
    if (group := getattr(declared, "group", None)) is not None:
        record["group"] = group.name
    if (limits := getattr(declared, "range", None)) is not None:
        record["range"] = [*limits]
    return json.loads(json.dumps(record, default=str))  # tuples become lists


def _record_of_type(hint: Any) -> dict[str, Any]:
    """The kind of an option's values; of several that a text may mean, the most special one."""
    parts = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    record: dict[str, Any] = {"nullable": True} if NoneType in parts else {}
    parts = [part for part in parts if part is not NoneType]
    special = [part for part in parts if part is bool or _values_of(part) or _values_of(*get_args(part)[:1])]
    kind = parts[0] if len(parts) == 1 else special[0] if special else str
    if get_origin(kind) is list:
        record["list"], kind = True, get_args(kind)[0]
    if get_origin(kind) is Literal:
        return record | {"kind": "text", "choices": list(get_args(kind))}
    if values := _values_of(kind):
        return record | {"kind": "text", "choices": values}
    return record | {"kind": next((name for name, each in _KINDS.items() if each is kind), "text")}


def _values_of(kind: Any = None) -> list[Any]:
    return [each.value for each in kind] if isinstance(kind, type) and issubclass(kind, Enum) else []


def _type_of(record: dict[str, Any]) -> Any:
    kind: Any = _KINDS[record["kind"]]
    if record.get("list"):
        kind = list[kind]
    elif record.get("choices"):
        kind = Literal[tuple(record["choices"])]
    return kind | None if record.get("nullable") else kind


def _option_of(record: dict[str, Any]) -> Any:
    attributes: dict[str, Any] = {name: record[name] for name in _PLAIN if name in record}
    if "range" in record:
        expected, least, most, excluded = record["range"]
        attributes["range"] = Range(expected, least, most, tuple(excluded))
    if "group" in record:
        attributes["group"] = Group[record["group"]]
    shown = {name: record[name] for name in ("choices", "nargs", "const", "metavar", "inherited") if name in record}
    return option(record.get("default", MISSING), record.get("help"), **attributes, **shown)


def current_table() -> dict[str, Any]:
    """The table that the classes of all commands make: the usual record of each option, and what commands change."""
    by_command = {name: _records(command.load()[0]) for name, command in COMMANDS.items()}
    usual: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(name for records in by_command.values() for name in records):
        records = [records[name] for records in by_command.values() if name in records]
        # What a command adds is in its own record; nothing of the usual one can be taken away.
        common = {key: value for key, value in records[0].items() if all(key in record for record in records)}
        usual[name] = {key: max((r[key] for r in records), key=[r[key] for r in records].count) for key in common}
    own = {
        command: {
            name: {key: value for key, value in record.items() if usual[name].get(key, MISSING) != value}
            for name, record in records.items()
        }
        for command, records in by_command.items()
    }
    choices = {name: choices_of(command.load()[0]) for name, command in COMMANDS.items()}
    return {
        "transformers": version("transformers"),
        "options": usual,
        "choices": {name: found for name, found in choices.items() if found},
        "commands": own,
    }


def table_text() -> str:
    """The content of the file: an option in each line."""
    content = current_table()
    lines = [f'{{"transformers": {json.dumps(content["transformers"])},', ' "options": {', _lines(content["options"])]
    lines += [' "choices": {', _lines(content["choices"]), ' "commands": {']
    commands = [
        f"  {json.dumps(name)}: {{\n{_lines(records, '   ', '}')}" for name, records in content["commands"].items()
    ]
    return "\n".join([*lines, ",\n".join(commands), " }}"]) + "\n"


def _lines(records: dict[str, Any], indent: str = "  ", end: str = "},") -> str:
    parts = [
        f"{indent}{json.dumps(name)}: {json.dumps(record, ensure_ascii=False)}" for name, record in records.items()
    ]
    return ",\n".join(parts) + end


if __name__ == "__main__":
    OPTIONS_FILE.write_text(table_text(), encoding="utf-8")
