"""The settings of `mybert pretrain`."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal

from ..files.choices import choice
from ..files.documents import DocumentSettings
from ..files.errors import SettingError
from ..files.options import ABOVE_0, AT_LEAST_1, SHARE, SHARE_BELOW_1, Group, option
from ..files.source import sources_of
from ..modeling_mybert.model_sizes import MODEL_SIZES
from ..runs.model_sizes import fields_of_size
from ..runs.training_settings import Batches, Machine, Optimization, Records, TrainingSettings
from ..tokenization.settings import VocabularyBasics
from .settings import CorpusSettings, ExampleSettings, MaskingRates, NewPiecesSettings

_READING = (*(each.name for each in fields(DocumentSettings)), "filter")
_NEW_VOCABULARY = tuple(each.name for each in fields(VocabularyBasics))


@dataclass(frozen=True, kw_only=True)
class FromText:
    """Text, which is tokenized."""

    group = Group.INPUT
    text: list[str] = option(
        [],
        "Text to train on: files, folders, patterns or data sets of the Hub (hf:owner/name). Plain text has one "
        "sentence per line and a blank line between documents, or wrapped lines; CSV, TSV, JSON lines and Parquet "
        "are read too.",
        positional=2,
        required="token_store",
        reads="text",
    )


@dataclass(frozen=True, kw_only=True)
class FromStore:
    """Text that is tokenized already."""

    why: ClassVar[str] = "whose text was chosen when it was made"
    lacks: ClassVar[tuple[str, ...]] = (*_READING, *_NEW_VOCABULARY)
    group = Group.INPUT
    token_store: str | None = option(
        None, "Token store (a file, or a folder of shards) instead of --text.", reads="file"
    )


@dataclass(frozen=True, kw_only=True)
class GivenTokenizer:
    """A tokenizer that exists."""

    group, decides = Group.INPUT, True
    tokenizer: str | None = option(
        None, "Folder or vocab.txt of a tokenizer; without it one is trained on the text.", reads="model"
    )


@dataclass(frozen=True, kw_only=True)
class AnyModel:
    """What may be changed of a new model and of one that exists."""

    group, decides = Group.MODEL, True
    dropout: float | None = option(
        None,
        "Dropout of hidden states and attention, in [0, 1] (default: the model's own, or 0.1 if new).",
        SHARE,
    )


@dataclass(frozen=True, kw_only=True)
class NewModel(AnyModel):
    """The size of a new model, and the embeddings it begins with."""

    group, decides = Group.MODEL, True
    model_size: str = option(
        "base",
        "Size, layers x hidden size: "
        + ", ".join(f"{size} ({layers}x{width})" for size, (layers, width, _) in MODEL_SIZES.items())
        + ", or another.",
    )
    num_hidden_layers: int | None = option(None, "Layers, if not those of model_size.", AT_LEAST_1)
    hidden_size: int | None = option(None, "Hidden size, if not that of model_size.", AT_LEAST_1)
    num_attention_heads: int | None = option(None, "Attention heads, if not those of model_size.", AT_LEAST_1)
    embedding_init: Literal["random", "cooccurrence"] = option(
        "random", "Initial word embeddings; cooccurrence: from counts of neighboring words in the text."
    )


@dataclass(frozen=True, kw_only=True)
class FromModel(AnyModel):
    """A model that exists."""

    why: ClassVar[str] = "which has its own"
    lacks: ClassVar[tuple[str, ...]] = (*_NEW_VOCABULARY, "phase2_positions")
    group, decides = Group.INPUT, True
    model: str | None = option(
        None,
        "Model folder to start from, with its tokenizer; without it the model is a new one.",
        reads="model",
    )


@dataclass(frozen=True, kw_only=True)
class PhaseSettings:
    """What changes in the course of a run."""

    group = Group.OBJECTIVE
    causal_share: float = option(
        0.0,
        "Fraction of --max_steps, in [0, 1), in which the model is first trained left to right, every token predicted "
        "from those before it: more labels than masks give, for small budgets. 0 for the paper's way.",
        SHARE_BELOW_1,
        decides=True,
        excludes="objective=ltr",
        why="which trains left to right only at the beginning",
    )
    batch_ramp: float = option(
        0.0,
        "Fraction of --max_steps, in [0, 1), in which the batch grows to --gradient_accumulation_steps micro-batches: "
        "1 first, then 2, 4, ..., for equally many steps each.",
        SHARE_BELOW_1,
        group=Group.TRAINING,
    )


@dataclass(frozen=True, kw_only=True)
class OnePhase:
    """Sequences of one maximum length."""


@dataclass(frozen=True, kw_only=True)
class SecondPhase:
    """A second phase with longer sequences, as in the paper."""

    asks: ClassVar[str] = "phase2_max_length"
    group = Group.OBJECTIVE
    phase2_max_length: int | None = option(
        None, "Longest sequence of a second phase (paper: 128, then 512); without it there is one phase."
    )
    phase2_steps: float = option(
        0.1,
        "Steps of the second phase, out of --max_steps; below 1, a fraction (paper: 0.1).",
    )
    phase2_positions: Literal["new", "repeated"] = option(
        "new",
        "Initial embeddings of positions that only phase 2 uses: new, or repeated from phase 1.",
        decides="if_not_default",
    )
    phase2_per_device_train_batch_size: int | None = option(
        None,
        "Sequences per batch and device in the second phase, if different.",
        AT_LEAST_1,
    )
    phase2_gradient_accumulation_steps: int | None = option(
        None, "Batches per step in the second phase, if different.", AT_LEAST_1
    )


@dataclass(frozen=True, kw_only=True)
class PretrainingOptimization(Optimization):
    """The paper's optimizer and schedule."""

    group, decides = Group.TRAINING, True
    optim: str = option("google")
    learning_rate: float = option(1e-4, "Peak learning rate.")
    warmup_steps: float = option(0.01, "Steps of warm-up; below 1, a fraction of all steps.")


