"""Learning curves: a task's score by the number of training examples, for several models, as one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..files.checkpoint import read_json_object
from .curves import RUN_COLOURS
from .pictures import QUIET_COLOUR, TEXT_COLOUR, new_figure, picture_path, write_figure

SUITE_FILE = "suite.json"  # of a suite's output folder
_LINE: dict[str, Any] = {"marker": "o", "markersize": 4, "linewidth": 1.6, "capsize": 3}


def learning_curves(suite_dir: str | Path | Sequence[str | Path], output_path: str | Path | None = None) -> Path:
    """Draw scores by the number of training examples, from the `suite.json` of `mybert glue --train_sizes`.

    Each task has a panel, each row of the suites' tables a line, with its standard errors. Rows with the same name in
    several folders are one line.

    Args:
        suite_dir: Output folder of a suite, or several.
        output_path: PNG file to write; of one folder `learning_curves.png` in it by default.

    Returns:
        The path of the picture.

    Raises:
        FileNotFoundError: If a folder has no `suite.json`, or the picture's folder does not exist.
        ValueError: If a suite was measured without `train_sizes`; if the picture's name does not end in `.png`, or
            several folders have none; or if there are more than seven rows.
    """
    folders = [suite_dir] if isinstance(suite_dir, (str, Path)) else list(suite_dir)
    if output_path is None and len(folders) > 1:
        raise ValueError("output is not set; expected a PNG file for the curves of several suites.")
    path = picture_path(output_path or Path(folders[0], "learning_curves.png"), (".png",))
    tasks: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    for folder in folders:
        file = Path(folder, SUITE_FILE)
        if not (curves := read_json_object(file).get("learning_curves")):
            raise ValueError(f"{file} has no learning curves; measure the suite with train_sizes, such as 100 1000.")
        for task, rows in curves.items():
            for row, points in rows.items():
                line = tasks.setdefault(task, {}).setdefault(row, {})
                line |= {size: (score, error or 0.0) for size, score, error in points}
    return _draw(tasks, path)


def _draw(tasks: dict[str, dict[str, dict[int, tuple[float, float]]]], path: Path) -> Path:
    from matplotlib.ticker import NullLocator, PercentFormatter

    names = list(dict.fromkeys(row for rows in tasks.values() for row in rows))
    if len(names) > len(RUN_COLOURS):
        raise ValueError(f"There are {len(names)} rows; expected at most {len(RUN_COLOURS)}, each with a color.")
    colors = dict(zip(names, RUN_COLOURS, strict=False))
    figure = new_figure(max(5.4, 3.6 * len(tasks)), 3.4)
    axes = figure.subplots(1, len(tasks), squeeze=False)[0]
    for ax, (task, rows) in zip(axes, tasks.items(), strict=True):
        for row, points in rows.items():
            sizes = sorted(points)
            scores, errors = zip(*(points[size] for size in sizes), strict=True)
            ax.errorbar(sizes, scores, errors, label=row, color=colors[row], **_LINE)
        ax.set_xscale("log")
        ticks = sorted({size for points in rows.values() for size in points})
        ax.set_xticks(ticks, [f"{size:,}" for size in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        ax.set_title(task, loc="left", fontsize=10, fontweight="bold", color=TEXT_COLOUR, parse_math=False)
        ax.set_xlabel("training examples", fontsize=8, color=QUIET_COLOUR)
        ax.tick_params(length=0, labelsize=8, labelcolor=QUIET_COLOUR)
        ax.grid(axis="y", color="#e6e6e6", linewidth=0.8)
        ax.set_axisbelow(True)
        ax.spines[["top", "right", "left"]].set_visible(False)
    handles = {name: handle for ax in axes for handle, name in zip(*ax.get_legend_handles_labels(), strict=True)}
    legend = figure.legend(
        handles.values(), handles, loc="outside upper left", ncols=3, frameon=False, fontsize=9, labelcolor=TEXT_COLOUR
    )
    for text in legend.get_texts():
        text.set_parse_math(False)
    return write_figure(figure, path)
