"""Pretraining from end to end: text to a model folder (`mybert pretrain`)."""

import copy
import logging
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch.utils.data import Subset
from transformers import IntervalStrategy, TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed
from transformers.trainer import TRAINER_STATE_NAME

from ..cards import head_examples
from ..files.checkpoint import Checkpoint, check_available, read_log_history
from ..files.documents import Corpus
from ..files.errors import SettingError, worded
from ..files.loading import load_model, load_tokenizer
from ..files.options import settings_of
from ..files.output import files_written_beside, written_beside
from ..files.processes import only_errors
from ..files.progress import without_loading_bars
from ..files.source import InMemoryData, read_rows
from ..files.text import file_of
from ..modeling_mybert import MyBertConfig, MyBertForMaskedLM, MyBertForPreTraining
from ..pipelines import minimal_pair_accuracy, minimal_pair_columns, pseudo_log_likelihoods
from ..runs import (
    RunFolder,
    StopOnInterrupt,
    TimeBudget,
    draw_curves,
    dry_run_report,
    last_complete_checkpoint,
    log_on_main_process,
    prepare_once,
    settings_by_name,
    size_of,
    state_of_run,
    suggest_bfloat16,
)
from ..tokenization import MyBertTokenizer, VocabularyBasics, entries_for, train_wordpiece
from .build_store import build_token_store
from .card import fill_mask_examples, write_pretraining_card
from .dataset import PretrainingDataset
from .filtering import CorpusFilter
from .initial_weights import add_rows, begin_with_statistics, learn_new_pieces, repeat_positions, require_scikit_learn
from .masking import PretrainingCollator
from .plan import Phase, PretrainPlan, model_config, plan_pretraining
from .pretrain_settings import PretrainSettings
from .settings import OBJECTIVES, FilterSettings
from .token_store import TokenStore, read_summary, store_files
from .trainer import PretrainingTrainer

logger = logging.getLogger(__name__)

Model = MyBertForPreTraining | MyBertForMaskedLM

STORE = "tokens.safetensors"  # in the output folder
_TYPES = ("bert", MyBertConfig.model_type)  # of initial models


@dataclass(frozen=True)
class PreparedRun:
    """What a run needs in addition to its settings, made and checked once."""

    tokenizer: MyBertTokenizer  # that of the store
    store: TokenStore
    training: np.ndarray  # documents, ascending
    validation: np.ndarray  # documents to evaluate on; fewer than 2 for none
    config: MyBertConfig
    checkpoint: str | None  # to resume from
    minimal_pairs: list[tuple[str, str]]  # acceptable and unacceptable sentences to score at the end


def prepare_run(plan: PretrainPlan, folder: RunFolder) -> PreparedRun:
    """Begin or resume the run: make what is missing, and check everything."""
    settings = plan.settings
    given_tokenizer, minimal_pairs = _read_inputs(settings)
    digests: dict[str, str] = {}
    corpus = None
    given = {str(text): text.recorded for text in settings.text if isinstance(text, InMemoryData)}
    if settings.token_store:
        sources = [settings.token_store]
        files = list(map(str, store_files(Path(settings.token_store))))
    else:
        corpus = Corpus(settings.text, settings.corpus, digests)
        sources = corpus.sources
        # the others are on the Hub
        files = [file for file in map(file_of, sources) if file not in given and Path(file).exists()]
        for file in files:
            if not Path(file).is_file():
                raise ValueError(f"{file} is a pipe, which can be read only once; give files or a token store.")
    decided = plan.result_settings() | {"text": list(given.values()) or sources}
    read = [name for name in (settings.tokenizer, settings.model) if name]
    prepared: dict[str, Any] = {}

    def prepare(place: Path) -> dict[str, str]:
        tokenizer = _tokenizer(plan, given_tokenizer, corpus, place)
        path = Path(settings.token_store) if settings.token_store else place / STORE
        if corpus is None or path.exists():  # a given store, or one of an earlier call
            summary = read_summary(path, tokenizer)
        else:
            work = {"show_progress": not plan.training.disable_tqdm} | vars(settings.corpus)
            summary = build_token_store(corpus, tokenizer, path, **work)
        training, validation = _split(summary.documents, settings)
        config = model_config(plan, len(tokenizer), tokenizer.pad_token_id)
        # The saved tokenizer truncates to the model's maximum length, as usual on the Hub.
        tokenizer.model_max_length = config.max_position_embeddings
        prepared.update(tokenizer=tokenizer, training=training, validation=validation, config=config)
        return digests

    folder.begin(decided, files, read, prepare, plan.decisions)
    store = TokenStore(settings.token_store or folder.path / STORE)
    checkpoint = last_complete_checkpoint(folder.path)
    return PreparedRun(**prepared, store=store, checkpoint=checkpoint, minimal_pairs=minimal_pairs)


