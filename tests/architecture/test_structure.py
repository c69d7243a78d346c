"""The rules of the architecture: levels, names, foreign code, the Hub's modeling code, shipped packages, imports."""

import ast
import importlib
import re
import sys
from collections import defaultdict
from pathlib import Path

import pytest

import mybert

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
SIZES = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
LEVELS = {name: int(level) for level, name in re.findall(r"^\| (\d) \| `(\w+)/`", PAGE, re.MULTILINE)}
LONGEST = 600  # lines of a file
LIBRARIES_OF_EXTRAS = (
    "datasets",
    "evaluate",
    "matplotlib",
    "sklearn",
    "scipy",
    "onnx",
    "onnxruntime",
    "openpyxl",
    "pandas",
    "sentence_transformers",
)


def imported_modules(tree: ast.Module) -> list[tuple[int, str]]:
    """(level, module) of every import in a file, `from . import a` counted as one of `a`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(0, alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            found += [(node.level, name) for name in names]
    return found


# Subpackages and the packages within them, as `conversion.tensorflow`.
PACKAGES = sorted(
    ".".join(path.parent.relative_to(ROOT).parts) for name in LEVELS for path in (ROOT / name).rglob("__init__.py")
)
REPOSITORY_ONLY = {"benchmarks"}


@pytest.fixture(scope="module")
def imports(trees):
    """Subpackage -> its files -> what they import."""
    found = defaultdict(dict)
    for path, tree in trees.items():
        found[path.parts[0]][path] = imported_modules(tree)
    return found


def test_the_walks_of_the_page_exist(trees):
    rows = re.findall(r"^\|.*`([\w/]+\.py)`.*\| `([\w.]+)`", PAGE, re.MULTILINE)
    assert len(rows) > 20
    for file, name in rows:
        *owner, last = name.split(".")
        body = trees[Path(file)].body
        for part in owner:
            body = next(node.body for node in body if isinstance(node, ast.ClassDef) and node.name == part)
        names = {getattr(node, "name", None) or ast.unparse(getattr(node, "target", node)) for node in body}
        assert last in names, f"{file} lacks {name}"


def test_sizes_in_contributing_hold():
    sizes = {
        name: int(size.replace(",", ""))
        for name, size in re.findall(r"^\| `(\w+)/` \| ([\d,]+) \|", SIZES, re.MULTILINE)
    }
    assert set(sizes) == set(LEVELS)
    for name, size in sizes.items():
        lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / name).rglob("*.py"))
        assert lines == pytest.approx(size, rel=0.1), name


def test_every_subpackage_has_a_level():
    names = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert names == set(LEVELS)


def test_every_folder_with_code_is_a_package(trees):
    assert all(path.parent / "__init__.py" in trees for path in trees)


@pytest.mark.parametrize("name", LEVELS)
def test_a_subpackage_imports_only_from_lower_levels(name, imports):
    assert imports[name]
    for path, imported in imports[name].items():
        depth = len(path.parts) - 1
        for level, module in imported:
            assert not module.startswith("mybert"), f"{path} imports {module} absolutely"
            if level > depth:
                assert level == depth + 1, f"{path} reaches above the package"
                other = module.split(".")[0]
                is_mechanism = path.name == "__init__.py" and other in ("_lazy_names", "_registration")
                assert is_mechanism or LEVELS[other] < LEVELS[name], f"{path} imports {other}, not on a lower level"


def assert_no_circle(above):
    """`above` has what each of some files or folders imports."""
    while leaves := [path for path, imported in above.items() if not imported & above.keys()]:
        for path in leaves:
            del above[path]
    assert not above, "they import each other in a circle"


@pytest.mark.parametrize("name", LEVELS)
def test_files_and_folders_import_each_other_in_one_direction(name, imports):
    files = defaultdict(set)  # file -> files of its folder that it imports
    folders = defaultdict(set)  # folder -> folders of its subpackage that it imports from
    for path, imported in imports[name].items():
        for level, module in imported:
            first = module.split(".")[0]
            if level == 1 and path.name != "__init__.py":
                files[path].add(path.with_name(f"{first}.py"))
            if level == 2 and len(path.parts) == 3:
                folders[path.parent].add(Path(name, first))
    assert_no_circle(folders)
    if name != "modeling_mybert":  # there the encoder names its heads
        assert_no_circle(files)


def test_modeling_files_import_only_siblings_torch_and_transformers(imports):
    allowed = {"torch", "transformers", *sys.stdlib_module_names}
    files = imports["modeling_mybert"]
    assert len(files) >= 3
    for path, imported in files.items():
        for level, module in imported if path.name != "__init__.py" else ():
            if level == 0:
                assert module.split(".")[0] in allowed, f"{path} imports {module}"
            else:
                assert level == 1, f"{path} imports {module} from outside its folder"
                assert path.with_name(f"{module}.py") in files, f"{path} imports .{module}, which is no sibling file"


@pytest.mark.parametrize("package", PACKAGES)
def test_public_names_of_a_package_are_none_of_its_modules(package):
    """Importing the module would hide the name, which loads on first use."""
    loaded = importlib.import_module(f"mybert.{package}")
    modules = {path.stem for folder in loaded.__path__ for path in Path(folder).glob("*.py")}
    assert not modules & {*getattr(loaded, "__all__", ())}


def test_shipped_packages_are_all_but_those_of_the_repository():
    tomllib = pytest.importorskip("tomllib", reason="reading pyproject.toml needs Python 3.11")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    shipped = project["tool"]["setuptools"]["packages"]
    expected = ["mybert", *(f"mybert.{package}" for package in PACKAGES if package not in REPOSITORY_ONLY)]
    assert sorted(shipped) == sorted(expected)


def test_shipped_files_import_no_repository_only_package(imports):
    for name in imports.keys() - REPOSITORY_ONLY:
        for path, imported in imports[name].items():
            assert not [module for _, module in imported if REPOSITORY_ONLY & {*module.split(".")}], path


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


def test_no_name_stands_for_two_things(trees):
    """Classes and functions at the top of a file; `main` is what `python -m` runs, and the command."""
    found = defaultdict(list)
    for path, tree in trees.items():
        definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        for name in {node.name for node in tree.body if isinstance(node, definitions)} - {"main"}:
            if not name.startswith("_"):
                found[name].append(str(path))
    assert not {name: files for name, files in found.items() if len(files) > 1}


def test_files_are_short_and_finished(trees):
    marks = re.compile(r"\b(TODO|FIXME|XXX)\b")
    for path in trees:
        text = (ROOT / path).read_text(encoding="utf-8")
        assert len(text.splitlines()) <= LONGEST and not marks.search(text), path


def test_the_label_that_counts_nowhere_is_stated_once(trees):
    stated = [
        str(path)
        for path, tree in trees.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and ast.unparse(node) == "-100"
    ]
    assert stated == ["modeling_mybert/losses_mybert.py"]


def test_foreign_code_is_never_trusted_nor_anything_unpickled(trees):
    """Wherever transformers could run code or unpickle weights of a model folder it is told not to."""
    loaders = ("AutoConfig", "AutoTokenizer", "AutoModel", "auto_class")
    forbidden = ("torch.load", "pickle.load", "pickle.loads", "yaml.load", "evaluate.load")
    told = 0
    for path, node in ((path, node) for path, tree in trees.items() for node in ast.walk(tree)):
        if isinstance(node, ast.keyword) and node.arg in ("trust_remote_code", "weights_only"):
            expected = node.arg == "weights_only"
            assert isinstance(node.value, ast.Constant) and node.value.value is expected, f"{path}:{node.lineno}"
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        assert name not in forbidden, f"{path}:{node.lineno}"
        if name.endswith(".from_pretrained") and name.removeprefix("transformers.").startswith(loaders):
            given = {keyword.arg for keyword in node.keywords}  # None is ** of a dictionary
            assert given & {"trust_remote_code", None}, f"{path}:{node.lineno}"
            told += 1
    assert told
