"""The commands `mybert convert google | to-google | bert | to-bert | onnx | openvino`."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from .from_google import convert_google_checkpoint
from .onnx_export import export_onnx
from .openvino_export import export_openvino
from .options import (
    ConvertBertArguments,
    ConvertGoogleArguments,
    ConvertOnnxArguments,
    ConvertOpenVinoArguments,
    ConvertToBertArguments,
    ConvertToGoogleArguments,
)
from .to_google import export_google_checkpoint
from .transformers_bert import from_transformers_bert, to_transformers_bert
from .verification import ConversionReport, OnnxReport, OpenVinoReport

logger = logging.getLogger(__name__)

_Report = TypeVar("_Report", ConversionReport, OnnxReport, OpenVinoReport)


def convert_google(arguments: ConvertGoogleArguments) -> ConversionReport:
    """Run `mybert convert google`."""
    return _run(convert_google_checkpoint, arguments)


def convert_to_google(arguments: ConvertToGoogleArguments) -> ConversionReport:
    """Run `mybert convert to-google`."""
    return _run(export_google_checkpoint, arguments)


def convert_bert(arguments: ConvertBertArguments) -> ConversionReport:
    """Run `mybert convert bert`."""
    return _run(from_transformers_bert, arguments)


def convert_to_bert(arguments: ConvertToBertArguments) -> ConversionReport:
    """Run `mybert convert to-bert`."""
    return _run(to_transformers_bert, arguments)


def convert_onnx(arguments: ConvertOnnxArguments) -> OnnxReport:
    """Run `mybert convert onnx`."""
    return _run(export_onnx, arguments)


def convert_openvino(arguments: ConvertOpenVinoArguments) -> OpenVinoReport:
    """Run `mybert convert openvino`."""
    return _run(export_openvino, arguments)


def _run(convert: Callable[..., _Report], arguments: Any) -> _Report:
    options = dict(vars(arguments))
    places = [options.pop(name) for name in ("source", "model", "output_dir", "output") if name in options]
    report = convert(*places, **options)
    logger.info(str(report))
    return report
