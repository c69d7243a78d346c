"""Text to a token store as a command, and a look at the examples that come out of it."""

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ..files import usable_cores
from ..modeling_mybert import IGNORED_LABEL
from ..tokenization import MyBertTokenizer
from .masking import MaskingRates
from .token_store import SHARD, StoreSummary, TokenStore, build_token_store

if TYPE_CHECKING:
    from .collator import PretrainingCollator
    from .examples import PretrainingDataset

logger = logging.getLogger(__name__)


@dataclass
class DataArguments:
    """Settings of `prepare_data`."""

    output: str = field(metadata={"help": "Token store to write: a file or, with several shards, a folder."})
    tokenizer: str = field(metadata={"help": "Folder or vocab.txt of the tokenizer."})
    text: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Text files (plain, JSON lines, Parquet; compressed too), folders, patterns, - (standard input) "
            "or data sets of the Hub (hf:owner/name:configuration:split). Without text, a look at the store."
        },
    )
    split_sentences: bool = field(
        default=False, metadata={"help": "Lines hold running text; split it into sentences."}
    )
    encoding: str = field(default="utf-8", metadata={"help": "Encoding of plain text and JSON."})
    text_column: str = field(
        default="text", metadata={"help": "Field or column of the text in JSON, Parquet and on the Hub."}
    )
    num_processes: int | None = field(
        default=None, metadata={"help": "Processes that tokenize; by default one per core."}
    )
    shard_index: int = field(default=0, metadata={"help": "Shard to build here, from 0."})
    num_shards: int = field(default=1, metadata={"help": "Shards of the store; each takes every so many-th document."})
    append: bool = field(default=False, metadata={"help": "Put the text behind what the store holds already."})
    overwrite: bool = field(default=False, metadata={"help": "Replace a store that is there."})
    export: str | None = field(
        default=None, metadata={"help": "JSON-lines file for examples as a model sees them, to look at."}
    )
    export_count: int = field(default=100, metadata={"help": "How many examples to export."})
    objective: Literal["mlm+nsp", "mlm", "ltr", "mlm+sop"] = field(
        default="mlm+nsp", metadata={"help": "What the examples shown and exported are for."}
    )
    max_length: int = field(default=128, metadata={"help": "Their longest sequence, special tokens included."})
    mlm_probability: float = field(default=0.15, metadata={"help": "Share of their tokens to predict, in [0, 1]."})
    max_predictions: int | None = field(
        default=None, metadata={"help": "Most tokens to predict in a sequence; no limit if not given."}
    )
    masking_unit: Literal["token", "word", "span"] = field(
        default="token", metadata={"help": "Hide single tokens, whole words, or several words in a row (SpanBERT)."}
    )
    seed: int = field(default=42, metadata={"help": "Seed of pairs and masks."})
    quiet: bool = field(default=False, metadata={"help": "Show neither progress nor summary."})


def prepare_data(arguments: DataArguments) -> StoreSummary:
    """Tokenize text into a token store, show an example of it and, if asked for, export some.

    An interrupted call goes on where it stopped. Examples are shown once all shards are there.

    Args:
        arguments: The settings.

    Returns:
        What the store, or the shard that was built, holds.

    Raises:
        ValueError: If the output exists and is to be neither replaced nor appended to, or see `build_token_store` and
            `PretrainingDataset`.
        OSError: If a file cannot be read or written.
    """
    if arguments.export_count < 1:
        raise ValueError(f"export_count is {arguments.export_count}; expected 1 or more.")
    rates = MaskingRates(
        predicted=arguments.mlm_probability, unit=arguments.masking_unit, max_predictions=arguments.max_predictions
    )
    output = Path(arguments.output)
    tokenizer = MyBertTokenizer.from_pretrained(arguments.tokenizer)
    if arguments.text:
        summary = _build(arguments, output, tokenizer)
        logger.info("%s: %s.", output, summary)
        if arguments.num_shards > 1 and not all(
            (output / SHARD.format(index, arguments.num_shards)).exists() for index in range(arguments.num_shards)
        ):
            logger.info("Shard %d of %d is there; others are not yet.", arguments.shard_index, arguments.num_shards)
            return summary
    store = TokenStore(output, tokenizer)
    if not arguments.text:
        summary = store.summary
        logger.info("%s: %s.", output, summary)
    _show(arguments, store, tokenizer, rates)
    return summary


def _build(arguments: DataArguments, output: Path, tokenizer: MyBertTokenizer) -> StoreSummary:
    is_sharded = arguments.num_shards > 1
    path = output / SHARD.format(arguments.shard_index, arguments.num_shards) if is_sharded else output
    if path.exists() and not (arguments.append or arguments.overwrite):
        raise ValueError(f"{path} exists; name another output, or use --append or --overwrite.")
    if arguments.append and arguments.overwrite:
        raise ValueError("append and overwrite are both set; a store is either added to or replaced.")
    return build_token_store(
        arguments.text,
        tokenizer,
        output,
        split=arguments.split_sentences,
        encoding=arguments.encoding,
        text_column=arguments.text_column,
        num_processes=usable_cores() if arguments.num_processes is None else arguments.num_processes,
        shard_index=arguments.shard_index,
        num_shards=arguments.num_shards,
        append=arguments.append,
        show_progress=not arguments.quiet,
    )


def _show(arguments: DataArguments, store: TokenStore, tokenizer: MyBertTokenizer, rates: MaskingRates) -> None:
    # Only here: building a store takes no torch.
    from .collator import PretrainingCollator
    from .examples import PretrainingDataset

    dataset = PretrainingDataset(
        store,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        max_length=arguments.max_length,
        seed=arguments.seed,
        objective=arguments.objective,
    )
    collator = PretrainingCollator(tokenizer, rates=rates, seed=arguments.seed, objective=arguments.objective)
    logger.info("%s examples in an epoch. The first one:", f"{len(dataset):,}")
    logger.info("  %s", tokenizer.decode(collator([dataset[0]])["input_ids"][0]))
    if arguments.export:
        path = Path(arguments.export)
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.partial")
        with partial.open("w", encoding="utf-8") as file:
            for example in _readable(dataset, collator, tokenizer, min(arguments.export_count, len(dataset))):
                file.write(json.dumps(example, ensure_ascii=False) + "\n")
        partial.replace(path)
        logger.info("Examples: %s.", path)


def _readable(
    dataset: "PretrainingDataset", collator: "PretrainingCollator", tokenizer: MyBertTokenizer, count: int
) -> Iterator[dict[str, Any]]:
    """Examples of epoch 0 with the fields of Google's `TrainingInstance`."""
    name = {"mlm+nsp": "is_random_next", "mlm+sop": "is_swapped"}.get(dataset.objective)
    for index in range(count):
        batch = collator([dataset[index]])
        labels = batch["labels"][0]
        positions = (labels != IGNORED_LABEL).nonzero()[:, 0]
        example: dict[str, Any] = {
            "tokens": tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist()),
            "segment_ids": batch["token_type_ids"][0].tolist(),
        }
        if name:
            example[name] = bool(batch["next_sentence_label"][0])
        yield example | {
            "masked_lm_positions": positions.tolist(),
            "masked_lm_labels": tokenizer.convert_ids_to_tokens(labels[positions].tolist()),
        }
