"""The documentation site: all pages, the search and the reference are built, and broken links fail the build."""

import inspect
import json
import re
import runpy
from pathlib import Path

import pytest

import mybert
from mybert.cli import COMMANDS
from mybert.files.choices import superseded
from mybert.files.options import Group, options_of
from mybert.runs.trainer_options import is_inherited

for needed in ("mkdocs", "material", "mkdocstrings", "nbconvert"):
    pytest.importorskip(needed, reason="the site needs the extra docs")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "build_site.py"))


@pytest.fixture(scope="module")
def site(tmp_path_factory, run_python):
    folder = tmp_path_factory.mktemp("site")
    run_python(ROOT / "docs" / "build_site.py", "--site-dir", folder)
    return folder


@pytest.fixture(scope="module")
def entries(site):
    return json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]


def test_every_page_is_there(site):
    assert (site / "index.html").is_file() and (site / "docs" / "images" / "architecture.svg").is_file()
    for path in [*ROOT.glob("docs/*.md"), *ROOT.glob("docs/notebooks/*.ipynb"), *ROOT.glob("benchmarks/results/*.md")]:
        name = path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("README")
        assert (site / name / "index.html").is_file(), name


def test_site_has_markdown_of_its_pages_and_a_list_of_them(site):
    pages = [*ROOT.glob("docs/*.md"), ROOT / "README.md", ROOT / "SECURITY.md"]
    for path in pages:
        assert (site / path.relative_to(ROOT)).read_text(encoding="utf-8") == path.read_text(encoding="utf-8")
    assert "# Flags of the commands" in (site / "docs" / "reference" / "flags.md").read_text(encoding="utf-8")
    listed = (site / "llms.txt").read_text(encoding="utf-8")
    targets = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", listed, re.MULTILINE)
    assert listed.startswith("# mybert\n\n> ") and len(targets) > len(pages)
    for target in targets:
        assert (site / target).is_file(), target
    assert {path.relative_to(ROOT).as_posix() for path in pages} <= {*targets}


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("Unknown task question-answering", "docs/removed_in_transformers_5/"),
        ("cannot import name 'AdamW'", "docs/removed_in_transformers_5/"),
        ("미세조정", "README.ko/"),
        ("convert google", "docs/conversion/"),
    ],
)
def test_search_index_has_words_of_pages(entries, words, page):
    assert any(words in entry["text"] + entry["title"] and entry["location"].startswith(page) for entry in entries)


def test_the_reference_has_the_public_names(entries):
    locations = {entry["location"] for entry in entries}
    functions = [name for name in mybert.__all__ if inspect.isfunction(getattr(mybert, name))]
    assert {"finetune", "pretrain"} < set(functions)
    for name in functions:
        assert f"docs/reference/mybert/#mybert.{name}" in locations
    for name in (
        "tokenization.train_wordpiece",
        "pretraining.pretrain",
        "finetuning.finetune",
        "finetuning.predict",
        "conversion.convert_google_checkpoint",
        "modeling_mybert.MyBertForQuestionAnswering",
        "studies.run_suite",
    ):
        assert f"docs/reference/{name.split('.')[0]}/#mybert.{name}" in locations


def test_the_reference_has_flags_and_recipes(entries):
    """From the declarations of options, and the files of recipes."""
    texts = {entry["location"]: entry["text"] for entry in entries}
    for name, command in COMMANDS.items():
        text, kind = texts[f"docs/reference/flags/#mybert-{name.replace(' ', '-')}"], command.load_settings()
        required = {each.name: "given" for each in options_of(kind).values() if getattr(each, "required", None)}
        ruled_out = superseded(kind, required, {})
        own = {
            each.name
            for each in options_of(kind).values()
            if each.init
            and each.metadata.get("help")
            and not is_inherited(each)
            and getattr(each, "group", None) not in (None, Group.COMMON, Group.FURTHER)
        }
        assert own and all(f"--{option}" in text for option in own - ruled_out), name
    assert "max_hours: 0.1667" in texts["docs/reference/recipes/#laptop_10_minutes"]


def test_first_page_has_picture_and_tabs(site):
    page = (site / "index.html").read_text(encoding="utf-8")
    assert "docs/images/demo_result.png" in page
    assert page.count('class="tabbed-set') == 1 and page.index("Command line</label>") < page.index("Python</label>")


@pytest.mark.parametrize(
    "commands", ["```bash\nmybert predict m t  # labels\n```\n", "    mybert predict m t  # labels\n"]
)
def test_with_tabs_commands_and_python_become_tabs_before_their_text(commands):
    page = f"# Title\n\n{commands}\nMore on the command.\nIn Python:\n\n```python\nf()\n\ng()\n```\n\nNext.\n"
    assert SCRIPT["with_tabs"](page) == (
        '# Title\n\n=== "Command line"\n\n    ```bash\n    mybert predict m t  # labels\n    ```\n\n'
        '=== "Python"\n\n    ```python\n    f()\n\n    g()\n    ```\n\nMore on the command.\n\nNext.\n'
    )


@pytest.mark.parametrize(
    "between",
    [
        pytest.param("# Heading\n\nIn Python:", id="heading"),
        pytest.param("| table |\n\nIn Python:", id="table"),
        pytest.param("    other code\n\nIn Python:", id="code"),
        pytest.param("<!-- not run: long -->\n\nIn Python:", id="comment"),
        pytest.param("In short:", id="other text"),
    ],
)
def test_with_tabs_other_pages_stay_as_they_are(between):
    page = f"```bash\nmybert predict m t\n```\n\n{between}\n\n```python\nf()\n```\n"
    assert SCRIPT["with_tabs"](page) == page


@pytest.mark.parametrize("address", ["", "https://example.org/mybert"])
def test_repository_url_adds_a_link(tmp_path, address, run_python):
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "index.md").write_text("# A page\n")
    inherited = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: pages\nsite_dir: html\n"
    (tmp_path / "mkdocs.yml").write_text(inherited + "plugins: [search]\nnav: [index.md]\n")
    build = ("-m", "mkdocs", "build", "--config-file", tmp_path / "mkdocs.yml")
    run_python(*build, REPOSITORY_URL=address)
    page = (tmp_path / "html" / "index.html").read_text(encoding="utf-8")
    assert ("md-source" in page) == bool(address) and (not address or f'href="{address}"' in page)


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("[there](other.md#a-heading)", True),
        ("[nowhere](missing.md)", False),
        ("[no heading](other.md#another)", False),
        ("![no picture](missing.png)", False),
    ],
)
def test_build_with_a_broken_link_fails(tmp_path, text, is_right, run_python):
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "index.md").write_text(text)
    (pages / "other.md").write_text("# A heading\n")
    inherited = f"INHERIT: {ROOT / 'mkdocs.yml'}\ndocs_dir: pages\nsite_dir: html\n"
    (tmp_path / "mkdocs.yml").write_text(inherited + "plugins: [search]\nnav: [index.md, other.md]\n")
    build = ("-m", "mkdocs", "build", "--strict", "--config-file", tmp_path / "mkdocs.yml")
    built = run_python(*build, status=0 if is_right else 1)
    assert is_right or "WARNING" in built.stderr
