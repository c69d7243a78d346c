"""Draw docs/images/architecture.svg from the code: subpackages, their levels, and what imports what.

    python docs/draw_architecture.py

The levels are those of the table in docs/architecture.md. Redundant arrows are left out: if A imports B and C, and B
imports C, there is no arrow from A to C.
"""

import ast
import re
import textwrap
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = Path(__file__).with_name("architecture.md")
PICTURE = Path(__file__).parent / "images" / "architecture.svg"

WIDTH, LEVEL_HEIGHT, BOX_WIDTH, BOX_HEIGHT, MARGIN = 1180, 165, 208, 100, 20
FACE = "Whole commands and the public face: cli.py, __init__.py, __main__.py"
# The boxes of each level, from the bottom up, so that arrows are short and rarely cross, and none passes behind a box.
ORDER: tuple[tuple[str | None, ...], ...] = (
    ("files", "metrics", None, None, "modeling_mybert"),
    ("pipelines", None, "tokenization", "visualization", "encoders"),
    ("cards", None, None, "runs"),
    ("conversion", "finetuning", "pretraining", None),
    ("hub_card", None, "demo", "studies", "command_line"),
)


@cache
def imports(name: str) -> frozenset[str]:
    """The subpackages that a subpackage's files import from; the files of the root are none."""
    found = set()
    for path in (ROOT / name).rglob("*.py"):
        above = len(path.relative_to(ROOT).parts)  # dots that lead out of it
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == above and node.module:
                found.add(node.module.split(".")[0])
    return frozenset(found - {"_lazy_names", "_registration"})


@cache
def level(name: str) -> int:
    """The level of a subpackage, from the page."""
    page = PAGE.read_text(encoding="utf-8")
    return {name: int(number) for number, name in re.findall(r"^\| (\d) \| `(\w+)/`", page, re.MULTILINE)}[name]


@cache
def below(name: str) -> frozenset[str]:
    """All subpackages that one needs, directly or not."""
    return imports(name).union(*map(below, imports(name)))


def purpose(name: str) -> str:
    """The first line of a subpackage's docstring, without its command."""
    docstring = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    return docstring.splitlines()[0].rstrip(".").split(" (`")[0].split(", as one command")[0].replace("`", "")


def arrows(name: str) -> list[str]:
    """The subpackages that arrows lead to: those that one imports from, but not those needed by others of them."""
    return sorted(other for other in imports(name) if not any(other in below(between) for between in imports(name)))


def draw() -> str:
    """The picture, as SVG: a box for each subpackage, and its arrows."""
    names = sorted({path.parent.name for path in ROOT.glob("*/__init__.py")} - {"benchmarks"})  # which is not shipped
    placed = {name: number for number, row in enumerate(ORDER) for name in row if name}
    assert placed == {name: level(name) for name in names}, f"change ORDER: {placed.keys() ^ set(names) or 'levels'}"
    height, top = len(ORDER) * LEVEL_HEIGHT, 60  # the public interface of the package is above the levels
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height + top}" width="{WIDTH}" '
        'font-family="Helvetica, Arial, sans-serif" text-anchor="middle">',
        "<title>The subpackages of mybert and what imports what</title>",
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">',
        '<path d="M0 0 L8 4 L0 8 Z" fill="#5b6b7d"/></marker></defs>',
        f'<rect width="{WIDTH}" height="{height + top}" fill="#ffffff"/>',
        f'<rect x="{MARGIN}" y="12" width="{WIDTH - 2 * MARGIN}" height="36" rx="6" fill="#22303f"/>',
        f'<text x="{WIDTH / 2:g}" y="35" font-size="15" fill="#ffffff">{FACE}</text>',
        f'<g transform="translate(0 {top})">',
    ]
    where: dict[str, tuple[float, float]] = {}  # the center of each box
    for number, row in enumerate(ORDER):
        y = height - LEVEL_HEIGHT * (number + 1)
        if number % 2:
            lines.append(f'<rect y="{y}" width="{WIDTH}" height="{LEVEL_HEIGHT}" fill="#f3f6f9"/>')
        lines.append(
            f'<text x="8" y="{y + 18}" font-size="12" fill="#7a8794" text-anchor="start">level {number}</text>'
        )
        where |= {
            name: (WIDTH * (column + 0.5) / len(row), y + LEVEL_HEIGHT / 2) for column, name in enumerate(row) if name
        }
    for name in names:
        for other in arrows(name):
            (x0, y0), (x1, y1) = where[name], where[other]
            y0, y1 = y0 + BOX_HEIGHT / 2, y1 - BOX_HEIGHT / 2 - 2
            middle = (y0 + y1) / 2  # of a Bezier curve with vertical ends
            lines.append(
                f'<path d="M{x0:g} {y0:g} C{x0:g} {middle:g} {x1:g} {middle:g} {x1:g} {y1:g}" fill="none" '
                'stroke="#5b6b7d" stroke-width="1.5" marker-end="url(#tip)"/>'
            )
    for name, (x, y) in where.items():
        left, high = x - BOX_WIDTH / 2, y - BOX_HEIGHT / 2
        lines += [
            f'<rect x="{left:g}" y="{high:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6" fill="#ffffff" '
            'stroke="#22303f"/>',
            f'<text x="{x:g}" y="{high + 20:g}" font-size="14" font-weight="bold" fill="#22303f">{name}/</text>',
        ]
        for number, line in enumerate(textwrap.wrap(purpose(name), 34)):
            lines.append(
                f'<text x="{x:g}" y="{high + 39 + 15 * number:g}" font-size="12" fill="#3f4d5c">{escape(line)}</text>'
            )
    return "\n".join([*lines, "</g>", "</svg>", ""])


if __name__ == "__main__":
    PICTURE.write_text(draw(), encoding="utf-8")
