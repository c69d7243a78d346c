"""The folder of a training run: never mixed with other things, continued where it stopped."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm.auto import tqdm

from ..files import write_json
from ..visualization import training_curves
from .checkpoints import last_complete_checkpoint

logger = logging.getLogger(__name__)

RUN_FILE = "run.json"
_FILES = "files"  # in run.json, beside the settings
_PARTIAL = ".partial"
# Errors that come back if nothing is changed; all others, say of the network or a full disk, are not the user's.
_MISTAKES = (ValueError, FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError)


def open_run_folder(
    path: str | Path,
    settings: Mapping[str, Any],
    overwrite: bool = False,
    files: Sequence[str | Path] = (),
    folders: Sequence[str | Path] = (),
) -> str | None:
    """Make a run's folder, or find the one that an interrupted run with the same settings and files left.

    Settings and files are kept in `run.json`; that file marks the folder as a run's.

    Args:
        path: The folder.
        settings: What decides the run's result, as JSON values.
        overwrite: Whether to delete what the folder holds.
        files: Files whose contents decide the result. They are read once; after that a file counts as the same while
            size and time of change are, and is read again if they are not.
        folders: Model folders and the like that the run reads too.

    Returns:
        The newest complete checkpoint, if there is one to go on from.

    Raises:
        ValueError: If the folder holds other things or a run with other settings or files, and `overwrite` is not set;
            or if it is, and the folder holds what the run reads.
        OSError: If the folder cannot be made or written to, or a file cannot be read.
    """
    path = Path(path)
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; expected a folder to write to.")
    if path.is_dir() and overwrite:
        for read in (*files, *folders):
            if Path(read).resolve().is_relative_to(path.resolve()):
                raise ValueError(f"{path} holds {read}, which the run reads, and is to be overwritten; name another.")
        shutil.rmtree(path)
    entries = sorted(entry.name for entry in path.iterdir()) if path.is_dir() else []
    run_file = path / RUN_FILE
    current: dict[str, Any] = json.loads(json.dumps(settings))  # what reading gives back: tuples become lists
    if run_file.is_file():
        earlier = json.loads(run_file.read_text())
        states_before = earlier.pop(_FILES, {})
        changed = sorted(name for name in {*earlier, *current} if earlier.get(name) != current.get(name))
        if changed:
            was = ", ".join(f"{name} was {earlier.get(name)!r}, is {current.get(name)!r}" for name in changed)
            raise ValueError(f"{path} holds a run with other settings ({was}); repeat them or pass --overwrite.")
        states = _file_states(files, states_before)
        changed = sorted(
            name for name in states if states[name]["digest"] != states_before.get(name, {}).get("digest")
        )
        if changed:
            raise ValueError(
                f"{path} holds a run on other data: {', '.join(changed)} changed since it began; put back "
                "what was there, name another folder or pass --overwrite."
            )
        if states != states_before:
            write_json(run_file, current | {_FILES: states})
        return last_complete_checkpoint(path)
    if others := [name for name in entries if name != f"{RUN_FILE}{_PARTIAL}"]:
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        raise ValueError(f"{path} exists and holds other things ({shown}); name another folder or pass --overwrite.")
    states = _file_states(files, {})
    path.mkdir(parents=True, exist_ok=True)
    write_json(run_file, current | {_FILES: states})
    return None


def _file_states(files: Sequence[str | Path], known: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Size, time of change and digest (BLAKE2b, 128 bits) of files; read are those that `known` does not hold."""
    stats = {str(file): Path(file).stat() for file in files}
    states: dict[str, dict[str, Any]] = {
        name: {"size": stat.st_size, "modified": stat.st_mtime_ns} for name, stat in stats.items()
    }
    is_known = {name: state.items() <= known.get(name, {}).items() for name, state in states.items()}
    total = sum(state["size"] for name, state in states.items() if not is_known[name])
    with tqdm(desc="Fingerprint of the data", total=total, unit="B", unit_scale=True, delay=2) as progress:
        for name, state in states.items():
            if is_known[name]:
                state["digest"] = known[name]["digest"]
                continue
            digest = hashlib.blake2b(digest_size=16)
            with Path(name).open("rb") as content:
                while block := content.read(1 << 22):
                    digest.update(block)
                    progress.update(len(block))
            state["digest"] = digest.hexdigest()
    return states


@contextmanager
def nothing_left_behind(path: str | Path) -> Iterator[None]:
    """Remove a new run's folder if preparing the run fails for a mistake, so that it can be corrected.

    What earlier calls made stays, and what this one made too if it is not the user who is to blame: then the same
    command goes on.

    Args:
        path: The folder that `open_run_folder` made.
    """

    def is_new() -> bool:
        return [entry.name for entry in Path(path).iterdir()] == [RUN_FILE]

    was_new = is_new()
    try:
        yield
    except (ValueError, OSError) as error:
        if was_new and (isinstance(error, _MISTAKES) or is_new()):
            shutil.rmtree(path, ignore_errors=True)
        raise


def draw_curves(log_history: list[dict[str, float]], output_dir: Path) -> None:
    """Draw `training_curves.png`; without matplotlib, or after a run too short to log, there is a warning instead."""
    try:
        training_curves(log_history, output_dir / "training_curves.png")
    except (ImportError, ValueError) as error:
        logger.warning(str(error))
