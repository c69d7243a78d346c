"""Settings shared by all training commands: transformers' `TrainingArguments` without those that have no effect.

Flags are made from them before torch and transformers are loaded, which this module does not import.
"""

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

from ..files.checkpoint import read_json_object
from ..files.errors import SettingError
from ..files.options import (
    ABOVE_0,
    AT_LEAST_0,
    AT_LEAST_1,
    SHARE,
    SHARE_BELOW_1,
    Group,
    Range,
    check_number,
    default_of,
    option,
)
from ..files.settings import Parts, build, further
from .trainer_options import TrainerOptions, json_options, table

logger = logging.getLogger(__name__)

_PUBLISHED = "publish the finished folder with mybert push"
_SEED = Range(f"a whole number from 0 to {2**32 - 1}", 0, 2**32 - 1)
_NORM = Range("at least 0", 0)
S = TypeVar("S")
_MAY_BE_FILES = ("accelerator_config", "fsdp_config", "deepspeed")


@dataclass(frozen=True, kw_only=True)
class Optimization:
    """How weights are changed by gradients."""

    like, group, decides = TrainerOptions, Group.TRAINING, True
    learning_rate: float = option(range=AT_LEAST_0)
    warmup_steps: float = option(range=AT_LEAST_0)
    lr_scheduler_type: str = option(
        "linear",
        "Learning-rate schedule after the warm-up.",
        choices=table()["options"]["lr_scheduler_type"]["choices"],
    )
    lr_scheduler_kwargs: dict[str, Any] | str | None = option(group=Group.FURTHER)
    optim: str = option(
        help="Optimizer: google (the paper's: Adam without bias correction), adamw (with it), muon (for the layers' "
        "matrices, adamw for the rest), or one of transformers'.",
    )
    muon_learning_rate: float = option(
        0.02,
        "Peak learning rate of muon; --learning_rate is that of adamw for the other parameters.",
        AT_LEAST_0,
        needs="optim=muon",
    )
    weight_decay: float = option(0.01, "Weight decay; biases and LayerNorm are not decayed.", AT_LEAST_0)
    adam_beta1: float = option(range=SHARE_BELOW_1, group=Group.FURTHER)
    adam_beta2: float = option(range=SHARE_BELOW_1, group=Group.FURTHER)
    adam_epsilon: float = option(1e-6, "Epsilon of Adam.", AT_LEAST_0)
    max_grad_norm: float = option(1.0, "L2 norm to which gradients are clipped; 0 for none.", _NORM)
    optim_args: str | None = option(group=Group.FURTHER)
    optim_target_modules: None | str | list[str] = option(group=Group.FURTHER)  # noqa: RUF036  # as transformers'
    label_smoothing_factor: float = option(range=SHARE, group=Group.FURTHER)
    neftune_noise_alpha: float | None = option(range=AT_LEAST_0, group=Group.FURTHER)


@dataclass(frozen=True, kw_only=True)
class Batches:
    """How long a training takes, and what its steps read."""

    like, group, decides = TrainerOptions, Group.TRAINING, True
    max_steps: int = option(
        -1,
        "Optimizer steps, instead of --num_train_epochs; -1 to count epochs.",
        replaces="num_train_epochs",
    )
    num_train_epochs: float = option()
    per_device_train_batch_size: int = option(range=AT_LEAST_1, decides=False)
    gradient_accumulation_steps: int = option(
        1, "Batches per device that make up one optimizer step.", AT_LEAST_1, decides=False
    )
    seed: int = option(42, "Seed of every random choice.", _SEED)
    data_seed: int | None = option(range=_SEED, group=Group.FURTHER)
    average_tokens_across_devices: bool = option(group=Group.FURTHER)
    dataloader_drop_last: bool = option(group=Group.FURTHER)
    train_sampling_strategy: str = option(group=Group.FURTHER)
    ignore_data_skip: bool = option(group=Group.FURTHER)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """How a training is computed."""

    like, group = TrainerOptions, Group.TRAINING
    bf16: Literal[True, False, "auto"] = option(
        False,
        "Compute in bfloat16; auto: where the hardware has fast bfloat16.",
        nargs="?",
        const=True,
        decides=True,
        replaces="fp16",
    )
    fp16: bool = option(group=Group.FURTHER, decides=True)
    tf32: bool | None = option(group=Group.FURTHER, decides=True)
    activation_checkpointing: bool | None = option(
        None, "Recompute activations in the backward pass: less memory, a fifth slower."
    )
    torch_compile: bool = option(False, "Compile the model (torch.compile).")
    use_cpu: bool = option(False, "Use the CPU, even if there is an accelerator.")
    dataloader_num_workers: int | None = option(
        None,
        "Processes that make batches; 0: the main one (default: 0 on a CPU, whose cores compute the model; with a GPU "
        "up to 4 of its process's part of the cores).",
        AT_LEAST_0,
    )
    dataloader_prefetch_factor: int | None = option(range=AT_LEAST_1, group=Group.FURTHER)
    dataloader_pin_memory: bool | None = option(
        None,
        "Pin batches in memory, for faster transfer to a GPU (default: if there is one and it is used).",
        group=Group.FURTHER,
    )
    do_train: bool = option(True, "Always on; mybert evaluate measures without training.", group=Group.FURTHER)


