"""URLs of object stores and the web, which are not accepted as files or folders."""

import os
import re
from pathlib import Path

# A scheme has at least two letters (one letter is a drive); `Path` reduces its slashes to one.
_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+):/+")


def refuse_address(
    path: str | os.PathLike[str], expected: str = "a file or folder: copy or mount what an object store has"
) -> None:
    """Reject `s3://bucket/name` and the like, unless a file has that name, where a file or folder is expected."""
    if _SCHEME.match(name := os.fspath(path)) and not Path(path).exists():
        address = _SCHEME.sub(r"\1://", name)
        raise FileNotFoundError(f"{address} is an address; expected {expected}.")
