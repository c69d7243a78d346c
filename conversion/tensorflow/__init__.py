"""TensorFlow's checkpoint files and object graphs, in and out, without TensorFlow, and independent of any model."""

from .bundle_errors import OldFormatError, TensorBundleError
from .bundle_format import TensorInfo
from .bundle_reader import TensorBundle, read_tensor_bundle
from .bundle_writer import bundle_files, write_tensor_bundle
from .object_graph import GRAPH_KEY, SUFFIX, ObjectGraph
from .sorted_table import MAGIC

__all__ = [
    "GRAPH_KEY",
    "MAGIC",
    "SUFFIX",
    "ObjectGraph",
    "OldFormatError",
    "TensorBundle",
    "TensorBundleError",
    "TensorInfo",
    "bundle_files",
    "read_tensor_bundle",
    "write_tensor_bundle",
]