def _read_inputs(settings: PretrainSettings) -> tuple[MyBertTokenizer | None, list[tuple[str, str]]]:
    """Check what is given besides text: returns the tokenizer, None if one is to be learned, and the minimal pairs."""
    tokenizer = None
    if settings.tokenizer:
        check_available(settings.tokenizer, "tokenizer")
        tokenizer = MyBertTokenizer.from_pretrained(Checkpoint(settings.tokenizer).name, strict=True)
    if settings.model:
        _check_start(settings.model, tokenizer)
    if settings.embedding_init == "cooccurrence":
        require_scikit_learn()
    if tokenizer is None and settings.model:
        tokenizer = MyBertTokenizer.from_pretrained(Checkpoint(settings.model).name, strict=True)
    elif tokenizer is None and settings.token_store:
        store = Path(settings.token_store)
        folder = store if store.is_dir() else store.parent
        if not (folder / "tokenizer.json").is_file():
            raise SettingError.worded(
                "There is no tokenizer.json next to {}; give its tokenizer with {tokenizer}.", store
            )
        tokenizer = MyBertTokenizer.from_pretrained(folder)
    return tokenizer, _read_minimal_pairs(settings.minimal_pairs) if settings.minimal_pairs else []


def _read_minimal_pairs(path: str) -> list[tuple[str, str]]:
    rows = read_rows(path)
    if (columns := minimal_pair_columns(rows[0])) is None:
        raise ValueError(
            f"{path} has the columns {', '.join(map(repr, rows[0]))}; expected minimal pairs in sentence_good and "
            "sentence_bad, or good and bad."
        )
    pairs = [(str(row.get(columns[0]) or ""), str(row.get(columns[1]) or "")) for row in rows]
    if empty := next((number for number, pair in enumerate(pairs, 1) if not all(map(str.strip, pair))), None):
        raise ValueError(f"{path}, row {empty}: an empty sentence; expected a text in {' and '.join(columns)}.")
    return pairs


def split_documents(count: int, validation_split: float) -> tuple[np.ndarray, np.ndarray]:
    """Split documents 0 ... count - 1 into training and held-out ones (none, or 2 or more), evenly over the corpus."""
    documents = np.arange(count)
    number = round(count * validation_split)
    if number < 2:
        return documents, documents[:0]
    is_held_out = np.zeros(count, dtype=bool)
    is_held_out[np.linspace(0, count - 1, number).round().astype(int)] = True
    return documents[~is_held_out], documents[is_held_out]


def _check_start(model: str, given: MyBertTokenizer | None) -> None:
    """Reject an unsuitable initial model, or a tokenizer in place of its own that has other ids."""
    checkpoint = Checkpoint(model).check()
    model_type = checkpoint.fields.get("model_type", "bert")  # Google's have no type
    if model_type not in _TYPES:
        raise SettingError.worded(
            "{model} is {!r}, of type {!r}; pretraining can continue with {} only. mybert finetune, "
            "distill, predict, evaluate, features and score read other encoders.",
            model,
            model_type,
            " or ".join(_TYPES),
        )
    checkpoint.refuse_quantized_weights()
    try:
        own = load_tokenizer(checkpoint).get_vocab()
    except (OSError, ValueError):  # it is not there, or does not belong to the model
        if given is None:
            raise
        return
    vocabulary = own if given is None else given.get_vocab()
    # New pieces may take the place of [unused] entries, and follow the last one.
    moved = [piece for piece in own if vocabulary.get(piece) != own[piece] and not piece.startswith("[unused")]
    if given is not None and moved:
        raise SettingError.worded(
            "{tokenizer} is {!r}, in which {} of the {} pieces of {}, such as {!r}, have other ids or none; a model "
            "continues with the tokenizer it was trained with.",
            given.name_or_path,
            f"{len(moved):,}",
            f"{len(own):,}",
            model,
            min(moved, key=own.__getitem__),
        )


