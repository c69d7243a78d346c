"""The settings of `mybert finetune`."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from transformers import AutoModelForSequenceClassification

from ...files.choices import choice
from ...files.errors import SettingError, refuse_address
from ...files.options import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE_ABOVE_0, Group, Range, option
from ...files.source import source_of, sources_of
from ...runs.training_settings import Batches, Optimization, Records, TrainingSettings
from ..network_settings import Network
from ..tasks.registry import (
    SKIP_EMPTY_HELP,
    TASKS,
    AnswerSettings,
    TargetSettings,
    TaskArguments,
    TaskChoice,
    benchmark_files,
    evaluation_names,
)
from ..tasks.task import Task

SPLITS = ("train", "validation", "test")
_DONE_ANYWAY = "mybert finetune evaluates and predicts all data that it is given"
_PART = Range("a fraction in (0, 1), or 0 for none", 0, 1, (1,))
_SEVERAL = Range("at least 2, or 0 for none", 0, excluded=(1,))
_FROM_MINUS_1 = Range("at least 0, or -1 for none", -1)
_EXPECTED_TEXTS = "expected a task that classifies texts: classification, multilabel, regression, or one of GLUE's"


def classifies_texts(task: Task) -> bool:
    """Whether a task has a class, labels or a number for each text or pair."""
    return task.auto_class is AutoModelForSequenceClassification


@dataclass(frozen=True, kw_only=True)
class TaskFiles:
    """The data."""

    group = Group.INPUT
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


@dataclass(frozen=True, kw_only=True)
class Layers:
    """How the layers are trained: which, when, and at which rate."""

    group, decides = Group.PARTS, True
    freeze_layers: int = option(
        -1,
        "Freeze the embeddings and this many of the lowest layers; -1 freezes nothing.",
        _FROM_MINUS_1,
    )
    train_head_first: float = option(0.0, "Epochs at the start that train only pooler and head.", AT_LEAST_0)
    gradual_unfreezing: float = option(
        0.0, "Epochs between unfreezing one layer and the next, from the top down.", AT_LEAST_0
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
        excludes="freeze_layers",
    )


@dataclass(frozen=True, kw_only=True)
class AnyNetwork:
    """Changes of the whole network."""

    group, decides = Group.MODEL, True
    bilstm: bool = option(
        False, "Put a BiLSTM on top of the encoder (paper, section 5.1).", excludes="keep_model_type"
    )
    from_scratch: bool = option(
        False,
        "Start from random weights (to measure what pretraining contributes).",
        excludes="reinitialize_layers",
    )


@dataclass(frozen=True, kw_only=True)
class FineTune(AnyNetwork, Layers):
    """Train the whole model, or its upper layers."""

    name: ClassVar[str] = "finetune"
    group, decides = Group.PARTS, True
    reinitialize_layers: int = option(0, "Top layers to start from random weights.", AT_LEAST_0)


@dataclass(frozen=True, kw_only=True)
class Frozen:
    """A frozen encoder."""

    why: ClassVar[str] = "which trains only pooler and head"
    group, decides = Group.PARTS, True
    freeze: Literal["encoder"] | None = option(None, "'encoder': train only pooler and head.")


@dataclass(frozen=True, kw_only=True)
class HeadOnly(AnyNetwork, Frozen):
    """Train pooler and head."""

    name: ClassVar[str] = "finetune"


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Train adapters next to frozen weights, and the head; they are merged at the end."""

    name: ClassVar[str] = "finetune"
    why: ClassVar[str] = "where only adapters, pooler and head are trained"
    group, decides = Group.PARTS, True
    lora: bool = option(
        False,
        "Train adapters of rank 8 on query and value, and the head; merged at the end (PEFT).",
        excludes="peft_config",
    )
    peft_config: str | None = option(
        None, "JSON or YAML file with any other PEFT configuration, instead of --lora.", reads="file"
    )


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """Fit a linear head to frozen vectors of texts."""

    name: ClassVar[str] = "linear_probe"
    why: ClassVar[str] = "which uses a frozen encoder"
    lacks: ClassVar[tuple[str, ...]] = ("dropout", "learning_rate", "num_seeds", "early_stopping_patience")


@dataclass(frozen=True, kw_only=True)
class Tagger:
    """Train a BiLSTM tagger on frozen features (paper, section 5.3)."""

    name: ClassVar[str] = "features"
    why: ClassVar[str] = "which uses a frozen encoder"
    lacks: ClassVar[tuple[str, ...]] = ("pooling", "dropout", "new_head", "keep_model_type")
    group, decides = Group.FEATURES, True
    features: str = option("concat_last_four", "Features of the tagger; 'all' for every row of Table 7.")
    lstm_size: int = option(768, "Units of the tagger's LSTMs in each direction.", AT_LEAST_1)


