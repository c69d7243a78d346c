"""transformers' `Trainer` for runs that may be killed at any moment, or diverge; checkpoints that are complete.

It uses public methods of `Trainer` and of its accelerator, and callbacks; no trainer here overrides a private one.
"""

import json
import logging
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate import PartialState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader
from transformers import (
    EarlyStoppingCallback,
    PrinterCallback,
    Trainer,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.trainer import DEFAULT_PROGRESS_CALLBACK, TRAINER_STATE_NAME
from transformers.trainer_utils import EvalLoopOutput, TrainOutput, sort_checkpoints

from ..files.errors import SettingError, worded
from ..files.moves import discard, sync
from ..files.output import readable_disk_errors, write_json
from ..modeling_mybert import IGNORE_INDEX
from .callbacks import ReadableProgress, SaveAfterEvaluation, StopOnInterrupt, TimeBudget
from .optimizers import MuonWithAdamW, MyBertAdamW, matrix_groups
from .run_folder import is_sharded
from .trainer_arguments import training_arguments
from .training_settings import Optimization, TrainingSettings

logger = logging.getLogger(__name__)

_COMPILED = "_orig_mod."  # prefix of a compiled module's weight names
_MAX_UNREAD = 500  # steps without a check, if logs are rarer
_IN_EVALUATION = {"dataloader_drop_last": False, "train_sampling_strategy": "sequential"}
_LEFT_BY_SAFETENSORS = ".tmp??????"
# Lists a checkpoint's files and their sizes in bytes; it is written last, so a checkpoint with it is complete.
COMPLETE_FILE = "complete.json"
# Required files: one name from each line (plain; FSDP's; DeepSpeed's folder, which contains everything).
RequiredFiles = Sequence[tuple[str, ...]]
_IN_PARTS = ("pytorch_model_fsdp*", "global_step*")
FOR_ITS_WEIGHTS: RequiredFiles = (
    ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors", *_IN_PARTS),
    ("trainer_state.json",),
)
REQUIRED_TO_RESUME: RequiredFiles = (
    *FOR_ITS_WEIGHTS,
    ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*"),
    ("scheduler.pt", "global_step*"),
    ("rng_state*.pth",),
)
WITH_FP16: RequiredFiles = (*REQUIRED_TO_RESUME, ("scaler.pt", "global_step*"))


def seal_checkpoint(checkpoint: str | Path, needs: RequiredFiles = REQUIRED_TO_RESUME) -> None:
    """Mark a checkpoint whose files are all written as complete: list its files and their sizes."""
    checkpoint = Path(checkpoint)
    for left in checkpoint.rglob(_LEFT_BY_SAFETENSORS):  # when an earlier call was ended
        discard(left)
    if lacking := missing_files(checkpoint, needs):
        raise FileNotFoundError(f"{checkpoint} has {lacking}, which this run needs to continue.")
    sizes = {
        path.relative_to(checkpoint).as_posix(): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path != checkpoint / COMPLETE_FILE
    }
    sync(checkpoint, 0o666 & checkpoint.stat().st_mode)
    write_json(checkpoint / COMPLETE_FILE, sizes)


def last_complete_checkpoint(path: str | Path, needs: RequiredFiles = REQUIRED_TO_RESUME) -> str | None:
    """The newest checkpoint in a run's folder with all sealed and required files; newer incomplete ones are logged."""
    for checkpoint in reversed(sort_checkpoints(str(path))):
        missing = missing_from_checkpoint(checkpoint, needs)
        if missing is None:
            return checkpoint
        logger.warning("%s is not complete (%s) and is ignored.", checkpoint, missing)
    return None


def missing_from_checkpoint(checkpoint: str | Path, needs: RequiredFiles = REQUIRED_TO_RESUME) -> str | None:
    """Say which required or sealed files a checkpoint lacks; None if it is complete."""
    checkpoint = Path(checkpoint)
    if not (checkpoint / COMPLETE_FILE).is_file():
        return f"no {COMPLETE_FILE}"
    try:
        sizes = dict(json.loads((checkpoint / COMPLETE_FILE).read_bytes()))
    except (ValueError, TypeError, RecursionError):
        return f"{COMPLETE_FILE} is broken"
    for name, size in sizes.items():
        file = checkpoint / name
        if not file.is_file():
            return f"no {name}"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size:,} of {size} bytes"
    return missing_files(checkpoint, needs)


