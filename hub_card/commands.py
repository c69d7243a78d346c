"""The commands `mybert card`, which describes a model folder, and `mybert push`, which publishes it."""

import logging
import shutil
from collections.abc import Callable
from dataclasses import MISSING, fields
from itertools import product
from pathlib import Path
from typing import TypeVar

from huggingface_hub import EvalResult, EvalResultEntry, metadata_save

from ..cards import HubMetadata, head_examples
from ..cards.card import CardContent, TrainingDescription, describe_model, hub_fields, read_utf8, write_card
from ..files.errors import SettingError
from ..files.options import settings_of
from ..files.output import outputs_together
from ..files.tables import parse_json
from .publishing import (
    add_benchmark_results,
    check_benchmark_results,
    metadata_of_card,
    publish,
    write_publishable,
)
from .settings import CardSettings, PublicationOptions, PushSettings, UploadOptions

logger = logging.getLogger(__name__)

R = TypeVar("R", EvalResult, EvalResultEntry)


def make_card(arguments: CardSettings) -> Path:
    """Run `mybert card`: write a model folder's `README.md`, or add metadata to an existing one; return its path.

    Raises:
        FileNotFoundError: If the folder, its `config.json` or weights, or the file of results does not exist.
        ValueError: If the folder is broken, a card exists whose text would change and `overwrite` is not set, or
            an argument is invalid.
    """
    model_dir = Path(arguments.model)
    model = describe_model(model_dir)
    card = model_dir / "README.md"
    entries = _read_results(arguments.benchmarks, EvalResultEntry) if arguments.benchmarks else ()
    check_benchmark_results(model_dir, entries, arguments.overwrite)
    with outputs_together() as open_output:
        adds = False
        if card.exists() and not arguments.overwrite:
            adds = _add_metadata(card, arguments, open_output)
        else:
            content = CardContent(
                name=arguments.name or model_dir.resolve().name,
                summary=arguments.summary,
                model=model,
                training=TrainingDescription(corpus=arguments.corpus),
                results=_read_results(arguments.results, EvalResult) if arguments.results else (),
                examples=head_examples(model_dir, texts=arguments.texts) if arguments.examples else (),
                limits=arguments.limits or (),
                **settings_of(HubMetadata, arguments.metadata),
            )
            write_card(model_dir, content, open_output(card, overwrite=True))
        add_benchmark_results(open_output, model_dir, entries, arguments.overwrite)
    if adds:
        logger.info("Added to the metadata of %s; its text is unchanged.", card)
    return card


def _add_metadata(card: Path, arguments: CardSettings, open_output: Callable[..., Path]) -> bool:
    """Add to a run's card what the run cannot know, such as its license; return whether anything is added."""
    added = hub_fields(arguments.metadata)
    texts = ("name", "summary", "corpus", "limits", "results", "texts")
    changes_text = any(getattr(arguments, name) is not None for name in texts)
    if not added and not changes_text and arguments.benchmarks:
        return False
    if not added or changes_text:
        raise SettingError.worded(
            "{} already exists; {overwrite=True} replaces it (not needed for license, tags and the like).", card
        )
    metadata = metadata_of_card(card, read_utf8(card))
    for name, value in added.items():
        if isinstance(value, list):
            there = metadata.get(name) or []
            there = there if isinstance(there, list) else [there]
            added[name] = [*there, *(each for each in dict.fromkeys(value) if each not in there)]
    temporary = open_output(card, overwrite=True)
    shutil.copyfile(card, temporary)
    metadata_save(temporary, metadata | added)
    return True


def _read_results(path: str, kind: type[R]) -> list[R]:
    rows = parse_json(path, 1, read_utf8(Path(path)))
    known = {item.name for item in fields(kind)}
    if not isinstance(rows, list) or not all(isinstance(row, dict) and set(row) <= known for row in rows):
        raise ValueError(f"{path} does not hold a list of objects with fields of {kind.__name__}.")
    names = [item.name for item in fields(kind) if item.default is MISSING and "value" not in item.name]
    for number, name in product(range(len(rows)), names):
        if name in rows[number] and not (isinstance(rows[number][name], str) and rows[number][name]):
            raise ValueError(f"{path}: {name} of result {number + 1} is {rows[number][name]!r}; expected a text.")
    try:
        return [kind(**row) for row in rows]
    except (TypeError, ValueError) as error:  # a field is missing
        found = str(error).replace(f"{kind.__name__}.__init__()", "a result is").rstrip(".")
        raise ValueError(f"{path}: {found}.") from error


def push(arguments: PushSettings) -> str:
    """Run `mybert push`; return the URL of the commit or pull request, or the folder that was written."""
    if arguments.output_dir:
        options = settings_of(PublicationOptions, arguments.upload)
        return str(
            write_publishable(arguments.model, arguments.output_dir, arguments.repo_id, arguments.overwrite, **options)
        )
    commit = publish(arguments.model, arguments.repo_id, **settings_of(UploadOptions, arguments.upload))
    return str(commit.pr_url or commit.commit_url)
