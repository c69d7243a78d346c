"""The settings of `mybert finetune`."""

import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from transformers import AutoModelForSequenceClassification
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ...files.errors import refuse_address
from ...files.options import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE_ABOVE_0,
    Group,
    Range,
    check_options,
    deciding,
    may_be_given,
    option,
    settings_of,
)
from ...files.source import HubSplit, InMemoryData, Source, sources_of
from ...runs import EvaluationTimes, RunArguments, check_libraries, is_sharded, started_on_cpus
from ..data import source_of
from ..features import classifies_mean
from ..heads import ALL_BUT_HEAD_FROZEN, ONLY_TAGGER, NetworkChanges
from ..tasks.registry import (
    SKIP_EMPTY_HELP,
    TASKS,
    AnswerSettings,
    TargetSettings,
    TaskArguments,
    benchmark_files,
    evaluation_names,
)
from ..tasks.task import Task
from .parameters import hidden_size_of, rate_for_size

logger = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
_SCHEDULED_BY_EVALUATIONS = ("reduce_lr_on_plateau", "greedy")
_LEARNING_RATE = 5e-5  # of BERT base
# Of the word embeddings' rate: benchmarks/results/transfer_2core-amd-epyc_2026-11-26.md.
_FACTOR, _FACTOR_UP_TO, _FACTOR_FROM = 10.0, 128, 50_000  # hidden size; texts
_FALLBACKS = {"num_train_epochs": 3.0, "per_device_train_batch_size": 32}
_NOTHING_EVALUATED = "nothing is evaluated; give a validation_file, or hold out data with validation_split"
_DONE_ANYWAY = "mybert finetune evaluates and predicts all data that it is given"
_PART = Range("a fraction in (0, 1), or 0 for none", 0, 1, (1,))
_SEVERAL = Range("at least 2, or 0 for none", 0, excluded=(1,))
_FROM_MINUS_1 = Range("at least 0, or -1 for none", -1)
_EXPECTED_TEXTS = "expected a task that classifies texts: classification, multilabel, regression, or one of GLUE's"
_ADAPTED = "where only adapters, pooler and head are trained"


def _classifies_texts(task: Task) -> bool:
    return task.auto_class is AutoModelForSequenceClassification


@dataclass
class TaskFiles:
    """The model to start from, and the data."""

    group = Group.INPUT
    model: str = option(
        "", "Model folder or Hub name to start from.", decides=True, required=True, positional=1, reads="model"
    )
    train_file: str | None = option(
        None,
        "Training data (.csv, .tsv, .json, .jsonl, .parquet, .xlsx, CoNLL, compressed or not).",
        decides=True,
        required="data_dir dataset unlabeled",
        reads="examples",
    )
    validation_file: list[str] | None = option(
        None, "Data to evaluate on; several files (MNLI) are reported one by one.", reads="examples"
    )
    test_file: list[str] | None = option(
        None, "Data to predict; labels are optional, and scored if present.", reads="rows"
    )
    data_dir: str | None = option(None, "Folder with the benchmark's files as downloaded.", reads="file")
    dataset: str | None = option(
        None, "Data set on the Hub, in place of files.", decides=True, excludes="train_file validation_file data_dir"
    )
    dataset_config: str | None = option(
        None, "Configuration of the data set on the Hub.", decides=True, needs="dataset"
    )


@dataclass
class FrozenFeatures:
    """Approaches with a frozen encoder."""

    group, decides = Group.FEATURES, True
    approach: Literal["finetune", "linear_probe", "auto", "features"] = option(
        "finetune",
        "'finetune' trains the whole model, 'linear_probe' a linear head on frozen vectors of texts (for few labels), "
        "'auto' the better of these two by cross-validation, 'features' a BiLSTM tagger on frozen features (paper, "
        "section 5.3).",
        idle_with="lora peft_config",
        why="which uses a frozen encoder",
    )
    features: str = option(
        "concat_last_four", "Features of the tagger; 'all' for every row of Table 7.", needs=ONLY_TAGGER
    )
    lstm_size: int = option(768, "Units of the tagger's LSTMs in each direction.", AT_LEAST_1, needs=ONLY_TAGGER)


