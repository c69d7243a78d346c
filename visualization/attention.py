"""Attention maps: what every head of every layer attends to, as a picture.

Layers and heads are counted from 0, as in `outputs.attentions[layer][0, head]`. Shapes: T tokens, special tokens
included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from ..files.errors import SettingError, abbreviated
from ..files.loading import longest_sequence
from .pictures import BLUE, QUIET_COLOUR, VERMILION, new_figure, picture_path, write_figure, write_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

View = Literal["attention", "rollout"]

_SEGMENT_COLOURS = (BLUE, VERMILION)
_TOKEN_SIZES = 5, 9  # points: the smallest readable label of a token, and the largest
_LONGEST_TOKEN = 24  # characters of a label


@dataclass(frozen=True, eq=False)
class AttentionMap:
    """The attention weights of one text or pair, with its tokens.

    Attributes:
        tokens: The T tokens.
        segments: The segment of each token (T,): 0 for the first text, 1 for the second.
        weights: (layers, heads, T, T) in [0, 1]; row i is what token i attends to and sums to 1.
        name: Name of the model, for the heading.
    """

    tokens: Sequence[str]
    segments: Sequence[int]
    weights: np.ndarray
    name: str = ""

    @cached_property
    def rollout(self) -> np.ndarray:
        """`attention_rollout` of the weights, (layers, T, T)."""
        return attention_rollout(self.weights)

    def figure(self, layer: int | None = None, head: int | None = None, view: View = "attention") -> Figure:
        """The maps as a matplotlib figure: one map, or all maps as small multiples, with their tokens.

        Without a layer or head it shows all; a rollout has no heads. If the names of all tokens do not fit, every
        second is named, or every third and so on. The color follows the square root of the weight,
        on the same scale in every map.

        Raises:
            ValueError: If there is no such layer, head or view.
            ImportError: If matplotlib is not installed.
        """
        layers, heads = self._check(layer, head, view)
        chosen_layers = range(layers) if layer is None else [layer]
        chosen_heads = range(heads) if head is None else [head]
        if view == "rollout":
            maps = {f"layers 0-{i}" if i else "layer 0": self.rollout[i] for i in chosen_layers}
        else:
            maps = {f"layer {i}, head {j}": self.weights[i, j] for i in chosen_layers for j in chosen_heads}
        what = _heading("Attention rollout" if view == "rollout" else "Attention", self.name)
        verb = "take from" if view == "rollout" else "attend to"
        if len(maps) == 1:
            ((where, weights),) = maps.items()
            return self._one_map(weights, f"{what}, {where}", f"rows {verb} columns")
        whole_grid = view == "attention" and layer is None and head is None
        columns = heads if whole_grid else math.ceil(math.sqrt(len(maps)))
        return self._small_multiples(maps, columns, f"{what}  (rows {verb} columns)")

    def save(
        self, output_path: str | Path, layer: int | None = None, head: int | None = None, view: View = "attention"
    ) -> Path:
        """Write the picture (.png, see `figure`); return its path.

        Raises:
            ValueError: If the file does not end in `.png`, or there is no such layer, head or view.
            FileNotFoundError: If the file's folder does not exist.
            ImportError: If matplotlib is not installed.
        """
        path = picture_path(output_path)
        return write_figure(self.figure(layer, head, view), path)

    def _check(self, layer: int | None, head: int | None, view: str) -> tuple[int, int]:
        layers, heads = self.weights.shape[:2]
        if view not in ("attention", "rollout"):
            raise SettingError("view", view, "attention or rollout", known=["attention", "rollout"])
        if layer is not None and not (isinstance(layer, Integral) and 0 <= layer < layers):
            raise SettingError.worded(
                "{layer} is {}; the model's {} layers are counted from 0 to {}.", layer, layers, layers - 1
            )
        if head is not None and view == "rollout":
            raise SettingError.worded(
                "{head} is {}, but a rollout is the mean over all heads: choose a layer only.", head
            )
        if head is not None and not (isinstance(head, Integral) and 0 <= head < heads):
            raise SettingError.worded(
                "{head} is {}; the {} heads of a layer are counted from 0 to {}.", head, heads, heads - 1
            )
        return layers, heads

    def _one_map(self, weights: np.ndarray, title: str, how_to_read: str) -> Figure:
        side = min(max(0.21 * len(self.tokens), 2.6), 11)  # inches
        figure = new_figure(side + 2.2, side + 1.8)
        ax = figure.subplots()
        image = self._draw(ax, weights)
        write_heading(figure, title, 11)
        for axis in (ax.xaxis, ax.yaxis):
            self._name_tokens(axis, side)
        ax.set_xlabel(how_to_read, fontsize=9, color=QUIET_COLOUR)
        bar = figure.colorbar(image, ax=ax, shrink=min(1, 3 / side), aspect=20, pad=0.03)
        bar.set_ticks([0, 0.01, 0.05, 0.1, 0.25, 0.5, 1], labels=["0", "1 %", "5 %", "10 %", "25 %", "50 %", "100 %"])
        bar.set_label("weight (each row sums to 100 %)", fontsize=9, color=QUIET_COLOUR)
        bar.ax.tick_params(length=0, labelsize=8, labelcolor=QUIET_COLOUR)
        bar.outline.set_visible(False)
        return figure

    def _small_multiples(self, maps: Mapping[str, np.ndarray], columns: int, title: str) -> Figure:
        rows = math.ceil(len(maps) / columns)
        most = 2.4 if max(rows, columns) > 6 else 3.6
        side = min(max(0.1 * len(self.tokens), most / 2), most)  # inches of a map
        margin = 0.07 * min(max(map(len, self.tokens)), _LONGEST_TOKEN)  # of the tokens' names
        figure = new_figure(max(columns * side + margin, 4), rows * (side + 0.2) + 0.5 + margin)
        axes = figure.subplots(rows, columns, squeeze=False)
        for ax in axes.flat[len(maps) :]:
            ax.set_axis_off()
        for number, (ax, (where, weights)) in enumerate(zip(axes.flat, maps.items(), strict=False)):
            self._draw(ax, weights)
            ax.set(xticks=[], yticks=[])
            ax.set_title(where, loc="left", fontsize=7, color=QUIET_COLOUR, pad=2)
            # The maps at the left and at the bottom name the tokens of all.
            if number % columns == 0:
                self._name_tokens(ax.yaxis, side)
            if number + columns >= len(maps):
                self._name_tokens(ax.xaxis, side)
        write_heading(figure, title, 10)
        return figure

    def _name_tokens(self, axis: Axis, side: float) -> None:
        """Label an axis of some inches with its tokens, or with every second or third one and so on."""
        count, (smallest, largest) = len(self.tokens), _TOKEN_SIZES
        space = 0.8 * 72 * side / count  # points of a token
        step = math.ceil(smallest / space)
        names = [abbreviated(token, _LONGEST_TOKEN) for token in self.tokens[::step]]
        size = min(largest, space * step)
        rotation = 90 if axis is axis.axes.xaxis else 0
        axis.set_ticks(range(0, count, step), names, fontsize=size, rotation=rotation, parse_math=False)
        for label, segment in zip(axis.get_ticklabels(), self.segments[::step], strict=True):
            label.set_color(_SEGMENT_COLOURS[min(segment, 1)])

    def _draw(self, ax: Axes, weights: np.ndarray) -> Any:
        from matplotlib.colors import LinearSegmentedColormap, PowerNorm

        colors = LinearSegmentedColormap.from_list("weight", ["#ffffff", "#9cc9e6", BLUE, "#00304d"])
        image = ax.imshow(weights, cmap=colors, norm=PowerNorm(0.5, 0, 1), interpolation="nearest")
        border = sum(segment == 0 for segment in self.segments)
        if border < len(self.segments):
            for line in (ax.axhline, ax.axvline):
                line(border - 0.5, color=_SEGMENT_COLOURS[1], linewidth=0.7)
        ax.tick_params(length=0)
        for spine in ax.spines.values():
            spine.set_color("#cccccc")
            spine.set_linewidth(0.6)
        return image


def attention_map(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str, text_pair: str | None = None
) -> AttentionMap:
    """Run a text or pair through a model and record its attention weights, without padding.

    The model, of MyBERT or of transformers with BERT's inputs, may have any head. It runs without dropout and with the
    attention implementation "eager", the only one that returns weights; afterwards both are restored.

    Raises:
        ValueError: If a text is empty, there are more tokens than positions, or the model returns no attention
            weights, or such that are not finite.

    Example:
        >>> attention = attention_map(model, tokenizer, "The cat sat on the mat.", "It slept.")
        >>> attention.save("heads.png")
        >>> attention.save("head.png", layer=3, head=5)
    """
    import torch

    for name, value in (("text", text), ("text_pair", text_pair)):
        if value is not None and not value.strip():
            raise ValueError(f"{name} is empty; expected a text to look at.")
    inputs = tokenizer(text, text_pair, return_tensors="pt", verbose=False)
    count = inputs["input_ids"].shape[1]
    limit = longest_sequence(model.config) or count
    if count > limit:
        raise ValueError(f"The text has {count} tokens with the special ones; the model takes {limit} at most.")
    encoder = model.base_model
    with _eager(model), torch.no_grad():
        attentions = encoder(**inputs.to(model.device), output_attentions=True, return_dict=True).attentions
    if not attentions or attentions[0] is None:
        raise ValueError(f"{type(encoder).__name__} gives no attention weights, not even with eager attention.")
    weights = torch.cat(attentions).float().cpu()
    if not weights.isfinite().all():
        raise ValueError("The model's attention weights are not finite numbers; has its training diverged?")
    name = model.name_or_path
    segments = inputs["token_type_ids"][0].tolist() if "token_type_ids" in inputs else [0] * count
    return AttentionMap(
        tokens=tokenizer.convert_ids_to_tokens(inputs["input_ids"][0].tolist()),
        segments=segments,
        weights=weights.numpy(),
        # The folder's name, or the name on the Hub; empty for a model made in memory.
        name=Path(name).resolve().name if name and Path(name).is_dir() else name,
    )


def attention_rollout(weights: np.ndarray) -> np.ndarray:
    """Attention rollout (Abnar & Zuidema 2020, section 3): how much of each input token reaches a position.

    With A_l the mean over the heads of layer l, and the identity I for the residual connection, a position takes
    (A_l + I) / 2 from the layer below. R_l = (A_l + I) / 2 R_{l-1}, starting from R = I, follows this through all
    layers up to l.

    Args:
        weights: (layers, heads, T, T), rows sum to 1.

    Returns:
        (layers, T, T): R_l for every layer; rows sum to 1.
    """
    identity = np.eye(weights.shape[-1])
    rollout = identity
    result = []
    for layer_weights in weights:
        rollout = (layer_weights.mean(axis=0, dtype=np.float64) + identity) / 2 @ rollout
        result.append(rollout)
    return np.stack(result)


@contextmanager
def _eager(model: PreTrainedModel) -> Iterator[None]:
    implementation = model.config._attn_implementation
    training = [module for module in model.modules() if module.training]
    try:
        model.eval()
        model.set_attn_implementation("eager")
        yield
    finally:
        model.set_attn_implementation(implementation)
        for module in training:
            module.training = True


def _heading(what: str, name: str) -> str:
    return f"{what} of {name}" if name else what
