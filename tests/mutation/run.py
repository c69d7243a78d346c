"""Mutation testing with the operators of cosmic-ray; needs `pip install cosmic-ray pytest-cov`, on Linux or macOS.

    PYTHONPATH=.. python -m pytest -n auto -m "not slow" --cov --cov-config=tests/mutation/coverage.ini \
        --cov-context=test --cov-report= --junitxml=quick.xml
    PYTHONPATH=.. python tests/mutation/run.py --coverage .coverage --seconds quick.xml --output mutants.jsonl

The first command notes which quick tests enter which line. Each mutant is then a process, forked after the libraries
are imported, in which the tests run that enter its line (or its module, for what runs on import), those of its folder
and the shortest first. The first failure, or the lack of an end, kills the mutant; the tests that failed run without a
mutant at the end. The output has a line for each mutant; a repeated command continues it, and `--again` repeats what
survived. The table has the score: the killed of those that are not in `equivalent.txt`.

A draw takes the mutants of all modules (or of those that are named) in the order of a hash of seed and mutant: the
first 150 are the same for every larger number, and a change to a line changes only its mutants. Operators: numbers by
one, arithmetic, comparisons and Boolean operators by those that could be meant (a sum of tensors that becomes a shift
raises an error in any test), conditions, loops without iteration, `break`, `except` and decorators. Annotations,
messages of errors and of the log, `zip(strict=True)`, and what does not compile are left out.
"""

import argparse
import contextlib
import dataclasses
import gc
import hashlib
import importlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EQUIVALENT = HERE / "equivalent.txt"
OTHER = ("tests/", "docs/", "benchmarks/", "examples/", "skills/", ".")  # what the package does not have
REPLACED = {  # operator -> its replacements
    "Binary": "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul FloorDiv_Add Mod_FloorDiv Pow_Mul RShift_LShift "
    "LShift_RShift BitOr_BitAnd BitAnd_BitOr BitXor_BitOr",
    "Comparison": "Eq_NotEq NotEq_Eq Lt_LtE Lt_GtE LtE_Lt LtE_Gt Gt_GtE Gt_LtE GtE_Gt GtE_Lt Is_IsNot IsNot_Is",
    "Unary": "USub_UAdd Delete_USub Delete_Invert Delete_Not",
}
OPERATORS = [f"Replace{kind}Operator_{pair}" for kind, pairs in REPLACED.items() for pair in pairs.split()]
OPERATORS += ["NumberReplacer", "AddNot", "ReplaceTrueWithFalse", "ReplaceFalseWithTrue", "ReplaceAndWithOr"]
OPERATORS += ["ReplaceOrWithAnd", "ReplaceBreakWithContinue", "ReplaceContinueWithBreak", "ExceptionReplacer"]
OPERATORS += ["RemoveDecorator", "ZeroIterationForLoop"]
LIBRARIES = "torch transformers accelerate safetensors.torch datasets evaluate sklearn.metrics scipy.stats pytest "
LIBRARIES += "xdist.plugin _hypothesis_pytestplugin hypothesis.extra.numpy torch.utils.flop_counter"
PATIENCE = 15  # seconds for a test, in addition to five times what it took before
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A change of one place of a module: the `occurrence`th of an operator."""

    name: str  # module, operator, which of them in lines of this text, and that text: stable when lines move
    module: str
    operator: str
    occurrence: int


def mutants_of(module: str, source: str) -> Iterator[Mutant]:
    """All mutants of a module, but for those in annotations and messages."""
    from cosmic_ray.ast import ast_nodes, get_ast
    from cosmic_ray.operators.provider import OperatorProvider

    operators = {name: OperatorProvider()[name]() for name in OPERATORS}
    lines, seen, named = source.splitlines(), Counter[str](), Counter[str]()
    for node in ast_nodes(get_ast(source)):
        for operator, changes in operators.items():
            for start, _ in changes.mutation_positions(node):
                occurrence, line = seen[operator], lines[start[0] - 1].strip()
                seen[operator] += 1
                kind = f"{module} {operator.removeprefix('Replace')}"
                if not is_left_out(node):
                    yield Mutant(f"{kind} {named[kind + line]}: {line}", module, operator, occurrence)
                named[kind + line] += 1


def is_left_out(node: Any) -> bool:
    """Whether a node is part of an annotation, a message, `strict=True`, or what type checkers or the shell run."""
    while node is not None:
        parent, code = node.parent, node.children[1].get_code().strip() if node.type == "if_stmt" else ""
        if node.type in ("tfpdef", "raise_stmt") or code in ("TYPE_CHECKING", '__name__ == "__main__"'):
            return True
        if parent is not None and parent.type == "funcdef" and node is parent.annotation:
            return True
        if node.type == "argument" and node.children[0].get_code().strip() == "strict":
            return True
        if node.type in ("atom_expr", "power") and node.get_code().strip().startswith(("logger.", "warnings.warn")):
            return True
        if parent is not None and parent.type == "annassign" and node is parent.children[1]:
            return True
        node = parent
    return False


def mutated(mutant: Mutant, source: str) -> str | None:
    """The module with the change, if it compiles."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.operators.provider import OperatorProvider

    code = mutate_code(source, OperatorProvider()[mutant.operator](), mutant.occurrence)
    try:
        compile(code, mutant.module, "exec")
    except SyntaxError:
        return None
    return code


