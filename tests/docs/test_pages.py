"""What the pages say is true: their commands and snippets run; their links, flags, paths and names exist.

Each page is a session in a folder of its own, from top to bottom, with stand-ins for the files that readers bring
(`conftest.py`). What a block writes is not there before it, and training is cut to two steps of a tiny model. The
first command of each module runs in a process of its own, where nothing is imported or registered before. A block that
cannot run here has `<!-- not run: reason -->` above it, and so have all blocks of `benchmarks/results`: their commands
are still parsed and their Python compiled, and pytest lists them as skipped. New pages are found by themselves.
"""

import ast
import contextlib
import importlib
import importlib.util
import inspect
import json
import re
import shlex
import shutil
from dataclasses import dataclass
from itertools import dropwhile, pairwise
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
import yaml
from accelerate.commands.launch import launch_command_parser
from accelerate.state import AcceleratorState
from markdown_it import MarkdownIt
from torch.distributed.run import get_args_parser as torchrun_parser

from mybert import cli
from mybert.command_line.flags import parse_flags
from mybert.files.options import options_of
from mybert.modeling_mybert.linear_mybert import has_bfloat16_kernels

ROOT = Path(__file__).parents[2]
WRITTEN = ("README*.md", "docs/**/*.md", "benchmarks/results/*.md", "examples/*.md")
PAGES = [path.relative_to(ROOT).as_posix() for pattern in WRITTEN for path in sorted(ROOT.glob(pattern))]

SETTINGS = [
    path.relative_to(ROOT).as_posix()
    for folder in ("pretraining/recipes", "studies/suites")
    for path in sorted((ROOT / folder).glob("*.yaml"))
]

PROGRAMS = ("mybert", "python", "torchrun", "accelerate", "make", "pip", "pytest")
NOT_RUN = re.compile(r"<!-- not run: (.+?) -->", re.DOTALL)
OUTPUTS = ("output", "output_dir")  # settings that name what is written

# What makes a documented run short; everything else stays as the page has it.
TWO_STEPS = {"max_steps": 2, "logging_steps": 1, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}
SHORT: dict[str, dict[str, Any]] = {
    "transformers.TrainingArguments": TWO_STEPS,
    "sentence_transformers.SentenceTransformerTrainingArguments": TWO_STEPS,
    "mybert.pretraining.PretrainSettings": TWO_STEPS
    | {"model_size": "tiny", "phase2_steps": 0.5}
    | {"phase2_per_device_train_batch_size": 4, "phase2_gradient_accumulation_steps": 1},
    "mybert.pretraining.AdaptSettings": TWO_STEPS | {"new_pieces": 4},
    "mybert.finetuning.FinetuneSettings": TWO_STEPS,
    "mybert.demo.DemoSettings": {"text": ["corpus"]},
    "mybert.studies.AblationSettings": {"rows": ["mlm+nsp", "ltr+bilstm"]},
    "mybert.studies.BenchSettings": {"repeats": 1},
    "mybert.hub_card.PushSettings": {"output_dir": "pushed", "overwrite": True},  # uploads nothing
}


@dataclass(frozen=True)
class Block:
    """Code on a page: a Python snippet, or commands."""

    page: str
    line: int
    is_python: bool
    code: str
    reason: str | None  # why it is not run

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    def commands(self) -> list[list[str]]:
        """Words of each command."""
        lines = self.code.replace("\\\n", " ").splitlines()
        return [words for words in (shlex.split(line, comments=True) for line in lines) if words]


def tokens_of(page: str) -> list[Any]:
    return MarkdownIt("commonmark").enable("table").parse((ROOT / page).read_text(encoding="utf-8"))


def blocks_of(page: str) -> list[Block]:
    always = "minutes or hours of measurement" if page.startswith("benchmarks/") else None
    blocks, reason = [], always
    for token in tokens_of(page):
        if token.type in ("fence", "code_block"):
            first = token.content.split(maxsplit=1)[:1]
            is_commands = token.info == "bash" or (not token.info and first and first[0] in PROGRAMS)
            if token.info == "python" or is_commands:
                blocks.append(Block(page, token.map[0] + 1, token.info == "python", token.content, reason))
        mark = NOT_RUN.search(token.content) if token.type == "html_block" else None
        reason = " ".join(mark[1].split()) if mark else always
    return blocks