@dataclass(frozen=True, kw_only=True)
class Best(Layers):
    """The better of fine-tuning and linear probe, by cross-validation."""

    name: ClassVar[str] = "auto"


@dataclass(frozen=True, kw_only=True)
class BestOfHeads(Frozen):
    """The better of a fine-tuned head and a linear probe, by cross-validation."""

    name: ClassVar[str] = "auto"


@dataclass(frozen=True, kw_only=True)
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
    max_train_samples: int | None = option(
        None,
        "Train on only this many examples, drawn by the seed, stratified by class, from what validation_split leaves: "
        "the held-out part does not depend on it.",
        AT_LEAST_1,
    )
    skip_empty: bool = option(False, SKIP_EMPTY_HELP)
    early_stopping_patience: int | None = option(
        None,
        "Stop after this many evaluations in which the main metric does not improve.",
        AT_LEAST_1,
        group=Group.RECORDS,
        idle_with="folds",
    )


@dataclass(frozen=True, kw_only=True)
class LabeledSamples(SampleSettings):
    """How examples are selected and weighted where all have labels."""

    group = Group.EXAMPLES
    decides = True
    folds: int = option(
        0,
        "Cross-validation: this many trainings, each evaluated on a different part of the training data, and a last "
        "one on all of it.",
        _SEVERAL,
        excludes="validation_file validation_split num_seeds features=all save_strategy=best",
        why="where each part is the validation data in turn, and must not choose a checkpoint",
    )
    allow_unusual_labels: bool = option(
        False,
        "Learn labels that look like a mistake: more than 50 classes most of which have one example, or a class NaN, "
        "None or null.",
        decides=False,
    )
    class_weights: Literal["balanced"] | None = option(
        None, "'balanced': weight the loss so that rare classes count as much as frequent ones.", group=Group.TRAINING
    )


@dataclass(frozen=True, kw_only=True)
class FinetuningOptimization(Optimization):
    """The optimizer and schedule of the paper's fine-tuning."""

    group, decides = Group.TRAINING, True
    learning_rate: float | None = option(  # type: ignore[assignment]  # the task's, as those below
        None,
        "Peak learning rate (default: 5e-5 x 768 / hidden size, SWAG 2e-5 x the same, adapters 5e-4, tagger on "
        "features 1e-3).",
    )
    # A third of pretraining's: the layers are trained already.
    muon_learning_rate: float = option(0.007)
    warmup_steps: float = option(0.1, "Steps of warm-up; below 1, a fraction of all steps.")


@dataclass(frozen=True, kw_only=True)
class FinetuningBatches(Batches):
    """How long a fine-tuning takes, what its steps read, and how often it is repeated."""

    group, decides = Group.TRAINING, True
    num_train_epochs: float | None = option(  # type: ignore[assignment]
        None, "Epochs (default: 3, SQuAD 2.0 2, tagger on features 20)."
    )
    per_device_train_batch_size: int | None = option(  # type: ignore[assignment]
        None, "Sequences per batch and device (default: 32, SWAG 16).", decides=True
    )
    gradient_accumulation_steps: int = option(decides=True)
    num_seeds: int = option(
        1,
        "Number of runs, each with another seed; the best is kept.",
        AT_LEAST_1,
    )


@dataclass(frozen=True, kw_only=True)
class FinetuningRecords(Records):
    """What a fine-tuning evaluates, saves and logs."""

    group = Group.RECORDS
    save_strategy: str = option("epoch")
    eval_strategy: str = option("epoch")
    save_total_limit: int | None = option(1, "Keep this many checkpoints, besides the best.")
    # None: if it is evaluated and saved at the same steps.
    load_best_model_at_end: bool | None = option(None, idle_with="folds")


