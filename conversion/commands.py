"""The commands `mybert convert google | to-google | bert | to-bert | onnx | openvino`."""

import logging
from collections.abc import Callable
from typing import Any

from ..files.settings import flat
from .from_google import convert_google_checkpoint
from .graph_export import export_onnx, export_openvino
from .settings import (
    ConvertBertSettings,
    ConvertGoogleSettings,
    ConvertOnnxSettings,
    ConvertOpenVinoSettings,
    ConvertToBertSettings,
    ConvertToGoogleSettings,
)
from .to_google import export_google_checkpoint
from .transformers_bert import from_transformers_bert, to_transformers_bert

logger = logging.getLogger(__name__)


def _command(convert: Callable[..., Any], kind: type) -> Callable[[Any], Any]:
    """The command of a conversion, which takes its settings and shows the report."""

    def run(arguments: Any) -> Any:
        """Convert, and show the report."""
        options = flat(arguments)
        places = [options.pop(name) for name in ("source", "model", "output_dir", "output") if name in options]
        report = convert(*places, **options)
        logger.info(str(report))
        return report

    run.__annotations__["arguments"] = kind  # says which flags there are
    return run


convert_google = _command(convert_google_checkpoint, ConvertGoogleSettings)
convert_to_google = _command(export_google_checkpoint, ConvertToGoogleSettings)
convert_bert = _command(from_transformers_bert, ConvertBertSettings)
convert_to_bert = _command(to_transformers_bert, ConvertToBertSettings)
convert_onnx = _command(export_onnx, ConvertOnnxSettings)
convert_openvino = _command(export_openvino, ConvertOpenVinoSettings)
