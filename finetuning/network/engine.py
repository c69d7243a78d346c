"""What computes a network: PyTorch, or OpenVINO for folders that `mybert convert openvino` wrote."""

import logging
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from ...files.checkpoint import OPENVINO_FILE, Checkpoint
from ...files.options import AT_LEAST_1, Group, option
from ...pipelines.openvino_model import import_openvino

logger = logging.getLogger(__name__)

Engine = Literal["auto", "torch", "openvino"]


@dataclass(kw_only=True)
class EngineOptions:
    """What computes the network, and with how many threads."""

    group = Group.MODEL
    engine: Engine = option(
        "auto",
        "What computes the network: torch, or openvino on CPUs, for a folder that `mybert convert openvino` wrote. "
        "auto: openvino for such a folder, if it is installed.",
        decides=True,
        idle_with="predictions",
    )
    # PyTorch keeps this number for the whole process.
    threads: int | None = option(
        None, "Threads on a CPU, of PyTorch and other runtimes.", AT_LEAST_1, idle_with="predictions"
    )

    def __post_init__(self) -> None:
        """Reject an engine that the model in a folder cannot use, and int8 in PyTorch."""
        super().__post_init__()  # type: ignore[misc]  # of the other base class
        model = getattr(self, "model", None)
        if model and Path(model).is_dir():
            runs_in_openvino(Checkpoint(model), self.engine, getattr(self, "dtype", None))


def runs_in_openvino(checkpoint: Checkpoint, engine: Engine, dtype: str | None = None) -> bool:
    """Whether OpenVINO computes a model; a ValueError or ImportError if it has to, but cannot."""
    name = checkpoint.name
    if engine == "openvino" and not checkpoint.has_graph:
        raise ValueError(
            f"engine is openvino, and {name} has no {OPENVINO_FILE}; `mybert convert openvino {name} OUTPUT` writes a "
            "folder that has."
        )
    in_torch = engine == "torch" or not checkpoint.has_graph
    if in_torch or (engine == "auto" and checkpoint.has_weights and find_spec("openvino") is None):
        if dtype == "int8":
            raise ValueError(
                f"dtype is int8, which PyTorch does not compute; `mybert convert openvino {name} OUTPUT --dtype int8 "
                "--data TEXTS` writes a folder that OpenVINO computes in int8."
            )
        return False
    import_openvino()
    return True
