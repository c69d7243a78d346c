"""A network that OpenVINO computes, called like the PyTorch model that it was converted from.

The graph's inputs are `input_ids`, `attention_mask` and `token_type_ids` (rows, tokens), with a dimension for the
choices before the last one if the head is multiple choice. In the graph of a BERT the mask numbers the sequences of a
row: tokens attend to those with the same number, and positions start again where a number above 1 begins; 0 is
padding. A mask of ones and zeros thus means what it means elsewhere, and other tools run the graph as they run any
BERT's. The graphs of other encoders have one sequence in a row, and only the inputs that their tokenizers give.
Outputs of tokens are (rows, tokens, ...); outputs of sequences come one per sequence, in order.
"""

import logging
import os
import sys
import threading
from collections.abc import Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedConfig
from transformers.utils import ModelOutput

from ..files.checkpoint import BERT_TYPES, OPENVINO_FILE, Checkpoint
from ..files.errors import SettingError, how_to_install
from ..files.loading import longest_sequence
from ..modeling_mybert import MyBertConfig
from ..modeling_mybert.inputs_mybert import Inputs, check_inputs, unmask_empty_rows
from .options import Engine

logger = logging.getLogger(__name__)

_HINTS = {"float32": "f32", "bfloat16": "bf16"}


def import_openvino() -> Any:
    """OpenVINO, without its telemetry: importing it would report to a web service."""
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]  # OpenVINO and NNCF do without it
    try:
        import openvino
    except ImportError as error:
        raise ImportError(f"OpenVINO is not installed: {how_to_install('openvino')} ({error}).") from error
    return openvino


_TO_INT8 = "mybert convert openvino {} OUTPUT --dtype int8 --data TEXTS"
WEIGHTS_RECORD = ("mybert", "weights")
"""Where our graphs record the digest of the weights that they were made of."""


@cache
def openvino_core() -> Any:
    """OpenVINO's core, one for the process.

    A second one would do harm: a core gives the thread a stack for its signals when it is created and takes the stack
    away when it is deleted. After two that are not deleted in reverse order, the next signal, such as Ctrl-C, is a
    segmentation fault (seen in OpenVINO 2026.4).
    """
    return import_openvino().Core()


def read_graph(path: Path) -> Any:
    """The graph in a file; a ValueError if it cannot be read."""
    try:
        return openvino_core().read_model(path)
    except RuntimeError:
        raise ValueError(f"{path} or its .bin file is damaged; convert the model again.") from None


class OpenVinoConfig(PreTrainedConfig):
    """The key under which Auto classes list `OpenVinoModel`, so that transformers' pipelines know it."""


