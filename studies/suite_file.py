"""Files of suites: the tasks that `mybert glue` measures together."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files.errors import refuse_address
from ..files.yaml_files import read_yaml

_SUITES = Path(__file__).with_name("suites")
OWN_KEYS = ("title", "submission")  # keys of a task in a suite; all others are settings of `mybert finetune`
PATHS = ("data_dir", "train_file", "validation_file", "test_file")
_FOLDER_NAME = re.compile(r"[^./\\\0\n][^/\\\0\n]*")


@dataclass(frozen=True)
class Suite:
    """Tasks that are evaluated together."""

    title: str
    # Settings of `mybert finetune` by name, with `title` and, for a benchmark with a server, `submission`: its file
    # names, one for each test set.
    tasks: dict[str, dict[str, Any]]
    # Scores out of 100 of other models by task (a list if there are several data sets), for comparison.
    published: dict[str, dict[str, Any]] = field(default_factory=dict)

    def title_of(self, task: str) -> str:
        return str(self.tasks[task].get("title", task))

    def by_size(self, sizes: Mapping[str, tuple[str, int]]) -> "Suite":
        """The suite of tasks with some numbers of training examples, given by new name: task and number."""
        tasks = {}
        for new, (task, size) in sizes.items():
            settings = {name: value for name, value in self.tasks[task].items() if name != "submission"}
            tasks[new] = {"task": task} | settings | {"title": f"{self.title_of(task)}, {size:,}"}
        return Suite(self.title, tasks)


def read_suite(name: str) -> Suite:
    """Read a suite of the package, or one from a YAML file: `title`, `tasks` and `published`."""
    path = Path(name) if name.endswith((".yaml", ".yml")) else _SUITES / f"{name}.yaml"
    if not path.is_file():
        refuse_address(name)
        known = ", ".join(sorted(suite.stem for suite in _SUITES.glob("*.yaml")))
        raise FileNotFoundError(f"There is no suite {name}; expected {known}, or a YAML file.")
    found = read_yaml(path)
    known_keys = Suite.__dataclass_fields__
    tasks = found.get("tasks") if isinstance(found, dict) else None
    if not tasks or not isinstance(tasks, dict) or set(found) - set(known_keys):
        raise ValueError(f"{path} is not a suite; expected the keys {', '.join(known_keys)}, with a map of tasks.")
    check_folder_names(tasks, f"{path} has a task")
    for task, settings in tasks.items():
        _check_task(path, task, settings)
    published = found.get("published") or {}
    if not isinstance(published, dict):
        raise ValueError(f"{path} has {published!r} as published; expected a map of models.")
    for model, scores in published.items():
        if not isinstance(scores, dict) or not all(map(_are_numbers, scores.values())):
            raise ValueError(f"{path} has {scores!r} as published {model}; expected a map of tasks and their scores.")
        if unknown := [task for task in scores if task not in tasks]:
            raise ValueError(f"{path} has a score of {model} for {unknown[0]!r}, which is not one of its tasks.")
    # In YAML, a year is a number.
    return Suite(str(found.get("title", path.stem)), tasks, {str(model): published[model] for model in published})


def _check_task(path: Path, task: Any, settings: Any) -> None:
    if not isinstance(settings, dict):
        raise ValueError(f"{path} has {settings!r} as the task {task}; expected a map of settings.")
    for name in {*PATHS, "submission"} & settings.keys():
        names = as_list(settings[name])
        if not names or not all(isinstance(part, str) and part for part in names):
            raise ValueError(f"{path} has {settings[name]!r} as {name} of {task}; expected a name, or a list of some.")


def _are_numbers(value: Any) -> bool:
    """Tell whether a value is a score, or a list of scores."""
    parts = as_list(value)
    return bool(parts) and all(isinstance(part, (int, float)) and not isinstance(part, bool) for part in parts)


def check_folder_names(names: Iterable[Any], where: str) -> None:
    """Reject names that no folder can have, or two that differ in case only; `where` begins the message."""
    known: dict[str, str] = {}
    for name in names:
        if not isinstance(name, str) or not _FOLDER_NAME.fullmatch(name):
            raise ValueError(
                f"{where} {name!r}; expected a name that a folder can have, in quotes where YAML takes it for "
                "something else."
            )
        if (other := known.setdefault(name.casefold(), name)) != name:
            raise ValueError(f"{where} {name!r} next to {other!r}; expected names that differ in more than case.")


def as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
