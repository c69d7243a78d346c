"""Writing without loss: made beside and moved into place, locked while it is made, and never over foreign things.

A file or folder is written under a hidden name beside its place and moved there when it is whole, so whatever ends the
process leaves the old one or the new one. What a command replaces on the user's word (`--overwrite`) is what commands
of this package write, by name.
"""

import errno
import fnmatch
import json
import os
import re
import shutil
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from .addresses import refuse_address

# What stands at the top of a model folder, as patterns of names.
MODEL_FOLDER = (
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.txt"),
    *("README.md", ".eval_results/**", "*_mybert.py", "adapter_config.json", "adapter_model.safetensors"),
)
PARTIAL = ".partial"  # ends the names of what is not whole yet
_MADE_BESIDE = re.compile(rf"\.(?:(.+)\.)?\w{{8}}{re.escape(PARTIAL)}")  # of mkdtemp; others are gone on with
_OLD = ".old"  # follows that in the name of a folder that is being replaced
_LOCK = ".lock"  # ends the hidden names of what carries a lock
# torch.save reports a full disk as a RuntimeError of its writer.
_MARKS_OF_TORCH_SAVE = ("PytorchStreamWriter", "inline_container", "iostream error")
# safetensors and tokenizers, which raises bare `Exception`s, pass on errors of the operating system as text.
_MARKS_OF_RUST = ("os error", "I/O error")
_NO_SPACE = "No space left"
_TORCHS_TROUBLE = "torch could not write to the disk"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_NOT_TO_BE_RENAMED = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)  # such as a mount point


