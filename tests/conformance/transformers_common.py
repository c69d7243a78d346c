"""Run transformers' own common model tests on MyBERT and on encoders that are sped up, and on stock ones to compare.

The tests are in transformers' source distribution, not in its wheel. This script lays out a throw-away test package in
a temporary folder: their files, empty stand-ins for the few modules that the distribution lacks, and `family_tests.py`
from this folder, which says which classes are tested. It then runs pytest there, once for each family: MyBERT and
transformers' BERT, and each type of encoder that `mybert.speed_up` takes, sped up and stock.

    python tests/conformance/transformers_common.py [--source PATH] [--family FAMILY ...] [-- PYTEST_ARGUMENT ...]

The source is the distribution of the installed transformers version, packed (.tar.gz) or unpacked; without it `pip`
downloads it into the cache folder. Exit status 1 if MyBERT has a failure, a sped-up type one that the stock type has
not, or either fewer passes than the stock type, but for a test named below. Needs the package `parameterized`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import transformers

from mybert.encoders import ENCODER_TYPES

# Family -> the stock one that it is compared with.
FAMILIES = {"mybert": "bert", **{f"{name}-sped-up": name for name in ENCODER_TYPES}}
# Tests that only the stock family can pass: the first skips models that collect hidden states themselves, as MyBERT
# does (tests/modeling_mybert/test_packing.py); the second expects the attention's name to be "sdpa".
OF_STOCK_ALONE = {
    "mybert": "test_can_capture_specific_layers_hidden_states",
    **dict.fromkeys(list(FAMILIES)[1:], "test_sdpa_can_dispatch_non_composite_models"),
}
FAILURES = ("failed", "error", "subtests failed")
OUTCOMES = ("passed", "skipped", "failed", "error", "subtests passed", "subtests skipped", "subtests failed")

# What the distributed tests import and the distribution does not hold: mixins of other test suites, so nothing of the
# common tests is lost, and the values with which `ConfigTester` builds a configuration.
STAND_INS = {
    "__init__.py": "",
    "exporters/__init__.py": "",
    "exporters/test_export.py": "class ExportTesterMixin:\n    pass\n",
    "generation/__init__.py": "",
    "generation/test_utils.py": "class GenerationTesterMixin:\n    pass\n",
    "utils/__init__.py": "",
    "utils/test_configuration_utils.py": """config_common_kwargs = {
    "return_dict": False,
    "output_hidden_states": True,
    "output_attentions": True,
    "dtype": "float16",
    "chunk_size_feed_forward": 3,
    "architectures": ["AnyModel"],
    "id2label": {0: "no", 1: "yes"},
    "label2id": {"no": 0, "yes": 1},
    "problem_type": "regression",
}
""",
    # Hands the outcome of the tests, as pytest counts them, to this script.
    "conftest.py": """import json
import os
from pathlib import Path


def pytest_terminal_summary(terminalreporter):
    outcomes = {outcome: [report.nodeid for report in reports if hasattr(report, "nodeid")]
                for outcome, reports in terminalreporter.stats.items()}
    Path(os.environ["CONFORMANCE_REPORT"]).write_text(json.dumps(outcomes))
""",
}


def find_source(source: Path | None, cache: Path) -> Path:
    """The unpacked distribution's folder; what has to be downloaded or unpacked goes into `cache`."""
    name = f"transformers-{transformers.__version__}"
    if source is None:
        source = cache / f"{name}.tar.gz"
        if not source.exists():
            download = [
                "download",
                "--no-deps",
                "--no-binary",
                "transformers",
                "--no-build-isolation",
                "-d",
                str(cache),
            ]
            requirement = f"transformers=={transformers.__version__}"
            subprocess.run([sys.executable, "-m", "pip", *download, requirement], check=True)
    if source.is_file():
        with tarfile.open(source) as archive:
            archive.extractall(cache, filter="data")
        source = cache / name
    if not (source / "tests" / "test_modeling_common.py").is_file():
        raise SystemExit(
            f"{source} holds no tests/test_modeling_common.py; expected transformers' source distribution."
        )
    return source


def build_test_package(source: Path, folder: Path) -> Path:
    """Lay out the test package in `folder`; returns the file that pytest is to run."""
    package = folder / "common_tests"
    package.mkdir()
    for file in (source / "tests").glob("*.py"):
        # Plain modules here: their own test classes run only through those of mybert.
        shutil.copy(file, package / file.name)
    for name, text in STAND_INS.items():
        (package / name).parent.mkdir(exist_ok=True)
        (package / name).write_text(text)
    return Path(shutil.copy(Path(__file__).with_name("family_tests.py"), package / "test_family.py"))


def run_family(family: str, test_file: Path, pytest_arguments: list[str]) -> dict[str, list[str]]:
    """Run the tests of a family; returns the tests that ended in each of `OUTCOMES`."""
    folder = test_file.parents[1]
    report = folder / f"{family}.json"
    command = [sys.executable, "-m", "pytest", str(test_file), "-q", "-p", "no:cacheprovider"]
    subprocess.run(
        [*command, "-W", "ignore::pytest.PytestUnknownMarkWarning", *pytest_arguments],
        cwd=folder,
        env={**os.environ, "CONFORMANCE_FAMILY": family, "CONFORMANCE_REPORT": str(report)},
        check=False,
    )
    if not report.exists():
        raise SystemExit(f"pytest gave no report for {family}.")
    outcomes = json.loads(report.read_text())
    return {outcome: outcomes.get(outcome, []) for outcome in OUTCOMES}


def main() -> int:
    """Run the families asked for and compare them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, help="transformers' source distribution")
    parser.add_argument("--family", nargs="+", choices=FAMILIES, default=list(FAMILIES), help="default: all")
    parser.add_argument("--cache", type=Path, default=Path(".conformance"), help="folder for the distribution")
    parser.add_argument("pytest_arguments", nargs="*", help="passed on, after --")
    arguments = parser.parse_args()

    source = find_source(arguments.source, arguments.cache)
    outcomes: dict[str, dict[str, list[str]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        test_file = build_test_package(source, Path(folder))
        for family in dict.fromkeys(name for each in arguments.family for name in (FAMILIES[each], each)):
            outcomes[family] = run_family(family, test_file, arguments.pytest_arguments)
    for family, ended in outcomes.items():
        print(f"{family}: " + ", ".join(f"{len(ended[outcome])} {outcome}" for outcome in OUTCOMES))
        for outcome in FAILURES:
            for name in ended[outcome]:
                print(f"  {outcome}: {name}")
    return int(any(is_worse(outcomes[family], outcomes[FAMILIES[family]], family) for family in arguments.family))


def is_worse(ended: dict[str, list[str]], stock: dict[str, list[str]], family: str) -> bool:
    """Whether a family has a failure that is not stock, or fewer passes, but for `OF_STOCK_ALONE`."""
    ended, stock = (
        {
            outcome: [name for name in names if not name.endswith(OF_STOCK_ALONE[family])]
            for outcome, names in each.items()
        }
        for each in (ended, stock)
    )
    known = {name for outcome in FAILURES for name in stock[outcome] if family != "mybert"}
    return (
        not ended["passed"]
        or any(set(ended[outcome]) - known for outcome in FAILURES)
        or any(len(ended[outcome]) < len(stock[outcome]) for outcome in ("passed", "subtests passed"))
    )


if __name__ == "__main__":
    sys.exit(main())