def _tokenizer(
    plan: PretrainPlan, given: MyBertTokenizer | None, corpus: Corpus | None, place: Path
) -> MyBertTokenizer:
    """Return the given tokenizer, or one with pieces learned from the corpus, which is kept in `place`."""
    settings, wanted = plan.settings, plan.settings.new_pieces_settings
    if given is not None and not wanted:
        return given
    # vocab.txt is the last of a tokenizer's files to be moved into place.
    if (place / "vocab.txt").exists():
        return MyBertTokenizer.from_pretrained(place)
    assert corpus is not None  # pieces are learned from text alone
    lines = corpus.lines()
    if settings.filter:  # except many_tokens, which needs the vocabulary that is still to be learned
        lines = CorpusFilter(settings.filter, FilterSettings()).lines(lines)
    text = filter(None, lines)
    work: dict[str, Any] = {"num_processes": settings.num_processes, "show_progress": not plan.training.disable_tqdm}
    if wanted and given is not None:
        tokenizer = learn_new_pieces(given, text, wanted, **work).tokenizer
    else:
        tokenizer = train_wordpiece(texts=text, **work, **settings_of(VocabularyBasics, settings))
    with files_written_beside(place) as folder:
        tokenizer.save_pretrained(folder)
    return tokenizer


def _split(count: int, settings: PretrainSettings) -> tuple[np.ndarray, np.ndarray]:
    needed = OBJECTIVES[settings.objective].documents
    if count < needed:
        raise SettingError.worded(
            "{}: only one document; next sentence prediction draws random sentences from another document. "
            "Put a blank line between documents, or use {objective='mlm'}.",
            ", ".join(map(str, settings.text)) or settings.token_store,
        )
    training, validation = split_documents(count, settings.validation_split)
    if len(training) < needed:
        raise SettingError.worded(
            "{validation_split} is {}; too few of {} documents are left for training.",
            settings.validation_split,
            count,
        )
    if not len(validation):
        found = worded(
            "{validation_split} is {}; of {} documents that is less than the 2 that an evaluation needs.",
            settings.validation_split,
            count,
        )
        if settings.eval_strategy != IntervalStrategy.NO:
            raise SettingError.worded("{} Hold out more, or pass {eval_strategy='no'}.", found)
        if settings.do_eval:
            raise SettingError.worded("{} Hold out more, or leave out {do_eval}.", found)
        if settings.validation_split:
            logger.info("%s Nothing is held out.", found)
    return training, validation


def pretrain(arguments: PretrainSettings | None = None, **settings: Any) -> dict[str, Any]:
    """Pretrain a model.

        >>> mybert.pretrain(text=frame, model_size="tiny", max_steps=2000, output_dir="my-bert")

    The output folder becomes a model folder: model, tokenizer, `README.md`, `training_curves.png` and
    `trainer_state.json`, in addition to `tokens.safetensors` and the checkpoints. The same call resumes an interrupted
    run. In a run of several processes all of them call this; the first one prepares and writes.

    Args:
        arguments: The settings.
        **settings: Instead, the options of the command; `text` may also be a `pandas.DataFrame`, a `datasets.Dataset`
            or an iterable of documents.

    Returns:
        The measurements: the last training log entry and, with held-out documents, the evaluation (`eval_...`); and
        `interrupted`, whether there was a Ctrl-C. If the run ended early, only `interrupted`.

    Raises:
        ValueError: If the text is empty, too short or not in the encoding, the output folder contains other files or a
            run with other settings or text, or training diverges.
    """
    return run_pretraining(plan_pretraining(settings_by_name(PretrainSettings, arguments, settings)))


