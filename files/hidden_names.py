"""Hidden names of what is being written: only what is whole has its own name."""

import re
from pathlib import Path

PARTIAL = ".partial"  # ends the names of what is not whole yet
OLD = ".old"  # follows that in the name of a folder that is being replaced
LOCK = ".lock"  # ends the names of files that carry a lock
_MADE_BESIDE = re.compile(rf"\.(?:(.+)\.)?\w{{8}}{re.escape(PARTIAL)}")  # of mkdtemp; others are gone on with


def is_bookkeeping(entry: Path) -> bool:
    """Whether something is a lock, or not whole."""
    return entry.name.startswith(".") and (PARTIAL in entry.name or entry.name.endswith(LOCK))


def final_place(path: Path) -> Path:
    """Where a file goes that is written in a folder made by `folder_written_beside` or `files_written_beside`."""
    for folder in path.parents:
        if match := _MADE_BESIDE.fullmatch(folder.name):
            return folder.parent / (match[1] or "") / path.relative_to(folder)
    return path
