"""Pretraining from end to end: text to a model folder (`mybert pretrain`)."""

import logging
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from transformers import IntervalStrategy, TrainingArguments, set_seed

from ..hub_card import CardContent, Example, TrainingDescription, describe_environment, run_example, write_card
from ..modeling_mybert import MyBertConfig, MyBertForPreTraining
from ..tokenization import MyBertTokenizer, expand_paths, train_wordpiece
from ..training import PretrainingTrainer, StopOnInterrupt, nothing_left_behind, open_run_folder
from ..visualization import training_curves
from .collator import PretrainingCollator
from .documents import read_documents
from .examples import PretrainingDataset
from .masking import MaskingRates
from .token_store import TokenStore, build_token_store

logger = logging.getLogger(__name__)

# Layers, width and heads: Devlin et al. (2018) for base and large, the released miniatures (Turc et al., 2019) for the
# others; feed-forward layers are four times as wide.
MODEL_SIZES = {
    "tiny": (2, 128, 2),
    "mini": (4, 256, 4),
    "small": (4, 512, 8),
    "medium": (8, 512, 8),
    "base": (12, 768, 12),
    "large": (24, 1024, 16),
}
EXAMPLES = 3  # fill-mask examples on the card

# Settings that decide a run's result: an interrupted run goes on only with the same.
_DECISIVE = (
    *("encoding", "split_sentences", "tokenizer", "vocab_size", "vocab_layout", "lower_case"),
    *("model_size", "num_hidden_layers", "hidden_size", "num_attention_heads", "dropout"),
    *("max_length", "short_probability", "mlm_probability", "heldout"),
    *("learning_rate", "warmup_steps", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "max_steps", "num_train_epochs", "seed"),
)


