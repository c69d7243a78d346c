"""The contribution of each part of pretraining: the rows of Table 5 (paper, section 5.1), or a user's own rows."""

import logging
from dataclasses import fields
from pathlib import Path
from typing import Any

from accelerate import PartialState

from ..files.checkpoint import Checkpoint
from ..files.errors import SettingError
from ..files.output import files_written_beside, output_to
from ..files.settings import build
from ..finetuning import FinetunePlan
from ..pretraining import PretrainPlan, PretrainSettings, plan_pretraining
from ..pretraining.run import prepare_run, run_pretraining
from ..pretraining.settings import CorpusSettings
from ..runs import RunFolder, prepare_once
from ..tokenization.settings import VocabularyBasics
from .settings import MEASURED, AblationSettings
from .suite import (
    MAJORITY,
    Score,
    cell_of,
    finetune_all,
    main_score,
    majority_score,
    markdown_table,
    merged,
    plan_of,
    prefix_errors,
    write_report,
)

logger = logging.getLogger(__name__)


# Models that read the same text by the same rules, with a vocabulary of the same kind, share vocabulary and tokens.
_OF_THE_TOKENS = [option.name for kind in (VocabularyBasics, CorpusSettings) for option in fields(kind)]


def AblationArguments(**given: Any) -> AblationSettings:  # noqa: N802  # a class in earlier versions
    """The settings of `run_ablation` from its options as keywords, checked as by the command."""
    settings = build(AblationSettings, given)
    _check_pretraining(settings)
    return settings


def _check_pretraining(settings: AblationSettings) -> None:
    """Reject settings of pretraining that do not go together."""
    for row in dict.fromkeys(settings.models().values()):
        pretraining_plan(settings, row, None)


def needs_weights(arguments: AblationSettings, row: str) -> bool:
    """Whether a row's pretrained model is more than the sizes and vocabulary of fine-tunings from scratch."""
    place = Path(arguments.output_dir) / "pretrained" / row
    if any(Path(arguments.all_rows[name].model or "").resolve() == place.resolve() for name in arguments.row_names):
        return True
    users = [name for name, model in arguments.models().items() if model == row]
    return not all(
        finetuning_plan(arguments, name, task).settings.from_scratch
        for name in users
        for task in arguments.map_of("tasks")
    )


def pretraining_plan(arguments: AblationSettings, row: str, shared: Path | None) -> PretrainPlan:
    """Return the plan of a row's pretraining; with `shared`, vocabulary and tokens are those of that run."""
    own = arguments.all_rows[row].pretraining
    if doubled := [
        name
        for name in arguments.map_of("pretraining")
        if all(name in arguments.all_rows[other].pretraining for other in arguments.models())
    ]:
        raise SettingError.worded("{pretraining} sets {}, which the rows decide.", ", ".join(doubled))
    data: dict[str, Any] = {"text": arguments.text} if arguments.text else {}
    if shared is not None:
        data = {"token_store": str(shared / "tokens.safetensors"), "tokenizer": str(shared)}
    maps = {"pretraining": arguments.map_of("pretraining"), f"{row}, pretraining": own}
    place = {
        "output_dir": str(Path(arguments.output_dir) / "pretrained" / row),
        "disable_tqdm": arguments.disable_tqdm,
    }
    values = merged(PretrainSettings, "the ablation", maps | {"text": data}, **place)
    with prefix_errors(maps):
        return plan_pretraining(build(PretrainSettings, values))


def finetuning_plan(arguments: AblationSettings, row: str, task: str) -> FinetunePlan:
    output_dir = Path(arguments.output_dir)
    model = arguments.all_rows[row].model or str(output_dir / "pretrained" / arguments.models()[row])
    return plan_of(
        task,
        "the ablation",
        {
            "finetuning": arguments.map_of("finetuning"),
            "tasks": {"task": task} | arguments.map_of("tasks")[task],
            f"{row}, finetuning": arguments.all_rows[row].finetuning,
        },
        model=model,
        output_dir=str(output_dir / "finetuned" / row / task),
        disable_tqdm=arguments.disable_tqdm,
    )


def run_ablation(arguments: AblationSettings) -> dict[str, Any]:
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
    _check_pretraining(arguments)
    output_dir = Path(arguments.output_dir)
    titles = {row: arguments.all_rows[row].title for row in arguments.row_names}
    for row in arguments.row_names:
        model = arguments.all_rows[row].model
        if model and not Path(model).resolve().is_relative_to(output_dir.resolve()):  # another row may create it there
            Checkpoint(model).check()
    cells = {  # their settings are checked before hours of pretraining
        (row, task): (f"Fine-tuning on {task}: {titles[row]}", finetuning_plan(arguments, row, task))
        for row in arguments.row_names
        for task in arguments.map_of("tasks")
    }
    pretrained = _pretrain_all(arguments)
    tuned = None if pretrained is None else finetune_all(cells)
    if pretrained is None or tuned is None:
        return {"interrupted": True}
    scores: dict[str, dict[str, Score]] = {}
    shown: dict[str, dict[str, str]] = {}
    majority: dict[str, str] = {}
    details: dict[str, Any] = {}
    for row in arguments.row_names:
        is_shown = not arguments.all_rows[row].finetuning.get("from_scratch")
        measured = pretrained.get(arguments.models().get(row, ""), {}) if is_shown else {}
        scores[row] = {title: (measured[name], None) for title, name in MEASURED.items() if name in measured}
        shown[row] = {title: cell_of(title, *score) for title, score in scores[row].items()}
        details[row] = {"pretraining": measured}
        if "eval_nsp_majority" in measured:
            majority["NSP accuracy"] = cell_of("NSP accuracy", measured["eval_nsp_majority"])
        for task in arguments.map_of("tasks"):
            finetuning, metrics = tuned[row, task]
            scores[row][task], details[row][task] = main_score(metrics, finetuning), metrics
            shown[row][task] = cell_of(finetuning.metric, *scores[row][task])
            if (value := majority_score(metrics, finetuning.metric)) is not None:
                majority[task] = cell_of(finetuning.metric, value)
    table = {row: {name: value for name, (value, _) in found.items()} for row, found in scores.items()}
    deviations = {
        row: {name: deviation for name, (_, deviation) in found.items() if deviation is not None}
        for row, found in scores.items()
    }
    columns = list(dict.fromkeys(name for found in shown.values() for name in found))
    rows = [[titles[row], *(found.get(name, "") for name in columns)] for row, found in shown.items()]
    if majority:
        rows.append([MAJORITY, *(majority.get(name, "") for name in columns)])
    report = {"table": table, "deviations": deviations, "details": details}
    if PartialState().is_main_process:
        with output_to(output_dir, files=(), overwrite=True) as folder:
            write_report(folder, "ablation", report, markdown_table([["", *columns], *rows]))
    return table


def _pretrain_all(arguments: AblationSettings) -> dict[str, dict[str, Any]] | None:
    """Pretrain each model; return its metrics, or None if Ctrl-C ended it early."""
    pretrained: dict[str, dict[str, Any]] = {}
    tokens: dict[str, Path] = {}  # by the settings that determine them
    for row in dict.fromkeys(arguments.models().values()):
        trains = needs_weights(arguments, row)
        logger.info("\n== %s: %s ==", "Pretraining" if trains else "Vocabulary", arguments.all_rows[row].title)
        plan = pretraining_plan(arguments, row, None)
        settings = plan.settings
        if settings.text and not (settings.tokenizer or settings.model):
            kind = repr([getattr(settings, name) for name in _OF_THE_TOKENS])
            if kind in tokens:
                plan = pretraining_plan(arguments, row, tokens[kind])
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
