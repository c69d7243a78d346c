"""Training curves, and scores by the number of training examples, as one PNG of small multiples.

Each quantity that `Trainer` logged, in one run or several, has a panel of its own with training and evaluation in it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.checkpoint import distinct_names, read_json_object, read_log_history
from ..files.errors import SettingError, refuse_address
from ..metrics import lower_is_better
from .pictures import BLUE, QUIET_COLOUR, TEXT_COLOUR, VERMILION, in_width, new_figure, picture_path, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

STATE_FILE = "trainer_state.json"  # of a run's output folder, or of a checkpoint

_TRAINING_COLOUR, _EVALUATION_COLOUR = BLUE, VERMILION
# Of several runs, each with one of Okabe and Ito's colors.
RUN_COLOURS = (BLUE, VERMILION, "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_TICK_STEPS = [1, 2, 2.5, 5, 10]
_TITLE_SIZE = 13
_PANEL_WIDTH, _PANEL_HEIGHT, _TITLE_HEIGHT, _KEY_HEIGHT = 3.6, 2.5, 0.3, 0.3  # inches
_SMOOTHED_FROM = 40  # logged points; fewer are drawn as they are
_LARGEST = 1e15  # steps and values beyond this are invalid and not drawn
_MARKED_UP_TO = 30  # evaluations, each with a dot
_LEAST_SPAN, _LEAST_SHARE = 0.2, 0.1  # of an axis: of its greatest value, and of fractions
_KEYS = ("training", "evaluation", "training before smoothing")
_LINE: dict[str, Any] = {"linewidth": 1.6, "markersize": 4, "clip_on": False, "solid_joinstyle": "round"}
_SAME_SHARE = 0.02  # least difference between fractions of masked tokens that is named
_MAJORITY = "eval_nsp_majority"  # fraction of the more frequent answer among held-out pairs
_THIN: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.55}  # the training of several runs
_NOTHING = (
    "The log history has nothing to draw: none of its {} entries has a step and a loss, an accuracy, a learning rate "
    "or an evaluation metric."
)
# Metrics that are drawn in per cent. Those of question answering are logged so, as in the official scripts; others as
# fractions.
_PER_CENT = re.compile(r"(?:.*_)?(?:accuracy|f1|precision|recall|exact|exact_match)")
_QUESTION_METRICS = ("_exact", "_exact_match")
_NOT_PLOTTED = {"step", "epoch", "total_flos", "num_input_tokens_seen", "nsp_majority", "mlm_share"}


@dataclass(frozen=True)
class _Panel:
    key: str  # in a training log entry; with the prefix "eval_" in evaluations
    title: str
    unit: str
    is_share: bool = False  # in [0, 1], shown in per cent
    chance: Callable[[float], float] | None = None  # chance level, from the fraction of the more frequent answer
    from_zero: bool = False


def _entropy(share: float) -> float:
    return -sum(part * math.log(part) for part in (share, 1 - share) if part > 0)


_LOSSES = [
    _Panel("loss", "Loss", "nats"),
    _Panel("mlm_loss", "Masked LM loss", "nats per masked token"),
    _Panel("nsp_loss", "Next sentence loss", "nats per pair", chance=_entropy),
]
_ACCURACIES = [
    _Panel("mlm_accuracy", "Masked LM accuracy", "% of masked tokens", is_share=True),
    _Panel("nsp_accuracy", "Next sentence accuracy", "% of pairs", is_share=True, chance=float),
    _Panel("accuracy", "Accuracy", "%", is_share=True),
]
_OPTIMISATION = [
    _Panel("learning_rate", "Learning rate", "step size", from_zero=True),
    _Panel("grad_norm", "Gradient norm", "L2 norm before clipping", from_zero=True),
]


def training_curves(
    log_history: Sequence[Mapping[str, Any]], output_path: str | Path, title: str | None = None
) -> Path:
    """Draw a run's losses, accuracies and other metrics, learning rate and gradient norm over the optimizer steps.

    Quantities that were not logged have no panel, nor does the total loss if its parts `mlm_loss` and `nsp_loss` are
    logged. The accuracy of always guessing the more frequent answer is drawn if it was measured (`eval_nsp_majority`).
    The same history gives the same bytes.

    Args:
        log_history: `Trainer.state.log_history`: one dict per log call with `"step"` and numbers; names of
            evaluation values start with `"eval_"`. Losses are in nats, accuracies in [0, 1].
        output_path: PNG file to write, which is returned.
        title: Heading of the picture.

    Raises:
        ValueError: If the history has nothing to draw, or the file does not end in `.png`.
        FileNotFoundError: If the file's folder does not exist.
        ImportError: If matplotlib is not installed.
    """
    path = picture_path(output_path)
    curves = _curves(log_history)
    if not _panels([curves]):
        raise ValueError(_NOTHING.format(len(log_history)))
    return _draw([curves], [], path, title)


def _draw(runs: Sequence[_Curves], names: Sequence[str], path: Path, title: str | None = None) -> Path:
    """Draw the curves of one run, or of several with their names."""
    panels = _panels(runs)
    rows = 1 if len(panels) <= 3 else 2 if len(panels) <= 8 else 3
    columns = math.ceil(len(panels) / rows)
    figure = new_figure(columns * _PANEL_WIDTH, rows * _PANEL_HEIGHT)
    title = in_width(figure, title, _TITLE_SIZE) if title else None
    last_step = max(steps[-1] for curves in runs for steps, _ in curves.values())
    majorities = {float(curves[_MAJORITY][1][-1]) for curves in runs if _MAJORITY in curves}
    majority = majorities.pop() if len(majorities) == 1 else None
    axes = figure.subplots(rows, columns, squeeze=False)
    # One column each for losses, accuracies and the optimizer's state.
    for position, ax in enumerate(axes.T.flat):
        if position >= len(panels):
            ax.set_visible(False)
            continue
        _draw_panel(ax, panels[position], runs, last_step, majority)
        if position % rows == rows - 1 or position == len(panels) - 1:
            ax.set_xlabel("optimizer step", fontsize=8, color=QUIET_COLOUR)
    lines = {line.get_label(): line for ax in axes.flat for line in ax.lines}
    handles, per_row = [lines[key] for key in _KEYS if key in lines], 3
    if names:
        handles, per_row = _handles(names), max(1, int(columns * _PANEL_WIDTH / (0.6 + 0.09 * max(map(len, names)))))
    legend = figure.legend(
        handles=handles,
        title=title,
        title_fontproperties={"size": _TITLE_SIZE, "weight": "bold"},
        alignment="left",
        loc="outside upper left",
        ncols=per_row,
        frameon=False,
        fontsize=9,
        labelcolor=TEXT_COLOUR,
    )
    for text in (legend.get_title(), *legend.get_texts()):
        text.set_parse_math(False)
    heading = _TITLE_HEIGHT * (title.count("\n") + 1 if title else 0) + _KEY_HEIGHT * math.ceil(len(handles) / per_row)
    figure.set_figheight(figure.get_figheight() + heading)
    return write_figure(figure, path)


def _handles(names: Sequence[str]) -> list[Any]:
    """The keys of several runs: their colors, and how training and evaluation are drawn."""
    from matplotlib.lines import Line2D

    colors = [Line2D([], [], color=color, label=name) for name, color in zip(names, RUN_COLOURS, strict=False)]
    kinds = {_KEYS[0]: _THIN, _KEYS[1]: _LINE | {"marker": "o"}}
    return [*colors, *(Line2D([], [], color=QUIET_COLOUR, label=key, **looks) for key, looks in kinds.items())]


def plot_run(run_dir: str | Path | Sequence[str | Path], output_path: str | Path | None = None) -> Path:
    """Draw the training curves of a run, or of several in one picture, from the `trainer_state.json` of `Trainer`.

    Args:
        run_dir: Output folder of a run; without `trainer_state.json` the one of its newest `checkpoint-*` is read. Or
            up to seven of them, whose curves are drawn over each other, each in a color, and named by their folders.
        output_path: PNG file to write; of one run `training_curves.png` in `run_dir` by default.

    Raises:
        FileNotFoundError: If neither a folder nor a checkpoint in it has a `trainer_state.json`, or the picture's
            folder does not exist.
        ValueError: If that file is not a trainer state, or there is nothing in it to draw; if the picture's name does
            not end in `.png`, or several runs have none; or if there are more than seven.
    """
    folders = [run_dir] if isinstance(run_dir, (str, Path)) else list(run_dir)
    if not 1 <= len(folders) <= len(RUN_COLOURS):
        raise ValueError(f"There are {len(folders)} runs; expected one to {len(RUN_COLOURS)}, each with a color.")
    if output_path is None and len(folders) > 1:
        raise SettingError.worded("{output} is not set; expected a PNG file for the curves of several runs.")
    names = distinct_names(folders)
    path = output_path and picture_path(output_path)
    histories = [_log_history(folder) for folder in folders]
    path = path or Path(folders[0], "training_curves.png")
    if len(folders) == 1:
        return training_curves(histories[0], path, title=names[0])
    return _draw(list(map(_curves, histories)), names, path)


def _log_history(run_dir: str | Path) -> Sequence[Mapping[str, Any]]:
    """What a run logged, something of which can be drawn."""
    from transformers.trainer_utils import get_last_checkpoint

    refuse_address(run_dir)
    run_dir = Path(run_dir)
    state_file = run_dir / STATE_FILE
    if not state_file.is_file():
        checkpoint = get_last_checkpoint(run_dir) if run_dir.is_dir() else None
        if checkpoint is None or not (state_file := Path(checkpoint, STATE_FILE)).is_file():
            raise FileNotFoundError(
                f"{run_dir} holds no trainer_state.json and no checkpoint-* folder with one; expected the output"
                " folder of a training run."
            )
    log_history = read_log_history(state_file)
    if not _panels([_curves(log_history)]):
        raise ValueError(f"{state_file}: {_NOTHING.format(len(log_history))}")
    return log_history


_Curves = Mapping[str, tuple[np.ndarray, np.ndarray]]


def _curves(log_history: Iterable[Mapping[str, Any]]) -> _Curves:
    """Return for each logged quantity its steps and values, both of shape (points,), sorted by step."""
    points: dict[str, dict[int, float]] = {}
    for entry in log_history:
        step = entry.get("step")
        if not isinstance(step, int) or abs(step) > _LARGEST:
            continue
        for key, value in entry.items():
            is_number = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool)
            if is_number and abs(value) <= _LARGEST:  # false for nan
                # If a step was logged twice, it was repeated after a restart: keep the later value.
                points.setdefault(key, {})[step] = float(value)
    are_per_cent = any(key.endswith(_QUESTION_METRICS) for key in points)
    curves = {}
    for key, values in points.items():
        steps = sorted(values)
        numbers = np.array([values[step] for step in steps])
        if _PER_CENT.fullmatch(key) and (are_per_cent or numbers.max() > 1):  # other programs' may be so, too
            numbers /= 100
        curves[key] = (np.array(steps), numbers)
    return curves


def _panels(runs: Sequence[_Curves]) -> list[_Panel]:
    """Return the panels with data: losses, accuracies, further evaluation metrics, optimization."""
    points: Counter[str] = Counter()
    for curves in runs:
        points.update({key: len(steps) for key, (steps, _) in curves.items()})
    known = [*_LOSSES, *_ACCURACIES, *_OPTIMISATION]
    keys = {panel.key for panel in known}
    names = (key.removeprefix("eval_") for key in points if key.startswith("eval_"))
    other = [
        _Panel(name, title[:1].upper() + title[1:], "%" if is_share else "evaluation metric", is_share)
        for name in names
        if name not in keys | _NOT_PLOTTED and not name.endswith(("runtime", "per_second", "preparation_time"))
        for title, is_share in [(name.replace("_", " "), bool(_PER_CENT.fullmatch(name)))]
    ]
    panels = [
        panel
        for panel in [*_LOSSES, *_ACCURACIES, *other, *_OPTIMISATION]
        if panel.key in points or f"eval_{panel.key}" in points
    ]
    if all({"mlm_loss", "nsp_loss"} <= {key.removeprefix("eval_") for key in curves} for curves in runs):
        panels = [panel for panel in panels if panel.key != "loss"]
    # A single point is no curve.
    return [panel for panel in panels if max(points[panel.key], points[f"eval_{panel.key}"]) > 1] or panels


def _different_shares(curves: _Curves) -> str:
    """The fractions of tokens that were masked in training, first and last, and in evaluation, if they differ."""
    if not {"mlm_share", "eval_mlm_share"} <= curves.keys():
        return ""
    (_, training), (_, evaluation) = curves["mlm_share"], curves["eval_mlm_share"]
    if max(abs(training[[0, -1]] - evaluation[-1])) < _SAME_SHARE:
        return ""
    said = dict.fromkeys(f"{100 * share:.0f}" for share in training[[0, -1]])
    return f"{'–'.join(said)} %, evaluation {100 * evaluation[-1]:.0f} %"


def _draw_panel(ax: Axes, panel: _Panel, runs: Sequence[_Curves], last_step: int, majority: float | None) -> None:
    from matplotlib.ticker import EngFormatter, MaxNLocator, PercentFormatter

    labels = []  # (height, text, color) at the right edge
    number = ".1%" if panel.is_share else ".3g"
    for curves, color in zip(runs, RUN_COLOURS, strict=False):
        training, evaluation = curves.get(panel.key), curves.get(f"eval_{panel.key}")
        if training is not None:
            steps, values = training
            line = _LINE | {"color": color} | (_THIN if len(runs) > 1 else {})
            if panel.key != "learning_rate" and len(values) >= _SMOOTHED_FROM:
                if len(runs) == 1:
                    ax.plot(steps, values, label=_KEYS[2], color=color, linewidth=0.7, alpha=0.3)
                values = _moving_average(values)
            ax.plot(steps, values, label=_KEYS[0], marker="o" if len(steps) == 1 else "", **line)
            if len(runs) == 1 or evaluation is None:
                labels.append((values[-1], format(values[-1], number), color))
        if evaluation is not None:
            steps, values = evaluation
            color = color if len(runs) > 1 else _EVALUATION_COLOUR
            marker = "o" if len(steps) <= _MARKED_UP_TO else ""
            ax.plot(steps, values, label=_KEYS[1], color=color, marker=marker, **_LINE)
            labels.append((values[-1], format(values[-1], number), color))
    if panel.chance is not None and majority is not None:
        height = panel.chance(majority)
        ax.axhline(height, color=QUIET_COLOUR, linewidth=0.8, linestyle=(0, (2, 3)), zorder=0)
        labels.append((height, "guessing", QUIET_COLOUR))
    if panel.from_zero:
        ax.set_ylim(bottom=0)
    low, high = ax.get_ylim()
    # Small changes must look small.
    missing = (_LEAST_SHARE if panel.is_share else _LEAST_SPAN * max(abs(low), abs(high))) - (high - low)
    if missing > 0 and not panel.from_zero:
        low, high = low - missing / 2, high + missing / 2
        ax.set_ylim(low, high)
    if panel.is_share:
        ax.set_ylim(max(low, 0), min(high, 1))
    ax.set_xlim(0, max(last_step, 1))
    _label_right_edge(ax, labels)

    if panel.is_share:
        ax.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    else:
        ax.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    ax.yaxis.set_major_locator(MaxNLocator(5, steps=_TICK_STEPS))
    ax.xaxis.set_major_formatter(EngFormatter(sep=""))
    ax.xaxis.set_major_locator(MaxNLocator(5, steps=_TICK_STEPS, integer=True))

    looks: dict[str, Any] = {"fontsize": 10, "fontweight": "bold", "color": TEXT_COLOUR, "parse_math": False}
    ax.set_title(panel.title, loc="left", pad=16, **looks)
    unit = panel.unit
    shares = set(filter(None, map(_different_shares, runs)))
    if shares and panel.key.startswith("mlm"):
        unit += f" ({shares.pop() if len(shares) == 1 else 'the runs mask different fractions'})"
    ax.annotate(
        unit, (0, 1), xycoords="axes fraction", xytext=(0, 5), textcoords="offset points", fontsize=8,
        color=QUIET_COLOUR,
    )  # fmt: skip
    ax.tick_params(length=0, labelsize=8, labelcolor=QUIET_COLOUR)
    ax.grid(axis="y", color="#e6e6e6", linewidth=0.8)
    ax.set_axisbelow(True)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.spines["bottom"].set_color("#bbbbbb")


def _label_right_edge(ax: Axes, labels: list[tuple[float, str, str]]) -> None:
    """Write each text next to the axes at its value's height, moved apart where two would overlap."""
    low, high = ax.get_ylim()
    line_height = 0.1  # of the axes' height, enough for one line of text
    labels, heights = sorted(labels), list[float]()
    for value, _, _ in labels:
        heights.append(max((value - low) / (high - low), heights[-1] + line_height if heights else -math.inf))
    for place in reversed(range(len(heights))):  # those that were moved beyond the top
        heights[place] = min(heights[place], heights[place + 1] - line_height if heights[place + 1 :] else 1.0)
    for height, (_, text, color) in zip(heights, labels, strict=True):
        ax.annotate(
            text, (1, height), xycoords="axes fraction", xytext=(5, 0), textcoords="offset points", fontsize=8,
            color=color, va="center", annotation_clip=False,
        )  # fmt: skip


