"""Writing pictures: in the format of the file's ending, and completely or not at all."""

from __future__ import annotations

import functools
import html
import json
import logging
import re
import textwrap
import warnings
from collections.abc import Mapping
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.errors import how_to_install, refuse_address
from ..files.output import final_path, write_text, written_beside

if TYPE_CHECKING:
    from matplotlib.figure import Figure

logger = logging.getLogger(__name__)

# Blue and vermilion of Okabe and Ito's palette, which color-blind readers can tell apart, and two grays for words.
BLUE, VERMILION = "#0072B2", "#D55E00"
TEXT_COLOUR, QUIET_COLOUR = "#222222", "#767676"
_DPI = 150
_OWN_FONT = "DejaVu Sans"  # matplotlib's
_FONT_FILES_READ: set[str] = set()  # by `_add_new_fonts`
# Preferred fonts for letters that matplotlib's own font lacks, in this order: Korean, Chinese, Japanese.
_FURTHER_FONTS = (
    "Noto Sans CJK KR", "Noto Sans CJK JP", "Noto Sans KR", "NanumGothic", "Malgun Gothic", "Apple SD Gothic Neo",
    "Microsoft YaHei", "PingFang SC", "Arial Unicode MS",
)  # fmt: skip


def new_figure(width: float, height: float) -> Figure:
    """Return an empty white figure of a size in inches, which needs no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(f"PNG pictures need matplotlib: {how_to_install('train')} ({error}).") from error
    return Figure(figsize=(width, height), facecolor="white", layout="constrained")


def write_heading(figure: Figure, title: str, size: int) -> None:
    """Write a heading above a figure, in as many lines as fit its width; Korean and the like are twice as wide."""
    looks: dict[str, Any] = {"fontsize": size, "fontweight": "bold", "color": TEXT_COLOUR, "parse_math": False}
    figure.suptitle(in_width(figure, title, size), x=0.01, ha="left", **looks)


def in_width(figure: Figure, title: str, size: int) -> str:
    """Return a heading in as many lines as fit a figure's width."""
    letters = int(72 * figure.get_figwidth() / (0.65 * size)) // (1 if title.isascii() else 2)
    return "\n".join(textwrap.wrap(title, letters))


def fonts_for(text: str) -> tuple[list[str], str]:
    """Return the installed fonts needed to show a text, matplotlib's own first, and the letters that no font has."""
    from matplotlib.font_manager import fontManager

    # The regular face of each family is the one that is drawn; it comes last, and so replaces the others.
    faces = sorted(
        fontManager.ttflist, key=lambda face: (face.weight, face.style, face.stretch) == (400, "normal", "normal")
    )
    # The last resort, which comes with matplotlib, has a box for every letter.
    unsuited = ("Color", "Last Resort")
    installed = {face.name: face.fname for face in faces if not any(word in face.name for word in unsuited)}
    lacking = {letter for letter in text if not letter.isspace()} - _letters(installed[_OWN_FONT])
    names = [_OWN_FONT]
    for name in [*(font for font in _FURTHER_FONTS if font in installed), *sorted(installed)]:
        if not lacking:
            break
        if letters := lacking & _letters(installed[name]):
            names.append(name)
            lacking -= letters
    if lacking and _add_new_fonts():
        return fonts_for(text)
    return names, "".join(sorted(lacking))


def _add_new_fonts() -> bool:
    """Add to matplotlib's list of fonts, which is a cache, those that were installed later; whether there are any."""
    from matplotlib.font_manager import findSystemFonts, fontManager

    files = set(findSystemFonts()) - _FONT_FILES_READ - {str(face.fname) for face in fontManager.ttflist}
    for file in sorted(files):
        with suppress(Exception):  # whatever a broken file causes; matplotlib, too, leaves it out
            fontManager.addfont(file)
    _FONT_FILES_READ.update(files)
    return bool(files)


@functools.cache
def _letters(file: str) -> frozenset[str]:
    from matplotlib.ft2font import FT2Font

    try:
        return frozenset(map(chr, FT2Font(file).get_charmap()))
    except (OSError, RuntimeError):  # not a font that matplotlib can use
        return frozenset()


def picture_path(output_path: str | Path, endings: tuple[str, ...] = (".html", ".png")) -> Path:
    """Check the name of a picture file: its ending, its folder, and that it is printable."""
    refuse_address(output_path, "a file to write to")
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
    """Put a title (any text), data and a body (ready HTML) into a page template of this package."""
    # In a script element only "<" can end it; ">" and "&" are escaped for tools that parse the page as XML.
    encoded = json.dumps(data, separators=(",", ":"))
    for character in "<>&":
        encoded = encoded.replace(character, f"\\u{ord(character):04x}")
    parts = {"title": html.escape(title), "data": encoded, "body": body}
    page = resources.files(__package__).joinpath(template).read_text(encoding="utf-8")
    return re.sub(r"\{\{(title|data|body)\}\}", lambda match: parts[match[1]], page)


def write_figure(figure: Figure, path: Path) -> Path:
    """Write a figure as PNG, with fonts that have its letters; the same figure gives the same bytes."""
    from matplotlib.text import Text

    texts = figure.findobj(Text)
    fonts, lacking = fonts_for("".join(text.get_text() for text in texts))
    for text in texts:
        text.set_fontfamily(fonts)
    if lacking:
        logger.warning(
            "No installed font has %s, of %s: boxes are drawn instead. Install one that does, such as Noto Sans CJK "
            "(fonts-noto-cjk) for Korean, Chinese and Japanese.",
            *(" ".join(lacking[:5]), final_path(path)),
        )
    with written_beside(path) as temporary, warnings.catch_warnings():
        warnings.filterwarnings(
            "ignore", message="Glyph |Matplotlib currently does not support ", category=UserWarning
        )
        figure.savefig(temporary, format="png", dpi=_DPI, metadata={"Software": None})
    return path


def save_page_or_picture(picture: Any, output_path: str | Path, *choice: Any) -> Path:
    """Write the page or the picture of an object; in a page, lone surrogates become question marks."""
    path = picture_path(output_path)
    if path.suffix != ".html":
        return write_figure(picture.figure(*choice), path)
    write_text(path, picture.to_html(*choice))
    return path
