"""The settings of `mybert finetune`."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ...files.choices import choice
from ...files.errors import SettingError
from ...files.options import ABOVE_0, AT_LEAST_0, AT_LEAST_1, SHARE_ABOVE_0, Group, Range, option
from ...files.source import source_of, sources_of
from ...runs.training_settings import Batches, Optimization, Records, TrainingSettings
from ..network_settings import Network
from ..settings.parts import SKIP_EMPTY_HELP, AnswerSettings, TargetSettings, TaskArguments, TaskChoice

SPLITS = ("train", "validation", "test")
_DONE_ANYWAY = "mybert finetune evaluates and predicts all data that it is given"
_PART = Range("a fraction in (0, 1), or 0 for none", 0, 1, (1,))
_SEVERAL = Range("at least 2, or 0 for none", 0, excluded=(1,))
_FOLDS = 4  # of an automatic choice, by default
_MANY_TEXTS = 100  # of a class: benchmarks/results/few_labels_2core-amd-epyc_2026-11-28.md
_FROM_MINUS_1 = Range("at least 0, or -1 for none", -1)
_EXPECTED_TEXTS = "expected a task that classifies texts: classification, multilabel, regression, or one of GLUE's"


@dataclass(frozen=True, eq=False)
class Approach:
    """How a network learns from labeled examples."""

    name: str
    takes_steps: bool = True  # whether an optimizer trains it
    fits_head: bool = False  # whether the head is then fitted to vectors of texts
    defaults: Mapping[str, Any] = field(default_factory=dict)
    rate: tuple[float, str] | None = None  # the default learning rate, if not the task's, and why
    compared: tuple["Approach", ...] = ()  # of which cross-validation finds the best
    with_many_texts: "Approach | None" = None  # see `in_doubt`

    def in_doubt(self, texts_a_class: float) -> "Approach":
        """Of those that are compared, the one that is kept if none is clearly better."""
        has_many = texts_a_class >= _MANY_TEXTS
        return self.with_many_texts if self.with_many_texts and has_many else self.compared[0]


FINETUNING = Approach("finetune")
ADAPTERS = Approach("finetune", rate=(5e-4, "for adapters"))
LINEAR_PROBE = Approach("linear_probe", takes_steps=False, fits_head=True)
CONTRASTIVE = Approach("contrastive", fits_head=True, defaults={"num_train_epochs": None})  # by the number of texts
FEATURE_TAGGING = Approach("features", defaults={"num_train_epochs": 20.0}, rate=(1e-3, "for a tagger on features"))
BEST = Approach("auto", compared=(CONTRASTIVE, FINETUNING, LINEAR_PROBE), with_many_texts=FINETUNING)
BEST_HEAD = Approach("auto", compared=(LINEAR_PROBE, FINETUNING))


@dataclass(frozen=True, kw_only=True)
class TestData:
    """Data to predict at the end."""

    group = Group.INPUT
    test_file: list[str] | None = option(
        None, "Data to predict; labels are optional, and scored if present.", reads="rows"
    )


@dataclass(frozen=True, kw_only=True)
class Files(TestData):
    """Files of data."""

    group = Group.INPUT
    train_file: str | None = option(
        None,
        "Training data (.csv, .tsv, .json, .jsonl, .parquet, .xlsx, CoNLL, compressed or not).",
        decides=True,
        required="data_dir dataset unlabeled class_names",
        reads="examples",
    )
    data_dir: str | None = option(None, "Folder with the benchmark's files as downloaded.", reads="file")


@dataclass(frozen=True, kw_only=True)
class OnHub(TestData):
    """A data set of the Hub, with splits."""

    asks: ClassVar[str] = "dataset"
    why: ClassVar[str] = "which has splits of its own"
    lacks: ClassVar[tuple[str, ...]] = ("validation_file",)
    group = Group.INPUT
    dataset: str | None = option(None, "Data set on the Hub, in place of files.", decides=True)
    dataset_config: str | None = option(None, "Configuration of the data set on the Hub.", decides=True)


@dataclass(frozen=True, kw_only=True)
class ClassNames(TestData):
    """Names of classes in place of labeled texts: each class has one text, made of its name."""

    asks: ClassVar[str] = "class_names"
    why: ClassVar[str] = "which stand in for labeled texts"
    lacks: ClassVar[tuple[str, ...]] = ("validation_split", "folds")
    group, decides = Group.INPUT, True
    class_names: list[str] | None = option(
        None, "Classes to learn from their names alone, without labeled texts, by a linear probe (classification)."
    )
    label_template: str = option(
        "This text is about {}.",
        "Text that stands for a class of class_names; {} is its name.",
        group=Group.EXAMPLES,
        decides="if_not_default",
    )


@dataclass(frozen=True, kw_only=True)
class GivenFile:
    """Validation data of its own, if any."""

    group = Group.INPUT
    validation_file: list[str] | None = option(
        None, "Data to evaluate on; several files (MNLI) are reported one by one.", reads="examples"
    )


@dataclass(frozen=True, kw_only=True)
class HeldOut:
    """A part of the training data as validation data."""

    group, decides = Group.EXAMPLES, True
    validation_split: float = option(
        0.0,
        "Fraction of the training data, in (0, 1), held out as validation data, drawn by the seed, stratified by "
        "class. For data without a validation file.",
        _PART,
    )


@dataclass(frozen=True, kw_only=True)
class Folds:
    """Cross-validation."""

    why: ClassVar[str] = "where each part is the validation data in turn, and must not choose a checkpoint"
    lacks: ClassVar[tuple[str, ...]] = ("num_seeds", "load_best_model_at_end", "early_stopping_patience")
    group, decides = Group.EXAMPLES, True
    folds: int = option(
        0,
        "Cross-validation: this many trainings, each evaluated on a different part of the training data, and a last "
        "one on all of it.",
        _SEVERAL,
    )


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Which layers are trained, and at which rates."""

    group, decides = Group.PARTS, True
    freeze_layers: int = option(
        -1,
        "Freeze the embeddings and this many of the lowest layers; -1 freezes nothing.",
        _FROM_MINUS_1,
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
class LayersInTurn(Layers):
    """When which layers are trained, and at which rates."""

    group, decides = Group.PARTS, True
    train_head_first: float = option(0.0, "Epochs at the start that train only pooler and head.", AT_LEAST_0)
    gradual_unfreezing: float = option(
        0.0, "Epochs between unfreezing one layer and the next, from the top down.", AT_LEAST_0
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
class FineTune(AnyNetwork, LayersInTurn):
    """Train the whole model, or its upper layers."""

    method: ClassVar[Approach] = FINETUNING
    name: ClassVar[str] = FINETUNING.name
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

    method: ClassVar[Approach] = FINETUNING
    name: ClassVar[str] = FINETUNING.name


@dataclass(frozen=True, kw_only=True)
class Adapter:
    """Train adapters next to frozen weights, and the head; they are merged at the end."""

    method: ClassVar[Approach] = ADAPTERS
    name: ClassVar[str] = ADAPTERS.name
    why: ClassVar[str] = "where only adapters, pooler and head are trained"


@dataclass(frozen=True, kw_only=True)
class Lora(Adapter):
    """The usual adapters."""

    group, decides = Group.PARTS, True
    lora: bool = option(False, "Train adapters of rank 8 on query and value, and the head; merged at the end (PEFT).")


@dataclass(frozen=True, kw_only=True)
class GivenAdapter(Adapter):
    """Adapters of another configuration."""

    group, decides = Group.PARTS, True
    peft_config: str | None = option(
        None, "JSON or YAML file with any other PEFT configuration, instead of --lora.", reads="file"
    )


@dataclass(frozen=True, kw_only=True)
class LinearProbe:
    """Fit a linear head to frozen vectors of texts."""

    method: ClassVar[Approach] = LINEAR_PROBE
    name: ClassVar[str] = LINEAR_PROBE.name
    why: ClassVar[str] = "which uses a frozen encoder"
    lacks: ClassVar[tuple[str, ...]] = ("dropout", "learning_rate", "num_seeds", "early_stopping_patience")


@dataclass(frozen=True, kw_only=True)
class Contrastive(Layers):
    """Train the encoder until texts with equal labels have similar vectors; then fit a linear head to these."""

    method: ClassVar[Approach] = CONTRASTIVE
    name: ClassVar[str] = CONTRASTIVE.name
    why: ClassVar[str] = "which fits the head after the last step"
    lacks: ClassVar[tuple[str, ...]] = ("load_best_model_at_end", "early_stopping_patience", "label_smoothing_factor")


@dataclass(frozen=True, kw_only=True)
class Tagger:
    """Train a BiLSTM tagger on frozen features (paper, section 5.3)."""

    method: ClassVar[Approach] = FEATURE_TAGGING
    name: ClassVar[str] = FEATURE_TAGGING.name
    why: ClassVar[str] = "which uses a frozen encoder"
    lacks: ClassVar[tuple[str, ...]] = ("pooling", "dropout", "new_head", "keep_model_type")
    group, decides = Group.FEATURES, True
    features: str = option("concat_last_four", "Features of the tagger; 'all' for every row of Table 7.")
    lstm_size: int = option(768, "Units of the tagger's LSTMs in each direction.", AT_LEAST_1)


@dataclass(frozen=True, kw_only=True)
class Best(LayersInTurn):
    """Contrastive training with few labels or fine-tuning, unless cross-validation shows that another is better."""

    method: ClassVar[Approach] = BEST
    name: ClassVar[str] = BEST.name


@dataclass(frozen=True, kw_only=True)
class BestHead(Frozen):
    """A linear probe, unless cross-validation shows that a fine-tuned head is better."""

    method: ClassVar[Approach] = BEST_HEAD
    name: ClassVar[str] = BEST_HEAD.name


@dataclass(frozen=True, kw_only=True)
class SampleSettings:
    """Settings for selecting and weighting examples; results depend only on the data and the seed."""

    group = Group.EXAMPLES
    decides = True
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
    )


@dataclass(frozen=True, kw_only=True)
class LabeledSamples(SampleSettings):
    """How examples are selected and weighted where all have labels."""

    group = Group.EXAMPLES
    decides = True
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
        None, "Epochs (default: 3, SQuAD 2.0 2, tagger on features 20, 'auto' up to 20)."
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
    load_best_model_at_end: bool | None = option(None)


@dataclass(frozen=True, kw_only=True)
class TaskTrainingSettings(TaskChoice, TrainingSettings):
    """What a user says of every training on a task's data, with and without a teacher."""

    optimization: FinetuningOptimization = field(default_factory=FinetuningOptimization)
    batches: FinetuningBatches = field(default_factory=FinetuningBatches)
    records: FinetuningRecords = field(default_factory=FinetuningRecords)
    network: Network = field(default_factory=Network)
    source: Files | OnHub = choice(Files)
    reading: TaskArguments = field(default_factory=TaskArguments)
    targets: TargetSettings = field(default_factory=TargetSettings)
    answers: AnswerSettings = field(default_factory=AnswerSettings)
    validation: GivenFile | HeldOut | Folds = choice(GivenFile)
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

    def _given_settings(self, name: str) -> dict[str, Any]:
        from ..tasks.registry import TASKS  # with torch, after the command line has checked flags and files

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
    source: Files | OnHub | ClassNames = choice(Files)  # type: ignore[assignment]  # further ones
    trained: FineTune | HeadOnly | Lora | GivenAdapter | LinearProbe | Contrastive | Tagger | Best | BestHead = choice(
        FineTune,
        "approach",
        "finetune",
        "'finetune' trains the whole model; for few labels, 'linear_probe' fits a linear head to frozen vectors "
        "of texts, 'contrastive' first trains these vectors on pairs of equal and unequal labels, and 'auto' "
        "compares the three by cross-validation; 'features' trains a BiLSTM tagger on frozen features "
        "(paper, section 5.3).",
        group=Group.FEATURES,
        decides=True,
    )
    samples: LabeledSamples = field(default_factory=LabeledSamples)

    @property
    def has_adapter(self) -> bool:
        """Whether adapters are trained."""
        return isinstance(self.trained, Adapter)

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option; some approaches have own defaults."""
        given = super().read(given)
        held_out = given.get("validation_file") or given.get("validation_split")
        if given.get("approach") == BEST.name and not held_out:
            given["folds"] = given.get("folds") or _FOLDS
        if given.get("class_names"):  # fine-tuning on so few texts learns nothing
            given["approach"] = given.get("approach") or LINEAR_PROBE.name
            given["class_names"] = [str(name) for name in given["class_names"]]
        return given

    def _check_class_names(self, task: Any) -> None:
        if not (task.classifies_texts and task.has_one_class and task.text_pair_column is None):
            raise SettingError.worded(
                "{class_names} is set and {task} is {!r}; expected a task that gives a single text one class.",
                self.task,
            )
        if len(set(self.class_names)) < max(2, len(self.class_names)):
            raise SettingError("class_names", self.class_names, "at least two different names")
        if "{}" not in self.label_template:
            raise SettingError("label_template", self.label_template, "a text with {}, for the name of a class")

    def check(self) -> None:
        """Reject values that do not go together, as far as they can be checked without looking at the data."""
        super().check()
        if self.folds and (self.save_strategy == "best" or self.features == "all"):
            name = "save_strategy" if self.save_strategy == "best" else "features"
            raise SettingError.worded(
                "{folds} is {} and {:option} is {!r}, {}; use either {folds} or {:option}.",
                self.folds,
                name,
                getattr(self, name),
                Folds.why,
                name,
            )
        task = self.resolve_task()
        is_of_classes = task.loss.has_class_weights
        if self.class_weights and (self.trained.method is FEATURE_TAGGING or not (is_of_classes and task.has_classes)):
            raise SettingError(
                "class_weights",
                self.class_weights,
                "a task in which each text or word has one class, and another approach than 'features'",
            )
        if self.class_names:
            self._check_class_names(task)
        method = self.trained.method
        for name, is_of_texts in (("pooling", self.pooling), ("approach", method.fits_head or method.compared)):
            if is_of_texts and not task.classifies_texts:
                raise SettingError.worded(
                    "{:option} is {!r} and {task} {!r}; {}.", name, getattr(self, name), self.task, _EXPECTED_TEXTS
                )
        if method.compared and not self.folds:
            raise SettingError.worded(
                "{approach} is 'auto' with validation data; it compares by {folds} of the training data, so leave the "
                "validation data out."
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
