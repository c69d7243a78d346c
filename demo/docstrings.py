"""English text that is on every machine with Python: the docstrings of its library and of installed packages."""

import inspect
import logging
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..files.progress import progress_bar

logger = logging.getLogger(__name__)

# Nothing is imported or executed: triple-quoted strings are found by a regular expression. Kept are paragraphs of
# whole sentences, which leaves out code, tables, headings and most descriptions of parameters.
_SITE_FOLDERS = {"site-packages", "dist-packages"}
# Tests, and copies of other projects: their text would carry the wrong library's name; and mybert itself.
_SKIPPED = _SITE_FOLDERS | {
    *("__pycache__", "_distutils_hack", "_external", "_vendor", "_vendored", "ensurepip", "extern", "externals"),
    *("idlelib", "pip", "pkg_resources", "setuptools", "test", "tests", "third_party", "vendor", "vendored", "wheel"),
    __package__.partition(".")[0],
}
_SKIPPED_FILE = re.compile(r"test_.*|.*_test\.py|conftest\.py|.*_pb2\.py|__editable__.*")
_STRING = re.compile(r'''(?<![A-Za-z"'])[ruRU]?(?:"""(.*?)"""|\'\'\'(.*?)\'\'\')''', re.DOTALL)
# Markup of reStructuredText and Markdown: pattern, what remains.
_MARKUP = [
    (re.compile(r"^[ \t]*```.*?(?:^[ \t]*```|\Z)", re.DOTALL | re.MULTILINE), ""),  # code
    (re.compile(r"^.*\n[ \t]*[-=~^]{3,}$", re.MULTILINE), ""),  # a heading
    (re.compile(r"(?::[\w:+-]+:)?`+[~.!]*([^`<]+?)(?:\s*<[^`>]*>)?`+_*"), r"\1"),  # :func:`name <target>`, ``name``
    (re.compile(r"(?<![\w*])\*{1,2}(?=\S)([^*\n]+?)(?<=\S)\*{1,2}(?![\w*])"), r"\1"),  # *emphasis*
]
_LINES = re.compile(r"^([ \t]*)\S.*(?:\n\1\S.*)*", re.MULTILINE)  # one below another, with the same indentation
_SENTENCES = re.compile(r"[A-Z\d'\"][^\\${}]*[.!?:][\"')]?")  # not formulas and templates
_WORD = re.compile(r"[A-Za-z][a-z']*(?=[\s,.;:!?)]|$)")
_FUNCTION_WORD = re.compile(
    r"\b(?:a|all|an|and|any|are|as|at|be|by|can|for|from|has|have|if|in|into|is|it|its|may|must|no|not|of|on|or"
    r"|should|such|that|the|their|then|there|these|this|to|use|used|using|was|when|where|which|will|with|you|your)\b"
)
_NOT_PROSE = re.compile("://| : ")  # addresses, entries of lists of functions
_SYMBOL = re.compile(r"[^A-Za-z ,.'()\-]")
_MIN_WORDS, _MAX_SYMBOLS = 5, 0.08  # symbols per character


def collect_docstrings(roots: Sequence[Path] | None = None, show_progress: bool = True) -> dict[str, list[list[str]]]:
    """Collect the docstrings of Python's library and of installed packages, or of `roots`.

    Returns paragraphs by package and file; "python" is Python's own library. A paragraph is English, has no line
    breaks, and is kept once.
    """
    standard_library = Path(sysconfig.get_path("stdlib")).resolve()
    if roots is None:
        packages = [Path(entry).resolve() for entry in sys.path if Path(entry).name in _SITE_FOLDERS]
        roots = [root for root in dict.fromkeys([standard_library, *packages]) if root.is_dir()]
    libraries: dict[str, list[list[str]]] = {}
    seen: set[str] = set()
    unreadable = 0
    files = [(root, path) for root in roots for path in sorted(root.rglob("*.py")) if _is_source(path, root)]
    for root, path in progress_bar(
        files, desc="Reading docstrings", unit=" files", disable=not show_progress, leave=False
    ):
        try:
            source = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            unreadable += 1
            continue
        if paragraphs := [text for text in dict.fromkeys(_paragraphs(source)) if text not in seen]:
            seen.update(paragraphs)
            package = path.relative_to(root).parts[0].removesuffix(".py").lstrip("_")
            libraries.setdefault("python" if root == standard_library else package, []).append(paragraphs)
    if unreadable:
        logger.warning("%d of %d source files could not be read as UTF-8 and were skipped.", unreadable, len(files))
    if not libraries:
        raise ValueError(
            f"No docstrings were found in {', '.join(map(str, roots))}: expected Python packages with their sources."
        )
    return dict(sorted(libraries.items()))


def _is_source(path: Path, root: Path) -> bool:
    *folders, file = path.relative_to(root).parts
    names = (*folders, file.removesuffix(".py"))
    return not _SKIPPED_FILE.fullmatch(file) and all(name.isidentifier() and name not in _SKIPPED for name in names)


def _paragraphs(source: str) -> Iterator[str]:
    """Yield the paragraphs of English sentences in the triple-quoted strings of a Python source."""
    for string in _STRING.finditer(source):
        text = inspect.cleandoc((string[1] or string[2] or "").replace("\\\n", ""))
        for pattern, kept in _MARKUP:
            text = pattern.sub(kept, text)
        for lines in _LINES.finditer(text):
            paragraph = " ".join(lines[0].split())
            if _is_prose(paragraph):
                yield paragraph


def _is_prose(paragraph: str) -> bool:
    """Tell whether a paragraph reads as English sentences, not as code, a signature or an address."""
    return (
        _SENTENCES.fullmatch(paragraph) is not None
        and not _NOT_PROSE.search(paragraph)
        and len(_WORD.findall(paragraph)) >= _MIN_WORDS
        and _FUNCTION_WORD.search(paragraph) is not None
        and len(_SYMBOL.findall(paragraph)) <= _MAX_SYMBOLS * len(paragraph)
    )
