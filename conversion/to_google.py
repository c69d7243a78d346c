"""MyBERT model folders to checkpoints that Google's TensorFlow 1 code restores."""

import logging
import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from ..files.checkpoint import companion_files
from ..files.errors import SettingError
from ..files.output import output_to, write_json
from ..files.settings import build
from ..metrics import google_row_order, has_unnamed_labels
from ..modeling_mybert import MyBertConfig
from ..tokenization import MyBertTokenizer
from .key_map import ACTIVATIONS, GROUPS, RATES, SIZES, WeightRow, sizes_of
from .model_folder import ModelFolder
from .settings import ConvertToGoogleSettings
from .tensorflow import bundle_files, write_tensor_bundle
from .verification import ConversionReport, require, verify_conversion

logger = logging.getLogger(__name__)

_GOOGLES_NAMES = {name: google for google, name in ACTIVATIONS.items()} | {"gelu_new": "gelu", "gelu_fast": "gelu"}
_LAYER_NORM_EPS = 1e-12
_CONFIG_FILE, _VOCAB_FILE = "bert_config.json", "vocab.txt"


def export_google_checkpoint(
    model_dir: str | os.PathLike[str], prefix: str | os.PathLike[str], **options: Any
) -> ConversionReport:
    """Write a model folder as a checkpoint that Google's TensorFlow 1 code restores.

    Next to `PREFIX.index` and `PREFIX.data-*`, the folder gets `bert_config.json`, `vocab.txt` and the `checkpoint`
    state file. Google's graph always has a pooler: for a head without one, the folder's pooler is written if there is
    one, otherwise zeros, which are not used. If the classes of a classifier are those of a task of Google's
    `run_classifier.py`, its rows are reordered accordingly.

    Args:
        model_dir: A MyBERT (or BERT) model folder.
        prefix: Prefix of the checkpoint, such as `out/bert_model.ckpt`; in a folder (an existing one, or a name that
            ends in a slash) that file name is used.
        **options: Those of `mybert convert to-google`, such as `overwrite=True`.

    Raises:
        ValueError: If the folder is incomplete, the model is one that Google's graph cannot express, Google's code
            does not have the activation, or one of the files exists.
    """
    settings = build(ConvertToGoogleSettings, {"model": model_dir, "output": prefix, **options})
    is_folder = os.fspath(prefix).endswith(("/", os.sep)) or Path(prefix).is_dir()
    prefix = Path(prefix, "bert_model.ckpt") if is_folder else Path(prefix)
    folder = ModelFolder(model_dir)
    folder.require_plain_bert()
    config = folder.configuration()
    folder.load_tokenizer()  # raises an error if it is not there, or does not belong to the model
    fields, decisions = _google_configuration(folder, config, settings.allow_other_activation)
    folder.parameters()  # raises an error, before anything is written, if one is missing
    rows = folder.rows()
    if not any(row in rows for row in GROUPS["pooler"]) and all(row.parameter in folder for row in GROUPS["pooler"]):
        rows += GROUPS["pooler"]
        decisions.append("bert/pooler is the folder's, although this head does not use it")
    label_order, label_decisions = _label_order(folder)
    decisions += label_decisions + _left_behind(folder)
    tensors = _LazyArrays({row.google: partial(_google_array, folder, row, label_order) for row in rows})
    if lacking := [row for row in GROUPS["pooler"] if row not in rows]:
        sizes = sizes_of(config)
        tensors |= {row.google: partial(np.zeros, row.variable_shape("google", sizes), np.float32) for row in lacking}
        decisions.append("bert/pooler is written as zeros: Google's graph has a pooler, this head does not")
    names = [*(file.name for file in bundle_files(prefix)), _CONFIG_FILE, _VOCAB_FILE]
    with output_to(prefix.parent, files=names, overwrite=settings.overwrite) as beside:
        write_tensor_bundle(beside / prefix.name, tensors)
        write_json(beside / _CONFIG_FILE, fields, sort_keys=True)
        MyBertTokenizer.from_pretrained(folder.path).save_vocabulary(str(beside))
        report = None
        if settings.verify:
            report = replace(
                require(verify_conversion(beside / prefix.name, model_dir), model_dir), source=str(prefix)
            )
    return ConversionReport(
        source=str(model_dir),
        output=str(prefix),
        head=folder.head,
        decisions=tuple(decisions),
        parameters=len(rows),
        ignored=folder.ignored(row.parameter for row in rows),
        verification=report,
    )