class OpenVinoModel(torch.nn.Module):
    """The network in a folder with a graph for OpenVINO; `pipeline(..., model=OpenVinoModel(folder))`.

    Sequences of a BERT are packed: a row of the graph is as long as the longest sequence of the batch, rounded up, and
    shorter ones share rows. A single sequence is run as it is. Calls of several threads run one after the other.

    Args:
        folder: A folder that `mybert convert openvino` or `mybert push --graphs openvino` wrote.
        config: Its configuration, by default read from the folder.
        dtype: Type of the computation, "float32" or "bfloat16"; products of int8 weights are in int8 in any case.
            "int8": float32, and the weights must be int8.
        logits: Name of the only output that is needed, which is returned as `logits`.

    Raises:
        ImportError: If OpenVINO is not installed.
        FileNotFoundError: If there is no graph.
        ValueError: If the graph cannot be read or has no int8 weights, or the processor has no bfloat16 instructions.
    """

    device = torch.device("cpu")

    def __init__(
        self,
        folder: str | os.PathLike[str],
        config: PreTrainedConfig | None = None,
        dtype: str = "float32",
        logits: str = "",
    ) -> None:
        super().__init__()
        checkpoint, core = Checkpoint(folder), openvino_core()
        path = checkpoint.graph_file
        if path is None:
            raise FileNotFoundError(f"{folder} has no {OPENVINO_FILE}, as `mybert convert openvino` writes it.")
        self.config, self._logits = config or checkpoint.config, logits
        if dtype == "bfloat16" and "BF16" not in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
            raise SettingError.worded(
                "{dtype} is bfloat16, and this processor has no instructions for it; expected float32."
            )
        graph = read_graph(path)
        if dtype == "int8" and not any(node.get_type_name() == "FakeQuantize" for node in graph.get_ops()):
            raise SettingError.worded(
                "{dtype} is int8, and the weights in {} are float32; `{}` writes int8.", path, _TO_INT8.format("MODEL")
            )
        settings = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": torch.get_num_threads(),
            "INFERENCE_PRECISION_HINT": _HINTS.get(dtype, "f32"),
        }
        compiled = core.compile_model(graph, "CPU", settings)
        self._request, self._lock = compiled.create_infer_request(), threading.Lock()
        self._has_choices = len(graph.input("input_ids").partial_shape) == 3
        self.inputs = {port.get_any_name() for port in graph.inputs}
        # A graph of another tool, or type, has one sequence in a row.
        self._packs = self.config.model_type in BERT_TYPES and graph.has_rt_info([*WEIGHTS_RECORD])
        sizes = {"type_vocab_size": getattr(self.config, "type_vocab_size", 1), "vocab_size": self.config.vocab_size}
        self._limits = MyBertConfig(max_position_embeddings=longest_sequence(self.config) or sys.maxsize, **sizes)
        # The second dimension of outputs of tokens is their number.
        self._of_tokens = {
            output.get_any_name(): not self._has_choices and output.partial_shape[1].is_dynamic
            for output in graph.outputs
        }

    @property
    def outputs(self) -> list[str]:
        return list(self._of_tokens)

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,
        unpad_inputs: bool = True,
        return_dict: bool = True,
    ) -> ModelOutput:
        """Run a batch.

        Args:
            input_ids: Token ids (B, L), for multiple choice (B, C, L).
            attention_mask: 1 at tokens, 0 at padding, of the same shape and any type. None: no padding.
            token_type_ids: Segments, of the same shape. None: all 0.
            labels, unpad_inputs, return_dict: Ignored; there is no loss.

        Returns:
            The outputs that the PyTorch model has, with zeros at padding.

        Raises:
            ValueError: If an input has another shape or values that the model lacks, such as a mask prepared for
                attention, or a sequence is longer than the model's positions.
        """
        shape = input_ids.shape
        if len(shape) != 2 + self._has_choices:
            raise ValueError(
                f"input_ids has shape {tuple(shape)}; expected (batch, {'choices, ' * self._has_choices}tokens)."
            )
        given = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        if given.shape != shape:
            raise ValueError(
                f"attention_mask has shape {tuple(given.shape)}; expected {tuple(shape)}: OpenVINO's graph takes no "
                "prepared mask."
            )
        ids: Any = input_ids.flatten(0, -2)
        segments: Any = torch.zeros_like(ids) if token_type_ids is None else token_type_ids.flatten(0, -2)
        check_inputs(self._limits, self.config.vocab_size, False, Inputs(ids, ids, token_type_ids=segments))
        mask: np.ndarray = unmask_empty_rows((given.flatten(0, -2) != 0).long()).cpu().numpy()
        ids, segments = (values.long().expand(mask.shape).cpu().numpy() for values in (ids, segments))
        lengths = mask.sum(1)
        if self._packs and np.array_equal(mask, np.arange(shape[-1]) < lengths[:, None]):
            outputs = self._run_packed(ids, segments, lengths)
        else:  # or padding before tokens, whose positions count it
            # More padding, for fewer shapes; RoBERTa does not count the padding token in its positions.
            longer = 0 if self._packs else min(row_length(lengths), self._limits.max_position_embeddings) - shape[-1]
            padding = (0, 0), (0, max(longer, 0))
            ids = np.pad(ids, padding, constant_values=getattr(self.config, "pad_token_id", None) or 0)
            outputs = self._run(ids, np.pad(mask, padding), np.pad(segments, padding))
            for name, values in outputs.items():
                if self._of_tokens[name]:
                    outputs[name] = values[:, : shape[-1]].copy()
                    outputs[name][mask == 0] = 0  # or NaN, where ModernBERT's window holds nothing but padding
        if self._logits:
            outputs = {"logits": outputs[self._logits]}
        if self._has_choices:
            outputs = {name: values.reshape(shape[:-1]) for name, values in outputs.items()}
        return ModelOutput({name: torch.from_numpy(values) for name, values in outputs.items()})

    def _run_packed(self, ids: np.ndarray, segments: np.ndarray, lengths: np.ndarray) -> dict[str, np.ndarray]:
        """Run sequences of these lengths (N,), each with padding at its end, without the padding."""
        longest = min(row_length(lengths), self._limits.max_position_embeddings)
        rows = shared_rows(lengths, longest)
        numbers = np.zeros((len(rows), longest), dtype=np.int64)
        places = []  # of the tokens of the packed rows in the flattened batch
        for row, sequences in zip(numbers, rows, strict=True):
            start = 0
            for number, sequence in enumerate(sequences, start=1):
                row[start : start + lengths[sequence]] = number
                start += lengths[sequence]
                places.append(np.arange(lengths[sequence]) + sequence * ids.shape[1])
        from_batch, is_token = np.concatenate(places), numbers > 0
        inputs = [np.zeros_like(numbers) for _ in range(2)]
        for packed, values in zip(inputs, (ids, segments), strict=True):
            packed[is_token] = values.reshape(-1)[from_batch]
        order = [sequence for sequences in rows for sequence in sequences]
        outputs = {}
        for name, values in self._run(inputs[0], numbers, inputs[1]).items():
            if self._of_tokens[name]:
                tokens = np.zeros((ids.size, *values.shape[2:]), dtype=values.dtype)
                tokens[from_batch] = values[is_token]
                outputs[name] = tokens.reshape(*ids.shape, *values.shape[2:])
            else:
                outputs[name] = np.empty_like(values)
                outputs[name][order] = values
        return outputs

    def _run(self, ids: np.ndarray, mask: np.ndarray, segments: np.ndarray) -> dict[str, np.ndarray]:
        """Run the graph on rows; outputs of multiple choice are (sequences,)."""
        arrays = {"input_ids": ids, "attention_mask": mask, "token_type_ids": segments}
        if self._has_choices:
            arrays = {name: array[None] for name, array in arrays.items()}
        arrays = {name: array for name, array in arrays.items() if name in self.inputs}
        with self._lock:  # one request holds the inputs and outputs of one call; its results are copies
            results = self._request.infer(arrays)
        found = {output.get_any_name(): values for output, values in results.items()}
        return {name: values[0] for name, values in found.items()} if self._has_choices else found


