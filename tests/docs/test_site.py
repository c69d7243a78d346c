"""The documentation site: all pages, the search and the reference are built, and broken links fail the build."""

import json
from dataclasses import fields
from pathlib import Path

import pytest

from mybert.cli import COMMANDS
from mybert.command_line.flags import is_as_transformers_has_it
from mybert.files.options import Group, contradicting

for needed in ("mkdocs", "material", "mkdocstrings", "nbconvert"):
    pytest.importorskip(needed, reason="the site needs the extra docs")

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]


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
        text, kind = texts[f"docs/reference/flags/#mybert-{name.replace(' ', '-')}"], command.load()[0]
        ruled_out = contradicting(
            kind, {each.name: "given" for each in fields(kind) if getattr(each, "required", None)}
        )
        own = {
            each.name
            for each in fields(kind)
            if each.init
            and each.metadata.get("help")
            and not is_as_transformers_has_it(each)
            and getattr(each, "group", None) not in (None, Group.COMMON, Group.FURTHER)
        }
        assert own and all(f"--{option}" in text for option in own - ruled_out), name
    assert "max_hours: 0.1667" in texts["docs/reference/recipes/#laptop_10_minutes"]


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
