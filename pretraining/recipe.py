"""Pretraining from end to end: text to a model folder (`mybert pretrain`)."""

import copy
import logging
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Subset
from transformers import IntervalStrategy, TrainerCallback, TrainerControl, TrainerState, TrainingArguments, set_seed

from ..files import files_written_beside, usable_cores
from ..modeling_mybert import MyBertForMaskedLM, MyBertForPreTraining
from ..runs import (
    RunFolder,
    StopOnInterrupt,
    draw_curves,
    prepare_once,
    speak_in_one_process,
)
from ..tokenization import MyBertTokenizer, train_wordpiece
from .arguments import Phase, PretrainingArguments
from .collator import PretrainingCollator
from .documents import expand_sources, read_documents
from .examples import PretrainingDataset
from .report import fill_mask_examples, write_pretraining_card
from .token_store import TokenStore, build_token_store
from .trainer import PretrainingTrainer

logger = logging.getLogger(__name__)

STORE = "tokens.safetensors"  # in the output folder
Model = MyBertForPreTraining | MyBertForMaskedLM


def pretrain(arguments: PretrainingArguments) -> dict[str, Any]:
    """Pretrain a model.

    The output folder becomes a model folder: model, tokenizer, `README.md`, `training_curves.png` and
    `trainer_state.json`, beside `tokens.safetensors` and the checkpoints. The same call goes on where an interrupted
    one stopped. In a run of several processes all of them call this; the first one prepares and writes.

    Args:
        arguments: The settings.

    Returns:
        What was measured: the last training log entry and, with held-out documents, the evaluation (`eval_...`);
        `examples`, the fill-mask examples of the card; `interrupted`, whether Ctrl-C ended the run early.

    Raises:
        ValueError: If the text is empty, too short or not in the encoding, the output folder holds other things or a
            run with other settings or text, or training diverges.
        OSError: If a file cannot be read or written.
    """
    speak_in_one_process(arguments)
    with RunFolder(arguments.output_dir, arguments.overwrite) as folder:
        checkpoint = prepare_once(arguments, lambda: _begin(arguments, folder))
        return _pretrain(arguments, checkpoint)


def _pretrain(arguments: PretrainingArguments, checkpoint: str | None) -> dict[str, Any]:
    output_dir = Path(arguments.output_dir)
    tokenizer, store, training, heldout = _open(arguments, output_dir)
    # What is saved truncates to what the model can read, as everywhere on the Hub.
    tokenizer.model_max_length = arguments.model_config(tokenizer).max_position_embeddings
    logger.info("Corpus: %s.", store.summary)
    state = train(lambda: _model(arguments, tokenizer), tokenizer, store, training, heldout, arguments, checkpoint)
    if state["interrupted"]:
        return {"interrupted": True}
    examples = []
    if arguments.should_save:
        if arguments.objective != "ltr":  # which never saw [MASK]
            examples = fill_mask_examples(output_dir, tokenizer, store, heldout if len(heldout) else training)
        if state["steps"] or not (output_dir / "README.md").is_file():  # a finished run's may have been edited since
            write_pretraining_card(output_dir, arguments, store, state["wall_time"], examples)
    return state["metrics"] | {"examples": [asdict(example) for example in examples], "interrupted": False}


def train(
    make_model: Callable[[], Model],
    tokenizer: MyBertTokenizer,
    store: TokenStore,
    training: np.ndarray,
    heldout: np.ndarray,
    arguments: PretrainingArguments,
    checkpoint: str | None = None,
) -> dict[str, Any]:
    """Train a model on the documents of a token store, phase by phase, and save it.

    A phase begins as a resumed run does, from the checkpoint that the one before ended with: optimizer, schedule, step
    count and log go on, only the data is other.

    Args:
        make_model: Makes the model at its start.
        tokenizer: The tokenizer that the store was made with.
        store: The corpus.
        training: Documents to train on, at least 2.
        heldout: Documents to evaluate on; fewer than 2 for none.
        arguments: Settings, of which `output_dir` is where everything goes.
        checkpoint: Checkpoint to go on from.

    Returns:
        `interrupted`; and, if it is false, `metrics`, `steps` (those taken by this call) and `wall_time` in seconds
        (None if earlier calls took steps too).

    Raises:
        ValueError: If there are fewer than two documents to train on, or training diverges.
        OSError: If a checkpoint cannot be written.
    """
    wall_time, first_step = 0.0, _step(checkpoint) if checkpoint else 0
    phases = arguments.phases()
    for number, phase in enumerate(phases, start=1):
        if checkpoint and phase.last_step and _step(checkpoint) >= phase.last_step:
            continue
        if len(phases) > 1:
            logger.info("Phase %d of %d: sequences of up to %d tokens.", number, len(phases), phase.max_length)
        interrupt = StopOnInterrupt()
        trainer = _trainer(make_model(), tokenizer, store, training, heldout, arguments, phase, [interrupt])
        result = trainer.train(resume_from_checkpoint=checkpoint)
        wall_time += result.metrics["train_runtime"]
        if interrupt.interrupted:
            return {"interrupted": True}
        checkpoint = str(Path(arguments.output_dir) / f"checkpoint-{trainer.state.global_step}")
    metrics = trainer.evaluate() if trainer.eval_dataset is not None else {}
    history = trainer.state.log_history
    logged: dict[str, float] = next((entry for entry in reversed(history) if "mlm_loss" in entry), {})
    _save(trainer, tokenizer, Path(arguments.output_dir))
    return {
        "metrics": logged | metrics,
        "steps": trainer.state.global_step - first_step,
        "wall_time": None if first_step else wall_time,
        "interrupted": False,
    }


