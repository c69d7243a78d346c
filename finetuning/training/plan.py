"""The plan of a fine-tuning: what the settings leave open is decided here, once, with the reason for each choice."""

import copy
import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, NamedTuple

from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ...files.errors import SettingError, refuse_address, worded
from ...files.options import deciding, settings_of
from ...files.settings import Decision, build
from ...files.source import HubSplit, InMemoryData, Source, sources_of
from ...metrics import lower_is_better
from ...runs import (
    SCHEDULED_BY_EVALUATIONS,
    EvaluationTimes,
    decided_by_machine,
    is_sharded,
    started_on_cpus,
    training_arguments,
)
from ..features import classifies_mean
from ..network_settings import NetworkChanges
from ..tasks.registry import benchmark_files, evaluation_names
from ..tasks.task import Task
from .finetune_settings import (
    CONTRASTIVE,
    SPLITS,
    Approach,
    Contrastive,
    FinetuneSettings,
    Folds,
    Layers,
    TaskTrainingSettings,
)
from .parameters import hidden_size_of, rate_for_size

logger = logging.getLogger(__name__)

_LEARNING_RATE = 5e-5  # of BERT base
# Of the word embeddings' rate: benchmarks/results/transfer_2core-amd-epyc_2026-11-26.md.
_FACTOR, _FACTOR_UP_TO, _FACTOR_FROM = 10.0, 128, 50_000  # hidden size; texts
_FALLBACKS = {"num_train_epochs": 3.0, "per_device_train_batch_size": 32}
_FEW_TEXTS_EPOCHS, _FEW_TEXTS_STEPS = 20, 500  # benchmarks/results/few_labels_2core-amd-epyc_2026-11-28.md
_PAIR_EPOCHS, _PAIR_STEPS = 20, 80
_PAIR_RATE = 3e-4  # of BERT base, for one step; divided by the square root of their number
_NO_EVALUATION = {"eval_strategy": IntervalStrategy.NO, "eval_steps": None}
_NOTHING_EVALUATED = worded("nothing is evaluated; give a {validation_file}, or hold out data with {validation_split}")


@dataclass(frozen=True)
class DataFiles:
    """The data of a run: files, those given and those found in a benchmark's folder, or a data set of the Hub."""

    train_file: str | None
    validation_file: list[str] | None
    test_file: list[str] | None
    dataset: str | None
    dataset_config: str | None


@dataclass(frozen=True)
class FinetunePlan:
    """What is decided before a fine-tuning begins."""

    settings: FinetuneSettings
    task: Task  # with the given settings; its classes are those of the data
    files: DataFiles  # those given, and those found in a benchmark's folder
    training: TrainingArguments  # of the whole run
    decisions: Mapping[str, Decision]  # by option; of those that are given there is none

    def value(self, name: str) -> Any:
        """The value of an option: as decided, or as given."""
        return self.decisions[name].value if name in self.decisions else getattr(self.settings, name)

    def reason(self, name: str) -> str:
        """Why an option has its value; "" if it is given, or as usual."""
        return self.decisions[name].reason if name in self.decisions else ""

    @property
    def metric(self) -> str:
        """The metric that selects the best model, as evaluations call it."""
        return str(self.value("metric_for_best_model")).removeprefix("eval_")

    def network(self, approach: Approach) -> NetworkChanges:
        """How the network differs from the initial model, with an approach."""
        changes = settings_of(NetworkChanges, self.settings) | {"pooling": self.pooling(approach).value}
        return NetworkChanges(**changes)

    def pooling(self, approach: Approach) -> Decision:
        """What a classifier of texts reads, with an approach; None for the model's own."""
        settings = self.settings
        is_open = settings.pooling is None and not settings.keep_model_type and not settings.from_scratch
        if is_open and self.task.classifies_texts and classifies_mean(settings.model, approach.fits_head):
            why = f"as the sentence-transformers files of {settings.model} say"
            why = f"for the approach {approach.name}" if approach.fits_head else why
            return Decision("mean", why)
        return Decision(settings.pooling, "")

    def arguments_of(self, seed: int, output_dir: Path, evaluates: bool) -> TrainingArguments:
        """The arguments of transformers' `Trainer` for one of the run's trainings."""
        arguments = copy.copy(self.training)
        arguments.seed, arguments.output_dir = seed, str(output_dir)
        if not evaluates:
            arguments.eval_strategy = IntervalStrategy.NO
        return arguments

    def log_pooling(self, approach: Approach) -> None:
        """Say what follows from classifying the mean, if that was decided here."""
        if self.pooling(approach).value != self.settings.pooling:
            logger.info(
                "Classifies the mean of all tokens, %s (--pooling). Plain BERTs classify the first token, so convert "
                "to-bert and to-google will reject the model; convert onnx, convert openvino and push keep the mean.",
                self.pooling(approach).reason,
            )

    def result_settings(self, command: str = "finetune") -> dict[str, Any]:
        """The settings that determine a run's result: an interrupted run is resumed only with the same."""
        settings, training = self.settings, vars(self.training)
        values = training | vars(self.files) | {name: decision.value for name, decision in self.decisions.items()}
        values |= {
            "pooling": self.pooling(settings.trained.method).value,
            "learning_rate": self.value("learning_rate"),
        }
        record = {"command": command} | deciding(settings, values)
        if training["load_best_model_at_end"] or training["lr_scheduler_type"] in SCHEDULED_BY_EVALUATIONS:
            record |= settings_of(EvaluationTimes, self.training)
        for name in settings.data_settings:  # files are identified by digests
            data = [source for source in sources_of(values[name], name) if isinstance(source, InMemoryData)]
            record |= {str(source): source.recorded for source in data}
        return record


