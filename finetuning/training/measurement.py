"""Evaluation of a trained model: metrics, settings fitted to validation data, predictions and reports."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...files import write_json
from ...runs import draw_curves
from ..prediction.evaluation import write_class_report
from ..tasks.registry import task_record, write_task_record
from ..tasks.task import Task, TaskData
from .task_run import TaskRun
from .task_trainer import TaskTrainer

logger = logging.getLogger(__name__)

METRICS = "metrics.json"
MAJORITY = "majority_"  # prefix of the main metric's name: of always predicting the most frequent answer
# Prefixes of metric names: without the temperature; with one fitted by cross-fitting.
_UNCALIBRATED, _HELD_OUT = "uncalibrated_", "held_out_"
_CLASSES_SAID = 20  # maximum number of classes of a logged report; larger ones are only in the file


def measure_run(trainer: TaskTrainer, output_dir: Path) -> dict[str, float]:
    """Evaluate a trained model, write metrics, curves, predictions and reports, and return the metrics."""
    run = fitted = trainer.run
    found, outputs = trainer.evaluate_all("eval", run.validation)
    metrics = {name.removeprefix("eval_"): value for name, value in found.items()}
    _warn_of_zero(trainer)
    raw = _predictions(run, run.validation, outputs)
    if run.validation:
        name, data = next(iter(run.validation.items()))
        task = run.task.adapted(raw[name], data.examples)
        trainer.run = fitted = replace(run, task=task)
        # What the task fits to validation data (thresholds, temperature) is recorded in the model folder.
        if trainer.args.should_save:
            write_task_record(output_dir, task_record(trainer.args.task, task))
    predictions = raw if fitted.task == run.task else _predictions(fitted, run.validation, outputs)
    for number, (name, data) in enumerate(run.validation.items()):
        metrics |= _beside(fitted.task, data, raw[name], predictions[name], name, is_fitted_to=number == 0)
    found, outputs = trainer.evaluate_all("test", run.test)
    metrics |= found
    tested = _predictions(fitted, run.test, outputs)
    labelled = {name: data for name, data in run.test.items() if "labels" in data.inputs}
    raw = tested if fitted.task == run.task else _predictions(run, labelled, outputs)
    for name, data in labelled.items():
        split = f"test_{name}" if name else "test"
        metrics |= _beside(fitted.task, data, raw[name], tested[name], split)
    if trainer.args.should_save:
        trainer.save_state()
        draw_curves(trainer.state.log_history, output_dir)
        for name, data in (run.test or run.validation).items():
            written = (tested or predictions)[name]
            fitted.task.write_predictions(written, data.examples, output_dir, f"_{name}" if name else "")
        _report_by_class(fitted.task, run.validation, predictions, output_dir)
        _report_by_class(fitted.task, labelled, tested, output_dir, "_test")
        write_json(output_dir / METRICS, metrics)  # the last file, which marks the training as finished
    trainer.accelerator.wait_for_everyone()
    return metrics


def _warn_of_zero(trainer: TaskTrainer) -> None:
    """Warn if the metric that selects the best model was 0 in every evaluation."""
    name = str(trainer.args.metric_for_best_model).removeprefix("eval_")
    values = [entry[f"eval_{name}"] for entry in trainer.state.log_history if f"eval_{name}" in entry]
    if values and not any(values):
        logger.warning(
            "%s is 0 in every evaluation: the model has not learnt the task; train longer, or with a higher "
            "--learning_rate.",
            name,
        )


def _predictions(run: TaskRun, split: Mapping[str, TaskData], outputs: Mapping[str, Any]) -> dict[str, Sequence[Any]]:
    return {name: run.task.predict(outputs[name], data, run.labels) for name, data in split.items()}


def _beside(
    task: Task, data: TaskData, raw: Sequence[Any], calibrated: Sequence[Any], name: str, is_fitted_to: bool = False
) -> dict[str, float]:
    """Score of the most frequent answer, and calibration errors with and without (raw) fitted settings."""
    start = f"{name}_" if name else ""
    found = {"": task.calibration(calibrated, data.examples)}
    # The error on data that the settings were fitted to is also measured by cross-fitting.
    if is_fitted_to:
        found[_HELD_OUT] = task.calibration(raw, data.examples, fitted_to_them=True)
    if is_fitted_to or calibrated is not raw:
        found[_UNCALIBRATED] = task.calibration(raw, data.examples)
    if (majority := task.majority_scores(data.examples).get(task.main_metric)) is not None:
        found[MAJORITY] = {task.main_metric: majority}
    return {f"{start}{how}{key}": value for how, metrics in found.items() for key, value in metrics.items()}


def _report_by_class(
    task: Task, split: Mapping[str, TaskData], predictions: Mapping[str, Any], output_dir: Path, suffix: str = ""
) -> None:
    """Write the reports by class of a split's labelled data, and log those with few classes."""
    for name, data in split.items():
        report = task.report_by_class(predictions[name], data.examples)
        if report is None:
            return
        write_class_report(report, output_dir, f"{suffix}_{name}" if name else suffix)
        if len(report.classes) <= _CLASSES_SAID:
            logger.info("\n%s", "\n".join(report.lines()))
