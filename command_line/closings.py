"""The closing message of a command: where its output is, its main figures, and what to run next.

It is filled in from the templates of the command's `Closing`. A name in braces is a field of the arguments, `result`,
or a `Group` (its given flags); keys and attributes may follow. BEST is the metric that decides which model is best.
`" | "` separates alternatives, the first of which that can be filled in is taken; `"; "` separates the parts of one,
which are left out if they lack a value.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from shlex import quote
from string import Formatter
from typing import Any

from ..files.options import Group, default_of
from .command_table import Closing
from .flags import shell_lines

logger = logging.getLogger(__name__)

# Files of a run's folder, other than the model, and their descriptions.
_PARTS = {
    "training_curves.png": "curves",
    "metrics.json": "metrics",
    "predictions*": "predictions",
    "nbest_predictions*": "answers",
    "class_report*.txt": "by class",
    "confusion_matrix*.png": "confusion",
    "README.md": "card",
}
_COLUMNS = 80


class _Template(Formatter):
    """Fills in templates.

    Besides Python's, its format specs are `given` (the value must be there, and is not shown), `count` and, for
    metrics, how many to show, or one of which to show each row's value.
    """

    def __init__(self, arguments: Any, result: Any) -> None:
        self.arguments, self.result, self.in_shell = arguments, result, False
        self.best = str(getattr(arguments, "metric_for_best_model", None)).removeprefix("eval_")

    def fill(self, template: str, in_shell: bool = False) -> str:
        self.in_shell = in_shell
        for alternative in template.replace("BEST", self.best).split(" | "):
            parts = []
            for part in alternative.split("; "):
                with suppress(AttributeError, LookupError, OSError):
                    parts.append(self.format(part))
            if parts:
                return ", ".join(parts)
        return ""

    def get_field(self, field_name: str, args: Any, kwargs: Any) -> tuple[Any, str]:
        first, *rest = field_name.replace("[", ".").replace("]", "").split(".")
        if first in Group.__members__:
            return self._given_flags(Group[first]), first
        value = self.result if first == "result" else getattr(self.arguments, first)
        for name in rest:
            if isinstance(value, Sequence):
                value = value[int(name)]
            else:
                value = value[name] if isinstance(value, Mapping) else getattr(value, name)
        if value is None:
            raise LookupError(field_name)
        return value, first

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec == "given":
            return ""
        if format_spec == "count":
            return str(len(value))
        if isinstance(value, Mapping):
            return self._metrics(value, format_spec)
        if isinstance(value, list):
            return " ".join(self.format_field(each, "") for each in value)
        if isinstance(value, int | float):
            return format(value, format_spec or ("," if isinstance(value, int) else ".4g"))
        if self.in_shell and str(value) == "-":
            raise LookupError("standard input has been read")
        return quote(str(value)) if self.in_shell else str(value)

    def _metrics(self, found: Mapping[str, Any], spec: str) -> str:
        if spec.isdigit():
            rows = dict(list(found.items())[: int(spec)])
        else:
            rows = {name: row[spec] for name, row in found.items() if isinstance(row, Mapping) and spec in row}
        if not rows:
            raise LookupError(spec)
        return ", ".join(f"{name} {self.format_field(value, '')}" for name, value in rows.items())

    def _given_flags(self, group: Group) -> list[str]:
        words: list[str] = []
        for option in fields(self.arguments):
            if getattr(option, "group", None) is group:
                value = getattr(self.arguments, option.name)
                if value != default_of(option):
                    words += [f"--{option.name}", *([] if value is True else [str(value)])]
        return words


def say_closing(closing: Closing, arguments: Any, result: Any) -> None:
    """Show a command's closing message; nothing, if it wrote nothing that a template names."""
    template = _Template(arguments, result)
    made, figures = template.fill(closing.made), template.fill(closing.figures)
    if closing.made and made in ("", "-"):
        return
    lines = []
    if made:
        lines.append(f"\nDone: {made}" + (f" ({figures})" if figures else ""))
        if len(lines[0]) > _COLUMNS and figures:
            lines = [f"\nDone: {made}", f"  {figures}"]
        lines += [f"  {what:<12} {path}" for what, path in _parts(Path(made))]
    if call := template.fill(closing.next_call, in_shell=True):
        lines.append(f"{'' if lines else chr(10)}Next:\n{shell_lines(f'mybert {call}', _COLUMNS - 2)}")
        lines += [f"  ({note})"] if (note := template.fill(closing.note)) else []
    if lines:
        logger.info("%s", "\n".join(lines))


def _parts(folder: Path) -> list[tuple[str, Path]]:
    if not folder.is_dir():
        return []
    found = [(what, sorted(folder.glob(pattern))) for pattern, what in _PARTS.items()]
    return [(what, paths[0]) for what, paths in found if paths]