@dataclass(frozen=True, kw_only=True)
class EvaluationTimes:
    """When to evaluate and save; where the best checkpoint is kept, a run's result depends on it."""

    like, group = TrainerOptions, Group.RECORDS
    eval_strategy: str = option("no", "When to evaluate: no, steps, epoch.", choices=("no", "steps", "epoch"))
    eval_steps: float | None = option(None, "Steps between evaluations; below 1, a fraction of all steps.")
    eval_delay: float = option(
        0,
        "Epochs or steps, whichever eval_strategy counts, before the first evaluation.",
        AT_LEAST_0,
        group=Group.FURTHER,
    )
    save_strategy: str = option(
        "steps", "When to save a checkpoint: no, steps, epoch, best.", choices=("no", "steps", "epoch", "best")
    )
    save_steps: float = option(500, "Steps between checkpoints; below 1, a fraction of all steps.")


@dataclass(frozen=True, kw_only=True)
class Records(EvaluationTimes):
    """What to evaluate, save and log."""

    group = Group.RECORDS
    per_device_eval_batch_size: int = option(64, "Sequences per batch in evaluation.", AT_LEAST_1)
    eval_accumulation_steps: int | None = option(range=AT_LEAST_1, group=Group.FURTHER)
    bf16_full_eval: bool = option(group=Group.FURTHER, decides=True)
    fp16_full_eval: bool = option(group=Group.FURTHER, decides=True)
    metric_for_best_model: str | None = option(
        None, "The metric that decides which model is best (default: the task's main one, or the loss).", decides=True
    )
    load_best_model_at_end: bool | None = option(
        False, "Keep the best checkpoint by that metric, not the last.", decides=True
    )
    greater_is_better: bool | None = option(group=Group.FURTHER, decides=True)
    save_total_limit: int | None = option()
    save_only_model: bool = option(group=Group.FURTHER, decides=True)
    logging_steps: float | None = option(
        None, "Steps between log entries; below 1, a fraction of all (default: 50, or a 20th of a short run)."
    )
    report_to: None | str | list[str] = option()  # noqa: RUF036  # the order matters to HfArgumentParser
    run_name: str | None = option(None, "Name of the run in those tools.")
    disable_tqdm: bool | None = option(None, "Show no progress bars.")
    card_examples: bool = option(
        False, "Show texts of the data on the card, which a push makes public: examples, surest errors."
    )


# Settings of `TrainingArguments` that have no effect or break a run, and what to do instead.
UNSUPPORTED = {
    "resume_from_checkpoint": "a run resumes from its own last checkpoint without being told, and weights to "
    "start from are given as model",
    **dict.fromkeys(("push_to_hub", "hub_model_id", "hub_token", "hub_strategy"), _PUBLISHED),
    **dict.fromkeys(("hub_always_push", "hub_revision"), _PUBLISHED),
    "prediction_loss_only": "metrics are measured with the loss",
    "batch_eval_metrics": "metrics are measured on all of the validation data",
    "include_for_metrics": "metrics are measured on predictions and labels alone",
    "eval_do_concat_batches": "predictions are those of all of the validation data",
    "length_column_name": "lengths are those of the tokenized texts",
    "label_names": "the task says what its labels are",
    "remove_unused_columns": "batches hold what the model and the metrics read",
    "enable_jit_checkpoint": "Ctrl-C and SIGTERM leave a checkpoint in any case",
    "local_rank": "torchrun and accelerate launch tell each process its rank",
}


