"""Adam's moments and the step of a converted checkpoint, as a safetensors file that an optimizer takes over.

The file holds `exp_avg.NAME` and `exp_avg_sq.NAME` for every parameter NAME of the model that was trained, in float32,
and the number of updates as metadata `step`. A parameter without moments (Google's optimizer skips those without a
gradient) is not in it.
"""

import os
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .errors import OptimizerStateError

OPTIMIZER_FILE = "optimizer.safetensors"


def save_optimizer_state(path: Path, step: int, moments: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> None:
    """Write the state after `step` updates: name, first and second moment of every parameter."""
    tensors = {}
    for name, first, second in moments:
        tensors[f"exp_avg.{name}"], tensors[f"exp_avg_sq.{name}"] = first, second
    save_file(tensors, path, metadata={"format": "pt", "step": str(step)})


def load_optimizer_state(
    path: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    """Give an optimizer the moments of a converted checkpoint, so that training goes on where TensorFlow stopped.

    Args:
        path: `optimizer.safetensors`, or the model folder it lies in.
        model: The converted model; its parameter names are those in the file.
        optimizer: An Adam with the state keys `step`, `exp_avg` and `exp_avg_sq`, as `MyBertAdamW`.

    Returns:
        The number of updates made so far, from which the learning rate schedule goes on.

    Raises:
        OptimizerStateError: If the file is missing or broken, or does not fit the model.
    """
    file = Path(path) / OPTIMIZER_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise OptimizerStateError(path=file, problem="no such file; convert with optimizer=True (--optimizer)")
    trained = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    try:
        with safe_open(file, framework="pt") as state:
            text = (state.metadata() or {}).get("step", "")
            if not text.isdecimal():
                raise OptimizerStateError(path=file, problem=f"the step is {text!r}, expected a number")
            left = set(state.keys())
            for name, parameter in model.named_parameters():
                keys = (f"exp_avg.{name}", f"exp_avg_sq.{name}")
                if id(parameter) not in trained or not left.issuperset(keys):
                    continue
                left -= set(keys)
                moments = [state.get_tensor(key) for key in keys]
                if any(moment.shape != parameter.shape for moment in moments):
                    found = tuple(moments[0].shape)
                    problem = f"{name} has moments of shape {found}, the parameter {tuple(parameter.shape)}"
                    raise OptimizerStateError(path=file, problem=problem)
                first, second = (moment.to(parameter.device).clone() for moment in moments)
                optimizer.state[parameter] = {
                    "step": torch.tensor(float(text)), "exp_avg": first, "exp_avg_sq": second,
                }  # fmt: skip
    except SafetensorError as error:
        raise OptimizerStateError(path=file, problem=f"the file cannot be read: {error}") from error
    if left:
        names = ", ".join(sorted(left)[:8])
        raise OptimizerStateError(
            path=file, problem=f"{len(left)} tensors fit no trained parameter of the model: {names}"
        )
    return int(text)