@dataclass
class TrainedParts:
    """Which weights are trained, when, and at which rate."""

    group, decides, idle_with = Group.PARTS, True, ALL_BUT_HEAD_FROZEN
    freeze: Literal["encoder"] | None = option(
        None,
        "'encoder': train only pooler and head.",
        excludes="freeze_layers train_head_first gradual_unfreezing reinitialize_layers layer_decay",
        why="which trains only pooler and head",
    )
    freeze_layers: int = option(
        -1,
        "Freeze the embeddings and this many of the lowest layers; -1 freezes nothing.",
        _FROM_MINUS_1,
    )
    train_head_first: float = option(0.0, "Epochs at the start that train only pooler and head.", AT_LEAST_0)
    gradual_unfreezing: float = option(
        0.0, "Epochs between unfreezing one layer and the next, from the top down.", AT_LEAST_0
    )
    reinitialize_layers: int = option(
        0,
        "Top layers to start from random weights.",
        AT_LEAST_0,
        idle_with=f"{ALL_BUT_HEAD_FROZEN} approach=auto",
    )
    lora: bool = option(
        False,
        "Train adapters of rank 8 on query and value, and the head; merged at the end (PEFT).",
        idle_with="",
        excludes="peft_config",
        why=_ADAPTED,
    )
    peft_config: str | None = option(
        None,
        "JSON or YAML file with any other PEFT configuration, instead of --lora.",
        idle_with="",
        why=_ADAPTED,
        reads="file",
    )
    layer_decay: float = option(
        1.0,
        "Factor on the learning rate from each layer to the one below (0.95, for example).",
        SHARE_ABOVE_0,
        group=Group.TRAINING,
    )
    embedding_learning_rate: float | None = option(
        None,
        "Factor on the learning rate of the word embeddings, on top of layer_decay (default: 10 to classify single "
        "texts with 50,000 of them or more and a hidden size up to 128, else 1).",
        ABOVE_0,
        group=Group.TRAINING,
        excludes="freeze freeze_layers",
    )


@dataclass(kw_only=True)
class SampleSettings:
    """Settings for selecting and weighting examples; results depend only on the data and the seed."""

    group = Group.EXAMPLES
    decides = True
    validation_split: float = option(
        0.0,
        "Fraction of the training data, in (0, 1), held out as validation data, drawn by the seed, stratified by "
        "class. For data without a validation file.",
        _PART,
        excludes="validation_file",
    )
    folds: int = option(
        0,
        "Cross-validation: this many trainings, each evaluated on a different part of the training data, and a last "
        "one on all of it.",
        _SEVERAL,
        excludes="validation_file validation_split num_seeds features=all save_strategy=best",
        why="where each part is the validation data in turn, and must not choose a checkpoint",
    )
    max_train_samples: int | None = option(
        None,
        "Train on only this many examples, drawn by the seed, stratified by class, from what validation_split leaves: "
        "the held-out part does not depend on it.",
        AT_LEAST_1,
    )
    skip_empty: bool = option(False, SKIP_EMPTY_HELP)
    allow_unusual_labels: bool = option(
        False,
        "Learn labels that look like a mistake: more than 50 classes most of which have one example, or a class NaN, "
        "None or null.",
        decides=False,
    )
    class_weights: Literal["balanced"] | None = option(
        None, "'balanced': weight the loss so that rare classes count as much as frequent ones.", group=Group.TRAINING
    )
    early_stopping_patience: int | None = option(
        None,
        "Stop after this many evaluations in which the main metric does not improve.",
        AT_LEAST_1,
        group=Group.RECORDS,
        idle_with="folds approach=linear_probe",
    )


