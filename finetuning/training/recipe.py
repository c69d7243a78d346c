"""Fine-tuning from end to end: from task data to a model folder, metrics and predictions (`mybert finetune`)."""

import copy
import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from tokenizers.models import WordPiece
from transformers import EarlyStoppingCallback, PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import IntervalStrategy

from ...files import TASK_RECORD, Checkpoint, files_written_beside, write_json
from ...hub_card import Comparison, Example
from ...runs import (
    RunFolder,
    StopOnInterrupt,
    arguments_by_name,
    last_complete_checkpoint,
    log_on_main_process,
    prepare_once,
)
from ...tokenization import save_vocab
from ..network.heads import check_start, has_new_head
from ..network.target_scale import fold_target_scale, learn_standardized
from ..tasks import feature_tasks
from ..tasks.data_report import describe_data
from ..tasks.registry import task_record
from ..tasks.task import Task
from .adapters import ADAPTER_FOLDER, merge_adapter
from .best_checkpoint import LossBreaksTies
from .finetuning_arguments import FinetuningArguments
from .finetuning_card import task_examples, write_finetuning_card
from .freezing import Unfreezing
from .measurement import METRICS, measure_run
from .several_trainings import clear_fold, keep_training, planned_trainings, together
from .task_run import Outcome, StartingModel, TaskRun, check_batches, check_metric, read_run, starting_model
from .task_trainer import TaskTrainer

logger = logging.getLogger(__name__)


def finetune(arguments: FinetuningArguments | None = None, **settings: Any) -> dict[str, Any]:
    """Fine-tune a model on a task.

        >>> mybert.finetune(model="my-bert", train_file=frame, validation_split=0.1, output_dir="my-model")

    The output folder becomes a model folder, with `metrics.json`, `README.md`, `training_curves.png` and predictions
    in the benchmark's format, for the test data or else for the validation data. With several seeds it has the best
    model; metrics of the others are in `seed_*`. With folds it has a model trained on all examples, and metrics from
    models that were each trained without a part of them; results of each are in `fold_*`. For all rows of the paper's
    table 7, each row has its own folder.

    Args:
        arguments: The settings.
        **settings: Instead, the fields of `FinetuningArguments`, which are those of the command; data may also
            be a `pandas.DataFrame`, a `datasets.Dataset` or an iterable of rows or of tuples of text and label.

    Returns:
        The metrics of the validation data, and of labelled test data with the prefix `test_`; `examples`, those of the
        card; and `interrupted`, whether there was a Ctrl-C. If the run ended early, only `interrupted`. With several
        seeds or folds also `mean` and `deviation`, and `best_seed`; with folds the metrics are the mean. For all rows
        of table 7, metrics by row.

    Raises:
        ValueError: If the data lacks a column or a label, has only one class or an unknown one, the model has another
            head, or the output folder contains other files.
        OSError: If a file cannot be read or written.
    """
    return Finetuning(arguments_by_name(FinetuningArguments, arguments, settings)).run()


