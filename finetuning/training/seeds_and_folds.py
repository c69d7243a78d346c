"""Several trainings in one run: seeds, of which the best is kept, or folds, which estimate the result on all data."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, TrainerState
from transformers.trainer import TRAINER_STATE_NAME

from ...files.checkpoint import TASK_RECORD, read_json_object
from ..prediction.predictor import PREDICTION_FILES, REPORT_FILES
from ..tasks.registry import read_task_record
from ..tasks.task import Task
from .finetuning_arguments import FinetuningArguments
from .parameters import ADAPTER_FOLDER
from .preparation import TaskRun
from .samples import fold_numbers
from .trainer import loss_in

logger = logging.getLogger(__name__)

METRICS = "metrics.json"  # the last file of a training, which marks it as finished
_CONFIG = "config.json"
_OF_A_FOLD = (METRICS, *REPORT_FILES, *PREDICTION_FILES)  # files of a fold to keep


@dataclass
class Training:
    """One of a run's trainings, and its result."""

    name: str  # such as "seed 42" or "fold 1"
    folder: Path  # of its files until the run is over
    seed: int
    run: Callable[[], TaskRun]  # returns task and data when it begins
    is_fold: bool = False  # whether it only measures; its model is then not kept
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None  # training time, if known
    model: PreTrainedModel | None = None  # the saved one, if it is in memory
    interrupted: bool = False  # whether there was a Ctrl-C, in or after the last step

    def read_result(self, output_dir: Path) -> None:
        """Read the result of a finished training; of several seeds only the best one's log is kept, in the folder."""
        self.metrics = json.loads((self.folder / METRICS).read_text(encoding="utf-8"))
        logs = [path for path in (self.folder / TRAINER_STATE_NAME, output_dir / TRAINER_STATE_NAME) if path.is_file()]
        history = TrainerState.load_from_json(str(logs[0])).log_history if logs else []
        self.seconds = next((entry["train_runtime"] for entry in history if "train_runtime" in entry), None)


def planned_trainings(run: TaskRun, arguments: FinetuningArguments, output_dir: Path) -> list[Training]:
    """The trainings of a run, in their order: one, one for each seed, or one for each fold and one on all examples."""
    if arguments.folds:
        folds = [
            Training(
                name=f"fold {number + 1}",
                folder=output_dir / f"fold_{number + 1}",
                seed=arguments.seed,
                run=partial(_fold, run, arguments, number),
                is_fold=True,
            )
            for number in range(arguments.folds)
        ]
        whole = partial(_on_all_examples, run, [fold.folder for fold in folds])
        return [*folds, Training("all examples", output_dir / "all_examples", arguments.seed, whole)]
    if arguments.seeds == 1:
        return [Training("", output_dir, arguments.seed, lambda: run)]
    seeds = [arguments.seed + number for number in range(arguments.seeds)]
    return [Training(f"seed {seed}", output_dir / f"seed_{seed}", seed, lambda: run) for seed in seeds]


def _fold(run: TaskRun, arguments: FinetuningArguments, number: int) -> TaskRun:
    """The run with one fold of its examples as validation data, and the others as training data."""
    examples, source = run.train.examples, run.train.source
    folds = fold_numbers(run.task, examples, arguments.folds, arguments.sampling_seed)
    parts = [
        [example for example, fold in zip(examples, folds, strict=True) if (fold == number) == held_out]
        for held_out in (False, True)
    ]
    train, validation = (run.task.encode(part, run.labels, run.tokenizer, source) for part in parts)
    return replace(run, train=train, validation={"": validation}, test={})


def _on_all_examples(run: TaskRun, folders: Sequence[Path]) -> TaskRun:
    """The run with the mean of the settings fitted in each fold (thresholds, temperature)."""
    records = [read_json_object(folder / _CONFIG).get(TASK_RECORD) for folder in folders]
    tasks: list[Task] = [
        read_task_record(str(folder), record)[1] for folder, record in zip(folders, records, strict=True)
    ]
    means: dict[str, Any] = {}
    for name in run.task.fitted_fields:
        values = [getattr(task, name) for task in tasks]
        if all(isinstance(value, Mapping) for value in values):
            keys = dict.fromkeys(key for value in values for key in value)
            means[name] = {key: float(np.mean([value[key] for value in values if key in value])) for key in keys}
        elif None not in values:
            means[name] = float(np.mean(values))
    return replace(run, task=replace(run.task, **means))


def summarize(
    trainings: Sequence[Training], arguments: FinetuningArguments
) -> tuple[Training, dict[str, float], dict[str, Any]]:
    """Combine the metrics of a run's trainings, and log those that select the best model.

    Returns the training whose model is kept; the metrics, those of the best seed or the mean of the folds; and, of
    several trainings, `mean` and `deviation` of every metric, `best_seed`, and `seeds` or `folds`, metrics by number.
    """
    last = trainings[-1]
    if len(trainings) == 1:
        return last, last.metrics, {}
    several = [training for training in trainings if training.is_fold] or trainings
    names = [name for name in several[0].metrics if all(name in training.metrics for training in several)]
    values = {name: np.array([training.metrics[name] for training in several]) for name in names}
    mean = {name: float(value.mean()) for name, value in values.items()}
    deviation = {name: float(value.std(ddof=1)) for name, value in values.items()}
    metric = str(arguments.metric_for_best_model).removeprefix("eval_")
    # The metric of an entity type missing in the data exists only if the model has predicted the type.
    if metric not in mean:
        raise ValueError(f"metric_for_best_model is {metric!r}; expected one of {', '.join(mean) or 'no metric'}.")
    rows = {training.name: training.metrics[metric] for training in several}
    rows |= {"mean": mean[metric], "deviation": deviation[metric]}
    width = max(map(len, rows))
    logger.info("%s:\n%s", metric, "\n".join(f"  {name:<{width}}  {value:.4g}" for name, value in rows.items()))
    spread: dict[str, Any] = {"mean": mean, "deviation": deviation}
    numbered = {training.name.rpartition(" ")[2]: training.metrics for training in several}
    if several is not trainings:
        return last, mean | last.metrics, spread | {"folds": numbered}
    sign = -1 if arguments.greater_is_better else 1
    best = min(trainings, key=lambda training: (sign * training.metrics[metric], loss_in(training.metrics)))
    return best, best.metrics, spread | {"best_seed": best.seed, "seeds": numbered}


def clear_fold(training: Training) -> None:
    """Delete the model of a fold; metrics, predictions, reports and configuration are kept."""
    _clear(training.folder, (*_OF_A_FOLD, _CONFIG))


def keep_training(kept: Training, trainings: Sequence[Training], output_dir: Path) -> None:
    """Move the kept training's files into the output folder, and delete the models of the others."""
    for file in [path for path in kept.folder.iterdir() if path.is_file() and path.name != METRICS]:
        file.replace(output_dir / file.name)
    if (kept.folder / ADAPTER_FOLDER).is_dir():
        shutil.rmtree(output_dir / ADAPTER_FOLDER, ignore_errors=True)
        (kept.folder / ADAPTER_FOLDER).replace(output_dir / ADAPTER_FOLDER)
    for training in trainings:
        _clear(training.folder, _OF_A_FOLD if training.is_fold else (METRICS,))


def _clear(folder: Path, kept: Sequence[str]) -> None:
    for path in [path for path in folder.iterdir() if not any(path.match(pattern) for pattern in kept)]:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