def commands_within(text: str) -> list[list[str]]:
    """The commands of mybert in text that is more than commands: a job script, a manifest, comments."""
    lists = re.findall(r"\[[^\[\]]*\bmybert\b[^\[\]]*\]", text)  # of YAML
    lines = re.findall(r"^.*(?<!\S)mybert [a-z].*$", text.replace("\\\n", " "), re.MULTILINE)
    commands = [*([str(word) for word in yaml.safe_load(words)] for words in lists), *map(shlex.split, lines)]
    own = [words[words.index("mybert") :] for words in commands if "mybert" in words]
    return [words for words in own if name_of(words) in cli.COMMANDS]


def scripts_of(page: str) -> list[list[str]]:
    """The commands in blocks that are neither Python nor commands alone; in a YAML file, those of its comments."""
    if page.endswith(".yaml"):
        return commands_within(re.sub("^# ?", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE))
    lines = {block.line for block in BLOCKS[page]}
    blocks = [token for token in tokens_of(page) if token.type in ("fence", "code_block")]
    return [words for token in blocks if token.map[0] + 1 not in lines for words in commands_within(token.content)]


BLOCKS = {page: blocks_of(page) for page in PAGES}
LEFT_OUT = [block for blocks in BLOCKS.values() for block in blocks if block.reason]


@pytest.fixture
def desk(tmp_path, monkeypatch, stand_ins):
    """The folder of a reader, with the files that pages name; the working directory."""
    folder = tmp_path / "desk"
    shutil.copytree(stand_ins, folder)
    monkeypatch.chdir(folder)
    AcceleratorState._reset_state(reset_partial_state=True)  # as in a new process
    return folder


def mybert_command(words: list[str]) -> tuple[list[str], Any] | None:
    """What a command gives to `mybert`, and its parsed arguments; None if it is another that was found to be right.

    Raises:
        ValueError: If the program, a flag or a file is unknown.
    """
    program, *rest = dropwhile(lambda word: re.fullmatch(r"[A-Z_]+=.*", word), words)
    if program in ("torchrun", "accelerate"):
        parser = torchrun_parser() if program == "torchrun" else launch_command_parser()
        if program == "accelerate":
            assert rest.pop(0) == "launch"
        launched = parser.parse_args(rest)
        module, rest = launched.training_script, launched.training_script_args
        assert launched.module and module == "mybert", f"{' '.join(words)}: expected -m mybert"
    elif program == "make":
        targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert {word for word in rest if "=" not in word} <= set(targets), f"make: {rest}"
    elif program == "pip":
        assert rest[0] == "install" and rest[1:], f"pip: {rest}"
    elif program == "pytest" or (program == "python" and rest[0] != "-m"):
        source = "" if program == "pytest" else (ROOT / rest[0]).read_text()
        for word in rest:
            assert not word.startswith("--") or word in source, f"{rest[0]} has no flag {word}"
            assert not word.startswith("tests/") or (ROOT / word).exists(), f"there is no {word}"
    elif program == "python" and rest[1].startswith("mybert.benchmarks."):
        modules = (rest[1], "mybert.benchmarks.harness")  # which has the flags that scripts share
        source = "".join(inspect.getsource(importlib.import_module(module)) for module in modules)
        for flag in (word for word in rest[2:] if word.startswith("--")):
            assert flag in source, f"{rest[1]} has no flag {flag}"
        return None
    elif program == "python":
        assert rest[1] == "mybert", f"{' '.join(words)}: expected -m mybert"
        rest = rest[2:]
    elif program != "mybert":
        raise ValueError(f"{program} is none of {', '.join(PROGRAMS)}; mark the block as not run, or name it in bash.")
    if program in ("make", "pip", "pytest") or (program == "python" and words[1] != "-m"):
        return None
    if not rest or rest[0].startswith("-"):  # mybert --help, --version
        return None
    name = " ".join(rest[:2]) if " ".join(rest[:2]) in cli.COMMANDS else rest[0]
    flags, _ = cli.take_debug(rest[len(name.split()) :])
    if "--help" in flags:
        cli.COMMANDS[name].load_function()
        return None
    return rest, parse_flags(name, flags)


