"""Words that made this package's text hard to read do not return: to pages, YAML files, strings and comments."""

import ast
import io
import json
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WORDS = {  # regular expression -> what to write, and why
    r"trunks?": "encoder: the field's term for embeddings and layers",
    r"rooms?": "space, budget or subpackage: one word meant all three",
    r"floors?": "level: the subpackages are on numbered levels",
    r"hidden (whole )?words?": "masked token or word: hidden is the field's word for states",
    r"mend(s|ed|ing)?": "fix: the word of changelogs",
    r"starv(e|es|ed|ing)": "has few ...: only living things starve",
    r"whatever came of": "the result of: a noun says what is meant",
    r"anew": "again: archaic",
    r"without a word": "silently: a program has no words to say",
    r"no telling": "unknown: an idiom is lost on readers of English as a second language",
    r"begin(s|ning)? as": "is initialized to: the field's term for first weights",
    r"beside": "next to, compared with or in addition to: one word meant all three",
    r"shares? of": "fraction of: the term for a number in [0, 1]",
    r"ours|theirs": "mybert, or the name of the other package: a page has no speaker",
}
ELLIPSES = r"(that|those) of|what is different|the same as"  # in docs/*.md: repeat the noun
BRITISH = r"\w*(initialis|normalis|recognis|neighbour|behaviour|colour|modell|labell)\w*|learnt"
PAGES = ("*.md", "docs/**/*.md", "skills/**/*.md", "docs/*.yaml", "benchmarks/results/*.md", "*/recipes/*.yaml")
PAGES += ("examples/*.md", "*/suites/*.yaml", "*.yml", "*.toml", "*.cff", "Makefile")
CODE = re.compile(r"^ {4}[^\n]*|^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def pages() -> dict[str, str]:
    """Prose of the pages, without their code."""
    paths = {path for pattern in PAGES for path in ROOT.glob(pattern)}
    texts = {str(path.relative_to(ROOT)): CODE.sub("", path.read_text(encoding="utf-8")) for path in sorted(paths)}
    return texts | {
        str(path.relative_to(ROOT)): prose_of_notebook(path) for path in ROOT.glob("docs/notebooks/*.ipynb")
    }


def prose_of_notebook(path: Path) -> str:
    """The text of a notebook, and the strings and comments of its code."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    texts = [(cell["cell_type"], "".join(cell["source"])) for cell in cells]
    return "\n".join(CODE.sub("", text) if kind == "markdown" else prose_of_code(text) for kind, text in texts)


def modules() -> dict[str, str]:
    """Docstrings, messages, help texts and comments of the package."""
    paths = [*ROOT.glob("*.py"), *(path for init in ROOT.glob("*/__init__.py") for path in init.parent.rglob("*.py"))]
    paths += ROOT.glob("examples/*.py")
    return {str(path.relative_to(ROOT)): prose_of_code(path.read_text(encoding="utf-8")) for path in sorted(paths)}


def prose_of_code(source: str) -> str:
    """Docstrings, messages, help texts (all strings with a space) and comments."""
    strings = [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    sentences = [each for each in strings if isinstance(each, str) and " " in each]
    return "\n".join([*sentences, comments_of_code(source)])


def comments_of_code(source: str) -> str:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return "\n".join(token.string for token in tokens if token.type == tokenize.COMMENT)


def found_in(text: str, *words: str) -> set[str]:
    """Whole words of the prose; names in backticks are none."""
    pattern = rf"(?<![\w`-])(?:{'|'.join(words)})(?![\w`-])"
    return {match[0].lower() for match in re.finditer(pattern, text, re.IGNORECASE)}


def test_no_text_has_a_house_word():
    texts = pages() | modules()
    assert len(texts) > 150
    assert not {name: words for name, text in texts.items() if (words := found_in(text, *WORDS))}


def test_pages_of_docs_repeat_the_noun():
    texts = {name: text for name, text in pages().items() if name.startswith("docs/") and name.endswith(".md")}
    assert not {name: words for name, text in texts.items() if (words := found_in(text, ELLIPSES))}


def test_pages_have_american_spelling():
    assert not {name: words for name, text in pages().items() if (words := found_in(text, BRITISH))}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The trunk has no room.", {"trunk", "room"}),
        ("This is that of the others", {"that of"}),
        ("Hidden words are mended anew", {"hidden words", "mended", "anew"}),
        ("`trunk_of`, mushrooms, recommended, `--floor` and `trunk`", set()),
    ],
)
def test_found_in_finds_whole_words(text, words):
    assert found_in(text, *WORDS, ELLIPSES) == words


def test_prose_of_code_has_docstrings_messages_and_comments():
    source = 'def room():\n    """No floor."""\n    print("a mended text")\n    return "trunk"  # anew\n'
    assert found_in(prose_of_code(source), *WORDS) == {"floor", "mended", "anew"}
