"""The report of a conversion: printed by the command, and saved in the new folder with a model card."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..files import write_json
from ..hub_card import CardContent, write_card
from .verification import VerificationReport

REPORT_FILE = "conversion.json"
MODEL_CARD = "README.md"


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
