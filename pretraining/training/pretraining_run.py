"""Pretraining from end to end: text to a model folder (`mybert pretrain`)."""

import copy
import logging
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME

from ...files import Checkpoint, files_written_beside, only_errors, written_beside
from ...files.options import settings_of
from ...modeling_mybert import MyBertConfig, MyBertForMaskedLM, MyBertForPreTraining
from ...runs import (
    RunFolder,
    StopOnInterrupt,
    TimeBudget,
    arguments_by_name,
    draw_curves,
    log_on_main_process,
    prepare_once,
)
from ...tokenization import MyBertTokenizer
from ..examples.collator import PretrainingCollator
from ..examples.dataset import PretrainingDataset
from ..examples.example_settings import MaskingRates
from ..examples.masking import ChangingRate, PositionNow, StepOfExample
from ..initialization.cooccurrence import begin_with_statistics
from ..initialization.new_pieces import add_rows
from ..initialization.positions import repeat_positions
from .preparation import PreparedRun, prepare_run
from .pretraining_arguments import Phase, PretrainingArguments
from .pretraining_card import fill_mask_examples, write_pretraining_card
from .trainer import PretrainingTrainer

logger = logging.getLogger(__name__)

Model = MyBertForPreTraining | MyBertForMaskedLM

# What the log's names stand for.
_PREDICTED = {
    "mlm+nsp": "masked words (mlm) and next sentences (nsp)",
    "mlm": "masked words (mlm)",
    "mlm+sop": "masked words (mlm) and the order of two segments (nsp)",
    "ltr": "the next word (mlm)",
}


def pretrain(arguments: PretrainingArguments | None = None, **settings: Any) -> dict[str, Any]:
    """Pretrain a model.

        >>> mybert.pretrain(text=frame, model_size="tiny", max_steps=2000, output_dir="my-bert")

    The output folder becomes a model folder: model, tokenizer, `README.md`, `training_curves.png` and
    `trainer_state.json`, in addition to `tokens.safetensors` and the checkpoints. The same call resumes an interrupted
    run. In a run of several processes all of them call this; the first one prepares and writes.

    Args:
        arguments: The settings.
        **settings: Instead, the fields of `PretrainingArguments`, which are those of the command; `text` may
            also be a `pandas.DataFrame`, a `datasets.Dataset` or an iterable of documents.

    Returns:
        The measurements: the last training log entry and, with held-out documents, the evaluation (`eval_...`);
        `examples`, the fill-mask examples of the card; and `interrupted`, whether there was a Ctrl-C. If the run ended
        early, only `interrupted`.

    Raises:
        ValueError: If the text is empty, too short or not in the encoding, the output folder contains other files or a
            run with other settings or text, or training diverges.
        OSError: If a file cannot be read or written.
    """
    arguments = arguments_by_name(PretrainingArguments, arguments, settings)
    log_on_main_process(arguments)
    with RunFolder(arguments.output_dir, arguments.overwrite) as folder:
        run = prepare_once(arguments.should_save, lambda: prepare_run(arguments, folder))
        return _pretrain(arguments, run)


def _pretrain(arguments: PretrainingArguments, run: PreparedRun) -> dict[str, Any]:
    output_dir = Path(arguments.output_dir)
    run.store.summary.log("Corpus")
    state = _read_finished(output_dir) or _train(run, arguments)
    if "metrics" not in state:
        return {"interrupted": True}
    examples = []
    if arguments.should_save:
        if arguments.objective != "ltr":  # whose model never saw [MASK]
            shown = run.heldout if len(run.heldout) else run.training
            examples = fill_mask_examples(output_dir, run.tokenizer, run.store, shown)
        # the card of a finished run may have been edited
        if state["steps"] or not (output_dir / "README.md").is_file():
            write_pretraining_card(output_dir, arguments, run.store, state["wall_time"], examples)
    described = {"examples": [asdict(example) for example in examples]}
    return state["metrics"] | described | {"interrupted": state["interrupted"]}


