"""`mybert data`: text to a token store, and a look at its examples."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..files.checkpoint import check_available
from ..files.documents import expand_sources
from ..files.options import settings_of
from ..files.output import check_output_files, output_to
from ..files.tables import json_line
from ..tokenization import MyBertTokenizer
from .build_store import inspected, token_store_built
from .filtering import FilterReport
from .settings import OBJECTIVES, DataSettings, ExampleSettings
from .token_store import SHARD, StoreSummary, TokenStore

if TYPE_CHECKING:
    from .dataset import PretrainingDataset
    from .masking import PretrainingCollator

logger = logging.getLogger(__name__)

_EXPORTED = 100  # examples, at most


def prepare_data(arguments: DataSettings) -> StoreSummary | FilterReport | None:
    """Tokenize text into a token store, show an example and, if requested, export some.

    With `dry_run` the text is only examined. An interrupted call continues where it stopped. An example is shown once
    all shards exist; if the store is too small for one, there is a warning.

    Returns:
        The contents of the store, None if shards are still missing or it yields no example; with `dry_run`, what would
        be left out.

    Raises:
        ValueError: If an output exists and is neither to be replaced nor appended to, or is also an input, or there
            are no examples to export; see also `build_token_store`.
    """
    if arguments.tokenizer:
        check_available(arguments.tokenizer, "tokenizer")
    tokenizer = MyBertTokenizer.from_pretrained(arguments.tokenizer, strict=True) if arguments.tokenizer else None
    show_progress = not arguments.quiet
    if arguments.dry_run:
        report = inspected(arguments.text, tokenizer, arguments, show_progress)
        title = "What each filter alone would leave out" if report.each_alone else "What would be left out"
        logger.info("%s:\n%s", title, report)
        if report.examples:
            logger.info("For example:\n%s", report.shown_examples())
        return report
    assert tokenizer is not None
    output = Path(arguments.output)
    if arguments.export:
        check_output_files([arguments.export], arguments.overwrite, [*expand_sources(arguments.text), output])
    if not arguments.text:
        summary = TokenStore(output, tokenizer).summary
        summary.log(str(output))
        return _show(arguments, tokenizer, summary)
    with token_store_built(
        arguments.text, tokenizer, output, arguments, arguments.overwrite, show_progress
    ) as summary:
        summary.log(str(output))
        count = arguments.num_shards
        if count > 1 and not all((output / SHARD.format(index, count)).exists() for index in range(count)):
            logger.info("Shard %d of %d is done; others are still missing.", arguments.shard_index, count)
            return None
        return _show(arguments, tokenizer, summary)


def _show(arguments: DataSettings, tokenizer: MyBertTokenizer, summary: StoreSummary) -> StoreSummary | None:
    """Show an example of a store, and export some; return the summary, or None if the store has no example."""
    store = TokenStore(arguments.output, tokenizer)
    try:
        _show_examples(arguments, store, tokenizer)
    except ValueError as error:
        if arguments.export:
            raise
        logger.warning("The store has no example to show, or to pretrain on: %s", error)
        return None
    return summary


def _show_examples(arguments: DataSettings, store: TokenStore, tokenizer: MyBertTokenizer) -> None:
    # Imported only here: building a store does not need torch.
    from .dataset import PretrainingDataset
    from .masking import PretrainingCollator

    dataset = PretrainingDataset(
        store,
        cls_token_id=tokenizer.cls_token_id,
        sep_token_id=tokenizer.sep_token_id,
        seed=arguments.seed,
        **settings_of(ExampleSettings, arguments.examples),
    )
    collator = PretrainingCollator(
        tokenizer, rates=arguments.masking, seed=arguments.seed, objective=arguments.objective
    )
    logger.info("%s examples in an epoch. The first one:", f"{len(dataset):,}")
    logger.info("  %s", tokenizer.decode(collator([dataset[0]])["input_ids"][0]))
    if arguments.export:
        path = Path(arguments.export)
        with (
            output_to(path, overwrite=arguments.overwrite) as temporary,
            temporary.open("w", encoding="utf-8") as file,
        ):
            for example in _readable(dataset, collator, tokenizer, min(_EXPORTED, len(dataset))):
                file.write(json_line(example) + "\n")
        logger.info("Examples: %s.", path)


def _readable(
    dataset: "PretrainingDataset", collator: "PretrainingCollator", tokenizer: MyBertTokenizer, count: int
) -> Iterator[dict[str, Any]]:
    """Yield examples of epoch 0 with the fields of Google's `TrainingInstance`; a packed row has a list of labels."""
    from ..modeling_mybert import IGNORE_INDEX

    name = OBJECTIVES[dataset.settings.objective].label
    for index in range(count):
        batch = collator([dataset[index]])
        labels = batch["labels"][0]
        positions = (labels != IGNORE_INDEX).nonzero()[:, 0]
        example: dict[str, Any] = {
            "tokens": tokenizer.convert_ids_to_tokens(batch["input_ids"][0].tolist()),
            "segment_ids": batch["token_type_ids"][0].tolist(),
        }
        if name:
            values = [label == 1 for label in batch["next_sentence_label"].tolist() if label != IGNORE_INDEX]
            example[name] = values if dataset.settings.pack else values[0]
        yield example | {
            "masked_lm_positions": positions.tolist(),
            "masked_lm_labels": tokenizer.convert_ids_to_tokens(labels[positions].tolist()),
        }