def describe(plan: PretrainPlan) -> dict[str, Any]:
    """What a pretraining would do: the report of a dry run, see `dry_run_report`."""
    settings = plan.settings
    tokenizer, _ = _read_inputs(settings)
    recorded = [text.recorded for text in settings.text if isinstance(text, InMemoryData)]
    if settings.token_store:
        summary = read_summary(Path(settings.token_store), tokenizer)
        _split(summary.documents, settings)
        sources = [settings.token_store]
        text: dict[str, Any] = {"documents": summary.documents, "tokens": summary.tokens}
    else:
        sources = Corpus(settings.text, settings.corpus, {}).sources
        files = [Path(file_of(str(source))) for source in sources]
        # the name of data in memory may be that of a file, too
        text = {} if recorded else {"bytes": sum(file.stat().st_size for file in files if file.is_file())}
    record = plan.result_settings() | {"text": recorded or sources}
    pieces, wanted = settings.vocab_size if tokenizer is None else len(tokenizer), settings.new_pieces_settings
    if wanted and tokenizer is not None:
        free, number = entries_for(tokenizer, wanted.new_pieces, wanted.append_pieces)
        pieces += max(0, number - len(free))
    config = model_config(plan, pieces)
    with torch.device("meta"):
        model = model_class_of(settings)(config)
    size = {"pieces": config.vocab_size, **size_of(model)}
    return dry_run_report(
        settings,
        plan.decisions,
        state_of_run(settings.output_dir, record, settings.overwrite),
        text={"sources": list(map(str, sources)), **text},
        vocabulary={"from": "learned from the text" if tokenizer is None else str(tokenizer.name_or_path)},
        model={"from": settings.model or "random weights", **size},
        phases=[_description(phase, plan) for phase in plan.phases],
    )


def model_class_of(settings: PretrainSettings) -> type[Model]:
    """The class of the model that is trained."""
    return MyBertForPreTraining if settings.examples.has_pairs else MyBertForMaskedLM


@without_loading_bars()
def run_pretraining(plan: PretrainPlan) -> dict[str, Any]:
    """Pretrain as planned; see `pretrain`."""
    settings, training = plan.settings, plan.training
    if settings.dry_run:
        return describe(plan)
    log_on_main_process(training)
    with RunFolder(settings.output_dir, settings.overwrite) as folder:
        run = prepare_once(training.should_save, lambda: prepare_run(plan, folder))
        suggest_bfloat16(training)
        run.store.summary.log("Corpus")
        state = _read_finished(folder.path) or _train_phases(run, plan)
        if "metrics" not in state:
            return {"interrupted": True}
        checkpoint = Checkpoint(folder.path)
        # the card of a finished run may have been edited
        if training.should_save and (state["steps"] or not (folder.path / "README.md").is_file()):
            is_causal = OBJECTIVES[settings.objective].is_causal  # its model never saw [MASK]
            tasks = () if is_causal else ("fill-mask",)
            if tasks and settings.card_examples:
                shown = run.validation if len(run.validation) else run.training
                examples = fill_mask_examples(checkpoint, run.tokenizer, run.store, shown)
            else:
                examples = head_examples(checkpoint, tasks, tokenizer=run.tokenizer)
            write_pretraining_card(checkpoint, plan, run.store, state["wall_time"], examples)
        if training.should_save and run.minimal_pairs:
            state["metrics"] |= _measure_minimal_pairs(folder.path, run, plan)
        return state["metrics"] | {"interrupted": state["interrupted"]}


