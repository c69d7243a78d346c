"""The input representation as a picture: tokens, segments, positions and mask (Devlin et al. 2019, figure 2)."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .pictures import QUIET_COLOUR, TEXT_COLOUR, fill_page, new_figure, picture_path, write_figure, write_page

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from transformers import PreTrainedTokenizerBase

_COLUMNS = 14  # tokens per line of the PNG
_ROWS = ("Token", "Token id", "Segment", "Position", "Mask")
_SEGMENT_NAMES = "AB"
# Fill colours on a light background; the HTML page has its own for light and dark.
_FILLS = {"token": "#fbeaa4", "segments": ("#cfe6f5", "#fbd7bd"), "position": "#d3ecd0", "mask": "#e4e4e4"}


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

    def to_html(self) -> str:
        """The page as HTML: one file without scripts or external resources, with a light and a dark theme."""
        columns = []
        for token, token_id, segment, position, mask in zip(
            self.tokens, self.token_ids, self.segments, self.positions, self.mask, strict=True
        ):
            letter = _SEGMENT_NAMES[min(segment, 1)]
            columns.append(
                f'<li class="{"token" if mask else "padding"} {letter.lower()}"><b>{html.escape(token)}</b>'
                f'<small>{token_id}</small><i class="segment">E<sub>{letter}</sub></i>'
                f'<i class="position">E<sub>{position}</sub></i><i class="mask">{mask}</i></li>'
            )
        return fill_page("input_page.html", title="Input representation", body="\n".join(columns))

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
        """Write the page (.html) or the picture (.png).

        Args:
            output_path: File to write; its folder must exist.

        Returns:
            `output_path`.

        Raises:
            ValueError: If the file does not end in `.html` or `.png`.
            FileNotFoundError: If the file's folder does not exist.
            ImportError: If matplotlib, which draws the PNG, is not installed.
        """
        path = picture_path(output_path)
        return write_page(self.to_html(), path) if path.suffix == ".html" else write_figure(self.figure(), path)


def input_picture(
    tokenizer: PreTrainedTokenizerBase, text: str, text_pair: str | None = None, max_length: int | None = None
) -> InputPicture:
    """Show the model input of a text or pair.

    Args:
        tokenizer: The tokenizer.
        text: The text.
        text_pair: The second text of a pair.
        max_length: Length in tokens to pad or truncate to; None to do neither.

    Returns:
        The picture; `save` writes it.

    Raises:
        ValueError: If `max_length` leaves no room for a token.

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