class _EndOfPhase(TrainerCallback):
    """Stops, with a checkpoint, at the step that ends a phase."""

    def __init__(self, last_step: int) -> None:
        self.last_step = last_step

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if state.global_step >= self.last_step:
            control.should_save = True
            control.should_training_stop = True


def _step(checkpoint: str) -> int:
    return int(checkpoint.rpartition("-")[2])


def _trainer(
    model: Model,
    tokenizer: MyBertTokenizer,
    store: TokenStore,
    training: np.ndarray,
    heldout: np.ndarray,
    arguments: PretrainingArguments,
    phase: Phase,
    callbacks: list[TrainerCallback],
) -> PretrainingTrainer:
    seed = arguments.seed if arguments.data_seed is None else arguments.data_seed

    def examples(documents: np.ndarray, pack: bool = False) -> PretrainingDataset:
        return PretrainingDataset(
            store,
            cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
            max_length=phase.max_length,
            documents=documents,
            seed=seed,
            short_probability=arguments.short_probability,
            objective=arguments.objective,
            static=arguments.static_masking,
            pack=pack,
            row_length=arguments.row_length_of(phase),
        )

    dataset = examples(training, arguments.pack)
    evaluation = None
    if len(heldout) >= 2:
        held_out = examples(heldout)
        # Without `set_epoch`, which is called where workers last: every evaluation sees the examples of epoch 0.
        evaluation = Subset(held_out, range(len(held_out)))
    collator = PretrainingCollator(
        tokenizer, rates=arguments.masking_rates(), seed=seed, objective=arguments.objective
    )
    example = collator([dataset[0]])
    logger.info("Model: %s parameters.", f"{model.num_parameters():,}")
    logger.info("A training example:\n  %s", tokenizer.decode(example["input_ids"][0]))
    arguments = copy.copy(arguments)
    arguments.per_device_train_batch_size = phase.per_device_train_batch_size
    arguments.gradient_accumulation_steps = phase.gradient_accumulation_steps
    trainer = PretrainingTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        eval_dataset=evaluation,
        data_collator=collator,
        processing_class=tokenizer,
        callbacks=[*callbacks, *([_EndOfPhase(phase.last_step)] if phase.last_step else [])],
    )
    # Every process drops out something else.
    torch.manual_seed(arguments.seed + arguments.process_index)
    return trainer


def _save(trainer: PretrainingTrainer, tokenizer: MyBertTokenizer, output_dir: Path) -> None:
    """Write the model folder; the weights are gathered from all processes."""
    weights = trainer.gathered_weights()
    if not trainer.args.should_save:
        return
    model = trainer.accelerator.unwrap_model(trainer.model_wrapped)
    with files_written_beside(output_dir) as folder:
        model.save_pretrained(folder, state_dict=weights)
        tokenizer.save_pretrained(folder)
        trainer.state.save_to_json(str(folder / "trainer_state.json"))
        draw_curves(trainer.state.log_history, folder)


def split_documents(count: int, heldout: float) -> tuple[np.ndarray, np.ndarray]:
    """Split documents 0 ... count - 1 into training and held-out ones, spread evenly over the corpus.

    Args:
        count: Number of documents.
        heldout: Share to hold out, in [0, 1).

    Returns:
        The documents to train on and the held-out ones (none if the share gives fewer than 2).
    """
    documents = np.arange(count)
    number = round(count * heldout)
    if number < 2:
        return documents, documents[:0]
    is_heldout = np.zeros(count, dtype=bool)
    is_heldout[np.linspace(0, count - 1, number).round().astype(int)] = True
    return documents[~is_heldout], documents[is_heldout]


