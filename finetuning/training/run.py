"""Fine-tuning from end to end: from task data to a model folder, metrics and predictions (`mybert finetune`)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import ArrayLike
from transformers import (
    EarlyStoppingCallback,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    TrainerCallback,
    TrainingArguments,
)

from ...cards import Comparison, Example, head_examples
from ...files.checkpoint import TASK_RECORD, Checkpoint
from ...files.output import files_written_beside, write_json
from ...files.progress import without_loading_bars
from ...files.text import file_of
from ...runs import (
    RunFolder,
    StopOnInterrupt,
    dry_run_report,
    last_complete_checkpoint,
    log_on_main_process,
    prepare_once,
    settings_by_name,
    size_of,
    state_of_run,
    suggest_bfloat16,
)
from ...tokenization import save_wordpiece_vocab
from ..feature_table import TABLE_7
from ..heads import fold_target_scale, has_new_head, learn_standardized
from ..tasks.data_report import describe_data, few_labels_line, texts_a_class
from ..tasks.feature_tagging import feature_task, tagger_examples
from ..tasks.registry import fitted_to_model, task_record
from ..tasks.task import Task
from .card import short_examples, task_examples, trainings_table, write_finetuning_card
from .contrastive import ContrastiveTrainer
from .finetune_settings import (
    CONTRASTIVE,
    FEATURE_TAGGING,
    FINETUNING,
    Approach,
    FinetuneSettings,
    TaskTrainingSettings,
)
from .measurement import FOLD_OUTPUTS, METRICS, measure_run
from .parameters import ADAPTER_FOLDER, Unfreezing, merge_adapter
from .plan import FinetunePlan, completed, plan_finetuning, training_length
from .preparation import (
    StartingModel,
    TaskRun,
    check_batches,
    check_metric,
    empty_model,
    read_run,
    starting_model,
)
from .trainer import LossBreaksTies, TaskTrainer, fit_linear_probe
from .trainings import (
    CONFIG,
    FILES_OF_A_FOLD,
    Training,
    better_approach,
    clear,
    keep_training,
    on_all_examples,
    planned_trainings,
    summarize,
    write_out_of_fold,
)

logger = logging.getLogger(__name__)


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
    run = Finetuning(plan_finetuning(settings_by_name(FinetuneSettings, arguments, settings)))
    return run.describe() if run.plan.settings.dry_run else run.run()


class Finetuning:
    """A fine-tuning run, from task data to a model folder."""

    # Hooks for subclasses that also learn from something else: `check`, `read`, `files`, `begun`, `targets`, `start`,
    # `trainer`, `comparisons`.
    command = "finetune"

    def __init__(self, plan: FinetunePlan) -> None:
        self.plan = plan  # before the data is read; then the complete one

    @property
    def said(self) -> TaskTrainingSettings:
        """What the user said."""
        return self.plan.settings

    @property
    def model_name(self) -> str:
        """The model that is trained, by its folder, Hub name or size."""
        return self.plan.settings.model

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
        return settings.approach == FINETUNING.name and not settings.from_scratch and self.plan.task.classifies_texts

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

    def targets(self, run: TaskRun) -> ArrayLike:
        """The numbers that a regression learns."""
        return run.train.inputs["labels"]

    def start(self, run: TaskRun, plan: FinetunePlan, approach: Approach, seed: int) -> StartingModel:
        """The model at the start of training."""
        return starting_model(run, plan, approach, seed)

    def trainer(self, run: TaskRun, plan: FinetunePlan, args: TrainingArguments, **settings: Any) -> TaskTrainer:
        """The trainer for a run's data; further settings are passed to `Trainer`."""
        return TaskTrainer(run, plan, args, **settings)

    def comparisons(self, metrics: Mapping[str, Any]) -> list[Comparison]:
        """Comparisons of the run's metrics for the card."""
        return []

    def describe(self) -> dict[str, Any]:
        """What `run` would do: the report of a dry run, see `dry_run_report`."""
        settings, task = self.plan.settings, self.plan.task
        self.check()
        if settings.max_length is None:
            task = fitted_to_model(task, Checkpoint(settings.model).config)
        if settings.trained.method is FEATURE_TAGGING:
            feature_task(task, settings.features, settings.model, settings.lstm_size, "cpu")  # an error if it has none
        run = self.read(task)  # without features of a frozen encoder, which need its weights
        plan = completed(self.plan, run.task, len(run.train.examples), run.validation)
        check_metric(run, plan)
        check_batches(run, plan)
        model = self.empty(run, plan)
        sets = {"train": run.train}
        for split, parts in (("validation", run.validation), ("test", run.test)):
            sets |= {f"{split} {name}".strip(): data for name, data in parts.items()}
        return dry_run_report(
            self.said,
            plan.decisions,
            state_of_run(settings.output_dir, self.result_settings(plan), settings.overwrite),
            model={"name": self.model_name, **size_of(model)},
            data={
                name: {"source": data.source.described, "examples": len(data.examples), "sequences": len(data)}
                for name, data in sets.items()
            },
            classes=list(run.labels.names) if run.labels else [],
            training=training_length(plan, len(run.train)),
        )

    def new_config(self, run: TaskRun) -> PreTrainedConfig | None:
        """The configuration of a new model; None for one that exists."""
        return None

    def empty(self, run: TaskRun, plan: FinetunePlan) -> PreTrainedModel:
        """The model at the start of training, without weights; what `start` rejects by its structure is an error."""
        method = plan.settings.trained.method
        models = [empty_model(run, plan, each, self.new_config(run)) for each in method.compared or (method,)]
        return models[0]

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
            if self.offers_linear_probe and (line := few_labels_line(run.train)):
                logger.info("%s", line)
            ids = run.train[0].get("input_ids")
            if ids is not None:
                choices = ids if isinstance(ids[0], list) else [ids]
                logger.info("As the model reads it:\n  %s", "\n  ".join(map(run.tokenizer.decode, choices)))
            if settings.trained.method is not FEATURE_TAGGING or settings.features != "all":
                return self._finetune(run, plan, Path(settings.output_dir), start)
            results: dict[str, dict[str, Any]] = {}
            for name in TABLE_7:
                logger.info("Features: %s.", name)
                row: Any = replace(run.task, features=name)  # type: ignore[call-arg]
                of_row = replace(run, task=row)
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
        if settings.trained.method is FEATURE_TAGGING:
            task = feature_task(task, settings.features, settings.model, settings.lstm_size, str(training.device))

        def complete(run: TaskRun) -> FinetunePlan:
            return completed(self.plan, run.task, len(run.train.examples), run.validation)

        def prepare() -> TaskRun:
            nonlocal start
            run = self.read(task)
            plan = complete(run)
            check_metric(run, plan)  # errors must come before a folder is created
            check_batches(run, plan)
            plan.log_pooling(settings.trained.method)
            if settings.trained.method.compared:  # of which the others begin later
                self.empty(run, plan)
            start = self.start(run, plan, settings.trained.method, settings.seed)
            files = [file for file in self.files(run) if Path(file_of(file)).is_file()]
            folder.begin(self.result_settings(plan), files, self.folders_read, decisions=plan.decisions)
            return run

        run = prepare_once(training.should_save, prepare)
        self.plan = complete(run)
        return run, start or self.start(run, self.plan, settings.trained.method, settings.seed)

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
            if training is last and settings.trained.method.compared:
                in_doubt = settings.trained.method.in_doubt(texts_a_class(run.train))
                folds, compared = better_approach(folds, plan, in_doubt)
                last.approach = folds[0].approach
                plan.log_pooling(last.approach)
                last.run = partial(on_all_examples, run, [fold.folder for fold in folds])
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
                clear(training.folder, (*FILES_OF_A_FOLD, CONFIG, FOLD_OUTPUTS))
        kept, metrics, spread = summarize([*folds, last], plan)
        spread |= {"approaches": compared} if compared else {}
        if plan.training.should_save:
            if settings.folds:
                write_out_of_fold(run, plan, [fold.folder for fold in folds], output_dir)
            if len(trainings) > 1:
                keep_training(kept, trainings, output_dir)
                write_json(output_dir / METRICS, metrics | spread)
            if trained or not (output_dir / "README.md").is_file():  # otherwise the user may have edited it
                measured = {training.name: training.metrics for training in [*folds, last]}
                tables = [*trainings_table(measured, spread, settings.folds), *self.comparisons(metrics)]
                if compared:
                    tables.insert(0, Comparison("The approaches, in the same folds.", compared, "Approach"))
                shown_on_card = _examples(run, settings, kept, output_dir), tables, self.summary, self.further
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
        is_fitted = training.approach.fits_head
        interrupt = StopOnInterrupt(settings.overwrite)
        callbacks: list[TrainerCallback] = [interrupt, LossBreaksTies()]
        if (settings.train_head_first or settings.gradual_unfreezing) and not is_fitted:
            callbacks.append(Unfreezing(model, settings.train_head_first, settings.gradual_unfreezing))
        network: Any = model.get_base_model() if settings.has_adapter else model
        standardized = None
        if run.task.loss.is_regression and not is_fitted:
            standardized = learn_standardized(network, self.targets(run), has_new_head(network, new))
        checkpoint = None
        if output_dir.is_dir() and not arguments.save_only_model:  # without the optimizer a run cannot resume
            checkpoint = last_complete_checkpoint(output_dir)
        if settings.early_stopping_patience:
            callbacks.append(EarlyStoppingCallback(settings.early_stopping_patience))
        make = ContrastiveTrainer if training.approach is CONTRASTIVE else self.trainer
        trainer = make(run, plan, arguments, model=model, callbacks=callbacks)
        trained_for = None
        if training.approach.takes_steps:
            trained_for = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
        if interrupt.stopped:
            return False
        if is_fitted:
            fit_linear_probe(model, run, settings)
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


def _examples(run: TaskRun, settings: FinetuneSettings, kept: Training, output_dir: Path) -> list[Example]:
    """The examples on the card: of the data, unless the settings say that it shall show none of it."""
    loaded = {"model": kept.model, "tokenizer": run.tokenizer}
    if not settings.card_examples:
        return head_examples(output_dir, **loaded)
    show = tagger_examples if settings.trained.method is FEATURE_TAGGING else task_examples
    shown = next(iter(run.validation.values()), run.train).examples
    return show(run.task, short_examples(shown), output_dir, **loaded)


def _save(
    model: PreTrainedModel,
    weights: dict[str, torch.Tensor] | None,  # those of all processes, if the model's are shards
    tokenizer: PreTrainedTokenizerBase,
    output_dir: Path,
) -> None:
    """Write model and tokenizer, with `vocab.txt`."""
    with files_written_beside(output_dir) as folder:
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        save_wordpiece_vocab(tokenizer, folder)
