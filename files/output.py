"""Safe writing: results are checked, locked, written under a temporary name and moved into place when complete.

Whatever ends the process leaves either the old or the new ones, see `moves`.
"""

import errno
import fnmatch
import json
import os
import shutil
import socket
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from itertools import takewhile
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout
from safetensors import SafetensorError

from .checkpoint import TOKENIZER_FILES
from .errors import SettingError, refuse_address
from .moves import (
    LOCK,
    MOVES,
    Move,
    discard,
    final_path,
    finish_moves,
    is_bookkeeping,
    is_temporary,
    make_moves,
    move_file,
    record_of,
    remove_left,
    temporary_path,
)
from .processes import interrupts_delayed
from .text import file_of

# torch.save reports a full disk, or a folder that another process has deleted, as a RuntimeError.
_MARKS_OF_TORCH_SAVE = ("PytorchStreamWriter", "inline_container", "iostream error", "Parent directory")
# safetensors and tokenizers, which raises bare `Exception`s, report errors of the operating system as text.
_MARKS_OF_RUST = ("os error", "I/O error")
_NO_SPACE = "No space left"
_TORCHS_TROUBLE = "torch could not write to the disk"
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)


@contextmanager
def readable_disk_errors(path: str | Path, kept: str = "") -> Iterator[None]:
    """Report write errors, whichever library raised them, in one sentence; `kept` says what is still there."""
    try:
        yield
    except Exception as error:
        if not (cause := _disk_trouble(error)):
            raise
        folder = next(parent for parent in (Path(path), *Path(path).absolute().parents) if parent.is_dir())
        free = shutil.disk_usage(folder).free
        if cause == _TORCHS_TROUBLE and free < 1 << 20:  # torch does not report the cause
            cause = "the disk is full"
        what = f"{final_path(path)} could not be written ({cause}; {free / 1e6:,.0f} MB are free)"
        raise OSError(f"{what}; {kept}." if kept else f"{what}.") from error


def _disk_trouble(error: Exception) -> str:
    """The cause of a write error; empty if it is another error, or explains itself."""
    cause = " ".join(str(error).split())
    if isinstance(error, OSError):
        if error.errno in (None, errno.ENOENT, errno.EISDIR):  # the last two are of a file to read
            return ""
        if error.strerror:
            final = final_path(str(error.filename or ""))
            cause = error.strerror if is_bookkeeping(final) or not error.filename else f"{final}: {error.strerror}"
    elif isinstance(error, RuntimeError):
        if not any(mark in cause for mark in _MARKS_OF_TORCH_SAVE):
            return ""
        cause = cause if _NO_SPACE in cause else _TORCHS_TROUBLE
    elif type(error) not in (SafetensorError, Exception) or not any(mark in cause for mark in _MARKS_OF_RUST):
        return ""
    is_full = _NO_SPACE in cause or (isinstance(error, OSError) and error.errno in _DISK_FULL)
    return "the disk is full" if is_full else cause


# The files of a model folder, as name patterns.
MODEL_FOLDER = (
    *("config.json", "generation_config.json", "model*.safetensors", "model.safetensors.index.json"),
    *TOKENIZER_FILES,
    *("README.md", ".eval_results/**", "*_mybert.py", "adapter_config.json", "adapter_model.safetensors"),
)


def check_output_folder(path: str | Path, owned: Sequence[str] = (), overwrite: bool = False) -> None:
    """Reject an output folder with files other than `owned` ones, or any files unless `overwrite` is set."""
    # `owned` are name patterns (as in `fnmatch`) of what commands write into such a folder: files; with a slash at the
    # end, folders that contain only such files; with `/**`, folders with any content. Nothing else is ever replaced:
    # no folder with other files, working directory or parent of it, home folder, mount point, or target of a symbolic
    # link.
    path = check_can_be_folder(path)
    entries = sorted(entry.name for entry in path.iterdir() if not is_bookkeeping(entry)) if path.is_dir() else []
    if not entries:
        return
    others = _foreign(path, owned)
    if others or not overwrite:
        _tidy(path)
    if not overwrite:
        advice = "" if others or not owned else "[ or pass {overwrite=True}]"
        template = f"{{}} exists and holds other things ({{}}); name another folder{advice}."
        raise SettingError.worded(template, path, _listed(others or entries))
    if others:
        raise ValueError(
            f"{path} holds files that no run wrote ({_listed(others)}), so it is not overwritten; name another "
            "folder, or delete it yourself."
        )
    if reason := _reason_to_keep(path):
        raise ValueError(f"{path} is {reason}, so it is not overwritten; name another folder.")