def missing_files(checkpoint: Path, needs: RequiredFiles) -> str | None:
    """Say which required files a checkpoint, sealed or not, lacks; None if it has all."""
    for names in needs:
        if not any(next(checkpoint.glob(name), None) for name in names):
            return f"no {names[0]}"
    return None


class DivergedError(ValueError):
    """Loss or gradient became infinite or NaN; the message has step, learning rate and advice."""


@contextmanager
def temporarily(settings: Any, **values: Any) -> Iterator[None]:
    """Set attributes of an object to other values until the `with` block ends."""
    before = {name: getattr(settings, name) for name in values}
    vars(settings).update(values)
    try:
        yield
    finally:
        vars(settings).update(before)


def _expect_no_second_names(model: nn.Module, result: Any) -> None:
    """Miss no second name of a tied weight, which a checkpoint stores under one name."""
    tied: Any = getattr(model, "all_tied_weights_keys", {})
    result.missing_keys[:] = [name for name in result.missing_keys if name not in tied]


class _Watched(NamedTuple):
    """Tensors of a step on the accelerator, which may not have computed them yet."""

    # Infinite or NaN if the step diverged: the gradient's norm or, with fp16, the loss.
    value: Any
    number: int  # of the step, from 1
    loss: Any  # of the step's last micro-batch
    grad_norm: Any  # before clipping
    learning_rate: float


