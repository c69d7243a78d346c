"""Locks: one process at a time writes to a place, and clears away what a killed one left there."""

import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from .disk_errors import disk_trouble_in_words
from .hidden_names import LOCK, OLD, PARTIAL
from .overwriting import remove
from .writing import emptied_again, make_folder


class BusyError(OSError):
    """Another process is writing to the same place; the message names it."""


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
    file = path / LOCK if within else path.with_name(f".{path.name}{LOCK}")
    lock = FileLock(file, blocking=False)
    with emptied_again() as made:
        with disk_trouble_in_words(path):
            for is_last in (False, True):
                make_folder(file.parent, made)
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
    left = re.compile(rf"\.{re.escape(path.name)}\.\w+{re.escape(PARTIAL)}({re.escape(OLD)})?")
    for entry in [entry for entry in folder.iterdir() if left.fullmatch(entry.name)]:
        with suppress(OSError):  # of another user, say
            if entry.name.endswith(OLD) and not path.exists():
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
