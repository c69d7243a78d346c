"""The demo's result as one picture: guessed words, the learning curve, and the benefit of pretraining."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.errors import abbreviated
from ..files.machine import duration
from ..visualization.pictures import BLUE, QUIET_COLOUR, TEXT_COLOUR, VERMILION, new_figure, picture_path, write_figure
from .guesses import Guess

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_PALE, _PALE_BLUE = "#E6EBF0", "#9DB4C9"
_EXCERPT = 74  # columns of a passage, without the masked word; letters of Chinese and the like take two
_MAX_CHARACTERS = 20  # of a guess or word
_GUESS, _WORD = 0.665, 0.845  # where the columns of guesses and true words begin, of the width


def draw_result(
    report: Mapping[str, Any],
    log_history: Sequence[Mapping[str, Any]],
    guesses: Sequence[Guess],
    output_path: str | Path,
) -> Path:
    """Draw the results of a demo as PNG; `report` is what `demo` returns, `log_history` that of its pretraining."""
    path = picture_path(output_path)
    table, charts = 0.31 * (len(guesses) + 1), 1.9  # inches
    figure = new_figure(8.6, table + charts + 1.7)
    rows = figure.add_gridspec(2, 2, height_ratios=(table, charts), width_ratios=(1, 1.1), hspace=0.08, wspace=0.08)
    title = f"From raw text to a BERT in {duration(report['seconds'])}, with one command: mybert demo"
    figure.suptitle(f"{title}\n", x=0.005, ha="left", fontsize=13, fontweight="bold", color=TEXT_COLOUR)
    _draw_guesses(figure.add_subplot(rows[0, :]), guesses, report)
    _draw_learning(figure.add_subplot(rows[1, 0]), log_history)
    _draw_classifiers(figure.add_subplot(rows[1, 1]), report)
    return write_figure(figure, path)


def excerpt(guess: Guess, columns: int = _EXCERPT) -> tuple[str, str]:
    """The text before and after a masked word, cut at both ends to some columns; an ellipsis shows a cut."""
    before, after = sum(map(_width, guess.before)), sum(map(_width, guess.after))
    left = min(before, max(columns // 2, columns - after))
    return _beginning(guess.before[::-1], left)[::-1], _beginning(guess.after, columns - left)


def _beginning(text: str, columns: int) -> str:
    """The beginning of a text, which ends between words if it has some, with an ellipsis if it is cut."""
    ends = np.cumsum([*map(_width, text)])
    if not len(ends) or ends[-1] <= columns:
        return text
    fitting = text[: int(np.searchsorted(ends, columns - 2, side="right"))]
    words, space, _ = fitting.rpartition(" ")
    return f"{words if space else fitting} …"


def _width(character: str) -> int:
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def _heading(ax: Axes, title: str, explanation: str) -> None:
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", color=TEXT_COLOUR, pad=22)
    ax.annotate(
        explanation, (0, 1), xycoords="axes fraction", xytext=(0, 8), textcoords="offset points", fontsize=8.5,
        color=QUIET_COLOUR,
    )  # fmt: skip
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=8.5, labelcolor=QUIET_COLOUR)


def _draw_guesses(ax: Axes, guesses: Sequence[Guess], report: Mapping[str, Any]) -> None:
    """Draw a line for each word: its passage with a gap, the model's guess, and the word if it is another."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea

    right, words = sum(guess.is_right for guess in guesses), report["masked_words"]
    _heading(
        ax,
        f"Fill in the blank: {right} of {len(guesses)} words right",
        "Words of held-out text, drawn before training; right and wrong ones in proportion to all "
        f"{words['words']:,}, of which {100 * words['right'] / words['words']:.0f} % are right",
    )
    ax.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(len(guesses), -1))

    def write(x: float, y: float, text: str, **looks: Any) -> None:
        usual: dict[str, Any] = {"fontsize": 9, "color": TEXT_COLOUR, "va": "center", "parse_math": False}
        ax.text(x, y + 0.5, text, **usual | looks)

    for x, heading in ((_GUESS, "model's guess"), (_WORD, "true word")):
        write(x, -1, heading, color=QUIET_COLOUR, fontsize=8.5)
    for row, guess in enumerate(guesses):
        ax.axhline(row, color=_PALE, linewidth=0.8)
        before, after = excerpt(guess)
        gap: dict[str, Any] = {"color": _PALE, "bbox": {"facecolor": _PALE, "edgecolor": "none", "pad": 1}}
        # Leading and trailing spaces have no width; non-breaking spaces do.
        texts: list[Artist] = [
            TextArea(
                text.replace(" ", "\u00a0"),
                textprops={"fontsize": 9, "color": TEXT_COLOUR, "parse_math": False} | looks,
            )
            for text, looks in ((before, {}), ("______", gap), (after, {}))
        ]
        line = HPacker(children=texts, pad=0, sep=0, align="baseline")
        ax.add_artist(AnnotationBbox(line, (0, row + 0.5), frameon=False, pad=0, box_alignment=(0, 0.5)))
        mark, looks = ("✓", {"color": BLUE, "fontweight": "bold"}) if guess.is_right else ("✗", {"color": VERMILION})
        write(_GUESS, row, f"{mark} {abbreviated(guess.guess, _MAX_CHARACTERS)}", **looks)
        write(_WORD, row, abbreviated(guess.word, _MAX_CHARACTERS))


def _draw_learning(ax: Axes, log_history: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.ticker import MaxNLocator

    points = [(log["step"], 100 * log["eval_mlm_accuracy"]) for log in log_history if "eval_mlm_accuracy" in log]
    steps, accuracies = zip(*points, strict=True)
    _heading(ax, "Pretraining: predict masked tokens", "Right ones in held-out text, by training step")
    ax.plot(steps, accuracies, color=BLUE, linewidth=2, marker="o", markersize=4, clip_on=False)
    ax.annotate(
        f"{accuracies[-1]:.0f} %", (steps[-1], accuracies[-1]), xytext=(0, -9), textcoords="offset points",
        ha="right", va="top", fontsize=10, color=TEXT_COLOUR,
    )  # fmt: skip
    ax.set(xlim=(0, steps[-1]), ylim=(0, None), xticks=[0, steps[-1]])
    ax.yaxis.tick_right()
    ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter("{x:.0f} %")
    ax.grid(axis="y", color=_PALE, linewidth=0.8)
    first, last = ax.set_xticklabels(["0", f"{steps[-1]:,}"])
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    ax.spines["bottom"].set(visible=True, color=_PALE)


def _draw_classifiers(ax: Axes, report: Mapping[str, Any]) -> None:
    accuracies = {
        "after pretraining": report["classifier"]["accuracy"],
        "without pretraining": report["classifier_without_pretraining"]["accuracy"],
        "always the most frequent source": report["majority"],
    }
    title = f"Fine-tuning: which of {len(report['classes'])} sources is a text from?"
    _heading(ax, title, "Right answers for held-out passages")
    ax.barh(range(3), [1] * 3, color="#F3F5F8", height=0.5)
    ax.barh(range(3), list(accuracies.values()), color=[BLUE, _PALE_BLUE, "#CBD3DC"], height=0.5)
    for y, (name, accuracy) in enumerate(accuracies.items()):
        ax.text(1.02, y, f"{100 * accuracy:.0f} %", va="center", fontsize=10, color=TEXT_COLOUR)
        ax.text(0, y - 0.3, name, va="bottom", fontsize=8.5, color=TEXT_COLOUR)
    ax.set(xlim=(0, 1.15), ylim=(2.4, -0.7), xticks=[], yticks=[])
