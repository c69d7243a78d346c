"""What does each part of pretraining give? The rows of Table 5 (paper, section 5.1), at any size."""

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..files import write_json, write_text
from ..finetuning import FinetuningArguments, finetune
from ..pretraining import PretrainingArguments, pretrain

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AblationRow:
    """A row of the table.

    Attributes:
        title: What the paper calls it.
        objective: What is pretrained; rows with the same objective share the pretrained model.
        finetuning: Settings of fine-tuning that make the row.
    """

    title: str
    objective: str
    finetuning: dict[str, Any] = field(default_factory=dict)


ROWS = {
    "mlm+nsp": AblationRow("BERT (MLM + NSP)", "mlm+nsp"),
    "no-nsp": AblationRow("No NSP", "mlm"),
    "ltr": AblationRow("LTR & No NSP", "ltr"),
    "ltr+bilstm": AblationRow("LTR & No NSP + BiLSTM", "ltr", {"bilstm": True}),
    "untrained": AblationRow("No pretraining", "mlm+nsp", {"from_scratch": True}),
}
# Pretraining measures on held-out text, in the order of the table.
_MEASURED = {"perplexity": "eval_perplexity", "NSP accuracy": "eval_nsp_accuracy"}


@dataclass
class AblationArguments:
    """Settings of `run_ablation`."""

    text: list[str] = field(default_factory=list, metadata={"help": "Text to pretrain on, as in `mybert pretrain`."})
    output_dir: str = field(default="", metadata={"help": "Folder for all models and the table."})
    rows: list[str] = field(
        default_factory=lambda: list(ROWS), metadata={"help": f"Rows of the table: {', '.join(ROWS)}."}
    )
    # Maps; the parser of the command line knows them as JSON.
    tasks: str = field(
        default="{}",
        metadata={
            "help": "Tasks to fine-tune on: name and settings of `mybert finetune` for each, as a map in the YAML "
            'file or as JSON, e.g. {"sst2": {"data_dir": "glue/SST-2"}}.'
        },
    )
    pretraining: str = field(
        default="{}",
        metadata={"help": "Settings of `mybert pretrain` for every row, as a map in the YAML file or as JSON."},
    )
    finetuning: str = field(
        default="{}", metadata={"help": "Settings of `mybert finetune` for every row and task, likewise."}
    )
    disable_tqdm: bool = field(default=False, metadata={"help": "Show no progress bars."})

    def __post_init__(self) -> None:
        """Read JSON, and check what can be checked before hours of training.

        Raises:
            ValueError: If a setting is missing or unknown.
        """
        for name in ("tasks", "pretraining", "finetuning"):
            value = getattr(self, name)
            if isinstance(value, str):
                try:
                    value = json.loads(value)
                except ValueError as error:
                    raise ValueError(f"{name} is not JSON ({error}); expected a map of settings.") from error
            if not isinstance(value, dict):
                raise ValueError(f"{name} is {value!r}; expected a map of settings.")
            setattr(self, name, value)
        for name in ("text", "output_dir", "tasks", "rows"):
            if not getattr(self, name):
                raise ValueError(f"{name} is not set; an ablation needs text, output_dir, a task and a row at least.")
        for name, settings in self.map_of("tasks").items():
            if not isinstance(settings, dict):
                raise ValueError(f"The task {name} is {settings!r}; expected a map of settings.")
        if unknown := [name for name in self.rows if name not in ROWS]:
            raise ValueError(f"There is no row {unknown[0]!r}; expected some of {', '.join(ROWS)}.")
        for objective in dict.fromkeys(ROWS[name].objective for name in self.rows):
            self.pretraining_of(objective, None)

    def map_of(self, name: str) -> dict[str, Any]:
        """`tasks`, `pretraining` or `finetuning` as a map."""
        return getattr(self, name)

    def pretraining_of(self, objective: str, shared: Path | None) -> PretrainingArguments:
        """Settings of a row's pretraining; with `shared`, vocabulary and tokens are those of that run.

        Raises:
            ValueError: If a setting is unknown or out of its range.
        """
        data: dict[str, Any] = {"text": self.text}
        if shared is not None:
            data = {"data": str(shared / "tokens.safetensors"), "tokenizer": str(shared)}
        return _arguments(
            PretrainingArguments,
            "pretraining",
            self.map_of("pretraining"),
            data,
            output_dir=str(Path(self.output_dir) / "pretrained" / objective),
            objective=objective,
            disable_tqdm=self.disable_tqdm,
        )

    def finetuning_of(self, row: str, task: str) -> FinetuningArguments:
        """Settings of a row's fine-tuning on a task.

        Raises:
            ValueError: If a setting is unknown or out of its range.
        """
        output_dir = Path(self.output_dir)
        return _arguments(
            FinetuningArguments,
            "finetuning",
            self.map_of("finetuning"),
            {"task": task} | self.map_of("tasks")[task],
            ROWS[row].finetuning,
            model=str(output_dir / "pretrained" / ROWS[row].objective),
            output_dir=str(output_dir / "finetuned" / row / task),
            disable_tqdm=self.disable_tqdm,
        )