def row_length(lengths: np.ndarray) -> int:
    """The length of rows for sequences of these lengths: the longest, of several sequences rounded up."""
    # OpenVINO compiles kernels for each shape, and keeps them. Eight lengths in each octave keep their number small.
    longest = int(lengths.max())
    step = 1 if len(lengths) == 1 else max(1, 2 ** (longest.bit_length() - 1) // 8)
    return -(-longest // step) * step


def shared_rows(lengths: Sequence[int] | np.ndarray, longest: int) -> list[list[int]]:
    """Put sequences into rows of this length: the indices of the sequences in each row.

    The longest sequence that is left begins a row, and the shortest ones fill it up.
    """
    left = sorted(range(len(lengths)), key=lambda place: -lengths[place])
    first, last, rows = 0, len(left) - 1, []
    while first <= last:
        row, space = [left[first]], longest - lengths[left[first]]
        first += 1
        while first <= last and lengths[left[last]] <= space:
            row.append(left[last])
            space -= lengths[left[last]]
            last -= 1
        rows.append(row)
    return rows


def runs_in_openvino(
    checkpoint: Checkpoint, engine: Engine, dtype: str | None = None, device: str | torch.device = "cpu"
) -> bool:
    """Whether OpenVINO computes a model; a ValueError or ImportError if it has to, but cannot.

    With "auto", PyTorch computes a model that has both weights and a graph on devices other than CPUs, or if OpenVINO
    is not installed.
    """
    name = checkpoint.name
    is_unsuitable = torch.device(device).type != "cpu" or find_spec("openvino") is None
    in_torch = engine == "torch" or (engine == "auto" and is_unsuitable and not checkpoint.has_only_graph)
    graph = None if in_torch else checkpoint.graph_file
    if engine == "openvino" and graph is None:
        raise SettingError.worded(
            "{engine} is openvino, and {} has no {}; `mybert convert openvino {} OUTPUT` writes a folder that has.",
            name,
            OPENVINO_FILE,
            name,
        )
    if graph is None:
        if dtype == "int8":
            raise SettingError.worded(
                "{dtype} is int8, which PyTorch does not compute; `{}` writes a folder for int8 in OpenVINO.",
                _TO_INT8.format(name),
            )
        return False
    import_openvino()
    return True