class BusyError(OSError):
    """Another process is writing to the same place; the message names it."""


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Write a file whole or not at all.

    Args:
        path: The file. Its folder is made if missing, and removed again if writing fails.

    Yields:
        The name to write to, in the same folder; what is there when the block ends is moved into place.

    Raises:
        OSError: If it cannot be written; the message names the file, and a full disk is called that.
    """
    path = _refuse_address(path)
    temporary = path.with_name(f".{path.name}.{os.getpid()}{PARTIAL}")
    with _emptied_again() as made:
        try:
            with disk_trouble_in_words(path):
                _make_folder(path.parent, made)
                yield temporary
                temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)


def _make_folder(folder: Path, made: list[Path]) -> None:
    """Make a folder and those above it; which of them were not there is added, the deepest first."""
    made[:0] = takewhile(lambda place: not place.exists(), (folder, *folder.parents))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None


@contextmanager
def _emptied_again() -> Iterator[list[Path]]:
    """A list of folders that were made; those that are empty when the block ends are removed."""
    made: list[Path] = []
    try:
        yield made
    finally:
        for folder in made:
            with suppress(OSError):
                folder.rmdir()


def write_text(path: str | Path, text: str) -> None:
    """Write a text file (UTF-8) whole or not at all; half a character pair (a lone surrogate) becomes "?".

    Raises:
        OSError: If it cannot be written.
    """
    with written_beside(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", errors="replace"))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    """Write lines as a text file, whole or not at all; see `write_text`."""
    write_text(path, "".join(f"{line}\n" for line in lines))


def write_json(path: str | Path, value: Any, sort_keys: bool = False) -> None:
    """Write a JSON file, indented by two, whole or not at all.

    Args:
        path: The file.
        value: What `json.dumps` takes.
        sort_keys: Whether keys are sorted, as transformers' configurations are.

    Raises:
        OSError: If it cannot be written.
    """
    write_text(path, json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False) + "\n")


@contextmanager
def folder_written_beside(path: str | Path, owned: Sequence[str] = (), overwrite: bool = False) -> Iterator[Path]:
    """Write a folder whole or not at all; what it replaces stays until then.

    Args:
        path: The folder.
        owned: What may be replaced, see `check_output_folder`.
        overwrite: Whether it may be.

    Yields:
        An empty folder beside it; what it holds when the block ends takes the place of `path`.

    Raises:
        ValueError: See `check_output_folder`.
        OSError: If it cannot be written; a full disk is called that.
    """
    path = Path(path)
    check_output_folder(path, owned, overwrite)
    with _emptied_again() as made:
        with disk_trouble_in_words(path):
            _make_folder(path.parent, made)
            place = path if stays_in_place(path) else path.parent
            beside = Path(tempfile.mkdtemp(prefix=f".{path.name}.", suffix=PARTIAL, dir=place))
        try:
            with disk_trouble_in_words(path):
                beside.chmod(0o777 & ~_umask())  # mkdtemp's are private
                yield beside
                check_output_folder(path, owned, overwrite)  # something may have come there meanwhile
                _move_folder(beside, path)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def files_written_beside(path: str | Path) -> Iterator[Path]:
    """Write files into a folder that may hold others too; they are moved there when all of them are whole.

    Args:
        path: The folder. It is made if missing, and removed again if writing fails.

    Yields:
        An empty folder in it; its files are moved into `path`, in the order of their names, when the block ends.

    Raises:
        OSError: If a file cannot be written; a full disk is called that.
    """
    path = Path(path)
    with _emptied_again() as made:
        with disk_trouble_in_words(path):
            _make_folder(path, made)
            beside = Path(tempfile.mkdtemp(prefix=".", suffix=PARTIAL, dir=path))
        try:
            with disk_trouble_in_words(path):
                yield beside
                for file in sorted(beside.iterdir()):
                    file.replace(path / file.name)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def _move_folder(beside: Path, path: Path) -> None:
    """Put a folder in the place of another, by renaming; file by file where that place cannot be renamed."""
    old = beside.with_name(f"{beside.name}{_OLD}")
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
            if not _is_bookkeeping(entry):
                remove(entry)
        for entry in sorted(beside.iterdir(), key=lambda entry: (entry.name == "config.json", entry.name)):
            if (path / entry.name).is_dir():
                shutil.rmtree(path / entry.name)
            entry.replace(path / entry.name)


def check_output_folder(path: str | Path, owned: Sequence[str] = (), overwrite: bool = False) -> None:
    """Refuse an output folder that holds anything else.

    Args:
        path: The folder; it need not exist.
        owned: Names (patterns as in `fnmatch`) of what commands write into such a folder: of files; of folders that
            hold such files again, with a slash at the end; of folders with whatever they hold, with `/**`.
        overwrite: Whether what has these names may be replaced. Nothing else ever is: not a folder with other things
            in it, not the working directory or one above it, not a home folder, not a mount point, and not what a
            symbolic link leads to.

    Raises:
        ValueError: If it is a file, or holds something that may not be replaced.
        FileNotFoundError: If it is an address.
    """
    path = Path(path)
    check_can_be_folder(path)
    entries = sorted(entry.name for entry in path.iterdir() if not _is_bookkeeping(entry)) if path.is_dir() else []
    if not entries:
        return
    others = _foreign(path, owned)
    if not overwrite:
        raise ValueError(
            f"{path} exists and holds other things ({_listed(others or entries)}); "
            f"name another folder{'' if others or not owned else ' or pass --overwrite'}."
        )
    if others:
        raise ValueError(
            f"{path} holds files that no run wrote ({_listed(others)}), so it is not overwritten; name another "
            "folder, or delete it yourself."
        )
    if reason := _reason_to_keep(path):
        raise ValueError(f"{path} is {reason}, so it is not overwritten; name another folder.")


def check_can_be_folder(path: str | Path) -> None:
    """Refuse a folder to write to, which need not exist, that is or will be none.

    Raises:
        ValueError: If it is a file, or its name has a line break in it.
        FileNotFoundError: If it is an address.
    """
    path = _refuse_address(path)
    if "\n" in str(path) or "\0" in str(path):
        raise ValueError(f"The name of the output folder, {str(path)!r}, contains a line break or zero byte.")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; expected a folder to write to.")


def check_not_read(path: str | Path, read: Iterable[str | Path]) -> None:
    """Refuse an output that is also an input.

    Args:
        path: A file or folder to write.
        read: What is read; names at the Hub are none of these places.

    Raises:
        ValueError: If one is the same, or lies in the folder.
    """
    if any(Path(source).resolve().is_relative_to(Path(path).resolve()) for source in read):
        raise ValueError(f"{path} would be both read and written; name another place.")


def check_output_files(paths: Iterable[str | Path], overwrite: bool = False) -> None:
    """Refuse output files that exist already.

    Args:
        paths: The files; they need not exist.
        overwrite: Whether files with these names may be replaced; links never are, and neither are folders.

    Raises:
        ValueError: If one is there and may not be replaced, or its name has a line break in it.
        FileNotFoundError: If one is an address.
    """
    for path in map(_refuse_address, paths):
        if "\n" in str(path) or "\0" in str(path):
            raise ValueError(f"The name of the output file, {str(path)!r}, contains a line break or zero byte.")
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ValueError(f"{path} is a link or folder, so it is not overwritten; name another place.")
        if path.exists() and not overwrite:
            raise ValueError(f"{path} exists; name another place or pass --overwrite.")


def _refuse_address(path: str | Path) -> Path:
    refuse_address(path, "a file or folder to write to; copy what is made to an object store afterwards")
    return Path(path)


def clear_folder(path: str | Path, owned: Sequence[str], keep: str = "", last: str = "") -> None:
    """Delete what a folder holds, after `check_output_folder` has allowed it; locks stay.

    Args:
        path: The folder; it need not exist.
        owned: See `check_output_folder`.
        keep: Name of what stays, too.
        last: Name of the file that says what the folder is; it goes when all else is gone.

    Raises:
        ValueError: See `check_output_folder`.
        OSError: If something cannot be deleted.
    """
    check_output_folder(path, owned, overwrite=True)
    if Path(path).is_dir():
        for entry in sorted(Path(path).iterdir(), key=lambda entry: (entry.name == last, entry.name)):
            if entry.name != keep and not entry.name.endswith(_LOCK):
                remove(entry)


def _foreign(folder: Path, owned: Sequence[str]) -> list[str]:
    """What a folder holds beside bookkeeping and what is owned, as paths below it."""
    whole = [pattern.removesuffix("/**") for pattern in owned if pattern.endswith("/**")]
    folders = [pattern.removesuffix("/") for pattern in owned if pattern.endswith("/")]
    files = [pattern for pattern in owned if not pattern.endswith(("/**", "/"))]
    found: list[str] = []
    for entry in sorted(folder.iterdir()):
        is_folder = entry.is_dir() and not entry.is_symlink()
        if _is_bookkeeping(entry) or _is_named(entry, whole if is_folder else files):
            continue
        if is_folder and _is_named(entry, folders):
            found += [f"{entry.name}/{name}" for name in _foreign(entry, owned)]
        else:
            found.append(entry.name)
    return found


def _is_named(entry: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns)


def _is_bookkeeping(entry: Path) -> bool:
    return entry.name.startswith(".") and (PARTIAL in entry.name or entry.name.endswith(_LOCK))


def remove(path: Path) -> None:
    """Delete a file, a link (not its target) or a folder with all its contents."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def stays_in_place(path: str | Path) -> bool:
    """Whether a folder is one that is never moved away: a link, a mount point, the working directory or a home."""
    return Path(path).is_dir() and bool(_reason_to_keep(Path(path)))


