"""BERT in the runtimes that people serve it with on a CPU: PyTorch, ONNX Runtime, OpenVINO and CTranslate2.

Each runtime is measured in a separate process, because it is slower next to another runtime's threads, even sleeping
ones: PyTorch's OpenMP (libgomp) stops waiting actively for the next product if a process has more of its threads than
cores. So there is one function for each runtime, which takes the model's settings, the number of threads and a folder,
and returns encoders by name, all with the same random weights. It raises `ImportError` if the runtime is not
installed.
"""

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import BertModel

from ..conversion import export_openvino
from ..files.checkpoint import OPENVINO_FILE
from ..files.machine import bfloat16_features
from ..files.processes import no_warnings
from ..pipelines.openvino_model import OpenVinoModel, import_openvino, openvino_core
from ..studies.timing import REST, timed
from ..tokenization import MyBertTokenizer
from . import register
from .harness import PEER, Batch, made_up_vocabulary, matched_models, random_batch

GROUP = 8  # rows of a group of `sorted_by_length`
PACKED = "mybert, OpenVINO"
PRODUCTS = "(linear layers' products alone)"
_TURN = 0.5  # seconds of consecutive short calls
Encoder = Callable[[Batch], torch.Tensor]  # from `input_ids` and `attention_mask` to the last hidden states
_EXAMPLES = ((7, 9), (128, 60, 30, 20, 12, 8), (24, 24, 24, 24), (200, 90))  # lengths of batches to calibrate with


def sorted_by_length(encode: Encoder) -> Encoder:
    """Run a batch with little padding, as careful users do: sorted, in groups of `GROUP` rows."""

    def encode_in_groups(batch: Batch) -> torch.Tensor:
        lengths = batch["attention_mask"].sum(1)
        states: torch.Tensor | None = None
        for rows in lengths.argsort().split(GROUP):
            longest = int(lengths[rows].max())
            part = encode({name: tensor[rows, :longest].contiguous() for name, tensor in batch.items()})
            if states is None:
                states = part.new_zeros(*batch["input_ids"].shape, part.shape[-1])
            states[rows, :longest] = part
        assert states is not None, "a batch has rows"
        return states

    return encode_in_groups


class RuntimeEncoders:
    """The encoders of one runtime, which `make` creates, in the process that measures them."""

    def __init__(
        self, make: Callable[..., dict[str, Any]], settings: Mapping[str, int], threads: int, folder: Path
    ) -> None:
        register()  # with transformers, as a command has done in its own process
        torch.set_num_threads(1)  # for PyTorch, which in other runtimes only converts the model
        with no_warnings():
            self._encoders = make(settings, threads, folder)

    def names(self) -> list[str]:
        return list(self._encoders)

    def states(self, name: str, lengths: tuple[int, ...], is_sorted: bool) -> np.ndarray | None:
        """Hidden states `(B, T, D)` of an encoder for a batch of these lengths, sorted by length if requested."""
        states = self._run(name, lengths, is_sorted)()
        return None if states is None else states.float().numpy()

    def seconds(self, name: str, lengths: tuple[int, ...], is_sorted: bool) -> float:
        """Seconds of a call, after other processes have come to rest; for short calls, the median of a series."""
        run = self._run(name, lengths, is_sorted)
        time.sleep(REST)
        calls: list[float] = []
        while sum(calls) < _TURN:
            calls.append(timed(run)[0])
        return statistics.median_low(calls)

    def _run(self, name: str, lengths: tuple[int, ...], is_sorted: bool) -> Callable[[], Any]:
        encode = self._encoders[name]
        return partial(sorted_by_length(encode) if is_sorted else encode, random_batch(lengths))