def check_can_be_folder(path: str | Path) -> Path:
    """Reject an output path, which need not exist, that cannot be a folder; returns it as `place_to_write`."""
    path = place_to_write(path, "folder")
    if path.exists() and not path.is_dir():
        raise ValueError(f"{path} is a file; expected a folder to write to.")
    return path


def check_not_read(path: str | Path, read: Iterable[str | Path]) -> None:
    """Reject an output that is an input, a file of a model folder among them, or has one in its folder.

    Names on the Hub are not paths. Other outputs of a call are given like inputs.
    """
    place = Path(path).resolve()
    for source in read:
        found = Path(file_of(source)).resolve()
        if found.is_relative_to(place) or (found == place.parent and _is_named(place, MODEL_FOLDER)):
            what = f"{path} holds {source}, which is" if found.parent.is_relative_to(place) else f"{path} is"
            raise ValueError(f"{what} already read or written by this call; name another place.")


def check_output_files(
    paths: Iterable[str | Path], overwrite: bool = False, read: Collection[str | Path] = ()
) -> None:
    """Reject output files that are read, or exist unless `overwrite` is set; links and folders are never replaced."""
    for path in map(place_to_write, paths):
        check_not_read(path, read)
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise ValueError(f"{path} is a link or folder, so it is not overwritten; name another place.")
        if path.exists() and not overwrite:
            _tidy(path)
            raise SettingError.worded("{} exists; name another place[ or pass {overwrite=True}].", path)


def _tidy(path: Path) -> None:
    """Delete what killed calls have left at an output that stays as it is, and at other outputs in its folder."""
    with suppress(OSError, ValueError), ExitStack() as held:
        # First the folder: if a run works in it, nothing is touched.
        for place, within in ((path.parent, False), (path.parent, True), (path, True), (path, False)):
            folder = place if within else place.parent
            if folder.is_dir() and any(map(is_bookkeeping, folder.iterdir())):
                held.enter_context(locked(place, within))
        for suffix in (MOVES, LOCK):  # which a call removes last
            for left in sorted(path.parent.glob(f".?*{suffix}")):
                with suppress(BusyError), locked(left.with_name(left.name.removeprefix(".").removesuffix(suffix))):
                    pass


def place_to_write(path: str | os.PathLike[str], kind: str = "file") -> Path:
    """The path as a `Path`, `~` as the home folder; a URL, and a name that would break a line, is an error."""
    refuse_address(path, "a file or folder to write to; copy what is made to an object store afterwards")
    if "\n" in str(path) or "\0" in str(path):
        raise ValueError(f"The name of the output {kind}, {str(path)!r}, contains a line break or zero byte.")
    return Path(os.path.expanduser(path))  # noqa: PTH111 - takes `~$NAME`, too


def _foreign(folder: Path, owned: Sequence[str]) -> list[str]:
    """The relative paths in a folder that are neither bookkeeping nor owned."""
    whole = [pattern.removesuffix("/**") for pattern in owned if pattern.endswith("/**")]
    folders = [pattern.removesuffix("/") for pattern in owned if pattern.endswith("/")]
    files = [pattern for pattern in owned if not pattern.endswith(("/**", "/"))]
    found: list[str] = []
    for entry in sorted(folder.iterdir()):
        is_folder = entry.is_dir() and not entry.is_symlink()
        if is_bookkeeping(entry) or _is_named(entry, whole if is_folder else files):
            continue
        if is_folder and _is_named(entry, folders):
            found += [f"{entry.name}/{name}" for name in _foreign(entry, owned)]
        else:
            found.append(entry.name)
    return found