def FinetuningArguments(**given: Any) -> FinetuneSettings:  # noqa: N802  # a class in earlier versions
    """The settings of `finetune`, from the options of the command as keywords; checked as by `finetune` itself.

    In Python, `train_file`, `validation_file` and `test_file` may also be data in memory: a `pandas.DataFrame`, a
    `datasets.Dataset` or an iterable, see `mybert.finetuning.data.rows_of`; for several validation sets, a dictionary
    by name.

    Raises:
        TypeError: If there is no such option.
        ValueError: If a value is missing or out of range, or values do not go together.
    """
    settings = build(FinetuneSettings, given)
    plan_finetuning(settings)
    return settings


def plan_finetuning(
    settings: FinetuneSettings, task: Task | None = None, learning_rate: Decision | None = None
) -> FinetunePlan:
    """Decide what can be decided before the data is read; see `completed`.

    Args:
        settings: What the user said.
        task: The task, if it is not the one that the settings name.
        learning_rate: The default learning rate, if it is not that of the task.

    Raises:
        ValueError: If files are missing, settings have no effect on the run, or transformers rejects a value.
    """
    task = settings.resolve_task() if task is None else task
    files = found_files(settings, task)
    decisions: dict[str, Decision] = {}
    of_approach = settings.trained.method.defaults
    defaults: dict[str, Any] = {**_FALLBACKS, **task.defaults, **of_approach}
    for name in _FALLBACKS:
        if getattr(settings, name) is None and defaults[name] is not None:
            why = f"for the approach {settings.approach}" if name in of_approach else f"default of {settings.task}"
            decisions[name] = Decision(defaults[name], why)
    decisions |= _evaluation(settings, bool(files.validation_file or settings.validation_split or settings.dataset))
    if settings.metric_for_best_model is None:
        decisions["metric_for_best_model"] = Decision(_main_metric(task, files), "the task's main one")
    elif settings.greater_is_better is None and lower_is_better(settings.metric_for_best_model):
        why = f"a lower {settings.metric_for_best_model} is better"  # transformers knows that of losses alone
        decisions["greater_is_better"] = Decision(False, why)
    if learning_rate is not None and settings.learning_rate is None:
        decisions["learning_rate"] = learning_rate
    if started_on_cpus():
        decisions["use_cpu"] = Decision(True, "several processes on a machine without an accelerator")
    training = _arguments(settings, decisions)
    plan = FinetunePlan(settings, task, files, training, decisions | decided_by_machine(settings, training))
    if settings.has_adapter and is_sharded(plan.training):
        adapter = "lora" if settings.lora else "peft_config"
        raise SettingError.worded(
            "{:option} is set with {fsdp}: an adapter is merged into whole weights; leave fsdp out.", adapter
        )
    return plan


