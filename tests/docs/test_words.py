"""Words that made this package's text hard to read do not return: in pages, YAML files, docstrings and comments."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {  # regular expression -> what to write, and why
    r"trunks?": "encoder: the field's term for embeddings and layers",
    r"rooms?(?!:)": "space, budget or subpackage: one word meant all three",
    r"floors?": "level: the subpackages are on numbered levels",
    r"hidden (whole )?words?": "masked token or word: hidden is the field's word for states",
    r"mend(s|ed|ing)?": "fix: the word of changelogs",
    r"starv(e|es|ed|ing)": "has few ...: only living things starve",
    r"whatever came of": "the result of: a noun says what is meant",
    r"anew": "again: archaic",
    r"without a word": "silently: a program has no words to say",
    r"no telling": "unknown: an idiom is lost on readers of English as a second language",
    r"begin(s|ning)? as": "is initialized to: the field's term for first weights",
}
PATTERN = re.compile(rf"(?<![\w`-])({'|'.join(WORDS)})(?![\w`-])", re.IGNORECASE)
CODE = re.compile(r"^( {4}[^\n]*|```.*?^```)$", re.MULTILINE | re.DOTALL)
PAGES = (
    "*.md",
    "docs/**/*.md",
    "docs/notebooks/*.ipynb",
    "docs/*.yaml",
    "benchmarks/results/*.md",
    "**/recipes/*.yaml",
)
PAGES += ("**/suites/*.yaml", "*.yml", "*.toml", "*.cff", "Makefile")


def prose_of_code(path: Path) -> str:
    """Docstrings and comments."""
    source = path.read_text(encoding="utf-8")
    documented = ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef | ast.Module
    nodes = [node for node in ast.walk(ast.parse(source)) if isinstance(node, documented)]
    comments = [
        token.string
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    ]
    return "\n".join([ast.get_docstring(node) or "" for node in nodes] + comments)


def texts() -> dict[str, str]:
    """The prose of each file: of pages without their code, of modules docstrings and comments."""
    pages = {path for pattern in PAGES for path in ROOT.glob(pattern) if ".site" not in path.parts}
    found = {path: CODE.sub("", path.read_text(encoding="utf-8")) for path in pages}
    folders = {path.parent for path in ROOT.glob("*/__init__.py")}
    modules = [*ROOT.glob("*.py"), *(path for folder in folders for path in folder.rglob("*.py"))]
    found |= {path: prose_of_code(path) for path in modules}
    return {path.relative_to(ROOT).as_posix(): text for path, text in found.items()}


def misplaced(text: str) -> list[str]:
    return [match[0].lower() for match in PATTERN.finditer(text)]


def test_no_text_has_a_house_word():
    found = {name: sorted(set(words)) for name, text in sorted(texts().items()) if (words := misplaced(text))}
    assert not found, found


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The trunk has no room.", ["trunk", "room"]),
        ("Hidden words are mended anew", ["hidden words", "mended", "anew"]),
        ("`room_for_pair`, mushrooms, recommended, `--floor` and `trunk`", []),
    ],
)
def test_misplaced_finds_whole_words_of_prose(text, words):
    assert misplaced(text) == words
