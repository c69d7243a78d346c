"""The accuracy of several models on groups of minimal pairs, as bars side by side in one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ..files.checkpoint import distinct_names, read_json_object
from ..files.errors import SettingError
from .curves import RUN_COLOURS
from .pictures import QUIET_COLOUR, TEXT_COLOUR, new_figure, picture_path, write_figure

_ALL = "mean of all"
_MAX_GROUPS = 100
_BAR_HEIGHT, _GAP = 0.14, 0.1  # inches, and between groups
_ON_WHITE = {"facecolor": "white", "edgecolor": "none", "pad": 0.5}


def accuracy_bars(reports: str | Path | Sequence[str | Path], output_path: str | Path | None) -> Path:
    """Draw the accuracy by group of one to seven models, from reports of `mybert score --group_columns`.

    The groups are those of the last column, the most difficult for all models together at the bottom.

    Args:
        reports: JSON reports, named by their files in the picture.
        output_path: PNG file to write, which is returned.

    Raises:
        FileNotFoundError: If a report or the picture's folder does not exist.
        ValueError: If there are more than seven reports, one has no groups or others than the first, there are more
            than 100 groups, or the picture's name is not set or does not end in `.png`.
        ImportError: If matplotlib is not installed.
    """
    files = [reports] if isinstance(reports, (str, Path)) else list(reports)
    if not 1 <= len(files) <= len(RUN_COLOURS):
        raise ValueError(f"There are {len(files)} reports; expected one to {len(RUN_COLOURS)}, each with a color.")
    if output_path is None:
        raise SettingError.worded("{output} is not set; expected a PNG file for the bars of reports.")
    path = picture_path(output_path)
    models = [_accuracies(file) for file in files]
    names = list(models[0])
    for file, model in zip(files, models, strict=True):
        if model.keys() != models[0].keys():
            raise ValueError(f"{file} has other groups than {files[0]}; expected reports on the same pairs.")
    if len(names) - 1 > _MAX_GROUPS:
        raise ValueError(f"{files[0]} has {len(names) - 1:,} groups; expected at most {_MAX_GROUPS} in a picture.")
    accuracies = 100 * np.array([list(map(model.__getitem__, names)) for model in models])  # (models, groups)
    order = np.argsort(accuracies[:, 1:].mean(0), kind="stable") + 1
    accuracies, names = accuracies[:, [*order, 0]], [*(names[group] for group in order), names[0]]
    _draw(accuracies, names, [name.removesuffix(".json") for name in distinct_names(files)], path)
    return path


def _accuracies(file: str | Path) -> dict[str, float]:
    """The accuracy in all, then of each group of a report's last column."""
    report = read_json_object(file)
    if not report.get("groups"):
        raise SettingError.worded("{} has no groups; score minimal pairs with {group_columns} and {report}.", file)
    try:
        groups = {str(name): float(value) for name, value in list(report["groups"].values())[-1].items()}
        return {_ALL: float(report["accuracy"])} | groups
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{file} has other groups than mybert score writes ({error!r}).") from error


def _draw(accuracies: np.ndarray, groups: Sequence[str], models: Sequence[str], path: Path) -> None:
    row = _BAR_HEIGHT * len(models) + _GAP
    figure = new_figure(6.4, 0.9 + row * len(groups))
    ax = figure.subplots()
    places = row * np.arange(len(groups))
    places[-1] += _GAP  # apart from the groups
    for number, (name, values, color) in enumerate(zip(models, accuracies, RUN_COLOURS, strict=False)):
        heights = places + _BAR_HEIGHT * ((len(models) - 1) / 2 - number)
        bars = ax.barh(heights, values, 0.85 * _BAR_HEIGHT, label=name, color=color)
        ax.bar_label(bars, fmt="%.1f", padding=3, fontsize=7, color=QUIET_COLOUR, bbox=_ON_WHITE)
    ax.axvline(50, color=QUIET_COLOUR, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0.5)
    ax.set_yticks(places, groups, fontsize=8, color=TEXT_COLOUR, parse_math=False)
    ax.get_yticklabels()[-1].set_fontweight("bold")
    ax.set_ylim(places[0] - row / 2, places[-1] + row / 2)
    ax.set_xlim(0, 100)
    ax.set_xlabel("% of minimal pairs judged correctly (dotted: guessing)", fontsize=8, color=QUIET_COLOUR)
    ax.tick_params(length=0, labelsize=8)
    ax.tick_params(axis="x", labelcolor=QUIET_COLOUR)
    ax.grid(axis="x", color="#e6e6e6", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[:].set_visible(False)
    legend = figure.legend(loc="outside upper left", ncols=3, frameon=False, fontsize=9, labelcolor=TEXT_COLOUR)
    for text in legend.get_texts():
        text.set_parse_math(False)
    write_figure(figure, path)
