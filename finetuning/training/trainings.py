"""The trainings of one run: one, seeds of which the best is kept, or folds, which estimate the result on all data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file
from transformers import PreTrainedModel
from transformers.trainer import TRAINER_STATE_NAME

from ...files.checkpoint import TASK_RECORD, read_json_object, read_log_history
from ...files.errors import SettingError
from ...files.moves import discard, temporary_path
from ..data import TaskData
from ..prediction.predictor import PREDICTION_FILES, REPORT_FILES
from ..tasks.calibration import calibrator_of, with_mean_fit
from ..tasks.registry import read_task_record
from ..tasks.steps import write_predictions
from .finetune_settings import FINETUNING, Approach, FinetuneSettings
from .measurement import FOLD_OUTPUTS, METRICS, log_and_write_reports
from .parameters import ADAPTER_FOLDER
from .plan import FinetunePlan
from .preparation import TaskRun, fold_numbers
from .trainer import loss_in

logger = logging.getLogger(__name__)

CONFIG = "config.json"
FILES_OF_A_FOLD = (METRICS, *REPORT_FILES, *PREDICTION_FILES)  # that are kept
_OUT_OF_FOLD = "_out_of_fold"  # ends the names of files on the predictions of all folds


@dataclass
class Training:
    """One of a run's trainings, and its result."""

    name: str  # such as "seed 42" or "fold 1"
    folder: Path  # of its files until the run is over
    seed: int
    run: Callable[[], TaskRun]  # returns task and data when it begins
    approach: Approach = FINETUNING
    is_fold: bool = False  # whether it only measures; its model is then not kept
    metrics: dict[str, float] = field(default_factory=dict)
    seconds: float | None = None  # training time, if known
    model: PreTrainedModel | None = None  # the saved one, if it is in memory
    interrupted: bool = False  # whether there was a Ctrl-C, in or after the last step

    def read_result(self, output_dir: Path) -> None:
        """Read the result of a finished training; of several seeds only the best one's log is kept, in the folder."""
        self.metrics = read_json_object(file := self.folder / METRICS)
        if not all(isinstance(value, int | float) for value in self.metrics.values()):
            raise ValueError(f"{file} does not hold the metrics of a training; delete it, to train again.")
        logs = [path for path in (self.folder / TRAINER_STATE_NAME, output_dir / TRAINER_STATE_NAME) if path.is_file()]
        history = read_log_history(logs[0]) if logs else []
        self.seconds = next((entry["train_runtime"] for entry in history if "train_runtime" in entry), None)


def planned_trainings(run: TaskRun, settings: FinetuneSettings, output_dir: Path) -> list[Training]:
    """The trainings of a run, in their order: one, one for each seed, or one for each fold and one on all examples."""
    seed, approach = settings.seed, settings.trained.method
    if settings.folds:
        compared = {f"{each.name.replace('_', ' ')} ": each for each in approach.compared}
        folds = [
            Training(
                name=f"{start}fold {number + 1}",
                folder=output_dir / f"{start}fold_{number + 1}".replace(" ", "_"),
                seed=seed,
                run=partial(fold_of, run, settings, number),
                approach=each,
                is_fold=True,
            )
            for start, each in (compared or {"": approach}).items()
            for number in range(settings.folds)
        ]
        whole = partial(on_all_examples, run, [fold.folder for fold in folds])
        return [*folds, Training("all examples", output_dir / "all_examples", seed, whole, approach)]
    if settings.num_seeds == 1:
        return [Training("", output_dir, seed, lambda: run, approach)]
    seeds = [seed + number for number in range(settings.num_seeds)]
    return [Training(f"seed {seed}", output_dir / f"seed_{seed}", seed, lambda: run, approach) for seed in seeds]


def better_approach(
    folds: Sequence[Training], plan: FinetunePlan, in_doubt: Approach
) -> tuple[list[Training], dict[str, dict[str, float]]]:
    """The folds of the approach that is kept; mean and standard error of each approach, which are logged.

    `in_doubt` is kept, unless others are better by two standard errors: the scores of few texts are mostly chance.
    """
    metric = plan.metric
    parts: dict[Approach, list[Training]] = {}
    for fold in folds:
        parts.setdefault(fold.approach, []).append(fold)
    scores = {each: np.array([fold.metrics[metric] for fold in part]) for each, part in parts.items()}
    means = {each.name: _mean_and_error(values) for each, values in scores.items()}
    sign = 1 if plan.training.greater_is_better else -1
    gains = {each: _mean_and_error(sign * (scores[each] - scores[in_doubt])) for each in scores}  # in equal folds
    kept = max(
        (each for each, (gain, error) in gains.items() if gain > 2 * error), key=gains.__getitem__, default=in_doubt
    )
    lines = [f"  {name:<12}  {mean:.4g} ± {error:.2g}" for name, (mean, error) in means.items()]
    why = "others are not better by two standard errors" if kept is in_doubt else "better by two standard errors"
    logger.info(
        "%s by approach, mean and standard error:\n%s\n  kept: %s, %s", metric, "\n".join(lines), kept.name, why
    )
    return parts[kept], {name: {metric: mean, "standard error": error} for name, (mean, error) in means.items()}


