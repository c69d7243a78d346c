"""The contribution of each part of pretraining: the rows of Table 5 (paper, section 5.1), or a user's own rows."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from accelerate import PartialState

from ..files.checkpoint import Checkpoint
from ..files.errors import SettingError, worded
from ..files.options import Group, option
from ..files.output import files_written_beside, output_to
from ..files.settings import build
from ..finetuning import FinetunePlan
from ..pretraining import PretrainPlan, PretrainSettings, plan_pretraining
from ..pretraining.run import prepare_run, run_pretraining
from ..pretraining.settings import CorpusSettings
from ..runs import RunFolder, prepare_once
from ..tokenization import VocabularyBasics
from .suite import (
    MAJORITY,
    Score,
    StudySettings,
    finetune_all,
    main_score,
    majority_score,
    markdown_table,
    merged,
    percent,
    plan_of,
    prefix_errors,
    write_report,
)
from .suite_file import check_folder_names

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class AblationRow:
    """A row of the table; rows with equal settings of pretraining share the pretrained model."""

    title: str
    pretraining: dict[str, Any] = field(default_factory=dict)  # settings of `mybert pretrain`
    finetuning: dict[str, Any] = field(default_factory=dict)  # settings of `mybert finetune`
    model: str | None = None  # folder or Hub name, to fine-tune instead of one pretrained here


_BERT, _LTR = {"objective": "mlm+nsp"}, {"objective": "ltr"}
ROWS = {
    "mlm+nsp": AblationRow("BERT (MLM + NSP)", _BERT),
    "no-nsp": AblationRow("No NSP", {"objective": "mlm"}),
    "ltr": AblationRow("LTR & No NSP", _LTR),
    "ltr+bilstm": AblationRow("LTR & No NSP + BiLSTM", _LTR, {"bilstm": True}),
    "untrained": AblationRow("No pretraining", _BERT, {"from_scratch": True}),
}
# Pretraining measures on held-out text, in the order of the table.
_MEASURED = {
    "perplexity": "eval_perplexity",
    "MLM accuracy": "eval_mlm_accuracy",
    "NSP accuracy": "eval_nsp_accuracy",
}
# Models that read the same text by the same rules, with a vocabulary of the same kind, share vocabulary and tokens.
_OF_THE_TOKENS = [option.name for kind in (VocabularyBasics, CorpusSettings) for option in fields(kind)]


@dataclass
class AblationArguments(StudySettings):
    """Settings of `run_ablation`."""

    group = Group.TABLE
    text: list[str] = option(
        [], "Text to pretrain on, as in `mybert pretrain`.", group=Group.INPUT, positional=1, reads="text"
    )
    output_dir: str = option(
        "", "Folder for all models and the table.", group=Group.INPUT, comes_last=True, required=True
    )
    rows: list[str] = option(
        [], f"Rows of the table: those of --variants, or of the paper's, {', '.join(ROWS)} (default: all)."
    )
    variants: str = option(
        "{}",
        "Rows of your own instead of the paper's: for each name a `title`, settings of `pretraining` and of "
        "`finetuning` that go before those of all rows, or a finished `model`, as a map in the YAML file or as "
        'JSON, e.g. {"wide": {"pretraining": {"hidden_size": 512}}}.',
    )
    tasks: str = option(
        "{}",
        "Tasks to fine-tune on: name and settings of `mybert finetune` for each, as a map in the YAML file or as "
        'JSON, e.g. {"sst2": {"data_dir": "glue/SST-2"}}.',
        group=Group.INPUT,
        required=True,
    )
    pretraining: str = option(
        "{}", "Settings of `mybert pretrain` for every row, as a map in the YAML file or as JSON."
    )

    def __post_init__(self) -> None:
        """Check what can be checked before hours of training."""
        super().__post_init__()
        self.all_rows = self._own_rows() or ROWS
        self.rows = self.rows or list(self.all_rows)
        check_folder_names(self.map_of("tasks"), "tasks has")
        for name, settings in self.map_of("tasks").items():
            if name in _MEASURED:
                raise SettingError.worded("{tasks} has {!r}, a column of the table; expected another name.", name)
            if not isinstance(settings, dict):
                raise ValueError(f"The task {name} is {settings!r}; expected a map of settings.")
        if unknown := [name for name in self.rows if name not in self.all_rows]:
            template, known = "There is no row {!r}; expected some of {}.", [*self.all_rows]
            raise ValueError(worded(template, unknown[0], ", ".join(known), known=known, unknown=unknown[:1]))
        for name, model in self.models().items():
            if name == model:
                self.pretraining_of(name, None)

    def _own_rows(self) -> dict[str, AblationRow]:
        rows = {}
        check_folder_names(self.map_of("variants"), "variants has a row")
        for name, row in self.map_of("variants").items():
            if not isinstance(row, dict):
                raise SettingError.worded("{variants} has {!r} as {}; expected a map.", row, name)
            known = [option.name for option in fields(AblationRow)]
            if unknown := sorted(set(row) - set(known)):
                raise ValueError(f"The row {name} has {', '.join(unknown)}; expected some of {', '.join(known)}.")
            rows[name] = AblationRow(**{**row, "title": str(row.get("title", name))})  # in YAML, 128 is a number
            for part in ("pretraining", "finetuning"):
                if not isinstance(getattr(rows[name], part), dict):
                    raise ValueError(f"The row {name} has {getattr(rows[name], part)!r} as {part}; expected a map.")
            if rows[name].model and rows[name].pretraining:
                raise ValueError(
                    f"The row {name} has a model and settings of pretraining; use either model or pretraining."
                )
        return rows

    def models(self) -> dict[str, str]:
        """Return for each row, except those of finished models, the first row with the same pretraining settings."""
        chosen = [(name, self.all_rows[name]) for name in self.rows]
        return {
            name: next(other for other, first in chosen if not first.model and first.pretraining == row.pretraining)
            for name, row in chosen
            if not row.model
        }

    def needs_weights(self, row: str) -> bool:
        """Whether a row's pretrained model is more than the sizes and vocabulary of fine-tunings from scratch."""
        place = Path(self.output_dir) / "pretrained" / row
        if any(Path(self.all_rows[name].model or "").resolve() == place.resolve() for name in self.rows):
            return True
        users = [name for name, model in self.models().items() if model == row]
        return not all(
            self.finetuning_of(name, task).settings.from_scratch for name in users for task in self.map_of("tasks")
        )

    def pretraining_of(self, row: str, shared: Path | None) -> PretrainPlan:
        """Return the plan of a row's pretraining; with `shared`, vocabulary and tokens are those of that run."""
        own = self.all_rows[row].pretraining
        if doubled := [
            name
            for name in self.map_of("pretraining")
            if all(name in self.all_rows[other].pretraining for other in self.models())
        ]:
            raise SettingError.worded("{pretraining} sets {}, which the rows decide.", ", ".join(doubled))
        data: dict[str, Any] = {"text": self.text} if self.text else {}
        if shared is not None:
            data = {"token_store": str(shared / "tokens.safetensors"), "tokenizer": str(shared)}
        maps = {"pretraining": self.map_of("pretraining"), f"{row}, pretraining": own | data}
        place = {"output_dir": str(Path(self.output_dir) / "pretrained" / row), "disable_tqdm": self.disable_tqdm}
        values = merged(PretrainSettings, "the ablation", maps, **place)
        with prefix_errors(maps):
            return plan_pretraining(build(PretrainSettings, values))

    def finetuning_of(self, row: str, task: str) -> FinetunePlan:
        output_dir = Path(self.output_dir)
        model = self.all_rows[row].model or str(output_dir / "pretrained" / self.models()[row])
        return plan_of(
            task,
            "the ablation",
            {
                "finetuning": self.map_of("finetuning"),
                "tasks": {"task": task} | self.map_of("tasks")[task],
                f"{row}, finetuning": self.all_rows[row].finetuning,
            },
            model=model,
            output_dir=str(output_dir / "finetuned" / row / task),
            disable_tqdm=self.disable_tqdm,
        )