def matched_encoders(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Encoders without a pooler, by side; see `matched_models`."""
    return matched_models("Model", settings, {"add_pooling_layer": False})


def encoder_of(model: Callable[..., Any]) -> Encoder:
    def encode(batch: Batch) -> torch.Tensor:
        with torch.no_grad():
            return model(**batch).last_hidden_state

    return encode


def products(model: torch.nn.Module) -> Callable[[Batch], None]:
    """Only the matrix products of a model's linear layers for a batch's tokens: a bound on its speed."""
    layers = [module for module in model.modules() if isinstance(module, torch.nn.Linear)]

    @lru_cache(1)
    def inputs_of(tokens: int) -> dict[int, torch.Tensor]:
        return {width: torch.randn(tokens, width) for width in {layer.in_features for layer in layers}}

    @torch.no_grad()
    def run(batch: Batch) -> None:
        inputs = inputs_of(int(batch["attention_mask"].sum()))
        for layer in layers:
            layer(inputs[layer.in_features])

    return run


def pytorch_encoders(
    settings: Mapping[str, int], threads: int, folder: Path, compiled: bool = False
) -> dict[str, Any]:
    """PyTorch: transformers' BERT and mybert (also prepacked, bfloat16, compiled), and the products alone."""
    torch.set_num_threads(threads)
    bert, my_bert = matched_encoders(settings).values()
    models = {PEER: bert, "mybert": my_bert}
    if bfloat16_features():
        models[f"{PEER} bfloat16"] = copy.deepcopy(bert).bfloat16()
    if torch.backends.mkldnn.is_available():
        models["mybert, prepacked"] = copy.deepcopy(my_bert).prepack_weights()
        if torch.ops.mkldnn._is_mkldnn_bf16_supported():
            models["mybert bfloat16"] = copy.deepcopy(my_bert).bfloat16().prepack_weights()
    if compiled:
        models["transformers, compiled"] = torch.compile(bert, dynamic=True)
        models["mybert, compiled"] = torch.compile(my_bert, dynamic=True)
    return {**{name: encoder_of(model) for name, model in models.items()}, PRODUCTS: products(my_bert)}


def onnx_encoders(settings: Mapping[str, int], threads: int, folder: Path) -> dict[str, Encoder]:
    """ONNX Runtime: the exported model, the one of its own optimizer for BERT, and its dynamic int8 quantization."""
    import onnx  # noqa: F401
    import onnxscript  # noqa: F401
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.transformers.fusion_options import FusionOptions
    from onnxruntime.transformers.optimizer import optimize_model

    model = matched_encoders(settings)[PEER]
    plain, optimized, int8 = (folder / f"{name}.onnx" for name in ("plain", "optimized", "int8"))
    example = random_batch((7, 9), model.config.vocab_size)
    shapes = {name: {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC} for name in example}
    torch.onnx.export(model, (), str(plain), kwargs=example, dynamic_shapes=shapes, dynamo=True, verbose=False)
    optimize_model(
        str(plain),
        model_type="bert",
        num_heads=model.config.num_attention_heads,
        hidden_size=model.config.hidden_size,
        optimization_options=FusionOptions("bert"),
    ).save_model_to_file(str(optimized))
    quantize_dynamic(str(plain), str(int8), weight_type=QuantType.QInt8)
    files = {"ONNX Runtime": plain, "ONNX Runtime, BERT optimizer": optimized, "ONNX Runtime int8": int8}
    return {name: _onnx_encoder(path, threads) for name, path in files.items()}


def _onnx_encoder(path: Path, threads: int) -> Encoder:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    types = {entry.name: np.int32 if "int32" in entry.type else np.int64 for entry in session.get_inputs()}

    def encode(batch: Batch) -> torch.Tensor:
        inputs = {name: batch[name].numpy().astype(kind) for name, kind in types.items()}
        return torch.from_numpy(session.run(None, inputs)[0])

    return encode


def openvino_encoders(settings: Mapping[str, int], threads: int, folder: Path) -> dict[str, Encoder]:
    """OpenVINO in float32, bfloat16 and int8 (NNCF, calibrated)."""
    openvino = import_openvino()
    model = matched_encoders(settings)[PEER]
    hints = {"PERFORMANCE_HINT": "LATENCY", "INFERENCE_NUM_THREADS": threads, "NUM_STREAMS": 1}
    with torch.no_grad(), no_warnings():
        example = random_batch(_EXAMPLES[0], model.config.vocab_size)
        converted = openvino.convert_model(_StatesOnly(model), example_input=example)
    encoders: dict[str, Encoder] = {}
    for name, converted_model, precision in (
        ("OpenVINO", converted, {"INFERENCE_PRECISION_HINT": "f32"}),
        ("OpenVINO bfloat16", converted, {"INFERENCE_PRECISION_HINT": "bf16"}),
        ("OpenVINO int8", _quantized(copy.deepcopy(converted), model.config.vocab_size), {}),
    ):
        compiled = openvino_core().compile_model(converted_model, "CPU", {**hints, **precision})
        encoders[name] = partial(_openvino_states, compiled.create_infer_request())
    return encoders


def packed_encoders(settings: Mapping[str, int], threads: int, folder: Path) -> dict[str, Encoder]:
    """What `mybert convert openvino` writes, in float32, bfloat16 and int8; sequences share rows."""
    openvino = import_openvino()
    model = matched_encoders(settings)["mybert"]
    model.save_pretrained(folder / "model")
    MyBertTokenizer(made_up_vocabulary(model.config.vocab_size)).save_pretrained(folder / "model")
    export_openvino(folder / "model", folder / "packed")
    quantized = _quantized(openvino_core().read_model(folder / "packed" / OPENVINO_FILE), model.config.vocab_size)
    openvino.save_model(quantized, folder / "packed_int8" / OPENVINO_FILE, compress_to_fp16=False)
    torch.set_num_threads(threads)
    encoders = {PACKED: OpenVinoModel(folder / "packed")}
    if bfloat16_features():
        encoders[f"{PACKED} bfloat16"] = OpenVinoModel(folder / "packed", dtype="bfloat16")
    encoders[f"{PACKED} int8"] = OpenVinoModel(folder / "packed_int8", model.config)
    return {name: encoder_of(encoder) for name, encoder in encoders.items()}


def _quantized(graph: Any, vocab_size: int) -> Any:
    """An OpenVINO graph in int8, calibrated with random tokens."""
    import nncf

    names = [entry.get_any_name() for entry in graph.inputs]
    samples = []
    for batch in (random_batch(lengths, vocab_size) for lengths in _EXAMPLES):
        segments = torch.zeros_like(batch["input_ids"])
        samples.append({name: batch.get(name, segments).numpy() for name in names})
    with no_warnings():
        return nncf.quantize(graph, nncf.Dataset(samples), model_type=nncf.ModelType.TRANSFORMER)


class _StatesOnly(torch.nn.Module):
    """A model that returns only the last hidden states."""

    def __init__(self, model: BertModel) -> None:
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def _openvino_states(request: Any, batch: Batch) -> torch.Tensor:
    results = request.infer({name: tensor.numpy() for name, tensor in batch.items()}, share_inputs=True)
    return torch.from_numpy(results[0])


def ctranslate2_encoders(settings: Mapping[str, int], threads: int, folder: Path) -> dict[str, Encoder]:
    """CTranslate2 in float32 and int8."""
    import ctranslate2
    from ctranslate2.converters.transformers import BertLoader

    model = matched_encoders(settings)[PEER]
    with_pooler = BertModel(copy.deepcopy(model.config))  # required by its converter
    with_pooler.load_state_dict(model.state_dict(), strict=False)
    with_pooler.config.position_embedding_type = "absolute"  # which transformers 5 no longer sets
    encoders: dict[str, Encoder] = {}
    for name, precision in (("CTranslate2", "float32"), ("CTranslate2 int8", "int8")):
        spec = BertLoader().get_model_spec(with_pooler)
        spec.register_vocabulary([f"[{number}]" for number in range(model.config.vocab_size)])
        spec.config.unk_token, spec.config.layer_norm_epsilon = "[0]", model.config.layer_norm_eps
        spec.validate()
        spec.optimize(quantization=precision)
        (folder / precision).mkdir()
        spec.save(str(folder / precision))
        encoder = ctranslate2.Encoder(
            str(folder / precision), compute_type=precision, inter_threads=1, intra_threads=threads
        )
        encoders[name] = partial(_ctranslate2_states, encoder)
    return encoders


def _ctranslate2_states(encoder: Any, batch: Batch) -> torch.Tensor:
    lengths = batch["attention_mask"].sum(1).tolist()
    rows = [row[:length] for row, length in zip(batch["input_ids"].tolist(), lengths, strict=True)]
    segments = [[0] * length for length in lengths]
    return torch.from_numpy(np.array(encoder.forward_batch(rows, token_type_ids=segments).last_hidden_state))


RUNTIMES: dict[str, Callable[..., dict[str, Any]]] = {
    "ONNX Runtime": onnx_encoders,
    PACKED: packed_encoders,
    "OpenVINO": openvino_encoders,
    "CTranslate2": ctranslate2_encoders,
}
