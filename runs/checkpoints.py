"""Checkpoints that are complete, or ignored."""

import json
import logging
from collections.abc import Sequence
from pathlib import Path

from transformers.trainer_utils import sort_checkpoints

from ..files import write_json

logger = logging.getLogger(__name__)

# Lists a checkpoint's files and their sizes in bytes; it is written last, so a checkpoint with it is complete.
COMPLETE_FILE = "complete.json"
# Required files: one name from each line (plain; FSDP's; DeepSpeed's folder, which contains everything).
RequiredFiles = Sequence[tuple[str, ...]]
_IN_PARTS = ("pytorch_model_fsdp*", "global_step*")
FOR_ITS_WEIGHTS: RequiredFiles = (
    ("model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors", *_IN_PARTS),
    ("trainer_state.json",),
)
REQUIRED_TO_RESUME: RequiredFiles = (
    *FOR_ITS_WEIGHTS,
    ("optimizer.pt", "optimizer.bin", "optimizer_*", "global_step*"),
    ("scheduler.pt", "global_step*"),
    ("rng_state*.pth",),
)
WITH_FP16: RequiredFiles = (*REQUIRED_TO_RESUME, ("scaler.pt", "global_step*"))


def seal_checkpoint(checkpoint: str | Path, needs: RequiredFiles = REQUIRED_TO_RESUME) -> None:
    """Mark a checkpoint whose files are all written as complete: list its files and their sizes."""
    checkpoint = Path(checkpoint)
    if lacking := missing_files(checkpoint, needs):
        raise FileNotFoundError(f"{checkpoint} has {lacking}, which this run needs to continue.")
    sizes = {
        path.relative_to(checkpoint).as_posix(): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file() and path != checkpoint / COMPLETE_FILE
    }
    write_json(checkpoint / COMPLETE_FILE, sizes)


def last_complete_checkpoint(path: str | Path, needs: RequiredFiles = REQUIRED_TO_RESUME) -> str | None:
    """The newest checkpoint in a run's folder with all sealed and required files; newer incomplete ones are logged."""
    for checkpoint in reversed(sort_checkpoints(str(path))):
        missing = missing_from_checkpoint(checkpoint, needs)
        if missing is None:
            return checkpoint
        logger.warning("%s is not complete (%s) and is ignored.", checkpoint, missing)
    return None


def missing_from_checkpoint(checkpoint: str | Path, needs: RequiredFiles = REQUIRED_TO_RESUME) -> str | None:
    """Say which required or sealed files a checkpoint lacks; None if it is complete."""
    checkpoint = Path(checkpoint)
    if not (checkpoint / COMPLETE_FILE).is_file():
        return f"no {COMPLETE_FILE}"
    try:
        sizes = dict(json.loads((checkpoint / COMPLETE_FILE).read_bytes()))
    except (ValueError, TypeError, RecursionError):
        return f"{COMPLETE_FILE} is broken"
    for name, size in sizes.items():
        file = checkpoint / name
        if not file.is_file():
            return f"no {name}"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size:,} of {size} bytes"
    return missing_files(checkpoint, needs)


def missing_files(checkpoint: Path, needs: RequiredFiles) -> str | None:
    """Say which required files a checkpoint, sealed or not, lacks; None if it has all."""
    for names in needs:
        if not any(next(checkpoint.glob(name), None) for name in names):
            return f"no {names[0]}"
    return None
