"""Build the documentation site: python docs/build_site.py (or make docs), then open .site/html/index.html.

MkDocs needs a folder with nothing but pages. Here the pages are next to the code, with README.md in the root, so they
are copied to the same paths in `.site/pages`, which keeps links equal on GitHub and on the site. Notebooks become
pages with their outputs, docstrings the reference. A broken link or anchor fails the build (`--strict`), as does a
page that is not in `mkdocs.yml`. The flags of the commands and the recipes are written from the package. Commands and
the Python code after them become tabs (`with_tabs`). `REPOSITORY_URL=https://...` adds links to the repository.

For language models and other programs, the site also has each page as Markdown at its path in the repository, and
`llms.txt`, which lists them (https://llmstxt.org).
"""

import argparse
import os
import re
import shutil
import textwrap
from itertools import takewhile
from pathlib import Path
from typing import Any

import nbformat
from filelock import FileLock
from mkdocs.__main__ import cli
from mkdocs.config import load_config
from nbconvert import MarkdownExporter

from mybert.command_line import COMMANDS
from mybert.command_line.flags import CommandParser, GroupedFormatter
from mybert.files.options import Group

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / ".site" / "pages"
PACKAGE = ROOT / ".site" / "source" / "mybert"  # nothing but the package, for mkdocstrings
COPIED = (
    "README*.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
    "docs/**/*.md",
    "docs/images/*",
    "docs/site.css",
    "benchmarks/results/*.md",
    "examples/*",
)

WIDE = "---\nhide: [navigation]\n---\n\n"  # of a page that is alone in its section

# Commands, text without headings, tables and other code that ends in "In Python:", and a block of Python.
TEXT_LINE = r"(?!```| {4}|[#|<]).*"
COMMANDS_AND_PYTHON = re.compile(
    r"^(?P<commands>```bash\n(?:(?!```).*\n)+```\n| {4}mybert .*\n(?: {4}.*\n)*)\n"
    rf"(?P<text>(?:{TEXT_LINE}\n)*?(?:{TEXT_LINE} )?)(?:In Python|파이썬에서는):\n\n"
    r"(?P<python>```python\n(?:(?!```).*\n)+```\n)",
    re.MULTILINE,
)