def run_ablation(arguments: AblationArguments) -> dict[str, Any]:
    """Pretrain every objective, fine-tune every row on every task, and print the table.

    All rows share vocabulary, tokens, size, steps and seed; only what the row names differs. The same call goes on
    where an interrupted one stopped. The output folder holds `pretrained/<objective>`, `finetuned/<row>/<task>`,
    `ablation.json` (all metrics) and `ablation.md` (the table).

    Args:
        arguments: The settings.

    Returns:
        Row -> {measure or task: value}; or only `interrupted`, if Ctrl-C ended it early.

    Raises:
        ValueError: If a setting is wrong, or training diverges.
        OSError: If a file cannot be read or written.
    """
    for row in arguments.rows:
        for task in arguments.map_of("tasks"):
            arguments.finetuning_of(row, task)  # a mistake in it is found before hours of pretraining
    output_dir = Path(arguments.output_dir)
    pretrained: dict[str, dict[str, Any]] = {}
    shared = None
    for objective in dict.fromkeys(ROWS[name].objective for name in arguments.rows):
        logger.info("\n== Pretraining: %s ==", objective)
        settings = arguments.pretraining_of(objective, shared)
        pretrained[objective] = pretrain(settings)
        if pretrained[objective]["interrupted"]:
            return {"interrupted": True}
        shared = shared or Path(settings.output_dir)
    table: dict[str, dict[str, float]] = {}
    details: dict[str, Any] = {}
    for row in arguments.rows:
        measured = {} if row == "untrained" else pretrained[ROWS[row].objective]
        table[row] = {title: measured[name] for title, name in _MEASURED.items() if name in measured}
        details[row] = {"pretraining": {name: value for name, value in measured.items() if name != "examples"}}
        for task in arguments.map_of("tasks"):
            logger.info("\n== Fine-tuning on %s: %s ==", task, ROWS[row].title)
            finetuning = arguments.finetuning_of(row, task)
            metrics = finetune(finetuning)
            if metrics["interrupted"]:
                return {"interrupted": True}
            table[row][task] = metrics[str(finetuning.metric_for_best_model)]
            details[row][task] = {name: value for name, value in metrics.items() if name != "examples"}
    write_json(output_dir / "ablation.json", {"table": table, "details": details})
    text = _markdown(table)
    write_text(output_dir / "ablation.md", text)
    logger.info("\n%s", text)
    return table


def _arguments(kind: Any, name: str, *settings: dict[str, Any], **own: Any) -> Any:
    merged: dict[str, Any] = {}
    for some in settings:
        merged |= some
    if unknown := sorted(set(merged) - set(kind.__dataclass_fields__)):
        raise ValueError(f"{name} has unknown settings: {', '.join(unknown)}.")
    if doubled := sorted(set(merged) & set(own)):
        raise ValueError(f"{name} sets {', '.join(doubled)}, which the ablation decides.")
    return kind(**merged | own)


def _markdown(table: dict[str, dict[str, float]]) -> str:
    """The table; a left-to-right model's perplexity is of other words, and not to be compared with the others'."""
    columns = list(dict.fromkeys(name for values in table.values() for name in values))
    lines = [["", *columns], ["---", *("---:" for _ in columns)]]
    for row, values in table.items():
        cells = ["" if name not in values else f"{values[name]:.1f}" for name in columns]
        for index, name in enumerate(columns):
            if name in values and name != "perplexity":
                cells[index] = f"{100 * values[name]:.1f}"
        lines.append([ROWS[row].title, *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