def _measure_minimal_pairs(model_dir: Path, run: PreparedRun, plan: PretrainPlan) -> dict[str, float]:
    """The accuracy of a finished model on minimal pairs."""
    with only_errors():  # it has no use for the other head
        model = MyBertForMaskedLM.from_pretrained(model_dir).to(plan.training.device)
    texts = [text for side in zip(*run.minimal_pairs, strict=True) for text in side]
    found = pseudo_log_likelihoods(
        model,
        run.tokenizer,
        texts,
        max_length=plan.longest,  # others have untrained positions
        progress=not plan.training.disable_tqdm,
    )
    scores = [float(scores.sum()) for scores in found]
    accuracy = minimal_pair_accuracy(scores[: len(texts) // 2], scores[len(texts) // 2 :])
    logger.info("Minimal pairs: %.1f %% of %d are judged correctly.", 100 * accuracy, len(run.minimal_pairs))
    return {"minimal_pair_accuracy": accuracy}


def _train_phases(run: PreparedRun, plan: PretrainPlan) -> dict[str, Any]:
    """Train phase by phase, and save the model; a call resumes from the last checkpoint."""
    checkpoint = run.checkpoint
    first_step = int(checkpoint.rpartition("-")[2]) if checkpoint else 0
    wall_time, step = 0.0, first_step
    hours = plan.settings.max_hours
    budget = None if hours is None else TimeBudget.from_checkpoint(3600 * hours, checkpoint)
    phases = plan.phases
    # A phase starts like a resumed run, from the last checkpoint of the previous phase: optimizer, schedule, step
    # count and log continue, and only the data is different.
    for number, (phase, following) in enumerate(zip(phases, [*phases[1:], None], strict=True), start=1):
        done = step if budget is None else int(budget.position)
        if phase.last_step and done >= phase.last_step:
            continue
        if len(phases) > 1:
            logger.info("Phase %d of %d: %s.", number, len(phases), _description(phase, plan))
        interrupt = StopOnInterrupt(plan.settings.overwrite)
        model = _model(plan.settings, run, is_new=checkpoint is None)
        trainer = _trainer(run, plan, phase, following, model, interrupt, budget)
        result = trainer.train(resume_from_checkpoint=checkpoint)
        wall_time += result.metrics["train_runtime"]
        if interrupt.stopped:
            return {"interrupted": True}
        if interrupt.interrupted and phase.last_step:
            logger.warning("Stopped after phase %d; the same command continues from there.", number)
            return {"interrupted": True}
        step = trainer.state.global_step
        checkpoint = str(Path(plan.settings.output_dir) / f"checkpoint-{step}")
    output_dir, metrics = Path(plan.settings.output_dir), dict[str, float]()
    _save(trainer, run.tokenizer, output_dir)  # before an evaluation in half precision rounds the weights
    if trainer.eval_dataset is not None:
        evaluated = trainer.evaluation_in_training()
        metrics = trainer.evaluate() if evaluated is None else evaluated.metrics
    if plan.training.should_save:
        draw_curves(trainer.state.log_history, output_dir)
        with written_beside(output_dir / TRAINER_STATE_NAME) as path:  # the last file, which marks the run as finished
            trainer.state.save_to_json(str(path))
    return {
        "metrics": metrics | _last_logged(trainer.state.log_history, "mlm_loss"),
        "steps": step - first_step,  # of this call
        "wall_time": None if first_step else wall_time,  # in seconds; unknown if earlier calls took some of the steps
        "interrupted": interrupt.interrupted,
    }


def _read_finished(output_dir: Path) -> dict[str, Any]:
    """Return what `_train_phases` returned for a finished run, or nothing."""
    if not (output_dir / TRAINER_STATE_NAME).is_file() or not Checkpoint(output_dir).has_weights:
        return {}
    logger.info("%s is finished; it is not trained again.", output_dir)
    history = read_log_history(output_dir / TRAINER_STATE_NAME)
    metrics = _last_logged(history, "eval_loss") | _last_logged(history, "mlm_loss")
    return {"metrics": metrics, "steps": 0, "wall_time": None, "interrupted": False}


def _last_logged(history: list[dict[str, float]], name: str) -> dict[str, float]:
    """Return the last entry with a measurement."""
    return next((entry for entry in reversed(history) if name in entry), {})


def _description(phase: Phase, plan: PretrainPlan) -> str:
    how = "left to right, " if OBJECTIVES[phase.objective].is_causal else ""
    until = f"step {phase.last_step}"
    if phase.last_step and plan.settings.max_hours is not None:
        until = f"{100 * phase.last_step / plan.max_steps:.3g} % of the time"
    batch = f"batches of {plan.batch_size(phase)}{f', up to {until}' if phase.last_step else ''}"
    return f"{how}sequences of up to {phase.max_length} tokens, {batch}"


class _EndOfPhase(TrainerCallback):
    """Ends a phase at its last step, or when its time is up, with a checkpoint from which the next phase continues."""

    def __init__(self, phase: Phase, following: Phase, budget: TimeBudget | None) -> None:
        self.phase, self.following, self.budget = phase, following, budget

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, model: Any = None, **kwargs: Any
    ) -> None:
        if (state.global_step if self.budget is None else self.budget.position) >= (self.phase.last_step or 0):
            if self.phase.repeats_positions:  # now, so that it is in the checkpoint
                repeat_positions(model.base_model.embeddings.position_embeddings.weight, self.phase.max_length)
            # Otherwise transformers warns that the batch size has changed.
            state.train_batch_size = self.following.per_device_train_batch_size * max(1, args.n_gpu)
            control.should_save = True
            control.should_training_stop = True


def _trainer(
    run: PreparedRun,
    plan: PretrainPlan,
    phase: Phase,
    following: Phase | None,
    model: Model,
    interrupt: StopOnInterrupt,
    budget: TimeBudget | None,
) -> PretrainingTrainer:
    settings, arguments = plan.settings, plan.arguments_of(phase)
    dataset, evaluation = _datasets(run, plan, phase)
    make_collator = partial(
        PretrainingCollator,
        run.tokenizer,
        seed=settings.sampling_seed,
        fixed_length=phase.max_length if settings.torch_compile else None,
    )
    collator = make_collator(rates=settings.masking, objective=phase.objective)
    logger.info("Model: %s parameters.", f"{model.num_parameters():,}")
    if settings.pack and arguments.device.type == "cuda" and model.config.attention_probs_dropout_prob:
        logger.info(
            "Attention has a dropout of %s, which the flash kernel for packed rows lacks: each layer attends to rows "
            "as a whole, with a mask. --dropout 0 (in a model's configuration attention_probs_dropout_prob) is "
            "faster.",
            model.config.attention_probs_dropout_prob,
        )
    logger.info("A training example:\n  %s", run.tokenizer.decode(collator([dataset[0]])["input_ids"][0]))
    logger.info("Below are loss and, in brackets, accuracy for %s.", OBJECTIVES[phase.objective].predicted)
    trainer = PretrainingTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        eval_dataset=evaluation,
        data_collator=collator,
        # At the paper's rates, whatever those of the training, so that runs are comparable.
        eval_collator=make_collator(objective=settings.objective),
        is_causal=OBJECTIVES[phase.objective].is_causal,
        budget=budget,
        optimization=settings.optimization,
        processing_class=run.tokenizer,
        callbacks=[interrupt],
    )
    if following:
        trainer.add_callback(_EndOfPhase(phase, following, budget))
    if settings.phase2_positions == "repeated" and trainer.has_fsdp_1:
        raise SettingError.worded(
            "{phase2_positions} is 'repeated', which needs whole rows; use FSDP version 2, or DDP."
        )
    # Dropout must differ between processes.
    torch.manual_seed(settings.seed + arguments.process_index)
    return trainer


