"""A confusion matrix as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from .pictures import QUIET_COLOUR, TEXT_COLOUR, new_figure, picture_path, write_figure

MOST_CLASSES = 40
"""Maximum number of classes in a picture; further ones, with the fewest errors, share a row and a column."""

_CELL, _MARGIN = 0.3, 1.2  # inches
_LONGEST = 28  # characters of a class
_DARK = 0.55  # share of the row above which a count is printed in white


def confusion_picture(
    confusion: Mapping[tuple[str, str], int], classes: Sequence[str], output_path: str | Path, counted: str = "texts"
) -> Path:
    """Draw a confusion matrix: a row for each true class, a column for each predicted one.

    A cell shows its count, and is darker the greater its share of the row. With more than `MOST_CLASSES`, the picture
    shows the classes with the most errors, and one row and column for all others.

    Args:
        confusion: Counts by (true class, predicted class).
        classes: All classes, in their order.
        output_path: PNG file to write; its folder must exist.
        counted: What is counted, such as "texts".

    Returns:
        `output_path`.

    Raises:
        ValueError: If there is nothing to draw, or the file does not end in `.png`.
        FileNotFoundError: If the file's folder does not exist.
        ImportError: If matplotlib is not installed.
    """
    path = picture_path(output_path, (".png",))
    names, counts = list(classes), _counts(confusion, classes)
    if not counts.sum():
        raise ValueError("The confusion matrix is empty.")
    left_out = len(names) - MOST_CLASSES + 1 if len(names) > MOST_CLASSES else 0
    if left_out:
        names, counts = _with_most_mistakes(names, counts)
    size = len(names)
    labels = [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..." for name in names]
    letters = max(map(len, labels)) * 0.075
    cell = max(_CELL, 0.085 * len(f"{counts.max():,}"), 2.4 / size)
    width = max(_MARGIN + letters + cell * size, 4.2)
    figure = new_figure(width, _MARGIN + letters + cell * size)
    axes = figure.subplots()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    axes.imshow(shares, cmap="Blues", vmin=0, vmax=1.15)
    for row, column in zip(*counts.nonzero(), strict=True):
        colour = "white" if shares[row, column] > _DARK else TEXT_COLOUR
        axes.text(column, row, f"{counts[row, column]:,}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(size), labels, rotation=90, fontsize=8, parse_math=False)
    axes.set_yticks(range(size), labels, fontsize=8, parse_math=False)
    axes.set_xticks(np.arange(size + 1) - 0.5, minor=True)
    axes.set_yticks(np.arange(size + 1) - 0.5, minor=True)
    axes.grid(which="minor", color="#e6e6e6", linewidth=0.6)
    axes.tick_params(which="both", length=0)
    axes.spines[:].set_color("#bbbbbb")
    axes.set_xlabel("predicted", color=QUIET_COLOUR)
    axes.set_ylabel("true", color=QUIET_COLOUR)
    right = sum(count for (true, predicted), count in confusion.items() if true == predicted)
    title = f"{right:,} of {counts.sum():,} {counted} right"
    if left_out:
        title += f"\n{size - 1} of {size - 1 + left_out} classes, those with most mistakes"
    axes.set_title(title, fontsize=10, color=TEXT_COLOUR, loc="left")
    return write_figure(figure, path)


def _counts(confusion: Mapping[tuple[str, str], int], classes: Sequence[str]) -> np.ndarray:
    place = {name: number for number, name in enumerate(classes)}
    counts = np.zeros((len(place), len(place)), dtype=np.int64)
    for (true, predicted), count in confusion.items():
        counts[place[true], place[predicted]] = count
    return counts  # (true, predicted)


def _with_most_mistakes(names: list[str], counts: np.ndarray) -> tuple[list[str], np.ndarray]:
    wrong = counts.sum(0) + counts.sum(1) - 2 * counts.diagonal()
    kept = np.sort(np.argsort(-wrong, kind="stable")[: MOST_CLASSES - 1])
    place = np.full(len(names), len(kept))
    place[kept] = np.arange(len(kept))
    smaller = np.zeros((len(kept) + 1, len(kept) + 1), dtype=np.int64)
    np.add.at(smaller, (place[:, None], place[None, :]), counts)
    return [*(names[number] for number in kept), "(all others)"], smaller
