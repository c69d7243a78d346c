"""Comparing two fine-tuned models, or files of their predictions, on the same labeled data (`mybert compare`)."""

import logging
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..files.checkpoint import ALL_WEIGHTS, Checkpoint, distinct_names
from ..files.output import outputs_together, write_json, write_lines
from ..files.processes import leave_standard_output, torch_threads
from ..files.source import Source, files_of
from ..files.tables import separated_line
from ..metrics import mcnemar, paired_bootstrap
from ..pipelines.openvino_model import OpenVinoModel
from .data import Labels, listed
from .prediction.predictor import FinetunedModel, load_finetuned_model
from .settings.evaluation import CompareArguments, CompareSettings
from .tasks.steps import long_text_lines, read_examples, read_predictions
from .tasks.task import Columns, Task

logger = logging.getLogger(__name__)

_TIMED_ROWS, _MIN_TURNS, _MIN_SECONDS = 128, 3, 2.0  # of the measurement of speed


def compare(first: str | Path, second: str | Path, data: Any, **settings: Any) -> dict[str, Any]:
    """Compare two fine-tuned models, or files of their predictions, on the same labeled data.

        >>> mybert.compare("my-sst2", "my-tiny", "dev.tsv")["metrics"]["accuracy"]["difference"]
        {"value": -0.031, "low": -0.05, "high": -0.011}

    Args:
        first, second: Models, folders or Hub names, or files of predictions that `mybert evaluate` accepts.
        data: A file; a `pandas.DataFrame`, a `datasets.Dataset`, an iterable of dictionaries or of tuples of text and
            label.
        **settings: Other options of `CompareSettings`: `task`, `num_resamples`, `output`, ...

    Returns:
        `names` of the two, called a and b; `rows`, their number, and `differing_rows`; `resamples`; `metrics`, each
        with `a`, `b` and `difference` (b minus a), which have a `value` and the `low` and `high` end of its 95 %
        interval, and the `p` of the difference, see `mybert.metrics.paired_bootstrap`; if each text has one class,
        `mcnemar`, see `mybert.metrics.mcnemar`; and `models`, with `parameters` (None in OpenVINO), `bytes` of the
        weights' files and `texts_per_second` of those of the two that are models.

    Raises:
        ValueError, OSError: As `compare_files`.
    """
    return _compared(CompareArguments(models=[first, second], data=data, **settings))


def compare_files(arguments: CompareSettings) -> dict[str, Any]:
    """Compare two models or files of predictions, print a table, and write the requested files.

    Args:
        arguments: The settings.

    Returns:
        The same as `compare`.

    Raises:
        ValueError: If the two have different tasks or classes, the data does not fit them or has no labels, a file of
            predictions does not fit the data, or a file exists that must not be overwritten.
        OSError: If a file cannot be read or written.
    """
    leave_standard_output()
    report = _compared(arguments)
    if arguments.device.state.is_main_process:
        print("\n".join(_lines(report)))
    return report


