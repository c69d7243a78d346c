"""Fine-tuning from end to end: from task data to a model folder, metrics and predictions (`mybert finetune`)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from tokenizers.models import WordPiece
from transformers import (
    EarlyStoppingCallback,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME

from ...cards import Comparison, head_examples
from ...files.checkpoint import TASK_RECORD, Checkpoint, read_json_object, read_log_history
from ...files.moves import discard, temporary_path
from ...files.output import files_written_beside, write_json, written_beside
from ...files.progress import without_loading_bars
from ...files.text import file_of
from ...runs import (
    RunFolder,
    StopOnInterrupt,
    draw_curves,
    last_complete_checkpoint,
    log_decisions,
    log_on_main_process,
    log_or_print,
    prepare_once,
    settings_by_name,
    suggest_bfloat16,
)
from ...tokenization import save_vocab
from ..data import LABEL_ARGUMENTS
from ..heads import fold_target_scale, has_new_head, learn_standardized
from ..prediction.predictor import PREDICTION_FILES, REPORT_FILES, write_reports
from ..tasks.data_report import describe_data, few_labels_line
from ..tasks.feature_tagging import FeatureTask, feature_task
from ..tasks.registry import fitted_to_model, read_task_record, task_record, write_task_record
from ..tasks.task import Task, TaskData
from .card import CROSS_FITTED, UNCALIBRATED, task_examples, trainings_table, write_finetuning_card
from .finetune_settings import FinetuneSettings, classifies_texts
from .parameters import ADAPTER_FOLDER, Unfreezing, merge_adapter
from .plan import FinetunePlan, completed, plan_finetuning
from .preparation import StartingModel, TaskRun, check_batches, check_metric, fold_numbers, read_run, starting_model
from .trainer import LossBreaksTies, TaskTrainer, fit_linear_probe, loss_in

logger = logging.getLogger(__name__)

METRICS = "metrics.json"  # the last file of a training, which marks it as finished
_CONFIG = "config.json"
_OF_A_FOLD = (METRICS, *REPORT_FILES, *PREDICTION_FILES)  # files of a fold to keep
_FOLD_OUTPUTS = "fold_outputs.safetensors"  # of the network for a fold's validation data, until the run is over
_OUT_OF_FOLD = "_out_of_fold"  # ends the names of files on the predictions of all folds
# The approaches that "auto" compares, by what the names of their folds start with.
_COMPARED: dict[str, Any] = {"finetune ": "finetune", "linear probe ": "linear_probe"}
_CLASSES_SAID = 20  # maximum number of classes of a logged report; larger ones are only in the file


def finetune(arguments: FinetuneSettings | None = None, **settings: Any) -> dict[str, Any]:
    """Fine-tune a model on a task.

        >>> mybert.finetune(model="my-bert", train_file=frame, validation_split=0.1, output_dir="my-model")

    The output folder becomes a model folder, with `metrics.json`, `README.md`, `training_curves.png` and predictions
    in the benchmark's format, for the test data or else for the validation data. With several seeds it has the best
    model; metrics of the others are in `seed_*`. With folds it has a model trained on all examples, and metrics from
    models that were each trained without a part of them; results of each are in `fold_*`. For all rows of the paper's
    table 7, each row has its own folder.

    Args:
        arguments: The settings.
        **settings: Instead, the options of the command; data may also
            be a `pandas.DataFrame`, a `datasets.Dataset` or an iterable of rows or of tuples of text and label.

    Returns:
        The metrics of the validation data, and of labeled test data with the prefix `test_`; and `interrupted`,
        whether there was a Ctrl-C. If the run ended early, only `interrupted`. With several seeds or folds also
        `mean`, `deviation`, the metrics of each (`seeds` or `folds`), and `best_seed`; with folds the metrics are the
        mean. For all rows of table 7, metrics by row.

    Raises:
        ValueError: If the data lacks a column or a label, has only one class or an unknown one, the model has another
            head, or the output folder contains other files.
        OSError: If a file cannot be read or written.
    """
    return train(plan_finetuning(settings_by_name(FinetuneSettings, arguments, settings)))


def train(plan: FinetunePlan) -> dict[str, Any]:
    """Fine-tune a model as planned; see `finetune`."""
    return Finetuning(plan).run()


class Finetuning:
    """A fine-tuning run, from task data to a model folder."""

    # Hooks for subclasses that also learn from something else: `check`, `read`, `files`, `begun`, `targets`, `start`,
    # `trainer`, `comparisons`.
    command = "finetune"

    def __init__(self, plan: FinetunePlan) -> None:
        self.plan = plan  # before the data is read; then the complete one

    @property
    def summary(self) -> str:
        """The first sentence of the card (Markdown)."""
        return f"A BERT model fine-tuned for {self.plan.settings.task}."

    @property
    def further(self) -> dict[str, Any]:
        """Further training settings on the card."""
        return {}

    @property
    def folders_read(self) -> list[str]:
        """Model folders that the run reads."""
        return [self.plan.settings.model]

    @property
    def offers_linear_probe(self) -> bool:
        """Whether the command could fit a linear probe instead."""
        settings = self.plan.settings
        return settings.approach == "finetune" and not settings.from_scratch and classifies_texts(self.plan.task)

    def check(self) -> None:
        """Reject models that do not exist, before data is read."""
        settings = self.plan.settings
        checkpoint = Checkpoint(settings.model)
        checkpoint.check(needs_weights=not settings.from_scratch).refuse_quantized_weights()

    def read(self, task: Task) -> TaskRun:
        """Read and tokenize the data; called in only one process."""
        return read_run(self.plan, task)

    def files(self, run: TaskRun) -> list[str]:
        """Files whose contents determine the result; other names may be included."""
        data = [str(data.source) for data in (run.train, *run.validation.values(), *run.test.values())]
        settings = self.plan.settings
        adapter = [settings.peft_config] if settings.peft_config else []
        return [*data, *adapter, *Checkpoint(settings.model).deciding_files]

    def begun(self, run: TaskRun) -> TaskRun:
        """The run with results of long computations, once its folder exists; called in every process."""
        return run

    def targets(self, run: TaskRun) -> Sequence[float]:
        """The numbers that a regression learns."""
        return run.train.inputs["labels"]

    def start(self, run: TaskRun, plan: FinetunePlan, approach: str, seed: int) -> StartingModel:
        """The model at the start of training."""
        return starting_model(run, plan, approach, seed)

    def trainer(self, run: TaskRun, plan: FinetunePlan, args: TrainingArguments, **settings: Any) -> TaskTrainer:
        """The trainer for a run's data; further settings are passed to `Trainer`."""
        return TaskTrainer(run, plan, args, **settings)

    def comparisons(self, metrics: Mapping[str, Any]) -> list[Comparison]:
        """Comparisons of the run's metrics for the card."""
        return []

    @without_loading_bars()
    def run(self) -> dict[str, Any]:
        """Train, measure and write; see `finetune`."""
        settings = self.plan.settings
        log_on_main_process(self.plan.training)
        self.check()
        with RunFolder(settings.output_dir, settings.overwrite) as folder:
            run, model = self._prepare(folder)
            plan = self.plan
            start: StartingModel | None = model
            suggest_bfloat16(plan.training)
            run = self.begun(run)
            describe_data(run.task, run.train, dict(run.validation), run.tokenizer, settings.folds)
            if self.offers_linear_probe and (line := few_labels_line(run.task, run.train)):
                logger.info("%s", line)
            ids = run.train[0].get("input_ids")
            if ids is not None:
                choices = ids if isinstance(ids[0], list) else [ids]
                logger.info("As the model reads it:\n  %s", "\n  ".join(map(run.tokenizer.decode, choices)))
            if not isinstance(run.task, FeatureTask) or len(run.task.stored) == 1:
                return self._finetune(run, plan, Path(settings.output_dir), start)
            results: dict[str, dict[str, Any]] = {}
            for name in run.task.stored:  # the rows of table 7
                logger.info("Features: %s.", name)
                of_row = replace(run, task=replace(run.task, features=name))
                result = self._finetune(of_row, plan, Path(settings.output_dir) / name, start)
                if result["interrupted"]:
                    return {"interrupted": True}
                results[name] = result
                start = None  # the model has been trained
            if plan.training.should_save:
                write_json(Path(settings.output_dir) / METRICS, results)
            return results | {"interrupted": False}

    def _prepare(self, folder: RunFolder) -> tuple[TaskRun, StartingModel]:
        """Read the data in one process, load the model in each, and begin the run if both are valid."""
        settings, task, training = self.plan.settings, self.plan.task, self.plan.training
        start: StartingModel | None = None
        if settings.max_length is None:
            task = fitted_to_model(task, Checkpoint(settings.model).config)
        if settings.approach == "features":
            task = feature_task(task, settings.features, settings.model, settings.lstm_size, str(training.device))

        def complete(run: TaskRun) -> FinetunePlan:
            return completed(self.plan, run.task, len(run.train.examples), run.validation)

        def prepare() -> TaskRun:
            nonlocal start
            run = self.read(task)
            plan = complete(run)
            check_metric(run, plan)  # errors must come before a folder is created
            check_batches(run, plan)
            log_decisions(plan.decisions)  # now that nothing is wrong with the data
            if "pooling" in plan.decisions:
                logger.info(
                    "Plain BERTs classify the first token, so convert to-bert and to-google will reject a model that "
                    "classifies the mean; convert onnx, convert openvino and push keep it."
                )
            start = self.start(run, plan, settings.approach, settings.seed)
            files = [file for file in self.files(run) if Path(file_of(file)).is_file()]
            folder.begin(self.result_settings(plan), files, self.folders_read)
            return run

        run = prepare_once(training.should_save, prepare)
        self.plan = complete(run)
        return run, start or self.start(run, self.plan, settings.approach, settings.seed)

    def result_settings(self, plan: FinetunePlan) -> dict[str, Any]:
        """The settings that determine the run's result."""
        return plan.result_settings()

    def _finetune(
        self, run: TaskRun, plan: FinetunePlan, output_dir: Path, start: StartingModel | None
    ) -> dict[str, Any]:
        """Train with every seed or fold, keep a model, and write its card; see `finetune` for what it returns."""
        settings = plan.settings
        trainings = planned_trainings(run, settings, output_dir)
        last, trained, folds = trainings[-1], False, trainings[:-1]
        compared: dict[str, Any] = {}
        for number, training in enumerate(trainings, start=1):
            if training is last and settings.approach == "auto":
                folds, compared = better_approach(folds, plan)
                last.approach = folds[0].approach
                last.run = partial(_on_all_examples, run, [fold.folder for fold in folds])
            if (training.folder / METRICS).is_file():
                logger.info("%s is finished; it is not trained again.", training.folder)
                training.read_result(output_dir)
                continue
            if len(trainings) > 1:
                logger.info("%s, %d of %d.", training.name.capitalize(), number, len(trainings))
            first = start if number == 1 and not training.is_fold else None  # a fold has data of its own
            if not self._train(training, plan, first):
                return {"interrupted": True}
            if training.interrupted and training is not last:
                logger.warning("Stopped after %s; the same command continues from there.", training.name)
                return {"interrupted": True}
            trained = True
            if training.is_fold and plan.training.should_save:
                _clear(training.folder, (*_OF_A_FOLD, _CONFIG, _FOLD_OUTPUTS))
        kept, metrics, spread = summarize([*folds, last], plan)
        spread |= {"approaches": compared} if compared else {}
        if plan.training.should_save:
            if settings.folds:
                write_out_of_fold(run, plan, [fold.folder for fold in folds], output_dir)
            if len(trainings) > 1:
                keep_training(kept, trainings, output_dir)
                write_json(output_dir / METRICS, metrics | spread)
            if trained or not (output_dir / "README.md").is_file():  # otherwise the user may have edited it
                shown = next(iter(run.validation.values()), run.train).examples
                loaded = {"model": kept.model, "tokenizer": run.tokenizer}
                examples = (
                    task_examples(run.task, shown, output_dir, **loaded)
                    if settings.card_examples
                    else head_examples(output_dir, **loaded)
                )
                measured = {training.name: training.metrics for training in [*folds, last]}
                tables = [*trainings_table(measured, spread, settings.folds), *self.comparisons(metrics)]
                if compared:
                    tables.insert(0, Comparison("Both approaches, in the same folds.", compared, "Approach"))
                shown_on_card = examples, tables, self.summary, self.further
                write_finetuning_card(output_dir, plan, kept.approach, run, kept.seconds, metrics, *shown_on_card)
        return metrics | spread | {"interrupted": last.interrupted}

    def _train(self, training: Training, plan: FinetunePlan, start: StartingModel | None) -> bool:
        """Train, evaluate, and write model, metrics and predictions; False if Ctrl-C ended it."""
        run, output_dir, settings = training.run(), training.folder, plan.settings
        arguments = plan.arguments_of(training.seed, output_dir, evaluates=bool(run.validation))
        model, new = start or self.start(run, plan, training.approach, training.seed)
        setattr(model.config, TASK_RECORD, task_record(settings.task, run.task))
        if len(new) < len(list(model.parameters())):
            logger.info("Weights from %s; new ones: %s.", settings.model, ", ".join(new) or "none")
        interrupt = StopOnInterrupt(settings.overwrite)
        callbacks: list[TrainerCallback] = [interrupt, LossBreaksTies()]
        if settings.train_head_first or settings.gradual_unfreezing:
            callbacks.append(Unfreezing(model, settings.train_head_first, settings.gradual_unfreezing))
        network: Any = model.get_base_model() if settings.has_adapter else model
        standardized = None
        is_probe = training.approach == "linear_probe"
        if run.task.objective == "value" and not is_probe:
            standardized = learn_standardized(network, self.targets(run), has_new_head(network, new))
        checkpoint = None
        if output_dir.is_dir() and not arguments.save_only_model:  # without the optimizer a run cannot resume
            checkpoint = last_complete_checkpoint(output_dir)
        if settings.early_stopping_patience:
            callbacks.append(EarlyStoppingCallback(settings.early_stopping_patience))
        trainer = self.trainer(run, plan, arguments, model=model, callbacks=callbacks)
        trained_for = None
        if is_probe:
            fit_linear_probe(model, run, settings)
        else:
            trained_for = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
        if interrupt.stopped:
            return False
        if standardized is not None:  # before the adapter is saved, which has the head
            standardized.remove()
            fold_target_scale(network)
        if settings.has_adapter:
            model = merge_adapter(model, output_dir / ADAPTER_FOLDER if arguments.should_save else None)
            trainer.model = trainer.model_wrapped = model
        weights = trainer.gathered_weights() if trainer.is_fsdp_enabled else None
        if arguments.should_save:  # before an evaluation in half precision rounds the weights
            _save(model, weights, run.tokenizer, output_dir)
        training.metrics = measure_run(trainer, output_dir)
        is_as_saved = not (arguments.bf16_full_eval or arguments.fp16_full_eval or trainer.is_fsdp_enabled)
        if settings.num_seeds == 1 and not settings.folds and is_as_saved:
            training.model = trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        training.seconds = None if checkpoint else trained_for  # earlier calls took some of the steps
        training.interrupted = interrupt.interrupted
        return True