def lay_out() -> None:
    """Copy the content of the site to an empty folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in (path for pattern in COPIED for path in ROOT.glob(pattern)):
        target = PAGES / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            page = with_tabs(path.read_text(encoding="utf-8").replace(".ipynb)", ".md)"))
            target.write_text(WIDE + page if path.parent == ROOT else page, encoding="utf-8")
        else:
            shutil.copyfile(path, target)
    for path in ROOT.glob("docs/notebooks/*.ipynb"):
        target = PAGES / path.relative_to(ROOT).with_suffix(".md")
        target.parent.mkdir(exist_ok=True)
        names = {"unique_key": path.stem, "output_files_dir": f"{path.stem}_files"}
        page, results = MarkdownExporter().from_notebook_node(nbformat.read(path, as_version=4), resources=names)
        target.write_text(page, encoding="utf-8")
        for name, content in results["outputs"].items():  # pictures
            picture = target.parent / name
            picture.parent.mkdir(exist_ok=True)
            picture.write_bytes(content)
    lay_out_package()


def with_tabs(page: str) -> str:
    """A page whose commands and Python code for one purpose are side by side in tabs, before the text between them."""

    def tabs(match: re.Match[str]) -> str:
        commands = match["commands"]
        if not commands.startswith("```"):
            commands = f"```bash\n{textwrap.dedent(commands)}```\n"
        contents = {"Command line": commands, "Python": match["python"]}
        titled = [f'=== "{title}"\n\n{textwrap.indent(code, "    ")}' for title, code in contents.items()]
        return "\n".join([*titled, f"{match['text'].rstrip()}\n"])

    return COMMANDS_AND_PYTHON.sub(tabs, page)


def lay_out_package() -> None:
    """Copy the package, without other files of its folder, and make a page for each subpackage of `mkdocs.yml`."""
    shutil.rmtree(PACKAGE, ignore_errors=True)
    PACKAGE.mkdir(parents=True)
    shutil.copyfile(ROOT / "__init__.py", PACKAGE / "__init__.py")
    reference = PAGES / "docs" / "reference"
    reference.mkdir()
    subpackages = re.findall(r"docs/reference/(\w+)\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    for init in ROOT.glob("*/__init__.py"):
        name = init.parent.name
        shutil.copytree(init.parent, PACKAGE / name, ignore=shutil.ignore_patterns("__pycache__"))
        if name in subpackages:
            (reference / f"{name}.md").write_text(f"# mybert.{name}\n\n::: mybert.{name}\n", encoding="utf-8")
    functions = "finetune, predict, evaluate, compare, score, distill, pretrain, train_wordpiece, speed_up, restore"
    page = f"# mybert\n\n::: mybert\n    options:\n      members: [{functions}]\n"
    (reference / "mybert.md").write_text(page, encoding="utf-8")
    (reference / "flags.md").write_text(flags_page(), encoding="utf-8")
    (reference / "recipes.md").write_text(recipes_page(), encoding="utf-8")


def flags_page() -> str:
    """The flags of each command in the groups of its help."""
    formatter = GroupedFormatter("")
    page = [
        "# Flags of the commands",
        "In the shell, `mybert COMMAND --help_all` explains them; `--help` is shorter. Every command also has "
        "`--config`, `--quiet` and `--debug`. Commands that train have the other flags of transformers' "
        "`TrainingArguments`, too. In Python, flags are keywords.",
    ]
    for name, command in COMMANDS.items():
        parser = CommandParser(name)
        page += [f"## mybert {name}", parser.description or "", f"    mybert {name} {command.example}"]
        rows = ["| flag | meaning |", "|---|---|"]
        for group, actions in parser.flags_by_group().items():
            for number, action in enumerate(actions if group is not Group.COMMON else ()):
                text = re.sub(r"([\\|*])", r"\\\1", formatter._expand_help(action))
                rows += [] if number else [f"| **{group.value}** | |"]
                rows.append(f"| `{formatter._format_action_invocation(action)}` | {text} |")
        page.append("\n".join(rows))
    return "\n\n".join(page) + "\n"


def recipes_page() -> str:
    """The comments at the head of each recipe and suite, and its settings."""
    page = ["# Recipes and suites", "`mybert pretrain --config NAME` and `mybert glue --suite NAME` use these files."]
    for path in [*sorted(ROOT.glob("pretraining/recipes/*.yaml")), *sorted(ROOT.glob("studies/suites/*.yaml"))]:
        lines = path.read_text(encoding="utf-8").splitlines()
        head = [*takewhile(lambda line: line.startswith("#"), lines)]
        comment = "\n".join(re.sub("^#( {3,})?( ?)", lambda mark: "    " if mark[1] else "", line) for line in head)
        settings = "\n".join(lines[len(head) :])
        page += [f"## {path.stem}", comment, f"```yaml\n{settings}\n```"]
    return "\n\n".join(page) + "\n"


def add_markdown(site: Path, nav: list[dict[str, Any]], description: str) -> None:
    """Add the pages as Markdown to a built site, and `llms.txt`, in the order of the site's navigation."""
    for path in PAGES.rglob("*.md"):
        name = path.relative_to(PAGES)
        source = ROOT / name if (ROOT / name).is_file() else path  # without tabs
        text = source.read_text(encoding="utf-8")
        if not re.search("^:::", text, re.MULTILINE):  # the Python API, which is made of docstrings
            (site / name).parent.mkdir(parents=True, exist_ok=True)
            (site / name).write_text(text, encoding="utf-8")
    (site / "llms.txt").write_text(llms_txt(site, nav, description), encoding="utf-8")


def llms_txt(site: Path, nav: list[dict[str, Any]], description: str) -> str:
    """A list of the pages with their titles; those that are no Markdown with their HTML."""
    lines = ["# mybert", "", f"> {description}", "", "Paths are relative to this file."]
    single = {title: path for entry in nav for title, path in entry.items() if isinstance(path, str)}
    sections = {title: pages for entry in nav for title, pages in entry.items() if not isinstance(pages, str)}
    for section, pages in {"Start": [single], **sections}.items():
        lines += ["", f"## {section}", ""]
        for title, path in (item for entry in pages for item in entry.items()):
            page = site / path
            heading = re.search("^# (.+)", page.read_text(encoding="utf-8"), re.MULTILINE) if page.is_file() else None
            link = path if page.is_file() else f"{path.removesuffix('.md')}/index.html"
            about = f": {heading[1]}" if heading and heading[1] != title else ""
            lines.append(f"- [{title}]({link}){about}")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # Material's notice that it will be followed by another tool
    (ROOT / ".site").mkdir(exist_ok=True)
    parser = argparse.ArgumentParser()
    parser.add_argument("--site-dir", type=Path, default=ROOT / ".site" / "html")
    arguments, others = parser.parse_known_args()
    with FileLock(ROOT / ".site" / "lock"):  # test processes may build it at the same time
        lay_out()
        settings = str(ROOT / "mkdocs.yml")
        cli(
            ["build", "--strict", "--config-file", settings, "--site-dir", str(arguments.site_dir), *others],
            standalone_mode=False,
        )
        config = load_config(settings)
        add_markdown(arguments.site_dir, config["nav"], config["site_description"])