def _train(run: PreparedRun, arguments: PretrainingArguments) -> dict[str, Any]:
    """Train phase by phase, and save the model; a call resumes from the last checkpoint."""
    checkpoint = run.checkpoint
    wall_time, first_step = 0.0, _step(checkpoint) if checkpoint else 0
    hours = arguments.max_hours
    budget = None if hours is None else TimeBudget.from_checkpoint(3600 * hours, checkpoint)
    phases = arguments.phases()
    # A phase starts like a resumed run, from the last checkpoint of the previous phase: optimizer, schedule, step
    # count and log continue, and only the data is different.
    for number, (phase, following) in enumerate(zip(phases, [*phases[1:], None], strict=True), start=1):
        done = (_step(checkpoint) if checkpoint else 0) if budget is None else int(budget.position)
        if phase.last_step and done >= phase.last_step:
            continue
        if len(phases) > 1:
            logger.info("Phase %d of %d: %s.", number, len(phases), _description(phase, arguments))
        interrupt = StopOnInterrupt()
        model = _model(arguments, run, is_new=checkpoint is None)
        trainer = _trainer(run, arguments, phase, following, model, interrupt, budget)
        result = trainer.train(resume_from_checkpoint=checkpoint)
        wall_time += result.metrics["train_runtime"]
        if interrupt.stopped:
            return {"interrupted": True}
        if interrupt.interrupted and phase.last_step:
            logger.warning("Stopped after phase %d; the same command continues from there.", number)
            return {"interrupted": True}
        checkpoint = str(Path(arguments.output_dir) / f"checkpoint-{trainer.state.global_step}")
    metrics: dict[str, float] = {}
    if trainer.eval_dataset is not None:
        evaluated = trainer.evaluation_in_training()
        metrics = trainer.evaluate() if evaluated is None else evaluated.metrics
    _save(trainer, run.tokenizer, Path(arguments.output_dir))
    return {
        "metrics": _last_logged(trainer.state.log_history) | metrics,
        "steps": trainer.state.global_step - first_step,  # of this call
        "wall_time": None if first_step else wall_time,  # in seconds; unknown if earlier calls took some of the steps
        "interrupted": interrupt.interrupted,
    }


def _read_finished(output_dir: Path) -> dict[str, Any]:
    """Return what `_train` returned for a finished run, or nothing."""
    if not (output_dir / TRAINER_STATE_NAME).is_file() or not Checkpoint(output_dir).has_weights:
        return {}
    logger.info("%s is finished; it is not trained again.", output_dir)
    history = TrainerState.load_from_json(str(output_dir / TRAINER_STATE_NAME)).log_history
    evaluated: dict[str, float] = next((entry for entry in reversed(history) if "eval_loss" in entry), {})
    return {"metrics": _last_logged(history) | evaluated, "steps": 0, "wall_time": None, "interrupted": False}


def _last_logged(history: list[dict[str, float]]) -> dict[str, float]:
    return next((entry for entry in reversed(history) if "mlm_loss" in entry), {})


def _description(phase: Phase, arguments: PretrainingArguments) -> str:
    how = "left to right, " if phase.objective == "ltr" else ""
    end = ""
    if phase.last_step:
        share = 100 * phase.last_step / arguments.max_steps
        end = (
            f", up to step {phase.last_step}" if arguments.max_hours is None else f", up to {share:.3g} % of the time"
        )
    batch = f"batches of {arguments.batch_size(phase)}"
    return f"{how}sequences of up to {phase.max_length} tokens, {batch}{end}"


class _EndOfPhase(TrainerCallback):
    """Ends a phase at its last step, or when its time is up, with a checkpoint from which the next phase continues."""

    def __init__(self, phase: Phase, last_step: int, following: Phase, budget: TimeBudget | None) -> None:
        self.phase = phase
        self.last_step = last_step
        self.following = following
        self.budget = budget

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        if (state.global_step if self.budget is None else self.budget.position) >= self.last_step:
            if self.phase.repeats_positions:  # now, so that it is in the checkpoint
                repeat_positions(model.base_model.embeddings.position_embeddings.weight, self.phase.max_length)
            # Otherwise transformers warns that the batch size has changed.
            state.train_batch_size = self.following.per_device_train_batch_size * max(1, args.n_gpu)
            control.should_save = True
            control.should_training_stop = True


def _step(checkpoint: str) -> int:
    return int(checkpoint.rpartition("-")[2])


def _trainer(
    run: PreparedRun,
    arguments: PretrainingArguments,
    phase: Phase,
    following: Phase | None,
    model: Model,
    interrupt: StopOnInterrupt,
    budget: TimeBudget | None,
) -> PretrainingTrainer:
    tokenizer, seed = run.tokenizer, arguments.sampling_seed
    dataset, evaluation = _datasets(run, arguments, phase)
    rates = MaskingRates(**settings_of(MaskingRates, arguments))
    fixed_length = phase.max_length if arguments.torch_compile else None
    collator = PretrainingCollator(
        tokenizer,
        rates=rates,
        seed=seed,
        objective=phase.objective,
        changing_rate=_changing_rate(
            arguments,
            StepOfExample(arguments.batch_size(phase), len(dataset))
            if budget is None
            else PositionNow(budget.position),
        ),
        fixed_length=fixed_length,
    )
    logger.info("Model: %s parameters.", f"{model.num_parameters():,}")
    _advise_no_dropout(arguments, model.config)
    logger.info("A training example:\n  %s", tokenizer.decode(collator([dataset[0]])["input_ids"][0]))
    logger.info("Below are loss and, in brackets, accuracy for %s.", _PREDICTED[phase.objective])
    arguments = copy.copy(arguments)
    arguments.per_device_train_batch_size = phase.per_device_train_batch_size
    arguments.gradient_accumulation_steps = phase.gradient_accumulation_steps
    trainer = PretrainingTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        eval_dataset=evaluation,
        data_collator=collator,
        # At the paper's rates, whatever those of the training, so that runs are comparable.
        eval_collator=PretrainingCollator(
            tokenizer, seed=seed, objective=arguments.objective, fixed_length=fixed_length
        ),
        is_causal=phase.objective == "ltr",
        budget=budget,
        processing_class=tokenizer,
        callbacks=[interrupt],
    )
    if phase.last_step and following:
        trainer.add_callback(_EndOfPhase(phase, phase.last_step, following, budget))
    if arguments.phase2_positions == "repeated" and trainer.has_fsdp_1:
        raise ValueError("phase2_positions is 'repeated', which needs whole rows; use FSDP version 2, or DDP.")
    # Dropout must differ between processes.
    torch.manual_seed(arguments.seed + arguments.process_index)
    return trainer


