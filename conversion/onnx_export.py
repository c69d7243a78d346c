"""Model folders to ONNX, for ONNX Runtime, optimum and transformers.js; the result is run and compared.

Inputs and outputs have the names that these tools expect (https://huggingface.co/docs/optimum), and the folder's
configuration has `model_type: "bert"`: the graph is BERT's, and these tools do not know another name for it.
"""

import logging
import math
import os
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..files.output import write_json
from ..files.processes import no_warnings
from .model_folder import ModelFolder, new_model_folder
from .options import ConvertOnnxArguments
from .transformers_bert import copy_what_goes_along
from .verification import INPUTS, REPORT_FILE, SHAPES, TOLERANCE, OnnxReport, compare_outputs, example_batch

logger = logging.getLogger(__name__)

ONNX_FILE, INT8_FILE = "model.onnx", "model_int8.onnx"
_AXES = ("batch_size", "num_choices", "sequence_length")
_EXAMPLE = (2, 3, 8)  # the batch while tracing; a size of 1 would become a constant of the graph
_TOLERANCES = {ONNX_FILE: TOLERANCE, INT8_FILE: math.inf}  # int8 is reported

_Batch = dict[str, torch.Tensor]


def export_onnx(model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], **options: Any) -> OnnxReport:
    """Write a model as an ONNX graph with its tokenizer, and compare what ONNX Runtime computes with PyTorch.

    The inputs `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch, length) or for multiple choice
    (batch, choices, length), take any batch size, number of choices, and length up to `max_position_embeddings`. The
    outputs have the names that the model gives them. Weights are float32, whatever their stored dtype.

    Args:
        model_dir: A MyBERT or BERT model folder, with any head.
        output_dir: Folder to write. It is created at the end, after the comparison. It gets `model.onnx` (and
            `model.onnx.data` if the weights are too large for one file), `config.json`, the tokenizer and
            sentence-transformers' files if the source has them, and the report as `conversion.json`.
        **options: Those of `mybert convert onnx`, such as `dtype="int8"`.

    Returns:
        The report.

    Raises:
        ValueError: If the model folder is incomplete, this opset cannot be written, the results differ by more than
            rounding (1e-4; for int8 only finite values are required), or `output_dir` contains other files.
        OSError: If it cannot be written.
        ImportError: If onnx, onnxruntime or onnxscript is missing.
    """
    _require_extra()
    settings = ConvertOnnxArguments(model=os.fspath(model_dir), output_dir=os.fspath(output_dir), **options)
    source = ModelFolder(model_dir)
    with new_model_folder(output_dir, settings.overwrite, model_dir) as folder:
        source.parameters()  # raises an error if one is missing
        model, _ = source.load("mybert")
        logger.info(f"exporting {source.path}")
        written = _export(model, source.head, folder / ONNX_FILE, settings.opset)
        files = [ONNX_FILE]
        if settings.dtype == "int8":
            logger.info("quantizing to int8")
            _quantize(folder / ONNX_FILE, folder / INT8_FILE)
            files.append(INT8_FILE)
        logger.info("comparing with PyTorch")
        batches = [example_batch(model.config, source.head, shape) for shape in SHAPES]
        report = OnnxReport(
            source=str(source.path),
            output=str(output_dir),
            head=source.head,
            opset=written,
            shapes=tuple(tuple(batch["input_ids"].shape) for batch in batches),
            differences={
                file: compare_outputs(model, source.head, file, _runner(folder / file), batches, _TOLERANCES[file])
                for file in files
            },
        )
        write_json(folder / "config.json", source.config_as("bert") | {"dtype": "float32"}, sort_keys=True)
        copy_what_goes_along(source, folder)
        write_json(folder / REPORT_FILE, asdict(report), sort_keys=True)
    return report


def _require_extra() -> None:
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            "ONNX export needs onnx, onnxruntime and onnxscript: install them with `pip install mybert[onnx]`."
        ) from error


def _export(model: PreTrainedModel, head: str, path: Path, opset: int | None) -> int:
    """Write the graph; return its opset."""
    example = example_batch(model.config, head, _EXAMPLE)
    with torch.no_grad():
        outputs = list(model(**example))
    names = _AXES if head == "multiple-choice" else (_AXES[0], _AXES[2])
    axes = {place: torch.export.Dim(name) for place, name in enumerate(names)}
    implementation = model.config._attn_implementation
    # Eager attention needs fewer nodes: masks are added, so rows of padding only need no special case.
    model.set_attn_implementation("eager")
    with no_warnings():
        program = torch.onnx.export(
            model,
            kwargs=example,
            input_names=INPUTS,
            output_names=outputs,
            dynamic_shapes=dict.fromkeys(example, axes),
            opset_version=opset,
            dynamo=True,
            verbose=False,
        )
    model.set_attn_implementation(implementation)
    assert program is not None
    written = program.model.opset_imports[""]
    if opset not in (None, written):
        raise ValueError(f"opset is {opset}, but the exporter of PyTorch can only write {written} for it")
    program.save(path)  # weights go to a separate file if they are too large for one
    return written


def _quantize(path: Path, target: Path) -> None:
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    is_large = path.with_name(f"{path.name}.data").exists()
    with tempfile.TemporaryDirectory(dir=path.parent) as folder, no_warnings():
        prepared = Path(folder, path.name)
        _fold_constants(path, prepared, is_large)
        # Recorded shapes are not needed, and contradict the weights that the quantizer transposes.
        graph = onnx.load(prepared, load_external_data=False)
        del graph.graph.value_info[:]
        onnx.save(graph, prepared)
        quantize_dynamic(
            prepared,
            target,
            op_types_to_quantize=["MatMul"],
            per_channel=True,
            weight_type=QuantType.QInt8,
            use_external_data_format=is_large,
        )


def _fold_constants(path: Path, target: Path, is_large: bool) -> None:
    """Fold constants: the transposed embeddings of a tied output layer become a weight, which can be quantized."""
    # onnxruntime's `quant_pre_process` would do the same, but infers shapes first, which fails on some graphs.
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(target)
    if is_large:
        options.add_session_config_entry(
            "session.optimized_model_external_initializers_file_name", f"{target.name}.data"
        )
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def _runner(path: Path) -> Callable[[_Batch], dict[str, Any]]:
    """A function that runs a graph on a batch."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(batch: _Batch) -> dict[str, Any]:
        arrays = session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})
        return {output.name: array for output, array in zip(session.get_outputs(), arrays, strict=True)}

    return run
