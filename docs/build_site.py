"""Build the documentation site: python docs/build_site.py (or make docs), then open .site/html/index.html.

MkDocs needs a folder with nothing but pages. Here the pages are next to the code, with README.md in the root, so they
are copied to the same paths in `.site/pages`, which keeps links equal on GitHub and on the site. Notebooks become
pages with their outputs, docstrings the reference. A broken link or anchor fails the build (`--strict`), as does a
page that is not in `mkdocs.yml`.
"""

import os
import re
import shutil
import sys
from pathlib import Path

import nbformat
from filelock import FileLock
from mkdocs.__main__ import cli
from nbconvert import MarkdownExporter

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / ".site" / "pages"
PACKAGE = ROOT / ".site" / "source" / "mybert"  # nothing but the package, for mkdocstrings
COPIED = (
    "README*.md",
    "CITATION.cff",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "docs/**/*.md",
    "docs/images/*",
    "benchmarks/results/*.md",
)


def lay_out() -> None:
    """Copy the content of the site to an empty folder."""
    shutil.rmtree(PAGES, ignore_errors=True)
    for path in (path for pattern in COPIED for path in ROOT.glob(pattern)):
        target = PAGES / path.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            target.write_text(path.read_text(encoding="utf-8").replace(".ipynb)", ".md)"), encoding="utf-8")
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


if __name__ == "__main__":
    os.environ["NO_MKDOCS_2_WARNING"] = "1"  # Material's notice that it will be followed by another tool
    (ROOT / ".site").mkdir(exist_ok=True)
    with FileLock(ROOT / ".site" / "lock"):  # test processes may build it at the same time
        lay_out()
        sys.exit(cli(["build", "--strict", "--config-file", str(ROOT / "mkdocs.yml"), *sys.argv[1:]]))
