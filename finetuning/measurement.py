"""What a trained model is worth: metrics, what is fitted to the validation data, predictions and reports of a run."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..files import write_json
from ..runs import draw_curves
from .class_report_files import write_class_report
from .task import TaskData
from .task_record import task_record, write_task_record
from .task_run import TaskRun
from .task_trainer import TaskTrainer

logger = logging.getLogger(__name__)

METRICS = "metrics.json"
_UNCALIBRATED = "uncalibrated_"  # before the name of a metric: without the temperature
_CLASSES_SAID = 20  # of a report; beyond that it is in its file only


def measure_run(trainer: TaskTrainer, output_dir: Path) -> dict[str, float]:
    """Evaluate a trained model, and write metrics, curves, predictions and reports.

    What the task fits to validation data (thresholds, a temperature) is recorded in the model folder. The error of
    calibrated probabilities is measured on validation data by what the other parts of the data give.

    Args:
        trainer: It has trained.
        output_dir: The model folder.

    Returns:
        The metrics.

    Raises:
        OSError: If a file cannot be written.
    """
    run = trainer.run
    found, outputs = trainer.evaluate_all("eval", run.validation)
    metrics = {name.removeprefix("eval_"): value for name, value in found.items()}
    fitted = run
    if run.validation:
        name, data = next(iter(run.validation.items()))
        task = run.task.adapted(run.task.predict(outputs[name], data, run.labels), data.examples)
        trainer.run = fitted = replace(run, task=task)
        if trainer.args.should_save:
            write_task_record(output_dir, task_record(trainer.args.task, task))
        metrics |= _calibration(run, fitted, run.validation, outputs, fitted_to=name)
    test_metrics, test_outputs = trainer.evaluate_all("test", run.test)
    labelled = {name: data for name, data in run.test.items() if "labels" in data.inputs}
    metrics |= test_metrics | _calibration(run, fitted, labelled, test_outputs, "test_")
    if trainer.args.should_save:
        trainer.save_state()
        draw_curves(trainer.state.log_history, output_dir)
        for name, data in (run.test or run.validation).items():
            predictions = fitted.task.predict((test_outputs or outputs)[name], data, run.labels)
            fitted.task.write_predictions(predictions, data.examples, output_dir, f"_{name}" if name else "")
        _report_by_class(fitted, run.validation, outputs, output_dir)
        _report_by_class(fitted, labelled, test_outputs, output_dir, "_test")
        write_json(output_dir / METRICS, metrics)  # the last file: it says that the seed is done
    trainer.accelerator.wait_for_everyone()
    return metrics


def _calibration(
    run: TaskRun,
    fitted: TaskRun,
    split: Mapping[str, TaskData],
    outputs: Mapping[str, Any],
    prefix: str = "",
    fitted_to: str | None = None,
) -> dict[str, float]:
    """Errors of probabilities for labelled data, before and after what was fitted to one of the data sets."""
    metrics: dict[str, float] = {}
    for name, data in split.items():
        before = run.task.predict(outputs[name], data, run.labels)
        if name == fitted_to:
            found = run.task.calibration(before, data.examples, fitted_to_them=True)
        else:
            found = run.task.calibration(fitted.task.predict(outputs[name], data, run.labels), data.examples)
        start = f"{prefix}{name}_" if name else prefix
        metrics |= {f"{start}{key}": value for key, value in found.items()}
        found = run.task.calibration(before, data.examples)
        metrics |= {f"{start}{_UNCALIBRATED}{key}": value for key, value in found.items()}
    return metrics


def _report_by_class(
    run: TaskRun, split: Mapping[str, TaskData], outputs: Mapping[str, Any], output_dir: Path, suffix: str = ""
) -> None:
    """Write the reports by class of a split's labelled data, and say those of few classes."""
    for name, data in split.items():
        predictions = run.task.predict(outputs[name], data, run.labels)
        report = run.task.report_by_class(predictions, data.examples)
        if report is None:
            return
        write_class_report(report, output_dir, f"{suffix}_{name}" if name else suffix)
        if len(report.classes) <= _CLASSES_SAID:
            logger.info("\n%s", "\n".join(report.lines()))
