"""The plan of a pretraining: its phases, and what transformers' `Trainer` is told."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from transformers import TrainingArguments

from ..files.checkpoint import FIELDS_OF_A_HEAD, Checkpoint, without_foreign_code
from ..files.errors import SettingError
from ..files.options import deciding
from ..files.settings import Decision, build
from ..modeling_mybert import MyBertConfig
from ..runs import SCHEDULED_BY_EVALUATIONS, TICKS, decided_by_machine, started_on_cpus, training_arguments
from ..runs.model_sizes import fields_of_size
from .pretrain_settings import PretrainSettings
from .settings import OBJECTIVES, ExampleSettings, Objective


def PretrainingArguments(**given: Any) -> PretrainSettings:  # noqa: N802  # a class in earlier versions
    """The settings of `pretrain`, from the options of the command as keywords; checked as by `pretrain` itself.

    In Python, `text` may also be in memory: a `pandas.DataFrame` or `datasets.Dataset` whose `text_column` has one
    document per row, or an iterable of documents, each a text or a list of sentences. A list of strings is read as
    file names.

    Raises:
        TypeError: If there is no such option.
        ValueError: If a value is out of range, or values do not go together.
    """
    settings = build(PretrainSettings, given)
    plan_pretraining(settings)
    return settings


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


@dataclass(frozen=True)
class PretrainPlan:
    """What is decided before a pretraining begins."""

    settings: PretrainSettings
    training: TrainingArguments  # whose batch size is that of the settings
    max_steps: int  # or `TICKS` of a run measured in time; -1 to count epochs
    phases: tuple[Phase, ...]  # between the steps at which objective, maximum length or batch size change
    decisions: Mapping[str, Decision]  # by option; of those that are given there is none

    @property
    def longest(self) -> int:
        """The longest sequence of all phases, in tokens."""
        return max(phase.max_length for phase in self.phases)

    def arguments_of(self, phase: Phase) -> TrainingArguments:
        """The arguments of transformers' `Trainer` for a phase."""
        arguments = copy.copy(self.training)
        arguments.per_device_train_batch_size = phase.per_device_train_batch_size
        arguments.gradient_accumulation_steps = phase.gradient_accumulation_steps
        if phase.last_step is not None:  # its measurements are no comparison for later phases
            arguments.load_best_model_at_end, arguments.metric_for_best_model = False, None
        return arguments

    def examples_of(self, phase: Phase) -> ExampleSettings:
        """The settings of a phase's examples."""
        return replace(self.settings.examples, objective=phase.objective, max_length=phase.max_length)

    def batch_size(self, phase: Phase) -> int:
        """Sequences of an optimizer step in a phase, over all devices and micro-batches."""
        devices = self.training.world_size * max(1, self.training.n_gpu)
        return phase.per_device_train_batch_size * devices * phase.gradient_accumulation_steps

    def result_settings(self) -> dict[str, Any]:
        """The settings that determine the result of a run, as JSON values, without the data."""
        phases = [
            [phase.objective, phase.max_length, self.batch_size(phase), phase.last_step] for phase in self.phases
        ]
        # Batch sizes are compared in total, however they are divided among processes.
        name = "phases (objective, length, batch size, last step)"
        return {"command": self.settings.command} | deciding(self.settings, vars(self.training)) | {name: phases}


def plan_pretraining(settings: PretrainSettings) -> PretrainPlan:
    """Decide what a pretraining does; nothing is read.

    Raises:
        ValueError: If phases do not fit the length of the run or each other, or transformers rejects a value.
    """
    max_steps = settings.max_steps if settings.max_hours is None else TICKS
    _check_parts(settings, max_steps)
    phases = _phases(settings, max_steps)
    decisions: dict[str, Decision] = {}
    if started_on_cpus():
        decisions["use_cpu"] = Decision(True, "several processes on a machine without an accelerator")
    metric = settings.metric_for_best_model
    if metric is not None and settings.greater_is_better is None:  # transformers would take all but losses for better
        decisions["greater_is_better"] = Decision(metric.endswith("accuracy"), "")
    chosen = {name: decision.value for name, decision in decisions.items()} | {"max_steps": max_steps}
    training = training_arguments(settings, **chosen)
    decisions |= decided_by_machine(settings, training)
    if len(phases) > 1 and training.lr_scheduler_type in SCHEDULED_BY_EVALUATIONS:
        raise SettingError.worded(
            "{lr_scheduler_type} is {!r}, which compares evaluations, and those of different phases ({causal_share}, "
            "{batch_ramp}, {phase2_max_length}) are no comparison; use another.",
            settings.lr_scheduler_type,
        )
    plan = PretrainPlan(settings, training, max_steps, phases, decisions)
    for phase in phases:
        plan.examples_of(phase)  # checks them
    if settings.pack and plan.training.n_gpu > 1:
        raise SettingError.worded(
            "{pack} is set and {} GPUs share one process, which cannot divide packed rows; start with "
            "torchrun or accelerate launch, one process per GPU.",
            plan.training.n_gpu,
        )
    return plan


