"""What a run will do, for people and programs: the decisions of its plan, and the report of a dry run."""

import logging
from collections.abc import Mapping
from typing import Any

from transformers import PreTrainedModel

from ..files.options import default_of, options_of
from ..files.settings import Decision, Parts, flat

logger = logging.getLogger(__name__)

_MAX_LISTED = 8  # items of a list that are shown


def shown_decisions(decisions: Mapping[str, Decision]) -> str:
    """What a plan chose for options that were not given, and why, in lines."""
    return _aligned({name: f"{_shown(each.value)}  ({each.reason})" for name, each in decisions.items()})


def dry_run_report(
    settings: Parts, decisions: Mapping[str, Decision], output: str, **more: Mapping[str, Any] | list[Any]
) -> dict[str, Any]:
    """The report of a dry run as JSON values, which is also logged: settings, decisions, and what a command adds.

    Args:
        settings: What the user said.
        decisions: What the plan chose, by option.
        output: What the run would find in its folder, see `state_of_run`.
        **more: Further sections.
    """
    options = options_of(type(settings))
    given = {name: value for name, value in flat(settings).items() if value != default_of(options[name])}
    report: dict[str, Any] = {
        **more,
        "given": {name: _plain(value) for name, value in given.items() if name != "dry_run"},
        "decided": {name: {"value": _plain(each.value), "reason": each.reason} for name, each in decisions.items()},
        "output": {"folder": given.get("output_dir", ""), "state": output},
    }
    lines = []
    for title, section in report.items():
        if title == "decided":
            section = {name: each for name, each in section.items() if each["reason"]}
        rows = {name: _shown(value) for name, value in section.items()} if isinstance(section, Mapping) else {}
        if rows:
            lines += [f"{title.capitalize()}:", _aligned(rows)]
        elif section:
            lines.append(f"{title.capitalize()}: {_shown(section)}")
    logger.info("What would be done; nothing is written.\n%s", "\n".join(lines))
    return report


def size_of(model: PreTrainedModel) -> dict[str, int]:
    """Layers, hidden size and number of parameters of a model, which needs no weights (`torch.device("meta")`)."""
    sizes = {name: getattr(model.config, name, None) for name in ("num_hidden_layers", "hidden_size")}
    return {name: size for name, size in sizes.items() if size} | {"parameters": model.num_parameters()}


def _aligned(rows: Mapping[str, str]) -> str:
    width = max(map(len, rows))
    return "\n".join(f"  {name:<{width}}  {text}" for name, text in rows.items())


def _plain(value: Any) -> Any:
    """A value of an option as JSON has it."""
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): _plain(item) for name, item in value.items()}
    value = getattr(value, "value", value)  # of an enumeration
    return value if value is None or isinstance(value, (bool, int, float, str)) else str(value)


def _shown(value: Any) -> str:
    value = _plain(value)
    if isinstance(value, list):
        more = f" and {len(value) - _MAX_LISTED} more" if len(value) > _MAX_LISTED else ""
        return ", ".join(map(_shown, value[:_MAX_LISTED])) + more
    if isinstance(value, Mapping):
        if value.keys() == {"value", "reason"}:
            return _shown(value["value"]) + (f"  ({value['reason']})" if value["reason"] else "")
        return ", ".join(f"{name} {_shown(item)}" for name, item in value.items())
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return f"{value:g}" if isinstance(value, float) else str(value)