@dataclass
class PretrainingArguments(TrainingArguments):
    """Settings of `pretrain`: those below and all of transformers' `TrainingArguments`, with the paper's defaults."""

    text: list[str] = field(
        default_factory=list,
        metadata={"help": "Text files, folders or patterns: one sentence a line, a blank line between documents."},
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of the text files."})
    split_sentences: bool = field(
        default=False, metadata={"help": "Lines hold running text; split it into sentences."}
    )
    tokenizer: str | None = field(
        default=None, metadata={"help": "Folder or vocab.txt of a tokenizer; without it one is trained on the text."}
    )
    vocab_size: int = field(default=30522, metadata={"help": "Entries of the vocabulary, where one is trained."})
    vocab_layout: Literal["google", "compact"] = field(
        default="google",
        metadata={"help": "google: reserved entries where Google's vocabularies have them; compact: five only."},
    )
    lower_case: bool = field(default=True, metadata={"help": "Lower-case the text, where a vocabulary is trained."})
    model_size: str = field(default="base", metadata={"help": f"Size of the model: {', '.join(MODEL_SIZES)}."})
    num_hidden_layers: int | None = field(default=None, metadata={"help": "Layers, in place of the size's."})
    hidden_size: int | None = field(default=None, metadata={"help": "Width, in place of the size's."})
    num_attention_heads: int | None = field(default=None, metadata={"help": "Heads, in place of the size's."})
    dropout: float = field(
        default=0.1, metadata={"help": "Dropout of hidden states and attention, in [0, 1]; small models want less."}
    )
    max_length: int = field(default=128, metadata={"help": "Longest sequence in tokens, special tokens included."})
    short_probability: float = field(
        default=0.1, metadata={"help": "Share of documents cut into shorter sequences, in [0, 1]."}
    )
    mlm_probability: float = field(default=0.15, metadata={"help": "Share of tokens to predict, in [0, 1]."})
    heldout: float = field(
        default=0.01, metadata={"help": "Share of documents held out for evaluation, in [0, 1); 0 for none."}
    )
    overwrite: bool = field(default=False, metadata={"help": "Delete what the output folder holds."})
    learning_rate: float = field(default=1e-4, metadata={"help": "Peak learning rate."})
    warmup_steps: float = field(default=0.01, metadata={"help": "Steps of warm-up; below 1 a share of all steps."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay, without biases and LayerNorm."})
    adam_epsilon: float = field(default=1e-6, metadata={"help": "Epsilon of Adam."})
    dataloader_pin_memory: bool = field(
        default_factory=torch.cuda.is_available, metadata={"help": "Pin batches in memory, for a faster way to a GPU."}
    )
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Sequences of a batch on a device."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "The same in evaluation."})
    logging_steps: float = field(default=50, metadata={"help": "Log every so many steps."})
    save_total_limit: int | None = field(default=2, metadata={"help": "Keep this many checkpoints."})

    def __post_init__(self) -> None:
        """Check what can be checked without looking at files."""
        if not self.text:
            raise ValueError("text is empty; name at least one file or folder to pretrain on.")
        if self.output_dir is None:
            raise ValueError("output_dir is not set; name the folder to write the model to.")
        if self.model_size not in MODEL_SIZES:
            raise ValueError(f"model_size is {self.model_size!r}; expected one of {', '.join(MODEL_SIZES)}.")
        if self.vocab_layout not in ("google", "compact"):
            raise ValueError(f"vocab_layout is {self.vocab_layout!r}; expected google or compact.")
        if not 0 <= self.heldout < 1:
            raise ValueError(f"heldout is {self.heldout}; expected a share of documents in [0, 1).")
        super().__post_init__()

    def model_config(self, tokenizer: MyBertTokenizer) -> MyBertConfig:
        """Configuration of the model for a tokenizer."""
        layers, width, heads = MODEL_SIZES[self.model_size]
        width = self.hidden_size or width
        return MyBertConfig(
            vocab_size=len(tokenizer),
            num_hidden_layers=layers if self.num_hidden_layers is None else self.num_hidden_layers,
            hidden_size=width,
            num_attention_heads=self.num_attention_heads or heads,
            intermediate_size=4 * width,
            hidden_dropout_prob=self.dropout,
            attention_probs_dropout_prob=self.dropout,
            max_position_embeddings=max(512, self.max_length),
            pad_token_id=tokenizer.pad_token_id,
        )


def pretrain(arguments: PretrainingArguments) -> dict[str, Any]:
    """Pretrain a model with masked LM and next sentence prediction.

    The output folder becomes a model folder: model, tokenizer, `README.md`, `training_curves.png` and
    `trainer_state.json`, beside `tokens.safetensors` and the checkpoints. The same call goes on where an interrupted
    one stopped.

    Args:
        arguments: The settings.

    Returns:
        What was measured: the last training log entry and, with held-out documents, the evaluation (`eval_...`);
        `examples`, the fill-mask examples of the card; `interrupted`, whether Ctrl-C ended the run early.

    Raises:
        ValueError: If the text is empty, holds fewer than two documents or is not in the encoding, or the output
            folder holds other things.
        OSError: If a file cannot be read or written.
    """
    output_dir = Path(arguments.output_dir)
    files = expand_paths(arguments.text)
    checkpoint = open_run_folder(output_dir, _settings(arguments, files), arguments.overwrite)
    with nothing_left_behind(output_dir):
        tokenizer = _tokenizer(arguments, files, output_dir)
        store = _store(arguments, files, tokenizer, output_dir / "tokens.safetensors")
        training, heldout = _split(store, arguments)
        model_config = arguments.model_config(tokenizer)
    logger.info("Corpus: %s.", store.summary)
    set_seed(arguments.seed)
    model = MyBertForPreTraining(model_config)
    logger.info("Model: %s parameters.", f"{model.num_parameters():,}")
    state = train(model, tokenizer, store, training, heldout, arguments, checkpoint)
    if state["interrupted"]:
        return {"interrupted": True}
    examples = _examples(output_dir, tokenizer, store, heldout if len(heldout) else training)
    _write_card(output_dir, arguments, store, state["wall_time"], examples)
    return state["metrics"] | {"examples": [asdict(example) for example in examples], "interrupted": False}


def train(
    model: MyBertForPreTraining,
    tokenizer: MyBertTokenizer,
    store: TokenStore,
    training: np.ndarray,
    heldout: np.ndarray,
    arguments: PretrainingArguments,
    checkpoint: str | None = None,
) -> dict[str, Any]:
    """Train a model on the documents of a token store and save it.

    Args:
        model: The model; trained in place.
        tokenizer: The tokenizer that the store was made with.
        store: The corpus.
        training: Documents to train on, at least 2.
        heldout: Documents to evaluate on; fewer than 2 for none.
        arguments: Settings, of which `output_dir` is where everything goes.
        checkpoint: Checkpoint to go on from.

    Returns:
        `metrics`, `wall_time` in seconds and `interrupted`.

    Raises:
        ValueError: If there are fewer than two documents to train on.
    """

    def pairs(documents: np.ndarray) -> PretrainingDataset:
        return PretrainingDataset(
            store,
            cls_token_id=tokenizer.cls_token_id,
            sep_token_id=tokenizer.sep_token_id,
            max_length=arguments.max_length,
            documents=documents,
            seed=arguments.seed,
            short_probability=arguments.short_probability,
        )

    dataset = pairs(training)
    collator = PretrainingCollator(
        tokenizer, rates=MaskingRates(predicted=arguments.mlm_probability), seed=arguments.seed
    )
    example = collator([dataset[0]])
    logger.info("A training example, masked:\n  %s", tokenizer.decode(example["input_ids"][0]))
    interrupt = StopOnInterrupt()
    trainer = PretrainingTrainer(
        model=model,
        args=arguments,
        train_dataset=dataset,
        eval_dataset=pairs(heldout) if len(heldout) >= 2 else None,
        data_collator=collator,
        processing_class=tokenizer,
        callbacks=[interrupt],
    )
    result = trainer.train(resume_from_checkpoint=checkpoint)
    output_dir = Path(arguments.output_dir)
    if interrupt.interrupted:
        logger.warning("Stopped at step %d; the same command goes on from there.", trainer.state.global_step)
        return {"metrics": {}, "wall_time": result.metrics["train_runtime"], "interrupted": True}
    metrics = trainer.evaluate() if trainer.eval_dataset is not None else {}
    logged: dict[str, float] = next(
        (entry for entry in reversed(trainer.state.log_history) if "mlm_loss" in entry), {}
    )
    model.save_pretrained(output_dir)
    tokenizer.save_pretrained(output_dir)
    trainer.save_state()
    _draw_curves(trainer.state.log_history, output_dir)
    return {"metrics": logged | metrics, "wall_time": result.metrics["train_runtime"], "interrupted": False}


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


def _settings(arguments: PretrainingArguments, files: list[str]) -> dict[str, Any]:
    """What decides the result of a run."""
    return {"command": "pretrain", "text": files} | {name: getattr(arguments, name) for name in _DECISIVE}


def _tokenizer(arguments: PretrainingArguments, files: list[str], output_dir: Path) -> MyBertTokenizer:
    if arguments.tokenizer:
        return MyBertTokenizer.from_pretrained(arguments.tokenizer)
    if (output_dir / "tokenizer.json").exists():
        return MyBertTokenizer.from_pretrained(output_dir)
    if next(read_documents(files, encoding=arguments.encoding), None) is None:
        raise ValueError(f"The corpus is empty: {', '.join(files)} hold no text.")
    tokenizer = train_wordpiece(
        files,
        arguments.vocab_size,
        layout=arguments.vocab_layout,
        lower_case=arguments.lower_case,
        encoding=arguments.encoding,
        show_progress=not arguments.disable_tqdm,
    )
    tokenizer.save_pretrained(output_dir)
    return tokenizer


def _store(arguments: PretrainingArguments, files: list[str], tokenizer: MyBertTokenizer, path: Path) -> TokenStore:
    if not path.exists():
        documents = read_documents(files, split=arguments.split_sentences, encoding=arguments.encoding)
        build_token_store(documents, tokenizer, path, show_progress=not arguments.disable_tqdm)
    store = TokenStore(path, tokenizer)
    if store.summary.documents < 2:
        raise ValueError(
            f"{', '.join(files)}: one document only; next sentence prediction draws random sentences from another "
            "document. Put a blank line between documents."
        )
    return store


def _split(store: TokenStore, arguments: PretrainingArguments) -> tuple[np.ndarray, np.ndarray]:
    training, heldout = split_documents(store.summary.documents, arguments.heldout)
    if len(training) < 2:
        raise ValueError(f"heldout is {arguments.heldout}; of {store.summary.documents} documents too few are left.")
    if not len(heldout) and arguments.eval_strategy != IntervalStrategy.NO:
        raise ValueError(
            f"heldout is {arguments.heldout}; of {store.summary.documents} documents that is less than the 2 that an "
            "evaluation needs. Hold out more, or pass --eval_strategy no."
        )
    return training, heldout


def _draw_curves(log_history: list[dict[str, float]], output_dir: Path) -> None:
    try:
        training_curves(log_history, output_dir / "training_curves.png")
    except ImportError as error:
        logger.warning(str(error))


def _examples(output_dir: Path, tokenizer: MyBertTokenizer, store: TokenStore, documents: np.ndarray) -> list[Example]:
    """Fill-mask on a few sentences of the given documents, a word of each hidden."""
    generator = np.random.default_rng(0)
    examples: list[Example] = []
    for document in generator.permutation(documents)[:200]:
        if len(examples) == EXAMPLES:
            break
        sentence = int(generator.integers(store.document_starts[document], store.document_starts[document + 1]))
        tokens = store.tokens[slice(*store.sentence_starts[sentence : sentence + 2])].astype(int).tolist()
        pieces = tokenizer.convert_ids_to_tokens(tokens)
        words = [
            position
            for position, (piece, following) in enumerate(zip(pieces, [*pieces[1:], ""], strict=True))
            if piece.isalpha() and len(piece) > 3 and not following.startswith("##")
        ]
        if not 8 <= len(tokens) <= 30 or not words:
            continue
        hidden = int(generator.choice(words))
        word, tokens[hidden] = pieces[hidden], tokenizer.mask_token_id
        code = (
            "import mybert\n"
            "from transformers import pipeline\n\n"
            f"fill_mask = pipeline('fill-mask', model={str(output_dir)!r})\n"
            f"for answer in fill_mask({tokenizer.decode(tokens)!r}, top_k=5):\n"
            "    print(f\"{answer['score']:.3f}  {answer['token_str']}\")"
        )
        examples.append(run_example(f"Fill-mask (the text has: {word})", code))
    return examples


def _write_card(
    output_dir: Path, arguments: PretrainingArguments, store: TokenStore, wall_time: float, examples: list[Example]
) -> None:
    summary = store.summary
    write_card(
        output_dir,
        CardContent(
            name=output_dir.name,
            summary="A BERT model pretrained with masked LM and next sentence prediction.",
            training=TrainingDescription(
                corpus=", ".join(Path(path).name for path in arguments.text),
                documents=summary.documents,
                sentences=summary.sentences,
                tokens=summary.tokens,
                hyperparameters={
                    "learning rate": arguments.learning_rate,
                    "batch size": arguments.train_batch_size * arguments.gradient_accumulation_steps,
                    "longest sequence": arguments.max_length,
                    "predicted tokens": arguments.mlm_probability,
                },
                seeds=[arguments.seed],
                wall_time=wall_time,
                **describe_environment(),
            ),
            examples=examples,
        ),
    )