class Finetuning:
    """A fine-tuning run, from task data to a model folder."""

    # Hooks for subclasses that also learn from something else: `check`, `read`, `files`, `begun`, `start`, `trainer`,
    # `comparisons`.
    def __init__(self, arguments: FinetuningArguments) -> None:
        self.arguments = arguments

    def check(self) -> None:
        """Reject models that do not exist, before data is read."""
        check_start(self.arguments.model, self.arguments.from_scratch)

    def read(self, task: Task) -> TaskRun:
        """Read and tokenize the data; called in only one process."""
        return read_run(self.arguments, task)

    def files(self, run: TaskRun) -> list[str]:
        """Files whose contents determine the result; other names may be included."""
        data = [str(data.source) for data in (run.train, *run.validation.values(), *run.test.values())]
        adapter = [self.arguments.peft_config] if self.arguments.peft_config else []
        return [*data, *adapter, *Checkpoint(self.arguments.model).deciding_files]

    def begun(self, run: TaskRun) -> TaskRun:
        """The run with results of long computations, once its folder exists; called in every process."""
        return run

    def start(self, run: TaskRun, arguments: FinetuningArguments, seed: int) -> StartingModel:
        """The model at the start of training."""
        return starting_model(run, arguments, seed)

    def trainer(self, run: TaskRun, arguments: FinetuningArguments, **settings: Any) -> TaskTrainer:
        """The trainer for a run's data; further settings are passed to `Trainer`."""
        return TaskTrainer(run, arguments, **settings)

    def comparisons(self, metrics: Mapping[str, Any]) -> list[Comparison]:
        """Comparisons of the run's metrics for the card."""
        return []

    def run(self) -> dict[str, Any]:
        """Train, measure and write; see `finetune`."""
        log_on_main_process(self.arguments)
        self.check()
        self.arguments.choose_learning_rate()
        tasks = self._tasks()
        with RunFolder(self.arguments.output_dir, self.arguments.overwrite) as folder:
            run, start = self._prepare(next(iter(tasks.values())), folder)
            return self._finetune_all(self.begun(run), tasks, start)

    def _tasks(self) -> dict[str, Task]:
        """Tasks by name: the rows of table 7 if all are requested, otherwise a single one with the name ""."""
        arguments = self.arguments
        task = arguments.fitting_task()
        if arguments.approach == "finetune":
            return {"": task}
        return feature_tasks(task, arguments.features, arguments.model, arguments.lstm_size, str(arguments.device))

    def _prepare(self, task: Task, folder: RunFolder) -> tuple[TaskRun, StartingModel | None]:
        """Read the data in one process, load the model in each, and begin the run if both are valid."""
        arguments = self.arguments
        start: StartingModel | None = None

        def prepare() -> TaskRun:
            nonlocal start
            run = self.read(task)
            check_metric(run, arguments)  # errors must come before a folder is created
            check_batches(run, arguments)
            start = self.start(run, arguments, arguments.seed)
            files = [file for file in self.files(run) if Path(file).is_file()]
            folder.begin(arguments.decisive(), files, arguments.folders_read())
            return run

        run = prepare_once(arguments.should_save, prepare)
        return run, start or self.start(run, arguments, arguments.seed)

    def _finetune_all(self, run: TaskRun, tasks: Mapping[str, Task], start: StartingModel | None) -> dict[str, Any]:
        """Train on the data of a run: once, or with every row of table 7."""
        arguments = self.arguments
        describe_data(run.task, run.train, dict(run.validation), run.tokenizer, arguments.folds)
        _show_sequence(run)
        results: dict[str, dict[str, Any]] = {}
        for name, task in tasks.items():
            if name:
                logger.info("Features: %s.", name)
            of_row = replace(run, task=task) if name else run
            results[name] = self._finetune(of_row, Path(arguments.output_dir) / name, start)
            if name and results[name]["interrupted"]:
                return {"interrupted": True}
            start = None  # the model has been trained
        if list(results) == [""]:
            return results[""]
        if arguments.should_save:
            metrics = {
                name: {key: result[key] for key in result if key != "examples"} for name, result in results.items()
            }
            write_json(Path(arguments.output_dir) / METRICS, metrics)
        return results | {"interrupted": False}

    def _finetune(self, run: TaskRun, output_dir: Path, start: StartingModel | None) -> dict[str, Any]:
        """Train with every seed or fold, keep a model, and write its card; see `finetune` for what it returns."""
        arguments = self.arguments
        trainings = planned_trainings(run, arguments, output_dir)
        outcomes: dict[str, Outcome] = {}
        trained = False
        for training in trainings:
            if (training.folder / METRICS).is_file():
                logger.info("%s is finished; it is not trained again.", training.folder)
                outcomes[training.name] = _read_outcome(training.folder, output_dir)
                continue
            if len(trainings) > 1:
                logger.info("%s, %d of %d.", training.name.capitalize(), len(outcomes) + 1, len(trainings))
            first = start if training is trainings[0] and not training.is_fold else None  # a fold has data of its own
            outcome = self._train(training.run(), training.seed, training.folder, first)
            if outcome is None:
                return {"interrupted": True}
            if outcome.interrupted and training is not trainings[-1]:
                logger.warning("Stopped after %s; the same command continues from there.", training.name)
                return {"interrupted": True}
            outcomes[training.name] = outcome
            trained = True
            if training.is_fold and arguments.should_save:
                clear_fold(training)
        found = together(trainings, {name: outcome.metrics for name, outcome in outcomes.items()}, arguments)
        examples: list[Example] = []
        if arguments.should_save:
            if len(trainings) > 1:
                keep_training(found.kept, trainings, output_dir)
                write_json(output_dir / METRICS, found.metrics | found.summary | found.by_training)
            shown = next(iter(run.validation.values()), run.train)
            model = outcomes[found.kept.name].model
            examples = task_examples(run.task, shown.examples, output_dir, model, run.tokenizer)
            if trained or not (output_dir / "README.md").is_file():  # otherwise the user may have edited it
                beside = self.comparisons(found.metrics)
                write_finetuning_card(output_dir, arguments, run, outcomes, found, examples, beside)
        described = {"examples": [asdict(example) for example in examples]}
        last = outcomes[trainings[-1].name]
        return found.metrics | found.summary | described | {"interrupted": last.interrupted}

    def _train(self, run: TaskRun, seed: int, output_dir: Path, start: StartingModel | None) -> Outcome | None:
        """Train with one seed, evaluate, and write model, metrics and predictions; None if Ctrl-C ended it."""
        arguments = copy.copy(self.arguments)
        arguments.seed, arguments.output_dir = seed, str(output_dir)
        if not run.validation:
            arguments.eval_strategy = IntervalStrategy.NO
        model, new = start or self.start(run, arguments, seed)
        setattr(model.config, TASK_RECORD, task_record(arguments.task, run.task))
        if len(new) < len(list(model.parameters())):
            logger.info("Weights from %s; new ones: %s.", arguments.model, ", ".join(new) or "none")
        interrupt = StopOnInterrupt()
        callbacks: list[TrainerCallback] = [interrupt, LossBreaksTies()]
        if arguments.train_head_first or arguments.gradual_unfreezing:
            callbacks.append(Unfreezing(model, arguments.train_head_first, arguments.gradual_unfreezing))
        network: Any = model.get_base_model() if arguments.has_adapter else model
        standardized = None
        if run.task.objective == "value":
            standardized = learn_standardized(network, run.targets, has_new_head(network, new))
        checkpoint = None
        if output_dir.is_dir() and not arguments.save_only_model:  # without the optimizer a run cannot resume
            checkpoint = last_complete_checkpoint(output_dir)
        if arguments.early_stopping_patience:
            callbacks.append(EarlyStoppingCallback(arguments.early_stopping_patience))
        trainer = self.trainer(run, arguments, model=model, callbacks=callbacks)
        trained_for = trainer.train(resume_from_checkpoint=checkpoint).metrics["train_runtime"]
        if interrupt.stopped:
            return None
        if standardized is not None:  # before the adapter is saved, which has the head
            standardized.remove()
            fold_target_scale(network)
        if arguments.has_adapter:
            model = merge_adapter(model, output_dir / ADAPTER_FOLDER if arguments.should_save else None)
            trainer.model = trainer.model_wrapped = model
        if arguments.should_save:  # before an evaluation in half precision rounds the weights
            _save(model, run.tokenizer, output_dir)
        metrics = measure_run(trainer, output_dir)
        is_as_saved = not (arguments.bf16_full_eval or arguments.fp16_full_eval or trainer.is_fsdp_enabled)
        trained = None
        if arguments.seeds == 1 and not arguments.folds and is_as_saved:
            trained = trainer.accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        seconds = None if checkpoint else trained_for  # earlier calls took some of the steps
        return Outcome(metrics, seconds, trained, interrupt.interrupted)