def _begin(arguments: PretrainingArguments, folder: RunFolder) -> str | None:
    """Begin the run, or go on with it; returns the checkpoint to go on from."""
    if arguments.data:
        sources = [arguments.data]
        files = _files_of_store(Path(arguments.data))
    else:
        sources = expand_sources(arguments.text)
        files = [source for source in sources if Path(source).is_file()]  # the others are on the Hub
    settings = arguments.decisive() | {"text": sources}
    read = [name for name in (arguments.tokenizer, arguments.model) if name]
    return folder.begin(settings, files, read, lambda place: _prepare(arguments, sources, place))


def _prepare(arguments: PretrainingArguments, sources: list[str], place: Path) -> None:
    """Make what the run needs in a folder, where it is not there yet, and check it."""
    if not arguments.data:
        tokenizer = _tokenizer(arguments, sources, place)
        path = place / STORE
        if not path.exists():
            build_token_store(
                sources,
                tokenizer,
                path,
                split=arguments.split_sentences,
                encoding=arguments.encoding,
                text_column=arguments.text_column,
                num_processes=usable_cores() if arguments.num_processes is None else arguments.num_processes,
                show_progress=not arguments.disable_tqdm,
            )
    _open(arguments, place)


def _files_of_store(path: Path) -> list[str]:
    return sorted(map(str, path.glob("*.safetensors"))) if path.is_dir() else [str(path)]


def _open(arguments: PretrainingArguments, place: Path) -> tuple[MyBertTokenizer, TokenStore, np.ndarray, np.ndarray]:
    """What `_prepare` made, checked: the tokenizer, the corpus, documents to train on and held-out ones."""
    tokenizer = MyBertTokenizer.from_pretrained(_tokenizer_source(arguments, place))
    store = TokenStore(arguments.data or place / STORE, tokenizer)
    if store.summary.documents < 2 and arguments.objective == "mlm+nsp":
        raise ValueError(
            f"{', '.join(arguments.text) or arguments.data}: one document only; next sentence prediction draws random "
            "sentences from another document. Put a blank line between documents."
        )
    training, heldout = _split(store, arguments)
    arguments.model_config(tokenizer)
    return tokenizer, store, training, heldout


def _model(arguments: PretrainingArguments, tokenizer: MyBertTokenizer) -> Model:
    set_seed(arguments.seed)
    config = arguments.model_config(tokenizer)
    has_pairs = arguments.objective in ("mlm+nsp", "mlm+sop")
    model_class: type[Model] = MyBertForPreTraining if has_pairs else MyBertForMaskedLM
    return (
        model_class(config) if arguments.model is None else model_class.from_pretrained(arguments.model, config=config)
    )


def _tokenizer_source(arguments: PretrainingArguments, place: Path) -> str | Path:
    """Where the tokenizer is: named, of the model to start from, beside the token store, or made in `place`."""
    if named := arguments.tokenizer or arguments.model:
        return named
    if arguments.data is None:
        return place
    store = Path(arguments.data)
    folder = store if store.is_dir() else store.parent
    if not (folder / "tokenizer.json").is_file():
        raise ValueError(f"There is no tokenizer.json beside {store}; name the store's tokenizer with --tokenizer.")
    return folder


def _tokenizer(arguments: PretrainingArguments, sources: list[str], place: Path) -> MyBertTokenizer:
    source = _tokenizer_source(arguments, place)
    # vocab.txt is the last of a tokenizer's files to be moved into place.
    if source != place or (place / "vocab.txt").exists():
        return MyBertTokenizer.from_pretrained(source)

    def documents() -> Iterator[list[str]]:
        return read_documents(sources, encoding=arguments.encoding, text_column=arguments.text_column)

    if next(documents(), None) is None:
        raise ValueError(f"The corpus is empty: {', '.join(sources)} hold no text.")
    tokenizer = train_wordpiece(
        documents(),
        arguments.vocab_size,
        layout=arguments.vocab_layout,
        lower_case=arguments.lower_case,
        num_processes=arguments.num_processes,
        show_progress=not arguments.disable_tqdm,
    )
    with files_written_beside(place) as folder:
        tokenizer.save_pretrained(folder)
    return tokenizer


def _split(store: TokenStore, arguments: PretrainingArguments) -> tuple[np.ndarray, np.ndarray]:
    training, heldout = split_documents(store.summary.documents, arguments.heldout)
    if len(training) < (2 if arguments.objective == "mlm+nsp" else 1):
        raise ValueError(f"heldout is {arguments.heldout}; of {store.summary.documents} documents too few are left.")
    if not len(heldout) and arguments.eval_strategy != IntervalStrategy.NO:
        raise ValueError(
            f"heldout is {arguments.heldout}; of {store.summary.documents} documents that is less than the 2 that an "
            "evaluation needs. Hold out more, or pass --eval_strategy no."
        )
    return training, heldout
