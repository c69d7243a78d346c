"""The demo's result as one picture: guessed words, learning curves, and the benefit of pretraining."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..files.processes import only_errors
from ..visualization.pictures import BLUE, QUIET_COLOUR, TEXT_COLOUR, new_figure, picture_path, write_figure

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

_ROWS, _GUESSES = 5, 3
_LONGEST_LINE = 80  # characters of a passage that fit its line
_WORD = re.compile(r"(?<![\w'-])[^\W\d_]{5,}(?![\w'-])")  # shorter ones are mostly "the", "and" and the like
_CODE = re.compile(r"_|[^\w\s.,;:?!'()-]")  # signs that make a passage hard to read
_PALE = "#D8DEE6"


@dataclass(frozen=True)
class HiddenWord:
    """A passage, its masked word, and a model's guesses."""

    before: str
    word: str
    after: str
    guesses: list[tuple[str, float]]  # word, probability in [0, 1]; the most probable first


def guess_hidden_words(
    model_dir: str | Path, passages: Sequence[tuple[str, str]], generator: np.random.Generator
) -> list[HiddenWord]:
    """Let a model guess a random word of five letters or more in a passage (text, source) of a few sources."""
    from transformers import pipeline

    with only_errors():
        fill_mask = pipeline("fill-mask", model=str(model_dir))
    found: dict[str, HiddenWord] = {}
    for index in generator.permutation(len(passages)):
        text, source = passages[index]
        words = list(_WORD.finditer(text))
        # a passage from each source, no longer than a line, no code, no words of several pieces
        if source in found or not words or not _is_plain(text, fill_mask.tokenizer):
            continue
        match = words[generator.integers(len(words))]
        before, after = text[: match.start()], text[match.end() :]
        answers = fill_mask(before + fill_mask.tokenizer.mask_token + after, top_k=_GUESSES)
        guesses = [(answer["token_str"], answer["score"]) for answer in answers]
        found[source] = HiddenWord(before, match[0], after, guesses)
        if len(found) == _ROWS:
            break
    return list(found.values())


def _is_plain(text: str, tokenizer: Any) -> bool:
    pieces = tokenizer.tokenize(text)
    is_known = not any(piece.startswith("##") or piece == tokenizer.unk_token for piece in pieces)
    return is_known and len(text) <= _LONGEST_LINE and not _CODE.search(text)


def draw_result(
    report: Mapping[str, Any],
    log_history: Sequence[Mapping[str, Any]],
    words: Sequence[HiddenWord],
    output_path: str | Path,
) -> Path:
    """Draw the results of a demo as PNG; `report` is what `demo` returns, `log_history` that of its pretraining."""
    path = picture_path(output_path, (".png",))
    figure = new_figure(10.5, 4.9)
    cells = figure.add_gridspec(2, 2, width_ratios=(1.5, 1), hspace=0.08)
    title = "From raw text to a working BERT, in one command"
    figure.suptitle(title, x=0.005, ha="left", fontsize=15, fontweight="bold", color=TEXT_COLOUR)
    _draw_words(figure.add_subplot(cells[:, 0]), words)
    _draw_learning(figure.add_subplot(cells[0, 1]), log_history)
    _draw_classifiers(figure.add_subplot(cells[1, 1]), report)
    return write_figure(figure, path)


def _bare(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=11, fontweight="bold", color=TEXT_COLOUR, pad=8)
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=9, labelcolor=QUIET_COLOUR)


def _draw_words(ax: Axes, words: Sequence[HiddenWord]) -> None:
    """Draw passages with a gap; below each the model's guesses, and the true word."""
    from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea

    _bare(ax, "It predicts masked words of text that it has never read")
    ax.set(xticks=[], yticks=[], xlim=(0, 1), ylim=(_ROWS, 0))

    def line(y: float, *parts: tuple[str, dict[str, Any]]) -> None:
        # Leading and trailing spaces have no width; non-breaking spaces do.
        texts: list[Artist] = [
            TextArea(text.replace(" ", "\u00a0"), textprops={"fontsize": 9.5, "color": TEXT_COLOUR} | looks)
            for text, looks in parts
        ]
        packed = HPacker(children=texts, pad=0, sep=0, align="baseline")
        ax.add_artist(AnnotationBbox(packed, (0.01, y), frameon=False, pad=0, box_alignment=(0, 0.5)))

    for row, hidden in enumerate(words):
        gap: dict[str, Any] = {"color": _PALE, "bbox": {"facecolor": _PALE, "edgecolor": "none", "pad": 1}}
        line(row + 0.3, (hidden.before, {}), (hidden.word, gap), (hidden.after, {}))
        guesses: list[tuple[str, dict[str, Any]]] = [("        ", {})]
        for word, probability in hidden.guesses:
            looks = {"color": BLUE, "fontweight": "bold"} if _same(word, hidden.word) else {"color": QUIET_COLOUR}
            guesses.append((f"{word} {100 * probability:.0f} %      ", looks))
        if not any(_same(word, hidden.word) for word, _ in hidden.guesses):
            guesses.append((f"(it was: {hidden.word})", {}))
        line(row + 0.67, *guesses)


def _same(guess: str, word: str) -> bool:
    return guess.casefold() == word.casefold()


def _draw_learning(ax: Axes, log_history: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.ticker import MaxNLocator

    points = [(log["step"], 100 * log["eval_mlm_accuracy"]) for log in log_history if "eval_mlm_accuracy" in log]
    steps, shares = zip((0, 0.0), *points, strict=True)
    _bare(ax, "It learns while you watch")
    ax.plot(steps, shares, color=BLUE, linewidth=2, marker="o", markersize=4, clip_on=False)
    ax.annotate(
        f"{shares[-1]:.0f} % of masked\nwords right", (steps[-1], shares[-1]), xytext=(-8, -14),
        textcoords="offset points", ha="right", va="top", fontsize=9, color=TEXT_COLOUR,
    )  # fmt: skip
    ax.set(xlim=(0, steps[-1]), ylim=(0, None), xticks=[0, steps[-1]])
    ax.yaxis.set_major_locator(MaxNLocator(3, steps=[1, 2, 5, 10]))
    ax.yaxis.set_major_formatter("{x:.0f} %")
    ax.grid(axis="y", color=_PALE, linewidth=0.8)
    first, last = ax.set_xticklabels(["0", f"{steps[-1]:,} steps"])
    first.set_horizontalalignment("left")
    last.set_horizontalalignment("right")
    ax.spines["bottom"].set(visible=True, color=_PALE)


def _draw_classifiers(ax: Axes, report: Mapping[str, Any]) -> None:
    bars = {
        "always the same answer": report["majority"],
        "without pretraining": report["classifier_without_pretraining"]["accuracy"],
        "with pretraining": report["classifier"]["accuracy"],
    }
    _bare(ax, f"It tells {len(report['classes'])} sources of text apart")
    ax.barh(range(3), [1] * 3, color="#F3F5F8", height=0.62)
    ax.barh(range(3), list(bars.values()), color=[_PALE, "#9DB4C9", BLUE], height=0.62)
    for y, (name, share) in enumerate(bars.items()):
        ax.text(1.02, y, f"{100 * share:.0f} %", va="center", fontsize=10, color=TEXT_COLOUR)
        ax.text(0, y + 0.36, name, va="bottom", fontsize=8.5, color=QUIET_COLOUR)
    ax.set(xlim=(0, 1.15), ylim=(-0.5, 2.9), xticks=[], yticks=[])