def _save(
    model: PreTrainedModel,
    weights: dict[str, torch.Tensor] | None,  # those of all processes, if the model's are shards
    tokenizer: PreTrainedTokenizerBase,
    output_dir: Path,
) -> None:
    """Write model and tokenizer, and `vocab.txt` for Google's tools, which transformers' tokenizers do not write."""
    with files_written_beside(output_dir) as folder:
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not isinstance(backend.model, WordPiece):
            return
        vocab = backend.get_vocab(with_added_tokens=False)
        if sorted(vocab.values()) == list(range(len(vocab))):
            save_vocab(vocab, folder / "vocab.txt")


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
            key = f"eval_{trainer.plan.metric}"
            values = [entry[key] for entry in trainer.state.log_history if key in entry]
            if values and not any(values):
                logger.warning(
                    "%s is 0 in every evaluation: the model has not learned the task; train longer, or with a higher "
                    "--learning_rate.",
                    trainer.plan.metric,
                )
            name, data = next(iter(parts.items()))
            # What the task fits to validation data (thresholds, temperature) is recorded in the model folder.
            trainer.run = replace(run, task=run.task.calibrated(raw[name], data.examples))
            if saves:
                write_task_record(output_dir, task_record(trainer.plan.settings.task, trainer.run.task))
                if trainer.plan.settings.folds:
                    arrays = outputs[name] if isinstance(outputs[name], tuple) else (outputs[name],)
                    with written_beside(output_dir / _FOLD_OUTPUTS) as path:
                        save_file(
                            {str(place): np.ascontiguousarray(array) for place, array in enumerate(arrays)}, path
                        )
        task = trainer.run.task
        predictions = {
            name: raw[name] if name in raw and task == run.task else task.predict(outputs[name], data, run.labels)
            for name, data in parts.items()
        } or predictions
        for number, (name, data) in enumerate(labeled.items()):
            which = "_".join(part for part in ("test" if split == "test" else "", name) if part)
            is_fitted_to = split == "eval" and number == 0 and task != run.task
            metrics |= _beside(task, data, raw[name], predictions[name], which, is_fitted_to)
            if saves:
                _report(trainer.args, task, predictions[name], data, output_dir, f"_{which}" if which else "")
    if saves:
        trainer.save_state()
        if trainer.state.global_step:  # a linear probe has no steps
            draw_curves(trainer.state.log_history, output_dir)
        for name, data in (run.test or run.validation).items():
            task.write_predictions(predictions[name], data.examples, output_dir, f"_{name}" if name else "")
        write_json(output_dir / METRICS, metrics)  # the last file, which marks the training as finished
    trainer.accelerator.wait_for_everyone()
    return metrics


