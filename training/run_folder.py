"""The folder of a training run: never mixed with other things, continued where it stopped."""

import json
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers.trainer_utils import get_last_checkpoint

RUN_FILE = "run.json"


def open_run_folder(path: str | Path, settings: Mapping[str, Any], overwrite: bool = False) -> str | None:
    """Make a run's folder, or find the one that an interrupted run with the same settings left.

    The settings are kept in `run.json`; that file marks the folder as a run's.

    Args:
        path: The folder.
        settings: What decides the run's result, as JSON values.
        overwrite: Whether to delete what the folder holds.

    Returns:
        The newest checkpoint, if there is one to go on from.

    Raises:
        ValueError: If the folder holds other things or a run with other settings, and `overwrite` is not set.
        OSError: If the folder cannot be made or written to.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; expected a folder to write to.")
    if path.is_dir() and overwrite:
        shutil.rmtree(path)
    entries = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    run_file = path / RUN_FILE
    settings = json.loads(json.dumps(settings))  # what reading gives back: tuples become lists
    if run_file.is_file():
        earlier = json.loads(run_file.read_text())
        changed = sorted(name for name in {*earlier, *settings} if earlier.get(name) != settings.get(name))
        if changed:
            was = ", ".join(f"{name} was {earlier.get(name)!r}, is {settings.get(name)!r}" for name in changed)
            raise ValueError(f"{path} holds a run with other settings ({was}); repeat them or pass --overwrite.")
        return get_last_checkpoint(str(path))
    if entries:
        shown = ", ".join(entries[:3]) + (", ..." if len(entries) > 3 else "")
        raise ValueError(f"{path} exists and holds other things ({shown}); name another folder or pass --overwrite.")
    path.mkdir(parents=True, exist_ok=True)
    partial = run_file.with_suffix(".partial")
    partial.write_text(json.dumps(settings, indent=2) + "\n")
    partial.replace(run_file)
    return None


@contextmanager
def nothing_left_behind(path: str | Path) -> Iterator[None]:
    """Remove a run's folder if preparing the run fails; a folder with a checkpoint stays.

    Args:
        path: The folder that `open_run_folder` made.
    """
    try:
        yield
    except (ValueError, OSError):
        if get_last_checkpoint(str(path)) is None:
            shutil.rmtree(path)
        raise