def outputs_of(code: str) -> set[str]:
    """Paths that a snippet names as `output=` or `output_dir=`."""
    keywords = [node for node in ast.walk(ast.parse(code)) if isinstance(node, ast.keyword)]
    return {node.value.value for node in keywords if node.arg in OUTPUTS and isinstance(node.value, ast.Constant)} - {
        None
    }


def remove(name: str | None, folder: Path) -> None:
    """Remove an existing output."""
    path = folder / name if name else folder
    if path == folder:
        return
    assert path.resolve().is_relative_to(folder.resolve()), f"{name} is outside of the page's folder"
    if not path.exists():
        return
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def shorten(patch: Any, shorter: dict[str, dict[str, Any]], load: Any) -> None:
    """Shorten the settings of long runs, wherever they are created; `load` gives a module, or None to leave it out."""
    for name, short in shorter.items():
        module, _, class_name = name.rpartition(".")
        if not (loaded := load(module)):
            continue
        arguments_class = getattr(loaded, class_name)

        def shortened(kwargs, _short=short):
            kwargs.pop("max_hours", None)  # a recipe's; the steps are counted
            fitting = _short if kwargs.get("approach") == "features" else {**_short, "lstm_size": None}
            if kwargs.get("model"):  # which has its own size
                fitting = {**fitting, "model_size": None}
            if not kwargs.get("phase2_max_length"):
                fitting = {name: value for name, value in fitting.items() if not name.startswith("phase2_")}
            return kwargs | {name: value for name, value in fitting.items() if value is not None}

        def construct(self, *args, _shortened=shortened, _construct=arguments_class.__init__, **kwargs):
            _construct(self, *args, **_shortened(kwargs))

        def read(given, _shortened=shortened, _read=getattr(arguments_class, "read", None)):  # noqa: B008
            return _read(_shortened(dict(given)))

        if hasattr(arguments_class, "read"):  # settings that consist of parts
            patch.setattr(arguments_class, "read", read)
        else:
            patch.setattr(arguments_class, "__init__", construct)


# The command as its script starts it; its settings are shortened once it has loaded them.
OWN_PROCESS = f"""
import json, sys, types
from typing import Any
shorter, sys.argv = json.loads(sys.argv[1]), ["mybert", *sys.argv[2:]]
{inspect.getsource(shorten)}
from mybert.__main__ import main
from mybert.command_line import Command
def then_shortened(load):
    def load_and_shorten(command):
        loaded = load(command)
        shorten(types.SimpleNamespace(setattr=setattr), shorter, sys.modules.get)
        return loaded
    return load_and_shorten
Command.load_settings = then_shortened(Command.load_settings)
Command.load_function = then_shortened(Command.load_function)  # which loads settings of what it calls
sys.exit(main())
"""


def name_of(words: list[str]) -> str:
    """The command of `mybert` that a line calls."""
    return " ".join(words[1:3]) if " ".join(words[1:3]) in cli.COMMANDS else " ".join(words[1:2])


# Module -> the line of a page that runs a command of it first, for which it gets a process of its own.
FIRST: dict[str, tuple[Block, list[str]]] = {}
for _block in (block for blocks in BLOCKS.values() for block in blocks if not block.reason and not block.is_python):
    for _words in _block.commands():
        if _words[0] == "mybert" and name_of(_words) in cli.COMMANDS:
            FIRST.setdefault(cli.COMMANDS[name_of(_words)].module, (_block, _words))