def _report(
    arguments: TrainingArguments, task: Task, predictions: Sequence[Any], data: TaskData, folder: Path, suffix: str
) -> None:
    """Write reports on predictions, and show the one by class if it is not long."""
    report = write_reports(task, predictions, data, folder, suffix)
    if report is not None and len(report.classes) <= _CLASSES_SAID:
        log_or_print("\n".join(["", *report.lines()]), arguments)


def _beside(
    task: Task, data: TaskData, raw: Sequence[Any], calibrated: Sequence[Any], name: str, is_fitted_to: bool = False
) -> dict[str, float]:
    """Scores of a constant answer, and calibration errors with and without (raw) fitted settings."""
    start = f"{name}_" if name else ""
    found = {"": task.calibration(calibrated, data.examples)}
    # The error on data that the settings were fitted to is also measured by cross-fitting.
    if is_fitted_to:
        found[CROSS_FITTED] = task.calibration(raw, data.examples, fitted_to_them=True)
    if is_fitted_to or calibrated is not raw:
        found[UNCALIBRATED] = task.calibration(raw, data.examples)
    found[""] = found[""] | task.constant_scores(data.examples)
    return {f"{start}{how}{key}": value for how, metrics in found.items() for key, value in metrics.items()}


# Several trainings in one run: seeds, of which the best is kept, or folds, which estimate the result on all data.