def completed(plan: FinetunePlan, task: Task, num_examples: int, validation: Mapping[str, Any]) -> FinetunePlan:
    """The plan, with what depends on the data and the model; the model must exist by now.

    Args:
        plan: The plan before the data is read.
        task: The task of the data.
        num_examples: Number of training examples.
        validation: The validation data by name.
    """
    settings, decisions = plan.settings, dict(plan.decisions)
    decisions |= _evaluation(settings, bool(validation), warns=True)
    if settings.dataset and not settings.folds and settings.metric_for_best_model is None:  # its splits are known now
        names = [*filter(None, [next(iter(validation), "")]), task.main_metric]
        decisions["metric_for_best_model"] = Decision("_".join(names), "the task's main one")
    if settings.learning_rate is None and not settings.trained.method.fits_head and "learning_rate" not in decisions:
        decisions["learning_rate"] = _learning_rate(settings, plan.task)
    if settings.trained.method.compared and settings.num_train_epochs is None:
        decisions["num_train_epochs"] = _compared_epochs(plan.training, num_examples)
    if settings.trained.method is CONTRASTIVE:
        pairs = pair_training(settings, plan.training, num_examples)
        if settings.max_steps <= 0:
            decisions["max_steps"] = pairs.steps
        if pairs.batch.value != plan.training.per_device_train_batch_size:
            decisions["per_device_train_batch_size"] = pairs.batch
        if settings.learning_rate is None:
            decisions["learning_rate"] = pairs.learning_rate
    if settings.embedding_learning_rate is None:
        decisions["embedding_learning_rate"] = _embedding_factor(settings, task, num_examples)
    if (pooling := plan.pooling(settings.trained.method)).value != settings.pooling:
        decisions["pooling"] = pooling
    return replace(plan, task=task, training=_arguments(settings, decisions), decisions=decisions)


def _steps_of_an_epoch(arguments: TrainingArguments, sequences: int) -> int:
    rounded = math.floor if arguments.dataloader_drop_last else math.ceil
    batches = rounded(sequences / (arguments.train_batch_size * arguments.world_size))
    return max(1, math.ceil(batches / arguments.gradient_accumulation_steps))