def _check_parts(settings: PretrainSettings, max_steps: int) -> None:
    """Reject phases that do not fit the length of the run or each other."""
    for is_set, why in (
        (settings.causal_share, "a causal start ({causal_share}) is a fraction of them"),
        (settings.phase2_max_length is not None, "a second phase ({phase2_max_length}) needs it"),
    ):
        if is_set and max_steps <= 0:
            raise SettingError.worded(f"{{max_steps}} is not set; {why}.")
    if settings.batch_ramp and (max_steps <= 0 or settings.gradient_accumulation_steps < 2):
        raise SettingError.worded(
            "{batch_ramp} is {}, with {max_steps} {} and {gradient_accumulation_steps} {}; a batch grows "
            "over a fraction of {max_steps}, from 1 micro-batch to several.",
            settings.batch_ramp,
            max_steps,
            settings.gradient_accumulation_steps,
        )
    if settings.phase2_max_length is not None and not 0 < settings.phase2_steps < max_steps:
        raise SettingError.worded(
            "{phase2_steps} is {}; expected more than 0 and less than {max_steps}.", settings.phase2_steps
        )


def _phases(settings: PretrainSettings, max_steps: int) -> tuple[Phase, ...]:
    """The phases of the run, between the steps at which objective, maximum length or batch size change."""
    causal_steps = round(settings.causal_share * max_steps)
    # The last step of each smaller batch at the start, and its number of micro-batches: 1, 2, 4 ...
    sizes = [2**power for power in range((settings.gradient_accumulation_steps - 1).bit_length())]
    ends = [round(settings.batch_ramp * max_steps * number / len(sizes)) for number in range(1, len(sizes) + 1)]
    ramp = {end: size for end, size in zip(ends, sizes, strict=True) if end}
    long_from, others = None, ("max_steps", max_steps)
    if settings.phase2_max_length is not None:
        steps = round(settings.phase2_steps if settings.phase2_steps >= 1 else settings.phase2_steps * max_steps)
        long_from, others = max_steps - max(steps, 1), ("phase2_steps", settings.phase2_steps)
    limit = max(max_steps, 1) if long_from is None else long_from
    for name, end in (("causal_share", causal_steps), ("batch_ramp", max(ramp, default=0))):
        if end >= limit:
            raise SettingError.worded(
                "{:option} is {} and {:option} {}; together they leave nothing of {max_steps} for what follows.",
                name,
                getattr(settings, name),
                *others,
            )
    begins = sorted({0, causal_steps, long_from or 0, *ramp})
    phases = []
    for begin, last_step in zip(begins, [*begins[1:], None], strict=True):
        length, rows, batches = settings.max_length, None, None
        if long_from is not None and begin >= long_from:
            length = settings.phase2_max_length or length
            rows = settings.phase2_per_device_train_batch_size
            batches = settings.phase2_gradient_accumulation_steps
        smaller = next((size for end, size in ramp.items() if begin < end), None)
        phases.append(
            Phase(
                objective="ltr" if begin < causal_steps else settings.objective,
                max_length=length,
                per_device_train_batch_size=rows or settings.per_device_train_batch_size,
                gradient_accumulation_steps=smaller or batches or settings.gradient_accumulation_steps,
                repeats_positions=settings.phase2_positions == "repeated"
                and last_step is not None
                and last_step == long_from,
                last_step=last_step,
            )
        )
    return tuple(phases)


def model_config(plan: PretrainPlan, vocab_size: int, pad_token_id: int | None = 0) -> MyBertConfig:
    """Configuration of the model: a new one for a vocabulary, or that of the initial model.

    Raises:
        ValueError: If a value is out of range, or the initial model does not fit the tokenizer or the lengths.
        OSError: If the initial model's folder has no configuration.
    """
    settings, longest = plan.settings, plan.longest
    if settings.model is None:
        own = {
            "num_hidden_layers": settings.num_hidden_layers,
            "hidden_size": settings.hidden_size,
            "num_attention_heads": settings.num_attention_heads,
            "intermediate_size": 4 * settings.hidden_size if settings.hidden_size else None,
        }
        config = MyBertConfig(
            **fields_of_size(settings.model_size) | {name: value for name, value in own.items() if value is not None},
            vocab_size=vocab_size,
            max_position_embeddings=max(512, longest),
            pad_token_id=pad_token_id,
        )
    else:
        fields = Checkpoint(settings.model).fields
        kept = {name: value for name, value in fields.items() if name not in FIELDS_OF_A_HEAD}
        config = without_foreign_code(MyBertConfig.from_dict(kept))
        if config.vocab_size < vocab_size and settings.new_pieces_settings:
            config.vocab_size = vocab_size
        if config.vocab_size < vocab_size:
            raise ValueError(
                f"{settings.model} has {config.vocab_size:,} entries in its vocabulary, the tokenizer has "
                f"{vocab_size:,}; a model continues with the tokenizer it was trained with."
            )
        if config.max_position_embeddings < longest:
            raise SettingError.worded(
                "{max_length} is {}; {} reads at most {} tokens.",
                longest,
                settings.model,
                config.max_position_embeddings,
            )
        if config.type_vocab_size < 2 and settings.examples.has_pairs:
            raise SettingError.worded(
                "{objective} is {!r}, with pairs of two token types; {} has 1 (type_vocab_size). "
                "Pass {objective='mlm'}.",
                settings.objective,
                settings.model,
            )
    if settings.dropout is not None:
        config.hidden_dropout_prob = config.attention_probs_dropout_prob = settings.dropout
    config.is_decoder = OBJECTIVES[settings.objective].is_causal
    config.check()
    return config
