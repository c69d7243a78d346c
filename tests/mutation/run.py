"""Mutation testing of the numerics with the operators of cosmic-ray (`pip install cosmic-ray`); needs Linux or macOS.

    PYTHONPATH=.. python tests/mutation/run.py --mutants 600 --seed 0 --output mutants.jsonl [MODULE ...]

Each mutant is a process, forked after the libraries are imported, in which the quick tests of the module run: those in
`TESTS` first, then all of its folder (`tests/metrics` for `metrics/`). The first failure, or the lack of an end, kills
the mutant; the tests that failed run without a mutant at the end. The file has a line for each; a repeated command
continues it, and `--again` repeats what survived. The table has the score: the killed of those that are not in
`equivalent.txt`.

A draw takes the mutants of all modules in the order of a hash of seed and mutant: the first 150 are the same for every
larger number, and a change to a line changes only its mutants. Operators: numbers by one, arithmetic, comparisons and
Boolean operators by those that could be meant (a sum of tensors that becomes a shift raises an error in any test),
conditions, loops without iteration, `break`, `except` and decorators. Annotations, messages of errors and of the log,
and what does not compile are left out.
"""

import argparse
import contextlib
import dataclasses
import fnmatch
import gc
import hashlib
import importlib
import json
import math
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

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
EQUIVALENT = HERE / "equivalent.txt"
TESTS = {  # module -> the most direct of the tests in its folder
    "modeling_mybert/losses_mybert.py": "losses vocabulary_loss loss_of_an_optimizer_step",
    "modeling_mybert/batch_mybert.py": "padding packing input_validation output_tokens no_value_is_read",
    "modeling_mybert/attention_mybert.py": "attention packing padding",
    "modeling_mybert/linear_mybert.py": "linear_kernels prepacking joined_products vocabulary_loss",
    "modeling_mybert/layers_mybert.py": "plain_forward parity packing output_tokens execution",
    "pretraining/masking.py": "masking",
    "pretraining/dataset.py": "pretraining_dataset",
    "pretraining/token_store.py": "token_store",
    "pretraining/plan.py": "phases pretraining_settings",
    "metrics/__init__.py": "metric_modules",
    "metrics/calibration.py": "calibration",
    "metrics/classification.py": "metric_functions metric_modules",
    "metrics/evaluate_modules.py": "metric_modules",
    "metrics/label_orders.py": "label_orders",
    "metrics/language_model.py": "masked_words metric_functions",
    "metrics/reports.py": "class_report entity_metrics",
    "metrics/resampling.py": "resampling",
    "metrics/squad.py": "squad_metrics",
    "tokenization/__init__.py": "tokenization_mybert",
    "tokenization/bulk_encoding.py": "bulk_encoding",
    "tokenization/characters.py": "words tokenization_mybert",
    "tokenization/commands.py": "vocab_command",
    "tokenization/extension.py": "extension",
    "tokenization/learning.py": "learning vocab_command",
    "tokenization/pair_merging.py": "pair_merging",
    "tokenization/settings.py": "vocab_command learning extension",
    "tokenization/string_cache.py": "bulk_encoding",
    "tokenization/tokenization_mybert.py": "tokenization_mybert",
    "tokenization/truncation.py": "truncation",
    "tokenization/vocab.py": "vocab learning",
    "tokenization/words.py": "words learning",
    "conversion/key_map.py": "google_checkpoints transformers_bert google_export",
    "conversion/tensorflow/*.py": "tensor_bundle hostile_files google_checkpoints",
    "runs/optimizers.py": "optimizers",
    "finetuning/training/plan.py": "contrastive learning_rates training_steps finetune evaluation mistakes samples",
    "finetuning/tasks/losses.py": "contrastive distillation samples long_texts rare_labels",
    "files/settings.py": "choices options",
    "files/choices.py": "choices",
}
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
                if not is_text(node):
                    yield Mutant(f"{kind} {named[kind + line]}: {line}", module, operator, occurrence)
                named[kind + line] += 1


def is_text(node: Any) -> bool:
    """Whether a node is part of an annotation, of a message, or of what only type checkers or the shell run."""
    while node is not None:
        parent, code = node.parent, node.children[1].get_code().strip() if node.type == "if_stmt" else ""
        if node.type in ("tfpdef", "raise_stmt") or code in ("TYPE_CHECKING", '__name__ == "__main__"'):
            return True
        if parent is not None and parent.type == "funcdef" and node is parent.annotation:
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
    """A plugin of pytest: quick tests first, an end for each, the name of the first that fails, and their seconds."""

    def __init__(self, known: dict[str, float], longest: float) -> None:
        self.known, self.longest = known, longest
        self.seconds, self.failed = dict[str, float](), ""

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = [item for item in items if self.known.get(item.nodeid, 0) <= self.longest]
        items.sort(key=lambda item: int(self.known.get(item.nodeid, 0)).bit_length())

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        signal.alarm(int(PATIENCE + 5 * self.known.get(nodeid, 60)))  # its default ends the process

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration
        self.pytest_collectreport(report)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.failed = self.failed or report.nodeid