def in_order(sources: dict[str, str], seed: int) -> list[Mutant]:
    """All mutants of modules, {file: source}, in the order of a seed."""
    mutants = [mutant for module, source in sources.items() for mutant in mutants_of(module, source)]
    return sorted(mutants, key=lambda mutant: hashlib.sha256(f"{seed} {mutant.name}".encode()).digest())


def change_of(source: str, code: str) -> list[str]:
    """The number of the changed line, and the line before and after."""
    before, after = source.splitlines(), code.splitlines()
    same = next((i for i, (old, new) in enumerate(zip(before, after, strict=False)) if old != new), len(after))
    return [f"{same + 1}", *(lines[same].strip() for lines in (before, after) if same < len(lines))]


class MutatedModules:
    """Imports modules of the package from these sources, {name of the module: source}."""

    def __init__(self, sources: dict[str, str]) -> None:
        self.sources = sources

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The module with its source; None for other modules."""
        if name not in self.sources:
            return None
        source, file = self.sources[name], str(ROOT.joinpath(*name.split(".")[1:]))
        file, package = (f"{file}/__init__.py", [file]) if Path(file).is_dir() else (f"{file}.py", None)

        class Loader(SourceFileLoader):
            def get_code(self, fullname: str) -> Any:
                return compile(source, file, "exec", dont_inherit=True)

        return spec_from_file_location(name, file, loader=Loader(name, file), submodule_search_locations=package)


class Watch:
    """A plugin of pytest: tests in this order, an end for each, and the name of the first that fails."""

    def __init__(self, tests: list[str], known: dict[str, float]) -> None:
        self.places = {test: place for place, test in enumerate(tests)}
        self.known, self.failed = known, ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items.sort(key=lambda item: self.places[item.nodeid])

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.alarm(int(PATIENCE + 5 * self.known.get(nodeid, 60)))  # its default ends the process

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid

    pytest_collectreport = pytest_runtest_logreport


def modules_of(patterns: list[str]) -> list[str]:
    """The files of the package that match."""
    found = {str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)}
    return sorted(module for module in found if not module.startswith(OTHER))


def name_of(module: str) -> str:
    """The name under which a file of the package is imported."""
    return "mybert." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Entered:
    """The quick tests that enter a line, as a data file of coverage.py has them, and their seconds."""

    def __init__(self, file: Path, timings: Path) -> None:
        from coverage import CoverageData

        self.seconds = {name_of_test(case.attrib): float(case.get("time", 0)) for case in parsed(timings)}
        data = CoverageData(str(file))
        data.read()
        self.lines: dict[str, dict[int, set[str]]] = {}
        for module in data.measured_files():
            contexts = data.contexts_by_lineno(module)
            self.lines[module] = {
                line: {name for context in contexts[line] if (name := context.rpartition("|")[0]) in self.seconds}
                for line in contexts
            }

    def tests(self, module: str, line: int) -> list[str]:
        """Tests of a line or the statement that it continues; of its module, or the folder, if it runs on import."""
        lines, folder = self.lines.get(module, {}), f"tests/{module.partition('/')[0]}/"
        entered = lines.get(max((each for each in lines if each <= line), default=0), set())
        tests = entered or set().union(*lines.values()) or {test for test in self.seconds if test.startswith(folder)}
        return sorted(tests, key=lambda test: (not test.startswith(folder), self.seconds.get(test, 0), test))


def parsed(timings: Path) -> Iterator[ElementTree.Element]:
    """The tests of a file of JUnit."""
    return ElementTree.parse(timings).iter("testcase")


def name_of_test(case: dict[str, str]) -> str:
    """The name by which pytest runs a test of a file of JUnit."""
    return f"{case['classname'].replace('.', '/')}.py::{case['name']}"


def failure_of(sources: dict[str, str], tests: list[str], known: dict[str, float], folder: str) -> str:
    """The first test that fails with mutated modules, {name: source}, or ""; `known` are the tests' seconds."""
    import pytest

    watch = Watch(tests, known)
    sys.meta_path.insert(0, MutatedModules(sources))
    signal.alarm(10 * PATIENCE)  # the collection
    words = ["-x", "-q", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder}"]
    status = int(pytest.main([*words, *tests], plugins=[watch]))
    signal.alarm(0)
    return watch.failed or (f"pytest ended with {status}" if status else "")


