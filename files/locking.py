"""Locks: one process at a time writes to a place, and removes what a killed one left there."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .disk_errors import disk_trouble_in_words
from .hidden_names import LOCK, OLD, is_incomplete
from .overwriting import remove
from .writing import emptied_again, make_folder


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
    with emptied_again() as made:
        with disk_trouble_in_words(path):
            for is_last in (False, True):
                make_folder(file.parent, made)
                try:
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
        try:
            with disk_trouble_in_words(path):
                file.write_text(f"process {os.getpid()} on {socket.gethostname()}\n", encoding="utf-8")
                _clear_away(file.parent, path)
            yield
        finally:
            file.unlink(missing_ok=True)  # still locked: a process that has opened it notices, and opens it again
            lock.release()


def _clear_away(folder: Path, path: Path) -> None:
    """Remove incomplete files that killed processes left; the place must be locked."""
    for entry in [entry for entry in folder.iterdir() if is_incomplete(entry, path)]:
        with suppress(OSError):  # such as files of another user
            # A folder that one of them had moved away but not yet replaced.
            if entry.name.endswith(OLD) and not path.exists():
                entry.rename(path)
            else:
                remove(entry)


def _holder(lock_file: Path) -> str:
    """The holder of a lock, from its lock file."""
    for _ in range(20):
        with suppress(OSError, UnicodeDecodeError):
            if words := lock_file.read_text(encoding="utf-8").strip():
                return words
        time.sleep(0.01)
    return ""
