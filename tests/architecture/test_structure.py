"""The rules of the architecture: levels, the Hub's modelling code, shipped packages, light imports, one copy."""

import ast
import re
import sys
from pathlib import Path

import pytest

import mybert

ROOT = Path(__file__).resolve().parents[2]
LEVELS = {
    "files": 0,
    "modeling_mybert": 0,
    "metrics": 0,
    "tokenization": 1,
    "pipelines": 1,
    "visualization": 1,
    "runs": 2,
    "hub_card": 2,
    "conversion": 3,
    "pretraining": 3,
    "finetuning": 3,
    "studies": 4,
    "benchmarks": 4,
    "command_line": 4,
    "demo": 4,
}
LIBRARIES_OF_EXTRAS = (
    "datasets",
    "evaluate",
    "matplotlib",
    "sklearn",
    "scipy",
    "onnx",
    "onnxruntime",
    "pandas",
    "sentence_transformers",
)


def imported_modules(path: Path) -> list[tuple[int, str]]:
    """(level, module) of every import in a file, `from . import a` counted as one of `a`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, name) for name in names]
    return found


def sources(name: str) -> list[Path]:
    return sorted((ROOT / name).rglob("*.py"))


# Subpackages and the packages within them, as `conversion.tensorflow`.
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for name in LEVELS for path in (ROOT / name).rglob("__init__.py")
)

REPOSITORY_ONLY = {"benchmarks.scripts"}


def test_every_subpackage_has_a_level():
    names = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert names == set(LEVELS)


@pytest.mark.parametrize("name", LEVELS)
def test_every_folder_with_code_is_a_package(name):
    folders = {path.parent for path in sources(name)}
    assert all((folder / "__init__.py").is_file() for folder in folders)


@pytest.mark.parametrize("name", LEVELS)
def test_a_subpackage_imports_only_from_lower_levels(name):
    assert sources(name)
    for path in sources(name):
        depth = len(path.relative_to(ROOT).parts) - 1
        for level, module in imported_modules(path):
            assert not module.startswith("mybert"), f"{path} imports {module} absolutely"
            if level > depth:
                assert level == depth + 1, f"{path} reaches above the package"
                other = module.split(".")[0]
                is_mechanism = path.name == "__init__.py" and other == "_exports"
                assert is_mechanism or LEVELS[other] < LEVELS[name], f"{path} imports {other}, not on a lower level"


def siblings_imported_by(path: Path) -> set[Path]:
    """Files of the same folder that a file imports, at its top or within a function."""
    names = (module.split(".")[0] for level, module in imported_modules(path) if level == 1)
    return {path.with_name(f"{name}.py") for name in names if path.with_name(f"{name}.py").is_file()}


@pytest.mark.parametrize("name", sorted(set(LEVELS) - {"modeling_mybert"}))  # there the encoder names its heads
def test_files_of_a_folder_import_each_other_in_one_direction(name):
    above = {path: siblings_imported_by(path) for path in sources(name) if path.name != "__init__.py"}
    while leaves := [path for path, imported in above.items() if not imported & above.keys()]:
        for path in leaves:
            del above[path]
    assert not above, "these files import each other in a circle"


def folders_imported_by(folder: Path, name: Path) -> set[Path]:
    """The other folders of its subpackage that a folder's files import from."""
    found = set()
    for path in folder.glob("*.py"):
        for level, module in imported_modules(path):
            if level == 2:
                found.add(name / module.split(".")[0])
    return {path for path in found if path.is_dir()}


@pytest.mark.parametrize("name", LEVELS)
def test_folders_of_a_subpackage_import_each_other_in_one_direction(name):
    inside = {path.parent for path in (ROOT / name).glob("*/__init__.py")}
    above = {folder: folders_imported_by(folder, ROOT / name) for folder in inside}
    while leaves := [folder for folder, imported in above.items() if not imported & above.keys()]:
        for folder in leaves:
            del above[folder]
    assert not above, "these folders import each other in a circle"


def test_modelling_files_import_only_siblings_torch_and_transformers():
    allowed = {"torch", "transformers", *sys.stdlib_module_names}
    files = [path for path in sources("modeling_mybert") if path.name != "__init__.py"]
    assert len(files) >= 2
    for path in files:
        for level, module in imported_modules(path):
            if level == 0:
                assert module.split(".")[0] in allowed, f"{path} imports {module}"
            else:
                assert level == 1, f"{path} imports {module} from outside its folder"
                assert (path.parent / f"{module}.py").is_file(), f"{path} imports .{module}, which is no sibling file"


def test_shipped_packages_are_all_but_the_scripts():
    tomllib = pytest.importorskip("tomllib", reason="reading pyproject.toml needs Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["setuptools"]["packages"]
    expected = ["mybert", *(f"mybert.{package}" for package in PACKAGES if package not in REPOSITORY_ONLY)]
    assert sorted(shipped) == sorted(expected)
    data = project["tool"]["setuptools"]["package-data"]
    needed = {path.parent.name for path in ROOT.glob("*/*.html")}
    assert {f"mybert.{name}" for name in needed} <= set(data)


def test_what_is_shipped_does_not_import_what_is_not():
    for package in REPOSITORY_ONLY:
        name, folder = package.split(".")
        for path in (path for path in sources(name) if path.parent.name != folder):
            assert not {module for _, module in imported_modules(path) if folder in module.split(".")}, path


def test_no_subpackage_hides_a_library():
    assert not {"datasets", "evaluate", "tokenizers", "transformers", "torch"} & {p.name for p in ROOT.iterdir()}


def test_one_copy_of_the_package_is_loaded():
    root = Path(mybert.__file__).resolve().parent
    copies = {
        name
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) and Path(file).resolve() == root / "__init__.py"
    }
    assert copies == {"mybert"}


def test_no_package_needs_an_extra_to_be_imported(run_python):
    modules = [f"mybert.{package}" for package in PACKAGES]
    code = f"""
import importlib, sys
sys.modules.update(dict.fromkeys({LIBRARIES_OF_EXTRAS}))
for package in map(importlib.import_module, {modules}):
    for name in getattr(package, "__all__", ()):
        getattr(package, name)
print(*sys.modules)
"""
    assert set(modules) <= set(run_python("-c", code).stdout.split())


def test_public_names_exist():
    assert set(mybert.__all__) <= set(dir(mybert))
    for name in mybert.__all__:
        assert getattr(mybert, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'MyBort'"):
        mybert.MyBort  # noqa: B018


def test_nothing_public_is_unfinished():
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for name in LEVELS:
        for path in sources(name):
            assert not marks.search(path.read_text()), path