def outcome_of(sources: dict[str, str], tests: list[str], known: dict[str, float]) -> str:
    """As `failure_of`, in a forked process, which may crash or have no end."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        answer = Path(folder) / "answer"
        child = os.fork()
        if not child:
            try:
                os.setsid()
                log = os.open(Path(folder) / "log", os.O_RDWR | os.O_CREAT)
                for stream in range(3):
                    os.dup2(log, stream)
                answer.write_text(failure_of(sources, tests, known, f"{folder}/tests"))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests started
        if answer.exists():
            return answer.read_text()
    return "no end" if os.WTERMSIG(status) == signal.SIGALRM else "crash"


def equivalents() -> dict[str, str]:
    """{name of a mutant: why it is equivalent}, from lines of names, each above an indented reason."""
    found, names = dict[str, str](), list[str]()
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line.startswith("    "):
            found.update(dict.fromkeys(names, line.strip()))
            names = []
        elif line and not line.startswith("#"):
            names.append(line)
    assert not names, f"without a reason: {names}"
    return found


def table(names: list[str], outcomes: dict[str, dict[str, Any]]) -> str:
    """The numbers of mutants by module, and the score: the killed of those that are not equivalent."""
    known = equivalents()
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for name in names:
        status = outcomes[name]["status"]
        status = "equivalent" if status == "survived" and name in known else status
        for row in (name.split()[0], "all"):
            rows[row][status] += 1
    lines = ["| module | mutants | killed | equivalent | survived | score |", "|---|---:|---:|---:|---:|---:|"]
    for row, count in sorted(rows.items(), key=lambda item: (item[0] == "all", item[0])):
        real = count["killed"] + count["survived"]
        score = f"{100 * count['killed'] / real:.1f} %" if real else ""
        cells = [row, count.total(), count["killed"], count["equivalent"], count["survived"], score]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main(words: list[str] | None = None) -> int:
    """Try the mutants of a draw and print what survived, and the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("modules", nargs="*", default=["**/*.py"], help="files of the package; default: all")
    parser.add_argument("--coverage", type=Path, required=True, help="which tests enter which line")
    parser.add_argument("--seconds", type=Path, required=True, help="how long the tests take, of --junitxml")
    parser.add_argument("--most", type=int, default=200, help="tests for each mutant, at most")
    parser.add_argument("--mutants", type=int, default=150, help="number of mutants of the draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="a line of JSON for each mutant")
    parser.add_argument("--again", action="store_true", help="try those again that survived and are not equivalent")
    arguments = parser.parse_args(words)
    for file in (arguments.coverage, arguments.seconds):
        if not file.is_file():
            parser.error(f"there is no file {file}; the first command of {Path(__file__).name} writes it")
    try:
        import cosmic_ray  # noqa: F401

        entered = Entered(arguments.coverage, arguments.seconds)
    except ImportError:
        print("This needs cosmic-ray and coverage: pip install cosmic-ray pytest-cov.", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    modules = modules_of(arguments.modules)
    sources = {module: (ROOT / module).read_text(encoding="utf-8") for module in modules}
    outcomes: dict[str, dict[str, Any]] = {}
    if arguments.output.exists():
        outcomes = {line["name"]: line for line in map(json.loads, arguments.output.read_text().splitlines())}
    known, names = equivalents(), list[str]()
    os.environ.update(QUIET)
    for library in LIBRARIES.split():
        importlib.import_module(library)
    gc.freeze()
    for mutant in in_order(sources, arguments.seed):
        status = outcomes.get(mutant.name, {}).get("status")
        if status is None or (arguments.again and status == "survived" and mutant.name not in known):
            if (code := mutated(mutant, sources[mutant.module])) is None:
                continue
            started, (line, *change) = time.monotonic(), change_of(sources[mutant.module], code)
            tests = entered.tests(mutant.module, int(line))[: arguments.most]
            test = outcome_of({name_of(mutant.module): code}, tests, entered.seconds) if tests else ""
            outcomes[mutant.name] = {
                "name": mutant.name,
                "status": "killed" if test else "survived",
                "test": test,
                "of": len(tests),
                "seconds": round(time.monotonic() - started, 1),
                "change": [line, *change],
            }
            with arguments.output.open("a") as file:
                file.write(json.dumps(outcomes[mutant.name]) + "\n")
        names.append(mutant.name)
        if len(names) == arguments.mutants:
            break
    killers = sorted(test for test in {outcomes[name]["test"] for name in names} if "::" in test)
    wrong = outcome_of({}, killers, entered.seconds) if killers else ""
    assert not wrong, f"{wrong} fails without a mutant"
    for name in names:
        if outcomes[name]["status"] == "survived" and name not in known:
            print(name, *outcomes[name]["change"], sep="\n    ")
    print(table(names, outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
