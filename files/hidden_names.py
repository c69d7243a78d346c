"""Hidden names of incomplete files and folders."""

import re
from pathlib import Path

PARTIAL = ".partial"  # suffix of incomplete files and folders
OLD = ".old"  # follows it for a folder that is being replaced
LOCK = ".lock"  # suffix of lock files
# names from mkdtemp; other incomplete folders are reused
_MADE_BESIDE = re.compile(rf"\.(?:(.+)\.)?\w{{8}}{re.escape(PARTIAL)}")


def is_bookkeeping(entry: Path) -> bool:
    """Whether a file or folder is a lock, or incomplete."""
    return entry.name.startswith(".") and (PARTIAL in entry.name or entry.name.endswith(LOCK))


def is_incomplete(entry: Path, path: Path) -> bool:
    """Whether a file or folder is what a writer of `path` has not completed, next to `path` or in it."""
    if re.fullmatch(rf"\.{re.escape(path.name)}\.\w+{re.escape(PARTIAL)}({re.escape(OLD)})?", entry.name):
        return True
    made = _MADE_BESIDE.fullmatch(entry.name)
    return made is not None and made[1] is None and entry.parent == path


def final_place(path: Path) -> Path:
    """The final path of a file written within `folder_written_beside` or `files_written_beside`."""
    for folder in path.parents:
        if match := _MADE_BESIDE.fullmatch(folder.name):
            return folder.parent / (match[1] or "") / path.relative_to(folder)
    return path
