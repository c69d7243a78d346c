"""Measuring a trained model: metrics, predictions, reports, and what a constant answer would reach."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from transformers import TrainingArguments

from ...files.output import write_json, written_beside
from ...runs import draw_curves, log_or_print
from ..data import LABEL_ARGUMENTS, TaskData
from ..prediction.predictor import write_reports
from ..tasks.calibration import calibrated, calibrator_of
from ..tasks.registry import task_record, write_task_record
from ..tasks.steps import write_predictions
from ..tasks.task import Task
from .card import CROSS_FITTED, UNCALIBRATED
from .trainer import TaskTrainer

logger = logging.getLogger(__name__)

METRICS = "metrics.json"  # the last file of a training, which marks it as finished
FOLD_OUTPUTS = "fold_outputs.safetensors"  # of the network for a fold's validation data, until the run is over
_CLASSES_SAID = 20  # maximum number of classes of a logged report; larger ones are only in the file


def measure_run(trainer: TaskTrainer, output_dir: Path) -> dict[str, float]:
    """Evaluate a trained model, write metrics, curves, predictions and reports, and return the metrics."""
    run, saves = trainer.run, trainer.args.should_save
    metrics: dict[str, float] = {}
    predictions: dict[str, Sequence[Any]] = {}  # of the test data or else the validation data
    for split, parts in (("eval", run.validation), ("test", run.test)):
        found, outputs = trainer.evaluate_all(split, parts)
        metrics |= {name.removeprefix("eval_"): value for name, value in found.items()}
        labeled = {name: data for name, data in parts.items() if not data.inputs.keys().isdisjoint(LABEL_ARGUMENTS)}
        raw = {name: run.task.predict(outputs[name], data, run.labels) for name, data in labeled.items()}
        if split == "eval" and parts:
            _warn_if_always_0(trainer)
            name, data = next(iter(parts.items()))
            # What the task fits to validation data (thresholds, temperature) is recorded in the model folder.
            trainer.run = replace(run, task=calibrated(run.task, raw[name], data.examples))
            if saves:
                write_task_record(output_dir, task_record(trainer.plan.settings.task, trainer.run.task))
                if trainer.plan.settings.folds:
                    _write_outputs(outputs[name], output_dir / FOLD_OUTPUTS)
        task = trainer.run.task
        predictions = {
            name: raw[name] if name in raw and task == run.task else task.predict(outputs[name], data, run.labels)
            for name, data in parts.items()
        } or predictions
        for number, (name, data) in enumerate(labeled.items()):
            which = "_".join(part for part in ("test" if split == "test" else "", name) if part)
            is_fitted_to = split == "eval" and number == 0 and task != run.task
            metrics |= _baselines(task, data, raw[name], predictions[name], which, is_fitted_to)
            if saves:
                log_and_write_reports(
                    trainer.args, task, predictions[name], data, output_dir, f"_{which}" if which else ""
                )
    if saves:
        trainer.save_state()
        if trainer.state.global_step:  # a linear probe has no steps
            draw_curves(trainer.state.log_history, output_dir)
        for name, data in (run.test or run.validation).items():
            write_predictions(task, predictions[name], data.examples, output_dir, f"_{name}" if name else "")
        write_json(output_dir / METRICS, metrics)  # the last file, which marks the training as finished
    trainer.accelerator.wait_for_everyone()
    return metrics


def _warn_if_always_0(trainer: TaskTrainer) -> None:
    """Warn of a model whose main metric is 0 in every evaluation."""
    key = f"eval_{trainer.plan.metric}"
    values = [entry[key] for entry in trainer.state.log_history if key in entry]
    if values and not any(values) and trainer.args.greater_is_better:
        logger.warning(
            "%s is 0 in every evaluation: the model has not learned the task; train longer, or with a higher "
            "--learning_rate.",
            trainer.plan.metric,
        )


def _write_outputs(outputs: Any, file: Path) -> None:
    """Write a model's outputs for a fold, from which predictions are made once all folds are known."""
    arrays = outputs if isinstance(outputs, tuple) else (outputs,)
    with written_beside(file) as path:
        save_file({str(place): np.ascontiguousarray(array) for place, array in enumerate(arrays)}, path)


def log_and_write_reports(
    arguments: TrainingArguments, task: Task, predictions: Sequence[Any], data: TaskData, folder: Path, suffix: str
) -> None:
    """Write reports on predictions, and show the one by class if it is not long."""
    report = write_reports(task, predictions, data, folder, suffix)
    if report is not None and len(report.classes) <= _CLASSES_SAID:
        log_or_print("\n".join(["", *report.lines()]), arguments)


def _baselines(
    task: Task, data: TaskData, raw: Sequence[Any], fitted: Sequence[Any], name: str, is_fitted_to: bool = False
) -> dict[str, float]:
    """Scores of a constant answer, and calibration errors with and without (raw) fitted settings."""
    start = f"{name}_" if name else ""
    calibrator = calibrator_of(task)
    found = {"": calibrator.measure(fitted, data.examples)}
    # The error on data that the settings were fitted to is also measured by cross-fitting.
    if is_fitted_to:
        found[CROSS_FITTED] = calibrator.measure(raw, data.examples, held_out=True)
    if is_fitted_to or fitted is not raw:
        found[UNCALIBRATED] = calibrator.measure(raw, data.examples)
    found[""] = found[""] | task.measures(fitted, data.examples).baseline()
    return {f"{start}{how}{key}": value for how, metrics in found.items() for key, value in metrics.items()}
