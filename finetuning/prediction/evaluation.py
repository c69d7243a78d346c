"""Evaluating a fine-tuned model on task data, without training."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

from accelerate import PartialState

from ...files import Checkpoint, output_to, write_json, write_lines
from ...metrics import ClassReport
from ...visualization import confusion_picture
from ..data.rows import DataSource
from ..tasks.data_report import long_text_lines
from ..tasks.task import Task, network_outputs
from .predictor import load_finetuned_model

logger = logging.getLogger(__name__)

REPORT_FILES = ("class_report*.json", "class_report*.txt", "confusion_matrix*.png")


def write_class_report(report: ClassReport, folder: Path, suffix: str = "") -> None:
    """Write `class_report.json`, `.txt`, and `confusion_matrix.png` if each text or word has one class."""
    write_json(folder / f"class_report{suffix}.json", report.as_json())
    write_lines(folder / f"class_report{suffix}.txt", report.lines())
    if report.confusion:
        picture = folder / f"confusion_matrix{suffix}.png"
        try:
            confusion_picture(report.confusion, report.confused_classes, picture, report.confused)
        except ImportError as error:
            logger.warning(str(error))


# The files that `Task.write_predictions` writes.
PREDICTION_FILES = ("predictions*", "nbest_predictions*.json", "null_odds*.json")


class Measured(NamedTuple):
    """The evaluation of predictions for labelled data."""

    task: Task
    metrics: dict[str, float]  # for several data sets, with their names as prefixes
    # For each data set the suffix of its file names, the predictions, and the examples.
    parts: Sequence[tuple[str, Sequence[Any], Sequence[Any]]]

    def write(
        self,
        output: str | Path | None = None,
        report_dir: str | Path | None = None,
        predictions_dir: str | Path | None = None,
    ) -> None:
        """Write all requested files, or none; a report needs a task with classes."""
        with ExitStack() as folders:
            places = {Path(name).resolve() for name in (report_dir, predictions_dir) if name}
            opened = {place: folders.enter_context(output_to(place, files=(), overwrite=True)) for place in places}
            if report_dir:
                folder = opened[Path(report_dir).resolve()]
                for suffix, predictions, examples in self.parts:
                    write_class_report(class_report_of(self.task, predictions, examples), folder, suffix)
            if predictions_dir:
                folder = opened[Path(predictions_dir).resolve()]
                for suffix, predictions, examples in self.parts:
                    self.task.write_predictions(predictions, examples, folder, suffix)
            if output:
                write_json(output, self.metrics)


def measure_model(
    task: Task,
    checkpoint: Checkpoint,
    sources: Mapping[str, DataSource],
    batch_size: int | None = None,  # sequences, see `network_outputs`
    dtype: str = "float32",  # of the weights and the computation
    use_cpu: bool = False,
    by_class: bool = False,  # whether a report by class is requested
) -> Measured:
    """Evaluate a model on labelled data by name; a single data set has the name ""."""
    state = PartialState(cpu=use_cpu)
    task, network, labels, tokenizer = load_finetuned_model(task, checkpoint, state.device, dtype)
    metrics: dict[str, float] = {}
    parts = []
    encoded = [task.encode(task.read(source), labels, tokenizer, source) for source in sources.values()]
    for data in encoded if by_class else ():  # before the model runs, to fail early
        class_report_of(task, [task.right_prediction(example) for example in data.examples], data.examples)
    for (name, source), data in zip(sources.items(), task.complete(encoded, tokenizer), strict=True):
        for line in long_text_lines(task, len(data.examples), data.cut, data.windowed):
            logger.warning("%s: %s", source, line)
        outputs = network_outputs(task, data, network, tokenizer, batch_size, shared=True, progress=True)
        predictions = task.predict(outputs, data, labels)
        parts.append((f"_{name}" if name else "", predictions, data.examples))
        prefix = f"{name}_" if name else ""
        found = task.score(predictions, data.examples) | task.calibration(predictions, data.examples)
        metrics |= {f"{prefix}{key}": value for key, value in found.items()}
    return Measured(task, metrics, parts)


def class_report_of(task: Task, predictions: Sequence[Any], examples: Sequence[Any]) -> ClassReport:
    """The report by class of predictions for labelled examples; a ValueError if the task has no classes."""
    report = task.report_by_class(predictions, examples)
    if report is None:
        raise ValueError("report_dir is set, but this task has no classes to report on.")
    return report