def _compared(arguments: CompareSettings) -> dict[str, Any]:
    """The comparison; also writes the requested files, all or none."""
    state, source = arguments.device.state, Source.of(arguments.data[0])
    read = [*files_of(arguments.data), *arguments.models]
    with torch_threads(arguments.threads), outputs_together() as open_output:
        table, report_file = (
            open_output(path, overwrite=arguments.overwrite, read=[*read, *filter(None, [other])])
            if path and state.is_main_process
            else None
            for path, other in permutations((arguments.output, arguments.report))
        )
        models = _load(arguments, state.device)
        tasks = _tasks(arguments.tasks, models)
        if tasks[0].loss.has_class_weights:
            import scipy.stats  # noqa: F401 - for McNemar's test: an error now, not at the end
        labeled: Sequence[Any] = read_examples(tasks[0], source, arguments.skip_empty)
        data = [model and model.encode(labeled, source) for model in models]
        encoded = [part.examples for part in data if part]
        if len({tuple(example.classes for example in each) for each in encoded}) > 1:
            raise ValueError(
                f"{source} has numbers as labels, which mean different classes for {' and '.join(arguments.models)}; "
                "expected the classes' names."
            )
        # Each model's own, of its tokens or with its names of the classes, which a file has, too.
        of_file = encoded[0] if encoded and tasks[0].names_outputs else labeled
        if not encoded and tasks[0].classes:  # the data may have their numbers
            of_file = tasks[0].with_names(labeled, Labels(tasks[0].classes), source)
        examples = [part.examples if part else of_file for part in data]
        predictions: list[Sequence[Any]] = []
        for name, task, model, part in zip(arguments.models, tasks, models, data, strict=True):
            if model is None or part is None:
                predictions.append(read_predictions(task, Path(name), of_file, source))
                continue
            for line in long_text_lines(task, len(labeled), part.cut, part.windowed):
                logger.warning("%s: %s", name, line)
            predictions.append(model.predictions(part, arguments.batch_size, shared=True, progress=True))
        names = distinct_names(arguments.models)
        report, rows = _report(names, tasks, predictions, examples, arguments.num_resamples)
        report["models"] = _costs(arguments.checkpoints, models, labeled, source, arguments.batch_size)
        if table:
            mark = "," if Path(str(arguments.output)).suffix.lower() == ".csv" else "\t"
            write_lines(table, [separated_line(row, mark) for row in rows])
        if report_file:
            write_json(report_file, report)
    return report


def _load(arguments: CompareSettings, device: torch.device) -> list[FinetunedModel | None]:
    """The models, of which tasks and classes must be the same; None for a file of predictions."""
    kinds = [f"{task.pipeline} ({task.loss.name})" for task in arguments.tasks]
    first, second = arguments.models
    if kinds[0] != kinds[1]:
        raise ValueError(
            f"{first} is for {kinds[0]} and {second} for {kinds[1]}; expected two models of the same task."
        )
    models = [
        load_finetuned_model(task, checkpoint, device, arguments.dtype, arguments.engine) if checkpoint else None
        for task, checkpoint in zip(arguments.tasks, arguments.checkpoints, strict=True)
    ]
    classes = [found.labels.names for found in models if found and found.task.names_outputs]
    if len({frozenset(names) for names in classes}) > 1:
        raise ValueError(
            f"The classes of {first} ({listed(classes[0])}) and {second} ({listed(classes[1])}) differ; expected two "
            "models with the same classes."
        )
    return models


def _tasks(usual: Sequence[Task], models: Sequence[FinetunedModel | None]) -> list[Task]:
    """The task of each: of a model its own, of a file that of the other one, without what was fitted to that."""
    tasks = []
    labels = next((found.labels for found in models if found), None)
    for default, found in zip(usual, models, strict=True):
        task = found.task if found else default.with_classes(labels)
        if labels and not found and task.has_classes and task.has_one_class:
            task = replace(task, classes=labels.names)
        tasks.append(task)
    return tasks


def _report(
    names: Sequence[str],
    tasks: Sequence[Task],
    predictions: Sequence[Sequence[Any]],
    examples: Sequence[Sequence[Any]],
    num_resamples: int,
) -> tuple[dict[str, Any], list[list[str]]]:
    """The comparison of predictions for the examples of each side, and the table of the rows in which they differ."""
    task, labeled = tasks[0], examples[0]
    sides = list(zip(tasks, predictions, examples, strict=True))
    a, b = (each.measures(found, own).resampled() for each, found, own in sides)
    columns = [list(map(each.columns_of, found, own)) for each, found, own in sides]
    true = [task.columns_of(task.gold_prediction(example), example).text for example in labeled]
    told = [[column.text for column in side] for side in columns]
    places = [place for place, (one, other) in enumerate(zip(*told, strict=True)) if one != other]
    places.sort(key=lambda place: -_difference(columns[0][place], columns[1][place]))
    report: dict[str, Any] = {
        "names": dict(zip("ab", names, strict=True)),
        "rows": len(labeled),
        "differing_rows": len(places),
        "resamples": num_resamples,
        "metrics": paired_bootstrap(a, b, len(labeled), num_resamples),
    }
    if task.has_one_class:
        report["mcnemar"] = mcnemar(*(np.array(side) == np.array(true) for side in told))
    texts = [example.texts for example in labeled]
    names_of_texts = ["text", *(f"text_{number}" for number in range(2, len(texts[0]) + 1))]
    rows = [[str(labeled[place].row), *texts[place], true[place], *(side[place] for side in told)] for place in places]
    return report, [["row", *names_of_texts, "true", *names], *rows]


