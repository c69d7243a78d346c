"""Hidden names of incomplete files and folders."""

import re
from pathlib import Path

PARTIAL = ".partial"  # suffix of incomplete files and folders
OLD = ".old"  # follows it for a folder that is being replaced
LOCK = ".lock"  # suffix of lock files
_OF_MKDTEMP = r"\w{8}"
# other incomplete folders are reused
_MADE_BESIDE = re.compile(rf"\.(?:(.+)\.)?{_OF_MKDTEMP}{re.escape(PARTIAL)}")


def is_bookkeeping(entry: Path) -> bool:
    """Whether a file or folder is a lock, or incomplete."""
    return entry.name.startswith(".") and (PARTIAL in entry.name or entry.name.endswith(LOCK))


def is_incomplete(entry: Path, path: Path) -> bool:
    """Whether a file or folder is what a writer of `path` has not completed, next to `path` or in it."""
    # The writer's process, or mkdtemp's letters: an ending (.NAME.csv.partial) is of what another command resumes.
    writer = rf"(\d+|{_OF_MKDTEMP})"
    if re.fullmatch(rf"\.{re.escape(path.name)}\.{writer}{re.escape(PARTIAL)}({re.escape(OLD)})?", entry.name):
        return True
    made = _MADE_BESIDE.fullmatch(entry.name)
    return made is not None and made[1] is None and entry.parent == path


def final_place(path: Path) -> Path:
    """The final path of a file written within `folder_written_beside` or `files_written_beside`."""
    for folder in path.parents:
        if match := _MADE_BESIDE.fullmatch(folder.name):
            return folder.parent / (match[1] or "") / path.relative_to(folder)
    return path