def _show_sequence(run: TaskRun) -> None:
    ids = run.train[0].get("input_ids")
    if ids is not None:
        choices = ids if isinstance(ids[0], list) else [ids]
        logger.info("As the model reads it:\n  %s", "\n  ".join(map(run.tokenizer.decode, choices)))


def _save(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, output_dir: Path) -> None:
    """Write model and tokenizer, and `vocab.txt` for Google's tools, which transformers' tokenizers do not write."""
    with files_written_beside(output_dir) as folder:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is None or not isinstance(backend.model, WordPiece):
            return
        vocab = backend.get_vocab(with_added_tokens=False)
        if sorted(vocab.values()) == list(range(len(vocab))):
            save_vocab(vocab, folder / "vocab.txt")


def _read_outcome(folder: Path, output_dir: Path) -> Outcome:
    """The outcome of a finished run; with several seeds only the best one's log is kept, in the output folder."""
    metrics = json.loads((folder / METRICS).read_text(encoding="utf-8"))
    states = [path for path in (folder / TRAINER_STATE_NAME, output_dir / TRAINER_STATE_NAME) if path.is_file()]
    history = TrainerState.load_from_json(str(states[0])).log_history if states else []
    return Outcome(metrics, next((entry["train_runtime"] for entry in history if "train_runtime" in entry), None))