def _difference(one: Columns, other: Columns) -> float:
    """The largest difference of numbers; 0 for other predictions, whose order stays."""
    return max((abs(value - other.numbers[name]) for name, value in one.numbers.items()), default=0.0)


def _costs(
    checkpoints: Sequence[Checkpoint | None],
    models: Sequence[FinetunedModel | None],
    examples: Sequence[Any],
    source: Source,
    batch_size: int | None,
) -> dict[str, dict[str, float | None]]:
    """Size and speed, tokenizing included, of each model: they take turns, and the fastest turn counts."""
    rows = examples[:: -(-len(examples) // _TIMED_ROWS)]
    loaded = {place: found for place, found in enumerate(models) if found}
    seconds: list[dict[int, float]] = []  # of each turn
    while loaded and (len(seconds) < _MIN_TURNS or sum(sum(turn.values()) for turn in seconds) < _MIN_SECONDS):
        seconds.append({})
        for place, found in loaded.items():
            start = time.perf_counter()
            found.predictions(found.encode(rows, source), batch_size)
            seconds[-1][place] = time.perf_counter() - start
    costs = {}
    for place, found in loaded.items():
        checkpoint = checkpoints[place]
        assert checkpoint is not None
        is_converted = isinstance(found.model, OpenVinoModel)
        if is_converted:
            assert checkpoint.graph_file is not None
            files = [checkpoint.graph_file.with_suffix(".bin")]
        else:
            files = Checkpoint(checkpoint.local_folder(ALL_WEIGHTS)).weight_files
        costs["ab"[place]] = {
            "parameters": None if is_converted else found.model.num_parameters(),
            "bytes": sum(file.stat().st_size for file in files),
            "texts_per_second": len(rows) / min(turn[place] for turn in seconds),
        }
    return costs


def _lines(report: dict[str, Any]) -> list[str]:
    """The comparison as a table."""
    lines = []
    for side, name in report["names"].items():
        lines.append(f"{side}: {name}")
        if cost := report["models"].get(side):
            size = "OpenVINO" if cost["parameters"] is None else f"{cost['parameters']:,} parameters"
            lines[-1] += f" ({size}, {cost['bytes'] / 1e6:,.1f} MB, {cost['texts_per_second']:,.0f} texts a second)"
    cells = [["", "a", "b", "b - a", "p"]]
    for name, found in report["metrics"].items():
        row = [name]
        for part, sign in (("a", ""), ("b", ""), ("difference", "+")):
            value, low, high = (f"{found[part][key]:{sign}#.3g}" for key in ("value", "low", "high"))
            row.append(f"{value} [{low}, {high}]")
        cells.append([*row, f"{found['p']:.2g}"])
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines += ["", *("  ".join(map(str.ljust, row, widths)).rstrip() for row in cells), ""]
    lines.append(f"{report['rows']:,} rows; the two predict {report['differing_rows']:,} differently.")
    if test := report.get("mcnemar"):
        lines.append(
            f"Only a is right in {test['only_a']:,}, only b in {test['only_b']:,}: p = {test['p']:.2g} (McNemar)."
        )
    lines.append(f"In brackets: 95 % intervals from {report['resamples']:,} bootstrap resamples of the rows.")
    return lines
