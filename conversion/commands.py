"""Arguments of `mybert convert google | to-google | bert | to-bert | onnx`, one dataclass and one function each."""

import logging
from dataclasses import dataclass
from typing import Any, TypeVar

from ..files.options import Group, option
from .from_google import convert_google_checkpoint
from .onnx_export import export_onnx
from .options import ConversionOptions, FromBertOptions, FromGoogleOptions, OnnxOptions, ToGoogleOptions
from .to_google import export_google_checkpoint
from .transformers_bert import from_transformers_bert, to_transformers_bert
from .verification import ConversionReport, OnnxReport

logger = logging.getLogger(__name__)

_PLACES = ("source", "model", "output", "output_dir")


@dataclass(kw_only=True)
class ConvertGoogleArguments(FromGoogleOptions):
    """Google's checkpoint to a MyBERT model folder."""

    group = Group.INPUT
    source: str = option(
        help="Folder, checkpoint prefix, .zip or .tar.gz archive, or SavedModel folder.", positional=1
    )
    output_dir: str = option(help="Model folder to write.", comes_last=True, positional=2)


@dataclass(kw_only=True)
class ConvertToGoogleArguments(ToGoogleOptions):
    """A model folder to a checkpoint that Google's TensorFlow 1 code restores."""

    group = Group.INPUT
    model: str = option(help="MyBERT or BERT model folder.", positional=1)
    output: str = option(
        help="Prefix of the checkpoint to write, such as out/bert_model.ckpt, or a folder (out/).",
        comes_last=True,
        positional=2,
    )


@dataclass(kw_only=True)
class ConvertBertArguments(FromBertOptions):
    """A BERT folder of transformers to a MyBERT model folder."""

    group = Group.INPUT
    model: str = option(help="BERT model folder, or name on the Hub.", positional=1)
    output_dir: str = option(help="Model folder to write.", comes_last=True, positional=2)


@dataclass(kw_only=True)
class ConvertToBertArguments(ConversionOptions):
    """A MyBERT model folder to a plain BERT folder that other tools serve."""

    group = Group.INPUT
    model: str = option(help="MyBERT model folder.", positional=1)
    output_dir: str = option(help="BERT folder to write.", comes_last=True, positional=2)


@dataclass(kw_only=True)
class ConvertOnnxArguments(OnnxOptions):
    """A model folder to ONNX, for ONNX Runtime and what is built on it."""

    group = Group.INPUT
    model: str = option(help="MyBERT or BERT model folder.", positional=1)
    output_dir: str = option(help="Folder to write.", comes_last=True, positional=2)


def convert_google(arguments: ConvertGoogleArguments) -> ConversionReport:
    """Run `mybert convert google`."""
    return _say(convert_google_checkpoint(arguments.source, arguments.output_dir, **_options(arguments)))


def convert_to_google(arguments: ConvertToGoogleArguments) -> ConversionReport:
    """Run `mybert convert to-google`."""
    return _say(export_google_checkpoint(arguments.model, arguments.output, **_options(arguments)))


def convert_bert(arguments: ConvertBertArguments) -> ConversionReport:
    """Run `mybert convert bert`."""
    return _say(from_transformers_bert(arguments.model, arguments.output_dir, **_options(arguments)))


def convert_to_bert(arguments: ConvertToBertArguments) -> ConversionReport:
    """Run `mybert convert to-bert`."""
    return _say(to_transformers_bert(arguments.model, arguments.output_dir, **_options(arguments)))


def convert_onnx(arguments: ConvertOnnxArguments) -> OnnxReport:
    """Run `mybert convert onnx`."""
    return _say(export_onnx(arguments.model, arguments.output_dir, **_options(arguments)))


def _options(arguments: Any) -> dict[str, Any]:
    return {name: value for name, value in vars(arguments).items() if name not in _PLACES}


_Report = TypeVar("_Report", ConversionReport, OnnxReport)


def _say(report: _Report) -> _Report:
    logger.info(str(report))
    return report
