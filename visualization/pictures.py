"""Writing pictures: completely or not at all."""

from __future__ import annotations

import functools
import logging
import textwrap
import warnings
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.errors import how_to_install, refuse_address
from ..files.output import final_path, written_beside

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


def picture_path(output_path: str | Path) -> Path:
    """Check the name of a picture file: its ending, its folder, and that it is printable."""
    refuse_address(output_path, "a file to write to")
    path = Path(output_path)
    if not str(path).isprintable():
        raise ValueError(
            f"The picture's name {str(path)!r} has a line break or another character that is not printed."
        )
    if path.suffix != ".png":
        raise ValueError(f"The picture's name {str(path)!r} must end in .png.")
    if not path.parent.is_dir():
        raise FileNotFoundError(f"{path.parent}: this folder for {path.name} does not exist.")
    return path


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
