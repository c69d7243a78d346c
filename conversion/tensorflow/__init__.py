"""TensorFlow's checkpoint files and object graphs, in and out, without TensorFlow, and independent of any model."""

from .tensor_bundle import (
    GRAPH_KEY,
    SUFFIX,
    ObjectGraph,
    TensorBundle,
    TensorInfo,
    bundle_files,
    read_tensor_bundle,
    refuse_old_format,
    write_tensor_bundle,
)
from .wire import MalformedError, naming

__all__ = [
    "GRAPH_KEY",
    "SUFFIX",
    "MalformedError",
    "ObjectGraph",
    "TensorBundle",
    "TensorInfo",
    "bundle_files",
    "naming",
    "read_tensor_bundle",
    "refuse_old_format",
    "write_tensor_bundle",
]
