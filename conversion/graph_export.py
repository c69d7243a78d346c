"""Model folders to graphs, in ONNX and for OpenVINO, for this package and other tools; each is run and compared.

Names of files, inputs and outputs are those that optimum, sentence-transformers and transformers.js expect
(https://huggingface.co/docs/optimum). The configuration of a MyBERT has `model_type: "bert"`: the graph is BERT's, and
these tools do not know another name for it. `pipelines/openvino_model.py` has the format of rows that hold several
sequences.
"""

import inspect
import logging
import math
import os
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import ModelOutput

from ..files.checkpoint import OPENVINO_FILE, TASK_RECORD
from ..files.documents import Corpus, DocumentSettings, SourceSettings
from ..files.errors import SettingError, how_to_install
from ..files.loading import longest_sequence
from ..files.options import settings_of
from ..files.output import write_json
from ..files.processes import no_warnings
from ..files.settings import build
from ..files.text import PAIR_SEPARATOR
from ..modeling_mybert import MyBertForSequenceClassification, MyBertPreTrainedModel, flat_indices
from ..modeling_mybert.inputs_mybert import unmask_empty_rows
from ..pipelines.batching import pad_rows, run_sorted
from ..pipelines.openvino_model import WEIGHTS_RECORD, OpenVinoModel, import_openvino, read_graph
from ..tokenization import encode_and_truncate
from ..tokenization.characters import replace_lone_surrogates
from .key_map import HEADS
from .model_folder import EncoderFolder, ModelFolder, new_model_folder, open_model_folder
from .settings import ConvertOnnxSettings, ConvertOpenVinoSettings
from .transformers_bert import copy_what_goes_along
from .verification import INPUTS, REPORT_FILE, SHAPES, TOLERANCE, GraphReport, compare_outputs, example_batch

logger = logging.getLogger(__name__)

ONNX_FILE, INT8_FILE = "model.onnx", "model_int8.onnx"
DIGEST = "mybert_weights"  # of `ModelFolder.digest`, in a graph's metadata
_AXES = ("batch_size", "num_choices", "sequence_length")
_EXAMPLE = (2, 3, 8)  # the batch while tracing; a size of 1 would become a constant of the graph
_CALIBRATING, _COMPARED = 300, 1000  # texts at most, drawn from the given ones
# How much of the activations' range SmoothQuant moves to the weights; at NNCF's 0.95 entities lost half a point of F1.
_SMOOTHING = 0.8

_Row = Mapping[str, np.ndarray]


