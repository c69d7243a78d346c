"""MyBERT model folders to plain `model_type: "bert"` folders and back; the weights are not changed.

Tools that only know `bert` (vLLM, text-embeddings-inference, optimum and others) serve the result.
"""

import os
import re
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from ..cards.card import pictures_of
from ..cards.examples import IMPORT
from ..files.checkpoint import (
    COMPANIONS,
    TOKENIZER_FILES,
    WEIGHTS_FILE,
    Checkpoint,
    check_available,
    copy_companions,
    read_json_object,
)
from ..files.output import write_json
from ..files.settings import build
from ..tokenization import MyBertTokenizer, save_wordpiece_vocab
from .key_map import find_head, name_in_model
from .model_folder import EncoderFolder, ModelFolder, new_model_folder
from .settings import ConvertBertSettings, ConvertToBertSettings
from .verification import MODEL_CARD, ConversionReport, require, verify_folder, write_conversion_report

_SETTINGS = "tokenizer_config.json"
# The files read from a Hub repository.
_HUB_FILES = (
    "config.json", WEIGHTS_FILE, "model-*-of-*.safetensors", f"{WEIGHTS_FILE}.index.json", MODEL_CARD,
    *TOKENIZER_FILES, *COMPANIONS,
)  # fmt: skip


def to_transformers_bert(
    model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], **options: Any
) -> ConversionReport:
    """Write a MyBERT model as a folder that transformers' `Bert` classes, and all tools for them, can load.

    Files of sentence-transformers are copied as well.

    Args:
        model_dir: A MyBERT model folder.
        output_dir: The folder to write; it is created at the end, on success.
        **options: Those of `mybert convert to-bert`, such as `overwrite=True`.

    Raises:
        ValueError: If the folder is incomplete, the result differs, or `output_dir` contains other files.
    """
    places = {"model": model_dir, "output_dir": output_dir}
    settings = build(ConvertToBertSettings, places | options)
    folder = ModelFolder(model_dir)
    folder.require_plain_bert()
    return _convert(folder, "bert", settings)


def from_transformers_bert(
    model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], head: str | None = None, **options: Any
) -> ConversionReport:
    """Write a model of transformers' `Bert` classes as a MyBERT model folder.

    Files of sentence-transformers are copied as well.

    Args:
        model_dir: A BERT model folder with safetensors weights, or the name of one on the Hub; names from before
            2020 (`LayerNorm.gamma`) are accepted.
        output_dir: The folder to write; it is created at the end, on success.
        head: Kind of model, such as "classifier"; by default the one in `architectures`. Weights of another head are
            left out, as the report says: `bert-base-uncased` has those of `pretraining`.
        **options: Those of `mybert convert bert`, such as `overwrite=True`.

    Raises:
        ValueError: If the folder is incomplete or has features that MyBERT lacks, the result differs, or `output_dir`
            contains other files.
    """
    places = {"model": model_dir, "output_dir": output_dir}
    settings = build(ConvertBertSettings, {**places, "head": head, **options})
    check_available(model_dir)
    folder = ModelFolder(Checkpoint(model_dir).local_folder(_HUB_FILES), find_head(head) if head else None)
    return _convert(folder, "mybert", settings)


def _convert(
    folder: ModelFolder, model_type: str, settings: ConvertBertSettings | ConvertToBertSettings
) -> ConversionReport:
    folder.configuration()  # raises an error if MyBERT does not support it
    folder.load_tokenizer()  # raises an error if it is not there, or does not belong to the model
    names = folder.parameters()
    if folder.other_pooling:
        raise ValueError(f"{folder.path}: {folder.other_pooling}")
    with new_model_folder(settings.output_dir, settings.overwrite, settings.model) as output:
        tensors = {name_in_model(name, folder.head): folder.read(name) for name in names}
        save_file(tensors, output / WEIGHTS_FILE, metadata={"format": "pt"})
        del tensors
        write_json(output / "config.json", folder.config_as(model_type), sort_keys=True)
        decisions = copy_what_goes_along(folder, output)
        report = None
        if settings.verify:
            report = require(verify_folder(folder, ModelFolder(output)), settings.output_dir)
        result = ConversionReport(
            source=settings.model,
            output=settings.output_dir,
            head=folder.head,
            decisions=tuple(decisions),
            parameters=len(names),
            ignored=folder.ignored(names),
            verification=report,
        )
        if (folder.root / MODEL_CARD).is_file():
            card = (folder.root / MODEL_CARD).read_text(encoding="utf-8", errors="surrogateescape")
            card = _card_of(model_type, card, folder.root, Path(settings.output_dir))
            for picture in pictures_of(card, folder.root):
                shutil.copyfile(picture, output / picture.name)
            (output / MODEL_CARD).write_text(card, encoding="utf-8", errors="surrogateescape", newline="")
        write_conversion_report(output, result)
    return result


