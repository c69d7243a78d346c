"""What studies share: settings of many runs in one, as maps or JSON; running all cells of a table; the table."""

import json
import logging
import re
from argparse import ArgumentError
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from transformers import HfArgumentParser

from ..files.errors import refuse_address
from ..files.options import Group, check_required, contradicting, may_be_none, option
from ..files.output import write_json, write_text
from ..finetuning import FEATURES, TASKS, FinetuningArguments, finetune
from ..finetuning.data import files_of

logger = logging.getLogger(__name__)

Arguments = TypeVar("Arguments")
Cell = TypeVar("Cell")
Score = tuple[float, float | None]  # with its deviation over seeds

MAJORITY = "Always the most frequent answer"  # a row of tables

_FOLDER_NAME = re.compile(r"[^./\\\0\n][^/\\\0\n]*")


@dataclass
class StudySettings:
    """Settings of all studies that fine-tune on several tasks."""

    # Settings with the default "{}" are maps; on the command line they are JSON.
    group = Group.TABLE
    finetuning: str = option(
        "{}", "Settings of `mybert finetune` for every run, as a map in the YAML file or as JSON."
    )
    disable_tqdm: bool = option(False, "Show no progress bars.", group=Group.RECORDS)

    def __post_init__(self) -> None:
        """Read JSON, and check that what is required is given."""
        for name in [each.name for each in fields(self) if each.default == "{}"]:
            value = getattr(self, name)
            if isinstance(value, str):
                try:
                    value = json.loads(value)
                except ValueError as error:
                    raise ValueError(f"{name} is not JSON ({error}); expected a map of settings.") from error
            if not isinstance(value, dict):
                raise ValueError(f"{name} is {value!r}; expected a map of settings.")
            setattr(self, name, value)
        check_required(self)

    def map_of(self, name: str) -> dict[str, Any]:
        return getattr(self, name)


def names_a_folder(name: Any) -> bool:
    return isinstance(name, str) and _FOLDER_NAME.fullmatch(name) is not None


def merged(kind: type[Arguments], study: str, settings: Mapping[str, Mapping[str, Any]], **own: Any) -> Arguments:
    """Return arguments of a `kind` from several maps; later ones take precedence, also over what contradicts them."""
    # Texts mean the same as on the command line: in YAML, 3e-4 is a text. None means the same as in a settings file:
    # what cannot be None has its default. No map may contain a setting of `own`, which `study` decides (in messages).
    chosen: dict[str, Any] = {}
    parser = HfArgumentParser(kind, add_help=False, exit_on_error=False)
    nullable = may_be_none(kind)
    for name, some in settings.items():
        if unknown := sorted(set(some) - set(kind.__dataclass_fields__)):  # type: ignore[attr-defined]
            raise ValueError(f"{name} has unknown settings: {', '.join(unknown)}.")
        if doubled := sorted(set(some) & set(own)):
            raise ValueError(f"{name} sets {', '.join(doubled)}, which {study} decides.")
        for setting in contradicting(kind, some):
            chosen.pop(setting, None)
        for setting, value in some.items():
            if value is None and setting not in nullable:
                chosen.pop(setting, None)
                continue
            if isinstance(value, str):
                try:
                    value = getattr(parser.parse_known_args([f"--{setting}={value}"])[0], setting)
                except ArgumentError as error:
                    raise ValueError(f"{name} has {value!r} as {setting} ({error.message}).") from None
            chosen[setting] = value
    try:
        return kind(**chosen | own)
    except TypeError as error:  # a list, or a map, instead of a number
        raise ValueError(
            f"{' or '.join(settings)} has a setting of another kind than is expected: {error}."
        ) from error


def finetuning_settings(
    task: str, study: str, settings: Mapping[str, Mapping[str, Any]], **own: Any
) -> FinetuningArguments:
    """Return the settings of a fine-tuning that gives a table one score; find errors before hours of training."""
    found = merged(FinetuningArguments, study, settings, **own)
    validation = found.validation_file or ()
    if not (validation or found.dataset or found.validation_split or found.folds):
        raise ValueError(
            f"There is no validation data for {task}; expected a validation_file, validation_split or folds."
        )
    if found.approach == "features" and found.features == "all":
        raise ValueError(
            f"features is 'all' for {task}, which trains a model for each; expected one of {', '.join(FEATURES)}."
        )
    train = [found.train_file] if found.train_file else []
    for file in files_of([*train, *validation, *(found.test_file or ())]):
        refuse_address(file)
        Path(file).stat()
    return found


def finetune_all(cells: Mapping[Cell, tuple[str, FinetuningArguments]]) -> dict[Cell, dict[str, Any]] | None:
    """Fine-tune each cell of a table, with a title; finished runs are read. None if Ctrl-C ended one early."""
    found = {}
    for cell, (title, arguments) in cells.items():
        logger.info("\n== %s ==", title)
        metrics = finetune(arguments)
        if metrics["interrupted"]:
            return None
        found[cell] = {name: value for name, value in metrics.items() if name not in ("examples", "interrupted")}
    return found


def write_report(output_dir: str | Path, name: str, report: Mapping[str, Any], table: str) -> None:
    """Write a study's metrics as JSON and its table as Markdown, and show the table."""
    write_json(Path(output_dir) / f"{name}.json", report)
    write_text(Path(output_dir) / f"{name}.md", table)
    logger.info("\n%s", table)


def metric_of_best(arguments: FinetuningArguments) -> str:
    """Return the metric that selects a run's best model, which is also its main score."""
    return str(arguments.metric_for_best_model).removeprefix("eval_")


def main_score(metrics: Mapping[str, Any], arguments: FinetuningArguments, metric: str | None = None) -> Score:
    """Return a run's main score, or another metric, as a fraction; with several seeds, mean and deviation."""
    name = metric or metric_of_best(arguments)
    full = TASKS[arguments.task].full_score
    deviation = metrics.get("deviation", {}).get(name)
    return metrics.get("mean", metrics)[name] / full, None if deviation is None else deviation / full


def majority_score(metrics: Mapping[str, Any], metric: str, data: str = "") -> float | None:
    """Return the score of always predicting the most frequent answer on some validation data, or None."""
    return metrics.get(f"{data}_majority_{metric}" if data else f"majority_{metric}")


def percent(value: float, deviation: float | None = None) -> str:
    return f"{100 * value:.1f}" + (f" ± {100 * deviation:.1f}" if deviation is not None else "")


def markdown_table(rows: list[list[str]]) -> str:
    """Return a table whose first row is the heading, and whose first column is text."""
    heading, *others = ([" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows)
    rule = ["---", *("---:" for _ in heading[1:])]
    return "\n".join(f"| {' | '.join(row)} |" for row in (heading, rule, *others)) + "\n"
