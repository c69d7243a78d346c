"""The settings of `mybert finetune`."""

import logging
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.training_args import OptimizerNames

from ...files import refuse_address
from ...files.settings import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    SHARE_ABOVE_0,
    Range,
    check_settings,
    refuse_given,
)
from ...files.source import GivenData
from ...runs import RunArguments, check_libraries, started_on_cpus
from ..data.rows import DataSource, hub_splits, source_of, sources_of
from ..tasks.task import Task
from ..tasks.task_arguments import TaskArguments, benchmark_files, evaluation_names
from .learning_rates import rate_for_size
from .samples import SAMPLE_SETTINGS, SampleSettings

logger = logging.getLogger(__name__)

SPLITS = ("train", "validation", "test")
# Settings that determine a run's result, in addition to the task's; not those on processes and speed.
_DECISIVE = (
    *("model", "train_file", "dataset", "dataset_config", "approach", "features", "lstm_size", "bilstm", "seeds"),
    *("freeze", "freeze_layers", "train_head_first", "gradual_unfreezing", "reinitialize_layers", "layer_decay"),
    *("embedding_learning_rate", "dropout"),
    *("new_head", "from_scratch", "keep_model_type", "lora", "peft_config"),
    *("correct_bias", "optim", "optim_args", "optim_target_modules"),
    *("learning_rate", "warmup_steps", "lr_scheduler_type", "lr_scheduler_kwargs", "weight_decay", "max_grad_norm"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "label_smoothing_factor", "neftune_noise_alpha"),
    *("bf16", "fp16", "tf32", "bf16_full_eval", "fp16_full_eval"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "average_tokens_across_devices"),
    *("max_steps", "num_train_epochs", "dataloader_drop_last", "train_sampling_strategy", "length_column_name"),
    *SAMPLE_SETTINGS,
    *("seed", "data_seed", "ignore_data_skip", "save_only_model"),
    *("load_best_model_at_end", "metric_for_best_model", "greater_is_better"),
)
# Settings without a meaning if only a tagger on frozen features is trained.
_OF_THE_WHOLE_MODEL = (
    *("bilstm", "freeze", "freeze_layers", "train_head_first", "gradual_unfreezing", "reinitialize_layers"),
    *("layer_decay", "embedding_learning_rate", "dropout", "from_scratch", "new_head", "keep_model_type"),
)
# Settings of trained or re-initialised weights; with an adapter, all weights but the head's are frozen.
_NOT_WITH_ADAPTERS = tuple(
    name for name in _OF_THE_WHOLE_MODEL if name not in ("dropout", "new_head", "keep_model_type")
)
_ADAMW = ("adamw_torch", "adamw_torch_fused")  # which can run without bias correction
_SCHEDULED_BY_EVALUATIONS = ("reduce_lr_on_plateau", "greedy")
_DECISIVE_WHERE_EVALUATIONS_COUNT = ("eval_strategy", "eval_steps", "eval_delay", "save_strategy", "save_steps")
_LEARNING_RATE = 5e-5  # of BERT base
_FALLBACKS = {"num_train_epochs": 3.0, "per_device_train_batch_size": 32}
_NOTHING_EVALUATED = "nothing is evaluated; give a validation_file, or hold out data with validation_split"
_SHARED = RunArguments.__dataclass_fields__
_FROM_MINUS_1 = Range("at least 0, or -1 for none", lambda value: value >= -1)


