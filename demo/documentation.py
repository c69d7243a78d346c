"""English text from every Python installation: its documentation.

Nothing is imported or executed. One regular expression splits a source file into comments and string literals;
it finds the same docstrings as `ast` in a twentieth of the time. Other triple-quoted strings (`add_docstr` in
torch, `add_newdoc` in numpy, shared parameter descriptions) are included, and text that does not read as English
prose is dropped. Paragraphs are kept once, under the first module that has them.
"""

import ast
import inspect
import logging
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from tqdm.auto import tqdm

logger = logging.getLogger(__name__)

STANDARD_LIBRARY = "python"

_SITE_FOLDERS = {"site-packages", "dist-packages"}
# Tests, and copies of other projects: their text would carry the wrong library's name.
_SKIPPED_FOLDERS = _SITE_FOLDERS | {
    *("__pycache__", "_distutils_hack", "_external", "_vendor", "_vendored", "ensurepip", "extern", "externals"),
    *("idlelib", "pip", "pkg_resources", "setuptools", "test", "tests", "third_party", "vendor", "vendored", "wheel"),
}
_SKIPPED_FILE = re.compile(r"test_.*|.*_test\.py|conftest\.py|.*_pb2\.py|__editable__.*")
_GENERATED = re.compile(r"^#.*(generated (by|from)|auto-?generated|do not edit)", re.IGNORECASE | re.MULTILINE)
_GENERATED_WITHIN = 600  # characters from the start of the file

# A comment hides quotes and a string hides comment signs, so both are matched; only triple-quoted bodies are groups.
_LITERAL = re.compile(
    r"""
    \#[^\n]*
    | \"\"\" ( [^"\\]* (?: (?: \\. | "(?!\"\") ) [^"\\]* )* ) \"\"\"
    | ''' ( [^'\\]* (?: (?: \\. | '(?!'') ) [^'\\]* )* ) '''
    | " [^"\\\n]* (?: \\. [^"\\\n]* )* "
    | ' [^'\\\n]* (?: \\. [^'\\\n]* )* '
    """,
    re.DOTALL | re.VERBOSE,
)
_PREFIX = re.compile(r"(?<!\w)[A-Za-z]{1,2}$")

# reStructuredText and Markdown inside a paragraph: (a marker of it, pattern, replacement).
_INLINE_MARKUP = [
    ("```", re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE), ""),  # fenced code
    (":`", re.compile(r":[\w:+-]+:`[~.!]*([^`<]+?)(?:\s*<[^`>]*>)?`"), r"\1"),  # :func:`name <target>`
    ("``", re.compile(r"``(.+?)``", re.DOTALL), r"\1"),
    (">`", re.compile(r"`([^`<]+?)\s*<[^`>]*>`_{0,2}"), r"\1"),  # `text <address>`_
    ("`", re.compile(r"\[?`[~.!]*([^`]+)`\]?_{0,2}"), r"\1"),
    ("](", re.compile(r"!?\[([^\]\n]+)\]\([^)\s]+\)"), r"\1"),  # [text](address)
    ("*", re.compile(r"(?<![\w*])\*{1,2}(?=\S)([^*\n]+?)(?<=\S)\*{1,2}(?![\w*])"), r"\1"),
    ("]_", re.compile(r"\s*\[\d+\]_"), ""),  # footnote marks
]
_DIRECTIVE = re.compile(r"\.\.(?:\s+(?P<name>[\w:-]+)::\s*(?P<text>.*)|\s.*|$)")
_PROSE_DIRECTIVES = {"note", "warning", "tip", "important", "caution", "attention", "seealso", "hint"}
_VERSION_DIRECTIVES = {"versionadded", "versionchanged", "deprecated"}
_RULE_OR_TABLE = re.compile(r"[-=~^*#+_.`'\"|: ]{3,}|[|+].*|.*[^\s.!?:]\s{2,}\S.*")
_BULLET = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\([a-z]\))\s+(?=\S)")
_PARAMETER = re.compile(
    r""":\w[^:`]*:\s+                                   # :param name: description
    | \*{0,2}[a-z_][\w.]*,?                             # name (type, optional): description; name: description
      (?: \s* \( [^()]* (?: \([^()]*\) [^()]* )* \) )? : (?:\s+|$)
    """,
    re.VERBOSE,
)

