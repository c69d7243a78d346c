"""The mutation run: which mutants there are, and that a forked process runs the tests on the mutated module."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPT = Path(__file__).with_name("run.py")
SOURCE = '''
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    LIMIT = 4
def half(value: int | None, limit: float = 8) -> int | None:
    """Half of 2."""
    if value is None:
        logger.info("no value: %d", 7)
        raise ValueError(f"{limit + 1} at most")
    pairs = zip(value, value, strict=True)
    return value / 2
'''


@pytest.fixture(scope="module")
def run():
    """The script; another one of this name belongs to the tests of hostile files."""
    spec = importlib.util.spec_from_file_location("mutation_run", SCRIPT)
    module = sys.modules["mutation_run"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["mutation_run"]


@pytest.fixture
def cosmic_ray():
    pytest.importorskip("cosmic_ray", reason="the mutants are made by cosmic-ray, which is not installed")


def test_all_files_of_the_package_can_be_named(run):
    modules = run.modules_of(["**/*.py"])
    assert {"cli.py", "__init__.py", "finetuning/tasks/tagging.py"} <= {*modules}
    assert {module.partition("/")[0] for module in modules if "/" in module} == {
        path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name not in ("tests", "benchmarks")
    }
    assert run.modules_of(["metrics/s*.py", "runs/optimizers.py"]) == ["metrics/squad.py", "runs/optimizers.py"]


def test_tests_of_a_line_are_those_that_enter_it_the_folder_s_and_shortest_first(run, tmp_path):
    coverage = pytest.importorskip("coverage", reason="which tests enter a line is recorded by coverage")
    data = coverage.CoverageData(str(tmp_path / "data"))
    for context, lines in {
        "": [1, 2, 4],
        "tests/files/test_a.py::test_long|run": [5, 6],
        "tests/files/test_a.py::test_short[1|2]|run": [5],
        "tests/runs/test_b.py::test_it|setup": [5, 9],
        "tests/runs/test_b.py::test_that_is_gone|run": [5],
    }.items():
        data.set_context(context)
        data.add_lines({"files/a.py": lines})
    data.write()
    cases = {"tests.files.test_a": {"test_long": 3, "test_short[1|2]": 0.5}, "tests.runs.test_b": {"test_it": 0.1}}
    texts = [
        f'<testcase classname="{file}" name="{name}" time="{seconds}" />'
        for file, tests in cases.items()
        for name, seconds in tests.items()
    ]
    (tmp_path / "quick.xml").write_text(f"<testsuites>{''.join(texts)}</testsuites>")
    entered = run.Entered(tmp_path / "data", tmp_path / "quick.xml")
    all_tests = ["tests/files/test_a.py::test_short[1|2]", "tests/files/test_a.py::test_long"]
    all_tests += ["tests/runs/test_b.py::test_it"]
    assert entered.tests("files/a.py", 5) == all_tests
    assert entered.tests("files/a.py", 7) == all_tests[1:2]  # a line that continues line 6
    assert entered.tests("files/a.py", 2) == all_tests  # it runs when the module is imported
    assert entered.tests("files/b.py", 1) == all_tests[:2]  # its declarations run when it is imported
    assert entered.tests("cards/a.py", 1) == []
    assert entered.seconds[all_tests[1]] == 3


def test_mutants_are_those_of_the_code_and_not_of_messages_and_annotations(run, cosmic_ray):
    mutants = list(run.mutants_of("a/b.py", SOURCE))
    assert {each.name for each in mutants} == {
        "a/b.py NumberReplacer 0: def half(value: int | None, limit: float = 8) -> int | None:",
        "a/b.py NumberReplacer 1: def half(value: int | None, limit: float = 8) -> int | None:",
        "a/b.py AddNot 0: if value is None:",
        "a/b.py ComparisonOperator_Is_IsNot 0: if value is None:",
        "a/b.py BinaryOperator_Div_Mul 0: return value / 2",
        "a/b.py NumberReplacer 0: return value / 2",
        "a/b.py NumberReplacer 1: return value / 2",
    }
    changed = [run.mutated(each, SOURCE).splitlines()[-1].split() for each in mutants[-3:]]
    assert changed == [["return", "value", "*", "2"], ["return", "value", "/", "3"], ["return", "value", "/", "1"]]


def test_names_of_mutants_and_their_order_do_not_depend_on_other_lines(run, cosmic_ray):
    names = [each.name for each in run.mutants_of("a/b.py", SOURCE)]
    moved = [each.name for each in run.mutants_of("a/b.py", f"import os\nSIZE = 3\n{SOURCE}")]
    assert [name for name in moved if "SIZE" not in name] == names
    orders = [[each.name for each in run.in_order({"a/b.py": text}, 0)] for text in (SOURCE, f"SIZE = 3\n{SOURCE}")]
    assert [name for name in orders[1] if "SIZE" not in name] == orders[0] != names
    assert [each.name for each in run.in_order({"a/b.py": SOURCE}, 1)] != orders[0]


def test_equivalent_mutants_are_in_the_code(run, cosmic_ray):
    known = run.equivalents()
    for module in {name.split()[0] for name in known}:
        names = {each.name for each in run.mutants_of(module, (ROOT / module).read_text(encoding="utf-8"))}
        assert not {name for name in known if name.split()[0] == module} - names


def test_forked_process_runs_the_tests_on_the_mutated_module(tmp_path, run_python):
    tests = tmp_path / "test_answer.py"
    tests.write_text(
        "import mybert.metrics.squad as squad\ndef test_it(): assert squad.normalize_answer('B') == 'b'\n"
    )
    (tmp_path / "spin.py").write_text("def normalize_answer(text):\n    while True: pass\n")
    program = f"""
import json, sys
sys.path.insert(0, {str(SCRIPT.parent)!r})
import run
for patience, source in (60, ""), (60, "normalize_answer = str"), (1, open("spin.py").read()):
    run.PATIENCE = patience
    sources = {{"mybert.metrics.squad": source}} if source else {{}}
    print(json.dumps(run.outcome_of(sources, ["test_answer.py::test_it"], {{"test_answer.py::test_it": 0.01}})))
"""
    (tmp_path / "program.py").write_text(program)
    lines = run_python("program.py", cwd=tmp_path).stdout.splitlines()
    unchanged, wrong, endless = map(json.loads, lines)
    assert (unchanged, endless) == ("", "no end") and wrong.endswith("test_answer.py::test_it")