@dataclass
class FinetuningArguments(TaskArguments, SampleSettings, RunArguments):
    """Settings of `finetune`: the task's, the fields below, and all of transformers' `TrainingArguments`.

    In Python, `train_file`, `validation_file` and `test_file` may also be data in memory: a `pandas.DataFrame`, a
    `datasets.Dataset` or an iterable, see `rows.rows_of`; for several validation sets, a dictionary by name.

    Raises:
        ValueError: If a setting is missing or out of range.
    """

    data_settings: ClassVar[tuple[str, ...]] = ("train_file", "validation_file", "test_file")
    """The fields for data."""

    displaces: ClassVar[dict[str, tuple[str, ...]]] = RunArguments.displaces | {
        "train_file": ("dataset", "dataset_config"),
        "data_dir": ("dataset", "dataset_config"),
        "dataset": ("train_file", "validation_file", "data_dir"),
        "validation_file": ("dataset", "dataset_config", "validation_split", "folds"),
        "validation_split": ("validation_file", "folds"),
        "folds": ("validation_file", "validation_split", "early_stopping_patience", "load_best_model_at_end"),
        "lora": ("peft_config",),
        "peft_config": ("lora",),
        "freeze": (
            *("train_head_first", "gradual_unfreezing", "freeze_layers", "layer_decay"),
            *("embedding_learning_rate", "reinitialize_layers"),
        ),
        "freeze_layers": ("freeze", "embedding_learning_rate"),
        "layer_decay": ("freeze",),
        "embedding_learning_rate": ("freeze", "freeze_layers"),
        "from_scratch": ("reinitialize_layers",),
        "reinitialize_layers": ("from_scratch", "freeze"),
        "bilstm": ("keep_model_type",),
        "keep_model_type": ("bilstm",),
        "train_head_first": ("freeze",),
        "gradual_unfreezing": ("freeze",),
    }

    model: str = field(default="", metadata={"help": "Model folder or Hub name to start from."})
    train_file: str | None = field(
        default=None,
        metadata={"help": "Training data (.csv, .tsv, .json, .jsonl, .parquet, CoNLL, compressed or not)."},
    )
    validation_file: list[str] | None = field(
        default=None, metadata={"help": "Data to evaluate on; several files (MNLI) are reported one by one."}
    )
    test_file: list[str] | None = field(
        default=None, metadata={"help": "Data to predict; labels are optional, and scored if present."}
    )
    data_dir: str | None = field(default=None, metadata={"help": "Folder with the benchmark's files as downloaded."})
    dataset: str | None = field(default=None, metadata={"help": "Data set on the Hub, in place of files."})
    dataset_config: str | None = field(default=None, metadata={"help": "Configuration of the data set on the Hub."})
    approach: Literal["finetune", "features"] = field(
        default="finetune",
        metadata={"help": "Train the whole model, or a BiLSTM tagger on its frozen features (paper, section 5.3)."},
    )
    features: str = field(
        default="concat_last_four", metadata={"help": "Features of the tagger; 'all' for every row of Table 7."}
    )
    lstm_size: Annotated[int, AT_LEAST_1] = field(
        default=768, metadata={"help": "Units of the tagger's LSTMs in each direction."}
    )
    bilstm: bool = field(default=False, metadata={"help": "Put a BiLSTM on top of the encoder (paper, section 5.1)."})
    seeds: Annotated[int, AT_LEAST_1] = field(
        default=1, metadata={"help": "Number of runs, each with another seed; the best is kept."}
    )
    freeze: Literal["encoder"] | None = field(
        default=None, metadata={"help": "'encoder': train only pooler and head."}
    )
    freeze_layers: Annotated[int, _FROM_MINUS_1] = field(
        default=-1, metadata={"help": "Freeze the embeddings and this many of the lowest layers; -1 freezes nothing."}
    )
    train_head_first: Annotated[float, AT_LEAST_0] = field(
        default=0.0, metadata={"help": "Epochs at the start that train only pooler and head."}
    )
    gradual_unfreezing: Annotated[float, AT_LEAST_0] = field(
        default=0.0, metadata={"help": "Epochs between unfreezing one layer and the next, from the top down."}
    )
    reinitialize_layers: Annotated[int, AT_LEAST_0] = field(
        default=0, metadata={"help": "Top layers to start from random weights."}
    )
    layer_decay: Annotated[float, SHARE_ABOVE_0] = field(
        default=1.0, metadata={"help": "Factor on the learning rate from each layer to the one below (0.95, say)."}
    )
    embedding_learning_rate: Annotated[float, ABOVE_0] = field(
        default=1.0,
        metadata={"help": "Factor on the learning rate of the word embeddings, beside layer_decay (10, say)."},
    )
    dropout: Annotated[float | None, SHARE] = field(
        default=None,
        metadata={
            "help": "Dropout of hidden states and attention, in [0, 1]. Default: the model's own, or 0.1 if new."
        },
    )
    lora: bool = field(
        default=False,
        metadata={"help": "Train adapters of rank 8 on query and value, and the head; merged at the end (PEFT)."},
    )
    peft_config: str | None = field(
        default=None, metadata={"help": "JSON or YAML file with any other PEFT configuration, instead of --lora."}
    )
    correct_bias: bool = field(
        default=True, metadata={"help": "Adam with bias correction; False gives the optimizer of Google's BERT."}
    )
    new_head: bool = field(
        default=False, metadata={"help": "Start with a new head even if the model has been fine-tuned."}
    )
    from_scratch: bool = field(
        default=False, metadata={"help": "Start from random weights (to see what pretraining is worth)."}
    )
    keep_model_type: bool = field(
        default=False,
        metadata={"help": "Train a bert checkpoint with transformers' own class, not with MyBERT."},
    )
    learning_rate: float | None = field(
        default=None,
        metadata={
            "help": "Peak learning rate (default 5e-5 x 768 / hidden size, SWAG 2e-5 x the same, adapters 5e-4, "
            "tagger on features 1e-3)."
        },
    )
    num_train_epochs: float | None = field(
        default=None, metadata={"help": "Epochs (default 3, SQuAD 2.0 2, tagger on features 20)."}
    )
    per_device_train_batch_size: int | None = field(
        default=None, metadata={"help": "Sequences per batch and device (default 32, SWAG 16)."}
    )
    warmup_steps: float = field(default=0.1, metadata={"help": "Steps of warm-up; below 1 a share of all steps."})
    save_strategy: SaveStrategy | str = field(default="epoch", metadata=_SHARED["save_strategy"].metadata)
    eval_strategy: IntervalStrategy | str = field(default="epoch", metadata=_SHARED["eval_strategy"].metadata)
    save_total_limit: int | None = field(default=1, metadata={"help": "Keep this many checkpoints, besides the best."})
    # None: if it is evaluated and saved at the same steps.
    load_best_model_at_end: bool | None = field(default=None, metadata=_SHARED["load_best_model_at_end"].metadata)
    why_learning_rate: str = field(default="", init=False)  # for the card, if it is not set

    def __post_init__(self) -> None:
        """Fill in the task's defaults, and check what can be checked without looking at the data."""
        self.train_file = source_of(self.train_file, "train_file")  # type: ignore[assignment]
        for name in ("validation_file", "test_file"):
            setattr(self, name, sources_of(getattr(self, name), name) or None)
        for name in ("model", "output_dir"):
            if not getattr(self, name):
                raise ValueError(f"{name} is not set; fine-tuning needs model, output_dir and training data.")
            setattr(self, name, str(getattr(self, name)))
        self._check()
        task = self.resolve_task()
        is_of_classes = task.objective == "classes"
        if self.class_weights and (self.approach == "features" or not (is_of_classes and task.has_classes)):
            raise ValueError(
                f"class_weights is {self.class_weights!r}; expected a task in which each text or word has one class, "
                "and approach 'finetune'."
            )
        if self.label_smoothing_factor and not is_of_classes:
            raise ValueError(
                f"label_smoothing_factor is {self.label_smoothing_factor}; expected a task in which one of several "
                "classes or choices is right."
            )
        self._find_files(task)
        self._check_training_data()
        if self.validation_split and self.validation_file:
            raise ValueError("validation_split and validation data are both given; expected one of them.")
        if self.folds:
            self._check_folds()
        elif not self.dataset:
            self._check_seeds(self.validation_file or self.validation_split)
        defaults: dict[str, Any] = {**_FALLBACKS, **task.defaults}
        if self.approach == "features":
            defaults |= {"num_train_epochs": 20.0}
        for name in _FALLBACKS:
            if getattr(self, name) is None:
                setattr(self, name, defaults[name])
        if not self.validation_file and not self.dataset and not self.validation_split and not self.folds:
            self.eval_strategy, self.eval_steps = "no", None
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
        self._check_best()
        self._check_patience()
        if self.metric_for_best_model is None:
            names = [name for name in evaluation_names(task, self.validation_file or ()) if name]
            self.metric_for_best_model = "_".join([*names[:1], task.main_metric])
        if started_on_cpus():
            self.use_cpu = True
        super().__post_init__()
        for name, given, wanted in (
            (
                "do_eval",
                self.validation_file or self.validation_split or self.folds or self.data_dir or self.dataset,
                "validation data (validation_file)",
            ),
            ("do_predict", self.test_file or self.data_dir or self.dataset, "test data (test_file)"),
        ):
            if getattr(self, name) and not given:
                raise ValueError(f"{name} is set without {wanted}; whatever has data is done anyway.")

    def _check_training_data(self) -> None:
        if not self.train_file and not self.dataset:
            raise ValueError("train_file is not set; give training data as train_file, data_dir or dataset.")

    def choose_learning_rate(self) -> None:
        """Set the learning rate that the user has not given, and log why; the model must exist by now.

        Raises:
            OSError: If there is no such model.
            ValueError: If `lr_scheduler_kwargs` does not fit the rate.
        """
        if self.learning_rate is None:
            self.learning_rate, self.why_learning_rate = self._default_learning_rate()
            logger.info("Learning rate: %g (%s).", self.learning_rate, self.why_learning_rate)
            check_libraries(self)

    def _default_learning_rate(self) -> tuple[float, str]:
        """The default learning rate and the reason for it."""
        if self.approach == "features":
            return 1e-3, "for a tagger on features"
        if self.has_adapter:
            return 5e-4, "for adapters"
        return rate_for_size(self.resolve_task().defaults.get("learning_rate", _LEARNING_RATE), self.model)

    def _check(self) -> None:
        check_settings(self)
        if self.dataset and (self.train_file or self.validation_file or self.data_dir):
            raise ValueError(f"dataset is {self.dataset!r} but files are given as well; expected one of the two.")
        if self.approach == "features":
            refuse_given(self, _OF_THE_WHOLE_MODEL, "with approach 'features', where the whole encoder is frozen")
        if self.lora and self.peft_config:
            raise ValueError(f"lora is set and peft_config is {self.peft_config!r}; expected one of the two.")
        if self.has_adapter:
            adapter = "lora" if self.lora else "peft_config"
            why = f"with {adapter}, where only adapters, pooler and head are trained"
            refuse_given(self, (*_NOT_WITH_ADAPTERS, "approach"), why)
        for names, is_idle, where in (
            (("features", "lstm_size"), self.approach != "features", "without approach 'features'"),
            (("dataset_config",), not self.dataset, "without dataset"),
            (("freeze_layers", "layer_decay", "embedding_learning_rate"), self.freeze, "with freeze 'encoder'"),
            (("embedding_learning_rate",), self.freeze_layers >= 0, f"with freeze_layers {self.freeze_layers}"),
            (("reinitialize_layers",), self.from_scratch, "with from_scratch"),
            (("keep_model_type",), self.bilstm, "with bilstm"),
        ):
            if is_idle:
                refuse_given(self, names, f"{where}, where it has no effect")
        if not self.correct_bias and self.optim not in _ADAMW:
            raise ValueError(
                f"correct_bias is False and optim is {OptimizerNames(self.optim).value!r}; without bias correction "
                f"expected {' or '.join(_ADAMW)}."
            )
        if self.freeze and (self.train_head_first or self.gradual_unfreezing):
            raise ValueError("freeze is 'encoder', but the encoder is to be unfrozen later; expected one of the two.")
        if self.freeze and self.reinitialize_layers:
            raise ValueError(
                f"freeze is 'encoder' and reinitialize_layers is {self.reinitialize_layers}: random layers would "
                "never be trained; expected one of the two."
            )

    @property
    def has_adapter(self) -> bool:
        """Whether adapters are trained."""
        return self.lora or self.peft_config is not None

    def _check_best(self) -> None:
        if self.save_strategy == "best" and self.eval_strategy == "no":
            raise ValueError("save_strategy is 'best' but nothing is evaluated; there is no telling which is best.")
        if self.load_best_model_at_end and self.eval_strategy == "no":
            raise ValueError(f"load_best_model_at_end is True, but {_NOTHING_EVALUATED}.")

    def _check_patience(self) -> None:
        if self.early_stopping_patience is not None and not self.load_best_model_at_end:
            why = (
                _NOTHING_EVALUATED
                if self.eval_strategy == "no"
                else f"checkpoints are saved by {self.save_strategy!r} and evaluated by {self.eval_strategy!r}, so "
                "the best is not kept"
            )
            raise ValueError(f"early_stopping_patience is {self.early_stopping_patience}, but {why}.")

    def _check_folds(self) -> None:
        """Reject settings that need separate validation data, or select models by the fold that measures them."""
        for name in ("validation_file", "validation_split", "early_stopping_patience", "load_best_model_at_end"):
            if getattr(self, name):
                what = (
                    "each fold is the validation data in turn"
                    if "validation" in name
                    else "a fold that is measured must not choose the checkpoint"
                )
                raise ValueError(
                    f"folds is {self.folds} and {name} is {getattr(self, name)!r}: {what}; leave one out."
                )
        if self.seeds > 1 or self.features == "all":
            other = f"seeds is {self.seeds}" if self.seeds > 1 else "features is 'all'"
            raise ValueError(f"folds is {self.folds} and {other}; expected one of the two.")
        if self.save_strategy == "best":
            raise ValueError(
                f"folds is {self.folds} and save_strategy is 'best', which needs validation data of its own."
            )
        self.load_best_model_at_end = False

    def _check_seeds(self, validation: Any) -> None:
        if self.seeds > 1 and not validation:
            raise ValueError(f"seeds is {self.seeds} without validation data; there is no telling which run is best.")

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
            if getattr(self, name):
                continue
            if files := benchmark_files(folder, task, split):
                setattr(self, name, files[0] if split == "train" else files)
        if not self.train_file:
            there = ", ".join(sorted(path.name for path in folder.iterdir())[:8])
            raise ValueError(f"{folder} has no {' or '.join(task.files['train'])}; it holds {there or 'nothing'}.")

    def _hub_fields(self, task: Task) -> dict[str, Any]:
        return dict(task.hub) if self.dataset else {}

    def sources(self, task: Task) -> dict[str, dict[str, DataSource]]:
        """Data by split and name; a split's only data set has the name "".

        The validation data of a Hub data set is known only here; the evaluation settings are adapted to it.

        Raises:
            ValueError: If the data set on the Hub has no training data, or no validation data to select the best seed.
            OSError: If it cannot be loaded.
        """
        if not self.dataset:
            return {
                "train": {"": self.train_file} if self.train_file else {},
                "validation": evaluation_names(task, self.validation_file or ()),
                "test": evaluation_names(task, self.test_file or ()),
            }
        splits = hub_splits(self.dataset, self.dataset_config)
        by_kind = {kind: [split for split in splits if split.split.startswith(kind)] for kind in SPLITS}
        if not by_kind["train"]:
            raise ValueError(f"{self.dataset} has no split train; it has {', '.join(s.split for s in splits)}.")
        validation = evaluation_names(task, by_kind["validation"])
        if self.folds:
            validation = {}
        if validation and self.validation_split:
            raise ValueError(
                f"validation_split is set, but {self.dataset} has validation data; expected one of the two."
            )
        self._check_seeds(validation or self.validation_split)
        if not validation and not self.validation_split and not self.folds:
            self.eval_strategy, self.load_best_model_at_end = IntervalStrategy.NO, False
            self._check_best()
            self._check_patience()
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

    def decisive(self) -> dict[str, Any]:
        """The settings that determine a run's result: an interrupted run is resumed only with the same."""
        names = [option.name for option in fields(TaskArguments)] + list(_DECISIVE)
        if self.load_best_model_at_end or self.lr_scheduler_type in _SCHEDULED_BY_EVALUATIONS:
            names += _DECISIVE_WHERE_EVALUATIONS_COUNT
        settings: dict[str, Any] = {"command": "finetune"} | {name: getattr(self, name) for name in names}
        for name in self.data_settings:  # files are identified by digests
            data = [source for source in sources_of(getattr(self, name), name) if isinstance(source, GivenData)]
            settings |= {str(source): source.recorded for source in data}
        return settings
