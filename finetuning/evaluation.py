"""Measuring a fine-tuned model on task data, without training."""

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from accelerate import PartialState

from ..files import files_written_beside
from ..metrics import ClassReport
from .class_report_files import write_class_reports
from .data_report import long_text_lines
from .inference import network_outputs
from .prediction import load_finetuned_model
from .rows import DataSource
from .task import Task

logger = logging.getLogger(__name__)

# What `Task.write_predictions` writes.
PREDICTION_FILES = ("predictions*", "nbest_predictions*.json", "null_odds*.json")


def measure_model(
    task: Task,
    model: str,
    sources: Mapping[str, DataSource],
    batch_size: int | None = None,
    predictions_dir: str | Path | None = None,
    dtype: str = "float32",
    use_cpu: bool = False,
    report_dir: str | Path | None = None,
) -> dict[str, float]:
    """Measure a model on task data.

    Args:
        task: The task.
        model: Folder or Hub name.
        sources: Name -> data with labels; a single one has the name "".
        batch_size: Sequences at a time, see `network_outputs`.
        predictions_dir: Folder to write predictions to.
        dtype: Type of the weights, in which is computed.
        use_cpu: Whether to leave an accelerator alone.
        report_dir: Folder to write a report by class to.

    Returns:
        The task's metrics; of several data sets each with the prefix of its name.

    Raises:
        ValueError: If the model has no head for the task, or the data is not what the task expects.
        OSError: If a file cannot be read or written.
    """
    state = PartialState(cpu=use_cpu)
    task, network, labels, tokenizer = load_finetuned_model(task, model, state.device, dtype)
    metrics: dict[str, float] = {}
    predicted = {}
    encoded = [task.encode(task.read(source), labels, tokenizer, source) for source in sources.values()]
    for data in encoded if report_dir else ():  # before the network has worked for nothing
        class_report_of(task, [task.right_prediction(example) for example in data.examples], data.examples)
    for (name, source), data in zip(sources.items(), task.complete(encoded, tokenizer), strict=True):
        for line in long_text_lines(task, len(data.examples), data.cut, data.windowed):
            logger.warning("%s: %s", source, line)
        outputs = network_outputs(task, data, network, tokenizer, batch_size, shared=True, progress=True)
        predicted[name] = predictions = task.predict(outputs, data, labels)
        prefix = f"{name}_" if name else ""
        found = task.score(predictions, data.examples) | task.calibration(predictions, data.examples)
        metrics |= {f"{prefix}{key}": value for key, value in found.items()}
    written = [
        (f"_{name}" if name else "", predictions, data.examples)
        for (name, predictions), data in zip(predicted.items(), encoded, strict=True)
    ]
    if report_dir and state.is_main_process:
        write_class_reports({suffix: class_report_of(task, *known) for suffix, *known in written}, report_dir)
    if predictions_dir and state.is_main_process:
        with files_written_beside(predictions_dir) as folder:
            for suffix, predictions, examples in written:
                task.write_predictions(predictions, examples, folder, suffix)
    return metrics


def class_report_of(task: Task, predictions: Sequence[Any], examples: Sequence[Any]) -> ClassReport:
    """The report by class of predictions for labelled examples.

    Raises:
        ValueError: If the task has no classes.
    """
    report = task.report_by_class(predictions, examples)
    if report is None:
        raise ValueError("report_dir is set, but this task has no classes to report on.")
    return report
