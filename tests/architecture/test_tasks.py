"""Tasks: how small their protocols are, and that no other code asks which kind a task is."""

import ast
import inspect
from dataclasses import fields
from pathlib import Path

import pytest

from mybert.finetuning import TASKS
from mybert.finetuning.tasks import task_names, task_table
from mybert.finetuning.tasks.feature_tagging import FeatureTask
from mybert.finetuning.tasks.task import Format, Target, Task

TASKS_FOLDER = Path("finetuning", "tasks")
QUESTIONS = ("problem", "objective")
KINDS = {kind for task in TASKS.values() for kind in type(task).__mro__ if issubclass(kind, Task)} | {FeatureTask}


def methods_of(kind):
    """The public methods and properties that a class defines itself."""
    return {
        name
        for name, value in vars(kind).items()
        if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property | classmethod))
    }


def is_about_a_task(node):
    """Whether an expression is a task by its name, or a class of one."""
    names = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
    names |= {part.attr for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    return bool(names & {"task", *(kind.__name__ for kind in KINDS)})


def test_names_of_tasks_are_those_of_the_table():
    own = {name: task.columns(labeled=True) for name, task in TASKS.items() if not task.files}
    assert own == task_names.OWN_DATA and list(own) == list(task_names.OWN_DATA)
    assert [name for name, task in TASKS.items() if task.files] == task_names.BENCHMARKS


@pytest.mark.parametrize(("half", "most"), [(Format, 8), (Target, 12)])
def test_a_half_of_a_task_has_few_methods(half, most):
    assert len(methods_of(half)) <= most


@pytest.mark.parametrize("kind", sorted(KINDS, key=lambda kind: kind.__name__))
def test_a_kind_of_task_has_no_other_methods_and_at_most_25_fields(kind):
    assert methods_of(kind) <= methods_of(Format) | methods_of(Target)
    assert len(fields(kind)) <= 25
    assert len([base for base in kind.__bases__ if base.__module__.startswith("mybert")]) <= 3


def test_no_code_outside_the_folder_asks_which_kind_a_task_is(trees):
    found = []
    for path, tree in trees.items():
        if path.parts[0] == "pretraining" or path.is_relative_to(
            TASKS_FOLDER
        ):  # pretraining has an objective of its own
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in QUESTIONS:
                found.append((path, node.lineno, node.attr))
            is_call = isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
            if is_call and node.func.id in ("isinstance", "issubclass") and any(map(is_about_a_task, node.args)):
                found.append((path, node.lineno, ast.unparse(node)))
            is_question = is_call and node.func.id in ("getattr", "hasattr") and is_about_a_task(node.args[0])
            if is_question and getattr(node.args[1], "value", None) in QUESTIONS:
                found.append((path, node.lineno, ast.unparse(node)))
    assert not found


def test_a_kind_of_task_is_one_short_file_and_its_row(trees):
    """`scores` is the newest: only the table knows it."""
    file = TASKS_FOLDER / "scores.py"
    importing = {
        path
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if path.is_relative_to(TASKS_FOLDER) and isinstance(node, ast.ImportFrom) and node.module == "scores"
    }
    assert importing == {TASKS_FOLDER / "task_table.py"}
    assert (
        len(Path(inspect.getfile(task_table)).with_name("scores.py").read_text(encoding="utf-8").splitlines()) <= 150
    )
    assert file in trees
