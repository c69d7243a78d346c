"""Compare the figures that stand on several pages with their sources: `python docs/figures.py` prints what differs.

docs/figures.yaml lists the figures by the words around them. On every page that has these words, the figure must be
that of the source, up to rounding. A listed figure must not stand on other pages in other words.
"""

import re
import sys
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
LIST = Path(__file__).with_name("figures.yaml")
PAGES = ("README*.md", "CONTRIBUTING.md", "docs/*.md", "benchmarks/results/*.md", "pretraining/recipes/*.yaml")
FIGURE = r"(\d[\d,]*(?:\.\d+)?)(?: ± (\d+(?:\.\d+)?))?"
# Figures with so many digits that they are hardly ever equal by chance.
DISTINCT = re.compile(r"(?<![\w.,/-])(?:\d{2,}\.\d+|\d{1,3}(?:,\d{3})+)(?![\w,-]|\.\d)")
SEVERAL: dict[str, Callable[[list[float]], float]] = {"max": max, "min": min, "median": median}
Figures = list[tuple[float, float | None]]  # values and standard deviations


def read_pages() -> dict[str, str]:
    paths = (path for pattern in PAGES for path in sorted(ROOT.glob(pattern)))
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


@cache
def prose(text: str) -> str:
    """The text in one line, without code blocks and the marks of comments."""
    text = re.sub(r"^```.*?^```|^    .*?$", "", text, flags=re.MULTILINE | re.DOTALL)
    return re.sub(r"\s+", " ", re.sub(r"^#+ ", "", text, flags=re.MULTILINE))


def figures(text: str) -> Figures:
    found = re.findall(FIGURE, text)
    return [(float(value.replace(",", "")), float(deviation) if deviation else None) for value, deviation in found]


def equal(quoted: str, expected: tuple[float, float | None]) -> bool:
    """Whether a quoted figure is the expected one, up to the rounding of the quote."""
    ((value, deviation),) = figures(quoted)
    decimals = len(quoted.split(" ")[0].partition(".")[2])
    return abs(value - expected[0]) <= 0.5001 * 10**-decimals and deviation in (None, expected[1])


def places(phrase: str, text: str) -> list[list[str]]:
    """The figures at each place of a text that has the phrase; `#` stands for a figure, `...` for any text."""
    pattern = re.escape(" ".join(phrase.split())).replace(r"\#", f"({FIGURE})").replace(r"\.\.\.", ".*?")
    return [list(place.groups()[::3]) for place in re.finditer(r"(?<![\d.])" + pattern, text)]


@cache
def table_rows(text: str) -> list[tuple[str, list[str], list[str]]]:
    """(heading, header, cells) of every row of the tables."""
    rows, heading, header = [], "", []
    for line in text.splitlines():
        cells = [cell.strip(" *") for cell in line.split("|")[1:-1]]
        heading = line.strip("# ") if line.startswith("#") else heading
        if header and cells:
            rows.append((heading, header, cells))
        header = header or cells if cells else []
    return rows


def cell_figures(text: str, heading: str, row: str, column: str, several: str = "max") -> Figures:
    """The figures of a cell; of several rows that match, the largest, or the smallest or the median."""
    found = [
        figures(cells[header.index(column)])
        for title, header, cells in table_rows(text)
        if title.startswith(heading) and column in header and re.fullmatch(row, cells[0])
    ]
    found = [each for each in found if each]
    return found[0] if len(found) == 1 else [(SEVERAL[several]([each[0][0] for each in found]), None)] if found else []


def expected_figures(sources: list[list[Any]], pages: dict[str, str]) -> Figures:
    """The figures of sources in order: words of a page, or cells (of lists, each in turn)."""
    found: Figures = []
    for page, *place in sources:
        if len(place) == 1:
            quoted = places(place[0], prose(pages[page]))
            found += figures(" ".join(quoted[0])) if quoted else []
            continue
        heading, row, column, *several = place
        in_turn = [each if isinstance(each, list) else [each] for each in (row, heading, column, page)]
        for row, heading, column, name in product(*in_turn):
            found += cell_figures(pages[name], heading, row, column, *several)
    return found


def compare(pages: dict[str, str]) -> list[str]:
    """What is wrong with the figures of the pages (name -> text), a line for each place."""
    wrong, known, listed = [], set(), set()
    texts = {page: prose(text) for page, text in pages.items()}
    for entry in yaml.safe_load(LIST.read_text(encoding="utf-8"))["figures"]:
        phrase, among = entry["phrase"], entry.get("pages", list(pages))
        expected = expected_figures(entry.get("sources", []), pages)
        found = [(page, quoted) for page in among for quoted in places(phrase, texts[page])]
        if {page for page, _ in found} < set(entry.get("pages", [""])):
            wrong.append(f"{', '.join(entry.get('pages', ['no page']))}: expected the words {phrase!r}")
        for page, quoted in found:
            known |= {(page, figure.split(" ")[0]) for figure in quoted}
            if "sources" not in entry:
                continue
            listed |= {figure.split(" ")[0] for figure in quoted}
            if len(quoted) != len(expected) or not all(map(equal, quoted, expected)):
                wrong.append(f"{page} has {', '.join(quoted)} in {phrase!r}; expected {expected}")
    for page in pages:
        if not page.startswith("benchmarks/"):  # where they are measured
            for figure in sorted(set(DISTINCT.findall(texts[page])) & listed):
                if (page, figure) not in known:
                    wrong.append(f"{page} has {figure}, as other pages; add its words to {LIST.name}")
    return wrong


if __name__ == "__main__":
    problems = compare(read_pages())
    print("\n".join(problems) or "All figures agree.")
    sys.exit(bool(problems))