def export_onnx(model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], **options: Any) -> GraphReport:
    """Write a model as an ONNX graph with its tokenizer, and compare what ONNX Runtime computes with PyTorch.

    The inputs `input_ids`, `attention_mask` and `token_type_ids`, int64 (batch, length) or for multiple choice
    (batch, choices, length), take any batch size, number of choices, and length up to `max_position_embeddings`. The
    mask may number the sequences of a row; a left-to-right model reads one sequence in a row. The outputs have the
    names that the model gives them. Weights are float32, whatever their stored dtype.

    Args:
        model_dir: A model folder, with any head: MyBERT, BERT, RoBERTa, XLM-RoBERTa, CamemBERT, ELECTRA, DistilBERT,
            ModernBERT, MPNet. Of those that are no BERT, the mask is 1 at tokens, and `token_type_ids` are an input
            only if the tokenizer gives them.
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
    try:
        import onnx  # noqa: F401
        import onnxruntime  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise ImportError(
            f"ONNX export needs onnx, onnxruntime and onnxscript: {how_to_install('onnx')} ({error})."
        ) from error
    places = {"model": model_dir, "output_dir": output_dir}
    settings = build(ConvertOnnxSettings, places | options)
    return _export(settings, _write_onnx)


def export_openvino(
    model_dir: str | os.PathLike[str], output_dir: str | os.PathLike[str], **options: Any
) -> GraphReport:
    """Write a model for OpenVINO with its tokenizer and task, and compare what OpenVINO computes with PyTorch.

    `predict`, `evaluate` and `features` run the folder, and so do tools that read optimum-intel's. Inputs and outputs
    are those of `export_onnx`.

    Args:
        model_dir: A model folder, as for `export_onnx`.
        output_dir: Folder to write. It is created at the end, after the comparison. It gets `openvino_model.xml` and
            `.bin`, `config.json`, the tokenizer and sentence-transformers' files if the source has them, and the
            report as `conversion.json`.
        **options: Those of `mybert convert openvino`, such as `dtype="int8", data=["texts.txt"]`.

    Returns:
        The report.

    Raises:
        ValueError: If the model folder is incomplete or its model reads from left to right, there are no texts for
            int8, the results differ by more than rounding (1e-4; for int8 only finite values are required), or
            `output_dir` contains other files.
        OSError: If it cannot be written.
        ImportError: If openvino, or nncf for int8, is missing.
    """
    import_openvino()
    places = {"model": model_dir, "output_dir": output_dir}
    settings = build(ConvertOpenVinoSettings, places | options)
    if settings.dtype == "int8":
        try:
            import nncf  # noqa: F401
        except ImportError as error:
            raise ImportError(f"int8 needs NNCF: {how_to_install('openvino')} ({error}).") from error
    return _export(settings, _write_openvino)


def _export(
    settings: ConvertOnnxSettings | ConvertOpenVinoSettings, write: Callable[..., dict[str, Any]]
) -> GraphReport:
    """Write graphs by `write`, which returns a function for each file that computes a batch; compare them."""
    source = open_model_folder(settings.model)
    tokenizer = source.load_tokenizer()
    with new_model_folder(settings.output_dir, settings.overwrite, settings.model) as folder:
        model = source.load_for_graph()
        inputs = _input_names(model, tokenizer)
        rows = _tokenized(source, tokenizer, model, inputs, settings) if settings.data else []
        calibrates = write is _write_openvino and settings.dtype == "int8"  # ONNX's int8 needs no ranges
        calibrating = min(_CALIBRATING, (len(rows) + 1) // 2) if calibrates else 0
        logger.info(f"exporting {source.path}")
        graphs = write(model, source, inputs, folder, settings, rows[:calibrating])
        logger.info("comparing with PyTorch")
        batches = [example_batch(model.config, source.head, shape, inputs) for shape in SHAPES]
        compared = (rows[calibrating:] or rows)[:_COMPARED]
        differences, on_texts = {}, {}
        equal: dict[str, float] = {}
        for file, run in graphs.items():
            is_exact = settings.dtype == "float32" or file == ONNX_FILE
            tolerance = TOLERANCE if is_exact else math.inf  # int8 is reported
            differences[file] = compare_outputs(model, source.head, file, run, batches, tolerance)
            if compared:
                on_texts[file], decisions = _compare_on_texts(model, run, compared, source.head, tokenizer)
                equal |= {} if decisions is None else {file: decisions}
        report = GraphReport(
            source=str(source.path),
            output=settings.output_dir,
            head=source.head,
            dtype=settings.dtype,
            shapes=tuple(tuple(batch["input_ids"].shape) for batch in batches),
            differences=differences,
            texts=len(compared),
            differences_on_texts=on_texts,
            equal_decisions=equal,
        )
        write_json(folder / "config.json", source.config_of_graph() | {"dtype": "float32"}, sort_keys=True)
        copy_what_goes_along(source, folder)
        write_json(folder / REPORT_FILE, asdict(report), sort_keys=True)
    return report


def _input_names(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> list[str]:
    """The inputs of a graph: those that both model and tokenizer have, and all for BERT."""
    if isinstance(model, MyBertPreTrainedModel):
        return list(INPUTS)
    taken = inspect.signature(model.forward).parameters
    return [name for name in INPUTS if name in taken and name in tokenizer.model_input_names]


def _tokenized(
    source: ModelFolder | EncoderFolder,
    tokenizer: PreTrainedTokenizerBase,
    model: PreTrainedModel,
    inputs: Sequence[str],
    settings: ConvertOnnxSettings | ConvertOpenVinoSettings,
) -> list[_Row]:
    """The network's inputs for texts drawn from the given ones."""
    reading = DocumentSettings(**settings_of(SourceSettings, settings.reading))
    texts = [replace_lone_surrogates(text) for _, text in Corpus(settings.data, reading).texts()]
    texts = random.Random(0).sample(texts, min(len(texts), _CALIBRATING + _COMPARED))
    record = source.config.get(TASK_RECORD) or {}
    longest = int(min(record.get("max_length") or math.inf, longest_sequence(model.config) or 512))
    pairs = (text.rsplit(PAIR_SEPARATOR, 1) for text in texts)
    encodings = (encode_and_truncate(tokenizer, [pair], longest).inputs for pair in pairs)
    # Some tokenizers give no segments, which then are 0.
    filled = ({"token_type_ids": [[0] * len(values["input_ids"][0])]} | values for values in encodings)
    return [{name: np.array(values[name][0]) for name in inputs} for values in filled]