@dataclass
class FinetuningArguments(
    AnswerSettings,
    TargetSettings,
    TaskArguments,
    TaskFiles,
    FrozenFeatures,
    NetworkChanges,
    TrainedParts,
    SampleSettings,
    RunArguments,
):
    """Settings of `finetune`: those of its base classes, the fields below, and transformers' `TrainingArguments`.

    In Python, `train_file`, `validation_file` and `test_file` may also be data in memory: a `pandas.DataFrame`, a
    `datasets.Dataset` or an iterable, see `rows.rows_of`; for several validation sets, a dictionary by name.

    Raises:
        ValueError: If a setting is missing or out of range.
    """

    data_settings: ClassVar[tuple[str, ...]] = ("train_file", "validation_file", "test_file")
    """The fields for data."""

    group = Group.TRAINING
    num_seeds: int = option(
        1,
        "Number of runs, each with another seed; the best is kept.",
        AT_LEAST_1,
        decides=True,
        idle_with="approach=linear_probe",
    )
    learning_rate: float | None = option(  # type: ignore[assignment]  # the task's, as those below
        None,
        "Peak learning rate (default: 5e-5 x 768 / hidden size, SWAG 2e-5 x the same, adapters 5e-4, tagger on "
        "features 1e-3).",
        idle_with="approach=linear_probe",
    )
    # A third of pretraining's: the layers are trained already.
    muon_learning_rate: float = option(0.007)
    num_train_epochs: float | None = option(  # type: ignore[assignment]
        None, "Epochs (default: 3, SQuAD 2.0 2, tagger on features 20)."
    )
    per_device_train_batch_size: int | None = option(  # type: ignore[assignment]
        None, "Sequences per batch and device (default: 32, SWAG 16).", decides=True
    )
    gradient_accumulation_steps: int = option(decides=True)
    warmup_steps: float = option(0.1, "Steps of warm-up; below 1, a fraction of all steps.")
    save_strategy: SaveStrategy | str = option("epoch")
    eval_strategy: IntervalStrategy | str = option("epoch")
    save_total_limit: int | None = option(1, "Keep this many checkpoints, besides the best.")
    # None: if it is evaluated and saved at the same steps.
    load_best_model_at_end: bool | None = option(None, idle_with="folds")
    why_learning_rate: str = field(default="", init=False)  # for the card, if it is not set

    def __post_init__(self) -> None:
        """Fill in the task's defaults, and check what can be checked without looking at the data."""
        self._find_sources()
        check_options(self)
        self.model, self.output_dir = str(self.model), str(self.output_dir)
        task = self.resolve_task()
        is_of_classes = task.loss.has_class_weights
        if self.class_weights and (self.approach == "features" or not (is_of_classes and task.has_classes)):
            raise ValueError(
                f"class_weights is {self.class_weights!r}; expected a task in which each text or word has one class, "
                "and another approach than 'features'."
            )
        for name, is_of_texts in (("pooling", self.pooling), ("approach", self.approach in ("linear_probe", "auto"))):
            if is_of_texts and not _classifies_texts(task):
                raise ValueError(f"{name} is {getattr(self, name)!r} and task {self.task!r}; {_EXPECTED_TEXTS}.")
        if self.approach == "auto" and not self.folds:
            raise ValueError("approach is 'auto' without folds, by which it compares; pass folds as well, such as 5.")
        if self.label_smoothing_factor and not is_of_classes:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}; expected a task in which one of several "
                "classes or choices is right."
            )
        self._find_files(task)
        defaults: dict[str, Any] = {**_FALLBACKS, **task.defaults}
        if self.approach == "features":
            defaults |= {"num_train_epochs": 20.0}
        for name in _FALLBACKS:
            if getattr(self, name) is None:
                setattr(self, name, defaults[name])
        self._check_evaluation(self.validation_file or self.validation_split or self.dataset)
        if self.metric_for_best_model is None:
            names = [name for name in evaluation_names(task, self.validation_file or ()) if name]
            self.metric_for_best_model = "_".join([*names[:1], task.main_metric])
        if started_on_cpus():
            self.use_cpu = True
        super().__post_init__()
        if self.has_adapter and is_sharded(self):
            adapter = "lora" if self.lora else "peft_config"
            raise ValueError(f"{adapter} is set with fsdp: an adapter is merged into whole weights; leave fsdp out.")
        several = self.data_dir or self.dataset  # which may hold all kinds of data
        if self.do_eval and not (self.validation_file or self.validation_split or self.folds or several):
            raise ValueError(f"do_eval is set without validation data (validation_file); {_DONE_ANYWAY}.")
        if self.do_predict and not (self.test_file or several):
            raise ValueError(f"do_predict is set without test data (test_file); {_DONE_ANYWAY}.")

    def _find_sources(self) -> None:
        """Name data in memory, which rules of options cannot compare."""
        for name in self.data_settings:
            find = source_of if name == "train_file" else sources_of
            setattr(self, name, find(getattr(self, name), name) or None)

    def _check_evaluation(self, validation: Any) -> None:
        """Reject settings without effect on a run with this validation data, and without any evaluate nothing."""
        if self.folds:
            self.load_best_model_at_end = False
        elif not validation:
            if self.num_seeds > 1:
                raise ValueError(
                    f"num_seeds is {self.num_seeds} without validation data, which decides which run is best."
                )
            self.eval_strategy, self.eval_steps = IntervalStrategy.NO, None
        if self.load_best_model_at_end is None:
            saved = self.save_strategy in (self.eval_strategy, "best")
            self.load_best_model_at_end = saved and self.eval_strategy != "no"
            if not saved and "no" not in (self.eval_strategy, self.save_strategy):
                evaluated = IntervalStrategy(self.eval_strategy).value
                logger.warning(
                    "eval_strategy is %r and save_strategy %r: the last model is kept, not the best; to keep the best "
                    "one pass --save_strategy %s.",
                    *(evaluated, SaveStrategy(self.save_strategy).value, evaluated),
                )
        if self.save_strategy == "best" and self.eval_strategy == "no":
            raise ValueError(
                "save_strategy is 'best' but nothing is evaluated; give validation data or another save_strategy."
            )
        if self.load_best_model_at_end and self.eval_strategy == "no":
            raise ValueError(f"load_best_model_at_end is True, but {_NOTHING_EVALUATED}.")
        if self.early_stopping_patience is not None and not self.load_best_model_at_end:
            why = (
                _NOTHING_EVALUATED
                if self.eval_strategy == "no"
                else f"checkpoints are saved by {self.save_strategy!r} and evaluated by {self.eval_strategy!r}, so "
                "the best is not kept"
            )
            raise ValueError(f"early_stopping_patience is {self.early_stopping_patience}, but {why}.")

    def choose_learning_rate(self) -> None:
        """Set the learning rate that the user has not given, and log why; the model must exist by now."""
        if self.learning_rate is None and self.approach != "linear_probe":
            self.learning_rate, self.why_learning_rate = self._default_learning_rate()
            logger.info("Learning rate: %g (%s).", self.learning_rate, self.why_learning_rate)
            check_libraries(self)

    def choose_embedding_learning_rate(self, task: Task, num_examples: int) -> None:
        """Set the word embeddings' factor that the user has not given, and log why; `task` is that of the data."""
        if self.embedding_learning_rate is None:
            self.embedding_learning_rate = 1.0
            is_of_texts = _classifies_texts(task) and task.has_classes and task.text_pair_column is None
            is_large = is_of_texts and num_examples >= _FACTOR_FROM
            if (
                is_large
                and may_be_given(self, "embedding_learning_rate")
                and hidden_size_of(self.model) <= _FACTOR_UP_TO
            ):
                self.embedding_learning_rate = _FACTOR
                logger.info(
                    "Learning rate of the word embeddings: x %g (%d texts, hidden size up to %d; "
                    "--embedding_learning_rate).",
                    *(_FACTOR, num_examples, _FACTOR_UP_TO),
                )

    def choose_pooling(self) -> None:
        """Set the pooling that the user has not given, if it is not the model's own; the model must exist by now."""
        is_open = self.pooling is None and not self.keep_model_type and not self.from_scratch
        is_probe = self.approach == "linear_probe"
        if is_open and _classifies_texts(self.resolve_task()) and classifies_mean(self.model, is_probe):
            self.pooling = "mean"
            why = "for a linear probe" if is_probe else f"as the sentence-transformers files of {self.model} say"
            logger.info(
                "Pooling: mean, %s (--pooling). Plain BERTs classify the first token, so convert to-bert and "
                "to-google will reject the model; convert onnx, convert openvino and push keep the mean.",
                why,
            )

    @property
    def offers_linear_probe(self) -> bool:
        """Whether the command could fit a linear probe instead."""
        is_alone = self.approach == "finetune" and not self.from_scratch and type(self) is FinetuningArguments
        return is_alone and _classifies_texts(self.resolve_task())

    @property
    def metric(self) -> str:
        """The metric that selects the best model, as evaluations call it."""
        return str(self.metric_for_best_model).removeprefix("eval_")

    def _default_learning_rate(self) -> tuple[float, str]:
        """The default learning rate and the reason for it."""
        if self.approach == "features":
            return 1e-3, "for a tagger on features"
        if self.has_adapter:
            return 5e-4, "for adapters"
        return rate_for_size(self.resolve_task().defaults.get("learning_rate", _LEARNING_RATE), self.model)

    @property
    def has_adapter(self) -> bool:
        """Whether adapters are trained."""
        return self.lora or self.peft_config is not None

    def _find_files(self, task: Task) -> None:
        """Find the files of a benchmark's folder that are not given, compressed or not."""
        if not self.data_dir:
            return
        folder = Path(self.data_dir)
        if not folder.is_dir():
            refuse_address(self.data_dir)
            raise ValueError(f"data_dir is {self.data_dir!r}, which is not a folder.")
        if not task.files:
            raise ValueError(f"The task {self.task} has no benchmark files to look for in data_dir; use train_file.")
        for split in SPLITS:
            name = f"{split}_file"
            if getattr(self, name) or (split == "validation" and self.folds):
                continue
            if files := benchmark_files(folder, task, split):
                if split == "validation" and self.validation_split:
                    raise ValueError(
                        f"validation_split is {self.validation_split} and {folder} has validation data "
                        f"({Path(files[0]).name}); use either data_dir, or validation_split with a train_file."
                    )
                setattr(self, name, files[0] if split == "train" else files)
        if not self.train_file:
            there = ", ".join(sorted(path.name for path in folder.iterdir())[:8])
            raise ValueError(f"{folder} has no {' or '.join(task.files['train'])}; it holds {there or 'nothing'}.")

    def _given_settings(self, name: str) -> dict[str, Any]:
        given = super()._given_settings(name)
        return {**TASKS[name].hub, **given} if self.dataset else given

    def sources(self, task: Task) -> dict[str, dict[str, Source]]:
        """Data by split and name; a split's only data set has the name ""."""
        # The validation data of a Hub data set is known only here; the evaluation settings are adapted to it.
        if not self.dataset:
            return {
                "train": {"": Source.of(self.train_file)} if self.train_file else {},
                "validation": evaluation_names(task, self.validation_file or ()),
                "test": evaluation_names(task, self.test_file or ()),
            }
        splits = HubSplit.all_of(self.dataset, self.dataset_config)
        names = {"validation": ("val", "dev")}  # what names of splits begin with, if not with their kind
        by_kind = {kind: [each for each in splits if each.split.startswith(names.get(kind, kind))] for kind in SPLITS}
        if not by_kind["train"]:
            raise ValueError(f"{self.dataset} has no split train; it has {', '.join(s.split for s in splits)}.")
        validation = evaluation_names(task, by_kind["validation"])
        if self.folds:
            validation = {}
        if validation and self.validation_split:
            raise ValueError(
                f"validation_split is set, but {self.dataset} has validation data; leave out validation_split."
            )
        if not validation and not self.validation_split:
            self.load_best_model_at_end = False
            self._check_evaluation(None)
        elif self.metric_for_best_model == task.main_metric:
            self.metric_for_best_model = "_".join([*filter(None, [next(iter(validation), "")]), task.main_metric])
        return {
            "train": {"": by_kind["train"][0]},
            "validation": validation,
            "test": evaluation_names(task, self.test_file or by_kind["test"]),
        }

    @property
    def card_summary(self) -> str:
        """The first sentence of the card (Markdown)."""
        return f"A BERT model fine-tuned for {self.task}."

    @property
    def card_settings(self) -> dict[str, Any]:
        """Additional training settings on the card."""
        return {}

    def folders_read(self) -> list[str]:
        """Model folders that the run reads."""
        return [self.model]

    def result_settings(self) -> dict[str, Any]:
        """The settings that determine a run's result: an interrupted run is resumed only with the same."""
        counts = self.load_best_model_at_end or self.lr_scheduler_type in _SCHEDULED_BY_EVALUATIONS
        settings = {"command": "finetune"} | deciding(self) | (settings_of(EvaluationTimes, self) if counts else {})
        for name in self.data_settings:  # files are identified by digests
            data = [source for source in sources_of(getattr(self, name), name) if isinstance(source, InMemoryData)]
            settings |= {str(source): source.recorded for source in data}
        return settings