def _datasets(run: PreparedRun, plan: PretrainPlan, phase: Phase) -> tuple[PretrainingDataset, Any]:
    """Return the examples of a phase, and those to evaluate on, if documents are held out."""
    settings = vars(plan.examples_of(phase))

    def examples(documents: np.ndarray, **others: Any) -> PretrainingDataset:
        return PretrainingDataset(
            run.store,
            cls_token_id=run.tokenizer.cls_token_id,
            sep_token_id=run.tokenizer.sep_token_id,
            documents=documents,
            seed=plan.settings.sampling_seed,
            **settings | others,
        )

    training = examples(run.training)
    if len(run.validation) < 2:
        return training, None
    held_out = examples(run.validation, pack=False, row_length=None, objective=plan.settings.objective)
    # Without `set_epoch`, which persistent workers would call: every evaluation uses the examples of epoch 0.
    return training, Subset(held_out, range(len(held_out)))


def _model(settings: PretrainSettings, run: PreparedRun, is_new: bool) -> Model:
    """Return the model to train. If `is_new` is false, its weights are read from a checkpoint later."""
    set_seed(settings.seed)
    model_class = model_class_of(settings)
    config = copy.deepcopy(run.config)  # a phase may change its copy
    if settings.model is None:
        model = model_class(config)
        if settings.embedding_init == "cooccurrence" and is_new:
            begin_with_statistics(model, run.store, run.training)
        return model
    wanted, checkpoint = settings.new_pieces_settings, Checkpoint(settings.model)
    if wanted:
        config.vocab_size = checkpoint.config.vocab_size
    # Whatever the saved dtype: half precision would round small updates to 0.
    loaded, found = load_model(checkpoint, model_class, config, dtype=torch.float32)
    model = cast(Model, loaded)
    new = sorted({".".join(name.split(".")[:2]) for name in found["missing_keys"]})
    logger.info("Weights from %s; new ones: %s.", settings.model, ", ".join(new) or "none")
    if not wanted:
        return model
    return add_rows(model, MyBertTokenizer.from_pretrained(checkpoint.name), run.tokenizer, wanted.new_piece_init)


def _save(trainer: PretrainingTrainer, tokenizer: MyBertTokenizer, output_dir: Path) -> None:
    """Write the model folder; the weights are gathered from all processes."""
    weights = trainer.gathered_weights()
    if not trainer.args.should_save:
        return
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped, keep_torch_compile=False)
    with files_written_beside(output_dir) as folder:
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
