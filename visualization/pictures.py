"""How pictures get onto disk: by the ending of their name, whole or not at all."""

from __future__ import annotations

import functools
import html
import json
import re
import warnings
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files import write_text, written_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 150
# Asked in this order for letters that matplotlib's own font lacks: Korean, Chinese, Japanese, then everything else.
_FURTHER_FONTS = (
    "Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "Microsoft YaHei", "PingFang SC", "Arial Unicode MS",
)  # fmt: skip


def new_figure(width: float, height: float) -> Figure:
    """An empty white figure of so many inches, that needs no display.

    Raises:
        ImportError: If matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("PNG pictures need matplotlib: install it with `pip install mybert[train]`.") from error
    return Figure(figsize=(width, height), facecolor="white", layout="constrained")


@functools.cache
def token_fonts() -> list[str]:
    """Names of installed fonts for tokens of any script, matplotlib's own first."""
    from matplotlib.font_manager import get_font_names

    installed = set(get_font_names())
    return ["DejaVu Sans", *(font for font in _FURTHER_FONTS if font in installed)]


def picture_path(output_path: str | Path, endings: tuple[str, ...] = (".html", ".png")) -> Path:
    """Checks that a picture can be written there.

    Raises:
        ValueError: If the name has none of the endings, or a line break in it.
        FileNotFoundError: If its folder does not exist.
    """
    path = Path(output_path)
    if not str(path).isprintable():
        raise ValueError(
            f"The picture's name {str(path)!r} has a line break or another character that is not printed."
        )
    if path.suffix not in endings:
        raise ValueError(f"The picture's name {str(path)!r} must end in {' (interactive) or '.join(endings)}.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: this folder for {path.name} does not exist.")
    return path


def fill_page(template: str, title: str, data: Mapping[str, Any] | None = None, body: str = "") -> str:
    """Puts a title (any text), data and a body (ready HTML) into one of this room's page templates."""
    # In a script element only "<" can end it; ">" and "&" are escaped for readers that parse the page as XML.
    encoded = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    parts = {"title": html.escape(title), "data": encoded, "body": body}
    page = resources.files(__package__).joinpath(template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(title|data|body)\}\}", lambda match: parts[match[1]], page)


def write_figure(figure: Figure, path: Path) -> Path:
    """Writes a figure as PNG; the same figure gives the same bytes.

    Raises:
        OSError: If it cannot be written; a full disk is called that.
    """
    with written_beside(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph |Matplotlib currently does not support ", category=UserWarning
        )
        figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
    return path


def write_page(page: str, path: Path) -> Path:
    """Writes an HTML page as UTF-8. Half a character pair (a lone surrogate) becomes a question mark.

    Raises:
        OSError: As `write_figure`.
    """
    write_text(path, page)
    return path