_TYPED_NAME = re.compile(r"[\w.*, ]+ : ")  # name : type of numpy, name : summary in its lists of related functions
_WRAPPED_WIDTH = 40  # prose is not wrapped before this column, in characters

_WORD = re.compile(r"[A-Za-z][a-z']*(?=[\s,.;:!?)]|$)")
_FUNCTION_WORD = re.compile(
    r"\b(?:a|all|an|and|any|are|as|at|be|by|can|for|from|has|have|if|in|into|is|it|its|may|must|no|not|of|on|or"
    r"|should|such|that|the|their|then|there|these|this|to|use|used|using|was|when|where|which|will|with|you|your)\b"
)
_SYMBOL = re.compile(r"[^A-Za-z ,.'()\-]")
_QUOTES = "'\""
_NOT_PROSE = ("://", "\\", "$", "{")  # addresses, formulas, templates
_MINIMUM_WORDS, _MINIMUM_LENGTH = 5, 20
_MAXIMUM_SYMBOL_SHARE = 0.08


class DocumentationModule(NamedTuple):
    library: str  # top-level package without leading underscores; "python" for the standard library
    module: str  # dotted, such as "torch.nn.functional"
    paragraphs: tuple[str, ...]  # English, without line breaks or markup, in the order of the file; never empty


def collect_documentation(
    roots: Sequence[Path] | None = None, show_progress: bool = True
) -> list[DocumentationModule]:
    """Collect the documentation of Python and installed packages, or of `roots`: sorted, no paragraph twice."""
    roots = _installed_roots() if roots is None else [Path(root) for root in roots]
    sources = [source for root in roots for source in _python_sources(root)]

    seen: set[str] = set()
    modules = []
    unreadable = 0
    for path, library, module in tqdm(
        sources, desc="Reading documentation", unit=" files", disable=not show_progress, leave=False
    ):
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            unreadable += 1
            continue
        paragraphs = []
        for docstring in _docstrings(source):
            for paragraph in _prose_paragraphs(docstring):
                if paragraph not in seen:
                    seen.add(paragraph)
                    paragraphs.append(paragraph)
        if paragraphs:
            modules.append(DocumentationModule(library, module, tuple(paragraphs)))
    if unreadable:
        logger.warning("%d of %d source files could not be read as UTF-8 and were skipped.", unreadable, len(sources))
    if not modules:
        raise ValueError(
            f"No documentation was found in {', '.join(map(str, roots))}: expected Python packages with their sources."
        )
    return sorted(modules)


def _installed_roots() -> list[Path]:
    """Return the folders of the standard library and the installed packages, in the order of `sys.path`."""
    site_packages = [Path(entry) for entry in sys.path if Path(entry).name in _SITE_FOLDERS]
    roots = [Path(sysconfig.get_path("stdlib")), *site_packages]
    return [root for root in dict.fromkeys(root.resolve() for root in roots) if root.is_dir()]


def _python_sources(root: Path) -> Iterator[tuple[Path, str, str]]:
    """Yield (file, library, dotted module name) below `root`, sorted, without tests, copies and mybert itself."""
    is_standard_library = root.resolve() == Path(sysconfig.get_path("stdlib")).resolve()
    own_package = __name__.partition(".")[0]
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = sorted(name for name in subfolders if name not in _SKIPPED_FOLDERS and name.isidentifier())
        package = Path(folder).relative_to(root).parts
        if package[:1] == (own_package,):
            subfolders.clear()
            continue
        for file in sorted(files):
            if not file.endswith(".py") or _SKIPPED_FILE.fullmatch(file):
                continue
            name = file.removesuffix(".py")
            module = package if name == "__init__" else (*package, name)
            if not module or module[0] in _SKIPPED_FOLDERS:
                continue
            library = STANDARD_LIBRARY if is_standard_library else module[0].lstrip("_")
            yield Path(folder, file), library, ".".join(module)


