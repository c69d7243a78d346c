"""Adam's moments and the step of a converted checkpoint, as a safetensors file that an optimizer can load.

The file holds `exp_avg.NAME` and `exp_avg_sq.NAME` for every parameter NAME of the model that was trained, in float32,
and the number of updates as metadata `step`. A parameter without moments (Google's optimizer skips those without a
gradient) is not in it.
"""

import os
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from .google_variables import ConversionPlan
from .key_map import SLOTS, name_in_model

OPTIMIZER_FILE = "optimizer.safetensors"
_MOMENTS = ("exp_avg", "exp_avg_sq")


def write_optimizer_state(path: Path, plan: ConversionPlan) -> tuple[int, set[str]]:
    """Write the moments of the parameters of a plan; return the updates and the variables read."""
    bundle = plan.bundle

    def wrong(problem: str) -> ValueError:
        return ValueError(f"{bundle.prefix}: optimizer state: {problem}")

    if plan.layout == "keras":
        raise wrong("only that of Google's TensorFlow 1 optimizer can be converted")
    info = bundle.info.get("global_step")
    if info is None or info.shape or not info.dtype.startswith("int"):
        raise wrong("there is no integer global_step")
    if (step := int(bundle["global_step"])) < 0:
        raise wrong(f"global_step is {step}")
    tensors, read = {}, {"global_step"}
    for row, key in plan.used:
        for slots in ([f"{key}/{slot}" for slot in pair] for pair in SLOTS):
            there = [slot for slot in slots if slot in bundle]
            if len(there) == 1:
                raise wrong(f"{key} has only one of its two moments")
            for slot, moment in zip(there, _MOMENTS, strict=False):
                if bundle.info[slot].shape != bundle.info[key].shape:
                    raise wrong(f"{slot} has shape {bundle.info[slot].shape}, expected {bundle.info[key].shape}")
                name = name_in_model(row.parameter, plan.head)
                tensors[f"{moment}.{name}"] = row.to_parameter(plan.layout, bundle[slot])
            read.update(there)
    if not tensors:
        raise wrong("there are no variables */adam_m and */adam_v")
    save_file(tensors, path, metadata={"step": str(step)})  # of several entries the order would be random
    return step, read


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
        FileNotFoundError: If the file is missing.
        ValueError: If it is broken, or does not fit the model.
    """
    file = Path(path) / OPTIMIZER_FILE if Path(path).is_dir() else Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no such file; convert with optimizer=True (--optimizer)")
    # An optimizer's state dict counts the parameters through all groups.
    trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    places = {id(parameter): place for place, parameter in enumerate(trained)}
    states: dict[int, dict[str, torch.Tensor]] = {}
    try:
        with safe_open(file, framework="pt") as content:
            text = (content.metadata() or {}).get("step", "")
            if not text.isdecimal():
                raise ValueError(f"{file}: the step is {text!r}, expected a number")
            left = set(content.keys())
            for name, parameter in model.named_parameters():
                keys = [f"{moment}.{name}" for moment in _MOMENTS]
                if id(parameter) not in places or not left.issuperset(keys):
                    continue
                left -= set(keys)
                moments = [content.get_tensor(key) for key in keys]
                if any(moment.shape != parameter.shape for moment in moments):
                    shapes = f"shape {tuple(moments[0].shape)}, the parameter {tuple(parameter.shape)}"
                    raise ValueError(f"{file}: {name} has moments of {shapes}")
                # Cloned, because a mapped tensor would follow the file.
                state = dict(zip(_MOMENTS, (moment.clone() for moment in moments), strict=True))
                states[places[id(parameter)]] = {"step": torch.tensor(float(text)), **state}
    except SafetensorError as error:
        raise ValueError(f"{file}: the file cannot be read: {error}") from error
    if left:
        names = ", ".join(sorted(left)[:8])
        raise ValueError(f"{file}: {len(left)} tensors fit no trained parameter of the model: {names}")
    optimizer.load_state_dict({**optimizer.state_dict(), "state": states})
    return int(text)
