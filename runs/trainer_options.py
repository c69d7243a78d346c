"""The options of transformers' `TrainingArguments`, without importing transformers, which takes seconds of CPU.

`trainer_options.json` holds names, types, defaults and help as one version of transformers has them. With that version
a test compares it with the class; `python -m mybert.runs.trainer_options` writes it.
"""

import functools
import json
from dataclasses import MISSING, Field, field, fields, make_dataclass
from enum import Enum
from importlib.metadata import version
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from ..files.options import default_of

_FILE = Path(__file__).with_suffix(".json")
_TYPES: dict[str, Any] = {"int": int, "number": float, "bool": bool, "text": str, "object": dict[str, Any] | str}


@functools.cache
def table() -> dict[str, Any]:
    """The content of the file: the version of transformers, and a record for each option."""
    content: dict[str, Any] = json.loads(_FILE.read_text(encoding="utf-8"))
    return content


@functools.cache
def json_options() -> frozenset[str]:
    """The options whose values are JSON objects."""
    return frozenset(name for name, record in table()["options"].items() if record["kind"] == "object")


def _type_of(record: dict[str, Any]) -> Any:
    kind: Any = Literal[tuple(record["choices"])] if "choices" in record else _TYPES[record["kind"]]
    kind = list[kind] if record.get("list") else kind
    return kind | None if record.get("nullable") else kind


def _field_of(record: dict[str, Any]) -> Any:
    metadata = {name: record[name] for name in ("help", "choices", "nargs", "const", "metavar") if name in record}
    default = record.get("default", MISSING)
    if isinstance(default, list):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


TrainerOptions: Any = make_dataclass(
    "TrainerOptions",
    [(name, _type_of(record), _field_of(record)) for name, record in table()["options"].items()],
    kw_only=True,
    namespace={"__module__": __name__},
)
"""A dataclass with the options of `TrainingArguments`."""


def is_inherited(declared: Field) -> bool:
    """Whether an option has the help of `TrainingArguments`."""
    inherited = TrainerOptions.__dataclass_fields__.get(declared.name)
    return inherited is not None and inherited.metadata.get("help") == declared.metadata.get("help")


def _record(declared: Field, hint: Any) -> dict[str, Any]:
    """What is declared of an option, as JSON values; of several types that a text may mean, the most special one."""
    parts = list(get_args(hint)) if get_origin(hint) in (Union, UnionType) else [hint]
    record: dict[str, Any] = {"nullable": True} if NoneType in parts else {}
    parts = [part for part in parts if part is not NoneType]
    special = [part for part in parts if part is bool or get_origin(part) is dict or _words(*get_args(part)[:1], part)]
    kind = special[0] if special else dict if dict in parts else parts[0] if len(parts) == 1 else str
    if get_origin(kind) is list:
        record["list"], kind = True, get_args(kind)[0]
    if words := _words(kind):
        record |= {"kind": "text", "choices": words}
    elif kind is dict or get_origin(kind) is dict:
        record["kind"] = "object"
    else:
        record["kind"] = next((name for name, each in _TYPES.items() if each is kind), "text")
    record |= {name: value for name, value in declared.metadata.items() if name != "aliases"}
    if "choices" in record:
        record["choices"] = [*record["choices"]]
    if (default := default_of(declared)) is not MISSING:
        record["default"] = getattr(default, "value", default)
    return json.loads(json.dumps(record, default=str))  # tuples become lists


def _words(*kinds: Any) -> list[str]:
    """The words that values of a type are, an enumeration or a `Literal` of texts; of several types, the first's."""
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Enum):
            return [each.value for each in kind]
        if get_origin(kind) is Literal and all(isinstance(word, str) for word in get_args(kind)):
            return [*get_args(kind)]
    return []


def table_text() -> str:
    """The content of the file for the installed version: an option in each line."""
    from transformers import TrainingArguments

    hints = get_type_hints(TrainingArguments)
    options = {each.name: _record(each, hints[each.name]) for each in fields(TrainingArguments) if each.init}
    lines = [f"  {json.dumps(name)}: {json.dumps(record, ensure_ascii=False)}" for name, record in options.items()]
    heading = f'{{"transformers": {json.dumps(version("transformers"))}, "options": {{'
    return "\n".join([heading, ",\n".join(lines), "}}"]) + "\n"


if __name__ == "__main__":
    _FILE.write_text(table_text(), encoding="utf-8")