def _is_named(entry: Path, patterns: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in patterns)


def stays_in_place(path: str | Path) -> bool:
    """Whether a folder must not be renamed: a link, mount point, working directory or home folder."""
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


class Output:
    """A place that a call writes: a file, a folder or files of a folder. It is checked, locked, written, and moved.

    Args:
        path: A file; with `owned` a folder, which is written as a whole; with `files` a folder that stays, in which
            these files are written.
        owned: Name patterns of what the folder may hold if it is overwritten, see `check_output_folder`.
        files: Names of the files; with none, any are replaced.
        overwrite: Whether what is there may be replaced.
        read: Files and folders that are read meanwhile, which can be no output; names on the Hub are ignored.
        stays: Whether the folder is not replaced, but everything in it.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        owned: Sequence[str] | None = None,
        files: Sequence[str] | None = None,
        overwrite: bool = False,
        read: Collection[str | Path] = (),
        stays: bool = False,
    ) -> None:
        self.path = place_to_write(Path(path), "file" if owned is None and files is None else "folder")
        if files and not self.path.exists():
            owned = ()  # then the folder is new, and appears as a whole
        self._owned, self._files, self._overwrite, self._read = owned, files, overwrite, read
        self.within = files is not None if owned is None else stays or stays_in_place(self.path)
        self._is_file = owned is None and files is None

    def check(self) -> None:
        """Reject a place that must not be written."""
        if self._owned is not None:
            check_not_read(self.path, self._read)
            check_output_folder(self.path, self._owned, self._overwrite)
        else:
            paths = [self.path] if self._files is None else [self.path / name for name in self._files]
            check_output_files(paths, self._overwrite, self._read)

    @contextmanager
    def temporary(self) -> Iterator[Path]:
        """The path to write to meanwhile; it is removed at the end, unless it is still to be moved."""
        with readable_disk_errors(self.path), made_folder(self.path if self.within else self.path.parent):
            folder = temporary_path(self.path, "in" if self._is_file else "new", self.within)
            try:
                with readable_disk_errors(self.path):  # which says how much is free, before anything is removed
                    folder.mkdir()
                    yield folder / self.path.name if self._is_file else folder
            finally:
                if not record_of(self.path, self.within).is_file():
                    discard(folder)

    @contextmanager
    def written(self, is_checked: bool = True) -> Iterator[Path]:
        """Yield `temporary`, and move it into place; inside of a folder that is still to be moved, the path itself."""
        if is_temporary(self.path):
            with readable_disk_errors(self.path):
                (self.path.parent if self._is_file else self.path).mkdir(parents=True, exist_ok=True)
                yield self.path
            return
        with self.temporary() as temporary:
            yield temporary
            if is_checked:
                self.check()  # something may have appeared there meanwhile
            if self._is_file:
                move_file(temporary, self.path)
            else:
                make_moves([self.move(temporary)])

    def move(self, temporary: Path) -> Move:
        """The move of what has been written."""
        return Move.of(temporary, self.path, self.within, clear=self._owned is not None)


def written_beside(path: str | Path) -> AbstractContextManager[Path]:
    """Write a file completely or not at all: yields a temporary path, which is moved into place at the end."""
    return Output(path).written(is_checked=False)


def folder_written_beside(
    path: str | Path, owned: Sequence[str] = (), overwrite: bool = False, stays: bool = False
) -> AbstractContextManager[Path]:
    """Write a folder completely or not at all: yields an empty one, which replaces it at the end, see `Output`."""
    output = Output(path, owned, overwrite=overwrite, stays=stays)
    output.check()
    return output.written()


def files_written_beside(path: str | Path) -> AbstractContextManager[Path]:
    """Yield an empty folder, whose files are moved into another one when all are complete."""
    return Output(path, files=()).written(is_checked=False)


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder and its parents; those of them that are new, and empty when the block ends, are removed."""
    new = [*takewhile(lambda place: not place.exists(), (folder, *folder.parents))]
    try:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), error.filename) from None
        yield
    finally:
        for place in new:
            with suppress(OSError):
                place.rmdir()


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


