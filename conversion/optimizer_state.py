"""Adam's moments and the step of a converted checkpoint, as a safetensors file that an optimizer can load.

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

from .errors import ConversionError

OPTIMIZER_FILE = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def save_optimizer_state(path: Path, step: int, moments: Iterable[tuple[str, np.ndarray, np.ndarray]]) -> None:
    """Write the state after `step` updates; `moments` are a parameter's name, first and second moment."""
    tensors = {
        f"{moment}.{name}": value for name, *values in moments for moment, value in zip(_MOMENTS, values, strict=True)
    }
    save_file(tensors, path, metadata={"step": str(step)})  # of several entries the order would be random


def load_optimizer_state(
    path: str | os.PathLike[str], model: torch.nn.Module, optimizer: torch.optim.Optimizer
) -> int:
    """Give an optimizer the moments of a converted checkpoint, so that training continues where TensorFlow stopped.

    Args:
        path: `optimizer.safetensors`, or its model folder.
        model: The converted model; its parameter names are those in the file.
        optimizer: An Adam with the state keys `step`, `exp_avg` and `exp_avg_sq`, as `MyBertAdamW`.

    Returns:
        The number of updates made so far, from which the learning rate schedule continues.

    Raises:
        ConversionError: If the file is missing or broken, or does not fit the model.
    """
    file = Path(path) / OPTIMIZER_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise ConversionError(f"{file}: no such file; convert with optimizer=True (--optimizer)")
    # An optimizer's state dict counts the parameters through all groups.
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    places = {id(parameter): place for place, parameter in enumerate(trained)}
    states: dict[int, dict[str, torch.Tensor]] = {}
    try:
        with safe_open(file, framework="pt") as content:
            text = (content.metadata() or {}).get("step", "")
            if not text.isdecimal():
                raise ConversionError(f"{file}: the step is {text!r}, expected a number")
            left = set(content.keys())
            for name, parameter in model.named_parameters():
                keys = [f"{moment}.{name}" for moment in _MOMENTS]
                if id(parameter) not in places or not left.issuperset(keys):
                    continue
                left -= set(keys)
                moments = [content.get_tensor(key) for key in keys]
                if any(moment.shape != parameter.shape for moment in moments):
                    found = tuple(moments[0].shape)
                    problem = f"{name} has moments of shape {found}, the parameter {tuple(parameter.shape)}"
                    raise ConversionError(f"{file}: {problem}")
                # Cloned, because a mapped tensor would follow the file.
                state = dict(zip(_MOMENTS, (moment.clone() for moment in moments), strict=True))
                states[places[id(parameter)]] = {"step": torch.tensor(float(text)), **state}
    except SafetensorError as error:
        raise ConversionError(f"{file}: the file cannot be read: {error}") from error
    if left:
        names = ", ".join(sorted(left)[:8])
        raise ConversionError(f"{file}: {len(left)} tensors fit no trained parameter of the model: {names}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    return int(text)