@dataclass
class Training:
    """One of a run's trainings, and its result."""

    name: str  # such as "seed 42" or "fold 1"
    folder: Path  # of its files until the run is over
    seed: int
    run: Callable[[], TaskRun]  # returns task and data when it begins
    approach: Any = "finetune"  # see `FrozenFeatures`
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
    seed, approach = settings.seed, settings.approach
    if settings.folds:
        folds = [
            Training(
                name=f"{start}fold {number + 1}",
                folder=output_dir / f"{start}fold_{number + 1}".replace(" ", "_"),
                seed=seed,
                run=partial(_fold, run, settings, number),
                approach=each,
                is_fold=True,
            )
            for start, each in (_COMPARED if approach == "auto" else {"": approach}).items()
            for number in range(settings.folds)
        ]
        whole = partial(_on_all_examples, run, [fold.folder for fold in folds])
        return [*folds, Training("all examples", output_dir / "all_examples", seed, whole, approach)]
    if settings.num_seeds == 1:
        return [Training("", output_dir, seed, lambda: run, approach)]
    seeds = [seed + number for number in range(settings.num_seeds)]
    return [Training(f"seed {seed}", output_dir / f"seed_{seed}", seed, lambda: run, approach) for seed in seeds]


def better_approach(
    folds: Sequence[Training], plan: FinetunePlan
) -> tuple[list[Training], dict[str, dict[str, float]]]:
    """The folds of the approach with the better mean; mean and standard error of each approach, which are logged."""
    metric = plan.metric
    parts: dict[str, list[Training]] = {}
    for fold in folds:
        parts.setdefault(fold.approach, []).append(fold)
    scores = {name: np.array([fold.metrics[metric] for fold in part]) for name, part in parts.items()}
    table = {
        name: {metric: float(values.mean()), "standard error": float(values.std(ddof=1) / np.sqrt(len(values)))}
        for name, values in scores.items()
    }
    best = (max if plan.training.greater_is_better else min)(table, key=lambda name: table[name][metric])
    lines = [f"  {name:<12}  {row[metric]:.4g} ± {row['standard error']:.2g}" for name, row in table.items()]
    lines.append(f"  kept: {best}")
    logger.info("%s of both approaches, mean and standard error:\n%s", metric, "\n".join(lines))
    return parts[best], table