def _label_order(folder: ModelFolder) -> tuple[list[int] | None, list[str]]:
    """Return the rows of a classifier in Google's order, and a note on their order."""
    if folder.head != "sequence-classification":
        return None, []
    names = folder.labels()
    order = google_row_order(names)
    if order is not None:
        return order, [f"labels: {', '.join(names[row] for row in order)}, the order of Google's code"]
    if has_unnamed_labels(names):
        return None, [f"labels: the {len(names)} classes have no names; their rows stay in the folder's order"]
    return None, [f"labels: {', '.join(names)}, the folder's order"]


class _LazyArrays(dict[str, Any]):
    """Arrays by name; each is made when it is read."""

    def __getitem__(self, name: str) -> np.ndarray:
        make: Callable[[], np.ndarray] = super().__getitem__(name)
        return make()


def _google_array(folder: ModelFolder, row: WeightRow, label_order: list[int] | None) -> np.ndarray:
    array = row.to_google(folder.read(row.parameter).float().numpy())
    return array if label_order is None or row not in GROUPS["classifier"] else array[label_order]


def _google_configuration(
    folder: ModelFolder, config: MyBertConfig, allow_other_activation: bool
) -> tuple[dict[str, Any], list[str]]:
    """Return the fields of `bert_config.json` and the decisions made."""
    decisions = []
    if config.is_decoder:
        raise ValueError(f"{folder.path}: is_decoder is true; Google's graph sees both sides.")
    if folder.untied:
        problem = "Google's graph has one bias and uses the word embeddings as output weights"
        raise ValueError(f"{folder.path}: {folder.untied}; {problem}.")
    activation = _GOOGLES_NAMES.get(config.hidden_act)
    if activation is None:
        if not allow_other_activation:
            names = ", ".join(_GOOGLES_NAMES)
            raise SettingError.worded(
                "{}: hidden_act is {!r}; Google's code computes {} only. Pass {allow_other_activation=True} to "
                "write the weights anyway.",
                folder.path,
                config.hidden_act,
                names,
            )
        activation = "gelu"
        logger.warning(
            f"{folder.path}: hidden_act is {config.hidden_act!r}; Google's code will compute tanh-GELU instead."
        )
        decisions.append(f"activation: {config.hidden_act!r} becomes tanh-GELU, so outputs will differ")
    if config.layer_norm_eps != _LAYER_NORM_EPS:
        logger.warning(
            f"{folder.path}: layer_norm_eps is {config.layer_norm_eps:g}; Google's code uses {_LAYER_NORM_EPS:g}."
        )
        decisions.append(
            f"layer_norm_eps: {config.layer_norm_eps:g} becomes {_LAYER_NORM_EPS:g}, so outputs will differ"
        )
    return {"hidden_act": activation, **{name: getattr(config, name) for name in (*SIZES, *RATES)}}, decisions


def _left_behind(folder: ModelFolder) -> list[str]:
    """Report what Google's format cannot store: sentence-transformers' pooling, and a different tokenizer."""
    differences = []
    if companions := companion_files(folder.root):
        differences.append(f"sentence-transformers' files are left out ({', '.join(companions[:3])})")
    tokenizer = MyBertTokenizer.from_pretrained(folder.path)
    if tokenizer.strip_accents not in (None, tokenizer.do_lower_case):
        does, says = ("keeps", "strips") if tokenizer.do_lower_case else ("strips", "keeps")
        differences.append(f"accents: Google's code {says} those that this tokenizer {does}, also in Hangul")
    special = {getattr(tokenizer, name) for name in tokenizer.SPECIAL_TOKENS_ATTRIBUTES}
    added = [token.content for token in tokenizer.added_tokens_decoder.values() if token.content not in special]
    if added:
        shown = ", ".join(added[:4])
        differences.append(f"added tokens: Google's code cuts them up, this tokenizer does not ({shown})")
    if not tokenizer.tokenize_chinese_chars:
        differences.append("Chinese characters: Google's code makes each a word, this tokenizer does not")
    for difference in differences:
        logger.warning(f"{folder.path}: {difference}.")
    return differences