def _reason_to_keep(path: Path) -> str:
    resolved = path.resolve()
    if path.is_symlink():
        return "a symbolic link"
    if Path.cwd().is_relative_to(resolved):
        return "the working directory or above it"
    with suppress(RuntimeError):  # no home folder is known
        if Path.home().resolve().is_relative_to(resolved):
            return "a home folder or above it"
    if path.is_mount():
        return "a mount point"
    return ""


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")


def _final_place(path: Path) -> Path:
    """Where a file goes that is written in a folder made by `folder_written_beside` or `files_written_beside`."""
    for folder in path.parents:
        if match := _MADE_BESIDE.fullmatch(folder.name):
            return folder.parent / (match[1] or "") / path.relative_to(folder)
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@contextmanager
def locked(path: str | Path, within: bool = False) -> Iterator[None]:
    """Keep other processes of this package from writing to the same place.

    The lock is the operating system's and ends with the process, however that ends; a file `.NAME.lock` beside the
    place carries it meanwhile, with the words that name its holder. Folders for it are made where they are not there;
    those into which nothing has come go again. What a holder that was killed left half-written goes, too.

    Args:
        path: File or folder that is written.
        within: Whether it is a folder that carries the lock itself, as `.lock`: one that stays where it is, and whose
            parent others may not be allowed to write to.

    Raises:
        BusyError: If another process holds the lock; the message names its machine and number.
        OSError: If the lock cannot be made.
    """
    path = Path(path).resolve()
    file = path / _LOCK if within else path.with_name(f".{path.name}{_LOCK}")
    lock = FileLock(file, blocking=False)
    with _emptied_again() as made:
        with disk_trouble_in_words(path):
            for is_last in (False, True):
                _make_folder(file.parent, made)
                try:
                    lock.acquire()
                    break
                except FileNotFoundError:  # whoever held it has just removed the folder
                    if is_last:
                        raise
                except Timeout:
                    raise BusyError(
                        f"{path} is being written by {_holder(file) or 'another process'}; wait until it ends, or "
                        "name another place."
                    ) from None
        try:
            with disk_trouble_in_words(path):
                file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
                _clear_away(file.parent, path)
            yield
        finally:
            file.unlink(missing_ok=True)  # while it is held: whoever opened it meanwhile finds out, and opens it again
            lock.release()