def _card_of(model_type: str, card: str, source: Path, output: Path) -> str:
    """Adapt a folder's card to its converted folder; what the owner wrote remains."""
    old, new = ("MyBert", "Bert") if model_type == "bert" else ("Bert", "MyBert")
    loading = rf"from transformers import pipeline\n\nrun = pipeline\([^\n]*model={re.escape(repr(str(source)))}"
    alone = rf"(?<!{re.escape(IMPORT)}\n)(?<!import mybert\n)^(?={loading})"
    # Class, model type, tag, title and path become the new folder's; examples import this package if they need it.
    for pattern, text in (
        (rf"^{re.escape(IMPORT)}\n", "") if model_type == "bert" else (alone, f"{IMPORT}\n"),
        (rf"^- {old.lower()}$", f"- {new.lower()}"),
        (rf"^\| Architecture \| {old}", f"| Architecture | {new}"),
        (rf"^\| Model type \| {old.lower()} \|", f"| Model type | {new.lower()} |"),
        (rf"^# {re.escape(source.resolve().name)}$", f"# {output.resolve().name}"),
        (re.escape(f"model={str(source)!r}"), f"model={str(output)!r}"),
    ):
        card = re.sub(pattern, lambda found, text=text: text, card, flags=re.MULTILINE)  # type: ignore[misc]
    return card


def copy_what_goes_along(source: ModelFolder | EncoderFolder, output: Path) -> list[str]:
    """Copy the source's tokenizer and sentence-transformers files to a new model folder; return the decisions made."""
    companions = copy_companions(source.root, output)
    decisions = [_copy_tokenizer(source, output)]
    if companions:
        decisions.append(f"sentence-transformers: {len(companions)} files copied, {', '.join(companions[:4])}")
    return decisions


def _copy_tokenizer(source: ModelFolder | EncoderFolder, output: Path) -> str:
    """Copy a tokenizer so that AutoTokenizer loads it as the same class; return the decision made."""
    files = [path.name for pattern in TOKENIZER_FILES for path in source.path.glob(pattern)]
    settings = read_json_object(source.path / _SETTINGS) if _SETTINGS in files else {}
    name = settings.get("tokenizer_class") or source.config.get("tokenizer_class")
    # If no file names a class, AutoTokenizer goes by the model type, which has changed; and tools without transformers
    # cannot read `vocab.txt` alone. In both cases the tokenizer is saved again, complete.
    if isinstance(source, EncoderFolder):
        if "tokenizer.json" not in files:  # which tools without transformers need
            source.load_tokenizer().save_pretrained(output)
            return "tokenizer: saved again, with tokenizer.json"
    elif name is None or (name in ("BertTokenizer", "BertTokenizerFast") and "tokenizer.json" not in files):
        MyBertTokenizer.from_pretrained(source.path).save_pretrained(output)
        return f"tokenizer: made from {'tokenizer.json' if 'tokenizer.json' in files else 'vocab.txt'}"
    for file in files:
        shutil.copyfile(source.path / file, output / file)
    if {"tokenizer.json", "vocab.txt"} <= set(files):  # of which tokenizer.json is read
        save_wordpiece_vocab(source.load_tokenizer(), output)
        if (output / "vocab.txt").read_bytes() != (source.path / "vocab.txt").read_bytes():
            return "tokenizer: copied, vocab.txt made from tokenizer.json"
    return "tokenizer: copied"
