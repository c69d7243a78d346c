"""Moving complete files and folders into place: all of a call's or none, whatever fails, interrupts or kills it.

They are written under temporary names and synced. If one rename puts everything into place, as that of a file
(`move_file`), that is all. Otherwise the moves are recorded, and the record is synced, before the first one: from
then on the new result stands, and whoever next writes or reads such a place makes the moves that are left
(`finish_moves`). Before, the old result stands.
"""

import errno
import json
import logging
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from .processes import interrupts_delayed

logger = logging.getLogger(__name__)

PARTIAL = ".partial"  # suffix of incomplete files and folders
PREPARATION = f".preparation{PARTIAL}"  # in the folder of a run: where it is prepared before it begins
LOCK = ".lock"  # suffix of lock files
MOVES = ".moves"  # suffix of records of moves
# A folder that becomes NAME, a folder with a file that becomes NAME, and what NAME replaces. Others are reused.
_TEMPORARY = r"(new|in|old)-[0-9a-f]{8}" + re.escape(PARTIAL)
_TEMPORARY_NAME = re.compile(rf"\.(?:(.+)\.)?{_TEMPORARY}")
# A result is recognized by these; they leave first and arrive last.
_MARKS = ("vocab.txt", "config.json", "metrics.json", "run.json")
_NOT_TO_BE_RENAMED = (errno.EBUSY, errno.EXDEV, errno.EPERM, errno.EACCES)  # such as a mount point
_PATIENCE = 10.0  # seconds to wait for another process that moves files, which takes milliseconds


def is_bookkeeping(entry: Path) -> bool:
    """Whether a file or folder is a lock, a record of moves, or incomplete."""
    return entry.name.startswith(".") and (PARTIAL in entry.name or entry.name.endswith((LOCK, MOVES)))


def temporary_path(place: Path, kind: str, within: bool = False) -> Path:
    """A new name next to a place, or within it, that the next lock of the place removes."""
    name = f"{kind}-{secrets.token_hex(4)}{PARTIAL}"
    return place / f".{name}" if within else place.with_name(f".{place.name}.{name}")


def is_temporary(path: Path) -> bool:
    """Whether a path is in a folder that is still to be moved into place."""
    return any(_TEMPORARY_NAME.fullmatch(name) for name in path.parts)


def final_path(path: str | Path) -> Path:
    """The result that a file is, or becomes, or is needed for: the path without temporary names, for messages."""
    final = Path()
    for name in Path(path).parts:
        if match := _TEMPORARY_NAME.fullmatch(name):
            final /= "" if match[2] == "in" else match[1] or ""
        elif name.startswith(".") and name.endswith(PARTIAL) and name != PREPARATION:
            return final / name.removeprefix(".").removesuffix(PARTIAL)
        elif name != PREPARATION:
            final /= name
    return final


def remove(path: Path) -> None:
    """Delete a file, a link (not its target) or a folder with all its contents."""
    try:
        if _is_folder(path):
            shutil.rmtree(path)
        else:
            path.unlink()
    except OSError as error:  # of a folder, it has the bare name of a file somewhere below
        raise OSError(error.errno, error.strerror, str(path)) from error


def discard(path: Path, aside: Path | None = None) -> None:
    """Delete something that is no longer needed and only takes space; if that fails, a warning names it.

    What must not be found half deleted first gets another name.
    """
    try:
        if os.path.lexists(path):
            remove(path if aside is None else path.rename(aside))
    except (OSError, MemoryError) as error:
        logger.warning("%s could not be deleted (%s); it is no longer needed.", path, _cause(error))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _cause(error: OSError | MemoryError) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else "not enough memory"


# --- syncing ---------------------------------------------------------------------------------------------------------


def sync(path: Path, mode: int = 0) -> None:
    """Write a file, or all files and folders below one, to the disk; files get at least the given permissions."""
    if path.is_symlink():
        return
    if path.is_dir():
        for entry in path.iterdir():
            sync(entry, mode)
        sync_folder(path)
        return
    file = os.open(path, os.O_RDWR if os.name == "nt" else os.O_RDONLY)  # which Windows does not sync
    try:
        permissions = stat.S_IMODE(os.fstat(file).st_mode)
        if mode & ~permissions:
            with suppress(PermissionError):  # some file systems have none
                path.chmod(permissions | mode)
        os.fsync(file)
    finally:
        os.close(file)