def _compared_epochs(arguments: TrainingArguments, texts: int) -> Decision:
    """Epochs of fine-tuning that is compared with other approaches: few texts need more of them."""
    epochs = min(_FEW_TEXTS_EPOCHS, _FEW_TEXTS_STEPS // _steps_of_an_epoch(arguments, texts))
    why = f"{_FEW_TEXTS_EPOCHS}, in at most {_FEW_TEXTS_STEPS} steps, or the usual {arguments.num_train_epochs:g}"
    return Decision(max(float(epochs), arguments.num_train_epochs), why)


class PairTraining(NamedTuple):
    """What contrastive training does by default."""

    steps: Decision  # optimizer steps
    batch: Decision  # texts of a batch and process, an even number
    learning_rate: Decision


def pair_training(settings: FinetuneSettings, arguments: TrainingArguments, texts: int) -> PairTraining:
    """Steps, batch and rate of contrastive training on a number of texts: as given, or as measured to be enough."""
    batch = 2 * max(1, min(arguments.per_device_train_batch_size, texts) // 2)
    of_a_step = batch * arguments.world_size * arguments.gradient_accumulation_steps
    epochs = _PAIR_EPOCHS if settings.num_train_epochs is None else settings.num_train_epochs
    steps = Decision(max(1, math.ceil(epochs * texts / of_a_step)), f"{epochs:g} epochs")
    if settings.num_train_epochs is None:
        steps = Decision(min(steps.value, _PAIR_STEPS), f"{steps.reason}, at most {_PAIR_STEPS} steps")
    if settings.max_steps > 0:
        steps = Decision(settings.max_steps, "")
    rate = Decision(settings.learning_rate, "")
    if settings.learning_rate is None:
        value, reason = rate_for_size(float(f"{_PAIR_RATE / steps.value**0.5:.3g}"), settings.model)
        rate = Decision(value, f"{_PAIR_RATE:g} / sqrt({steps.value} steps) = {reason}")
    return PairTraining(steps, Decision(batch, "pairs of texts, of all if there are fewer"), rate)


def training_length(plan: FinetunePlan, sequences: int) -> dict[str, float]:
    """Number of trainings, and of each the optimizer steps, the epochs and the sequences of a step."""
    settings, training = plan.settings, plan.training
    if not settings.trained.method.takes_steps:
        return {"trainings": settings.folds + 1 if settings.folds else 1}
    steps = _steps_of_an_epoch(training, sequences)
    total = training.max_steps if training.max_steps > 0 else math.ceil(training.num_train_epochs * steps)
    of_folds = settings.folds * (len(settings.trained.method.compared) or 1)
    return {
        "trainings": of_folds + 1 if of_folds else settings.num_seeds,
        "steps": total,
        "epochs": total / steps,
        "batch size": training.train_batch_size * training.world_size * training.gradient_accumulation_steps,
    }


def sources(plan: FinetunePlan) -> dict[str, dict[str, Source]]:
    """Data by split and name; a split's only data set has the name ""."""
    settings, files, task = plan.settings, plan.files, plan.task
    if not files.dataset:
        return {
            "train": {"": train} if (train := _training_data(settings, files)) else {},
            "validation": evaluation_names(task, files.validation_file or ()),
            "test": evaluation_names(task, files.test_file or ()),
        }
    splits = HubSplit.all_of(files.dataset, files.dataset_config)
    names = {"validation": ("val", "dev")}  # what names of splits begin with, if not with their kind
    by_kind = {kind: [each for each in splits if each.split.startswith(names.get(kind, kind))] for kind in SPLITS}
    if not by_kind["train"]:
        raise ValueError(f"{files.dataset} has no split train; it has {', '.join(s.split for s in splits)}.")
    validation = {} if settings.folds else evaluation_names(task, by_kind["validation"])
    if validation and settings.validation_split:
        raise SettingError.worded(
            "{validation_split} is set, but {} has validation data; leave out {validation_split}.", files.dataset
        )
    if not validation and not settings.folds and not settings.validation_split:
        _evaluation(settings, False)  # checks what the settings ask for
    return {
        "train": {"": by_kind["train"][0]},
        "validation": validation,
        "test": evaluation_names(task, files.test_file or by_kind["test"]),
    }


def _training_data(settings: FinetuneSettings, files: DataFiles) -> Source | None:
    """The labeled data: a file, or texts made of the classes' names."""
    if settings.class_names:
        rows = [(settings.label_template.replace("{}", name), name) for name in settings.class_names]
        return InMemoryData("class_names", rows)
    return Source.of(files.train_file) if files.train_file else None


def _arguments(settings: FinetuneSettings, decisions: Mapping[str, Decision]) -> TrainingArguments:
    chosen = {
        name: decision.value for name, decision in decisions.items() if name in TrainingArguments.__dataclass_fields__
    }
    return training_arguments(settings, **chosen)


def _evaluation(settings: FinetuneSettings, has_validation: bool, warns: bool = False) -> dict[str, Decision]:
    """When to evaluate, and whether the best checkpoint is kept; settings without effect are an error."""
    strategy, keeps_best = settings.eval_strategy, settings.load_best_model_at_end
    decisions: dict[str, Decision] = {}
    if settings.folds:
        keeps_best = False
        decisions["load_best_model_at_end"] = Decision(False, "no part of the data chooses a checkpoint")
    elif not has_validation or settings.trained.method is CONTRASTIVE:
        if settings.num_seeds > 1 and not has_validation:
            raise SettingError.worded(
                "{num_seeds} is {} without validation data, which decides which run is best.", settings.num_seeds
            )
        strategy = IntervalStrategy.NO
        why = Contrastive.why if has_validation else "no validation data"
        decisions |= {name: Decision(value, why) for name, value in _NO_EVALUATION.items()}
    if keeps_best is None:
        is_saved = settings.save_strategy in (strategy, "best")
        keeps_best = is_saved and strategy != "no"
        why = "evaluated and saved at the same steps" if keeps_best else "not evaluated and saved at the same steps"
        decisions["load_best_model_at_end"] = Decision(keeps_best, why)
        if warns and not is_saved and "no" not in (strategy, settings.save_strategy):
            evaluated = IntervalStrategy(strategy).value
            logger.warning(
                "eval_strategy is %r and save_strategy %r: the last model is kept, not the best; to keep the best "
                "one pass --save_strategy %s.",
                *(evaluated, SaveStrategy(settings.save_strategy).value, evaluated),
            )
    if settings.save_strategy == "best" and strategy == "no":
        raise SettingError.worded(
            "{save_strategy} is 'best' but nothing is evaluated; give validation data or another {save_strategy}."
        )
    if keeps_best and strategy == "no":
        raise SettingError.worded("{load_best_model_at_end} is True, but {}.", _NOTHING_EVALUATED)
    if settings.early_stopping_patience is not None and not keeps_best:
        why = (
            _NOTHING_EVALUATED
            if strategy == "no"
            else f"checkpoints are saved by {settings.save_strategy!r} and evaluated by {strategy!r}, so the best is "
            "not kept"
        )
        raise SettingError.worded("{early_stopping_patience} is {}, but {}.", settings.early_stopping_patience, why)
    return decisions


def _learning_rate(settings: FinetuneSettings, task: Task) -> Decision:
    of_task = task.defaults.get("learning_rate", _LEARNING_RATE)
    return Decision(*settings.trained.method.rate or rate_for_size(of_task, settings.model))


def _embedding_factor(settings: FinetuneSettings, task: Task, num_examples: int) -> Decision:
    """The factor on the word embeddings' learning rate; `task` is that of the data."""
    is_of_texts = task.classifies_texts and task.has_classes and task.text_pair_column is None
    is_large = is_of_texts and num_examples >= _FACTOR_FROM
    moves = isinstance(settings.trained, Layers) and settings.trained.freeze_layers == -1
    if is_large and moves and hidden_size_of(settings.model) <= _FACTOR_UP_TO:
        return Decision(_FACTOR, f"{num_examples} texts, hidden size up to {_FACTOR_UP_TO}")
    return Decision(1.0, "")


def selecting_metric(settings: TaskTrainingSettings) -> str:
    """The metric that selects the best model, as evaluations call it, before the data is read."""
    if settings.metric_for_best_model is not None:
        return settings.metric_for_best_model.removeprefix("eval_")
    task = settings.resolve_task()
    return _main_metric(task, found_files(settings, task))


def _main_metric(task: Task, files: DataFiles) -> str:
    names = [name for name in evaluation_names(task, files.validation_file or ()) if name]
    return "_".join([*names[:1], task.main_metric])


def found_files(settings: TaskTrainingSettings, task: Task) -> DataFiles:
    """The data files of a run: those given, and those found in the folder of a benchmark, compressed or not."""
    files = DataFiles(**{each.name: getattr(settings, each.name) for each in fields(DataFiles)})
    if not settings.data_dir:
        return files
    folder = Path(settings.data_dir)
    if not folder.is_dir():
        refuse_address(settings.data_dir)
        raise SettingError.worded("{data_dir} is {!r}, which is not a folder.", settings.data_dir)
    if not task.files:
        raise SettingError.worded(
            "The task {} has no benchmark files to look for in {data_dir}; use {train_file}.", settings.task
        )
    for split in SPLITS:
        name = f"{split}_file"
        if getattr(files, name) or (split == "validation" and isinstance(settings.validation, Folds)):
            continue
        if found := benchmark_files(folder, task, split):
            if split == "validation" and settings.validation_split:
                raise SettingError.worded(
                    "{validation_split} is {} and {} has validation data ({}); use either {data_dir}, or "
                    "{validation_split} with a {train_file}.",
                    settings.validation_split,
                    folder,
                    Path(found[0]).name,
                )
            value: Any = found[0] if split == "train" else found
            files = replace(files, **{name: value})
    if not files.train_file:
        there = ", ".join(sorted(path.name for path in folder.iterdir())[:8])
        raise ValueError(f"{folder} has no {' or '.join(task.files['train'])}; it holds {there or 'nothing'}.")
    return files