def _docstrings(source: str) -> Iterator[str]:
    """Yield the values of the triple-quoted string literals of a Python source, but not of f-strings and bytes."""
    if _GENERATED.search(source, 0, _GENERATED_WITHIN):
        return
    for match in _LITERAL.finditer(source):
        if match.lastindex is None:
            continue
        body = match[match.lastindex]
        prefix = _PREFIX.search(source, max(0, match.start() - 3), match.start())
        letters = prefix[0].lower() if prefix else ""
        if "b" in letters or "f" in letters:
            continue
        if "\\" in body and "r" not in letters:
            try:
                with warnings.catch_warnings():  # ignore invalid escapes such as "\d" in the source
                    warnings.simplefilter("ignore")
                    body = ast.literal_eval(match[0])
            except (SyntaxError, ValueError):
                continue
        yield body


def _prose_paragraphs(docstring: str) -> Iterator[str]:
    """Yield the English paragraphs of a docstring on one line each, without code, tables and markup."""
    text = inspect.cleandoc(docstring)
    for sign, pattern, kept in _INLINE_MARKUP:
        if sign in text:
            text = pattern.sub(kept, text)
    for block in _text_blocks(text):
        paragraph = " ".join(" ".join(block).split())
        if _is_prose(paragraph):
            yield paragraph


def _text_blocks(text: str) -> list[list[str]]:
    """Return the lines of each paragraph, list item and description in a docstring; some blocks are empty."""
    blocks: list[list[str]] = [[]]
    indent = width = 0  # of the previous line, in characters
    skipped_below: int | None = None  # lines indented deeper than this belong to code or to a directive
    in_doctest = False
    for line in text.splitlines():
        stripped = line.strip()
        if not stripped:
            in_doctest = False
            blocks.append([])
            continue
        indent_before, width_before = indent, width
        indent, width = len(line) - len(line.lstrip()), len(line)
        if skipped_below is not None:
            if indent > skipped_below:
                continue
            skipped_below = None
        in_doctest = in_doctest or stripped.startswith(">>>")
        if in_doctest:
            blocks.append([])
        elif _RULE_OR_TABLE.fullmatch(stripped):
            del blocks[-1][-1:]  # the heading above an underline
            blocks.append([])
        elif directive := _DIRECTIVE.fullmatch(stripped):
            blocks.append([])
            if directive["name"] in _PROSE_DIRECTIVES:
                blocks[-1].append(directive["text"])
            elif directive["name"] not in _VERSION_DIRECTIVES:
                skipped_below = indent
        else:
            typed = _TYPED_NAME.match(stripped)
            marker = typed or _BULLET.match(stripped) or _PARAMETER.match(stripped)
            if marker or indent < indent_before:
                blocks.append([])
            elif len(blocks[-1]) == 1 and indent > indent_before and width_before < _WRAPPED_WIDTH:
                blocks[-1].clear()  # a type, a term, "Returns:" and the like are above their description
            if marker:
                stripped = stripped[marker.end() :]
            if typed:
                width = 0
            if stripped.endswith("::"):
                skipped_below = indent
                stripped = stripped[:-1]
            blocks[-1].append(stripped)
    return blocks


def _is_prose(paragraph: str) -> bool:
    """Tell whether a paragraph reads as English sentences, not as code, a formula, a signature or an address."""
    if len(paragraph) < _MINIMUM_LENGTH or not (paragraph[0].isalnum() or paragraph[0] in _QUOTES):
        return False
    if any(sign in paragraph for sign in _NOT_PROSE):
        return False
    return (
        len(_WORD.findall(paragraph)) >= _MINIMUM_WORDS
        and _FUNCTION_WORD.search(paragraph) is not None
        and len(_SYMBOL.findall(paragraph)) <= _MAXIMUM_SYMBOL_SHARE * len(paragraph)
    )
