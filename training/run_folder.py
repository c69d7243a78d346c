"""The folder of a training run: never mixed with other things, continued where it stopped."""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from tqdm.auto import tqdm
from transformers.trainer_utils import sort_checkpoints

from ..visualization import training_curves

logger = logging.getLogger(__name__)

RUN_FILE = "run.json"
# Lists a checkpoint's files and their sizes in bytes; written last, so what it lies in was written to the end.
COMPLETE_FILE = "complete.json"
_FILES = "files"  # in run.json, beside the settings
_PARTIAL = ".partial"
# torch.save reports a full disk as a RuntimeError of its writer.
_MARKS_OF_TORCH_SAVE = ("PytorchStreamWriter", "inline_container", "iostream error")
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


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file whole or not at all.

    Raises:
        OSError: If it cannot be written.
    """
    partial = path.with_name(f"{path.name}{_PARTIAL}")
    partial.write_text(json.dumps(value, indent=2) + "\n")
    partial.replace(path)


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


@contextmanager
def disk_trouble_in_words(path: str | Path) -> Iterator[None]:
    """Say in one sentence that something could not be written, whichever library found out.

    Args:
        path: What is written, in the folder of a run.

    Raises:
        OSError: In place of the errors of the operating system, safetensors and torch's serialization.
    """
    try:
        yield
    except (OSError, SafetensorError, RuntimeError) as error:
        cause = " ".join(str(error).split())
        if isinstance(error, RuntimeError):
            if not any(mark in cause for mark in _MARKS_OF_TORCH_SAVE):
                raise
            cause = "torch could not write to the disk"
        folder = Path(path).parent
        free = shutil.disk_usage(folder).free
        checkpoint = last_complete_checkpoint(folder)
        kept = (
            f"{checkpoint} is complete: the same command goes on from there"
            if checkpoint
            else "no checkpoint is there"
        )
        raise OSError(f"{path} could not be written ({cause}; {free / 1e6:,.0f} MB are free); {kept}.") from error


@contextmanager
def moved_when_complete(path: str | Path) -> Iterator[Path]:
    """Write files in a temporary folder; they are moved into place, in the order of their names, when all are written.

    Args:
        path: Folder that the files are for; it exists.

    Yields:
        The temporary folder, in the same file system.

    Raises:
        OSError: If a file cannot be written.
    """
    temporary = Path(path) / f".files{_PARTIAL}"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        with disk_trouble_in_words(temporary):
            temporary.mkdir()
            yield temporary
            for file in sorted(temporary.iterdir()):
                file.replace(Path(path) / file.name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def draw_curves(log_history: list[dict[str, float]], output_dir: Path) -> None:
    """Draw `training_curves.png`; without matplotlib, or after a run too short to log, there is a warning instead."""
    try:
        training_curves(log_history, output_dir / "training_curves.png")
    except (ImportError, ValueError) as error:
        logger.warning(str(error))
