"""The settings of `mybert attention` and `mybert curves`."""

from dataclasses import dataclass
from typing import Literal

from ..files.options import Group, option
from ..files.settings import Parts


@dataclass(frozen=True, kw_only=True)
class AttentionSettings(Parts):
    """What a user says to `mybert attention`."""

    group = Group.INPUT
    model: str = option(help="Model folder or Hub name, with its tokenizer.", positional=1, reads="model")
    sentences: list[str] = option(help="The text, or the two of a pair.", positional=2)
    output: str = option("attention.png", "PNG file to write.", comes_last=True, writes=True)
    view: Literal["attention", "rollout", "input"] = option(
        "attention",
        "attention: the weights of every head; rollout: attention multiplied through all layers (Abnar & Zuidema "
        "2020); input: tokens, segments, positions and mask.",
        group=Group.PICTURE,
    )
    attention_layer: int | None = option(None, "Layer, counted from 0 (default: all).", group=Group.PICTURE)
    attention_head: int | None = option(None, "Head, counted from 0 (default: all).", group=Group.PICTURE)
    overwrite: bool = option(False, "Replace the file that an earlier call wrote.", comes_last=True)


@dataclass(frozen=True, kw_only=True)
class CurvesSettings(Parts):
    """What a user says to `mybert curves`."""

    group = Group.INPUT
    run_dirs: list[str] = option(
        help="Output folder of a training run, also of one that is still running, or of several; or of suites that "
        "mybert glue measured with --train_sizes; or JSON reports of mybert score --group_columns.",
        positional=1,
        reads="file",
    )
    output: str | None = option(
        None,
        "PNG file to write (default: training_curves.png of one run, redrawn, or learning_curves.png of one suite).",
        comes_last=True,
        writes=True,
    )
    overwrite: bool = option(False, "Replace the file that --output names.", comes_last=True)
