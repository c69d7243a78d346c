"""The settings of `mybert features`."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ...files.checkpoint import Checkpoint
from ...files.documents import SourceSettings
from ...files.errors import SettingError
from ...files.options import Group, option
from ...files.settings import Parts, by_keywords
from ...files.text import PAIR_SEPARATOR
from ..feature_table import FEATURES
from .parts import LENGTH, Device, EngineInference, check_model


@dataclass(frozen=True, kw_only=True)
class FeaturesSettings(Parts):
    """Settings of `extract_features`.

    Raises:
        ValueError: If a setting is out of range.
        OSError: If the model folder does not exist.
    """

    group = Group.INPUT
    source: SourceSettings = field(default_factory=SourceSettings)
    device: Device = field(default_factory=Device)
    inference: EngineInference = field(default_factory=EngineInference)
    model: str = option("", "Model folder or Hub name.", required=True, reads="model")
    text: list[str] = option(
        [],
        f"Text files with one text per line, or tables with one per row; the sentences of a pair are "
        f"separated by{PAIR_SEPARATOR.rstrip()}.",
        required=True,
        positional=1,
        reads="text file",
    )
    output: str = option("", "File to write: .jsonl or .safetensors.", required=True, comes_last=True, writes=True)
    features: str | None = option(
        None, f"Which features: {', '.join(FEATURES)} (default: concat_last_four; pooled: last).", group=Group.FEATURES
    )
    weights: list[float] | None = option(
        None, "Weights of a weighted sum, the lowest layer first (default: all equal).", group=Group.FEATURES
    )
    max_length: int | None = option(
        None,
        "Longest sequence in tokens; longer texts are truncated (default: 128; pooled: the model's limit).",
        LENGTH,
        group=Group.SEQUENCES,
    )
    overwrite: bool = option(False, "Replace a file written by an earlier call.", comes_last=True)
    pooling: Literal["mean", "cls", "max", "own"] | None = option(
        None,
        "One vector per text: mean or max over its tokens, the first token (cls), or as the model's own "
        "sentence-transformers files say (default: one vector per token).",
        group=Group.SEQUENCES,
    )
    layer: int | None = option(
        None,
        "Hidden states of one layer: 0 is the embeddings, 1 the lowest layer; -1 the last layer, -2 the one below.",
        group=Group.FEATURES,
        excludes="features weights",
    )

    @property
    def features_name(self) -> str:
        """The name of the features, which depends on the pooling if none is given; not of a single layer."""
        return self.features or ("last" if self.pooling else "concat_last_four")

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at files."""
        super().check()
        check_model(Checkpoint(self.model), self.engine, self.dtype)
        if self.features_name not in FEATURES:
            raise SettingError("features", self.features, known=FEATURES)
        if Path(self.output).suffix.lower() not in (".jsonl", ".safetensors"):
            raise SettingError("output", self.output, "a name that ends in .jsonl or .safetensors")
        if self.weights and FEATURES[self.features_name].combination != "weighted":
            raise SettingError.worded("{weights} are given, but {} is not a weighted sum.", self.features_name)


FeaturesArguments = by_keywords(FeaturesSettings)
