"""Graphs of other runtimes next to a model's weights, under the names that other tools read.

transformers.js, text-embeddings-inference and sentence-transformers read `onnx/model.onnx`, transformers.js with q8
`onnx/model_quantized.onnx`; sentence-transformers, optimum-intel and this package `openvino/openvino_model.xml`.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..conversion import export_onnx, export_openvino
from ..conversion.graph_export import INT8_FILE, ONNX_FILE, OnnxModel, digest_in_graph
from ..conversion.model_folder import ModelFolder
from ..conversion.verification import INPUTS, SHAPES, TOLERANCE, GraphReport, compare_outputs, example_batch
from ..files.checkpoint import OPENVINO_FILE, refuse_link_outside
from ..files.errors import SettingError, worded
from ..pipelines import OpenVinoModel
from .settings import RUNTIMES, Runtime

GRAPH_FILES = tuple(f"{runtime}/*" for runtime in RUNTIMES)
QUANTIZED_FILE = "model_quantized.onnx"


@dataclass(frozen=True)
class Graphs:
    """Files by their names in a repository, and what the card says of each graph."""

    files: dict[str, Path] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    is_new: bool = False  # some were written now, so that a card of before does not know them


def write_graphs(model_dir: Path, folder: Path, runtimes: Sequence[Runtime], data: Sequence[str]) -> Graphs:
    """Export a model for runtimes into a temporary folder, each graph compared with the weights.

    ONNX gets an int8 graph as well. OpenVINO's is int8 if there are texts, which calibrate it.
    """
    files: dict[str, Path] = {}
    notes: list[str] = []
    for runtime in dict.fromkeys(runtimes):
        is_int8 = runtime == "onnx" or bool(data)
        options: dict[str, Any] = {"dtype": "int8" if is_int8 else "float32", "data": list(data)}
        report = (export_onnx if runtime == "onnx" else export_openvino)(model_dir, folder / runtime, **options)
        for path in sorted((folder / runtime).iterdir()):
            if path.name.startswith(("model", "openvino_model")):
                name = QUANTIZED_FILE if path.name == INT8_FILE else path.name
                files[f"{runtime}/{name}"] = path
        notes += _notes(runtime, report, [Path(path).name for path in data])
    return Graphs(files, tuple(notes), is_new=True)


def _notes(runtime: Runtime, report: GraphReport, data: Sequence[str]) -> list[str]:
    notes = []
    for file, differences in report.differences.items():
        name = f"{runtime}/{QUANTIZED_FILE if file == INT8_FILE else file}"
        note = f"`{name}` differs from the weights by at most {max(differences.values()):.1g}"
        if file == INT8_FILE or (runtime == "openvino" and report.dtype == "int8"):
            note = note.replace(" differs", ", in int8, differs", 1)
        if file in report.equal_decisions:
            note += f"; on {report.texts:,} texts {report.equal_decisions[file]:.1%} of the decisions are equal"
        if runtime == "openvino" and report.dtype == "int8":
            note += f"; calibrated with texts of {', '.join(data)}"
        notes.append(note + ".")
    return notes


def check_graphs(model_dir: Path, runtimes: Collection[Runtime]) -> Graphs:
    """The graphs for these runtimes in a folder, each of which must give the outputs of the weights next to it.

    Raises:
        ValueError: If one cannot be read or gives others, so that readers would get another model by it, or a file is
            a link to somewhere outside of the folder.
        ImportError: If its runtime is not installed.
    """
    paths = [path for runtime in runtimes for path in model_dir.glob(f"{runtime}/*") if path.is_file()]
    files = {path.relative_to(model_dir).as_posix(): path for path in paths}
    names = [f"onnx/{ONNX_FILE}", f"onnx/{QUANTIZED_FILE}", f"openvino/{OPENVINO_FILE}"]
    if not (names := [name for name in names if name in files]):
        return Graphs()
    names += sorted(name for name in files if name.endswith(".onnx") and name not in names)  # of other types
    for path in paths:
        refuse_link_outside(path, model_dir)
    source = ModelFolder(model_dir)
    digest = source.digest()
    for name in names:
        runtime, path = name.split("/")[0], files[name]
        advice = worded("delete the folder {}, or write it again with {graphs=}", runtime, runtime)
        recorded = digest_in_graph(path)
        if recorded not in (digest, None):
            raise SettingError.worded("{} was made of other weights than those next to it: {}.", path, advice)
        if recorded is None:  # of another tool
            _compare(source, path, name, advice)
    return Graphs(files, tuple(f"`{name}` is of these weights." for name in names))


def _compare(source: ModelFolder, path: Path, name: str, advice: str) -> None:
    model, _ = source.load("mybert")
    graph = OnnxModel(path) if path.suffix == ".onnx" else OpenVinoModel(path.parent, model.config)
    try:
        inputs = [name for name in INPUTS if name in graph.inputs]
        batches = (example_batch(model.config, source.head, shape, inputs) for shape in SHAPES)
        compare_outputs(model, source.head, name, graph, batches, TOLERANCE)
    except ValueError as error:
        template = "{} is not of the weights next to it, or not float32 ({}): {}."
        raise SettingError.worded(template, path, error, advice) from None