def sync_folder(folder: Path) -> None:
    """Write the names in a folder to the disk, where the file system can."""
    with suppress(PermissionError):  # Windows does not open folders
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EBADF):
                raise
        finally:
            os.close(descriptor)


# --- moving ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Move:
    """A temporary file or folder that replaces `target`, or whose entries go into it (`within`)."""

    source: Path
    target: Path
    old: Path  # where what is replaced goes
    within: bool = False
    entries: tuple[str, ...] | None = None  # those of a folder
    removed: tuple[str, ...] = ()  # those of the entries of `target` that go

    @classmethod
    def of(cls, source: Path, target: Path, within: bool = False, clear: bool = False) -> "Move":
        """The move of what has been written; with `clear`, other entries of the target go."""
        old = temporary_path(target, "old", within)
        if not _is_folder(source):
            return cls(source, target, old)
        entries = sorted((entry.name for entry in source.iterdir() if not is_bookkeeping(entry)), key=_rank)
        there = [entry.name for entry in target.iterdir() if not is_bookkeeping(entry)] if target.is_dir() else []
        removed = sorted(set(there).difference(entries), key=_rank, reverse=True) if clear or not within else ()
        return cls(source, target, old, within, tuple(entries), tuple(removed))

    @property
    def record(self) -> Path:
        """Where the move is recorded."""
        return record_of(self.target, self.within)

    @property
    def folder(self) -> Path:
        """The folder that changes."""
        return self.target if self.within else self.target.parent

    @property
    def is_one_rename(self) -> bool:
        """Whether one rename makes the move, so that it needs no record."""
        if self.entries is None:
            return True
        if self.within:
            return not self.removed and len(self.entries) < 2 and not any(map(_is_folder, self._replaced()))
        return not any(self._replaced())

    def _replaced(self) -> list[Path]:
        there = [*self.target.iterdir()] if self.target.is_dir() else []
        return [entry for entry in there if not self.within or entry.name in (self.entries or ())]

    def make(self) -> None:
        """Make the move, or what an earlier call has left of it."""
        if self.entries is None:
            if os.path.lexists(self.source):
                self.source.replace(self.target)
            return
        if not os.path.lexists(self.source):
            return
        if not self.within and all(os.path.lexists(self.source / name) for name in self.entries):
            try:
                if self._replaced():
                    self.target.rename(self.old)
                self.source.rename(self.target)
                return
            except OSError as error:
                if error.errno not in _NOT_TO_BE_RENAMED or not self.target.is_dir():
                    raise
        for name in self.removed:
            self._set_aside(name)
        for name in self.entries:
            if os.path.lexists(self.source / name):
                if _is_folder(self.target / name):
                    self._set_aside(name)
                (self.source / name).replace(self.target / name)

    def _set_aside(self, name: str) -> None:
        path = self.target / name
        if os.path.lexists(path) and not os.path.lexists(self.old / name):
            self.old.mkdir(exist_ok=True)
            try:
                path.rename(self.old / name)
            except OSError as error:
                if error.errno not in _NOT_TO_BE_RENAMED:
                    raise
                remove(path)

    def tidy(self) -> None:
        """Delete what was replaced, and what is left of the temporary folder."""
        discard(self.old)
        discard(self.source if _TEMPORARY_NAME.fullmatch(self.source.parent.name) is None else self.source.parent)


def _rank(name: str) -> tuple[int, str]:
    return (_MARKS.index(name) + 1 if name in _MARKS else 0, name)


def record_of(place: Path, within: bool = False) -> Path:
    """The file with the moves to a place that are still to be made, if there are any."""
    return place / MOVES if within else place.with_name(f".{place.name}{MOVES}")