def run(block: Block, namespace: dict[str, Any], folder: Path, monkeypatch, run_python) -> None:
    """Run a block as its reader would."""
    if block.is_python:
        for output in outputs_of(block.code):
            remove(output, folder)
        with monkeypatch.context() as patch:
            shorten(patch, SHORT, importlib.import_module)
            # Line numbers in tracebacks are those of the page.
            exec(compile("\n" * block.line + block.code, str(ROOT / block.page), "exec"), namespace)
        return
    for words in block.commands():
        command = mybert_command(words)
        if command is None:
            continue
        argv, arguments = command
        if not getattr(arguments, "append", False):
            for output in OUTPUTS:
                remove(getattr(arguments, output, None), folder)
        if (block, words) in FIRST.values():
            run_python("-c", OWN_PROCESS, json.dumps(SHORT), *argv, "--debug", cwd=folder)
            continue
        with monkeypatch.context() as patch:
            shorten(patch, SHORT, importlib.import_module)
            assert cli.main([*argv, "--debug"]) == 0, f"{block}: {' '.join(words)}"


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]])
def test_the_page_runs(page, desk, monkeypatch, run_python):
    namespace: dict[str, Any] = {"__name__": "snippet"}
    for block in BLOCKS[page]:
        needs_bfloat16 = "bfloat16" in block.code  # an error on CPUs without kernels for it, as the pages say
        if not block.reason and (has_bfloat16_kernels() or not needs_bfloat16):
            run(block, namespace, desk, monkeypatch, run_python)


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCKS[page]])
def test_commands_parse_and_snippets_compile(page, stand_ins, monkeypatch):
    monkeypatch.chdir(stand_ins)  # where nothing is written
    for block in BLOCKS[page]:
        if block.is_python:
            compile("\n" * block.line + block.code, str(ROOT / page), "exec")
        else:
            for words in block.commands():
                mybert_command(words)


@pytest.mark.parametrize("page", [page for page in [*PAGES, *SETTINGS] if scripts_of(page)])
def test_commands_in_scripts_manifests_and_comments_parse(page, stand_ins, monkeypatch):
    monkeypatch.chdir(stand_ins)
    for words in scripts_of(page):
        mybert_command(words)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(
            "srun torchrun --nnodes 2 -m mybert pretrain \\\n    --data store --output_dir out\n", id="script"
        ),
        pytest.param("command: [torchrun, --nnodes, '2', -m, mybert, pretrain,\n  --data, store]", id="manifest"),
    ],
)
def test_commands_within_finds_a_flag_that_does_not_exist(text):
    (words,) = commands_within(text)
    assert words[:2] == ["mybert", "pretrain"]
    with pytest.raises(ValueError, match="unknown flag '--data'"):
        mybert_command(words)


@pytest.mark.parametrize("block", LEFT_OUT, ids=str)
def test_left_out(block):
    pytest.skip(block.reason)


def inline_code(page: str) -> list[str]:
    return [
        child.content for token in tokens_of(page) for child in token.children or () if child.type == "code_inline"
    ]


