"""Checkpoints that are whole or do not count."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from transformers.trainer_utils import sort_checkpoints

from ..files import disk_trouble_in_words, write_json

logger = logging.getLogger(__name__)

# Lists a checkpoint's files and their sizes in bytes; written last, so what it lies in was written to the end.
COMPLETE_FILE = "complete.json"


def seal_checkpoint(checkpoint: str | Path) -> None:
    """Mark a checkpoint as complete: list its files and their sizes.

    Args:
        checkpoint: Folder whose files are all written.
    """
    checkpoint = Path(checkpoint)
    sizes = {
        path.relative_to(checkpoint).as_posix(): path.stat().st_size
        for path in sorted(checkpoint.rglob("*"))
        if path.is_file()
    }
    write_json(checkpoint / COMPLETE_FILE, sizes)


def last_complete_checkpoint(path: str | Path) -> str | None:
    """Find the newest checkpoint that was written to the end and is all there.

    That is one whose files are those that `seal_checkpoint` listed.

    Args:
        path: Folder of a run.

    Returns:
        Path of the checkpoint; None if there is none. A newer one that is not complete is warned about.
    """
    for checkpoint in reversed(sort_checkpoints(str(path))):
        missing = missing_from_checkpoint(checkpoint)
        if missing is None:
            return checkpoint
        logger.warning("%s is not complete (%s); it is left alone.", checkpoint, missing)
    return None


def missing_from_checkpoint(checkpoint: str | Path) -> str | None:
    """What a checkpoint lacks of the files that `seal_checkpoint` listed, in words; None if it is complete."""
    checkpoint = Path(checkpoint)
    if not (checkpoint / COMPLETE_FILE).is_file():
        return f"no {COMPLETE_FILE}"
    for name, size in json.loads((checkpoint / COMPLETE_FILE).read_text()).items():
        file = checkpoint / name
        if not file.is_file():
            return f"no {name}"
        if file.stat().st_size != size:
            return f"{name} has {file.stat().st_size:,} of {size:,} bytes"
    return None


@contextmanager
def trouble_names_checkpoint(path: str | Path) -> Iterator[None]:
    """Say in one sentence that something of a run could not be written, and which checkpoint stays.

    Args:
        path: What is written, in the folder of a run.

    Raises:
        OSError: In place of the errors of the operating system, safetensors and torch's serialization.
    """
    checkpoint = last_complete_checkpoint(Path(path).parent)
    kept = f"{checkpoint} is complete: the same command goes on from there" if checkpoint else "no checkpoint is there"
    with disk_trouble_in_words(path, kept):
        yield
