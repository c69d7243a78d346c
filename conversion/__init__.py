"""Checkpoints in and out: TensorFlow's files, Google's BERT, transformers' BERT, and verification."""

from typing import TYPE_CHECKING

from .._lazy_names import lazy_names

if TYPE_CHECKING:
    from .commands import (
        convert_bert,
        convert_google,
        convert_onnx,
        convert_openvino,
        convert_to_bert,
        convert_to_google,
    )
    from .from_google import convert_google_checkpoint, load_optimizer_state
    from .graph_export import export_onnx, export_openvino
    from .settings import (
        ConvertBertSettings,
        ConvertGoogleSettings,
        ConvertOnnxSettings,
        ConvertOpenVinoSettings,
        ConvertToBertSettings,
        ConvertToGoogleSettings,
    )
    from .tensorflow import TensorBundle, TensorInfo, read_tensor_bundle, write_tensor_bundle
    from .to_google import export_google_checkpoint
    from .transformers_bert import from_transformers_bert, to_transformers_bert
    from .verification import ConversionReport, GraphReport, VerificationReport, verify_conversion

__all__ = [
    "ConversionReport",
    "ConvertBertSettings",
    "ConvertGoogleSettings",
    "ConvertOnnxSettings",
    "ConvertOpenVinoSettings",
    "ConvertToBertSettings",
    "ConvertToGoogleSettings",
    "GraphReport",
    "TensorBundle",
    "TensorInfo",
    "VerificationReport",
    "convert_bert",
    "convert_google",
    "convert_google_checkpoint",
    "convert_onnx",
    "convert_openvino",
    "convert_to_bert",
    "convert_to_google",
    "export_google_checkpoint",
    "export_onnx",
    "export_openvino",
    "from_transformers_bert",
    "load_optimizer_state",
    "read_tensor_bundle",
    "to_transformers_bert",
    "verify_conversion",
    "write_tensor_bundle",
]

__getattr__, __dir__ = lazy_names(__name__)