def run_ablation(arguments: AblationArguments) -> dict[str, Any]:
    """Pretrain what every row needs, fine-tune every row on every task, and print the table.

    Rows share seed and data, and also vocabulary and tokens if their settings of both are equal; they differ only in
    the settings of the row. The same call resumes an interrupted one. The output folder contains `pretrained/<row>`
    (for the first row that needs it), `finetuned/<row>/<task>`, `ablation.json` (all metrics) and `ablation.md` (the
    table, with mean and deviation if there are several seeds).

    Args:
        arguments: The settings.

    Returns:
        For each row {measure or task: value, the mean over seeds}; or only `interrupted`, if Ctrl-C ended it early.

    Raises:
        ValueError: If a setting is wrong, or training diverges.
        OSError: If a file cannot be read or written.
    """
    output_dir = Path(arguments.output_dir)
    titles = {row: arguments.all_rows[row].title for row in arguments.rows}
    for row in arguments.rows:
        model = arguments.all_rows[row].model
        if model and not Path(model).resolve().is_relative_to(output_dir.resolve()):  # another row may create it there
            Checkpoint(model).check()
    cells = {  # their settings are checked before hours of pretraining
        (row, task): (f"Fine-tuning on {task}: {titles[row]}", arguments.finetuning_of(row, task))
        for row in arguments.rows
        for task in arguments.map_of("tasks")
    }
    pretrained = _pretrain_all(arguments)
    tuned = None if pretrained is None else finetune_all(cells)
    if pretrained is None or tuned is None:
        return {"interrupted": True}
    scores: dict[str, dict[str, Score]] = {}
    majority: dict[str, Score] = {}
    details: dict[str, Any] = {}
    for row in arguments.rows:
        is_shown = not arguments.all_rows[row].finetuning.get("from_scratch")
        measured = pretrained.get(arguments.models().get(row, ""), {}) if is_shown else {}
        scores[row] = {title: (measured[name], None) for title, name in _MEASURED.items() if name in measured}
        details[row] = {"pretraining": measured}
        if "eval_nsp_majority" in measured:
            majority["NSP accuracy"] = measured["eval_nsp_majority"], None
        for task in arguments.map_of("tasks"):
            metrics, (_, finetuning) = tuned[row, task], cells[row, task]
            scores[row][task], details[row][task] = main_score(metrics, finetuning), metrics
            if (value := majority_score(metrics, finetuning.metric)) is not None:
                majority[task] = value, None
    table = {row: {name: value for name, (value, _) in found.items()} for row, found in scores.items()}
    deviations = {
        row: {name: deviation for name, (_, deviation) in found.items() if deviation is not None}
        for row, found in scores.items()
    }
    columns = list(dict.fromkeys(name for found in scores.values() for name in found))
    rows = [[titles[row], *_cells(found, columns)] for row, found in scores.items()]
    if majority:
        rows.append([MAJORITY, *_cells(majority, columns)])
    report = {"table": table, "deviations": deviations, "details": details}
    if PartialState().is_main_process:
        with output_to(output_dir, files=(), overwrite=True) as folder:
            write_report(folder, "ablation", report, markdown_table([["", *columns], *rows]))
    return table


