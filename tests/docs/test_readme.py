"""README is short, and its Korean page follows it."""

import ast
import re
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pytest
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).parents[2]
ENGLISH, KOREAN = (ROOT / name for name in ("README.md", "README.ko.md"))
TRANSLATED = {"klue/bert-base": "bert-base-uncased", "파일": "FILE"}  # words of code


def tokens_of(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def translated(code: str) -> str:
    for korean, english in TRANSLATED.items():
        code = code.replace(korean, english)
    return code


class WithoutSamples(ast.NodeTransformer):
    """Removes the sample data: the content of collections."""

    def visit_Dict(self, node: ast.expr) -> ast.expr:
        return ast.Constant("sample")

    visit_List = visit_Tuple = visit_Dict


def code_of(page: Path) -> list[Any]:
    """Commands in words without comments, and syntax trees of Python without the sample data."""
    code = []
    for token in tokens_of(page):
        if token.type == "fence" and token.info == "bash":
            code.append(shlex.split(translated(token.content), comments=True))
        elif token.type == "fence":
            code.append(ast.dump(WithoutSamples().visit(ast.parse(translated(token.content)))))
    return code


def headings(page: Path) -> list[str]:
    """The anchors of the headings in order."""
    tokens = tokens_of(page)
    titles = [tokens[index + 1].content for index, token in enumerate(tokens) if token.type == "heading_open"]
    return ["#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def links(page: Path) -> set[str | int]:
    """The targets of links and pictures; a heading of the page itself by its index."""
    children = [child for token in tokens_of(page) for child in token.children or ()]
    targets = {unquote(str(child.attrs.get("href") or child.attrs.get("src"))) for child in children if child.attrs}
    return {headings(page).index(target) if target.startswith("#") else target for target in targets}


def table_rows(page: Path) -> list[str]:
    return [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("|")]


@pytest.mark.parametrize("page", [ENGLISH, KOREAN], ids=lambda path: path.name)
def test_readme_has_at_most_100_lines(page):
    assert len(page.read_text(encoding="utf-8").splitlines()) <= 100


def test_korean_readme_has_sections_and_links_of_the_english_one():
    assert len(headings(KOREAN)) == len(headings(ENGLISH))
    assert links(ENGLISH) - {"README.ko.md"} <= links(KOREAN)


def test_korean_readme_has_code_of_the_english_one():
    assert code_of(KOREAN) == code_of(ENGLISH) and "bert-base-uncased" not in KOREAN.read_text(encoding="utf-8")


def test_korean_readme_has_tables_of_the_english_one():
    for english, korean in zip(table_rows(ENGLISH), table_rows(KOREAN), strict=True):
        assert re.findall("`[^`]*`", english) == re.findall("`[^`]*`", korean)
        figures = [sorted(re.findall(r"\d+(?:\.\d+)?", row)) for row in (english, korean)]
        assert figures[0] == figures[1]