class BusyError(OSError):
    """Another process is writing to the same place; the message names it."""


@contextmanager
def locked(path: str | Path, within: bool = False) -> Iterator[None]:
    """Keep other processes of this package from writing to the same place; a BusyError names the holder."""
    # It is a lock of the operating system and ends with the process in any case. A file `.NAME.lock` next to the place
    # holds it, or `within` a folder that stays in place and whose parent may not be writable.
    path = Path(path).resolve()
    file = path / LOCK if within else path.with_name(f".{path.name}{LOCK}")
    lock = FileLock(file, blocking=False)
    with ExitStack() as made:
        try:
            with readable_disk_errors(path):
                for is_last in (False, True):
                    made.enter_context(made_folder(file.parent))
                    try:
                        with interrupts_delayed():  # in between, the file would stay
                            lock.acquire()
                        break
                    except FileNotFoundError:  # its holder has just removed the folder
                        if is_last:
                            raise
                    except Timeout:
                        raise BusyError(
                            f"{path} is being written by {_holder(file) or 'another process'}; wait until it ends, or "
                            "name another place."
                        ) from None
                file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
                finish_moves(path)
                remove_left(path, within)
            yield
        finally:
            try:
                if lock.is_locked:  # still: a process that has opened it notices that it is gone, and opens it again
                    discard(file)
            finally:
                lock.release()


def _holder(lock_file: Path) -> str:
    """The holder of a lock, from its lock file."""
    for _ in range(20):
        with suppress(OSError, UnicodeDecodeError):
            if words := lock_file.read_text(encoding="utf-8").strip():
                return words
        time.sleep(0.01)
    return ""


@contextmanager
def reserved(
    path: str | os.PathLike[str],
    owned: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    overwrite: bool = False,
    read: Collection[str | Path] = (),
) -> Iterator[Output]:
    """Check and lock an output, with the arguments of `Output`, before work that takes long.

    with reserved(path, owned=MODEL_FOLDER, overwrite=overwrite, read=[model]) as output:
        ...  # no other process writes there
        with output.written() as folder:
            model.save_pretrained(folder)
    """
    output = Output(path, owned, files, overwrite, read)
    finish_moves(output.path)
    output.check()
    with locked(output.path, output.within):
        output.check()  # again, now that no other process writes
        yield output


@contextmanager
def output_to(
    path: str | os.PathLike[str],
    owned: Sequence[str] | None = None,
    files: Sequence[str] | None = None,
    overwrite: bool = False,
    read: Collection[str | Path] = (),
) -> Iterator[Path]:
    """Write an output completely or not at all; arguments are those of `Output`."""
    with reserved(path, owned, files, overwrite, read) as output, output.written() as temporary:
        yield temporary


@contextmanager
def outputs_together() -> Iterator[Callable[..., Path]]:
    """Write several outputs, all or none: yields a function with the arguments of `Output` that opens one.

    with outputs_together() as open_output:
        write_lines(open_output(table, overwrite=overwrite), lines)
        write_json(open_output(report, overwrite=overwrite), value)
    """
    opened: list[tuple[Output, Path]] = []
    with ExitStack() as held:

        def open_output(path: str | os.PathLike[str], owned: Sequence[str] | None = None, **settings: Any) -> Path:
            output = held.enter_context(reserved(path, owned, **settings))
            opened.append((output, held.enter_context(output.temporary())))
            return opened[-1][1]

        yield open_output
        for output, _ in opened:
            output.check()
        with readable_disk_errors(opened[0][0].path if opened else ""):
            make_moves([output.move(temporary) for output, temporary in opened])