@dataclass(frozen=True, kw_only=True)
class PretrainingBatches(Batches):
    """How long a pretraining takes, and what its steps read."""

    group, decides = Group.TRAINING, True
    per_device_train_batch_size: int = option(32, "Sequences per batch and device.")
    max_hours: float | None = option(
        None,
        "Hours to train, instead of --max_steps: the schedule and all fractions of --max_steps refer to this time, "
        "however fast the machine is. A call's first step, which may compile, and time between calls do not count.",
        ABOVE_0,
        replaces="max_steps num_train_epochs",
    )


@dataclass(frozen=True, kw_only=True)
class PretrainingMachine(Machine):
    """How a pretraining is computed."""

    group = Group.TRAINING
    ddp_find_unused_parameters: bool | None = option(
        False, "Look for parameters without a gradient; there are none.", group=Group.FURTHER
    )


@dataclass(frozen=True, kw_only=True)
class PretrainingRecords(Records):
    """What a pretraining evaluates, saves and logs."""

    group = Group.RECORDS
    save_total_limit: int | None = option(2, "Keep this many checkpoints.")
    minimal_pairs: str | None = option(
        None,
        "Table of minimal pairs, with columns sentence_good and sentence_bad, or good and bad: the finished model's "
        "accuracy on them is reported (mybert score).",
        reads="file",
        excludes="objective=ltr",
        why="whose model predicts no masked words",
    )