def _datasets(run: PreparedRun, arguments: PretrainingArguments, phase: Phase) -> tuple[PretrainingDataset, Any]:
    """Return the examples of a phase, and those to evaluate on, if documents are held out."""
    settings = vars(arguments.example_settings(phase))

    def examples(documents: np.ndarray, **others: Any) -> PretrainingDataset:
        return PretrainingDataset(
            run.store,
            cls_token_id=run.tokenizer.cls_token_id,
            sep_token_id=run.tokenizer.sep_token_id,
            documents=documents,
            seed=arguments.sampling_seed,
            **settings | others,
        )

    training = examples(run.training)
    if len(run.heldout) < 2:
        return training, None
    held_out = examples(run.heldout, pack=False, objective=arguments.objective)
    # Without `set_epoch`, which persistent workers would call: every evaluation uses the examples of epoch 0.
    return training, Subset(held_out, range(len(held_out)))


def _advise_no_dropout(arguments: PretrainingArguments, config: MyBertConfig) -> None:
    """Advise against dropout if it prevents the flash kernel for packed rows."""
    if arguments.pack and arguments.device.type == "cuda" and config.attention_probs_dropout_prob:
        logger.info(
            "Attention has a dropout of %s, which the flash kernel for packed rows lacks: each layer attends to rows "
            "as a whole, with a mask. --dropout 0 (in a model's configuration attention_probs_dropout_prob) is "
            "faster.",
            config.attention_probs_dropout_prob,
        )


def _changing_rate(arguments: PretrainingArguments, position: Callable[[int, int], int]) -> ChangingRate | None:
    """Return the masking rate by example, from the first masked step to the end of the run; None if it is constant."""
    if arguments.mlm_probability_end is None:
        return None
    begin = max((phase.last_step or 0 for phase in arguments.phases() if phase.objective == "ltr"), default=0)
    return ChangingRate(arguments.mlm_probability, arguments.mlm_probability_end, begin, arguments.max_steps, position)


def _model(arguments: PretrainingArguments, run: PreparedRun, is_new: bool) -> Model:
    """Return the model to train. If `is_new` is false, its weights are read from a checkpoint later."""
    set_seed(arguments.seed)
    has_pairs = arguments.objective in ("mlm+nsp", "mlm+sop")
    model_class: type[Model] = MyBertForPreTraining if has_pairs else MyBertForMaskedLM
    config = copy.deepcopy(run.config)  # a phase may change its copy
    if arguments.model is None:
        model = model_class(config)
        if arguments.embeddings == "cooccurrence" and is_new:
            begin_with_statistics(model, run.store, run.training)
        return model
    wanted = arguments.new_pieces_settings()
    if wanted:
        config.vocab_size = MyBertConfig.from_pretrained(arguments.model).vocab_size
    with only_errors():
        model, found = model_class.from_pretrained(
            arguments.model,
            config=config,
            dtype=torch.float32,  # whatever the saved dtype: half precision would round small updates to 0
            use_safetensors=True,
            output_loading_info=True,
        )
    new = sorted({".".join(name.split(".")[:2]) for name in found["missing_keys"]})
    logger.info("Weights from %s; new ones: %s.", arguments.model, ", ".join(new) or "none")
    if not wanted:
        return model
    return add_rows(model, MyBertTokenizer.from_pretrained(arguments.model), run.tokenizer, wanted.new_rows)


def _save(trainer: PretrainingTrainer, tokenizer: MyBertTokenizer, output_dir: Path) -> None:
    """Write the model folder; the weights are gathered from all processes."""
    weights = trainer.gathered_weights()
    if not trainer.args.should_save:
        return
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_torch_compile=False)
    with files_written_beside(output_dir) as folder:
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        draw_curves(trainer.state.log_history, folder)
    with written_beside(output_dir / TRAINER_STATE_NAME) as path:  # the last file, which marks the run as finished
        trainer.state.save_to_json(str(path))