class ResumableTrainer(Trainer):
    """`Trainer` whose checkpoints are always complete, and which stops before it writes NaN.

    - A checkpoint is sealed once everything in it is written, and older ones are deleted only then: `RunFolder.begin`
      finds a complete one whenever the run is killed. If a checkpoint cannot be written, the run ends with an
      `OSError` of one sentence, and earlier ones are kept. The last one is also kept if another is the best. A
      finished run, by its steps, its time or early stopping, takes no further step; `EarlyStoppingCallback` continues
      its count. The checkpoint of an epoch's last step includes the epoch's log entries.
    - It logs readable lines (`ReadableProgress`).
    - An infinite or NaN gradient ends the run with a `DivergedError`: on a CPU before the optimizer step; on an
      accelerator, where checking every step would be slow, before anything after it is logged, evaluated or saved.
      (With fp16, gradients overflow occasionally and the step is skipped; there the loss is checked.)

    Hooks for subclasses to override: `count_items`, `schedule`.

    Args:
        model: The model to train.
        args: transformers' arguments, or the settings of `pretrain` or `finetune`.
        *others: Further arguments of `Trainer`.
        budget: The time budget, if the run is measured in time instead of steps (`max_steps` is then `TICKS`).
        optimization: The settings of the optimizer, for what transformers' arguments lack.
        **kwargs: Arguments of `Trainer`.
    """

    optimizer: Any
    lr_scheduler: LRScheduler | None

    def __init__(
        self,
        model: Any = None,
        args: TrainingArguments | TrainingSettings | None = None,
        *others: Any,
        budget: TimeBudget | None = None,
        optimization: Optimization | None = None,
        **kwargs: Any,
    ) -> None:
        if isinstance(args, TrainingSettings):
            optimization, args = args.optimization, training_arguments(args)
        if budget is not None:
            kwargs["callbacks"] = [budget, *(kwargs.get("callbacks") or ())]  # before the others, which read it
        super().__init__(model, args, *others, **kwargs)
        self.budget, self.optimization = budget, optimization
        self.args.logging_nan_inf_filter = False  # it would log an average instead of a NaN loss
        self._loss: torch.Tensor | None = None
        self._unread: list[_Watched] = []
        # By prefix: the last one's step, model, output.
        self._evaluated: dict[str, tuple[int, Any, EvalLoopOutput]] = {}
        self._first_step = 0  # the last one of the checkpoint from which training continues
        self._schedule: LRScheduler | None = None
        self._unsealed: Path | None = None  # the checkpoint that is being written
        for shown in (PrinterCallback, DEFAULT_PROGRESS_CALLBACK):
            self.remove_callback(shown)
        self.add_callback(ReadableProgress(budget))

    def count_items(self, batches: list[dict[str, Any]], device: torch.device) -> torch.Tensor | int | None:
        """The number by which the loss of a step's micro-batches in all processes is divided; None for a mean."""
        return self.count_labels(batches, device, "labels")

    def count_labels(
        self, batches: list[dict[str, Any]], device: torch.device, name: str
    ) -> torch.Tensor | int | None:
        """The number of labels under one name, without ignored ones; None if there is no such name."""
        counted = []
        for batch in batches:
            if (labels := batch.get(name)) is not None:
                if labels.is_floating_point():  # a number may be that of ignored labels; only NaN is none
                    labels = labels.isnan() * IGNORE_INDEX
                counted.append({**batch, "labels": labels})
        return super().get_batch_samples(iter(counted), len(counted), device)[1]

    def own_optimizer(
        self, name: str, model: nn.Module, groups: Callable[[float], list[dict[str, Any]]]
    ) -> torch.optim.Optimizer:
        """The optimizer of a name in `OPTIMIZERS`, given parameter groups by learning rate.

        Raises:
            ValueError: If it is Muon, which needs whole parameters, with FSDP 1, which splits them.
        """
        if name == "muon" and self.has_fsdp_1:
            raise SettingError.worded(
                "{optim} is {!r}, which needs whole parameters; use FSDP version 2, or DDP.", name
            )
        args: Any = self.args
        others = groups(args.learning_rate)
        settings: dict[str, Any] = {
            "lr": args.learning_rate,
            "betas": (args.adam_beta1, args.adam_beta2),
            "eps": args.adam_epsilon,
        }
        if name == "muon":
            rate = (self.optimization or Optimization()).muon_learning_rate
            split = matrix_groups(model, groups(rate))[0], matrix_groups(model, others)[1]
            return MuonWithAdamW(*split, muon_lr=rate, fused=True, **settings)
        return MyBertAdamW(others, **settings, correct_bias=name == "adamw", fused=True)

    def schedule(self, num_training_steps: int, optimizer: torch.optim.Optimizer) -> LRScheduler | None:
        """A learning-rate schedule instead of transformers' own; None for transformers'."""
        return None

    @property
    def reads_are_free(self) -> bool:
        """Whether reading a tensor costs nothing; on an accelerator it synchronizes with the device."""
        return self.args.device.type == "cpu"

    @property
    def has_fsdp_1(self) -> bool:
        """Whether FSDP version 1 is used, whose shards split parameters."""
        return self.is_fsdp_enabled and getattr(self.accelerator.state.fsdp_plugin, "fsdp_version", 1) == 1

    def get_eval_dataloader(self, *args: Any, **kwargs: Any) -> DataLoader:
        """`Trainer.get_eval_dataloader`, of the whole data in its own order, however training reads its own."""
        with temporarily(self.args, **_IN_EVALUATION):
            return super().get_eval_dataloader(*args, **kwargs)

    def get_test_dataloader(self, *args: Any, **kwargs: Any) -> DataLoader:
        """`Trainer.get_test_dataloader`, of the whole data in its own order."""
        with temporarily(self.args, **_IN_EVALUATION):
            return super().get_test_dataloader(*args, **kwargs)

    def count_own_rows(self, size: int) -> int:
        """How many rows of this batch of `size` rows count: the first ones, before those that accelerate repeats.

        It repeats examples so that all processes have equally many in their last batches. 0 to `size`.
        """
        state = self.accelerator.gradient_state
        if not (state.end_of_dataloader and state.remainder > 0):
            return size
        return min(size, max(0, state.remainder - self.args.process_index * size))

    def evaluation_loop(self, *args: Any, **kwargs: Any) -> EvalLoopOutput:
        """`Trainer.evaluation_loop`, which restores the random state of training.

        A loader draws a random number when it starts, so a run killed between a checkpoint and an evaluation would
        otherwise continue with different ones.
        """
        self._look_for_divergence()
        prefix = kwargs.get("metric_key_prefix", "eval")
        self._evaluated.pop(prefix, None)  # which frees its memory
        with torch.random.fork_rng(devices=[]):
            output = super().evaluation_loop(*args, **kwargs)
        if self.is_in_train:
            self._evaluated[prefix] = (self.state.global_step, self.model, output)
        return output

    def evaluation_in_training(self, prefix: str = "eval") -> EvalLoopOutput | None:
        """The evaluation of the weights with which training ended, by its metrics' prefix; None if it must be made."""
        evaluated_at, model, output = self._evaluated.get(prefix, (-1, None, None))
        is_rounded = self.args.bf16_full_eval or self.args.fp16_full_eval  # only after training
        return None if is_rounded or evaluated_at != self._kept_step or model is not self.model else output

    @property
    def _kept_step(self) -> int | None:
        """The step whose weights the model has after training."""
        state = self.state
        loads_best = self.args.load_best_model_at_end and state.best_model_checkpoint is not None
        return state.best_global_step if loads_best else state.global_step

    def create_scheduler(self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None) -> LRScheduler:
        """`Trainer.create_scheduler`, which prefers the schedule of the hook."""
        if self.lr_scheduler in (None, self._schedule):  # of an earlier call of `train`
            self.lr_scheduler = self._schedule = self.schedule(num_training_steps, optimizer or self.optimizer)
        return super().create_scheduler(num_training_steps, optimizer)

    def get_batch_samples(
        self, epoch_iterator: Iterator, num_batches: int, device: torch.device
    ) -> tuple[list, torch.Tensor | int | None]:
        """The micro-batches of an optimizer step, and `count_items` of them."""
        batches = list(islice(epoch_iterator, num_batches))
        return batches, self.count_items(batches, device)

    def create_accelerator_and_postprocess(self) -> None:
        """`Trainer`'s, which watches gradient norms, with fixes for FSDP with tied weights and for FSDP on CPUs."""
        super().create_accelerator_and_postprocess()
        accelerator: Any = self.accelerator
        state, clip, gather = accelerator.state, accelerator.clip_grad_norm_, accelerator.get_state_dict

        def clip_and_watch(*args: Any, **kwargs: Any) -> Any:
            norm = clip(*args, **kwargs)
            if norm is not None and accelerator.scaler is None:
                self._watch(norm, self._loss, norm)
            return norm

        accelerator.clip_grad_norm_ = clip_and_watch
        accelerator.get_state_dict = lambda *args, **kwargs: self._under_own_names(gather(*args, **kwargs))
        if is_sharded(self.args) and state.distributed_type == DistributedType.MULTI_CPU:
            # accelerate would silently use DDP.
            state.distributed_type = PartialState().distributed_type = DistributedType.FSDP
            state.fsdp_plugin = FullyShardedDataParallelPlugin(**(self.args.fsdp_plugin_args or {}))
            self.is_fsdp_enabled = True
        self._tied_weights = dict(getattr(self.model, "all_tied_weights_keys", {}))
        if self.is_fsdp_enabled:
            # accelerate would give the embeddings a shard of their own, but they are tied to the output layer.
            parts = self.model.modules()
            layers = {type(part).__name__ for part in parts if isinstance(part, GradientCheckpointingLayer)}
            if layers and state.fsdp_plugin.transformer_cls_names_to_wrap is None:
                state.fsdp_plugin.transformer_cls_names_to_wrap = sorted(layers)
            # torch rejects a parameter in two shards; the output layer's bias also belongs to the head.
            for source in [source for source in self._tied_weights.values() if source.endswith(".bias")]:
                module, _, name = source.rpartition(".")
                delattr(self.model.get_submodule(module), name)
            tied = {target: source for target, source in self._tied_weights.items() if not source.endswith(".bias")}
            self.model._tied_weights_keys = self.model.all_tied_weights_keys = tied

    def gathered_weights(self) -> dict[str, torch.Tensor]:
        """The weights of all shards, by name, with FSDP only in the first process; every process must call it."""
        return self.accelerator.get_state_dict(self.model_wrapped)

    def _under_own_names(self, weights: dict[str, torch.Tensor] | None) -> dict[str, torch.Tensor]:
        """Each weight once, under its name in the model, not in the compiled model or of a weight tied to it."""
        weights = {name.replace(_COMPILED, ""): weight for name, weight in (weights or {}).items()}
        for target, source in self._tied_weights.items():
            if target in weights:
                weights.setdefault(source, weights.pop(target))
        return weights

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """`Trainer.save_model`, without the secrets of the arguments: `training_args.bin` may be published."""
        self._look_for_divergence()
        if _internal_call and output_dir is not None:  # it begins a checkpoint
            self._unsealed = Path(output_dir)
            if self.args.should_save:
                (self._unsealed / COMPLETE_FILE).unlink(missing_ok=True)  # first: it is not complete any more
        with temporarily(self.args, **dict.fromkeys(name for name in vars(self.args) if name.endswith("_token"))):
            super().save_model(output_dir, True)
        if self.args.push_to_hub and not _internal_call:
            self.push_to_hub(commit_message="Model save", revision=self.args.hub_revision)

    @property
    def _needs(self) -> RequiredFiles:
        """The files that a checkpoint of this run must contain."""
        if self.args.save_only_model:
            return FOR_ITS_WEIGHTS
        return REQUIRED_TO_RESUME if getattr(self.accelerator, "scaler", None) is None else WITH_FP16

    def train(
        self, resume_from_checkpoint: str | os.PathLike[str] | bool | None = None, *args: Any, **kwargs: Any
    ) -> TrainOutput:
        """`Trainer.train`.

        Raises:
            ValueError: If the checkpoint lacks files to resume from; `Trainer` would silently start that part over.
        """
        if isinstance(resume_from_checkpoint, os.PathLike):
            resume_from_checkpoint = os.fspath(resume_from_checkpoint)
        if resume_from_checkpoint is True:
            last = sort_checkpoints(str(self.args.output_dir))[-1:] or [True]  # `Trainer` says that there is none
            resume_from_checkpoint = last_complete_checkpoint(self.args.output_dir, self._needs) or last[0]
        if isinstance(resume_from_checkpoint, str) and (
            lacking := missing_files(Path(resume_from_checkpoint), self._needs)
        ):
            raise ValueError(f"{resume_from_checkpoint} is not complete ({lacking}); delete it, or name another.")
        self._first_step = 0
        if isinstance(resume_from_checkpoint, str):
            state = TrainerState.load_from_json(str(Path(resume_from_checkpoint, TRAINER_STATE_NAME)))
            self._first_step = state.global_step
            for callback in self._early_stops():
                # `Trainer` restores callbacks only together with its control state, which would stop the run again.
                saved = state.stateful_callbacks.get(type(callback).__name__, {})
                vars(callback).update(saved.get("attributes", {}))
            logger.info("Resuming at step %d from %s.", self._first_step, resume_from_checkpoint)
        self._unsealed = None
        handler, seal = self.callback_handler, _SealCheckpoint(self, self.args.save_total_limit)
        others = [each for each in handler.callbacks if not isinstance(each, (_SealCheckpoint, SaveAfterEvaluation))]
        handler.callbacks = [seal, *others, SaveAfterEvaluation()]
        model: nn.Module | None = self.model  # none before `model_init` makes it
        loads = nullcontext() if model is None else model.register_load_state_dict_post_hook(_expect_no_second_names)
        try:
            with (
                loads,
                # Trainer would delete old checkpoints before the new one is sealed, at the end also the last one.
                temporarily(self.args, save_total_limit=None),
            ):
                return super().train(resume_from_checkpoint, *args, **kwargs)
        except (Exception, KeyboardInterrupt):
            if self._unsealed is None:
                raise
            if self.args.should_save:  # other processes may be writing to it
                discard(self._unsealed)
            checkpoint = last_complete_checkpoint(self._unsealed.parent, self._needs)
            kept = f"{checkpoint} is complete" if checkpoint else "no checkpoint is there"
            if checkpoint and not self.args.save_only_model:
                kept += ": the same command continues from there"
            with readable_disk_errors(self._unsealed, kept):
                raise
        finally:
            for callback in handler.callbacks:
                if isinstance(callback, StopOnInterrupt):
                    callback.give_back()  # `Trainer` does not end a training that failed

    def set_initial_training_values(self, *args: Any, **kwargs: Any) -> Any:
        """`Trainer.set_initial_training_values`, without an epoch for a finished run.

        From the checkpoint of the last step, `Trainer` would take one step too many.
        """
        epochs, *others, max_steps = super().set_initial_training_values(*args, **kwargs)
        is_over = self._first_step >= max_steps or (self.budget is not None and self.budget.is_over)
        for stop in self._early_stops():
            is_over = is_over or stop.early_stopping_patience_counter >= stop.early_stopping_patience
        return (0 if is_over else epochs, *others, max_steps)

    def _early_stops(self) -> list[EarlyStoppingCallback]:
        return [each for each in self.callback_handler.callbacks if isinstance(each, EarlyStoppingCallback)]

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """`Trainer.log`, after training under the step of the weights that are kept.

        The end of a training that had no step left is not logged: its mean loss would be 0.
        """
        self._look_for_divergence()
        if self.state.global_step > self._first_step or "train_runtime" not in logs:
            step = self.state.global_step if self.is_in_train else self._kept_step
            with temporarily(self.state, global_step=step):
                super().log(logs, *args, **kwargs)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: torch.Tensor | int | None = None
    ) -> torch.Tensor:
        """`Trainer.training_step`; keeps the loss for the message if the run diverges."""
        self._loss = loss = super().training_step(model, inputs, num_items_in_batch)
        if self.accelerator.scaler is not None:
            self._watch(loss, loss, math.nan)
        return loss

    def _watch(self, value: Any, loss: Any, grad_norm: Any) -> None:
        """Keep the values that show whether a step diverged; check them now if reading is free."""
        learning_rate = self.optimizer.param_groups[0]["lr"]
        self._unread.append(_Watched(value, self.state.global_step + 1, loss, grad_norm, learning_rate))
        if self.reads_are_free or len(self._unread) >= _MAX_UNREAD:
            self._look_for_divergence()

    def _look_for_divergence(self) -> None:
        watched, self._unread = self._unread, []
        for step in watched:
            if not math.isfinite(float(step.value)):
                # The norm is over all processes, so they all stop; the first one says why.
                if step.value is not step.loss and not self.is_world_process_zero():
                    raise SystemExit(2)
                checkpoint = last_complete_checkpoint(self.args.output_dir, self._needs)
                kept: str = "There is no earlier checkpoint."
                if checkpoint is not None:
                    kept = worded(
                        "{} is good; to start from its weights, pass it as {model} to a new run.", checkpoint
                    )
                raise DivergedError(
                    worded(
                        "Training diverged at step {}: loss {:.4g}, gradient norm {:.4g}, learning rate {:.3g}. Lower "
                        "{learning_rate}, lengthen {warmup_steps}, clip with {max_grad_norm} 1 or less, or use {bf16} "
                        "instead of {fp16}. {}",
                        step.number,
                        float(step.loss),
                        float(step.grad_norm),
                        step.learning_rate,
                        kept,
                    )
                )