def _mean_and_error(values: np.ndarray) -> tuple[float, float]:
    """The mean, and its standard error."""
    return float(values.mean()), float(values.std(ddof=1) / np.sqrt(len(values)))


def fold_of(run: TaskRun, settings: FinetuneSettings, number: int) -> TaskRun:
    """The run with one fold of its examples as validation data, and the others as training data."""
    folds = np.array(fold_numbers(run.task, run.train.examples, settings.folds, settings.sampling_seed))
    train, validation = (_encoded(run, np.flatnonzero(part)) for part in (folds != number, folds == number))
    return replace(run, train=train, validation={"": validation}, test={})


def _encoded(run: TaskRun, places: np.ndarray) -> TaskData:
    """Some of the training examples, by index, as data of their own."""
    examples = [run.train.examples[place] for place in places]
    return run.task.encode(examples, run.labels, run.tokenizer, run.train.source)


def write_out_of_fold(run: TaskRun, plan: FinetunePlan, folders: Sequence[Path], output_dir: Path) -> None:
    """Write the predictions of all training examples, each by the fold's model that has not seen it, and reports."""
    files = [folder / FOLD_OUTPUTS for folder in folders]
    if not all(file.is_file() for file in files):
        return  # an earlier call has written them
    folds = np.array(fold_numbers(run.task, run.train.examples, plan.settings.folds, plan.settings.sampling_seed))
    predictions: list[Any] = [None] * len(folds)
    for number, file in enumerate(files):
        places = np.flatnonzero(folds == number)
        data, arrays = _encoded(run, places), load_file(file)
        outputs = tuple(arrays[str(place)] for place in range(len(arrays)))
        found = run.task.predict(outputs if len(outputs) > 1 else outputs[0], data, run.labels)
        # Thresholds are not fitted to the fold that they decide on, as for the metrics.
        for place, prediction in zip(places, calibrator_of(run.task).apply(found, data.examples), strict=True):
            predictions[place] = prediction
    log_and_write_reports(plan.training, run.task, predictions, run.train, output_dir, _OUT_OF_FOLD)
    write_predictions(run.task, predictions, run.train.examples, output_dir, _OUT_OF_FOLD)


def on_all_examples(run: TaskRun, folders: Sequence[Path]) -> TaskRun:
    """The run with the mean of the settings fitted in each fold (thresholds, temperature)."""
    records = [read_json_object(folder / CONFIG).get(TASK_RECORD) for folder in folders]
    fits = [read_task_record(str(folder), record)[1] for folder, record in zip(folders, records, strict=True)]
    return replace(run, task=with_mean_fit(run.task, fits))


def summarize(trainings: Sequence[Training], plan: FinetunePlan) -> tuple[Training, dict[str, float], dict[str, Any]]:
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
    metric = plan.metric
    # The metric of an entity type missing in the data exists only if the model has predicted the type.
    if metric not in mean:
        raise SettingError("metric_for_best_model", metric, "" if mean else "no metric", known=mean)
    rows = {training.name: training.metrics[metric] for training in several}
    rows |= {"mean": mean[metric], "deviation": deviation[metric]}
    width = max(map(len, rows))
    logger.info("%s:\n%s", metric, "\n".join(f"  {name:<{width}}  {value:.4g}" for name, value in rows.items()))
    spread: dict[str, Any] = {"mean": mean, "deviation": deviation}
    numbered = {training.name.rpartition(" ")[2]: training.metrics for training in several}
    if several is not trainings:
        return last, mean | last.metrics, spread | {"folds": numbered}
    sign = -1 if plan.training.greater_is_better else 1
    best = min(trainings, key=lambda training: (sign * training.metrics[metric], loss_in(training.metrics)))
    return best, best.metrics, spread | {"best_seed": best.seed, "seeds": numbered}


def keep_training(kept: Training, trainings: Sequence[Training], output_dir: Path) -> None:
    """Move the kept training's files into the output folder, and delete the models of the others."""
    for file in [path for path in kept.folder.iterdir() if path.is_file() and path.name != METRICS]:
        file.replace(output_dir / file.name)
    if (kept.folder / ADAPTER_FOLDER).is_dir():
        adapter = output_dir / ADAPTER_FOLDER
        discard(adapter, temporary_path(adapter, "old"))
        (kept.folder / ADAPTER_FOLDER).replace(adapter)
    for training in trainings:
        clear(training.folder, FILES_OF_A_FOLD if training.is_fold else (METRICS,))


def clear(folder: Path, kept: Sequence[str]) -> None:
    """Delete the model of a training, and all other files but some."""
    for path in [path for path in folder.iterdir() if not any(path.match(pattern) for pattern in kept)]:
        discard(path)
