"""The settings of `mybert pretrain`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from ..files.checkpoint import FIELDS_OF_A_HEAD, Checkpoint, without_foreign_code
from ..files.options import ABOVE_0, AT_LEAST_1, SHARE, SHARE_BELOW_1, Group, deciding, option, settings_of
from ..files.source import sources_of
from ..modeling_mybert import MODEL_SIZES, MyBertConfig
from ..modeling_mybert.configuration_mybert import fields_of_size
from ..runs import TICKS, RunArguments, started_on_cpus
from ..tokenization import MyBertTokenizer, VocabularyBasics, VocabularySettings
from .settings import CorpusSettings, ExampleSettings, MaskingRates, NewPiecesSettings, Objective


@dataclass(frozen=True)
class Phase:
    """A part of a run with one objective, one maximum length and one batch size."""

    objective: Objective
    max_length: int  # tokens
    per_device_train_batch_size: int  # sequences per micro-batch and device
    gradient_accumulation_steps: int  # micro-batches per step
    repeats_positions: bool = False  # at its end, trained position embeddings are repeated for those not used so far
    # or time (in `TICKS`) for a run measured in time; None for the end of the run
    last_step: int | None = None


@dataclass
class NewModel:
    """The size of a new model, and the embeddings it begins with."""

    group, decides, idle_with = Group.MODEL, True, "model"
    model_size: str = option(
        "base",
        "Size, layers x hidden size: "
        + ", ".join(f"{size} ({layers}x{width})" for size, (layers, width, _) in MODEL_SIZES.items())
        + ", or another.",
    )
    num_hidden_layers: int | None = option(None, "Layers, if not those of model_size.")
    hidden_size: int | None = option(None, "Hidden size, if not that of model_size.")
    num_attention_heads: int | None = option(None, "Attention heads, if not those of model_size.")
    dropout: float | None = option(
        None,
        "Dropout of hidden states and attention, in [0, 1] (default: the model's own, or 0.1 if new).",
        SHARE,
        idle_with="",
    )
    embedding_init: Literal["random", "cooccurrence"] = option(
        "random", "Initial word embeddings; cooccurrence: from counts of neighboring words in the text."
    )


@dataclass
class Phases:
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
    phase2_max_length: int | None = option(
        None, "Longest sequence of a second phase (paper: 128, then 512); without it there is one phase."
    )
    phase2_steps: float = option(
        0.1,
        "Steps of the second phase, out of --max_steps; below 1, a fraction (paper: 0.1).",
        needs="phase2_max_length",
    )
    phase2_positions: Literal["new", "repeated"] = option(
        "new",
        "Initial embeddings of positions that only phase 2 uses: new, or repeated from phase 1.",
        decides="if_not_default",
        needs="phase2_max_length",
        idle_with="model",
    )
    phase2_per_device_train_batch_size: int | None = option(
        None,
        "Sequences per batch and device in the second phase, if different.",
        AT_LEAST_1,
        needs="phase2_max_length",
    )
    phase2_gradient_accumulation_steps: int | None = option(
        None, "Batches per step in the second phase, if different.", AT_LEAST_1, needs="phase2_max_length"
    )


@dataclass
class PretrainingArguments(
    Phases, NewModel, MaskingRates, ExampleSettings, CorpusSettings, VocabularyBasics, RunArguments
):
    """Settings of `pretrain`: those of text, examples, masks, model and phases, the fields below, `TrainingArguments`.

    Defaults are the paper's. In Python, `text` may also be in memory: a `pandas.DataFrame` or `datasets.Dataset` whose
    `text_column` has one document per row, or an iterable of documents, each a text or a list of sentences. A list of
    strings is read as file names.
    """

    group = Group.TRAINING
    command = "pretrain"
    unsupported_arguments = RunArguments.unsupported_arguments | {
        "do_predict": "pretraining predicts nothing; mybert predict does with a fine-tuned model",
        "label_smoothing_factor": "mybert pretrain ignores it: the losses are the paper's",
        "train_sampling_strategy": "mybert pretrain ignores it: every epoch draws new examples in an order of its own",
        "dataloader_drop_last": "mybert pretrain ignores it: an epoch ends with its last whole batch in any case",
        "use_liger_kernel": "mybert pretrain ignores it: it has no kernels for this model",
    }
    text: list[str] = option(
        [],
        "Text to train on: files, folders, patterns or data sets of the Hub (hf:owner/name). Plain text has one "
        "sentence per line and a blank line between documents, or wrapped lines; CSV, TSV, JSON lines and Parquet "
        "are read too.",
        group=Group.INPUT,
        positional=2,
        required="token_store",
        reads="text",
    )
    token_store: str | None = option(
        None,
        "Token store (a file, or a folder of shards) instead of --text.",
        group=Group.INPUT,
        excludes="text",
        why="whose text was chosen when it was made",
        reads="file",
    )
    tokenizer: str | None = option(
        None,
        "Folder or vocab.txt of a tokenizer; without it one is trained on the text.",
        group=Group.INPUT,
        decides=True,
        reads="model",
    )
    model: str | None = option(
        None,
        "Model folder to start from, with its tokenizer; without it the model is a new one.",
        group=Group.INPUT,
        decides=True,
        why="which has its own",
        reads="model",
    )
    validation_split: float = option(
        0.01,
        "Fraction of the documents held out for validation, in [0, 1); 0 for none.",
        SHARE_BELOW_1,
        group=Group.OBJECTIVE,
        decides=True,
    )
    minimal_pairs: str | None = option(
        None,
        "Table of minimal pairs, with columns sentence_good and sentence_bad, or good and bad: the finished model's "
        "accuracy on them is reported (mybert score).",
        group=Group.RECORDS,
        reads="file",
        excludes="objective=ltr",
        why="whose model predicts no masked words",
    )
    max_hours: float | None = option(
        None,
        "Hours to train, instead of --max_steps: the schedule and all fractions of --max_steps refer to this time, "
        "however fast the machine is. A call's first step, which may compile, and time between calls do not count.",
        ABOVE_0,
        decides=True,
        replaces="max_steps num_train_epochs",
    )
    optim: str = option("google")
    learning_rate: float = option(1e-4, "Peak learning rate.")
    warmup_steps: float = option(0.01, "Steps of warm-up; below 1, a fraction of all steps.")
    per_device_train_batch_size: int = option(32, "Sequences per batch and device.")
    ddp_find_unused_parameters: bool | None = option(
        False, "Look for parameters without a gradient; there are none.", group=Group.FURTHER
    )
    save_total_limit: int | None = option(2, "Keep this many checkpoints.")

    def __post_init__(self) -> None:
        """Check what can be checked without looking at files."""
        self._check_sources()
        super().__post_init__()  # checks the options of all classes
        if self.max_hours is not None:
            self._measure_in_time(self.max_hours)
        fields_of_size(self.model_size)  # checks it
        self._check_parts()
        if not (self.token_store or self.tokenizer or self.model):
            VocabularySettings(**settings_of(VocabularyBasics, self))  # checks the settings, like the following
        for phase in self.phases():
            self.example_settings(phase)
        if started_on_cpus():
            self.use_cpu = True
        self._check_best_model()
        RunArguments.__post_init__(self)
        if self.do_eval and not self.validation_split and self.eval_strategy == IntervalStrategy.NO:
            raise ValueError("do_eval is set and validation_split is 0; an evaluation needs held-out documents.")
        if self.save_only_model:
            raise ValueError(
                "save_only_model is set; resuming, and starting a second phase, needs complete checkpoints."
            )
        if self.save_strategy == SaveStrategy.BEST:
            raise ValueError("save_strategy is 'best', which leaves out checkpoints to resume from; use steps.")
        if self.pack and self.n_gpu > 1:
            raise ValueError(
                f"pack is set and {self.n_gpu} GPUs share one process, which cannot divide packed rows; start with "
                "torchrun or accelerate launch, one process per GPU."
            )

    def _measure_in_time(self, hours: float) -> None:
        """Convert steps to fractions of the time, except optimizer settings."""
        if self.max_steps not in (-1, TICKS):
            raise ValueError(
                f"max_hours is {hours} and max_steps {self.max_steps}; use either max_hours or max_steps."
            )
        self.max_steps = TICKS
        if self.warmup_steps >= 1 or (self.phase2_max_length is not None and self.phase2_steps >= 1):
            name = "warmup_steps" if self.warmup_steps >= 1 else "phase2_steps"
            raise ValueError(f"{name} is {getattr(self, name)}; expected a fraction below 1 of max_hours.")
        for name in ("logging_steps", "save_steps", "eval_steps"):
            if 0 < (getattr(self, name) or 0) < 1:
                raise ValueError(
                    f"{name} is {getattr(self, name)}; with max_hours the total number of steps is not known: "
                    "expected a number of steps, at least 1."
                )
        if self.lr_scheduler_type != "linear":
            raise ValueError(
                f"lr_scheduler_type is {self.lr_scheduler_type!r}; with max_hours only 'linear' is possible."
            )

    def _check_parts(self) -> None:
        """Reject phases that do not fit the length of the run or each other."""
        for is_set, why in (
            (self.causal_share, "a causal start (causal_share) is a fraction of them"),
            (self.phase2_max_length is not None, "a second phase (phase2_max_length) needs it"),
        ):
            if is_set and self.max_steps <= 0:
                raise ValueError(f"max_steps is not set; {why}.")
        if self.batch_ramp and (self.max_steps <= 0 or self.gradient_accumulation_steps < 2):
            raise ValueError(
                f"batch_ramp is {self.batch_ramp}, with max_steps {self.max_steps} and gradient_accumulation_steps "
                f"{self.gradient_accumulation_steps}; a batch grows over a fraction of max_steps, from 1 "
                "micro-batch to several."
            )
        if self.phase2_max_length is not None and not 0 < self.phase2_steps < self.max_steps:
            raise ValueError(f"phase2_steps is {self.phase2_steps}; expected more than 0 and less than max_steps.")

    def _check_best_model(self) -> None:
        """Reject a best model by what is not measured."""
        known = ["loss", "mlm_loss", "mlm_accuracy", "perplexity"]
        if self.has_pairs:
            known += ["nsp_loss", "nsp_accuracy"]
        if self.metric_for_best_model is not None:
            metric = self.metric_for_best_model.removeprefix("eval_")
            if metric not in known:
                raise ValueError(
                    f"metric_for_best_model is {self.metric_for_best_model!r}; expected one of {', '.join(known)}."
                )
            # transformers takes nothing but losses for better if it is less.
            if self.greater_is_better is None:
                self.greater_is_better = metric.endswith("accuracy")

    def _check_sources(self) -> None:
        """Check the sources: either text (names, or data in memory) or a token store."""
        self.text = sources_of(self.text, "text", in_parts=False)
        for name in ("token_store", "tokenizer", "model"):
            if isinstance(getattr(self, name), Path):
                setattr(self, name, str(getattr(self, name)))
        if "-" in self.text:
            raise ValueError("text is '-', standard input, which can be read only once; give files or a token store.")

    def example_settings(self, phase: Phase) -> ExampleSettings:
        """The example settings of a phase.

        Raises:
            ValueError: If a setting is invalid, or two settings contradict each other.
        """
        own = {"objective": phase.objective, "max_length": phase.max_length}
        return ExampleSettings(**settings_of(ExampleSettings, self) | own)

    def phases(self) -> list[Phase]:
        """The phases of the run, between the steps at which objective, maximum length or batch size change."""
        causal_steps = round(self.causal_share * self.max_steps)
        # The last step of each smaller batch at the start, and its number of micro-batches: 1, 2, 4 ...
        sizes = [2**power for power in range((self.gradient_accumulation_steps - 1).bit_length())]
        ends = [round(self.batch_ramp * self.max_steps * number / len(sizes)) for number in range(1, len(sizes) + 1)]
        ramp = {end: size for end, size in zip(ends, sizes, strict=True) if end}
        long_from, others = None, f"max_steps {self.max_steps}"
        if self.phase2_max_length is not None:
            steps = round(self.phase2_steps if self.phase2_steps >= 1 else self.phase2_steps * self.max_steps)
            long_from, others = self.max_steps - max(steps, 1), f"phase2_steps {self.phase2_steps}"
        limit = max(self.max_steps, 1) if long_from is None else long_from
        for name, end in (("causal_share", causal_steps), ("batch_ramp", max(ramp, default=0))):
            if end >= limit:
                raise ValueError(
                    f"{name} is {getattr(self, name)} and {others}; together they leave nothing of max_steps for what "
                    "follows."
                )
        begins = sorted({0, causal_steps, long_from or 0, *ramp})
        phases = []
        for begin, last_step in zip(begins, [*begins[1:], None], strict=True):
            length, rows, batches = self.max_length, None, None
            if long_from is not None and begin >= long_from:
                length = self.phase2_max_length or length
                rows = self.phase2_per_device_train_batch_size
                batches = self.phase2_gradient_accumulation_steps
            smaller = next((size for end, size in ramp.items() if begin < end), None)
            phases.append(
                Phase(
                    objective="ltr" if begin < causal_steps else self.objective,
                    max_length=length,
                    per_device_train_batch_size=rows or self.per_device_train_batch_size,
                    gradient_accumulation_steps=smaller or batches or self.gradient_accumulation_steps,
                    repeats_positions=self.phase2_positions == "repeated"
                    and last_step is not None
                    and last_step == long_from,
                    last_step=last_step,
                )
            )
        return phases

    def new_pieces_settings(self) -> NewPiecesSettings | None:
        """These settings if they extend the vocabulary of the initial model; None to keep it."""
        return self if isinstance(self, NewPiecesSettings) and self.new_pieces else None

    def batch_size(self, phase: Phase) -> int:
        """Sequences of an optimizer step in a phase, over all devices and micro-batches."""
        devices = self.world_size * max(1, self.n_gpu)
        return phase.per_device_train_batch_size * devices * phase.gradient_accumulation_steps

    def result_settings(self) -> dict[str, Any]:
        """The settings that determine the result of a run, as JSON values, without the data."""
        phases = [
            [phase.objective, phase.max_length, self.batch_size(phase), phase.last_step] for phase in self.phases()
        ]
        # Batch sizes are compared in total, however they are divided among processes.
        name = "phases (objective, length, batch size, last step)"
        return {"command": self.command} | deciding(self) | {name: phases}

    def model_config(self, tokenizer: MyBertTokenizer) -> MyBertConfig:
        """Configuration of the model: a new one for a tokenizer, or that of the initial model.

        Raises:
            ValueError: If a value is out of range, or the initial model does not fit the tokenizer or the lengths.
            OSError: If the initial model's folder has no configuration.
        """
        longest = max(phase.max_length for phase in self.phases())
        if self.model is None:
            own = {
                "num_hidden_layers": self.num_hidden_layers,
                "hidden_size": self.hidden_size,
                "num_attention_heads": self.num_attention_heads,
                "intermediate_size": 4 * self.hidden_size if self.hidden_size else None,
            }
            config = MyBertConfig(
                **fields_of_size(self.model_size) | {name: value for name, value in own.items() if value is not None},
                vocab_size=len(tokenizer),
                max_position_embeddings=max(512, longest),
                pad_token_id=tokenizer.pad_token_id,
            )
        else:
            fields = Checkpoint(self.model).fields
            kept = {name: value for name, value in fields.items() if name not in FIELDS_OF_A_HEAD}
            config = without_foreign_code(MyBertConfig.from_dict(kept))
            if config.vocab_size < len(tokenizer) and self.new_pieces_settings():
                config.vocab_size = len(tokenizer)
            if config.vocab_size < len(tokenizer):
                raise ValueError(
                    f"{self.model} has {config.vocab_size:,} entries in its vocabulary, the tokenizer has "
                    f"{len(tokenizer):,}; a model continues with the tokenizer it was trained with."
                )
            if config.max_position_embeddings < longest:
                raise ValueError(
                    f"max_length is {longest}; {self.model} reads at most {config.max_position_embeddings} tokens."
                )
        if self.dropout is not None:
            config.hidden_dropout_prob = config.attention_probs_dropout_prob = self.dropout
        config.is_decoder = self.objective == "ltr"
        config.check()
        return config