class PackedRows(nn.Module):
    """A model whose attention mask numbers the sequences of a row; `pipelines/openvino_model.py` has the format."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        numbers = unmask_empty_rows(attention_mask.flatten(0, -2))
        places = torch.arange(numbers.shape[1])
        query, key = numbers[:, :, None], numbers[:, None]
        is_same = query == key
        # As elsewhere, padding attends to tokens, too: the pooled token may be padding.
        mask = (key > 0) & (is_same | (query == 0))
        position_ids = torch.where(numbers > 1, (is_same & (places[:, None] > places)).sum(-1), places)
        is_start = (places == 0) | ((numbers > 1) & (position_ids == 0))
        starts = flat_indices(is_start)
        if torch.compiler.is_compiling():  # what the exporter cannot know of a number that depends on values
            torch._check(starts.shape[0] >= numbers.shape[0])
            torch._check(starts.shape[0] % attention_mask.shape[0] == 0)
        end = torch.ones_like(numbers).sum()[None]  # not `numel`, which would become a constant of the graph
        arguments = {
            "input_ids": input_ids,
            "attention_mask": mask.view(*attention_mask.shape[:-1], 1, *mask.shape[1:]),
            "token_type_ids": token_type_ids,
            "position_ids": position_ids.view(attention_mask.shape),
            "cu_seq_lens_q": torch.cat([starts, end]),
        }
        if isinstance(self.model, MyBertForSequenceClassification) and self.model.config.classifier_pooling == "mean":
            # The model's own mean would count padding, which a prepared mask does not tell.
            states = self.model.bert(**arguments).last_hidden_state.flatten(0, 1)
            owners = is_start.flatten().long().cumsum(0) - 1
            is_token = (numbers.flatten() > 0).to(states.dtype)[:, None]
            # Not a product with a matrix of fractions, which NNCF would quantize.
            sums = states.new_zeros(starts.shape[0], states.shape[1]).index_add(0, owners, is_token * states)
            counts = states.new_zeros(starts.shape[0], 1).index_add(0, owners, is_token)
            return {"logits": self.model.classifier(sums / counts)}
        return dict(self.model(**arguments))


class PaddedRows(nn.Module):
    """A model of another type than BERT with padded rows, whose outputs are those that it has."""

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, token_type_ids: torch.Tensor | None = None
    ) -> dict[str, torch.Tensor]:
        segments = {} if token_type_ids is None else {"token_type_ids": token_type_ids}
        return dict(self.model(input_ids=input_ids, attention_mask=attention_mask, **segments))


@contextmanager
def _eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Attention whose masks are added, so that rows of padding only need no special case."""
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    yield
    model.set_attn_implementation(implementation)


def _has_output(graph: Any, name: str) -> bool:
    return any(name in output.get_names() for output in graph.outputs)


def _rows(model: PreTrainedModel) -> nn.Module:
    """The network of a graph."""
    return PackedRows(model) if isinstance(model, MyBertPreTrainedModel) else PaddedRows(model)


def _write_openvino(
    model: PreTrainedModel,
    source: ModelFolder | EncoderFolder,
    inputs: Sequence[str],
    folder: Path,
    settings: ConvertOpenVinoSettings,
    rows: list[_Row],
) -> dict[str, Any]:
    openvino = import_openvino()
    if getattr(model.config, "is_decoder", False):
        raise ValueError(f"{source.path}: is_decoder is true; expected a model that reads in both directions")
    example = example_batch(model.config, source.head, _EXAMPLE, inputs)
    # In ModernBERT, padding whose window holds nothing but padding would become NaN, and then all tokens.
    in_eager = nullcontext() if isinstance(model, MyBertPreTrainedModel) else _eager_attention(model)
    with no_warnings(), torch.no_grad(), in_eager:
        graph = openvino.convert_model(_rows(model), example_input=example)
    ports = {name: graph.input(name) for name in example}
    ports |= {name: graph.output(name) for name in HEADS[source.head].outputs if _has_output(graph, name)}
    for name, port in ports.items():
        port.get_tensor().set_names({name})  # without the other names that tracing gives
    if rows:
        import nncf

        logger.info(f"quantizing to int8 with {len(rows)} texts")
        # One text at a time, so that there is no padding whose states would widen the ranges.
        shape = (1, 1, -1) if source.head == "multiple-choice" else (1, -1)
        samples = nncf.Dataset([{name: values.reshape(shape) for name, values in row.items()} for row in rows])
        smoothing = nncf.AdvancedSmoothQuantParameters(matmul=_SMOOTHING)
        parameters = nncf.AdvancedQuantizationParameters(smooth_quant_alphas=smoothing)
        options = {"subset_size": len(rows), "advanced_parameters": parameters}
        with no_warnings():
            graph = nncf.quantize(graph, samples, model_type=nncf.ModelType.TRANSFORMER, **options)
    graph.set_rt_info(source.digest(), [*WEIGHTS_RECORD])
    openvino.save_model(graph, folder / OPENVINO_FILE, compress_to_fp16=False)
    return {OPENVINO_FILE: OpenVinoModel(folder, model.config)}