def move_file(source: Path, target: Path) -> None:
    """Sync a file and put it into place, or raise an error before; Ctrl-C waits meanwhile."""
    sync(source, 0o666 & source.parent.stat().st_mode)  # libraries make some files private
    with interrupts_delayed(by_moves=True):
        source.replace(target)
        _sync_moved(target, target.parent)


def make_moves(moves: Sequence[Move]) -> None:
    """Sync and put everything into place, or raise an error before the first move; Ctrl-C waits meanwhile.

    When all moves are made, the result stands: errors of what is left to do are warnings.
    """
    for move in moves:
        folder = move.source if move.entries is not None else move.source.parent
        sync(move.source, 0o666 & folder.stat().st_mode)
    with interrupts_delayed(by_moves=True):
        if len(moves) == 1 and moves[0].is_one_rename:
            moves[0].make()
            _sync_moved(moves[0].target, moves[0].folder)
        elif moves:
            for folder in dict.fromkeys(move.folder for move in moves):
                sync_folder(folder)
            with _moving(moves[0].record):
                _write_records(moves)
                _finish(moves)
        for move in moves:
            move.tidy()


def _sync_moved(target: Path, *folders: Path) -> bool:
    """Sync folders in which a result has been put into place; a failure is a warning."""
    try:
        for folder in dict.fromkeys(folders):
            sync_folder(folder)
    except (OSError, MemoryError) as error:
        logger.warning("%s is complete, but could not be synced (%s).", target, _cause(error))
        return False
    return True


def _finish(moves: Sequence[Move]) -> None:
    """Make recorded moves, and delete the records, the first one first."""
    for is_last in (False, True):  # most errors pass
        try:
            for move in moves:
                move.make()
            break
        except (OSError, MemoryError) as error:
            if is_last:
                where = final_path(getattr(error, "filename", None) or moves[0].target)
                raise OSError(
                    f"{moves[0].target} is complete but not all of it could be moved into place ({_cause(error)}: "
                    f"{where}); the next command that reads or writes it moves the rest."
                ) from error
    result = moves[0].target, *(move.folder for move in moves)
    if _sync_moved(*result):  # otherwise the next command makes the moves, if they are lost
        for move in moves:
            discard(move.record)
        _sync_moved(*result)


@contextmanager
def _moving(first: Path) -> Iterator[None]:
    """Keep other processes from making moves whose first record is this."""
    lock = FileLock(f"{first}{LOCK}", timeout=_PATIENCE)
    try:
        lock.acquire()
    except Timeout:
        raise OSError(f"Another process is moving files into place in {first.parent}; wait until it ends.") from None
    try:
        yield
    finally:
        try:
            discard(Path(lock.lock_file))
        finally:
            lock.release()


def _write_records(moves: Sequence[Move]) -> None:
    """Record moves at their places; the first record is written last, and counts for all."""
    first = moves[0].record
    try:
        for move in reversed(moves):
            state: dict[str, Any] = {
                "source": os.path.relpath(move.source, move.folder),
                "old": move.old.name,
                "entries": move.entries,
                "removed": move.removed,
                "first": os.path.relpath(first, move.folder),
                "places": [[os.path.relpath(each.target, first.parent), each.within] for each in moves],
            }
            assert is_bookkeeping(Path(Path(state["source"]).parts[0])), "it would be rejected as foreign"
            temporary = temporary_path(move.target, "in", move.within)
            try:
                temporary.write_text(json.dumps(state), encoding="utf-8")
                sync(temporary)
                temporary.replace(move.record)
            finally:
                discard(temporary)
            sync_folder(move.folder)
    except BaseException:
        for record in (move.record for move in moves):
            with suppress(OSError):
                record.unlink(missing_ok=True)
        if not first.exists():  # otherwise the moves are to be made
            raise


def finish_moves(path: str | Path) -> None:
    """Make the moves that a call has left at a file or folder, or at the folder around it, when it was ended."""
    path = Path(os.path.abspath(path))  # noqa: PTH100  # without following links
    for place, within in ((path, False), (path, True), (path.parent, True), (path.parent, False)):
        if place.name and (record := record_of(place, within)).is_file():
            _finish_recorded(place, record)