def _cells(scores: Mapping[str, Score], columns: Sequence[str]) -> list[str]:
    # A left-to-right model predicts other words, so its perplexity is not comparable with the others'.
    shown = {name: f"{s[0]:.1f}" if name == "perplexity" else percent(*s) for name, s in scores.items()}
    return [shown.get(name, "") for name in columns]


def _pretrain_all(arguments: AblationArguments) -> dict[str, dict[str, Any]] | None:
    """Pretrain each model; return its metrics, or None if Ctrl-C ended it early."""
    pretrained: dict[str, dict[str, Any]] = {}
    tokens: dict[str, Path] = {}  # by the settings that determine them
    for row in dict.fromkeys(arguments.models().values()):
        trains = arguments.needs_weights(row)
        logger.info("\n== %s: %s ==", "Pretraining" if trains else "Vocabulary", arguments.all_rows[row].title)
        plan = arguments.pretraining_of(row, None)
        settings = plan.settings
        if settings.text and not (settings.tokenizer or settings.model):
            kind = repr([getattr(settings, name) for name in _OF_THE_TOKENS])
            if kind in tokens:
                plan = arguments.pretraining_of(row, tokens[kind])
            else:
                tokens[kind] = Path(settings.output_dir)
        if not trains:
            _write_without_weights(plan)
            pretrained[row] = {}
            continue
        metrics = run_pretraining(plan)
        if metrics["interrupted"]:
            return None
        pretrained[row] = {name: value for name, value in metrics.items() if name != "interrupted"}
    return pretrained


def _write_without_weights(plan: PretrainPlan) -> None:
    """Write the folder of a pretraining run without its model: what fine-tuning from scratch reads."""
    with RunFolder(plan.settings.output_dir, plan.settings.overwrite) as folder:
        run = prepare_once(plan.training.should_save, lambda: prepare_run(plan, folder))
        with files_written_beside(folder.path) as place:
            run.tokenizer.save_pretrained(place)
            run.config.save_pretrained(place)