def headings(page: Path) -> set[str]:
    """Anchors of a page's headings, as GitHub makes them."""
    tokens = tokens_of(page.relative_to(ROOT).as_posix())
    titles = [title.content for mark, title in pairwise(tokens) if mark.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    children = [child for token in tokens_of(page) for child in token.children or ()]
    targets = [
        child.attrs.get("href") or child.attrs.get("src") for child in children if child.type in ("link_open", "image")
    ]
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = unquote(target).partition("#")
        path = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        assert path.exists(), f"{page} links to {target}, which is not there"
        assert not anchor or anchor in headings(path), f"{page} links to {target}; there is no such heading"


@pytest.mark.parametrize("page", PAGES)
def test_rows_of_a_table_have_a_cell_for_each_column(page):
    """A bar within a cell, in code too, would begin another."""
    lines = (ROOT / page).read_text(encoding="utf-8").splitlines()
    for number, (above, line) in enumerate(pairwise(lines), start=2):
        if above.startswith("|") and line.startswith("|"):
            bars = [len(re.findall(r"(?<!\\)\|", row)) for row in (above, line)]
            assert bars[0] == bars[1], f"{page}:{number}"


@pytest.fixture(scope="session")
def flags_by_command():
    """The flags of each command; those of the launchers have the name "launch"."""
    launchers = (torchrun_parser(), launch_command_parser())
    flags = {"launch": {option for parser in launchers for each in parser._actions for option in each.option_strings}}
    for command_name, command in cli.COMMANDS.items():
        flags[command_name] = {"--help", "--help_all", "--version", "--debug", "--config", "--quiet"}
        for name, field in options_of(command.load_settings()).items():
            flags[command_name] |= {f"--{name}", f"--no_{name}"} if field.type in (bool, "bool") else {f"--{name}"}
    return flags


@pytest.mark.parametrize("page", PAGES)
def test_names_in_the_text_exist(page, flags_by_command):
    known_flags = set().union(*flags_by_command.values())
    for code in inline_code(page):
        words = code.split()
        if words and words[0] == "mybert" and len(words) > 1 and re.match(r"[a-z]", words[1]):
            assert any(" ".join(words[1:]).startswith(name.split()[0]) for name in cli.COMMANDS), code
        if words and (words[0].startswith("--") or words[0] == "mybert"):
            allowed = flags_by_command.get(name_of(words), known_flags) if words[0] == "mybert" else known_flags
            for flag in re.findall(r"(?<!\S)--[\w-]+", code):
                assert flag in allowed, f"{page}: there is no {flag} ({code})"
        for path in re.findall(r"(?<![\w./-])(?:tests|benchmarks|recipes|docs)/[\w./-]+", code):
            assert (ROOT / path).exists(), f"{page}: there is no {path}"
        for name in re.findall(r"(?<![\w./-])mybert(?:\.\w+)+(?!\.?[\w/-])", code):
            module, _, attribute = name.rpartition(".")
            found = importlib.import_module(module)
            with contextlib.suppress(ModuleNotFoundError):
                found = importlib.import_module(name)
                continue
            assert hasattr(found, attribute), f"{page}: there is no {name}"


def test_pages_named_in_code_exist():
    packages = [init.parent for init in ROOT.glob("*/__init__.py")]
    sources = [path.read_text(encoding="utf-8") for package in packages for path in package.rglob("*.py")]
    pages = {page for source in sources for page in re.findall(r"\bdocs/[\w.]+\.md", source)}
    assert "docs/graphs.md" in pages
    assert not [page for page in sorted(pages) if not (ROOT / page).is_file()]


def test_subpackages_on_pages_load_after_import_mybert(run_python):
    names = {name for page in PAGES for code in inline_code(page) for name in re.findall(r"^mybert\.(\w+)\.\w", code)}
    names = {name for name in names if (ROOT / name / "__init__.py").exists()} - {"benchmarks"}  # not shipped
    assert {"pretraining", "studies"} <= names
    run_python("-c", f"import mybert; assert {names} <= set(dir(mybert)), {names} - set(dir(mybert))")


@pytest.mark.parametrize("page", ["README.md", "README.ko.md"])
def test_readme_names_every_command(page):
    code = set(inline_code(page))
    missing = [name for name in cli.COMMANDS if not {f"mybert {name}", name.split()[-1]} & code]
    assert not missing, f"{page} has no {', '.join(missing)}"


def test_how_to_pages_and_results_are_short():
    how_to = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("- How-to")[2].partition("- Migration")[0]
    pages = re.findall(r"docs/\w+\.md", how_to)
    assert len(pages) > 20
    for page in pages:
        assert min((block.line for block in BLOCKS[page]), default=99) <= 10, f"{page} begins with other than code"
    for page in [*pages, "docs/conversion.md", "docs/evidence.md", "docs/objectives.md"]:
        assert len((ROOT / page).read_text(encoding="utf-8").split()) <= 800, f"{page} has more than 800 words"


@pytest.mark.parametrize("folder", ["docs", "benchmarks/results"])
def test_the_index_has_every_page(folder):
    index = (ROOT / folder / "README.md").read_text(encoding="utf-8")
    names = {path.name for path in ROOT.glob(f"{folder}/*.md")} - {"README.md"}
    missing = [name for name in sorted(names) if f"({name})" not in index]
    assert not missing, f"{folder}/README.md has no line for {', '.join(missing)}"


def test_extras_exist():
    """Those that pages, messages and help ask to install."""
    extras = re.findall(r"^([a-z0-9]+) = \[", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    sources = [ROOT / page for page in PAGES]
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name[0] != "." and path.name != "tests"]
    sources += [path for folder in folders for path in folder.rglob("*.py")]
    texts = {path: path.read_text(encoding="utf-8") for path in sources}
    named = {
        extra: path
        for path, text in texts.items()
        for names in re.findall(r"""'\.\[([\w,]+)\]'|how_to_install\(['"](\w+)""", text)
        for extra in "".join(names).split(",")
    }
    assert {"train", "onnx", "peers", "excel"} <= set(named)
    assert not {extra: path for extra, path in named.items() if extra not in extras}
    on_an_index = [path for path, text in texts.items() if re.search(r"pip install '?mybert\b", text)]
    assert not on_an_index, f"{on_an_index} install mybert from a package index, which does not have it"