@dataclass(frozen=True, kw_only=True)
class TrainingSettings(Parts):
    """What a user says of a training, whatever is trained; the fields of `TrainingArguments` are among the options.

    Parts of commands have other defaults. `training_arguments` makes what transformers' `Trainer` reads.
    """

    unsupported: ClassVar[Mapping[str, str]] = UNSUPPORTED
    """Options of `TrainingArguments` that are errors, and what to do instead."""

    output_dir: str = option(
        "",
        "Folder of the run: model, checkpoints, curves and card.",
        group=Group.INPUT,
        comes_last=True,
        required=True,
        writes=True,
    )
    overwrite: bool = option(False, "Replace an earlier run in the output folder.", group=Group.INPUT, comes_last=True)
    dry_run: bool = option(
        False,
        "Only show what would be done, and why.",
        group=Group.INPUT,
        comes_last=True,
    )
    optimization: Optimization = field(default_factory=Optimization)
    batches: Batches = field(default_factory=Batches)
    machine: Machine = field(default_factory=Machine)
    records: Records = field(default_factory=Records)
    transformers: Mapping[str, Any] = further(TrainerOptions)

    @property
    def sampling_seed(self) -> int:
        """The seed for sampling examples."""
        return self.seed if self.data_seed is None else self.data_seed

    @classmethod
    def read(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Values by option, JSON objects read."""
        given = super().read(given)
        objects = {name: _read_object(name, given[name]) for name in given if name in json_options()}
        return given | objects

    def check(self) -> None:
        """Reject settings without effect, and values that transformers' `Trainer` would reject."""
        if not self.do_train:
            raise SettingError.worded(
                "{do_train} is False; mybert evaluate measures a model without training it, mybert predict "
                "labels data."
            )
        if self.max_steps < 1 and self.max_steps != -1:
            raise SettingError("max_steps", self.max_steps, "at least 1, or -1 to count epochs")
        if self.max_steps == -1:
            check_number("num_train_epochs", self.num_train_epochs, ABOVE_0)
        super().check()
        self._reject_unsupported()
        if self.fsdp_config and not self.fsdp:
            raise SettingError.worded(
                "{fsdp_config} is set without {fsdp}, so it would have no effect; set fsdp, too."
            )

    def _reject_unsupported(self) -> None:
        options = TrainerOptions.__dataclass_fields__
        for name, instead in self.unsupported.items():
            if (value := getattr(self, name)) != default_of(options[name]):
                shown = "set" if name == "hub_token" else repr(value)
                raise SettingError.worded("{:option} is {}; {}.", name, shown, instead)
        for name, default in (("eval_steps", None), ("save_steps", options["save_steps"].default)):
            strategy = name.replace("steps", "strategy")
            if getattr(self, name) != default and getattr(self, strategy) == "epoch":
                template = f"{{:option}} is {{}} and {{:option}} is 'epoch'; pass {{{strategy}='steps'}} with it."
                raise SettingError.worded(template, name, getattr(self, name), strategy)
        if self.eval_steps is not None and self.eval_strategy == "no":
            logger.warning("eval_steps is %s and eval_strategy is 'no': nothing is evaluated.", self.eval_steps)


def settings_by_name(kind: type[S], settings: S | None, given: Mapping[str, Any]) -> S:
    """The settings of a call that accepts them as one object or by name; a TypeError if both are given."""
    if settings is None:
        return build(kind, given)
    if given:
        raise TypeError(f"An object of settings and {', '.join(given)} are given; use either an object or keywords.")
    return settings


def _read_object(name: str, value: Any) -> Any:
    """Check an object that is given as one, as its text or as a file; texts and names of files stay what they are."""
    parsed = _parse_object(name, value) if isinstance(value, str) else value
    if name == "accelerator_config" and isinstance(parsed, Mapping):
        from transformers.trainer_pt_utils import AcceleratorConfig  # with torch, only where it is needed

        known = [option.name for option in fields(AcceleratorConfig)]
        if unknown := [key for key in parsed if key not in known]:
            raise SettingError.worded(
                "{:option} has {}; expected some of {}.", name, ", ".join(unknown), ", ".join(known)
            )
    return value


def _parse_object(name: str, value: str) -> Any:
    may_be_file = name in _MAY_BE_FILES
    if may_be_file and Path(value).is_file():
        return read_json_object(value)
    if not value.startswith("{"):
        raise SettingError(name, value, f"a JSON object{' or a file with one' if may_be_file else ''}")
    try:
        return json.loads(value)
    except ValueError as error:
        raise SettingError.worded("{:option} is {!r}, which is not JSON ({}).", name, value, error) from error