class _SealCheckpoint(TrainerCallback):
    """Seals a checkpoint that was written, before other callbacks are told of it, and deletes those beyond a limit."""

    def __init__(self, trainer: ResumableTrainer, limit: int | None) -> None:
        self._trainer, self._limit = trainer, limit

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        trainer, checkpoint = self._trainer, self._trainer._unsealed
        assert checkpoint is not None
        trainer.accelerator.wait_for_everyone()
        if args.should_save:
            seal_checkpoint(checkpoint, trainer._needs)
        trainer._unsealed = None
        if args.should_save:
            checkpoints = sort_checkpoints(str(checkpoint.parent))
            later = checkpoints[checkpoints.index(str(checkpoint)) + 1 :]
            complete = [path for path in later if missing_from_checkpoint(path, trainer._needs) is None]
            for attempt in set(later) - set(complete):
                discard(Path(attempt))  # left by a call that did not complete it
            if (limit := self._limit or 0) > 0:
                # Complete ones belong to another run in this folder; the one just written must count as the newest.
                checkpoints = sort_checkpoints(str(checkpoint.parent), use_mtime=bool(complete))
                best = [str(Path(state.best_model_checkpoint))] if state.best_model_checkpoint else []
                kept = {*checkpoints[-1:], *best}
                surplus = len(checkpoints) - max(limit, len(kept))
                # transformers' `rotate_checkpoints` does not say what it could not delete.
                for earlier in [path for path in checkpoints if path not in kept][: max(0, surplus)]:
                    discard(Path(earlier))