def _write_onnx(
    model: PreTrainedModel,
    source: ModelFolder | EncoderFolder,
    inputs: Sequence[str],
    folder: Path,
    settings: ConvertOnnxSettings,
    rows: list[_Row],
) -> dict[str, Any]:
    path, files = folder / ONNX_FILE, [ONNX_FILE]
    example = example_batch(model.config, source.head, _EXAMPLE, inputs)
    with torch.no_grad():
        outputs = list(model(**example))
    names = _AXES if source.head == "multiple-choice" else (_AXES[0], _AXES[2])
    axes = {place: torch.export.Dim(name) for place, name in enumerate(names)}
    with no_warnings(), _eager_attention(model):  # which needs fewer nodes
        program = torch.onnx.export(
            model if getattr(model.config, "is_decoder", False) else _rows(model),
            kwargs=example,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=dict.fromkeys(example, axes),
            opset_version=settings.opset,
            dynamo=True,
            verbose=False,
        )
    assert program is not None
    written = program.model.opset_imports[""]
    if settings.opset not in (None, written):
        raise SettingError.worded(
            "{opset} is {}, but the exporter of PyTorch can only write {} for it", settings.opset, written
        )
    for output in program.model.graph.outputs:  # optimum computes their sizes from the names
        assert output.shape is not None
        for place, name in enumerate(names[:-1]):
            output.shape[place] = name
    program.save(path)  # weights go to a separate file if they are too large for one
    if settings.dtype == "int8":
        logger.info("quantizing to int8")
        _quantize_onnx(path, folder / INT8_FILE)
        files.append(INT8_FILE)
    _record_digest([folder / file for file in files], source.digest())
    return {file: OnnxModel(folder / file) for file in files}


def _record_digest(paths: Sequence[Path], digest: str) -> None:
    import onnx

    for path in paths:
        graph = onnx.load(path, load_external_data=False)
        onnx.helper.set_model_props(graph, {DIGEST: digest})
        onnx.save(graph, path)


def digest_in_graph(path: Path) -> str | None:
    """The digest of the weights from which this package made a graph; None for other graphs.

    Raises:
        ImportError: If the runtime of the graph is not installed.
        ValueError: If it cannot read the graph.
    """
    if path.suffix == ".onnx":
        return OnnxModel(path).digest
    graph = read_graph(path)
    return str(graph.get_rt_info([*WEIGHTS_RECORD]).value) if graph.has_rt_info([*WEIGHTS_RECORD]) else None


def _quantize_onnx(path: Path, target: Path) -> None:
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


class OnnxModel:
    """A graph that ONNX Runtime computes, called like the model."""

    device = torch.device("cpu")

    def __init__(self, path: Path) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = torch.get_num_threads()
        options.log_severity_level = 3  # errors
        try:
            self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except MemoryError:
            raise
        except Exception as error:  # those of ONNX Runtime have no class in common
            raise ValueError(f"{path} is no graph that ONNX Runtime can read ({error}).") from error
        self.inputs = {taken.name for taken in self._session.get_inputs()}
        self.digest: str | None = self._session.get_modelmeta().custom_metadata_map.get(DIGEST)

    def __call__(self, **batch: torch.Tensor) -> ModelOutput:
        arrays = self._session.run(None, {name: values.numpy() for name, values in batch.items()})
        names = (output.name for output in self._session.get_outputs())
        return ModelOutput(zip(names, map(torch.from_numpy, arrays), strict=True))


def _compare_on_texts(
    model: PreTrainedModel, converted: Any, rows: Sequence[_Row], head: str, tokenizer: Any
) -> tuple[float, float | None]:
    """The largest difference on texts, and the fraction of equal decisions: the highest logits of texts or tokens."""
    shapes = HEADS[head].outputs

    def collate(chosen: Sequence[_Row]) -> dict[str, torch.Tensor]:
        batch = pad_rows(tokenizer, chosen)
        return {name: values[:, None] for name, values in batch.items()} if head == "multiple-choice" else batch

    def keep(outputs: Any, batch: object, chosen: Sequence[_Row]) -> Iterator[list[np.ndarray]]:
        for place, row in enumerate(chosen):
            ends = {name: len(row["input_ids"]) if "length" in shapes[name] else None for name in outputs}
            yield [values[place, : ends[name]].numpy() for name, values in outputs.items()]

    pairs = zip(*(run_sorted(one, rows, collate, keep) for one in (model, converted)), strict=True)
    difference, equal = 0.0, []
    for expected, found in pairs:
        for right, other in zip(expected, found, strict=True):
            difference = max(difference, float(np.abs(right - other).max()))
            if head != "encoder" and right.shape[-1] > 1:
                equal.append(np.equal(right.argmax(-1), other.argmax(-1)).ravel())
    return difference, float(np.concatenate(equal).mean()) if equal else None
