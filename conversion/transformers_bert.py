"""MyBERT model folders to plain `model_type: "bert"` folders and back; the weights keep every bit.

Tools that only know `bert` (vLLM, text-embeddings-inference, optimum and others) serve the result.
"""

import os
import shutil
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors.torch import save_file

from ..modeling_mybert import MyBertConfig
from ..tokenization import MyBertTokenizer
from .errors import ConfigurationError, ModelFolderError
from .google import MODEL_CARD, ConversionReport, write_report
from .key_map import GROUPS, HEADS, find_head
from .model_folder import WEIGHTS, ModelFolder, new_folder, read_json, state_dict_names, write_json
from .verification import require, verify_folder

_SETTINGS, _VOCABULARIES = "tokenizer_config.json", ("tokenizer.json", "vocab.txt", "spiece.model")
_TOKENIZER_FILES = (*_VOCABULARIES, _SETTINGS, "special_tokens_map.json", "added_tokens.json")
# What of a repository on the Hub is read.
_HUB_FILES = (
    "config.json", WEIGHTS, "model-*-of-*.safetensors", f"{WEIGHTS}.index.json", MODEL_CARD, *_TOKENIZER_FILES,
)  # fmt: skip
# Code of ours, and what only MyBERT knows.
OUR_FIELDS = ("auto_map", "custom_pipelines", "sparse_prediction", "unpad_inputs")


def to_transformers_bert(
    model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], *, verify: bool = True
) -> ConversionReport:
    """Write a MyBERT model as one that transformers' `Bert` classes, and all tools made for them, load.

    Args:
        model_dir: A MyBERT model folder.
        output_dir: The folder to write; files of the same names are replaced, at the end and only if all went well.
        verify: Whether to compare the weights bit by bit and the outputs of both models.

    Raises:
        ConversionError: If the folder is incomplete, or the result differs.
    """
    folder = ModelFolder(model_dir)
    config = {name: value for name, value in folder.config.items() if name not in OUR_FIELDS}
    return _convert(folder, model_dir, output_dir, "bert", config, verify)


def from_transformers_bert(
    model_dir: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    head: str | None = None,
    *,
    verify: bool = True,
) -> ConversionReport:
    """Write a model of transformers' `Bert` classes as a MyBERT model folder.

    Args:
        model_dir: A BERT model folder with safetensors weights, or the name of one on the Hub; the names of before
            2020 (`LayerNorm.gamma`) are read.
        output_dir: The folder to write; files of the same names are replaced, at the end and only if all went well.
        head: Kind of model, as for `convert_google_checkpoint`; by default the one that `architectures` names. Weights
            of another head are left out, and the report says so: `bert-base-uncased` has all of `pretraining`.
        verify: Whether to compare the weights bit by bit and the outputs of both models.

    Raises:
        ConversionError: If the folder is incomplete or computes what MyBERT does not, or the result differs.
    """
    folder = ModelFolder(_local(model_dir), find_head(head) if head else None)
    return _convert(folder, model_dir, output_dir, "mybert", folder.config, verify)


def _local(model: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """A folder as it is; for a name on the Hub its copy in the cache."""
    if Path(model).exists():
        return model
    try:
        return snapshot_download(os.fspath(model), allow_patterns=list(_HUB_FILES))
    except HFValidationError:  # no name that the Hub could have
        return model
    except OSError as error:
        problem = f"no model folder, and not to be had from the Hub: {error}"
        raise ModelFolderError(path=model, problem=problem) from error


def _convert(
    folder: ModelFolder,
    source: str | os.PathLike[str],
    output_dir: str | os.PathLike[str],
    model_type: str,
    config: dict[str, Any],
    verify: bool,
) -> ConversionReport:
    try:
        MyBertConfig.from_pretrained(folder.path)
    except ValueError as error:
        raise ConfigurationError(path=folder.path / "config.json", problem=str(error)) from error
    prefix = "MyBert" if model_type == "mybert" else "Bert"
    names = folder.parameters()
    if config.get("is_decoder") and GROUPS["pooler"][0].parameter in names:
        problem = "is_decoder is true; MyBERT then pools the last token, transformers' bert the first"
        raise ModelFolderError(path=folder.path, problem=problem)
    left_over = folder.left_over()
    with new_folder(output_dir) as output:
        tensors = state_dict_names(((name, folder.read(name)) for name in names), folder.head)
        save_file(tensors, output / WEIGHTS, metadata={"format": "pt"})
        del tensors
        architectures = [prefix + HEADS[folder.head].class_suffix]
        write_json(output / "config.json", config | {"model_type": model_type, "architectures": architectures})
        decision = copy_tokenizer(folder, output)
        report = require(verify_folder(folder, ModelFolder(output)), output_dir) if verify else None
        result = ConversionReport(
            source=str(source),
            output=str(output_dir),
            head=folder.head,
            decisions=(decision,),
            parameters=len(names),
            ignored={"weight the head does not use": left_over} if left_over else {},
            verification=report,
        )
        if (folder.path / MODEL_CARD).is_file():
            shutil.copyfile(folder.path / MODEL_CARD, output / MODEL_CARD)
        write_report(output, result)
    return result


def copy_tokenizer(source: ModelFolder, output: Path) -> str:
    """Give a new model folder the tokenizer of its source, so that AutoTokenizer makes the same one of it.

    Where the files name no class, AutoTokenizer asks the model's type, which without this package no longer tells; and
    of `vocab.txt` alone tools without transformers make nothing. The tokenizer is then saved anew, complete in itself.

    Returns:
        What was decided.
    """
    files = [name for name in _TOKENIZER_FILES if (source.path / name).is_file()]
    if not set(files) & set(_VOCABULARIES):
        return "tokenizer: none, the source has none"
    settings = read_json(source.path / _SETTINGS, ModelFolderError) if _SETTINGS in files else {}
    name = settings.get("tokenizer_class") or source.config.get("tokenizer_class")
    if name is None or (name in ("BertTokenizer", "BertTokenizerFast") and "tokenizer.json" not in files):
        MyBertTokenizer.from_pretrained(source.path).save_pretrained(output)
        return f"tokenizer: made from {'tokenizer.json' if 'tokenizer.json' in files else 'vocab.txt'}"
    for file in files:
        shutil.copyfile(source.path / file, output / file)
    return "tokenizer: copied"
