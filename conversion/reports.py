"""The reports of conversions: printed by the commands, and saved in the new folder."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np

from ..files import write_json
from ..hub_card import CardContent, write_card

REPORT_FILE = "conversion.json"
MODEL_CARD = "README.md"


@dataclass(frozen=True)
class TensorCheck:
    parameter: str
    shape: tuple[int, ...]
    max_abs_diff: float  # 0 if the bits agree
    identical: bool  # in all bits


@dataclass(frozen=True)
class VerificationReport:
    """The result of a verification.

    Args:
        source: The source that the model was compared with.
        model_dir: The folder that was verified.
        tensors: One comparison per parameter that the source has.
        outputs: Shapes of the outputs of one forward pass.
        problems: The problems found, one sentence each; empty if there are none.
        notes: Notes that are not problems.
    """

    source: str
    model_dir: str
    tensors: tuple[TensorCheck, ...]
    outputs: dict[str, tuple[int, ...]]
    problems: tuple[str, ...]
    notes: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether no problem was found."""
        return not self.problems

    def __str__(self) -> str:
        identical = sum(check.identical for check in self.tensors)
        values = sum(int(np.prod(check.shape)) for check in self.tensors)
        worst = max((check.max_abs_diff for check in self.tensors), default=0.0)
        shapes = ", ".join(f"{name} {shape}" for name, shape in self.outputs.items())
        lines = [
            f"tensors      {len(self.tensors)} compared, {identical} identical in every bit ({values:,} values)",
            f"difference   {worst:g} at most",
            f"forward      {shapes or 'not run'}",
            *(f"note         {note}" for note in self.notes),
            f"result       {'verified' if self.ok else 'WRONG'}",
        ]
        return "\n".join([*lines, *(f"             {problem}" for problem in self.problems)])


@dataclass(frozen=True)
class ConversionReport:
    """The report of a conversion.

    Args:
        source: The source.
        output: The result's path.
        head: Kind of model, a key of `key_map.HEADS`.
        decisions: The decisions made and their reasons, one sentence each.
        parameters: Number of converted parameters.
        initialised: Parameters that the source lacks; they are newly initialised and must be trained.
        ignored: Variables of the source that were not used, by kind.
        optimizer_step: Number of updates of the optimizer state, if it was converted.
        verification: The verification, if requested.
    """

    source: str
    output: str
    head: str
    decisions: tuple[str, ...]
    parameters: int
    initialised: tuple[str, ...] = ()
    ignored: Mapping[str, Sequence[str]] = field(default_factory=dict)
    optimizer_step: int | None = None
    verification: VerificationReport | None = None

    def __str__(self) -> str:
        lines = [f"{self.source} -> {self.output}", f"head         {self.head}"]
        lines += [f"decided      {decision}" for decision in self.decisions]
        lines.append(f"taken over   {self.parameters} parameters")
        if self.initialised:
            lines.append(f"initialised  {', '.join(self.initialised)} (not in the source; train them before use)")
        lines += [f"ignored      {len(names)} of kind {kind!r}" for kind, names in self.ignored.items()]
        if self.optimizer_step is not None:
            lines.append(f"optimizer    state after {self.optimizer_step} updates")
        return "\n".join(lines + ([str(self.verification)] if self.verification else []))


@dataclass(frozen=True)
class OnnxReport:
    """An export, and its comparison with the PyTorch model.

    Args:
        source: The model folder.
        output: The output folder.
        head: Kind of model, a key of `key_map.HEADS`.
        opset: Version of ONNX's operators in the graph.
        shapes: Shapes of the batches that were compared; with rows of different lengths, padded.
        differences: For each file and output the largest absolute difference from the PyTorch model over these
            batches, ignoring padding.
    """

    source: str
    output: str
    head: str
    opset: int
    shapes: tuple[tuple[int, ...], ...]
    differences: dict[str, dict[str, float]]

    @property
    def largest_difference(self) -> float:
        return max(value for outputs in self.differences.values() for value in outputs.values())

    def __str__(self) -> str:
        shapes = ", ".join("x".join(map(str, shape)) for shape in self.shapes)
        lines = [
            f"{self.source} -> {self.output}",
            f"head         {self.head}, opset {self.opset}",
            f"compared     with PyTorch on batches of {shapes} tokens",
        ]
        for file, differences in self.differences.items():
            found = ", ".join(f"{name} {difference:.1e}" for name, difference in differences.items())
            lines.append(f"{file:<16} differs by at most: {found}")
        return "\n".join(lines)


def write_conversion_report(folder: Path, report: ConversionReport) -> None:
    """Write `conversion.json`, and a model card unless the source has its own."""
    write_json(folder / REPORT_FILE, asdict(report), sort_keys=True)
    if (folder / MODEL_CARD).exists():
        return
    untrained = ", ".join(f"`{name}`" for name in report.initialised)
    write_card(
        folder,
        CardContent(
            name=Path(report.output).resolve().name,
            summary=f"A BERT model converted from `{Path(report.source).resolve().name}`.",
            limits=[f"Newly initialised, to be trained before use: {untrained}."] if untrained else [],
        ),
    )