@dataclass(frozen=True, kw_only=True)
class PretrainSettings(TrainingSettings):
    """What a user says of a pretraining: text, model, examples, masks, phases, and all of `TrainingSettings`.

    Defaults are the paper's.
    """

    command: ClassVar[str] = "pretrain"
    unsupported: ClassVar[Mapping[str, str]] = {
        **TrainingSettings.unsupported,
        "do_predict": "pretraining predicts nothing; mybert predict does with a fine-tuned model",
        "label_smoothing_factor": "mybert pretrain ignores it: the losses are the paper's",
        "train_sampling_strategy": "mybert pretrain ignores it: every epoch draws new examples in an order of its own",
        "dataloader_drop_last": "mybert pretrain ignores it: an epoch ends with its last whole batch in any case",
        "use_liger_kernel": "mybert pretrain ignores it: it has no kernels for this model",
    }
    optimization: PretrainingOptimization = field(default_factory=PretrainingOptimization)
    batches: PretrainingBatches = field(default_factory=PretrainingBatches)
    machine: PretrainingMachine = field(default_factory=PretrainingMachine)
    records: PretrainingRecords = field(default_factory=PretrainingRecords)
    source: FromText | FromStore = choice(FromText)
    vocabulary: VocabularyBasics | GivenTokenizer = choice(VocabularyBasics)
    corpus: CorpusSettings = field(default_factory=CorpusSettings)
    examples: ExampleSettings = field(default_factory=ExampleSettings)
    masking: MaskingRates = field(default_factory=MaskingRates)
    start: NewModel | FromModel = choice(NewModel)
    phase_settings: PhaseSettings = field(default_factory=PhaseSettings)
    second_phase: OnePhase | SecondPhase = choice(OnePhase)
    validation_split: float = option(
        0.01,
        "Fraction of the documents held out for validation, in [0, 1); 0 for none.",
        SHARE_BELOW_1,
        group=Group.OBJECTIVE,
        decides=True,
    )

    @property
    def new_pieces_settings(self) -> NewPiecesSettings | None:
        """How the vocabulary of the initial model is extended; None to keep it."""
        return None

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option: text is files, data sets of the Hub, or data in memory with a name."""
        given = super().read(given)
        if "text" in given:
            given["text"] = sources_of(given["text"], "text", in_parts=False)
        return given

    def check(self) -> None:
        """Reject values that do not go together."""
        if "-" in self.text:
            raise SettingError.worded(
                "{text} is '-', standard input, which can be read only once; give files or a token store."
            )
        super().check()
        size = fields_of_size(self.model_size)
        width, heads = (getattr(self, name) or size[name] for name in ("hidden_size", "num_attention_heads"))
        if not self.model and width % heads:
            raise SettingError.worded(
                "{hidden_size} ({}) must be a multiple of {num_attention_heads} ({}).", width, heads
            )
        if self.do_eval and not self.validation_split and self.eval_strategy == "no":
            raise SettingError.worded(
                "{do_eval} is set and {validation_split} is 0; an evaluation needs held-out documents."
            )
        if self.save_only_model:
            raise SettingError.worded(
                "{save_only_model} is set; resuming, and starting a second phase, needs complete checkpoints."
            )
        if self.save_strategy == "best":
            raise SettingError.worded(
                "{save_strategy} is 'best', which leaves out checkpoints to resume from; use steps."
            )
        if self.max_hours is not None:
            self._check_measured_in_time()
        self._check_best_model()

    def _check_measured_in_time(self) -> None:
        if self.max_steps != -1:
            raise SettingError.worded(
                "{max_hours} is {} and {max_steps} {}; use either {max_hours} or {max_steps}.",
                self.max_hours,
                self.max_steps,
            )
        if self.warmup_steps >= 1 or (self.phase2_max_length is not None and self.phase2_steps >= 1):
            name = "warmup_steps" if self.warmup_steps >= 1 else "phase2_steps"
            raise SettingError.worded(
                "{:option} is {}; expected a fraction below 1 of {max_hours}.", name, getattr(self, name)
            )
        for name in ("logging_steps", "save_steps", "eval_steps"):
            if 0 < (getattr(self, name) or 0) < 1:
                raise SettingError.worded(
                    "{:option} is {}; with {max_hours} the total number of steps is not known: expected a number of "
                    "steps, at least 1.",
                    name,
                    getattr(self, name),
                )
        if self.lr_scheduler_type != "linear":
            raise SettingError.worded(
                "{lr_scheduler_type} is {!r}; with {max_hours} only 'linear' is possible.", self.lr_scheduler_type
            )

    def _check_best_model(self) -> None:
        """Reject a best model by what is not measured."""
        known = ["loss", "mlm_loss", "mlm_accuracy", "perplexity"]
        if self.examples.has_pairs:
            known += ["nsp_loss", "nsp_accuracy"]
        if self.metric_for_best_model is not None and self.metric_for_best_model.removeprefix("eval_") not in known:
            raise SettingError("metric_for_best_model", self.metric_for_best_model, known=known)
