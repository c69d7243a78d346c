"""The card of a fine-tuned model, and the examples on it."""

import re
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import EvalResult
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ...cards import (
    CardContent,
    Comparison,
    Example,
    TrainingDescription,
    plain_text,
    run_pipelines,
    taken_from_hub,
    write_card,
)
from ...files.checkpoint import read_json_object
from ...files.machine import describe_environment
from ...files.options import Group, options_on_card
from ...files.source import Source
from ...files.tables import USUAL, read_table
from ...metrics import metric_of
from ...metrics.reports import shortened
from ..tasks.steps import PLACE_COLUMNS
from ..tasks.task import Task
from .finetune_settings import CONTRASTIVE, Approach
from .plan import FinetunePlan, pair_training
from .preparation import TaskRun

EXAMPLES, _MAX_CHARACTERS = 3, 2000  # on the card, and characters of the texts of one example
_CLASSES = 30  # listed on the card, those with the most examples
# Prefixes of metric names: without the temperature; with temperatures fitted by cross-fitting.
UNCALIBRATED, CROSS_FITTED = "uncalibrated_", "held_out_"
_CALIBRATION_ERROR = "expected_calibration_error"
# Options on the card, if they are not at their defaults, and those that it says in other words.
_GROUPS = {
    *(Group.EXAMPLES, Group.SEQUENCES, Group.MODEL, Group.PARTS, Group.FEATURES, Group.TRAINING, Group.FURTHER),
}
_SAID_OTHERWISE = {
    *("learning_rate", "muon_learning_rate", "embedding_learning_rate", "num_train_epochs", "max_steps", "seed"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_seeds", "folds", "lora", "peft_config"),
    *("max_length", "pooling", "approach", "greater_is_better", "save_only_model", "ignore_data_skip"),
}
_CONFUSED, _ERRORS, _LONGEST_CELL = 10, 10, 300  # pairs of classes and errors on it, and characters of a text there


def short_examples(data: Sequence[Any]) -> list[Any]:
    """A few short examples for the card."""
    order = (data[place] for place in np.random.default_rng(0).permutation(len(data)))
    short = (example for example in order if sum(map(len, example.texts)) <= _MAX_CHARACTERS)
    return list(islice(short, EXAMPLES))


def task_examples(
    task: Task,
    examples: Sequence[Any],
    model_dir: Path,
    model: PreTrainedModel | None,
    tokenizer: PreTrainedTokenizerBase,
) -> list[Example]:
    """Run the task's pipeline on examples for the card, with the model in a folder, given if it is already loaded."""
    return run_pipelines(list(map(task.pipeline_call, examples)), model_dir, model, tokenizer)


def write_finetuning_card(
    output_dir: Path,
    plan: FinetunePlan,
    approach: Approach,
    run: TaskRun,
    seconds: float | None,
    metrics: Mapping[str, float],
    examples: Sequence[Example],
    comparisons: Sequence[Comparison],
    summary: str,
    further: Mapping[str, Any],
) -> None:
    """Write the model's card.

    `seconds` is its training time, `examples` are the result of `task_examples`, `further` are further settings.
    """
    settings = plan.settings
    content = CardContent(
        name=output_dir.resolve().name,
        summary=summary,
        training=TrainingDescription(
            corpus="; ".join(
                f"{plain_text(part.source.described)}, {len(part.examples):,} examples" for part in run.parts
            ),
            hyperparameters=_hyperparameters(plan, approach, run.task, further, len(run.train)),
            seeds=[settings.seed + number for number in range(settings.num_seeds)],
            wall_time=seconds,
            **describe_environment(plan.training.device.type == "cuda"),
        ),
        examples=examples,
        results=_results(plan, run, metrics),
        **taken_from_hub(settings.model, (part.source for part in run.parts)),
        comparisons=[
            *comparisons,
            *_calibration_table(metrics, run),
            *(table for path in sorted(output_dir.glob("class_report*.json")) for table in _class_tables(path)),
            *(_errors_table(output_dir) if settings.card_examples else ()),
        ],
        pictures={
            f"Confusion matrix{_data_of(path)}": path.name for path in sorted(output_dir.glob("confusion_matrix*.png"))
        },
    )
    write_card(output_dir, content)


def trainings_table(
    rows: Mapping[str, Mapping[str, float]], spread: Mapping[str, Any], folds: int
) -> list[Comparison]:
    """The card's table of several trainings, from their metrics by name; `spread` is the result of `summarize`."""
    if len(rows) == 1:
        return []
    title = f"The {len(rows)} seeds of the run; the best one is this model."
    if folds:
        title = (
            f"Cross-validation in {folds} folds: each is measured by a model trained on the others. The results are "
            "their mean; this model was trained on all examples."
        )
    measured = {name: metrics for name, metrics in rows.items() if metrics}
    measured |= {name: spread[name] for name in ("mean", "deviation") if folds}
    shown = {
        name: {metric: value for metric, value in metrics.items() if not metric.endswith(_CALIBRATION_ERROR)}
        for name, metrics in measured.items()
    }
    return [Comparison(title, shown, "Training")]


def _calibration_table(metrics: Mapping[str, float], run: TaskRun) -> list[Comparison]:
    """The card's table of calibration errors, by data set."""
    columns = {"": "this model", CROSS_FITTED: "cross-fitted", UNCALIBRATED: "without temperature"}
    rows: dict[str, dict[str, float]] = {}
    # By the names of the data, since a file may have that of a column: held_out.tsv. Folds have no other data.
    for data in [*(run.validation or [""]), *("_".join(filter(None, ("test", name))) for name in run.test)]:
        for how, column in columns.items():
            if (name := metric_of(data, f"{how}{_CALIBRATION_ERROR}")) in metrics:
                rows.setdefault(data or "validation", {})[column] = metrics[name]
    if not rows:
        return []
    title = "Expected calibration error: the mean difference between the probability of an answer and its accuracy."
    if any(columns[CROSS_FITTED] in row for row in rows.values()):
        title += " Cross-fitted: each fifth of the data has the temperature of the other four."
    return [Comparison(title, rows, "Data")]


def _class_tables(path: Path) -> list[Comparison]:
    """The card's tables from a report by class: each class, and the most confused pairs."""
    report = read_json_object(path)
    rows = report["classes"]
    title = f"Each class{_data_of(path)}, counted in {report['counted']}"
    if len(rows) > _CLASSES:
        title += f"; the {_CLASSES} most frequent of {len(rows)}, all are in `{path.name}`"
        rows = dict(sorted(rows.items(), key=lambda row: -row[1]["support"])[:_CLASSES])
    tables = [Comparison(f"{title}.", rows, "Class")]
    confused = {
        f"{true}, taken for {predicted}": count
        for true, counts in report.get("confusion_matrix", {}).items()
        for predicted, count in counts.items()
        if predicted != true
    }
    if confused:
        most = sorted(confused.items(), key=lambda pair: -pair[1])[:_CONFUSED]
        pairs = {names: {report["confusion_matrix_of"]: count} for names, count in most}
        tables.append(Comparison(f"The most confused classes{_data_of(path)}.", pairs, "Class"))
    return tables


def _errors_table(output_dir: Path) -> list[Comparison]:
    """The card's table of the surest errors, with their texts but not with their place in the data."""
    for path in sorted(output_dir.glob("errors*.tsv"))[:1]:
        rows = islice(read_table(str(path), USUAL), _ERRORS)
        shown = [{name: row[name] for name in row if name not in PLACE_COLUMNS} for row in rows]
        table = {
            str(number): {name: shortened(text, _LONGEST_CELL) for name, text in row.items()}
            for number, row in enumerate(shown, start=1)
        }
        return [Comparison(f"The surest errors{_data_of(path)}.", table, "Error")] if table else []
    return []


def _data_of(path: Path) -> str:
    """The data set of a report or its picture, from the file name."""
    name = re.sub("^(class_report|confusion_matrix|errors)_?", "", path.stem)
    return f" ({name})" if name else ""


def _hyperparameters(
    plan: FinetunePlan, approach: Approach, task: Task, further: Mapping[str, Any], texts: int
) -> dict[str, Any]:
    """The training settings on the card, without those at their defaults."""
    settings, pooling = plan.settings, plan.pooling(approach).value
    others = options_on_card(settings, _GROUPS, _SAID_OTHERWISE)
    if not approach.takes_steps:
        estimator = "ridge" if task.loss.is_regression else "logistic"
        return {
            "approach": f"linear probe: {estimator} regression on frozen vectors, its C chosen by cross-validation",
            "longest sequence": task.max_length,
            "pooling": pooling or "the model's own",
        } | others
    duration = {"steps": settings.max_steps} if settings.max_steps > 0 else {"epochs": plan.value("num_train_epochs")}
    batch = plan.training.train_batch_size
    rate, why = plan.value("learning_rate"), plan.reason("learning_rate")
    if approach is CONTRASTIVE:
        steps, (batch, _), (rate, why) = pair_training(settings, plan.training, texts)
        duration = {
            "approach": "contrastive: pairs of texts, then a linear head on their vectors",
            "steps": steps.value,
        }
    factor = plan.value("embedding_learning_rate")
    transfer = {
        "adapter": ("LoRA, rank 8 on query and value" if settings.lora else None)
        or (settings.peft_config and Path(settings.peft_config).name),
        "pooling": pooling,
        "learning rate of Muon": settings.muon_learning_rate if settings.optim == "muon" else None,
        "learning rate of word embeddings": f"x {factor:g}" if factor != 1 else None,
    }
    arguments = plan.training
    return {
        "learning rate": f"{rate:g} ({why})" if why else rate,
        "batch size": batch * arguments.gradient_accumulation_steps * arguments.world_size,
        **duration,
        "longest sequence": task.max_length,
        **further,
        **{name: value for name, value in transfer.items() if value is not None},
        **others,
    }


def _results(plan: FinetunePlan, run: TaskRun, metrics: Mapping[str, float]) -> list[EvalResult]:
    files = {False: plan.files.validation_file or [], True: plan.files.test_file or []}
    data = {
        is_test: plan.files.dataset
        or ", ".join(Source.of(name).described for name in names)
        or run.train.source.described
        for is_test, names in files.items()
    }
    of_test = {name: bool(run.test) and name.startswith("test_") for name in metrics}
    return [
        EvalResult(
            task_type=run.task.pipeline,
            dataset_type=plan.settings.task,
            dataset_name=data[of_test[name]],
            # otherwise it would get the name of the other split
            dataset_split="test" if of_test[name] else None,
            metric_type=name,
            metric_value=value,
        )
        for name, value in metrics.items()
        if not name.endswith(("loss", _CALIBRATION_ERROR)) and np.isfinite(value)
    ]