def remove_left(place: Path, within: bool) -> None:
    """Delete what killed processes have left at a place that the caller has locked, after `finish_moves`."""
    pattern = re.compile((r"\." if within else rf"\.{re.escape(place.name)}\.") + _TEMPORARY)
    for entry in [*(place if within else place.parent).iterdir()]:
        if pattern.fullmatch(entry.name):
            discard(entry)
    record = record_of(place, within)
    if Path(f"{record}{LOCK}").exists():
        with suppress(OSError), _moving(record):  # which deletes it
            pass


def finish_all_moves(folder: Path) -> None:
    """Make all moves that are left in a folder and below it, and delete what killed processes have left there."""
    for record in sorted(folder.rglob(f".*{MOVES.removeprefix('.')}")):
        within = record.name == MOVES
        name = record.name.removeprefix(".").removesuffix(MOVES)
        if record.is_file():
            _finish_recorded(record.parent if within else record.with_name(name), record)
    for left in sorted(folder.rglob(".*")):
        if _TEMPORARY_NAME.fullmatch(left.name) or left.name.endswith(MOVES + LOCK):
            discard(left)


def _finish_recorded(place: Path, record: Path) -> None:
    first = record.parent / _read_record(record)["first"]
    if not os.access(record.parent, os.W_OK):
        raise PermissionError(
            f"An earlier call was ended while it moved files to {place}, and the rest cannot be moved without "
            f"permission to write to {record.parent}."
        )
    with _moving(first):
        if not record.is_file() or record.parent / _read_record(record)["first"] != first:
            return  # another process has made them
        if not first.is_file():  # ended before the first record was written: the old result stands
            record.unlink()
            return
        moves = []
        for name, within in _read_record(first)["places"]:
            target = first.parent / name
            other = record_of(target, within)
            # A place takes part only if its own record says so.
            if other.is_file() and (other.parent / _read_record(other)["first"]).resolve() == first.resolve():
                moves.append(_recorded_move(target, within, other))
        if not moves:
            raise ValueError(f"{first} is no record of moves (it names no place with one); delete it.")
        _finish(moves)
    for move in moves:
        move.tidy()
    logger.info("%s: an earlier call was ended while it moved files into place; now all are there.", place)


def _read_record(record: Path) -> dict[str, Any]:
    """The content of a record, which may have been downloaded with its folder."""
    try:
        state = json.loads(record.read_bytes())
        places = [(name, bool(within)) for name, within in state["places"]]
        move: dict[str, Any] = {name: state[name] for name in ("source", "old", "entries", "removed", "first")}
        entries = () if move["entries"] is None else move["entries"]
        names = [*entries, *move["removed"], *(name for name, _ in places)]
        if any(b"\0" in os.fsencode(name) for name in (move["source"], move["old"], move["first"], *names)):
            raise ValueError("a name with a zero byte")
        if not all(within or Path(name).name for name, within in places):
            raise ValueError("a place without a name")
        if not re.fullmatch(rf"\..*{re.escape(MOVES)}|{re.escape(MOVES)}", Path(move["first"]).name):
            raise ValueError("its first one is no record")  # next to which a lock file would be made, and deleted
        return move | {"places": places}
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{record} is no record of moves ({str(error)[:80]}); delete it.") from error


def _recorded_move(target: Path, within: bool, record: Path) -> Move:
    """The move of a record, which may have been downloaded with its folder: it touches nothing elsewhere."""
    state = _read_record(record)
    folder = target if within else target.parent
    source, names = Path(state["source"]), [*(state["entries"] or ()), *state["removed"]]
    is_named = source.parts and is_bookkeeping(Path(source.parts[0])) and source.parts[1:] in ((), (target.name,))
    is_inside = is_named and not any((folder / part).is_symlink() for part in (source.parts[0], state["old"]))
    if (
        not is_inside
        or not _TEMPORARY_NAME.fullmatch(state["old"])
        or not all(Path(name).name == name for name in names)
    ):
        raise ValueError(f"{record} names files that are not its own; delete it.")
    entries = None if state["entries"] is None else tuple(state["entries"])
    return Move(folder / source, target, folder / state["old"], within, entries, tuple(state["removed"]))