def name_of(module: str) -> str:
    """The name under which a file of the package is imported."""
    return "mybert." + module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def stages_of(module: str) -> list[list[str]]:
    """The words for pytest: each file of the module's direct tests, then the others of its folder."""
    folder = f"tests/{module.partition('/')[0]}"
    names = next(names for pattern, names in TESTS.items() if fnmatch.fnmatch(module, pattern))
    files = [f"{folder}/test_{name}.py" for name in names.split()]
    return [*([file] for file in files), [folder, *(f"--ignore={file}" for file in files)]]


def run_tests(
    sources: dict[str, str], stages: list[list[str]], known: dict[str, float], longest: float, folder: str
) -> Watch:
    """Run the stages of tests on mutated modules, {name: source}, until one fails; `known` are the tests' seconds."""
    import pytest

    watch = Watch(known, longest)
    sys.meta_path.insert(0, MutatedModules(sources))
    words = ["-x", "-q", "-m", "not slow", "-n", "0", "-p", "no:cacheprovider", f"--basetemp={folder}"]
    for stage in stages:
        signal.alarm(10 * PATIENCE)  # the collection
        status = int(pytest.main([*words, *stage], plugins=[watch]))
        if status not in (0, 5):  # 5: no quick test in these files
            watch.failed = watch.failed or f"pytest ended with {status}"
            break
    signal.alarm(0)
    return watch


def outcome_of(
    sources: dict[str, str], stages: list[list[str]], known: dict[str, float], longest: float = math.inf
) -> dict[str, Any]:
    """The test that failed in a forked process, or "" if none did, and the seconds of all that ran."""
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
        answer = Path(folder) / "answer.json"
        child = os.fork()
        if not child:
            try:
                os.setsid()
                log = os.open(Path(folder) / "log", os.O_RDWR | os.O_CREAT)
                for stream in range(3):
                    os.dup2(log, stream)
                watch = run_tests(sources, stages, known, longest, f"{folder}/tests")
                answer.write_text(json.dumps({"test": watch.failed, "seconds": watch.seconds}))
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what its tests started
        if answer.exists():
            return json.loads(answer.read_text())
    return {"test": "no end" if os.WTERMSIG(status) == signal.SIGALRM else "crash", "seconds": {}}


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
    parser.add_argument("modules", nargs="*", help="files of the package, wildcards allowed; default: those of TESTS")
    parser.add_argument("--mutants", type=int, default=150, help="number of mutants of the draw")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--output", type=Path, required=True, help="a line of JSON for each mutant")
    parser.add_argument("--again", action="store_true", help="try those again that survived and are not equivalent")
    parser.add_argument("--longest", type=float, default=math.inf, help="seconds; tests that took longer are left out")
    parser.add_argument("--direct", action="store_true", help="only the tests of TESTS, which is quick")
    arguments = parser.parse_args(words)
    try:
        import cosmic_ray  # noqa: F401
    except ImportError:
        print("This needs cosmic-ray: pip install cosmic-ray.", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    patterns = arguments.modules or TESTS
    modules = sorted({str(path.relative_to(ROOT)) for pattern in patterns for path in ROOT.glob(pattern)})
    sources = {module: (ROOT / module).read_text(encoding="utf-8") for module in modules}
    outcomes: dict[str, dict[str, Any]] = {}
    if arguments.output.exists():
        outcomes = {line["name"]: line for line in map(json.loads, arguments.output.read_text().splitlines())}
    known, names = equivalents(), list[str]()
    os.environ.update(QUIET)
    for library in LIBRARIES.split():
        importlib.import_module(library)
    gc.freeze()
    timings = arguments.output.with_suffix(".seconds.json")
    seconds: dict[str, float] = json.loads(timings.read_text()) if timings.exists() else {}
    for mutant in in_order(sources, arguments.seed):
        status = outcomes.get(mutant.name, {}).get("status")
        if status is None or (arguments.again and status == "survived" and mutant.name not in known):
            if (code := mutated(mutant, sources[mutant.module])) is None:
                continue
            stages = stages_of(mutant.module)[: -1 if arguments.direct else None]
            started = time.monotonic()
            outcome = outcome_of({name_of(mutant.module): code}, stages, seconds, arguments.longest)
            seconds = outcome["seconds"] | seconds
            timings.write_text(json.dumps(seconds))
            status, took = "killed" if outcome["test"] else "survived", round(time.monotonic() - started, 1)
            line = {"name": mutant.name, "status": status, "test": outcome["test"], "seconds": took}
            outcomes[mutant.name] = line | {"change": change_of(sources[mutant.module], code)}
            with arguments.output.open("a") as file:
                file.write(json.dumps(outcomes[mutant.name]) + "\n")
        names.append(mutant.name)
        if len(names) == arguments.mutants:
            break
    killers = sorted({outcomes[name]["test"] for name in names} - {""})
    wrong = outcome_of({}, [[test for test in killers if "::" in test]], seconds)["test"]
    assert not wrong, f"{wrong} fails without a mutant"
    for name in names:
        if outcomes[name]["status"] == "survived" and name not in known:
            print(name, *outcomes[name]["change"], sep="\n    ")
    print(table(names, outcomes))
    return 0


if __name__ == "__main__":
    sys.exit(main())
