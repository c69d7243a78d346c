"""Safe writing: a file or folder is written under a temporary name and renamed when complete.

Whatever ends the process leaves either the old or the new one.
"""

import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from .disk_errors import disk_trouble_in_words
from .hidden_names import OLD, PARTIAL, is_bookkeeping
from .overwriting import check_output_folder, place_to_write, remove, stays_in_place

_NOT_TO_BE_RENAMED = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)  # such as a mount point


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Write a file completely or not at all: yields a temporary path in the same folder, renamed at the end."""
    path = place_to_write(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    with emptied_again() as made:
        try:
            with disk_trouble_in_words(path):
                make_folder(path.parent, made)
                yield temporary
                temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder and its parents; the new ones are added to `made`, the deepest first."""
    made[:0] = takewhile(lambda place: not place.exists(), (folder, *folder.parents))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None


@contextmanager
def emptied_again() -> Iterator[list[Path]]:
    """Yield a list for new folders; those that are empty when the block ends are removed."""
    made: list[Path] = []
    try:
        yield made
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8) completely or not at all; lone surrogates become "?"."""
    with written_beside(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", errors="replace"))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines as a text file, completely or not at all; see `write_text`."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def write_json(path: str | Path, value: Any, sort_keys: bool = False) -> None:
    """Write a JSON file, indented by two, completely or not at all."""
    write_text(path, json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False) + "\n")


@contextmanager
def folder_written_beside(path: str | Path, owned: Sequence[str] = (), overwrite: bool = False) -> Iterator[Path]:
    """Write a folder completely or not at all: yields an empty one next to it, which replaces it at the end."""
    path = Path(path)
    check_output_folder(path, owned, overwrite)
    with emptied_again() as made:
        with disk_trouble_in_words(path):
            make_folder(path.parent, made)
            place = path if stays_in_place(path) else path.parent
            beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=place))
        try:
            with disk_trouble_in_words(path):
                beside.chmod(0o777 & ~_umask())  # mkdtemp makes private folders
                yield beside
                check_output_folder(path, owned, overwrite)  # something may have appeared there meanwhile
                _move_folder(beside, path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def files_written_beside(path: str | Path) -> Iterator[Path]:
    """Yield an empty folder inside another, whose files are moved there when all are complete, by name."""
    path = Path(path)
    with emptied_again() as made:
        with disk_trouble_in_words(path):
            make_folder(path, made)
            beside = Path(tempfile.mkdtemp(prefix=".", suffix=PARTIAL, dir=path))
        try:
            with disk_trouble_in_words(path):
                yield beside
                for file in sorted(beside.iterdir()):
                    file.replace(path / file.name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _move_folder(beside: Path, path: Path) -> None:
    """Replace a folder by another, by renaming, or file by file if the target cannot be renamed."""
    old = beside.with_name(f"{beside.name}{OLD}")
    try:
        if beside.parent == path:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        if path.exists() and any(path.iterdir()):
            path.rename(old)
            try:
                beside.rename(path)
            except OSError:
                old.rename(path)
                raise
            shutil.rmtree(old, ignore_errors=True)
        else:
            beside.rename(path)
    except OSError as error:
        if error.errno not in _NOT_TO_BE_RENAMED or not path.is_dir():
            raise
        for entry in [entry for entry in path.iterdir() if not (beside / entry.name).exists()]:
            if not is_bookkeeping(entry):
                remove(entry)
        for entry in sorted(beside.iterdir(), key=lambda entry: (entry.name == "config.json", entry.name)):
            if (path / entry.name).is_dir():
                shutil.rmtree(path / entry.name)
            entry.replace(path / entry.name)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