def _fold(run: TaskRun, settings: FinetuneSettings, number: int) -> TaskRun:
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
    files = [folder / _FOLD_OUTPUTS for folder in folders]
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
        for place, prediction in zip(places, run.task.cross_fitted(found, data.examples), strict=True):
            predictions[place] = prediction
    _report(plan.training, run.task, predictions, run.train, output_dir, _OUT_OF_FOLD)
    run.task.write_predictions(predictions, run.train.examples, output_dir, _OUT_OF_FOLD)


def _on_all_examples(run: TaskRun, folders: Sequence[Path]) -> TaskRun:
    """The run with the mean of the settings fitted in each fold (thresholds, temperature)."""
    records = [read_json_object(folder / _CONFIG).get(TASK_RECORD) for folder in folders]
    tasks: list[Task] = [
        read_task_record(str(folder), record)[1] for folder, record in zip(folders, records, strict=True)
    ]
    means: dict[str, Any] = {}
    for name, mean in run.task.fitted_fields.items():
        values = [getattr(task, name) for task in tasks]
        if all(isinstance(value, Mapping) for value in values):
            keys = dict.fromkeys(key for value in values for key in value)
            means[name] = {key: mean(value[key] for value in values if key in value) for key in keys}
        elif None not in values:
            means[name] = mean(values)
    return replace(run, task=replace(run.task, **means))


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
        raise ValueError(f"metric_for_best_model is {metric!r}; expected one of {', '.join(mean) or 'no metric'}.")
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
        _clear(training.folder, _OF_A_FOLD if training.is_fold else (METRICS,))


def _clear(folder: Path, kept: Sequence[str]) -> None:
    """Delete the model of a training, and all other files but some."""
    for path in [path for path in folder.iterdir() if not any(path.match(pattern) for pattern in kept)]:
        discard(path)