def _moving_average(values: np.ndarray) -> np.ndarray:
    """Return the centered moving average over about a twentieth of the (points,), over fewer at both ends."""
    half = max(1, len(values) // 40)
    sums = np.concatenate([[0.0], np.cumsum(values)])
    positions = np.arange(len(values))
    first, after_last = np.maximum(positions - half, 0), np.minimum(positions + half + 1, len(values))
    return (sums[after_last] - sums[first]) / (after_last - first)


SUITE_FILE = "suite.json"  # of a suite's output folder
_WITH_ERRORS: dict[str, Any] = {"marker": "o", "markersize": 4, "linewidth": 1.6, "capsize": 3}


def learning_curves(suite_dir: str | Path | Sequence[str | Path], output_path: str | Path | None = None) -> Path:
    """Draw scores by the number of training examples, from the `suite.json` of `mybert glue --train_sizes`.

    Each task has a panel, each row of the suites' tables a line, with its standard errors. Rows with the same name in
    several folders are one line, unless they have different scores for the same number of examples.

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
        raise SettingError.worded("{output} is not set; expected a PNG file for the curves of several suites.")
    path = picture_path(output_path or Path(folders[0], "learning_curves.png"))
    tasks: dict[str, dict[str, dict[int, tuple[float, float]]]] = {}
    titles: dict[str, str] = {}
    for folder, name in zip(folders, distinct_names(folders), strict=True):
        file = Path(folder, SUITE_FILE)
        report = read_json_object(file)
        if not (curves := report.get("learning_curves")):
            raise SettingError.worded(
                "{} has no learning curves; measure the suite with {train_sizes}, such as 100 1000.", file
            )
        try:
            titles |= {task: str(report["titles"][task]) for task in curves if task in report.get("titles", {})}
            drawn = [
                (task, row, {int(size): (float(score), float(error or 0)) for size, score, error in points})
                for task, rows in curves.items()
                for row, points in rows.items()
            ]
        except (AttributeError, TypeError, ValueError) as error:
            raise ValueError(f"{file} has other learning_curves than mybert glue writes ({error}).") from error
        for task, row, line in drawn:
            lines = tasks.setdefault(task, {})
            known = lines.get(row, {})
            is_another = any(known[size] != line[size] for size in known.keys() & line.keys())
            lines.setdefault(f"{row}, {name}" if is_another else row, {}).update(line)
    return _draw_scores(tasks, titles, path)


def _draw_scores(
    tasks: dict[str, dict[str, dict[int, tuple[float, float]]]], titles: dict[str, str], path: Path
) -> Path:
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
            ax.errorbar(sizes, scores, errors, label=row, color=colors[row], **_WITH_ERRORS)
        ax.set_xscale("log")
        ticks = sorted({size for points in rows.values() for size in points})
        ax.set_xticks(ticks, [f"{size:,}" for size in ticks])
        ax.xaxis.set_minor_locator(NullLocator())
        title = titles.get(task, task)
        if not lower_is_better(title.rpartition(", ")[2]):  # it ends with the metric
            ax.yaxis.set_major_formatter(PercentFormatter(xmax=1))
        ax.set_title(title, loc="left", fontsize=10, fontweight="bold", color=TEXT_COLOUR, parse_math=False)
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
