"""The input representation as a picture (Devlin et al. 2019, figure 2), and a confusion matrix as one."""

from __future__ import annotations

import logging
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.errors import abbreviated
from ..files.output import final_path
from .pictures import (
    QUIET_COLOUR,
    TEXT_COLOUR,
    fonts_for,
    new_figure,
    picture_path,
    write_figure,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from transformers import PreTrainedTokenizerBase

logger = logging.getLogger(__name__)

_COLUMNS = 14  # tokens per line of the PNG
_ROWS = ("Token", "Token id", "Segment", "Position", "Mask")
_SEGMENT_NAMES = "AB"
# Fill colors on a light background.
_FILLS = {"token": "#fbeaa4", "segments": ("#cfe6f5", "#fbd7bd"), "position": "#d3ecd0", "mask": "#e4e4e4"}

# Maximum number of classes in the picture of a confusion matrix; further ones, with the fewest errors, share a row and
# a column.
MAX_CLASSES = 40
_CELL, _MARGIN = 0.3, 1.2  # inches
_LONGEST = 28  # characters of a class
_LETTER_OF_LEGEND, _LINE_OF_LEGEND = 0.085, 0.14  # inches
_NO_LETTER = "□"  # in the legend, for a letter that no font has
_DARK = 0.55  # fraction of the row above which a count is printed in white


@dataclass(frozen=True)
class InputPicture:
    """The model input for one text or pair; every list has one entry per token.

    Attributes:
        tokens: The tokens.
        token_ids: Their ids.
        segments: 0 for the first text, 1 for the second (`token_type_ids`).
        positions: 0, 1, 2, ...
        mask: 1 at tokens, 0 at padding (`attention_mask`).
    """

    tokens: Sequence[str]
    token_ids: Sequence[int]
    segments: Sequence[int]
    positions: Sequence[int]
    mask: Sequence[int]

    def figure(self) -> Figure:
        """The picture as a matplotlib figure, in lines of fourteen tokens.

        Raises:
            ImportError: If matplotlib is not installed.
        """
        lines = math.ceil(len(self.tokens) / _COLUMNS)
        widest = min(_COLUMNS, len(self.tokens))
        height = 6 * lines - 1  # per line: five rows, and one between lines
        figure = new_figure(0.86 * widest + 0.9, 0.29 * height + 0.15)
        ax = figure.subplots()
        ax.set_axis_off()
        ax.set(xlim=(-1, widest), ylim=(height - 0.4, -0.6))
        for start in range(0, len(self.tokens), _COLUMNS):
            top = start // _COLUMNS * 6
            for row, name in enumerate(_ROWS):
                ax.text(-0.15, top + row, name, ha="right", va="center", fontsize=8, color=QUIET_COLOUR)
            for column, index in enumerate(range(start, min(start + _COLUMNS, len(self.tokens)))):
                self._draw_column(ax, index, column, top)
        return figure

    def _draw_column(self, ax: Axes, index: int, column: int, top: int) -> None:
        from matplotlib.patches import FancyBboxPatch

        segment = min(self.segments[index], 1)
        token = self.tokens[index]
        cells = (
            (token, _FILLS["token"], min(8.5, 80 / max(len(token), 1))),
            (str(self.token_ids[index]), _FILLS["token"], 7.5),
            (f"$E_{_SEGMENT_NAMES[segment]}$", _FILLS["segments"][segment], 9),
            (f"$E_{{{self.positions[index]}}}$", _FILLS["position"], 9),
            (str(self.mask[index]), _FILLS["mask"], 8),
        )
        for row, (text, fill, size) in enumerate(cells):
            ax.add_patch(
                FancyBboxPatch(
                    (column + 0.04, top + row - 0.4), 0.92, 0.8, boxstyle="round,pad=0,rounding_size=0.12",
                    facecolor=fill, edgecolor="none", alpha=1 if self.mask[index] else 0.4,
                )
            )  # fmt: skip
            ax.text(
                column + 0.5, top + row, text, ha="center", va="center", fontsize=size,
                color=TEXT_COLOUR if self.mask[index] else QUIET_COLOUR,
                parse_math=row in (2, 3),
            )  # fmt: skip

    def save(self, output_path: str | Path) -> Path:
        """Write the picture (.png); return its path.

        Raises:
            ValueError: If the file does not end in `.png`.
            FileNotFoundError: If the file's folder does not exist.
            ImportError: If matplotlib is not installed.
        """
        path = picture_path(output_path)
        return write_figure(self.figure(), path)


def input_picture(
    tokenizer: PreTrainedTokenizerBase, text: str, text_pair: str | None = None, max_length: int | None = None
) -> InputPicture:
    """Show the model input of a text or pair, padded or truncated to `max_length` tokens if it is given.

    Raises:
        ValueError: If `max_length` leaves no space for a token.

    Example:
        >>> input_picture(tokenizer, "My dog is cute.", "He likes playing.", max_length=16).save("input.png")
    """
    special = tokenizer.num_special_tokens_to_add(pair=text_pair is not None)
    if max_length is not None and max_length <= special:
        raise ValueError(f"max_length is {max_length}; {special} special tokens and a token need {special + 1}.")
    inputs = tokenizer(
        text,
        text_pair,
        padding="max_length" if max_length else False,
        truncation=max_length is not None,
        max_length=max_length,
        return_attention_mask=True,
        verbose=False,
    )
    token_ids = inputs["input_ids"]
    return InputPicture(
        tokens=tokenizer.convert_ids_to_tokens(token_ids),
        token_ids=token_ids,
        segments=inputs.get("token_type_ids", [0] * len(token_ids)),
        positions=range(len(token_ids)),
        mask=inputs["attention_mask"],
    )


def confusion_picture(
    confusion: Mapping[tuple[str, str], int], classes: Sequence[str], output_path: str | Path, counted: str = "texts"
) -> Path:
    """Draw a confusion matrix: a row for each true class, a column for each predicted one.

    A cell shows its count, and is darker the greater that is in its row. With more than `MAX_CLASSES`, the picture
    shows the classes with the most errors, and one row and column for all others. Classes with letters that no font
    has are numbered, with a legend.

    Args:
        confusion: Counts by (true class, predicted class).
        classes: All classes, in their order.
        output_path: PNG file to write, which is returned.
        counted: What is counted, such as "texts".

    Raises:
        ValueError: If there is nothing to draw, or the file does not end in `.png`.
        FileNotFoundError: If the file's folder does not exist.
        ImportError: If matplotlib is not installed.
    """
    path = picture_path(output_path)
    names = list(classes)
    place = {name: number for number, name in enumerate(names)}
    counts = np.zeros((len(place), len(place)), dtype=np.int64)  # (true, predicted)
    for (true, predicted), count in confusion.items():
        counts[place[true], place[predicted]] = count
    if not counts.sum():
        raise ValueError("The confusion matrix is empty.")
    left_out = len(names) - MAX_CLASSES + 1 if len(names) > MAX_CLASSES else 0
    if left_out:
        names, counts = _with_most_mistakes(names, counts)
    size = len(names)
    labels = [abbreviated(name, _LONGEST) for name in names]
    predicted = "predicted"
    legend = ""
    if lacking := fonts_for("".join(labels))[1]:
        numbers = {name: str(number) for number, name in enumerate(classes, start=1)}
        pairs = zip(names, labels, strict=True)
        numbered = [f"{numbers[name]} {label}" for name, label in pairs if name in numbers]
        logger.warning(
            "No installed font has all letters of the classes, so %s numbers them (%s); install one that does, such "
            "as Noto Sans CJK (fonts-noto-cjk) for Korean, Chinese and Japanese.",
            *(final_path(path), ", ".join(numbered)),
        )
        labels = [numbers.get(name, name) for name in names]
        predicted = "predicted (numbers: the classes in their order)"
        whole = (name.replace(" ", "\N{NO-BREAK SPACE}") for name in numbered)
        legend = ", ".join(whole).translate(dict.fromkeys(map(ord, lacking), _NO_LETTER))
    letters = max(map(len, labels)) * 0.075
    cell = max(_CELL, 0.085 * len(f"{counts.max():,}"), 2.4 / size)
    width = max(_MARGIN + letters + cell * size, 4.2)
    lines = textwrap.wrap(legend, int(width / _LETTER_OF_LEGEND))
    height = _MARGIN + letters + cell * size + (_LINE_OF_LEGEND * (len(lines) + 1) if lines else 0)
    figure = new_figure(width, height)
    if lines:
        looks: dict[str, Any] = {"fontsize": 7, "color": QUIET_COLOUR, "parse_math": False}
        figure.supxlabel("\n".join(lines), x=0.02, ha="left", **looks)
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.15)
    for row, column in zip(*counts.nonzero(), strict=True):
        color = "white" if shares[row, column] > _DARK else TEXT_COLOUR
        axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", fontsize=7, color=color)
    axes.set_xticks(range(size), labels, rotation=90, fontsize=8, parse_math=False)
    axes.set_yticks(range(size), labels, fontsize=8, parse_math=False)
    axes.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e6e6e6", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_color("#bbbbbb")
    axes.set_xlabel(predicted, color=QUIET_COLOUR)
    axes.set_ylabel("true", color=QUIET_COLOUR)
    right = sum(count for (true, predicted), count in confusion.items() if true == predicted)
    title = f"{right:,} of {counts.sum():,} {counted} right"
    if left_out:
        title += f"\n{size - 1} of {size - 1 + left_out} classes, those with most mistakes"
    axes.set_title(title, fontsize=10, color=TEXT_COLOUR, loc="left")
    return write_figure(figure, path)


def _with_most_mistakes(names: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    kept = np.sort(np.argsort(-wrong, kind="stable")[: MAX_CLASSES - 1])
    place = np.full(len(names), len(kept))
    place[kept] = np.arange(len(kept))
    smaller = np.zeros((len(kept) + 1, len(kept) + 1), dtype=np.int64)
    np.add.at(smaller, (place[:, None], place[None, :]), counts)
    return [*(names[number] for number in kept), "(all others)"], smaller