@dataclass(frozen=True, kw_only=True)
class TaskTrainingSettings(TaskChoice, TrainingSettings):
    """What a user says of every training on a task's data, with and without a teacher."""

    optimization: FinetuningOptimization = field(default_factory=FinetuningOptimization)
    batches: FinetuningBatches = field(default_factory=FinetuningBatches)
    records: FinetuningRecords = field(default_factory=FinetuningRecords)
    network: Network = field(default_factory=Network)
    files: TaskFiles = field(default_factory=TaskFiles)
    reading: TaskArguments = field(default_factory=TaskArguments)
    targets: TargetSettings = field(default_factory=TargetSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    samples: SampleSettings = field(default_factory=SampleSettings)

    data_settings: ClassVar[tuple[str, ...]] = ("train_file", "validation_file", "test_file")
    """The options for data."""

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option: data is files, or in memory with a name, which rules of options cannot compare."""
        given = super().read(given)
        for name in cls.data_settings:
            if name in given:
                find = source_of if name == "train_file" else sources_of
                given[name] = find(given[name], name) or None
        return given

    @property
    def metric(self) -> str:
        """The metric that selects the best model, as evaluations call it, before the data is read."""
        if self.metric_for_best_model is not None:
            return self.metric_for_best_model.removeprefix("eval_")
        task = self.resolve_task()
        return main_metric(task, found_files(self, task))

    def _given_settings(self, name: str) -> dict[str, Any]:
        given = super()._given_settings(name)
        return {**TASKS[name].hub, **given} if self.dataset else given


@dataclass(frozen=True, kw_only=True)
class FinetuneSettings(TaskTrainingSettings):
    """What a user says of a fine-tuning: model, approach, and all of `TaskTrainingSettings`."""

    model: str = option(
        "",
        "Model folder or Hub name to start from.",
        group=Group.INPUT,
        decides=True,
        required=True,
        positional=1,
        reads="model",
    )
    trained: FineTune | HeadOnly | Adapter | LinearProbe | Tagger | Best | BestOfHeads = choice(
        FineTune,
        "approach",
        "finetune",
        "'finetune' trains the whole model, 'linear_probe' a linear head on frozen vectors of texts (for few labels), "
        "'auto' the better of these two by cross-validation, 'features' a BiLSTM tagger on frozen features (paper, "
        "section 5.3).",
        group=Group.FEATURES,
        decides=True,
    )
    samples: LabeledSamples = field(default_factory=LabeledSamples)

    @property
    def has_adapter(self) -> bool:
        """Whether adapters are trained."""
        return self.lora or self.peft_config is not None

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option; a path of the model is a text."""
        given = super().read(given)
        return given | ({"model": str(given["model"])} if given.get("model") else {})

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at the data."""
        super().check()
        task = self.resolve_task()
        is_of_classes = task.loss.has_class_weights
        if self.class_weights and (self.approach == "features" or not (is_of_classes and task.has_classes)):
            raise SettingError(
                "class_weights",
                self.class_weights,
                "a task in which each text or word has one class, and another approach than 'features'",
            )
        for name, is_of_texts in (("pooling", self.pooling), ("approach", self.approach in ("linear_probe", "auto"))):
            if is_of_texts and not classifies_texts(task):
                raise SettingError.worded(
                    "{:option} is {!r} and {task} {!r}; {}.", name, getattr(self, name), self.task, _EXPECTED_TEXTS
                )
        if self.approach == "auto" and not self.folds:
            raise SettingError.worded(
                "{approach} is 'auto' without {folds}, by which it compares; pass folds as well, such as 5."
            )
        if self.label_smoothing_factor and not is_of_classes:
            raise SettingError(
                "label_smoothing_factor",
                self.label_smoothing_factor,
                "a task in which one of several classes or choices is right",
            )
        several = self.data_dir or self.dataset  # which may hold all kinds of data
        if self.do_eval and not (self.validation_file or self.validation_split or self.folds or several):
            raise SettingError.worded(
                "{do_eval} is set without validation data ({validation_file}); {}.", _DONE_ANYWAY
            )
        if self.do_predict and not (self.test_file or several):
            raise SettingError.worded("{do_predict} is set without test data ({test_file}); {}.", _DONE_ANYWAY)


def main_metric(task: Task, files: TaskFiles) -> str:
    """The metric that selects the best model if none is given: the task's, on the first validation data."""
    names = [name for name in evaluation_names(task, files.validation_file or ()) if name]
    return "_".join([*names[:1], task.main_metric])


def found_files(settings: TaskTrainingSettings, task: Task) -> TaskFiles:
    """The data files of a run: those given, and those found in the folder of a benchmark, compressed or not."""
    files = settings.files
    if not files.data_dir:
        return files
    folder = Path(files.data_dir)
    if not folder.is_dir():
        refuse_address(files.data_dir)
        raise SettingError.worded("{data_dir} is {!r}, which is not a folder.", files.data_dir)
    if not task.files:
        raise SettingError.worded(
            "The task {} has no benchmark files to look for in {data_dir}; use {train_file}.", settings.task
        )
    for split in SPLITS:
        name = f"{split}_file"
        if getattr(files, name) or (split == "validation" and settings.folds):
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