def _clear_away(folder: Path, path: Path) -> None:
    """Remove what killed processes left of a place, which nobody else writes to now.

    A folder that one of them had moved away, and not replaced yet, comes back.
    """
    left = re.compile(rf"\.{re.escape(path.name)}\.\w+{re.escape(PARTIAL)}({re.escape(_OLD)})?")
    for entry in [entry for entry in folder.iterdir() if left.fullmatch(entry.name)]:
        with suppress(OSError):  # of another user, say
            if entry.name.endswith(_OLD) and not path.exists():
                entry.rename(path)
            else:
                remove(entry)


def _holder(lock_file: Path) -> str:
    """Who holds a lock, as its holder wrote there."""
    for _ in range(20):
        with suppress(OSError, UnicodeDecodeError):
            if words := lock_file.read_text(encoding="utf-8").strip():
                return words
        time.sleep(0.01)
    return ""


@contextmanager
def disk_trouble_in_words(path: str | Path, kept: str = "") -> Iterator[None]:
    """Report in one sentence that something could not be written, whichever library failed.

    Args:
        path: What is written.
        kept: What the message says about what was kept.

    Raises:
        OSError: In place of errors of the operating system that name no file or tell of a full disk, and of those of
            safetensors, tokenizers and torch's serialization.
    """
    try:
        yield
    except Exception as error:
        if not (cause := _disk_trouble(error)):
            raise
        folder = next(parent for parent in (Path(path), *Path(path).absolute().parents) if parent.is_dir())
        free = shutil.disk_usage(folder).free
        if cause == _TORCHS_TROUBLE and free < 1 << 20:  # torch does not tell which
            cause = "the disk is full"
        what = f"{_final_place(Path(path))} could not be written ({cause}; {free / 1e6:,.0f} MB are free)"
        raise OSError(f"{what}; {kept}." if kept else f"{what}.") from error


def _disk_trouble(error: Exception) -> str:
    """Why something could not be written; nothing if the error is another one, or explains itself."""
    cause = " ".join(str(error).split())
    if isinstance(error, OSError):
        if error.errno is None:
            return ""
        if error.strerror:
            cause = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    elif isinstance(error, RuntimeError):
        if not any(mark in cause for mark in _MARKS_OF_TORCH_SAVE):
            return ""
        cause = cause if _NO_SPACE in cause else _TORCHS_TROUBLE
    elif type(error) not in (SafetensorError, Exception) or not any(mark in cause for mark in _MARKS_OF_RUST):
        return ""
    is_full = _NO_SPACE in cause or (isinstance(error, OSError) and error.errno in _DISK_FULL)
    return "the disk is full" if is_full else cause
